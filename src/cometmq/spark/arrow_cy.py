"""Message records straight into the buffers of Arrow columns: no Python object per message.

``decode_columns`` takes pull bodies (or slices of a commit log), picks records by queue offset, topic and tag, and gives
for every wanted column the bytes of its Arrow buffers, in the form that ``arrow_columns`` describes. The Python branch is the
specification; it goes through ``decode_records``.

Arrow is not imported here; :mod:`cometmq.spark.batches` makes arrays of the buffers. Texts are valid UTF-8 afterwards:
bytes that are none become U+FFFD, as everywhere else. The layout of a record stands in protocol/record_cy.py. Reads
buffers, touches nothing else.
"""

# mypy: ignore-errors
# ruff: noqa: F821

from __future__ import annotations

from cometmq.protocol.compression import decompress
from cometmq.protocol.limits import RECORD_SIZE_MAX
from cometmq.protocol.record_cy import CUT, IMPOSSIBLE, NOT_ADDING_UP, _bad_record, decode_records
from cometmq.spark.arrow_columns import (
    BODY,
    BODY_CRC,
    BORN_HOST,
    BORN_TIMESTAMP,
    BROKER_NAME,
    COMMIT_LOG_OFFSET,
    FLAG,
    NEEDS_PROPERTIES,
    OFFSET_MSG_ID,
    PREPARED_TRANSACTION_OFFSET,
    PROPERTIES,
    PROPERTY_COLUMNS,
    QUEUE_ID,
    QUEUE_OFFSET,
    RECONSUME_TIMES,
    STORE_HOST,
    STORE_SIZE,
    STORE_TIMESTAMP,
    SYS_FLAG,
    TOPIC,
    clean_properties,
    clean_text,
    column_of,
    host_text,
    is_wanted,
    too_large,
)

try:
    import cython
except ModuleNotFoundError:
    from cometmq import _cython as cython

if cython.compiled:
    from cython.cimports.cometmq.big_endian import get_i32, get_i64
    from cython.cimports.cometmq.raw_bytes import (
        address_of,
        at,
        copied,
        data_of,
        empty,
        is_ascii,
        next_mark,
        zeros,
    )
    from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING
    from cython.cimports.cpython.mem import PyMem_Free, PyMem_Malloc, PyMem_Realloc
    from cython.cimports.libc.string import memcmp, memcpy


def decode_columns(
    pieces: list[tuple[bytes | memoryview, int, int]],
    columns: list[int],
    *,
    broker_name: str = "",
    inflate: bool = True,
    topics: frozenset[bytes] | None = None,
    tags: frozenset[bytes] | None = None,
) -> tuple[int, list[tuple]]:
    """Rows and column buffers of the records in all pieces (buffer, first queue offset, end queue offset)."""
    if cython.compiled:
        return _decode_compiled(pieces, columns, broker_name.encode(), inflate, topics, tags)
    messages = [
        message
        for buffer, first, end in pieces
        for message in decode_records(buffer)
        if first <= message.queue_offset < end and is_wanted(message, topics, tags)
    ]
    return len(messages), [column_of(messages, column, broker_name, inflate) for column in columns]


# the same in C ------------------------------------------------------------------------------------
#
# First pass: check every record, pick the wanted ones, note where their parts and properties are. Second pass: for each
# column, size then fill. A row is the numbers R_... below, a property the numbers E_...

