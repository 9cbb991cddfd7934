"""Waiting messages to their targets, many per call: records of the log are written anew, at its end.

``redeliver`` walks entries of a schedule or timer queue. Each message that is due is copied into the space that the
store reserved: same body, properties and birth, another topic, queue, offset and store time. It stops at the first
message that is not due, that does not fit, or that is unusual in any way; that one is left to ``delay_queue.py``,
where the rules are written down. ``tests/property/test_redelivery.py`` takes both ways and compares the logs.

Layouts: see ``protocol/record_cy.py`` and ``store/queue_scan_cy.py``. Buffers and integers only, no clock; the branches
for uncompiled use are the specification.
"""

# mypy: ignore-errors
# ruff: noqa: F821

from __future__ import annotations

import struct
from typing import NamedTuple

try:
    import cython
except ModuleNotFoundError:
    from cometmq import _cython as cython

if cython.compiled:
    from cython.cimports.cometmq.big_endian import get_i32, get_i64, get_u32, put_32, put_64
    from cython.cimports.cpython.buffer import (
        Py_buffer,
        PyBUF_SIMPLE,
        PyBUF_WRITABLE,
        PyBuffer_Release,
        PyObject_GetBuffer,
    )
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
    from cython.cimports.libc.string import memchr, memcmp, memcpy

ENTRY_SIZE = 20
RECORD_SIZE_MIN = 91
MESSAGE_MAGIC = 0xDAA320A7
HALF_TOPIC = b"RMQ_SYS_TRANS_HALF_TOPIC"

# Why it stopped.
AT_END, NOT_DUE, NO_ROOM, UNUSUAL = 0, 1, 2, 3

_ENTRY = struct.Struct(">qiq")
_HEAD = struct.Struct(">IIIiiqqi")  # up to and including sysFlag
_PREPARED_OFFSET = struct.Struct(">q")


class Plan(NamedTuple):
    """What a queue does with its messages."""

    delay_ms: int  # of the queue; for timers one hop
    timed: bool  # the message says itself when it is due (TIMER_OUT_MS), else its queue entry does
    timer_topic: bytes  # where messages that are not through yet hop on
    hop_ms_min: int
    hop_count: int
    body_size_max: int
    multi_dispatch: bool  # messages with additional queues are unusual


class Redelivered(NamedTuple):
    count: int
    position: int  # after the last record written
    stop: int
    due_ms: int  # of the message that is not due


@cython.cclass
class Target:
    """A topic that takes messages: its next queue offsets, and what it took since ``take_counts``."""

    offsets = cython.declare(object, visibility="readonly")
    _offsets: cython.pointer(cython.longlong)
    _offset_count: cython.longlong
    _messages: cython.longlong
    _size: cython.longlong

    def __init__(self, offsets: memoryview) -> None:
        """The offsets (format 'q', writable) must stay where they are as long as this lives."""
        self.offsets = offsets
        self._messages = 0
        self._size = 0
        if cython.compiled:
            self._note(offsets)

    def take_counts(self) -> tuple[int, int]:
        """Messages and bytes since the last call."""
        counts = self._messages, self._size
        self._messages = self._size = 0
        return counts

    @cython.cfunc
    def _note(self, offsets: object) -> object:
        buffer: Py_buffer
        PyObject_GetBuffer(offsets, cython.address(buffer), PyBUF_WRITABLE)
        self._offsets = cython.cast(cython.pointer(cython.longlong), buffer.buf)
        self._offset_count = buffer.len // 8
        PyBuffer_Release(cython.address(buffer))


