"""The dispatcher: from records in the commit log to ConsumeQueue entries and index keys, a range per call.

Theory of operation. There is one dispatcher for everything: appends of this broker, bytes from a master,
recovery. It is handed a range of good records and brings every queue and the index up to it. What they have
already is passed over, so a range may be dispatched twice (after a crash, after a failure half way).

The common case runs in C: the topic is found in a dictionary, the queue's write end (`QueueTail`) points into
the mapped ConsumeQueue file, the entry fits. Everything else is a call of a Python method: a queue whose file
is not mapped or full (`QueueTail.append_slowly`), a topic or queue never seen (`Dispatcher.new_topic`,
`new_queue`), and records that are entered differently (`append_specially`: delay, multi-dispatch, extension).

Loop thread. No clock, no asyncio, no logging. The branches for uncompiled use are the specification.
"""

# mypy: ignore-errors
# ruff: noqa: F821

from __future__ import annotations

import array
import struct
from typing import Optional

try:
    import cython
except ModuleNotFoundError:
    from cometmq import _cython as cython

from cometmq.store.index_cy import fold_hash, text_hash

if cython.compiled:
    from cython.cimports.cometmq.big_endian import get_i32, get_i64, get_u32, put_32, put_64
    from cython.cimports.cometmq.store.index_cy import KeySink
    from cython.cimports.cpython.buffer import (
        Py_buffer,
        PyBUF_SIMPLE,
        PyBUF_WRITABLE,
        PyBuffer_Release,
        PyObject_GetBuffer,
    )
    from cython.cimports.libc.string import memchr, memcmp

ENTRY_SIZE = 20
KEYS_PER_BATCH_MAX = 4096
# Of a queue: a greater one is damage (positions in a queue's stream are 20 times as much, in 64 bits)
QUEUE_OFFSET_MAX = cython.declare(cython.longlong, 1 << 58)
MESSAGE_MAGIC = 0xDAA320A7
RECORD_SIZE_MIN = 91

TRANSACTION_MASK = 0xC
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC

_ENTRY = struct.Struct(">qiq")
_HEAD = struct.Struct(">IIIiiqqi")


