"""The inner loops of the index: collect the keys of records, put them, walk a chain, rebuild the slots.

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

MESSAGE_MAGIC = 0xDAA320A7
RECORD_SIZE_MIN = 91
TIME_DIFF_MAX_S = 0x7FFFFFFF

_HEADER = struct.Struct(">qqqqii")
_ENTRY = struct.Struct(">iqii")
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_LONG = struct.Struct(">q")

_MASK_32 = 0xFFFFFFFF
_TRANSACTION_MASK = 0xC
_BORN_HOST_V6 = 0x10
_STORE_HOST_V6 = 0x20


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


def _bytes_hash(start: int, data: bytes) -> int:
    return text_hash(start, data.decode("utf-8", "replace"))


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _get_int(p: cython.p_uchar) -> cython.int:
    return cython.cast(
        cython.int,
        (cython.cast(cython.uint, p[0]) << 24)
        | (cython.cast(cython.uint, p[1]) << 16)
        | (cython.cast(cython.uint, p[2]) << 8)
        | cython.cast(cython.uint, p[3]),
    )


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _get_long(p: cython.p_uchar) -> cython.longlong:
    return (cython.cast(cython.longlong, _get_int(p)) << 32) | cython.cast(
        cython.longlong, cython.cast(cython.uint, _get_int(p + 4))
    )


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_int(p: cython.p_uchar, value: cython.uint) -> cython.void:
    p[0] = cython.cast(cython.uchar, value >> 24)
    p[1] = cython.cast(cython.uchar, value >> 16)
    p[2] = cython.cast(cython.uchar, value >> 8)
    p[3] = cython.cast(cython.uchar, value)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_long(p: cython.p_uchar, value: cython.longlong) -> cython.void:
    _put_int(p, cython.cast(cython.uint, value >> 32))
    _put_int(p + 4, cython.cast(cython.uint, value))


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

    def put(self, keys: memoryview, start: int, count: int) -> int:
        """Put ``count`` keys from triple ``start`` on; how many were put or passed over before the limit."""
        if start < 0 or count < 0 or start + count > len(keys) // KEY_FIELDS:
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
        begin_ms: cython.longlong = _get_long(base)
        end_ms: cython.longlong = _get_long(base + 8)
        begin_offset: cython.longlong = _get_long(base + 16)
        end_offset: cython.longlong = _get_long(base + 24)
        used_slots: cython.longlong = _get_int(base + 32)
        next_entry: cython.longlong = max(_get_int(base + 36), 1)
        seconds: cython.longlong
        previous: cython.longlong
        done: cython.longlong = 0
        # Touch all slots first: independent loads overlap, while the loop below would wait for each in turn.
        touched: cython.uint = 0
        i: cython.longlong
        for i in range(count):
            touched += base[40 + 4 * (cython.cast(cython.ulonglong, key[i * 3]) % slots)]
        if touched == 0xFFFFFFFF:
            return 0  # not with batches below 16 million keys; keeps the loads from being optimised away
        entry = base + 40 + 4 * slots + 20 * next_entry
        while done < count and next_entry < limit:
            if key[1] >= indexed_to:
                if next_entry == 1:
                    begin_ms = key[2]
                    begin_offset = key[1]
                slot = base + 40 + 4 * (cython.cast(cython.ulonglong, key[0]) % slots)
                previous = _get_int(slot)
                if previous <= 0 or previous > next_entry:
                    previous = 0
                    used_slots += 1
                seconds = 0
                if begin_ms > 0 and key[2] > begin_ms:
                    seconds = (key[2] - begin_ms) // 1000
                    if seconds > 0x7FFFFFFF:
                        seconds = 0x7FFFFFFF
                _put_int(entry, cython.cast(cython.uint, key[0]))
                _put_long(entry + 4, key[1])
                _put_int(entry + 12, cython.cast(cython.uint, seconds))
                _put_int(entry + 16, cython.cast(cython.uint, previous))
                _put_int(slot, cython.cast(cython.uint, next_entry))
                end_offset = key[1]
                end_ms = key[2]
                entry += 20
                next_entry += 1
            key += 3
            done += 1
        _put_long(base, begin_ms)
        _put_long(base + 8, end_ms)
        _put_long(base + 16, begin_offset)
        _put_long(base + 24, end_offset)
        _put_int(base + 32, cython.cast(cython.uint, used_slots))
        _put_int(base + 36, cython.cast(cython.uint, next_entry))
        if end_offset > indexed_to:
            self.indexed_to = end_offset
        return done


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
    file_begin_ms: cython.longlong = _get_long(base)
    limit: cython.longlong = min(cython.cast(cython.longlong, _get_int(base + 36)), index_count_max)
    room: cython.longlong = found.shape[0]
    entry: cython.longlong = from_entry
    count: cython.longlong = 0
    steps: cython.longlong = 0
    seconds: cython.longlong
    time_ms: cython.longlong
    previous: cython.longlong
    if entry == 0:
        entry = _get_int(base + 40 + 4 * (key_hash % slot_count))
    while 0 < entry < limit and steps < steps_max and count < room:
        at = entries + 20 * entry
        seconds = _get_int(at + 12)
        if seconds < 0:
            return count, 0
        time_ms = file_begin_ms + (seconds * 1000 if entry > 1 else 0)
        if time_ms + 999 < begin_ms:
            return count, 0
        if _get_int(at) == key_hash and time_ms <= end_ms:
            found[count] = _get_long(at + 4)
            count += 1
        previous = _get_int(at + 16)
        if previous >= entry:
            return count, 0
        entry = previous
        steps += 1
    return count, entry if 0 < entry < limit else 0


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
        slot = base + 40 + 4 * (cython.cast(cython.ulonglong, cython.cast(cython.uint, _get_int(at))) % slots)
        previous = _get_int(slot)
        if previous == 0:
            used_slots += 1
        _put_int(at + 16, cython.cast(cython.uint, previous))
        _put_int(slot, cython.cast(cython.uint, entry))
    return used_slots


def collect_keys(
    log: memoryview, start: int, end: int, physical_base: int, keys: memoryview
) -> tuple[int, int]:
    """Keys of the records in log[start:end] as triples into ``keys`` (format 'q').

    UNIQ_KEY first, then every part of KEYS; nothing for rolled-back transactions. Returns how many keys, and
    where it stopped: at ``end``, at something that is no message record, or where the next record's keys do
    not fit.
    """
    if not 0 <= start <= end <= len(log):
        raise ValueError("the range of records is outside of the buffer")
    if cython.compiled:
        return _collect_keys_c(log, start, end, physical_base, keys)
    return _collect_keys_py(log, start, end, physical_base, keys)


def _collect_keys_py(
    log: memoryview, start: int, end: int, physical_base: int, keys: memoryview
) -> tuple[int, int]:
    room = len(keys) // KEY_FIELDS
    count = 0
    position = start
    while end - position >= RECORD_SIZE_MIN:
        size = _INT.unpack_from(log, position)[0]
        magic = _INT.unpack_from(log, position + 4)[0] & _MASK_32
        if magic != MESSAGE_MAGIC or size < RECORD_SIZE_MIN or size > end - position:
            break
        hashes, time_ms = _record_hashes(bytes(log[position : position + size]))
        if count + len(hashes) > room:
            break
        for key_hash in hashes:
            at = count * KEY_FIELDS
            keys[at], keys[at + 1], keys[at + 2] = key_hash, physical_base + position, time_ms
            count += 1
        position += size
    return count, position


def _record_hashes(record: bytes) -> tuple[list[int], int]:
    """Folded hashes of all keys of one record and its store time; no hashes if its lengths do not add up."""
    sys_flag = _INT.unpack_from(record, 36)[0]
    time_at = 68 if sys_flag & _BORN_HOST_V6 else 56
    body_at = time_at + (44 if sys_flag & _STORE_HOST_V6 else 32)
    if body_at > len(record):
        return [], 0
    time_ms = _LONG.unpack_from(record, time_at)[0]
    body_size = _INT.unpack_from(record, body_at - 4)[0]
    topic_at = body_at + body_size + 1
    if body_size < 0 or topic_at > len(record) or sys_flag & _TRANSACTION_MASK == _TRANSACTION_MASK:
        return [], time_ms
    properties_at = topic_at + record[topic_at - 1] + 2
    if properties_at > len(record):
        return [], time_ms
    properties_size = _SHORT.unpack_from(record, properties_at - 2)[0]
    if properties_size < 0 or properties_at + properties_size > len(record):
        return [], time_ms
    topic_hash = text_hash(_bytes_hash(0, record[topic_at : properties_at - 2]), "#")
    unique, spaced = _find_keys(record[properties_at : properties_at + properties_size])
    parts = [unique] if unique else []
    parts += [part for part in spaced.split(b" ") if part]
    return [fold_hash(_bytes_hash(topic_hash, part)) for part in parts], time_ms


def _find_keys(properties: bytes) -> tuple[bytes, bytes]:
    unique = spaced = b""
    for item in properties.split(b"\x02"):
        name, _separator, value = item.partition(b"\x01")
        if value and name == b"UNIQ_KEY":
            unique = value
        elif value and name == b"KEYS":
            spaced = value
    return unique, spaced


@cython.cfunc
@cython.inline
def _part_hash(value: cython.uint, p: cython.p_uchar, size: cython.Py_ssize_t) -> cython.longlong:
    """Java hash of a piece of UTF-8 continued from ``value``; plain ASCII without leaving C."""
    first: cython.uint = value
    i: cython.Py_ssize_t
    for i in range(size):
        if p[i] >= 0x80:
            return _bytes_hash(first, p[:size])
        value = value * 31 + p[i]
    return value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _fold(value: cython.longlong) -> cython.longlong:
    if value >= 0x80000000:
        value = 0x100000000 - value
    return 0 if value == 0x80000000 else value


@cython.cfunc
def _collect_keys_c(
    log: object,
    start: cython.longlong,
    end: cython.longlong,
    physical_base: cython.longlong,
    keys: cython.longlong[::1],
) -> tuple:
    if end - start < 91:
        return 0, start
    buffer: Py_buffer
    PyObject_GetBuffer(log, cython.address(buffer), PyBUF_SIMPLE)
    base: cython.p_uchar = cython.cast(cython.p_uchar, buffer.buf)
    PyBuffer_Release(cython.address(buffer))  # the caller's reference keeps the memory
    record: cython.p_uchar
    item: cython.p_uchar
    last: cython.p_uchar
    stop: cython.p_uchar
    unique: cython.p_uchar
    spaced: cython.p_uchar
    unique_size: cython.Py_ssize_t
    spaced_size: cython.Py_ssize_t
    room: cython.longlong = keys.shape[0] // 3
    count: cython.longlong = 0
    needed: cython.longlong
    at: cython.longlong
    position: cython.longlong = start
    size: cython.longlong
    sys_flag: cython.int
    time_at: cython.longlong
    body_at: cython.longlong
    body_size: cython.longlong
    topic_at: cython.longlong
    properties_at: cython.longlong
    properties_size: cython.longlong
    time_ms: cython.longlong
    topic_hash: cython.uint
    while end - position >= 91:
        record = base + position
        size = _get_int(record)
        if cython.cast(cython.uint, _get_int(record + 4)) != cython.cast(cython.uint, 0xDAA320A7):
            break
        if size < 91 or size > end - position:
            break
        position += size
        sys_flag = _get_int(record + 36)
        if sys_flag & 0xC == 0xC:
            continue
        time_at = 68 if sys_flag & 0x10 else 56
        body_at = time_at + (44 if sys_flag & 0x20 else 32)
        if body_at > size:
            continue
        time_ms = _get_long(record + time_at)
        body_size = _get_int(record + body_at - 4)
        topic_at = body_at + body_size + 1
        if body_size < 0 or topic_at > size:
            continue
        properties_at = topic_at + record[topic_at - 1] + 2
        if properties_at > size:
            continue
        properties_size = (record[properties_at - 2] << 8) | record[properties_at - 1]
        if properties_size > 0x7FFF or properties_at + properties_size > size:
            continue
        # Find the values of UNIQ_KEY and KEYS; of several the last one counts.
        unique = cython.NULL
        spaced = cython.NULL
        unique_size = 0
        spaced_size = 0
        item = record + properties_at
        stop = item + properties_size
        while item < stop:
            last = item
            while last < stop and last[0] != 2:
                last += 1
            if last - item > 9 and item[8] == 1 and item[0] == 85 and item[1] == 78 and item[2] == 73:
                if item[3] == 81 and item[4] == 95 and item[5] == 75 and item[6] == 69 and item[7] == 89:
                    unique = item + 9
                    unique_size = last - unique
            if last - item > 5 and item[4] == 1 and item[0] == 75 and item[1] == 69:
                if item[2] == 89 and item[3] == 83:
                    spaced = item + 5
                    spaced_size = last - spaced
            item = last + 1
        if unique_size == 0 and spaced_size == 0:
            continue
        needed = (1 if unique_size else 0) + _count_parts(spaced, spaced_size)
        if count + needed > room:
            position -= size
            break
        topic_hash = cython.cast(
            cython.uint, _part_hash(0, record + topic_at, record[topic_at - 1]) * 31 + 35
        )
        if unique_size:
            at = count * 3
            keys[at] = _fold(_part_hash(topic_hash, unique, unique_size))
            keys[at + 1] = physical_base + (record - base)
            keys[at + 2] = time_ms
            count += 1
        item = spaced
        stop = spaced + spaced_size
        while item < stop:
            last = item
            while last < stop and last[0] != 32:
                last += 1
            if last > item:
                at = count * 3
                keys[at] = _fold(_part_hash(topic_hash, item, last - item))
                keys[at + 1] = physical_base + (record - base)
                keys[at + 2] = time_ms
                count += 1
            item = last + 1
    return count, position


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _count_parts(p: cython.p_uchar, size: cython.Py_ssize_t) -> cython.longlong:
    count: cython.longlong = 0
    i: cython.Py_ssize_t
    for i in range(size):
        if p[i] != 32 and (i == 0 or p[i - 1] == 32):
            count += 1
    return count
