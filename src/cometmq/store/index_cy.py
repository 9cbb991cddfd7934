"""The inner loops of the index: put keys, walk a chain, rebuild the slots.

Compiled by Cython when possible; the ``else`` branches say the same in plain Python. No files, no clock, no
logging here: buffers and integers in, integers out. Layout of an index file (big-endian; S = slot_count):

    0   8  beginTimestamp     8   8  endTimestamp     16  8  beginPhyOffset     24  8  endPhyOffset
    32  4  hashSlotCount      36  4  indexCount (number of the next entry; entry 0 is never used)
    40  4*S  slots: number of the newest entry of each chain, 0 = none
    40+4*S+20*j  entry j: keyHash 4, phyOffset 8, timeDiff 4 (seconds after beginTimestamp), previous entry 4

Keys travel in batches of triples of native 64-bit integers: key hash, physical offset, store timestamp in ms.
"""

# mypy: ignore-errors
# ruff: noqa: F821

from __future__ import annotations

import struct

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

HEADER_SIZE = 40
SLOT_SIZE = 4
ENTRY_SIZE = 20
KEY_FIELDS = 3

TIME_DIFF_MAX_S = 0x7FFFFFFF

_HEADER = struct.Struct(">qqqqii")
_ENTRY = struct.Struct(">iqii")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")

_MASK_32 = 0xFFFFFFFF


def is_compiled() -> bool:
    return cython.compiled


def text_hash(start: int, text: str) -> int:
    """Java's String.hashCode continued from ``start``: over UTF-16 code units, 32 bits unsigned."""
    value = start
    units = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8) + units[i + 1]) & _MASK_32
    return value


def fold_hash(value: int) -> int:
    """|hash| as Java's Math.abs gives it, with the one negative result replaced by 0."""
    if value >= 0x80000000:
        value = (1 << 32) - value
    return 0 if value == 0x80000000 else value


