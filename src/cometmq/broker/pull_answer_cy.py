"""Answers to plain pulls: from entries of a queue to the bytes of a whole frame, in one call.

A *plain pull* asks for what is in memory: the entries stand in one file of the queue, the records in one file of the
log, and tags alone decide. Consumers that keep up ask for nothing else, and those far behind seldom do (`store.read_ahead`).
``PullAnswers.make`` walks the entries, checks each against its record and copies the records behind the head of the
answer. It says None for whatever is not certain; then ``handlers/pull.py`` decides, where every rule is written down.

No asyncio, no clock here. The branch for uncompiled use is the specification and gives the same bytes.
"""

# mypy: ignore-errors
# ruff: noqa: F821

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:
    from cometmq import _cython as cython

from cometmq.protocol.pull_frames import encode_pull_head
from cometmq.store.queue_scan_cy import BLANK_SIZE_FIELD, Home, Limits, collect, gather

if cython.compiled:
    from cython.cimports.cometmq.big_endian import get_i32, get_i64, put_32
    from cython.cimports.cometmq.json_text import write_number
    from cython.cimports.cometmq.record_place import Place, is_true
    from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
    from cython.cimports.libc.string import memcpy

ENTRY_SIZE = 20
SCANNED_MAX = cython.declare(cython.longlong, 800)  # entries looked at for one pull that wants some tags only
COUNT_MAX = cython.declare(cython.longlong, 1024)  # messages of a plain answer
SIZE_MAX = cython.declare(cython.longlong, 128 << 10)  # bytes; longer answers are slices of the log
HEAD_SIZE_MAX = cython.declare(cython.Py_ssize_t, 512)
FOUND = 0  # the code of an answer with messages

# The pieces of encode_pull_head() between its numbers
_HEAD: bytes = b'{"code":0,"extFields":{"suggestWhichBrokerId":"'
_NEXT: bytes = b'","nextBeginOffset":"'
_MIN: bytes = b'","minOffset":"'
_MAX: bytes = b'","maxOffset":"'
_OPAQUE: bytes = b'"},"flag":1,"language":"PYTHON","opaque":'
_TAIL: bytes = encode_pull_head(FOUND, "FOUND", 0, 0, 0, 0, 0, 0).partition(_OPAQUE + b"0")[2]


@cython.final
@cython.cclass
class PullPlan:
    """What the checks found out about the pulls of one group from one queue; good while ``stamp`` is."""

    queue = cython.declare(object, visibility="readonly")  # ConsumeQueue
    group = cython.declare(object, visibility="readonly")  # SubscriptionGroupConfig
    tags_codes = cython.declare(object, visibility="readonly")  # wanted, None for all
    stamp = cython.declare(cython.longlong, visibility="readonly")
    terms = cython.declare(object, visibility="readonly")  # PullMessageHeader; its offsets mean nothing
    topic = cython.declare(bytes, visibility="readonly")
    counter = cython.declare(object, visibility="public")  # of what was found, once something was
    window = cython.declare(object, visibility="public")  # what is known to be in memory where they read

    def __init__(self, queue, group, tags_codes, stamp: int, terms=None) -> None:
        self.queue = queue
        self.group = group
        self.tags_codes = tags_codes
        self.stamp = stamp
        self.terms = terms
        self.topic = queue.topic.encode()
        self.counter = None
        self.window = None


