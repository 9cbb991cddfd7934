"""Message records straight into the buffers of Arrow columns: no Python object per message.

``decode_columns`` takes pull bodies (or slices of a commit log), picks records by queue offset, topic and tag, and gives
for every wanted column the bytes of its Arrow buffers::

    int32, int64, timestamp   (data)
    string, binary            (null_count, validity or None, offsets, data)
    map<string,string>        (entry_count, offsets, key offsets, key data, value offsets, value data)

Arrow is not imported here; :mod:`cometmq.spark.batches` makes arrays of the buffers. Texts are valid UTF-8 afterwards:
bytes that are none become U+FFFD, as everywhere else. The layout of a record stands in protocol/record_cy.py. The Python
branch is the specification; it goes through ``decode_records``. Reads buffers, touches nothing else.
"""

# mypy: ignore-errors
# ruff: noqa: F821

from __future__ import annotations

import array

from cometmq.errors import LocalProtocolError
from cometmq.protocol.compression import decompress
from cometmq.protocol.host import decode_host
from cometmq.protocol.limits import RECORD_SIZE_MAX
from cometmq.protocol.properties import decode_properties_bytes, encode_properties
from cometmq.protocol.record_cy import CUT, IMPOSSIBLE, NOT_ADDING_UP, _bad_record, decode_records

try:
    import cython
except ModuleNotFoundError:
    from cometmq import _cython as cython

if cython.compiled:
    from cython.cimports.cpython.buffer import Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
    from cython.cimports.cpython.mem import PyMem_Free, PyMem_Malloc, PyMem_Realloc
    from cython.cimports.libc.string import memcmp, memcpy, memset

# Columns by number; the names stand in columns.py in the same order.
TOPIC, BROKER_NAME, QUEUE_ID, QUEUE_OFFSET, TAGS, KEYS, BODY, PROPERTIES = range(8)
BORN_TIMESTAMP, STORE_TIMESTAMP, MSG_ID, RECONSUME_TIMES, SYS_FLAG, COMMIT_LOG_OFFSET = range(8, 14)
FLAG, BORN_HOST, STORE_HOST, OFFSET_MSG_ID, BODY_CRC, STORE_SIZE, PREPARED_TRANSACTION_OFFSET = range(14, 21)

NEEDS_PROPERTIES = frozenset((TAGS, KEYS, PROPERTIES, MSG_ID))
COLUMN_SIZE_MAX = 0x7FFFFFFF  # bytes: Arrow's offsets of string and binary have 32 bits
TIMESTAMP_MS_MAX = 0x7FFFFFFFFFFFFFFF // 1000  # later ones do not fit as microseconds

_PROPERTY_COLUMNS = {TAGS: b"TAGS", KEYS: b"KEYS", MSG_ID: b"UNIQ_KEY"}


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
        if first <= message.queue_offset < end and _wanted(message, topics, tags)
    ]
    return len(messages), [_column(messages, column, broker_name, inflate) for column in columns]


# the specification --------------------------------------------------------------------------------


def _wanted(message, topics, tags):
    if topics is not None and message.topic.encode() not in topics:
        return False
    return tags is None or (message.tag or "").encode() in tags


def _column(messages, column, broker_name, inflate):
    if column in _INT32:
        name = _INT32[column]
        return (array.array("i", [getattr(message, name) for message in messages]).tobytes(),)
    if column in _INT64:
        name = _INT64[column]
        return (array.array("q", [getattr(message, name) for message in messages]).tobytes(),)
    if column in _TIMES:
        name = _TIMES[column]
        return (array.array("q", [_microseconds(getattr(message, name)) for message in messages]).tobytes(),)
    if column == PROPERTIES:
        return _map_column([message.properties for message in messages])
    return _bytes_column([_value(message, column, broker_name, inflate) for message in messages])


_INT32 = {
    QUEUE_ID: "queue_id",
    RECONSUME_TIMES: "reconsume_times",
    SYS_FLAG: "sys_flag",
    FLAG: "flag",
    BODY_CRC: "body_crc",
    STORE_SIZE: "store_size",
}
_INT64 = {
    QUEUE_OFFSET: "queue_offset",
    COMMIT_LOG_OFFSET: "physical_offset",
    PREPARED_TRANSACTION_OFFSET: "prepared_transaction_offset",
}
_TIMES = {BORN_TIMESTAMP: "born_timestamp_ms", STORE_TIMESTAMP: "store_timestamp_ms"}