@cython.cclass
class IndexWriter:
    """Write end of one index file. Puts a batch per call; stops where it must not write (``limit``)."""

    limit = cython.declare(cython.longlong, visibility="public")  # entries below this number may be written
    indexed_to = cython.declare(
        cython.longlong, visibility="public"
    )  # keys of earlier records are passed over
    _view: object
    _slot_count: cython.longlong
    _index_count_max: cython.longlong
    _base: cython.p_uchar

    def __init__(self, view: memoryview, slot_count: int, index_count_max: int) -> None:
        _check_size(len(view), slot_count, index_count_max)
        self._view = view
        self._slot_count = slot_count
        self._index_count_max = index_count_max
        self.limit = index_count_max
        self.indexed_to = 0
        if cython.compiled:
            self._attach(view)

    @cython.ccall
    def put(self, keys: object, start: cython.longlong, count: cython.longlong) -> cython.longlong:
        """Put ``count`` keys from triple ``start`` on; how many were put or passed over before the limit."""
        if start < 0 or count < 0 or (start + count) * 3 > len(keys):
            raise ValueError("more keys announced than given")
        if cython.compiled:
            return self._put_c(keys, start, count)
        return self._put_py(keys, start, count)

    @cython.cfunc
    def _attach(self, view: object) -> object:
        # The pointer stays valid while self._view keeps the mapping alive.
        buffer: Py_buffer
        PyObject_GetBuffer(view, cython.address(buffer), PyBUF_WRITABLE)
        self._base = cython.cast(cython.p_uchar, buffer.buf)
        PyBuffer_Release(cython.address(buffer))
        return None

    def _put_py(self, keys: memoryview, start: int, count: int) -> int:
        file, slot_count = self._view, self._slot_count
        begin_ms, end_ms, begin_offset, end_offset, used_slots, next_entry = _HEADER.unpack_from(file, 0)
        next_entry = max(next_entry, 1)
        limit = min(self.limit, self._index_count_max)
        entries = HEADER_SIZE + SLOT_SIZE * slot_count
        done = 0
        while done < count and next_entry < limit:
            at = (start + done) * KEY_FIELDS
            key_hash, physical_offset, time_ms = keys[at], keys[at + 1], keys[at + 2]
            done += 1
            if physical_offset < self.indexed_to:
                continue
            if next_entry == 1:
                begin_ms, begin_offset = time_ms, physical_offset
            slot_at = HEADER_SIZE + SLOT_SIZE * (key_hash % slot_count)
            previous = _INT.unpack_from(file, slot_at)[0]
            if previous <= 0 or previous > next_entry:
                previous = 0
                used_slots += 1
            seconds = min(max((time_ms - begin_ms) // 1000, 0), TIME_DIFF_MAX_S) if begin_ms > 0 else 0
            at = entries + ENTRY_SIZE * next_entry
            _ENTRY.pack_into(file, at, key_hash, physical_offset, seconds, previous)
            _INT.pack_into(file, slot_at, next_entry)
            next_entry += 1
            end_ms, end_offset = time_ms, physical_offset
        _HEADER.pack_into(file, 0, begin_ms, end_ms, begin_offset, end_offset, used_slots, next_entry)
        # Not beyond: the next batch may begin with further keys of the same record.
        self.indexed_to = max(self.indexed_to, end_offset)
        return done

    @cython.cfunc
    def _put_c(self, keys: object, start: cython.longlong, count: cython.longlong) -> cython.longlong:
        buffer: Py_buffer
        PyObject_GetBuffer(keys, cython.address(buffer), PyBUF_SIMPLE)
        try:
            if (start + count) * 24 > buffer.len:
                raise ValueError("keys must be 64-bit integers")
            return self._put_keys(cython.cast(cython.pointer(cython.longlong), buffer.buf) + start * 3, count)
        finally:
            PyBuffer_Release(cython.address(buffer))

    @cython.cfunc
    @cython.exceptval(check=False)
    def _put_keys(self, key: cython.pointer(cython.longlong), count: cython.longlong) -> cython.longlong:
        base: cython.p_uchar = self._base
        slots: cython.ulonglong = self._slot_count
        entry: cython.p_uchar
        slot: cython.p_uchar
        limit: cython.longlong = min(self.limit, self._index_count_max)
        indexed_to: cython.longlong = self.indexed_to
        begin_ms: cython.longlong = get_i64(base)
        end_ms: cython.longlong = get_i64(base + 8)
        begin_offset: cython.longlong = get_i64(base + 16)
        end_offset: cython.longlong = get_i64(base + 24)
        used_slots: cython.longlong = get_i32(base + 32)
        next_entry: cython.longlong = max(get_i32(base + 36), 1)
        seconds: cython.longlong
        previous: cython.longlong
        done: cython.longlong = 0
        # Touch all slots first: independent loads overlap, while the loop below would wait for each in turn.
        touched: cython.uint = 0
        i: cython.longlong
        for i in range(count):
            touched += base[40 + 4 * (cython.cast(cython.ulonglong, key[i * 3]) % slots)]
        if touched == cython.cast(cython.uint, 0xFFFFFFFF):
            return 0  # not with batches below 16 million keys; keeps the loads from being optimised away
        entry = base + 40 + 4 * slots + 20 * next_entry
        while done < count and next_entry < limit:
            if key[1] >= indexed_to:
                if next_entry == 1:
                    begin_ms = key[2]
                    begin_offset = key[1]
                slot = base + 40 + 4 * (cython.cast(cython.ulonglong, key[0]) % slots)
                previous = get_i32(slot)
                if previous <= 0 or previous > next_entry:
                    previous = 0
                    used_slots += 1
                seconds = 0
                if begin_ms > 0 and key[2] > begin_ms:
                    seconds = (key[2] - begin_ms) // 1000
                    if seconds > 0x7FFFFFFF:
                        seconds = 0x7FFFFFFF
                put_32(entry, cython.cast(cython.uint, key[0]))
                put_64(entry + 4, key[1])
                put_32(entry + 12, cython.cast(cython.uint, seconds))
                put_32(entry + 16, cython.cast(cython.uint, previous))
                put_32(slot, cython.cast(cython.uint, next_entry))
                end_offset = key[1]
                end_ms = key[2]
                entry += 20
                next_entry += 1
            key += 3
            done += 1
        put_64(base, begin_ms)
        put_64(base + 8, end_ms)
        put_64(base + 16, begin_offset)
        put_64(base + 24, end_offset)
        put_32(base + 32, cython.cast(cython.uint, used_slots))
        put_32(base + 36, cython.cast(cython.uint, next_entry))
        if end_offset > indexed_to:
            self.indexed_to = end_offset
        return done


@cython.cclass
class KeySink:
    """What the dispatcher knows of the index."""

    @cython.cfunc
    def put_keys(self, keys: object, count: cython.longlong) -> object:
        raise NotImplementedError


@cython.cclass
class IndexEnd(KeySink):
    """Where keys are put: the file that is being filled. Index is this, with all other files."""

    writer = cython.declare(IndexWriter, visibility="public")  # None: there is no file yet

    def __init__(self) -> None:
        self.writer = None

    def put(self, keys: object, count: cython.longlong) -> None:
        """Put ``count`` triples (hash, physical offset, store time; format 'q'), offsets ascending."""
        self.put_keys(keys, count)

    @cython.cfunc
    def put_keys(self, keys: object, count: cython.longlong) -> object:
        done: cython.longlong = 0
        if self.writer is not None:
            done = self.writer.put(keys, 0, count)
        while done < count:
            self.make_room()
            done += self.writer.put(keys, done, count - done)
        return None

    def make_room(self) -> None:
        """Make another file, or more room in this one, and set ``writer``."""
        raise NotImplementedError


def _check_size(size: int, slot_count: int, index_count_max: int) -> None:
    if slot_count <= 0 or size < HEADER_SIZE + SLOT_SIZE * slot_count + ENTRY_SIZE * index_count_max:
        raise ValueError("the index file is smaller than its slots and entries")


def walk_chain(
    file: memoryview,
    slot_count: int,
    index_count_max: int,
    key_hash: int,
    from_entry: int,
    begin_ms: int,
    end_ms: int,
    found: memoryview,
    steps_max: int,
) -> tuple[int, int]:
    """Follow a chain from the newest entry (``from_entry`` 0) or from a given one.

    Physical offsets of entries with this hash whose time may lie within [begin_ms, end_ms] go to ``found``
    (format 'q'). Returns how many, and the entry to go on with (0: the chain has ended). An entry's time is
    stored in whole seconds, rounded down: the window is widened by that, the caller looks at the record's
    real time.
    """
    _check_size(len(file), slot_count, index_count_max)
    if cython.compiled:
        return _walk_chain_c(
            file, slot_count, index_count_max, key_hash, from_entry, begin_ms, end_ms, found, steps_max
        )
    return _walk_chain_py(
        file, slot_count, index_count_max, key_hash, from_entry, begin_ms, end_ms, found, steps_max
    )


def _walk_chain_py(
    file: memoryview,
    slot_count: int,
    index_count_max: int,
    key_hash: int,
    from_entry: int,
    begin_ms: int,
    end_ms: int,
    found: memoryview,
    steps_max: int,
) -> tuple[int, int]:
    file_begin_ms = _LONG.unpack_from(file, 0)[0]
    limit = min(_INT.unpack_from(file, 36)[0], index_count_max)
    entries = HEADER_SIZE + SLOT_SIZE * slot_count
    entry = from_entry or _INT.unpack_from(file, HEADER_SIZE + SLOT_SIZE * (key_hash % slot_count))[0]
    count = steps = 0
    while 0 < entry < limit and steps < steps_max and count < len(found):
        entry_hash, physical_offset, seconds, previous = _ENTRY.unpack_from(
            file, entries + ENTRY_SIZE * entry
        )
        if seconds < 0:
            return count, 0
        time_ms = file_begin_ms + (seconds * 1000 if entry > 1 else 0)
        if time_ms + 999 < begin_ms:
            return count, 0
        if entry_hash == key_hash and time_ms <= end_ms:
            found[count] = physical_offset
            count += 1
        # Chains lead to older entries only; anything else is damage and would go round in circles.
        if previous >= entry:
            return count, 0
        entry = previous
        steps += 1
    return count, entry if 0 < entry < limit else 0


@cython.cfunc
def _walk_chain_c(
    file: object,
    slot_count: cython.longlong,
    index_count_max: cython.longlong,
    key_hash: cython.longlong,
    from_entry: cython.longlong,
    begin_ms: cython.longlong,
    end_ms: cython.longlong,
    found: cython.longlong[::1],
    steps_max: cython.longlong,
) -> tuple:
    buffer: Py_buffer
    PyObject_GetBuffer(file, cython.address(buffer), PyBUF_SIMPLE)
    base: cython.p_uchar = cython.cast(cython.p_uchar, buffer.buf)
    PyBuffer_Release(cython.address(buffer))  # the caller's reference keeps the memory
    entries: cython.p_uchar = base + 40 + 4 * slot_count
    at: cython.p_uchar
    file_begin_ms: cython.longlong = get_i64(base)
    limit: cython.longlong = min(cython.cast(cython.longlong, get_i32(base + 36)), index_count_max)
    room: cython.longlong = found.shape[0]
    entry: cython.longlong = from_entry
    count: cython.longlong = 0
    steps: cython.longlong = 0
    seconds: cython.longlong
    time_ms: cython.longlong
    previous: cython.longlong
    if entry == 0:
        entry = get_i32(base + 40 + 4 * (key_hash % slot_count))
    while 0 < entry < limit and steps < steps_max and count < room:
        at = entries + 20 * entry
        seconds = get_i32(at + 12)
        if seconds < 0:
            return count, 0
        time_ms = file_begin_ms + (seconds * 1000 if entry > 1 else 0)
        if time_ms + 999 < begin_ms:
            return count, 0
        if get_i32(at) == key_hash and time_ms <= end_ms:
            found[count] = get_i64(at + 4)
            count += 1
        previous = get_i32(at + 16)
        if previous >= entry:
            return count, 0
        entry = previous
        steps += 1
    return count, entry if 0 < entry < limit else 0


def count_trusted(
    file: memoryview, slot_count: int, index_count_max: int, index_count: int, trusted_ms: int
) -> int:
    """Number of the first entry that may be as young as ``trusted_ms``, or that a power cut has damaged.

    Offsets of a sound file ascend and time differences are not negative; pages that never reached the disk
    are zero or old.
    """
    _check_size(len(file), slot_count, index_count_max)
    index_count = min(index_count, index_count_max)
    if cython.compiled:
        return _count_trusted_c(file, slot_count, index_count, trusted_ms)
    begin_ms = _LONG.unpack_from(file, 0)[0]
    entries = HEADER_SIZE + SLOT_SIZE * slot_count
    last = -1
    for entry in range(1, index_count):
        _, physical_offset, seconds, _ = _ENTRY.unpack_from(file, entries + ENTRY_SIZE * entry)
        if physical_offset < last or seconds < 0 or begin_ms + seconds * 1000 + 999 >= trusted_ms:
            return entry
        last = physical_offset
    return max(index_count, 1)


@cython.cfunc
def _count_trusted_c(
    file: object, slot_count: cython.longlong, index_count: cython.longlong, trusted_ms: cython.longlong
) -> cython.longlong:
    buffer: Py_buffer
    PyObject_GetBuffer(file, cython.address(buffer), PyBUF_SIMPLE)
    base: cython.p_uchar = cython.cast(cython.p_uchar, buffer.buf)
    PyBuffer_Release(cython.address(buffer))  # the caller's reference keeps the memory
    at: cython.p_uchar = base + 40 + 4 * slot_count
    begin_ms: cython.longlong = get_i64(base)
    last: cython.longlong = -1
    seconds: cython.longlong
    entry: cython.longlong
    for entry in range(1, index_count):
        at += 20
        seconds = get_i32(at + 12)
        if get_i64(at + 4) < last or seconds < 0 or begin_ms + seconds * 1000 + 999 >= trusted_ms:
            return entry
        last = get_i64(at + 4)
    return max(index_count, 1)


def rebuild_slots(file: memoryview, slot_count: int, index_count_max: int, keep: int) -> int:
    """Make slots and chains anew from the entries 1..keep-1; the number of slots in use."""
    _check_size(len(file), slot_count, index_count_max)
    if not 1 <= keep <= index_count_max:
        raise ValueError("cannot keep more entries than the file has")
    file[HEADER_SIZE : HEADER_SIZE + SLOT_SIZE * slot_count] = bytes(SLOT_SIZE * slot_count)
    if cython.compiled:
        return _rebuild_slots_c(file, slot_count, keep)
    return _rebuild_slots_py(file, slot_count, keep)


def _rebuild_slots_py(file: memoryview, slot_count: int, keep: int) -> int:
    entries = HEADER_SIZE + SLOT_SIZE * slot_count
    used_slots = 0
    for entry in range(1, keep):
        at = entries + ENTRY_SIZE * entry
        slot_at = HEADER_SIZE + SLOT_SIZE * ((_INT.unpack_from(file, at)[0] & _MASK_32) % slot_count)
        previous = _INT.unpack_from(file, slot_at)[0]
        used_slots += previous == 0
        _INT.pack_into(file, at + 16, previous)
        _INT.pack_into(file, slot_at, entry)
    return used_slots


@cython.cfunc
def _rebuild_slots_c(
    file: cython.uchar[::1], slot_count: cython.longlong, keep: cython.longlong
) -> cython.longlong:
    base: cython.p_uchar = cython.address(file[0])
    at: cython.p_uchar = base + 40 + 4 * slot_count
    slot: cython.p_uchar
    previous: cython.int
    used_slots: cython.longlong = 0
    slots: cython.ulonglong = slot_count
    entry: cython.longlong
    for entry in range(1, keep):
        at += 20
        slot = base + 40 + 4 * (cython.cast(cython.ulonglong, get_u32(at)) % slots)
        previous = get_i32(slot)
        if previous == 0:
            used_slots += 1
        put_32(at + 16, cython.cast(cython.uint, previous))
        put_32(slot, cython.cast(cython.uint, entry))
    return used_slots