def redeliver(
    entries: object,
    start: int,
    end: int,
    log: object,
    log_start: int,
    log_end: int,
    out: object,
    position: int,
    limit: int,
    physical_base: int,
    now_ms: int,
    plan: Plan,
    targets: dict[bytes, Target],
) -> Redelivered:
    """Copy what is due of the messages of entries[start:end] into out[position:limit].

    ``log`` holds the physical offsets from ``log_start`` on, up to ``log_end``; ``physical_base`` is that of out[0].
    """
    if cython.compiled:
        return _redeliver_compiled(
            entries,
            start,
            end,
            log,
            log_start,
            log_end,
            out,
            position,
            limit,
            physical_base,
            now_ms,
            plan,
            targets,
        )
    count = 0
    while start + ENTRY_SIZE <= end:
        physical_offset, size, code = _ENTRY.unpack_from(entries, start)
        record = None
        if log_start <= physical_offset and physical_offset + size <= log_end and size >= RECORD_SIZE_MIN:
            record = memoryview(log)[physical_offset - log_start :][:size]
        parts = _parts(record, plan) if record is not None else None
        if parts is None or (not plan.timed and code < 0):
            return Redelivered(count, position, UNUSUAL, 0)
        due_ms = _due(parts, code, now_ms, plan)
        if due_ms > now_ms:
            return Redelivered(count, position, NOT_DUE, due_ms)
        topic, queue_id = parts.topic, parts.queue_id
        if plan.timed and parts.out_ms > now_ms:
            topic, queue_id = plan.timer_topic, _hop_level(parts.out_ms - now_ms, plan)
        target = targets.get(topic)
        if target is None or queue_id >= len(target.offsets):
            return Redelivered(count, position, UNUSUAL, 0)
        copy_size = size - parts.topic_size + len(topic)
        if position + copy_size > limit:
            return Redelivered(count, position, NO_ROOM, 0)
        _write(record, parts, out, position, topic, queue_id, target.offsets[queue_id], physical_base, now_ms)
        target.offsets[queue_id] += 1
        target._messages += 1
        target._size += copy_size
        position += copy_size
        start += ENTRY_SIZE
        count += 1
    return Redelivered(count, position, AT_END, 0)


class _Parts(NamedTuple):
    store_timestamp_ms: int
    reconsume_at: int
    topic_at: int  # of its length
    topic_size: int
    topic: bytes  # the real one
    queue_id: int
    out_ms: int


def _parts(record: memoryview, plan: Plan) -> _Parts | None:
    """What has to be known of a record; None when it is unusual."""
    size, magic, *_, sys_flag = _HEAD.unpack_from(record)
    born = 20 if sys_flag & 0x10 else 8
    reconsume_at = 56 + born + (20 if sys_flag & 0x20 else 8)
    if size != len(record) or magic != MESSAGE_MAGIC or reconsume_at + 16 > size:
        return None
    store_timestamp_ms = int.from_bytes(record[48 + born : 56 + born], "big", signed=True)
    body_size = int.from_bytes(record[reconsume_at + 12 : reconsume_at + 16], "big", signed=True)
    topic_at = reconsume_at + 16 + body_size
    if not 0 <= body_size <= plan.body_size_max or topic_at + 3 > size:
        return None
    topic_size = record[topic_at]
    properties_at = topic_at + 1 + topic_size
    if properties_at + 2 > size:
        return None
    properties_size = int.from_bytes(record[properties_at : properties_at + 2], "big")
    if properties_at + 2 + properties_size != size:
        return None
    found = _properties(bytes(record[properties_at + 2 :]))
    topic, queue_id = found.get(b"REAL_TOPIC", b""), found.get(b"REAL_QID", b"")
    out = found.get(b"TIMER_OUT_MS", b"")
    if not 0 < len(topic) <= 127 or topic == HALF_TOPIC or any(not 0x20 < byte < 0x7F for byte in topic):
        return None
    if not (queue_id.isdigit() and len(queue_id) < 10) or (
        plan.multi_dispatch and b"INNER_MULTI_DISPATCH" in found
    ):
        return None
    if plan.timed and not (out.isdigit() and len(out) <= 18):
        return None
    return _Parts(
        store_timestamp_ms,
        reconsume_at,
        topic_at,
        topic_size,
        topic,
        int(queue_id),
        int(out) if plan.timed else 0,
    )


def _properties(text: bytes) -> dict[bytes, bytes]:
    pairs = (item.partition(b"\x01") for item in text.split(b"\x02"))
    return {name: value for name, separator, value in pairs if separator}


def _due(parts: _Parts, code: int, now_ms: int, plan: Plan) -> int:
    if plan.timed:
        return min(parts.store_timestamp_ms + plan.delay_ms, parts.out_ms, now_ms + plan.delay_ms)
    return now_ms if code > now_ms + plan.delay_ms else code