@cython.final
@cython.cclass
class PullAnswers:
    """One object per broker; ``count`` and ``size`` tell of the last answer."""

    count = cython.declare(cython.longlong, visibility="readonly")  # messages
    size = cython.declare(cython.longlong, visibility="readonly")  # bytes of their records
    _starts: cython.longlong[1024]
    _sizes: cython.longlong[1024]

    def __init__(self) -> None:
        self.count = 0
        self.size = 0

    def make(
        self,
        plan: PullPlan,
        queue_offset: cython.longlong,
        opaque: cython.longlong,
        suggest: cython.longlong,
        count_max: cython.longlong,
        size_max: cython.longlong,
        entries: object,
        entries_start: cython.longlong,
        log: object,
        log_start: cython.longlong,
        log_end: cython.longlong,
    ) -> bytes | None:
        """The frame with what stands from ``queue_offset`` on, or None: not certain, or nothing.

        ``entries`` is the file of the queue with that offset, ``entries_start`` the stream position of its first byte.
        ``log`` is a file of the log, ``log_start`` the physical offset of its first byte, ``log_end`` after its last
        record.
        """
        assert 0 < count_max
        if count_max > COUNT_MAX:
            return None
        if cython.compiled:
            return self._make(
                plan, queue_offset, opaque, suggest, count_max, size_max, entries, entries_start, log, log_start, log_end
            )  # fmt: skip
        queue, codes = plan.queue, plan.tags_codes
        at = queue_offset * ENTRY_SIZE - entries_start
        end = min(queue.end - entries_start, len(entries), at + max(SCANNED_MAX, count_max) * ENTRY_SIZE)
        limits = Limits(count_max, size_max, count_max, size_max, count_max, log_start, log_end, 0)
        home = Home(log, log_start, log_end, entries_start, plan.topic, int(queue.queue_id), queue.lenient)
        found = collect(entries, at, end, limits, 0, 0, 0, codes, len(log), home)
        blank = _has_blank(entries, at, found.position)
        if found.doubtful or blank or not found.count or found.size > SIZE_MAX:
            return None
        self.count, self.size = found.count, found.size
        next_offset = (entries_start + found.position) // ENTRY_SIZE
        head = encode_pull_head(
            FOUND, "FOUND", opaque, suggest, next_offset, queue.min_offset, queue.end // ENTRY_SIZE, found.size
        )  # fmt: skip
        return head + gather(log, log_start, found.runs, found.size)

    if cython.compiled:

        @cython.cfunc
        def _make(
            self,
            plan: PullPlan,
            queue_offset: cython.longlong,
            opaque: cython.longlong,
            suggest: cython.longlong,
            count_max: cython.longlong,
            size_max: cython.longlong,
            entries: object,
            entries_start: cython.longlong,
            log: object,
            log_start: cython.longlong,
            log_end: cython.longlong,
        ) -> object:
            queue = plan.queue
            place: Place
            places: Py_buffer
            records: Py_buffer
            topic: bytes = plan.topic
            queue_end: cython.longlong = queue.end
            place.queue_start = entries_start
            place.topic = cython.cast(cython.p_uchar, PyBytes_AS_STRING(topic))
            place.topic_size = len(topic)
            place.queue_id = queue.queue_id
            place.lenient = queue.lenient
            place.log_start = log_start
            PyObject_GetBuffer(entries, cython.address(places), PyBUF_SIMPLE)
            PyObject_GetBuffer(log, cython.address(records), PyBUF_SIMPLE)
            try:
                place.log = cython.cast(cython.p_uchar, records.buf)
                place.log_end = min(log_end, log_start + records.len)
                next_offset: cython.longlong = self._choose(
                    cython.cast(cython.p_uchar, places.buf), cython.address(place), plan.tags_codes, queue_offset,
                    min(queue_end, place.queue_start + places.len) // 20, count_max, size_max,
                )  # fmt: skip
                if next_offset < 0:
                    return None
                return self._frame(
                    cython.address(place),
                    opaque,
                    suggest,
                    next_offset,
                    queue.min_offset,
                    queue_end // 20,
                )
            finally:
                PyBuffer_Release(cython.address(records))
                PyBuffer_Release(cython.address(places))

        @cython.cfunc
        def _choose(
            self,
            entries: cython.p_uchar,
            place: cython.pointer(Place),
            codes: object,
            queue_offset: cython.longlong,
            queue_max: cython.longlong,
            count_max: cython.longlong,
            size_max: cython.longlong,
        ) -> cython.longlong:
            """Note the records to send; the queue offset after them, or -1."""
            p: cython.p_uchar
            physical_offset: cython.longlong
            record_size: cython.longlong
            stop: cython.longlong = min(queue_max, queue_offset + max(SCANNED_MAX, count_max))
            count: cython.longlong = 0
            size: cython.longlong = 0
            if queue_offset * 20 < place.queue_start:
                return -1
            while queue_offset < stop:
                p = entries + (queue_offset * 20 - place.queue_start)
                physical_offset = get_i64(p)
                record_size = get_i32(p + 8)
                if record_size == 0x7FFFFFFF:
                    return -1
                if count and (count >= count_max or size + record_size > size_max):
                    break
                if codes is not None and get_i64(p + 12) > -2147483649 and get_i64(p + 12) not in codes:
                    queue_offset += 1
                    continue
                if not is_true(place, queue_offset, physical_offset, record_size):
                    return -1
                self._starts[count] = physical_offset - place.log_start
                self._sizes[count] = record_size
                count += 1
                size += record_size
                queue_offset += 1
            if count == 0 or size > SIZE_MAX:
                return -1
            self.count = count
            self.size = size
            return queue_offset

        @cython.cfunc
        def _frame(
            self,
            place: cython.pointer(Place),
            opaque: cython.longlong,
            suggest: cython.longlong,
            next_offset: cython.longlong,
            min_offset: cython.longlong,
            max_offset: cython.longlong,
        ) -> bytes:
            head: cython.uchar[512]
            out: cython.p_uchar = head
            n: cython.Py_ssize_t = 8
            i: cython.longlong
            n += _copy(out + n, _HEAD)
            n += write_number(out + n, suggest)
            n += _copy(out + n, _NEXT)
            n += write_number(out + n, next_offset)
            n += _copy(out + n, _MIN)
            n += write_number(out + n, min_offset)
            n += _copy(out + n, _MAX)
            n += write_number(out + n, max_offset)
            n += _copy(out + n, _OPAQUE)
            n += write_number(out + n, opaque)
            n += _copy(out + n, _TAIL)
            put_32(out, cython.cast(cython.uint, n - 4 + self.size))
            put_32(out + 4, cython.cast(cython.uint, n - 8))
            frame: bytes = PyBytes_FromStringAndSize(cython.NULL, n + self.size)
            target: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(frame))
            memcpy(target, head, n)
            for i in range(self.count):
                memcpy(target + n, place.log + self._starts[i], self._sizes[i])
                n += self._sizes[i]
            return frame


def _has_blank(entries, at, end):
    return any(
        int.from_bytes(entries[entry + 8 : entry + 12], "big") == BLANK_SIZE_FIELD
        for entry in range(at, end, ENTRY_SIZE)
    )


if cython.compiled:

    @cython.cfunc
    @cython.inline
    def _copy(out: cython.p_uchar, text: bytes) -> cython.Py_ssize_t:
        memcpy(out, PyBytes_AS_STRING(text), len(text))
        return len(text)