if cython.compiled:
    R_RECORD = cython.declare(cython.int, 0)
    R_BODY = cython.declare(cython.int, 1)
    R_BODY_SIZE = cython.declare(cython.int, 2)
    R_PROPERTIES = cython.declare(cython.int, 3)
    R_PROPERTIES_SIZE = cython.declare(cython.int, 4)
    R_TOPIC = cython.declare(cython.int, 5)
    R_TOPIC_SIZE = cython.declare(cython.int, 6)
    R_TAIL = cython.declare(cython.int, 7)  # where reconsumeTimes stands
    R_SIZE = cython.declare(cython.int, 8)
    R_ENTRY = cython.declare(cython.int, 9)  # the first of its properties
    R_ENTRY_COUNT = cython.declare(cython.int, 10)
    ROW = cython.declare(cython.int, 11)
    E_NAME = cython.declare(cython.int, 0)
    E_NAME_SIZE = cython.declare(cython.int, 1)
    E_VALUE = cython.declare(cython.int, 2)
    E_VALUE_SIZE = cython.declare(cython.int, 3)
    ENTRY = cython.declare(cython.int, 4)
    COMPARED_MAX = cython.declare(cython.int, 32)  # properties: beyond this doubles are looked for in Python
    TIME_MAX = cython.declare(cython.longlong, 9223372036854775)
    SIZE_MAX = cython.declare(cython.longlong, 0x7FFFFFFF)

    @cython.cclass
    class _Rows:
        """The picked records of all pieces."""

        numbers: cython.pointer(cython.longlong)
        count: cython.longlong
        entries: cython.pointer(cython.longlong)
        entry_count: cython.longlong
        entry_room: cython.longlong
        key_bytes: cython.longlong
        value_bytes: cython.longlong
        kept: list  # bytes that rows point to and that are not in the pieces
        inflate: cython.bint
        with_properties: cython.bint
        topics: object
        tags: object
        topic: (
            cython.longlong
        )  # where the last plain topic stands that was asked for, and whether it is wanted
        topic_size: cython.longlong
        topic_wanted: cython.bint

        def __cinit__(self) -> None:
            self.numbers = self.entries = cython.NULL
            self.count = self.entry_count = self.entry_room = self.key_bytes = self.value_bytes = 0
            self.topic_size = -1

        def __dealloc__(self) -> None:
            PyMem_Free(self.numbers)
            PyMem_Free(self.entries)

    @cython.cfunc
    def _decode_compiled(
        pieces: list, columns: list, broker_name: bytes, inflate: object, topics: object, tags: object
    ) -> tuple:
        rows: _Rows = _Rows()
        total: cython.longlong = 0
        for piece in pieces:
            total += len(piece[0])
        rows.numbers = cython.cast(
            cython.pointer(cython.longlong),
            PyMem_Malloc((total // 91 + 1) * ROW * cython.sizeof(cython.longlong)),
        )
        if rows.numbers == cython.NULL:
            raise MemoryError
        rows.kept = []
        rows.inflate = inflate and BODY in columns
        rows.with_properties = tags is not None or not NEEDS_PROPERTIES.isdisjoint(columns)
        rows.topics, rows.tags = topics, tags
        for buffer, first, end in pieces:
            _collect_buffer(rows, buffer, first, end)
        result: list = []
        for column in columns:
            result.append(_compiled_column(rows, column, broker_name))
        return rows.count, result

    @cython.cfunc
    def _collect_buffer(rows: _Rows, buffer: object, first: cython.longlong, end: cython.longlong):
        # The addresses stay good after the release: the caller's list keeps the buffers, and they do not change size.
        view: Py_buffer
        PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
        try:
            _collect(rows, cython.cast(cython.p_uchar, view.buf), view.len, first, end)
        finally:
            PyBuffer_Release(cython.address(view))

    @cython.cfunc
    def _collect(
        rows: _Rows,
        p: cython.p_uchar,
        end: cython.Py_ssize_t,
        first_offset: cython.longlong,
        end_offset: cython.longlong,
    ):
        position: cython.Py_ssize_t = 0
        size: cython.Py_ssize_t
        size_max: cython.Py_ssize_t = RECORD_SIZE_MAX
        queue_offset: cython.longlong
        while position < end:
            if end - position < 91:
                raise _bad_record(position, CUT)
            size = get_i32(p + position)
            if size < 91 or size > size_max:
                raise _bad_record(position, IMPOSSIBLE)
            if size > end - position:
                raise _bad_record(position, CUT)
            queue_offset = get_i64(p + position + 20)
            if not _note(rows, p + position, size):
                raise _bad_record(position, NOT_ADDING_UP)
            if first_offset <= queue_offset < end_offset:
                _accept(rows)
            position += size

    @cython.cfunc
    def _note(rows: _Rows, p: cython.p_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Write the row behind the last one; false if the record's lengths do not add up."""
        row: cython.pointer(cython.longlong) = rows.numbers + rows.count * ROW
        sys_flag: cython.int = get_i32(p + 36)
        born_size: cython.Py_ssize_t = 20 if sys_flag & 0x10 else 8
        store_size: cython.Py_ssize_t = 20 if sys_flag & 0x20 else 8
        tail: cython.Py_ssize_t = 56 + born_size + store_size
        body_start: cython.Py_ssize_t = tail + 16
        if body_start + 3 > size:
            return False
        body_size: cython.Py_ssize_t = get_i32(p + tail + 12)
        if body_size < 0 or body_size > size - body_start - 3:
            return False
        body_end: cython.Py_ssize_t = body_start + body_size
        topic_size: cython.Py_ssize_t = p[body_end]
        topic_end: cython.Py_ssize_t = body_end + 1 + topic_size
        if topic_size > 127 or topic_end + 2 > size:
            return False
        properties_size: cython.Py_ssize_t = (p[topic_end] << 8) | p[topic_end + 1]
        if properties_size > 32767 or topic_end + 2 + properties_size != size:
            return False
        row[R_RECORD] = address_of(p)
        row[R_BODY] = address_of(p + body_start)
        row[R_BODY_SIZE] = body_size
        row[R_PROPERTIES] = address_of(p + topic_end + 2)
        row[R_PROPERTIES_SIZE] = properties_size
        row[R_TOPIC] = address_of(p + body_end + 1)
        row[R_TOPIC_SIZE] = topic_size
        row[R_TAIL] = tail
        row[R_SIZE] = size
        return True

    @cython.cfunc
    def _accept(rows: _Rows):
        """Count the noted row if topic and tag are wanted; bring its texts and its body into their final form."""
        row: cython.pointer(cython.longlong) = rows.numbers + rows.count * ROW
        if not _is_wanted_topic(rows, row):
            return
        if rows.with_properties:
            if not is_ascii(at(row[R_PROPERTIES]), row[R_PROPERTIES_SIZE]):
                data = copied(at(row[R_PROPERTIES]), row[R_PROPERTIES_SIZE])
                cleaned = clean_text(data)
                if cleaned != data:
                    _keep(rows, row, R_PROPERTIES, cleaned)
            _split_properties(rows, row, False)
            if rows.tags is not None and not _has_tag(rows, row):
                return
            _count_properties(rows, row)
        if rows.inflate and row[R_BODY_SIZE] > 0 and get_i32(at(row[R_RECORD]) + 36) & 1:
            body = copied(at(row[R_BODY]), row[R_BODY_SIZE])
            _keep(rows, row, R_BODY, decompress(body, get_i32(at(row[R_RECORD]) + 36)))
        rows.count += 1

    @cython.cfunc
    def _is_wanted_topic(rows: _Rows, row: cython.pointer(cython.longlong)) -> cython.bint:
        """Also cleans the text. Most often the topic is that of the record before."""
        topic: cython.p_uchar = at(row[R_TOPIC])
        size: cython.longlong = row[R_TOPIC_SIZE]
        if size == rows.topic_size and memcmp(at(rows.topic), topic, size) == 0:
            return rows.topic_wanted
        is_plain: cython.bint = is_ascii(topic, size)
        text: bytes = copied(topic, size)
        if not is_plain:
            text = clean_text(text)
            _keep(rows, row, R_TOPIC, text)
        wanted: cython.bint = rows.topics is None or text in rows.topics
        if is_plain:
            rows.topic = address_of(topic)
            rows.topic_size = size
            rows.topic_wanted = wanted
        return wanted

    @cython.cfunc
    def _keep(rows: _Rows, row: cython.pointer(cython.longlong), part: cython.int, data: bytes):
        rows.kept.append(data)
        row[part] = address_of(data_of(data))
        row[part + 1] = len(data)

    @cython.cfunc
    def _has_tag(rows: _Rows, row: cython.pointer(cython.longlong)) -> cython.bint:
        entry: cython.pointer(cython.longlong) = _find(rows, row, b"TAGS", 4)
        if entry == cython.NULL:
            return b"" in rows.tags
        return copied(at(entry[E_VALUE]), entry[E_VALUE_SIZE]) in rows.tags

    @cython.cfunc
    def _split_properties(rows: _Rows, row: cython.pointer(cython.longlong), final: cython.bint):
        """Note the row's properties behind those that count. Doubles are rare: Python rewrites such a row first."""
        p: cython.p_uchar = at(row[R_PROPERTIES])
        end: cython.longlong = row[R_PROPERTIES_SIZE]
        _make_room(rows, end // 3 + 1)  # the least is one byte, the sign, and one byte
        first: cython.pointer(cython.longlong) = rows.entries + rows.entry_count * ENTRY
        entry: cython.pointer(cython.longlong) = first
        start: cython.longlong = 0
        middle: cython.longlong = -1
        doubled: cython.bint = False
        i: cython.longlong = -1
        while i < end:
            i = next_mark(p, i + 1, end)
            if i < end and p[i] == 1:
                middle = i if middle < 0 else middle
            elif i == end or p[i] == 2:
                if middle > start and middle + 1 < i:
                    entry[E_NAME] = address_of(p + start)
                    entry[E_NAME_SIZE] = middle - start
                    entry[E_VALUE] = address_of(p + middle + 1)
                    entry[E_VALUE_SIZE] = i - middle - 1
                    doubled = doubled or (entry - first <= COMPARED_MAX * ENTRY and _is_double(first, entry))
                    entry += ENTRY
                start = i + 1
                middle = -1
        if (doubled or entry - first > COMPARED_MAX * ENTRY) and not final:
            _keep(rows, row, R_PROPERTIES, clean_properties(copied(p, end)))
            _split_properties(rows, row, True)
            return
        row[R_ENTRY] = rows.entry_count
        row[R_ENTRY_COUNT] = (entry - first) // ENTRY

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _is_double(
        first: cython.pointer(cython.longlong), entry: cython.pointer(cython.longlong)
    ) -> cython.bint:
        """Whether one of the properties before has the same name."""
        name: cython.p_uchar = at(entry[E_NAME])
        size: cython.longlong = entry[E_NAME_SIZE]
        while first < entry:
            if first[E_NAME_SIZE] == size and at(first[E_NAME])[0] == name[0]:
                if memcmp(at(first[E_NAME]), name, size) == 0:
                    return True
            first += ENTRY
        return False

    @cython.cfunc
    @cython.inline
    def _make_room(rows: _Rows, more: cython.longlong):
        """Room for so many properties behind those that count."""
        if rows.entry_count + more <= rows.entry_room:
            return
        room: cython.longlong = (rows.entry_count + more) * 2
        entries: cython.p_void = PyMem_Realloc(rows.entries, room * ENTRY * cython.sizeof(cython.longlong))
        if entries == cython.NULL:
            raise MemoryError
        rows.entries = cython.cast(cython.pointer(cython.longlong), entries)
        rows.entry_room = room

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _count_properties(rows: _Rows, row: cython.pointer(cython.longlong)) -> cython.void:
        entry: cython.pointer(cython.longlong) = rows.entries + rows.entry_count * ENTRY
        i: cython.longlong
        for i in range(row[R_ENTRY_COUNT]):
            rows.key_bytes += entry[E_NAME_SIZE]
            rows.value_bytes += entry[E_VALUE_SIZE]
            entry += ENTRY
        rows.entry_count += row[R_ENTRY_COUNT]

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _find(
        rows: _Rows, row: cython.pointer(cython.longlong), name: cython.p_char, name_size: cython.longlong
    ) -> cython.pointer(cython.longlong):
        """A property of a row, or NULL."""
        entry: cython.pointer(cython.longlong) = rows.entries + row[R_ENTRY] * ENTRY
        i: cython.longlong
        for i in range(row[R_ENTRY_COUNT]):
            if entry[E_NAME_SIZE] == name_size and memcmp(at(entry[E_NAME]), name, name_size) == 0:
                return entry
            entry += ENTRY
        return cython.NULL

    @cython.cfunc
    def _compiled_column(rows: _Rows, column: cython.int, broker_name: bytes) -> tuple:
        if column == QUEUE_ID:
            return (_int32s(rows, 12, False),)
        if column == FLAG:
            return (_int32s(rows, 16, False),)
        if column == SYS_FLAG:
            return (_int32s(rows, 36, False),)
        if column == BODY_CRC:
            return (_int32s(rows, 8, False),)
        if column == STORE_SIZE:
            return (_int32s(rows, 0, False),)
        if column == RECONSUME_TIMES:
            return (_int32s(rows, 0, True),)
        if column == QUEUE_OFFSET:
            return (_int64s(rows, 20, False),)
        if column == COMMIT_LOG_OFFSET:
            return (_int64s(rows, 28, False),)
        if column == PREPARED_TRANSACTION_OFFSET:
            return (_int64s(rows, 4, True),)
        if column == BORN_TIMESTAMP:
            return (_times(rows, False),)
        if column == STORE_TIMESTAMP:
            return (_times(rows, True),)
        if column == BODY:
            return _parts(rows, R_BODY)
        if column == TOPIC:
            return _parts(rows, R_TOPIC)
        if column == PROPERTIES:
            return _maps(rows)
        if column == BROKER_NAME:
            return _constants(rows, broker_name)
        if column == OFFSET_MSG_ID:
            return _offset_ids(rows)
        if column == BORN_HOST or column == STORE_HOST:
            return _hosts(rows, column == STORE_HOST)
        return _property_values(rows, PROPERTY_COLUMNS[column])

    @cython.cfunc
    def _int32s(rows: _Rows, position: cython.longlong, from_tail: cython.bint) -> bytes:
        target: bytes = empty(rows.count * 4)
        out: cython.pointer(cython.int) = cython.cast(cython.pointer(cython.int), data_of(target))
        row: cython.pointer(cython.longlong) = rows.numbers
        i: cython.longlong
        for i in range(rows.count):
            out[i] = get_i32(at(row[R_RECORD]) + position + (row[R_TAIL] if from_tail else 0))
            row += ROW
        return target

    @cython.cfunc
    def _int64s(rows: _Rows, position: cython.longlong, from_tail: cython.bint) -> bytes:
        target: bytes = empty(rows.count * 8)
        out: cython.pointer(cython.longlong) = cython.cast(cython.pointer(cython.longlong), data_of(target))
        row: cython.pointer(cython.longlong) = rows.numbers
        i: cython.longlong
        for i in range(rows.count):
            out[i] = get_i64(at(row[R_RECORD]) + position + (row[R_TAIL] if from_tail else 0))
            row += ROW
        return target

    @cython.cfunc
    def _times(rows: _Rows, stored: cython.bint) -> bytes:
        target: bytes = empty(rows.count * 8)
        out: cython.pointer(cython.longlong) = cython.cast(cython.pointer(cython.longlong), data_of(target))
        row: cython.pointer(cython.longlong) = rows.numbers
        i: cython.longlong
        value: cython.longlong
        position: cython.longlong
        for i in range(rows.count):
            position = 40
            if stored:
                position = 68 if get_i32(at(row[R_RECORD]) + 36) & 0x10 else 56
            value = get_i64(at(row[R_RECORD]) + position)
            value = TIME_MAX if value > TIME_MAX else (-TIME_MAX if value < -TIME_MAX else value)
            out[i] = value * 1000
            row += ROW
        return target

    @cython.cfunc
    def _parts(rows: _Rows, part: cython.int) -> tuple:
        """Bodies or topics: the part's address and size stand in the row."""
        offsets: bytes = empty((rows.count + 1) * 4)
        out: cython.pointer(cython.int) = cython.cast(cython.pointer(cython.int), data_of(offsets))
        row: cython.pointer(cython.longlong) = rows.numbers
        total: cython.longlong = 0
        i: cython.longlong
        out[0] = 0
        for i in range(rows.count):
            total += row[part + 1]
            if total > SIZE_MAX:
                raise too_large()
            out[i + 1] = cython.cast(cython.int, total)
            row += ROW
        data: bytes = empty(total)
        target: cython.p_uchar = data_of(data)
        row = rows.numbers
        for i in range(rows.count):
            memcpy(target + out[i], at(row[part]), row[part + 1])
            row += ROW
        return 0, None, offsets, data

    @cython.cfunc
    def _constants(rows: _Rows, value: bytes) -> tuple:
        size: cython.longlong = len(value)
        if size * rows.count > SIZE_MAX:
            raise too_large()
        offsets: bytes = empty((rows.count + 1) * 4)
        out: cython.pointer(cython.int) = cython.cast(cython.pointer(cython.int), data_of(offsets))
        i: cython.longlong
        for i in range(rows.count + 1):
            out[i] = cython.cast(cython.int, i * size)
        return 0, None, offsets, value * rows.count

    @cython.cfunc
    def _property_values(rows: _Rows, name: bytes) -> tuple:
        name_size: cython.longlong = len(name)
        name_start: cython.p_char = PyBytes_AS_STRING(name)
        offsets: bytes = empty((rows.count + 1) * 4)
        out: cython.pointer(cython.int) = cython.cast(cython.pointer(cython.int), data_of(offsets))
        validity: bytes = zeros((rows.count + 7) // 8)
        bits: cython.p_uchar = data_of(validity)
        row: cython.pointer(cython.longlong) = rows.numbers
        data: bytes = empty(rows.value_bytes)
        target: cython.p_uchar = data_of(data)
        total: cython.longlong = 0
        nulls: cython.longlong = 0
        found: cython.pointer(cython.longlong)
        i: cython.longlong
        out[0] = 0
        for i in range(rows.count):
            found = _find(rows, row, name_start, name_size)
            if found == cython.NULL:
                nulls += 1
            else:
                bits[i >> 3] |= 1 << (i & 7)
                memcpy(target + total, at(found[E_VALUE]), found[E_VALUE_SIZE])
                total += found[E_VALUE_SIZE]
            out[i + 1] = cython.cast(cython.int, total)
            row += ROW
        return nulls, validity if nulls else None, offsets, data[:total]

    @cython.cfunc
    def _maps(rows: _Rows) -> tuple:
        count: cython.longlong = rows.entry_count
        if rows.key_bytes > SIZE_MAX or rows.value_bytes > SIZE_MAX:
            raise too_large()
        offsets: bytes = empty((rows.count + 1) * 4)
        key_offsets: bytes = empty((count + 1) * 4)
        value_offsets: bytes = empty((count + 1) * 4)
        keys: bytes = empty(rows.key_bytes)
        values: bytes = empty(rows.value_bytes)
        out: cython.pointer(cython.int) = cython.cast(cython.pointer(cython.int), data_of(offsets))
        key_out: cython.pointer(cython.int) = cython.cast(cython.pointer(cython.int), data_of(key_offsets))
        value_out: cython.pointer(cython.int) = cython.cast(
            cython.pointer(cython.int), data_of(value_offsets)
        )
        key_target: cython.p_uchar = data_of(keys)
        value_target: cython.p_uchar = data_of(values)
        row: cython.pointer(cython.longlong) = rows.numbers
        entry: cython.pointer(cython.longlong) = rows.entries
        i: cython.longlong
        out[0] = key_out[0] = value_out[0] = 0
        for i in range(count):
            memcpy(key_target + key_out[i], at(entry[E_NAME]), entry[E_NAME_SIZE])
            memcpy(value_target + value_out[i], at(entry[E_VALUE]), entry[E_VALUE_SIZE])
            key_out[i + 1] = key_out[i] + cython.cast(cython.int, entry[E_NAME_SIZE])
            value_out[i + 1] = value_out[i] + cython.cast(cython.int, entry[E_VALUE_SIZE])
            entry += ENTRY
        for i in range(rows.count):
            out[i + 1] = cython.cast(cython.int, row[R_ENTRY] + row[R_ENTRY_COUNT])
            row += ROW
        return count, offsets, key_offsets, keys, value_offsets, values

    @cython.cfunc
    def _offset_ids(rows: _Rows) -> tuple:
        offsets: bytes = empty((rows.count + 1) * 4)
        out: cython.pointer(cython.int) = cython.cast(cython.pointer(cython.int), data_of(offsets))
        data: bytes = empty(rows.count * 56)
        target: cython.p_uchar = data_of(data)
        digits: cython.p_char = b"0123456789ABCDEF"
        row: cython.pointer(cython.longlong) = rows.numbers
        p: cython.p_uchar
        host: cython.p_uchar
        size: cython.longlong
        i: cython.longlong
        j: cython.longlong
        total: cython.longlong = 0
        out[0] = 0
        for i in range(rows.count):
            p = at(row[R_RECORD])
            size = 20 if get_i32(p + 36) & 0x20 else 8
            host = p + row[R_TAIL] - size
            for j in range(size + 8):
                byte: cython.uchar = host[j] if j < size else p[28 + j - size]
                target[total] = digits[byte >> 4]
                target[total + 1] = digits[byte & 15]
                total += 2
            out[i + 1] = cython.cast(cython.int, total)
            row += ROW
        return 0, None, offsets, data[:total]

    @cython.cfunc
    def _hosts(rows: _Rows, stored: cython.bint) -> tuple:
        """Addresses as text. They seldom change from one record to the next, so the last text is used again."""
        offsets: bytes = empty((rows.count + 1) * 4)
        out: cython.pointer(cython.int) = cython.cast(cython.pointer(cython.int), data_of(offsets))
        texts: list = []
        last: bytes = b""
        text: bytes = b""
        row: cython.pointer(cython.longlong) = rows.numbers
        p: cython.p_uchar
        size: cython.longlong
        total: cython.longlong = 0
        i: cython.longlong
        out[0] = 0
        for i in range(rows.count):
            p = at(row[R_RECORD])
            size = 20 if get_i32(p + 36) & (0x20 if stored else 0x10) else 8
            p += row[R_TAIL] - size if stored else 48
            if len(last) != size or memcmp(data_of(last), p, size) != 0:
                last = copied(p, size)
                text = host_text(last)
            texts.append(text)
            total += len(text)
            out[i + 1] = cython.cast(cython.int, total)
            row += ROW
        return 0, None, offsets, b"".join(texts)