def _hop_level(rest_ms: int, plan: Plan) -> int:
    level = 0
    while level < plan.hop_count - 1 and plan.hop_ms_min << (level + 1) <= rest_ms:
        level += 1
    return level


def _write(record, parts, out, position, topic, queue_id, queue_offset, physical_base, now_ms) -> None:
    _, _, crc, _, flag, _, _, sys_flag = _HEAD.unpack_from(record)
    rest_at = parts.topic_at + 1 + parts.topic_size
    copy = bytearray(record[: parts.topic_at])
    stored_at = parts.reconsume_at - (28 if sys_flag & 0x20 else 16)
    _PREPARED_OFFSET.pack_into(copy, stored_at, now_ms)
    _PREPARED_OFFSET.pack_into(copy, parts.reconsume_at + 4, 0)
    copy += bytes((len(topic),)) + topic + record[rest_at:]
    _HEAD.pack_into(
        copy,
        0,
        len(copy),
        MESSAGE_MAGIC,
        crc,
        queue_id,
        flag,
        queue_offset,
        physical_base + position,
        sys_flag,
    )
    out[position : position + len(copy)] = copy


if cython.compiled:

    @cython.cfunc
    @cython.exceptval(check=False)
    def _number(p: cython.p_uchar, size: cython.longlong, size_max: cython.longlong) -> cython.longlong:
        """A decimal number of at most so many digits, else -1."""
        value: cython.longlong = 0
        i: cython.longlong
        if size < 1 or size > size_max:
            return -1
        for i in range(size):
            if p[i] < 0x30 or p[i] > 0x39:
                return -1
            value = value * 10 + (p[i] - 0x30)
        return value

    @cython.cclass
    class _Plan:
        """A ``Plan`` in C."""

        delay_ms: cython.longlong
        timed: cython.bint
        timer_topic: bytes
        hop_ms_min: cython.longlong
        hop_count: cython.longlong
        body_size_max: cython.longlong
        multi_dispatch: cython.bint

        def __init__(self, plan: object) -> None:
            self.delay_ms, self.timed, self.timer_topic = plan.delay_ms, plan.timed, plan.timer_topic
            self.hop_ms_min, self.hop_count = plan.hop_ms_min, plan.hop_count
            self.body_size_max, self.multi_dispatch = plan.body_size_max, plan.multi_dispatch

    @cython.cclass
    class _Found:
        """What has to be known of a record."""

        store_timestamp_ms: cython.longlong
        stored_at: cython.longlong
        reconsume_at: cython.longlong
        topic_at: cython.longlong
        topic_size: cython.longlong
        real_topic: cython.p_uchar
        real_topic_size: cython.longlong
        queue_id: cython.longlong  # the real one, then that of the timer
        out_ms: cython.longlong
        multi: cython.bint

    @cython.cfunc
    @cython.exceptval(check=False)
    def _find_properties(found: _Found, p: cython.p_uchar, size: cython.longlong) -> cython.void:
        """The properties that count; of doubles the last one."""
        end: cython.p_uchar = p + size
        stop: cython.p_uchar
        split: cython.p_uchar
        name_size: cython.longlong
        value_size: cython.longlong
        found.real_topic_size = 0
        found.queue_id = -1
        found.out_ms = -1
        found.multi = False
        while p < end:
            stop = cython.cast(cython.p_uchar, memchr(p, 2, end - p))
            if stop == cython.NULL:
                stop = end
            split = cython.cast(cython.p_uchar, memchr(p, 1, stop - p))
            if split != cython.NULL:
                name_size = split - p
                value_size = stop - split - 1
                if name_size == 10 and memcmp(p, b"REAL_TOPIC", 10) == 0:
                    found.real_topic = split + 1
                    found.real_topic_size = value_size
                elif name_size == 8 and memcmp(p, b"REAL_QID", 8) == 0:
                    found.queue_id = _number(split + 1, value_size, 9)
                elif name_size == 12 and memcmp(p, b"TIMER_OUT_MS", 12) == 0:
                    found.out_ms = _number(split + 1, value_size, 18)
                elif name_size == 20 and memcmp(p, b"INNER_MULTI_DISPATCH", 20) == 0:
                    found.multi = True
            p = stop + 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def _find(
        found: _Found, p: cython.p_uchar, size: cython.longlong, body_size_max: cython.longlong
    ) -> cython.bint:
        """Take a record apart; False when it is unusual. Every position is checked against its size."""
        sys_flag: cython.uint
        body_size: cython.longlong
        properties_at: cython.longlong
        i: cython.longlong
        if get_u32(p) != size or get_u32(p + 4) != cython.cast(cython.uint, 0xDAA320A7):
            return False
        sys_flag = get_u32(p + 36)
        found.stored_at = 68 if sys_flag & 0x10 else 56
        found.reconsume_at = found.stored_at + 8 + (20 if sys_flag & 0x20 else 8)
        if found.reconsume_at + 16 > size:
            return False
        found.store_timestamp_ms = get_i64(p + found.stored_at)
        body_size = get_i32(p + found.reconsume_at + 12)
        if body_size < 0 or body_size > body_size_max or found.reconsume_at + 16 + body_size + 3 > size:
            return False
        found.topic_at = found.reconsume_at + 16 + body_size
        found.topic_size = p[found.topic_at]
        properties_at = found.topic_at + 1 + found.topic_size
        if properties_at + 2 > size:
            return False
        if properties_at + 2 + ((p[properties_at] << 8) | p[properties_at + 1]) != size:
            return False
        _find_properties(found, p + properties_at + 2, size - properties_at - 2)
        if found.real_topic_size < 1 or found.real_topic_size > 127 or found.queue_id < 0:
            return False
        for i in range(found.real_topic_size):
            if found.real_topic[i] <= 0x20 or found.real_topic[i] >= 0x7F:
                return False
        return not (
            found.real_topic_size == 24 and memcmp(found.real_topic, b"RMQ_SYS_TRANS_HALF_TOPIC", 24) == 0
        )

    @cython.cfunc
    @cython.exceptval(check=False)
    def _copy(
        found: _Found,
        p: cython.p_uchar,
        size: cython.longlong,
        q: cython.p_uchar,
        topic: cython.p_char,
        topic_size: cython.longlong,
        queue_offset: cython.longlong,
        physical_offset: cython.longlong,
        now_ms: cython.longlong,
    ) -> cython.void:
        """Write the record anew at ``q``. Its length comes last: until then the log ends before it."""
        rest_at: cython.longlong = found.topic_at + 1 + found.topic_size
        memcpy(q + 4, p + 4, found.topic_at - 4)
        q[found.topic_at] = cython.cast(cython.uchar, topic_size)
        memcpy(q + found.topic_at + 1, topic, topic_size)
        memcpy(q + found.topic_at + 1 + topic_size, p + rest_at, size - rest_at)
        put_32(q + 12, cython.cast(cython.uint, found.queue_id))
        put_64(q + 20, queue_offset)
        put_64(q + 28, physical_offset)
        put_64(q + found.stored_at, now_ms)
        put_64(q + found.reconsume_at + 4, 0)
        put_32(q, cython.cast(cython.uint, size - found.topic_size + topic_size))

    @cython.cfunc
    def _redeliver_compiled(
        entries: object,
        start: cython.longlong,
        end: cython.longlong,
        log: object,
        log_start: cython.longlong,
        log_end: cython.longlong,
        out: object,
        position: cython.longlong,
        limit: cython.longlong,
        physical_base: cython.longlong,
        now_ms: cython.longlong,
        plan: object,
        targets: dict,
    ) -> object:
        entry_view: Py_buffer
        log_view: Py_buffer
        out_view: Py_buffer
        PyObject_GetBuffer(entries, cython.address(entry_view), PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(log, cython.address(log_view), PyBUF_SIMPLE)
            try:
                PyObject_GetBuffer(out, cython.address(out_view), PyBUF_WRITABLE)
                try:
                    if start < 0 or end > entry_view.len:
                        raise ValueError(
                            f"{start}..{end} is not inside the entries of {entry_view.len} bytes"
                        )
                    if log_end - log_start > log_view.len or log_end < log_start:
                        raise ValueError(
                            f"{log_start}..{log_end} is not inside the log of {log_view.len} bytes"
                        )
                    if position < 0 or limit > out_view.len:
                        raise ValueError(
                            f"{position}..{limit} is not inside the space of {out_view.len} bytes"
                        )
                    return _walk(
                        cython.cast(cython.p_uchar, entry_view.buf), start, end,
                        cython.cast(cython.p_uchar, log_view.buf), log_start, log_end,
                        cython.cast(cython.p_uchar, out_view.buf), position, limit,
                        physical_base, now_ms, _Plan(plan), targets,
                    )  # fmt: skip
                finally:
                    PyBuffer_Release(cython.address(out_view))
            finally:
                PyBuffer_Release(cython.address(log_view))
        finally:
            PyBuffer_Release(cython.address(entry_view))

    @cython.cfunc
    @cython.exceptval(check=False)
    def _due_time(
        plan: _Plan,
        found: _Found,
        p: cython.p_uchar,
        size: cython.longlong,
        code: cython.longlong,
        now_ms: cython.longlong,
    ) -> cython.longlong:
        """When the record at ``p`` is due, by its queue entry or by itself; -1 when it is unusual."""
        if not _find(found, p, size, plan.body_size_max) or (plan.multi_dispatch and found.multi):
            return -1
        if not plan.timed:
            return now_ms if code > now_ms + plan.delay_ms else max(code, -1)
        if found.out_ms < 0:
            return -1
        return max(min(min(found.store_timestamp_ms, now_ms) + plan.delay_ms, found.out_ms), 0)

    @cython.cfunc
    def _topic_of(plan: _Plan, found: _Found, now_ms: cython.longlong) -> bytes:
        """Where a message that is due goes: to its real topic, or on in time; ``queue_id`` says to which queue."""
        rest_ms: cython.longlong = found.out_ms - now_ms
        if not plan.timed or rest_ms <= 0:
            return PyBytes_FromStringAndSize(
                cython.cast(cython.p_char, found.real_topic), found.real_topic_size
            )
        found.queue_id = 0
        while found.queue_id < plan.hop_count - 1 and plan.hop_ms_min << (found.queue_id + 1) <= rest_ms:
            found.queue_id += 1
        return plan.timer_topic

    @cython.cfunc
    def _walk(
        entries: cython.p_uchar,
        start: cython.longlong,
        end: cython.longlong,
        log: cython.p_uchar,
        log_start: cython.longlong,
        log_end: cython.longlong,
        out: cython.p_uchar,
        position: cython.longlong,
        limit: cython.longlong,
        physical_base: cython.longlong,
        now_ms: cython.longlong,
        plan: _Plan,
        targets: dict,
    ) -> object:
        found: _Found = _Found()
        target: Target
        topic: bytes
        count: cython.longlong = 0
        due_ms: cython.longlong
        physical_offset: cython.longlong
        size: cython.longlong
        copy_size: cython.longlong
        p: cython.p_uchar
        while start + 20 <= end:
            physical_offset = get_i64(entries + start)
            size = get_i32(entries + start + 8)
            if size < 91 or physical_offset < log_start or physical_offset > log_end - size:
                return Redelivered(count, position, UNUSUAL, 0)
            p = log + (physical_offset - log_start)
            due_ms = _due_time(plan, found, p, size, get_i64(entries + start + 12), now_ms)
            if due_ms < 0:
                return Redelivered(count, position, UNUSUAL, 0)
            if due_ms > now_ms:
                return Redelivered(count, position, NOT_DUE, due_ms)
            topic = _topic_of(plan, found, now_ms)
            target = targets.get(topic)
            if target is None or found.queue_id >= target._offset_count:
                return Redelivered(count, position, UNUSUAL, 0)
            copy_size = size - found.topic_size + len(topic)
            if position + copy_size > limit:
                return Redelivered(count, position, NO_ROOM, 0)
            _copy(
                found, p, size, out + position, PyBytes_AS_STRING(topic), len(topic),
                target._offsets[found.queue_id], physical_base + position, now_ms,
            )  # fmt: skip
            target._offsets[found.queue_id] += 1
            target._messages += 1
            target._size += copy_size
            position += copy_size
            start += 20
            count += 1
        return Redelivered(count, position, AT_END, 0)