@cython.cclass
class QueueTail:
    """Write end of one ConsumeQueue. Positions are bytes of the queue's stream (queue offset times 20)."""

    queue_id = cython.declare(cython.longlong, visibility="public")
    end = cython.declare(cython.longlong, visibility="public")  # after the last entry
    limit = cython.declare(cython.longlong, visibility="public")  # entries fit up to here
    file_start = cython.declare(cython.longlong, visibility="public")  # of the mapped tail file
    max_physical_offset = cython.declare(cython.longlong, visibility="public")  # end of the last record
    view = cython.declare(object, visibility="public")  # of the mapped tail file, or None
    watchers = cython.declare(object, visibility="public")  # list of callbacks, or None
    used = cython.declare(cython.bint, visibility="public")  # since the open-files table looked last
    dirty = cython.declare(cython.bint, visibility="public")  # stands in Dispatcher.dirty
    _base: cython.p_uchar

    def __init__(self, queue_id: int) -> None:
        self.queue_id = queue_id
        self.end = 0
        self.limit = 0
        self.file_start = 0
        self.max_physical_offset = 0
        self.view = None
        self.watchers = None
        self.used = False
        self.dirty = False

    def attach(self, view: memoryview, file_start: int, limit: int) -> None:
        """The tail file is mapped as `view`; entries may be written up to stream position `limit`."""
        self.view = view
        self.file_start = file_start
        self.limit = limit
        if cython.compiled:
            self._attach(view)

    def detach(self) -> None:
        """The mapping goes away: from now on every append is slow until attach()."""
        self.view = None
        self.limit = 0
        if cython.compiled:
            self._base = cython.NULL

    def append_slowly(self, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> bool:
        """Whatever the fast way cannot do; False if the queue has this entry already."""
        raise NotImplementedError

    @cython.cfunc
    def _attach(self, view: object) -> object:
        # The pointer stays valid while self.view keeps the mapping alive.
        buffer: Py_buffer
        PyObject_GetBuffer(view, cython.address(buffer), PyBUF_WRITABLE)
        self._base = cython.cast(cython.p_uchar, buffer.buf)
        PyBuffer_Release(cython.address(buffer))


@cython.cclass
class TopicQueues:
    """The queues of one topic."""

    topic = cython.declare(object, visibility="public")  # str
    name = cython.declare(bytes, visibility="public")
    queues = cython.declare(dict, visibility="public")  # queue id -> QueueTail
    special = cython.declare(cython.bint, visibility="public")  # every record goes to append_specially
    offsets = cython.declare(object, visibility="public")  # array('q') of next queue offsets, or None
    key_hash = cython.declare(cython.uint, visibility="public")  # Java hash of "topic#"
    _offsets: cython.pointer(cython.longlong)
    _offset_count: cython.longlong

    def __init__(self, name: bytes, special: bool) -> None:
        self.name = name
        self.topic = name.decode("utf-8", "replace")
        self.queues = {}
        self.special = special
        self.offsets = None
        self.key_hash = text_hash(0, self.topic + "#")

    def set_offsets(self, offsets: array.array[int] | None) -> None:
        self.offsets = offsets
        if cython.compiled:
            self._note_offsets(offsets)

    @cython.cfunc
    def _note_offsets(self, offsets: object) -> object:
        # array.array never moves its memory unless it is resized, which nobody does.
        buffer: Py_buffer
        self._offset_count = 0
        self._offsets = cython.NULL
        if offsets is not None:
            PyObject_GetBuffer(offsets, cython.address(buffer), PyBUF_WRITABLE)
            self._offsets = cython.cast(cython.pointer(cython.longlong), buffer.buf)
            self._offset_count = buffer.len // 8
            PyBuffer_Release(cython.address(buffer))


@cython.cclass
class Dispatching:
    """What the commit knows of the dispatcher."""

    def __init__(self) -> None:
        self.woken = []
        self.last_store_timestamp_ms = 0

    @cython.cfunc
    def enter_range(
        self, buffer: object, start: cython.longlong, end: cython.longlong, physical_base: cython.longlong
    ) -> object:
        """Enter the records of buffer[start:end]; buffer[0] has the physical offset physical_base."""
        raise NotImplementedError


@cython.cclass
class Dispatcher(Dispatching):
    """Brings queues and index up to the log. A subclass knows how queues are made."""

    topics = cython.declare(dict, visibility="public")  # topic bytes -> TopicQueues
    index = cython.declare(object, visibility="public")  # has put(keys, count), or None
    multi_dispatch = cython.declare(cython.bint, visibility="public")
    dirty = cython.declare(list, visibility="public")  # queues appended to since somebody took the list
    record_count = cython.declare(cython.longlong, visibility="public")
    _keys: object
    _keys_base: cython.pointer(cython.longlong)
    _key_count: cython.longlong

    def __init__(self) -> None:
        Dispatching.__init__(self)
        self.topics = {}
        self.index = None
        self.multi_dispatch = False
        self.dirty = []
        self.record_count = 0
        self._keys = memoryview(array.array("q", bytes(8 * 3 * KEYS_PER_BATCH_MAX)))
        self._key_count = 0
        if cython.compiled:
            self._find_keys()

    # What a subclass does

    def new_topic(self, name: bytes) -> TopicQueues:
        raise NotImplementedError

    def new_queue(self, topic_queues: TopicQueues, queue_id: int) -> QueueTail:
        raise NotImplementedError

    def append_specially(
        self,
        topic_queues: TopicQueues,
        queue_id: int,
        queue_offset: int,
        physical_offset: int,
        size: int,
        tags_code: int,
        store_timestamp_ms: int,
        properties: bytes,
        record: memoryview,
    ) -> None:
        raise NotImplementedError

    # What it is for

    def dispatch(self, buffer: memoryview, start: int, end: int, physical_base: int) -> None:
        """Enter the records of buffer[start:end]; buffer[0] has the physical offset physical_base.

        If it raises (a full disk under a queue or the index), dispatch the same range again later.
        """
        self.enter_range(buffer, start, end, physical_base)

    @cython.cfunc
    def enter_range(
        self, buffer: object, start: cython.longlong, end: cython.longlong, physical_base: cython.longlong
    ) -> object:
        try:
            if cython.compiled:
                self._dispatch_compiled(buffer, start, end, physical_base)
            else:
                self._dispatch_python(buffer, start, end, physical_base)
        finally:
            self._flush_keys()
        return None

    def append(
        self,
        topic_queues: TopicQueues,
        queue_id: int,
        queue_offset: int,
        physical_offset: int,
        size: int,
        tags_code: int,
    ) -> None:
        """Enter one record in one queue, unless it is there already."""
        self._append(topic_queues, queue_id, queue_offset, physical_offset, size, tags_code)

    @cython.cfunc
    def _append(
        self,
        topic_queues: TopicQueues,
        queue_id: cython.longlong,
        queue_offset: cython.longlong,
        physical_offset: cython.longlong,
        size: cython.int,
        tags_code: cython.longlong,
    ) -> object:
        queue: QueueTail
        if queue_offset < 0 or queue_offset > QUEUE_OFFSET_MAX:
            return None
        found: object = topic_queues.queues.get(queue_id)
        if found is None:
            found = self.new_queue(topic_queues, queue_id)
        queue = found
        if physical_offset + size <= queue.max_physical_offset:
            return None
        if queue_offset * 20 == queue.end and queue.end + 20 <= queue.limit:
            if cython.compiled:
                put_64(queue._base + (queue.end - queue.file_start), physical_offset)
                put_32(queue._base + (queue.end - queue.file_start) + 8, size)
                put_64(queue._base + (queue.end - queue.file_start) + 12, tags_code)
            else:
                _ENTRY.pack_into(queue.view, queue.end - queue.file_start, physical_offset, size, tags_code)
            queue.end += 20
            queue.max_physical_offset = physical_offset + size
            queue.used = True
        elif not queue.append_slowly(queue_offset, physical_offset, size, tags_code):
            return None
        if not queue.dirty:
            queue.dirty = True
            self.dirty.append(queue)
        if queue.watchers is not None:
            self.woken.append((topic_queues, queue))
        if cython.compiled:
            if queue_id < topic_queues._offset_count and topic_queues._offsets[queue_id] <= queue_offset:
                topic_queues._offsets[queue_id] = queue_offset + 1
        elif topic_queues.offsets is not None and queue_id < len(topic_queues.offsets):
            topic_queues.offsets[queue_id] = max(topic_queues.offsets[queue_id], queue_offset + 1)
        return None

    # Uncompiled

    def _dispatch_python(self, buffer: memoryview, start: int, end: int, physical_base: int) -> None:
        position = start
        while position < end:
            if end - position < RECORD_SIZE_MIN:
                raise ValueError(f"no record at physical offset {physical_base + position}")
            size, magic, _, queue_id, _, queue_offset, _, sys_flag = _HEAD.unpack_from(buffer, position)
            if magic != MESSAGE_MAGIC or not RECORD_SIZE_MIN <= size <= end - position:
                raise ValueError(f"no record at physical offset {physical_base + position}")
            record = buffer[position : position + size]
            name, properties, store_timestamp_ms = record_parts(record, sys_flag)
            found = properties_of_interest(properties)
            topic_queues = self.topics.get(name)
            if topic_queues is None:
                topic_queues = self.new_topic(name)
            physical_offset = physical_base + position
            if sys_flag & TRANSACTION_MASK in (0, TRANSACTION_COMMIT):
                tags = found.get(b"TAGS")
                tags_code = _signed(text_hash(0, tags.decode("utf-8", "replace"))) if tags else 0
                if topic_queues.special or (self.multi_dispatch and b"INNER_MULTI_DISPATCH" in found):
                    self.append_specially(
                        topic_queues, queue_id, queue_offset, physical_offset, size, tags_code,
                        store_timestamp_ms, properties, record,
                    )  # fmt: skip
                else:
                    self._append(topic_queues, queue_id, queue_offset, physical_offset, size, tags_code)
            if self.index is not None and sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK:
                for key in keys_of(found):
                    value = fold_hash(text_hash(topic_queues.key_hash, key.decode("utf-8", "replace")))
                    self._add_key_python(value, physical_offset, store_timestamp_ms)
            self.last_store_timestamp_ms = store_timestamp_ms
            self.record_count += 1
            position += size

    def _add_key_python(self, value: int, physical_offset: int, store_timestamp_ms: int) -> None:
        at = self._key_count * 3
        self._keys[at], self._keys[at + 1], self._keys[at + 2] = value, physical_offset, store_timestamp_ms
        self._key_count += 1
        if self._key_count == KEYS_PER_BATCH_MAX:
            self._flush_keys()

    @cython.cfunc
    def _flush_keys(self) -> object:
        count: cython.longlong = self._key_count
        self._key_count = 0
        if count and self.index is not None:
            if cython.compiled and isinstance(self.index, KeySink):
                sink: KeySink = self.index
                sink.put_keys(self._keys, count)
            else:
                self.index.put(self._keys, count)
        return None

    # Compiled

    @cython.cfunc
    def _find_keys(self) -> object:
        buffer: Py_buffer
        PyObject_GetBuffer(self._keys, cython.address(buffer), PyBUF_WRITABLE)
        self._keys_base = cython.cast(cython.pointer(cython.longlong), buffer.buf)
        PyBuffer_Release(cython.address(buffer))
        return None

    @cython.cfunc
    def _dispatch_compiled(
        self, buffer: object, start: cython.longlong, end: cython.longlong, physical_base: cython.longlong
    ) -> object:
        view: Py_buffer
        position: cython.longlong = start
        size: cython.longlong
        topic_queues: Optional[TopicQueues] = None
        PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
        try:
            if start < 0 or end > view.len:
                raise ValueError(f"{start}..{end} is not inside the buffer of {view.len} bytes")
            while position < end:
                size = _record_size(cython.cast(cython.p_uchar, view.buf) + position, end - position)
                if size == 0:
                    raise ValueError(f"no record at physical offset {physical_base + position}")
                topic_queues = self._enter(
                    cython.cast(cython.p_uchar, view.buf) + position,
                    size, physical_base + position, topic_queues, buffer, position,
                )  # fmt: skip
                position += size
        finally:
            PyBuffer_Release(cython.address(view))
        return None

    @cython.cfunc
    def _enter(
        self,
        p: cython.p_uchar,
        size: cython.longlong,
        physical_offset: cython.longlong,
        topic_queues: Optional[TopicQueues],
        buffer: object,
        position: cython.longlong,
    ) -> TopicQueues:
        """One record; answers its topic's queues, which are tried first for the next record."""
        sys_flag: cython.uint = get_u32(p + 36)
        born: cython.int = 20 if sys_flag & 0x10 else 8
        at: cython.p_uchar = p + 68 + born + (20 if sys_flag & 0x20 else 8)
        store_timestamp_ms: cython.longlong = get_i64(p + 48 + born)
        topic_size: cython.int
        properties_size: cython.int
        tags_code: cython.longlong = 0
        found: _Found
        at += 4 + get_u32(at)
        topic_size = at[0]
        if topic_queues is None or len(topic_queues.name) != topic_size or memcmp(
            cython.cast(cython.p_uchar, cython.cast(cython.p_char, topic_queues.name)), at + 1, topic_size
        ):  # fmt: skip
            topic_queues = self._topic(cython.cast(cython.p_char, at + 1)[:topic_size])
        at += 1 + topic_size
        properties_size = (cython.cast(cython.int, at[0]) << 8) | at[1]
        at += 2
        _find_properties(at, at + properties_size, cython.address(found))
        if sys_flag & 0xC == 0 or sys_flag & 0xC == 0x8:
            if found.tags_size:
                tags_code = cython.cast(cython.int, _hash(0, found.tags, found.tags_size))
            if topic_queues.special or (self.multi_dispatch and found.multi):
                self.append_specially(
                    topic_queues, get_i32(p + 12), get_i64(p + 20), physical_offset,
                    size, tags_code, store_timestamp_ms, cython.cast(cython.p_char, at)[:properties_size],
                    buffer[position : position + size],
                )  # fmt: skip
            else:
                self._append(
                    topic_queues, get_i32(p + 12), get_i64(p + 20),
                    physical_offset, cython.cast(cython.int, size), tags_code,
                )  # fmt: skip
        if self.index is not None and sys_flag & 0xC != 0xC:
            if found.unique_size:
                self._add_key(
                    topic_queues.key_hash,
                    found.unique,
                    found.unique_size,
                    physical_offset,
                    store_timestamp_ms,
                )
            if found.keys_size:
                self._add_keys(
                    topic_queues.key_hash, found.keys, found.keys_size, physical_offset, store_timestamp_ms
                )
        self.last_store_timestamp_ms = store_timestamp_ms
        self.record_count += 1
        return topic_queues

    @cython.cfunc
    def _topic(self, name: bytes) -> TopicQueues:
        found: object = self.topics.get(name)
        if found is None:
            found = self.new_topic(name)
        return found

    @cython.cfunc
    def _add_key(
        self,
        start: cython.uint,
        key: cython.p_uchar,
        size: cython.Py_ssize_t,
        physical_offset: cython.longlong,
        store_timestamp_ms: cython.longlong,
    ) -> object:
        value: cython.uint = _hash(start, key, size)
        entry: cython.pointer(cython.longlong) = self._keys_base + 3 * self._key_count
        if value & cython.cast(cython.uint, 0x80000000):  # without the casts these would be Python's numbers
            value = 0 - value
        entry[0] = 0 if value == cython.cast(cython.uint, 0x80000000) else value
        entry[1] = physical_offset
        entry[2] = store_timestamp_ms
        self._key_count += 1
        if self._key_count == 4096:
            self._flush_keys()
        return None

    @cython.cfunc
    def _add_keys(
        self,
        start: cython.uint,
        keys: cython.p_uchar,
        size: cython.Py_ssize_t,
        physical_offset: cython.longlong,
        store_timestamp_ms: cython.longlong,
    ) -> object:
        """Every part of KEYS between spaces."""
        end: cython.p_uchar = keys + size
        space: cython.p_uchar
        while keys < end:
            space = cython.cast(cython.p_uchar, memchr(keys, 32, end - keys))
            if space == cython.NULL:
                space = end
            if space > keys:
                self._add_key(start, keys, space - keys, physical_offset, store_timestamp_ms)
            keys = space + 1
        return None


def properties_of_interest(properties: bytes) -> dict[bytes, bytes]:
    """The properties that dispatch looks at; of duplicates the last one counts."""
    found: dict[bytes, bytes] = {}
    for item in properties.split(b"\x02"):
        name, separator, value = item.partition(b"\x01")
        if separator and value and name in _INTERESTING:
            found[name] = value
    return found


_INTERESTING = frozenset(
    (b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b"INNER_MULTI_DISPATCH", b"INNER_MULTI_QUEUE_OFFSET")
)


def keys_of(found: dict[bytes, bytes]) -> list[bytes]:
    """What a record is indexed under: UNIQ_KEY, then the parts of KEYS."""
    keys = [found[b"UNIQ_KEY"]] if b"UNIQ_KEY" in found else []
    keys.extend(part for part in found.get(b"KEYS", b"").split(b" ") if part)
    return keys


def has_key(record: memoryview, topic: str, key: str, begin_ms: int, end_ms: int) -> bool:
    """Is a record of this topic, stored within a time, indexed under a key? (The index knows hashes only.)"""
    name, properties, store_timestamp_ms = record_parts(record, _HEAD.unpack_from(record)[7])
    if name != topic.encode() or not begin_ms <= store_timestamp_ms <= end_ms:
        return False
    return key.encode() in keys_of(properties_of_interest(properties))


def record_parts(record: memoryview, sys_flag: int) -> tuple[bytes, bytes, int]:
    """Topic, properties and store timestamp of a record."""
    born = 20 if sys_flag & 0x10 else 8
    at = 68 + born + (20 if sys_flag & 0x20 else 8)
    store_timestamp_ms = int.from_bytes(record[48 + born : 56 + born], "big", signed=True)
    at += 4 + int.from_bytes(record[at : at + 4], "big")
    topic_size = record[at]
    name = bytes(record[at + 1 : at + 1 + topic_size])
    at += 1 + topic_size
    properties = bytes(record[at + 2 :])
    if int.from_bytes(record[at : at + 2], "big") != len(properties):
        raise ValueError("the lengths inside a record do not add up")
    return name, properties, store_timestamp_ms


def _signed(value: int) -> int:
    return value - (1 << 32) if value & 0x80000000 else value


if cython.compiled:
    _Found = cython.struct(
        tags=cython.p_uchar,
        tags_size=cython.Py_ssize_t,
        keys=cython.p_uchar,
        keys_size=cython.Py_ssize_t,
        unique=cython.p_uchar,
        unique_size=cython.Py_ssize_t,
        multi=cython.bint,
    )


@cython.cfunc
@cython.exceptval(check=False)
def _record_size(p: cython.p_uchar, room: cython.longlong) -> cython.longlong:
    """Size of the record at p if all its lengths stay inside, else 0; nothing else checks bounds."""
    size: cython.longlong
    sys_flag: cython.uint
    at: cython.longlong
    if room < 91:
        return 0
    size = get_u32(p)
    if size < 91 or size > room or get_u32(p + 4) != cython.cast(cython.uint, 0xDAA320A7):
        return 0
    sys_flag = get_u32(p + 36)
    at = 84 + (12 if sys_flag & 0x10 else 0) + (12 if sys_flag & 0x20 else 0)
    if at + 7 > size:
        return 0
    at += 4 + cython.cast(cython.longlong, get_u32(p + at))
    if at + 3 > size:
        return 0
    at += 1 + p[at]
    if at + 2 > size or at + 2 + ((cython.cast(cython.longlong, p[at]) << 8) | p[at + 1]) != size:
        return 0
    return size


@cython.cfunc
@cython.exceptval(check=False)
def _find_properties(p: cython.p_uchar, end: cython.p_uchar, found: cython.pointer(_Found)) -> cython.void:
    """properties_of_interest() in C."""
    item_end: cython.p_uchar
    value: cython.p_uchar
    name_size: cython.Py_ssize_t
    found.tags_size = 0
    found.keys_size = 0
    found.unique_size = 0
    found.multi = False
    while p < end:
        item_end = cython.cast(cython.p_uchar, memchr(p, 2, end - p))
        if item_end == cython.NULL:
            item_end = end
        value = cython.cast(cython.p_uchar, memchr(p, 1, item_end - p))
        if value != cython.NULL and item_end - value > 1:
            name_size = value - p
            value += 1
            if name_size == 4:
                if memcmp(p, b"TAGS", 4) == 0:
                    found.tags = value
                    found.tags_size = item_end - value
                elif memcmp(p, b"KEYS", 4) == 0:
                    found.keys = value
                    found.keys_size = item_end - value
            elif name_size == 8:
                if memcmp(p, b"UNIQ_KEY", 8) == 0:
                    found.unique = value
                    found.unique_size = item_end - value
            elif name_size == 20:
                if memcmp(p, b"INNER_MULTI_DISPATCH", 20) == 0:
                    found.multi = True
        p = item_end + 1


@cython.cfunc
def _hash(start: cython.uint, p: cython.p_uchar, size: cython.Py_ssize_t) -> cython.uint:
    """Java's hash of UTF-8 text, continued from `start`; anything but ASCII is left to Python."""
    value: cython.uint = start
    i: cython.Py_ssize_t
    for i in range(size):
        if p[i] & 0x80:
            return text_hash(start, cython.cast(cython.p_char, p)[:size].decode("utf-8", "replace"))
        value = 31 * value + p[i]
    return value