def _microseconds(value):
    return max(min(value, TIMESTAMP_MS_MAX), -TIMESTAMP_MS_MAX) * 1000


def _value(message, column, broker_name, inflate):
    if column == BODY:
        return message.body if inflate else message.stored_body
    if column == TOPIC:
        return message.topic.encode()
    if column == BROKER_NAME:
        return broker_name.encode()
    if column == BORN_HOST:
        return str(message.born_host).encode()
    if column == STORE_HOST:
        return str(message.store_host).encode()
    if column == OFFSET_MSG_ID:
        return message.offset_msg_id.encode()
    value = message.properties.get(_PROPERTY_COLUMNS[column].decode())
    return None if value is None else value.encode()


def _bytes_column(values):
    nulls = values.count(None)
    offsets = array.array("i", [0])
    total = 0
    validity = bytearray((len(values) + 7) // 8) if nulls else None
    for row, value in enumerate(values):
        total += len(value or b"")
        if total > COLUMN_SIZE_MAX:
            raise _too_large()
        offsets.append(total)
        if validity is not None and value is not None:
            validity[row >> 3] |= 1 << (row & 7)
    return (
        nulls,
        validity and bytes(validity),
        offsets.tobytes(),
        b"".join([value or b"" for value in values]),
    )


def _map_column(maps):
    offsets = array.array("i", [0])
    keys: list[bytes] = []
    values: list[bytes] = []
    for properties in maps:
        keys += [name.encode() for name in properties]
        values += [value.encode() for value in properties.values()]
        offsets.append(len(keys))
    _, _, key_offsets, key_data = _bytes_column(keys)
    _, _, value_offsets, value_data = _bytes_column(values)
    return len(keys), offsets.tobytes(), key_offsets, key_data, value_offsets, value_data


def _too_large():
    return LocalProtocolError(
        f"A column of one Arrow batch would have more than {COLUMN_SIZE_MAX} bytes; lower pullBatchSize, "
        "or set decompress=false if bodies are compressed very much."
    )


def _clean_properties(data):
    """The stored properties with valid UTF-8 and without doubles."""
    return encode_properties(decode_properties_bytes(data)).encode()


def _clean_text(data):
    return data.decode("utf-8", "replace").encode()


def _host_text(data):
    return str(decode_host(data)).encode()


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

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _load32(p: cython.p_uchar) -> cython.int:
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
    def _load64(p: cython.p_uchar) -> cython.longlong:
        return cython.cast(
            cython.longlong,
            (cython.cast(cython.ulonglong, cython.cast(cython.uint, _load32(p))) << 32)
            | cython.cast(cython.uint, _load32(p + 4)),
        )

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _at(address: cython.longlong) -> cython.p_uchar:
        return cython.cast(
            cython.p_uchar, cython.cast(cython.p_void, cython.cast(cython.Py_ssize_t, address))
        )

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _number(p: cython.p_uchar) -> cython.longlong:
        return cython.cast(cython.longlong, cython.cast(cython.Py_ssize_t, cython.cast(cython.p_void, p)))

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _is_ascii(p: cython.p_uchar, size: cython.longlong) -> cython.bint:
        bits: cython.uchar = 0
        i: cython.longlong
        for i in range(size):
            bits |= p[i]
        return bits < 0x80

    @cython.cfunc
    @cython.inline
    def _copy(p: cython.p_uchar, size: cython.longlong) -> bytes:
        return PyBytes_FromStringAndSize(cython.cast(cython.p_char, p), size)

    @cython.cfunc
    @cython.inline
    def _empty(size: cython.longlong) -> bytes:
        return PyBytes_FromStringAndSize(cython.NULL, size)

    @cython.cfunc
    @cython.inline
    def _blank(size: cython.longlong) -> bytes:
        target: bytes = _empty(size)
        memset(_data(target), 0, size)
        return target

    @cython.cfunc
    @cython.inline
    def _data(target: bytes) -> cython.p_uchar:
        return cython.cast(cython.p_uchar, PyBytes_AS_STRING(target))

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
            size = _load32(p + position)
            if size < 91 or size > size_max:
                raise _bad_record(position, IMPOSSIBLE)
            if size > end - position:
                raise _bad_record(position, CUT)
            queue_offset = _load64(p + position + 20)
            if not _note(rows, p + position, size):
                raise _bad_record(position, NOT_ADDING_UP)
            if first_offset <= queue_offset < end_offset:
                _accept(rows)
            position += size

    @cython.cfunc
    def _note(rows: _Rows, p: cython.p_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Write the row behind the last one; false if the record's lengths do not add up."""
        row: cython.pointer(cython.longlong) = rows.numbers + rows.count * ROW
        sys_flag: cython.int = _load32(p + 36)
        born_size: cython.Py_ssize_t = 20 if sys_flag & 0x10 else 8
        store_size: cython.Py_ssize_t = 20 if sys_flag & 0x20 else 8
        tail: cython.Py_ssize_t = 56 + born_size + store_size
        body_start: cython.Py_ssize_t = tail + 16
        if body_start + 3 > size:
            return False
        body_size: cython.Py_ssize_t = _load32(p + tail + 12)
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
        row[R_RECORD] = _number(p)
        row[R_BODY] = _number(p + body_start)
        row[R_BODY_SIZE] = body_size
        row[R_PROPERTIES] = _number(p + topic_end + 2)
        row[R_PROPERTIES_SIZE] = properties_size
        row[R_TOPIC] = _number(p + body_end + 1)
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
            if not _is_ascii(_at(row[R_PROPERTIES]), row[R_PROPERTIES_SIZE]):
                data = _copy(_at(row[R_PROPERTIES]), row[R_PROPERTIES_SIZE])
                cleaned = _clean_text(data)
                if cleaned != data:
                    _keep(rows, row, R_PROPERTIES, cleaned)
            _split_properties(rows, row, False)
            if rows.tags is not None and not _has_tag(rows, row):
                return
            _count_properties(rows, row)
        if rows.inflate and row[R_BODY_SIZE] > 0 and _load32(_at(row[R_RECORD]) + 36) & 1:
            body = _copy(_at(row[R_BODY]), row[R_BODY_SIZE])
            _keep(rows, row, R_BODY, decompress(body, _load32(_at(row[R_RECORD]) + 36)))
        rows.count += 1

    @cython.cfunc
    def _is_wanted_topic(rows: _Rows, row: cython.pointer(cython.longlong)) -> cython.bint:
        """Also cleans the text. Most often the topic is that of the record before."""
        topic: cython.p_uchar = _at(row[R_TOPIC])
        size: cython.longlong = row[R_TOPIC_SIZE]
        if size == rows.topic_size and memcmp(_at(rows.topic), topic, size) == 0:
            return rows.topic_wanted
        is_plain: cython.bint = _is_ascii(topic, size)
        text: bytes = _copy(topic, size)
        if not is_plain:
            text = _clean_text(text)
            _keep(rows, row, R_TOPIC, text)
        wanted: cython.bint = rows.topics is None or text in rows.topics
        if is_plain:
            rows.topic = _number(topic)
            rows.topic_size = size
            rows.topic_wanted = wanted
        return wanted

    @cython.cfunc
    def _keep(rows: _Rows, row: cython.pointer(cython.longlong), part: cython.int, data: bytes):
        rows.kept.append(data)
        row[part] = _number(_data(data))
        row[part + 1] = len(data)

    @cython.cfunc
    def _has_tag(rows: _Rows, row: cython.pointer(cython.longlong)) -> cython.bint:
        entry: cython.pointer(cython.longlong) = _find(rows, row, b"TAGS", 4)
        if entry == cython.NULL:
            return b"" in rows.tags
        return _copy(_at(entry[E_VALUE]), entry[E_VALUE_SIZE]) in rows.tags

    @cython.cfunc
    def _split_properties(rows: _Rows, row: cython.pointer(cython.longlong), final: cython.bint):
        """Note the row's properties behind those that count. Doubles are rare: Python rewrites such a row first."""
        p: cython.p_uchar = _at(row[R_PROPERTIES])
        end: cython.longlong = row[R_PROPERTIES_SIZE]
        _make_room(rows, end // 3 + 1)  # the least is one byte, the sign, and one byte
        first: cython.pointer(cython.longlong) = rows.entries + rows.entry_count * ENTRY
        entry: cython.pointer(cython.longlong) = first
        start: cython.longlong = 0
        middle: cython.longlong = -1
        doubled: cython.bint = False
        i: cython.longlong
        byte: cython.uchar
        for i in range(end + 1):
            byte = p[i] if i < end else 2
            if byte > 2:
                continue
            if byte == 1 and middle < 0:
                middle = i
            elif byte == 2:
                if middle > start and middle + 1 < i:
                    entry[E_NAME] = _number(p + start)
                    entry[E_NAME_SIZE] = middle - start
                    entry[E_VALUE] = _number(p + middle + 1)
                    entry[E_VALUE_SIZE] = i - middle - 1
                    doubled = doubled or (entry - first <= COMPARED_MAX * ENTRY and _is_double(first, entry))
                    entry += ENTRY
                start = i + 1
                middle = -1
        if (doubled or entry - first > COMPARED_MAX * ENTRY) and not final:
            _keep(rows, row, R_PROPERTIES, _clean_properties(_copy(p, end)))
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
        name: cython.p_uchar = _at(entry[E_NAME])
        size: cython.longlong = entry[E_NAME_SIZE]
        while first < entry:
            if first[E_NAME_SIZE] == size and _at(first[E_NAME])[0] == name[0]:
                if memcmp(_at(first[E_NAME]), name, size) == 0:
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
            if entry[E_NAME_SIZE] == name_size and memcmp(_at(entry[E_NAME]), name, name_size) == 0:
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
        return _property_values(rows, _PROPERTY_COLUMNS[column])

    @cython.cfunc
    def _int32s(rows: _Rows, position: cython.longlong, from_tail: cython.bint) -> bytes:
        target: bytes = _empty(rows.count * 4)
        out: cython.pointer(cython.int) = cython.cast(cython.pointer(cython.int), _data(target))
        row: cython.pointer(cython.longlong) = rows.numbers
        i: cython.longlong
        for i in range(rows.count):
            out[i] = _load32(_at(row[R_RECORD]) + position + (row[R_TAIL] if from_tail else 0))
            row += ROW
        return target

    @cython.cfunc
    def _int64s(rows: _Rows, position: cython.longlong, from_tail: cython.bint) -> bytes:
        target: bytes = _empty(rows.count * 8)
        out: cython.pointer(cython.longlong) = cython.cast(cython.pointer(cython.longlong), _data(target))
        row: cython.pointer(cython.longlong) = rows.numbers
        i: cython.longlong
        for i in range(rows.count):
            out[i] = _load64(_at(row[R_RECORD]) + position + (row[R_TAIL] if from_tail else 0))
            row += ROW
        return target

    @cython.cfunc
    def _times(rows: _Rows, stored: cython.bint) -> bytes:
        target: bytes = _empty(rows.count * 8)
        out: cython.pointer(cython.longlong) = cython.cast(cython.pointer(cython.longlong), _data(target))
        row: cython.pointer(cython.longlong) = rows.numbers
        i: cython.longlong
        value: cython.longlong
        position: cython.longlong
        for i in range(rows.count):
            position = 40
            if stored:
                position = 68 if _load32(_at(row[R_RECORD]) + 36) & 0x10 else 56
            value = _load64(_at(row[R_RECORD]) + position)
            value = TIME_MAX if value > TIME_MAX else (-TIME_MAX if value < -TIME_MAX else value)
            out[i] = value * 1000
            row += ROW
        return target

    @cython.cfunc
    def _parts(rows: _Rows, part: cython.int) -> tuple:
        """Bodies or topics: the part's address and size stand in the row."""
        offsets: bytes = _empty((rows.count + 1) * 4)
        out: cython.pointer(cython.int) = cython.cast(cython.pointer(cython.int), _data(offsets))
        row: cython.pointer(cython.longlong) = rows.numbers
        total: cython.longlong = 0
        i: cython.longlong
        out[0] = 0
        for i in range(rows.count):
            total += row[part + 1]
            if total > SIZE_MAX:
                raise _too_large()
            out[i + 1] = cython.cast(cython.int, total)
            row += ROW
        data: bytes = _empty(total)
        target: cython.p_uchar = _data(data)
        row = rows.numbers
        for i in range(rows.count):
            memcpy(target + out[i], _at(row[part]), row[part + 1])
            row += ROW
        return 0, None, offsets, data

    @cython.cfunc
    def _constants(rows: _Rows, value: bytes) -> tuple:
        size: cython.longlong = len(value)
        if size * rows.count > SIZE_MAX:
            raise _too_large()
        offsets: bytes = _empty((rows.count + 1) * 4)
        out: cython.pointer(cython.int) = cython.cast(cython.pointer(cython.int), _data(offsets))
        i: cython.longlong
        for i in range(rows.count + 1):
            out[i] = cython.cast(cython.int, i * size)
        return 0, None, offsets, value * rows.count

    @cython.cfunc
    def _property_values(rows: _Rows, name: bytes) -> tuple:
        name_size: cython.longlong = len(name)
        name_start: cython.p_char = PyBytes_AS_STRING(name)
        offsets: bytes = _empty((rows.count + 1) * 4)
        out: cython.pointer(cython.int) = cython.cast(cython.pointer(cython.int), _data(offsets))
        validity: bytes = _blank((rows.count + 7) // 8)
        bits: cython.p_uchar = _data(validity)
        row: cython.pointer(cython.longlong) = rows.numbers
        data: bytes = _empty(rows.value_bytes)
        target: cython.p_uchar = _data(data)
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
                memcpy(target + total, _at(found[E_VALUE]), found[E_VALUE_SIZE])
                total += found[E_VALUE_SIZE]
            out[i + 1] = cython.cast(cython.int, total)
            row += ROW
        return nulls, validity if nulls else None, offsets, data[:total]

    @cython.cfunc
    def _maps(rows: _Rows) -> tuple:
        count: cython.longlong = rows.entry_count
        if rows.key_bytes > SIZE_MAX or rows.value_bytes > SIZE_MAX:
            raise _too_large()
        offsets: bytes = _empty((rows.count + 1) * 4)
        key_offsets: bytes = _empty((count + 1) * 4)
        value_offsets: bytes = _empty((count + 1) * 4)
        keys: bytes = _empty(rows.key_bytes)
        values: bytes = _empty(rows.value_bytes)
        out: cython.pointer(cython.int) = cython.cast(cython.pointer(cython.int), _data(offsets))
        key_out: cython.pointer(cython.int) = cython.cast(cython.pointer(cython.int), _data(key_offsets))
        value_out: cython.pointer(cython.int) = cython.cast(cython.pointer(cython.int), _data(value_offsets))
        key_target: cython.p_uchar = _data(keys)
        value_target: cython.p_uchar = _data(values)
        row: cython.pointer(cython.longlong) = rows.numbers
        entry: cython.pointer(cython.longlong) = rows.entries
        i: cython.longlong
        out[0] = key_out[0] = value_out[0] = 0
        for i in range(count):
            memcpy(key_target + key_out[i], _at(entry[E_NAME]), entry[E_NAME_SIZE])
            memcpy(value_target + value_out[i], _at(entry[E_VALUE]), entry[E_VALUE_SIZE])
            key_out[i + 1] = key_out[i] + cython.cast(cython.int, entry[E_NAME_SIZE])
            value_out[i + 1] = value_out[i] + cython.cast(cython.int, entry[E_VALUE_SIZE])
            entry += ENTRY
        for i in range(rows.count):
            out[i + 1] = cython.cast(cython.int, row[R_ENTRY] + row[R_ENTRY_COUNT])
            row += ROW
        return count, offsets, key_offsets, keys, value_offsets, values

    @cython.cfunc
    def _offset_ids(rows: _Rows) -> tuple:
        offsets: bytes = _empty((rows.count + 1) * 4)
        out: cython.pointer(cython.int) = cython.cast(cython.pointer(cython.int), _data(offsets))
        data: bytes = _empty(rows.count * 56)
        target: cython.p_uchar = _data(data)
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
            p = _at(row[R_RECORD])
            size = 20 if _load32(p + 36) & 0x20 else 8
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
        offsets: bytes = _empty((rows.count + 1) * 4)
        out: cython.pointer(cython.int) = cython.cast(cython.pointer(cython.int), _data(offsets))
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
            p = _at(row[R_RECORD])
            size = 20 if _load32(p + 36) & (0x20 if stored else 0x10) else 8
            p += row[R_TAIL] - size if stored else 48
            if len(last) != size or memcmp(_data(last), p, size) != 0:
                last = _copy(p, size)
                text = _host_text(last)
            texts.append(text)
            total += len(text)
            out[i + 1] = cython.cast(cython.int, total)
            row += ROW
        return 0, None, offsets, b"".join(texts)
