"""The hot path: plain sends from received bytes to log records and response bytes, a batch per call.

Theory of operation. Nine of ten requests a busy broker gets are *plain sends*: SEND_MESSAGE (10) or
SEND_MESSAGE_V2 (310) or SEND_BATCH_MESSAGE (320) with a JSON header, to a known ordinary topic, without delay,
transaction or any other property that changes what is stored. ``PlainSends.consume`` takes as many of them as stand at the front of a
receive buffer, writes their records into the space that the store reserved, assigns queue offsets, and builds
the responses. It stops at the first frame that is anything else (or looks odd in any way: whitespace, an
escape beyond the usual, a number out of range); that frame goes to ``handlers/send.py``, where every rule is
written down once. So this file decides nothing: it only knows a subset of requests whose answer is certain.
``tests/property/test_plain_send.py`` sends the same frames down both ways and compares log, queues and responses.

The caller (``broker/plain_sends.py``) reserves the space, commits it to the store, which dispatches it to the
ConsumeQueues and the index, and writes the responses when durability allows.

No asyncio, no logging, no clock here. Compiled by Cython when a C compiler is at hand; the ``else`` branches
are the readable specification and must give the same bytes.
"""

from __future__ import annotations

import struct
import zlib

import msgspec

try:
    import cython
except ModuleNotFoundError:
    from cometmq import _cython as cython

from cometmq.broker.plain_request import plain_header, plain_numbers, stored_properties

if cython.compiled:
    from cython.cimports.cometmq.big_endian import get_u32, put_32, put_64
    from cython.cimports.cometmq.crc32 import crc32, fill_crc_tables
    from cython.cimports.cometmq.json_text import unescape, write_hex, write_number
    from cython.cimports.cometmq.send_header import (
        FIELD_BATCH,
        FIELD_BORN,
        FIELD_FLAG,
        FIELD_PROPERTIES,
        FIELD_QUEUE_ID,
        FIELD_RECONSUME,
        FIELD_SYS_FLAG,
        FIELD_TOPIC,
        SendHeader,
        parse_send_header,
        read_send_numbers,
    )
    from cython.cimports.cometmq.send_properties import edit_properties
    from cython.cimports.cpython.buffer import (
        Py_buffer,
        PyBUF_SIMPLE,
        PyBuffer_Release,
        PyObject_GetBuffer,
    )
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
    from cython.cimports.libc.string import memcmp, memcpy
else:
    from cometmq.broker.plain_request import (
        FIELD_BATCH,
        FIELD_BORN,
        FIELD_FLAG,
        FIELD_PROPERTIES,
        FIELD_QUEUE_ID,
        FIELD_RECONSUME,
        FIELD_SYS_FLAG,
        FIELD_TOPIC,
    )

# Constants of the C side: a plain module-level number would be a Python object in the loops.
RECORD_MAGIC = cython.declare(cython.uint, 0xDAA320A7)
CRC_MASK = cython.declare(cython.uint, 0x7FFFFFFF)
RECORD_FIXED_SIZE = cython.declare(cython.Py_ssize_t, 91)  # with two IPv4 hosts; each IPv6 host adds 12
PROPERTIES_SIZE_MAX = cython.declare(cython.Py_ssize_t, 32767)
HEADER_SIZE_MAX = cython.declare(cython.Py_ssize_t, 60_000)  # of a plain send; bounds the scratch area
SCRATCH_SIZE = cython.declare(cython.Py_ssize_t, 65_536)
RESPONSES_SIZE_MAX = cython.declare(cython.Py_ssize_t, 262_144)  # of one call; a batch stops before it
RESPONSE_SIZE_MAX = cython.declare(cython.Py_ssize_t, 1024)  # of one response, region name included

RECORD_SLACK_SIZE = cython.declare(cython.Py_ssize_t, 65_536)  # of a batch's records beyond the largest body
BATCH_ITEM_SIZE_MIN = cython.declare(cython.Py_ssize_t, 22)
BATCH_COUNT_MAX = cython.declare(cython.Py_ssize_t, 1000)  # a larger batch is not plain; bounds its response
BATCH_RESPONSE_SIZE = cython.declare(cython.Py_ssize_t, 64)  # of one more message id, IPv6 included

FLAG_ONEWAY = cython.declare(cython.longlong, 2)
SYS_FLAG_TRANSACTION = cython.declare(cython.longlong, 0xC)
SYS_FLAG_BORN_V6 = cython.declare(cython.longlong, 0x10)
SYS_FLAG_STORE_V6 = cython.declare(cython.longlong, 0x20)

if cython.compiled:
    fill_crc_tables()


@cython.final
@cython.cclass
class PlainTopic:
    """A topic that takes plain sends: its queues' next offsets (memory of the store) and what was counted."""

    queue_count: cython.longlong
    next_offsets: cython.longlong[::1]
    messages: cython.longlong
    size: cython.longlong
    name: bytes

    def __init__(self, name: bytes, queue_count: int, next_offsets: memoryview) -> None:
        assert len(next_offsets) >= queue_count
        self.name = name
        self.queue_count = queue_count
        self.next_offsets = next_offsets
        self.messages = 0
        self.size = 0

    def take_counts(self) -> tuple:
        """Messages and bytes stored since the last call."""
        counts = (self.messages, self.size)
        self.messages = 0
        self.size = 0
        return counts


@cython.cclass
class RecordMaker:
    """What ``fast_path_cy`` knows of PlainSends: ``position``, ``responses``, ``count`` and ``stored_size`` tell the
    result of the last ``consume``."""

    def __init__(self) -> None:
        self.position = 0
        self.count = 0
        self.stored_size = 0
        self.responses = b""

    @cython.ccall
    def consume(
        self,
        view: object,
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        born_host: bytes,
        now_ms: cython.longlong,
    ) -> cython.Py_ssize_t:
        """Store what stands at the front of ``view[start:end]``; answer how many bytes were consumed."""
        raise NotImplementedError


@cython.final
@cython.cclass
class PlainSends(RecordMaker):
    """Turns plain send requests into records. One object per broker."""

    topics = cython.declare(dict, visibility="readonly")
    _log: object
    _limit: cython.Py_ssize_t
    _physical_base: cython.longlong
    _target: cython.pointer(cython.uchar)
    _body_size_max: cython.Py_ssize_t
    _frame_size_max: cython.Py_ssize_t
    _cluster: bytes
    _store_host: bytes
    _host_hex: bytes
    _middle: bytes
    _tail: bytes
    _head: bytes
    _scratch: bytearray
    _out: bytearray
    _header: SendHeader
    _shared_size: cython.Py_ssize_t
    _batch: cython.bint
    _body: cython.pointer(cython.const[cython.uchar])
    _body_size: cython.Py_ssize_t

    def __init__(
        self,
        *,
        cluster: str,
        region: str,
        trace_on: bool,
        store_host: bytes,
        body_size_max: int,
        frame_size_max: int,
    ) -> None:
        assert len(store_host) in (8, 20)
        RecordMaker.__init__(self)
        self.topics = {}
        self.open(memoryview(b""), 0, 0, 0)
        self._body_size_max = body_size_max
        self._frame_size_max = frame_size_max
        self._cluster = b"CLUSTER\x01" + cluster.encode()
        self._store_host = store_host
        self._host_hex = store_host.hex().upper().encode()
        self._head = b'{"code":0,"extFields":{"queueId":"'
        self._middle = b'","TRACE_ON":"%s","MSG_REGION":%s,"msgId":"' % (
            b"true" if trace_on else b"false",
            msgspec.json.encode(region),
        )
        self._tail = b',"serializeTypeCurrentRPC":"JSON","version":407}'
        self._scratch = bytearray(SCRATCH_SIZE + 512)
        self._out = bytearray(RESPONSES_SIZE_MAX)
        assert len(self._middle) + 200 < RESPONSE_SIZE_MAX
        assert len(self._cluster) < 400

    def admit(self, topic: bytes, queue_count: int, next_offsets: memoryview) -> None:
        """From now on sends to this topic may be plain."""
        self.topics[topic] = PlainTopic(topic, queue_count, next_offsets)

    def forget(self, topic: bytes) -> None:
        """The topic changed or went away: let the handlers look at it again."""
        self.topics.pop(topic, None)

    def open(self, log: object, position: int, limit: int, physical_base: int) -> None:
        """From now on records go to ``log[position:limit]`` (the store keeps room for its closing record behind that);
        ``physical_base`` is the physical offset of ``log[0]``.
        """
        assert 0 <= position <= limit <= len(log)
        self.position = position
        self._limit = limit
        self._physical_base = physical_base
        self._log = log
        if cython.compiled:
            self._target = _writable(log)

    @cython.ccall
    def consume(
        self,
        view: object,
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        born_host: bytes,
        now_ms: cython.longlong,
    ) -> cython.Py_ssize_t:
        """Store the plain sends at the front of ``view[start:end]``; answer how many bytes were consumed."""
        assert 0 <= start <= end <= len(view)
        self.count = 0
        self.stored_size = 0
        self.responses = b""
        if not cython.compiled:
            return self._consume_python(view, start, end, born_host, now_ms)
        buffer: Py_buffer
        PyObject_GetBuffer(view, cython.address(buffer), PyBUF_SIMPLE)
        try:
            return self._consume(
                cython.cast(cython.pointer(cython.const[cython.uchar]), buffer.buf),
                start,
                end,
                born_host,
                now_ms,
            )
        finally:
            PyBuffer_Release(cython.address(buffer))

    # ---- the specification: plain Python -----------------------------------------------------------------------

    def _consume_python(self, view, start, end, born_host, now_ms):
        log, position, limit, physical_base = self._log, self.position, self._limit, self._physical_base
        pos = start
        out = bytearray()
        while end - pos >= 8 and len(out) + RESPONSE_SIZE_MAX <= RESPONSES_SIZE_MAX:
            (size,) = struct.unpack_from(">i", view, pos)
            if size < 4 or size + 4 > self._frame_size_max or pos + 4 + size > end:
                break
            request = self._plain_request(view[pos : pos + 4 + size])
            if request is None:
                break
            header, topic, fields, items = request
            fixed_size = RECORD_FIXED_SIZE + len(topic.name) + len(born_host) - 8 + len(self._store_host) - 8
            sizes = [fixed_size + len(body) + len(properties) for _, body, properties in items]
            if position + sum(sizes) > limit or not self._fits(items, sum(sizes), len(out)):
                break
            queue_id = fields[FIELD_QUEUE_ID]
            first = topic.next_offsets[queue_id]
            offsets = []
            for (flag, body, properties), record_size in zip(items, sizes, strict=True):
                fields[FIELD_FLAG] = flag
                physical_offset = physical_base + position
                offsets.append(physical_offset)
                log[position : position + record_size] = self._record(
                    record_size, topic.name, fields, properties, body, topic.next_offsets[queue_id], physical_offset,
                    born_host, now_ms,
                )  # fmt: skip
                position += record_size
                topic.next_offsets[queue_id] += 1
            topic.messages += len(items)
            topic.size += sum(sizes)
            self.count += len(items)
            self.stored_size += sum(sizes)
            if not header.flag & FLAG_ONEWAY:
                out += self._response(header.opaque, queue_id, first, offsets)
            pos += 4 + size
        self.position = position
        self.responses = bytes(out)
        return pos - start

    def _fits(self, items, size, out_size):
        """The limits of a batch; a single message is limited by its body alone."""
        if len(items) == 1:
            return len(items[0][1]) <= self._body_size_max
        room = RESPONSES_SIZE_MAX - out_size - RESPONSE_SIZE_MAX
        return size <= self._body_size_max + RECORD_SLACK_SIZE and len(items) * BATCH_RESPONSE_SIZE <= room

    def _plain_request(self, frame):
        """(header, topic, numbers by field, [(flag, body, stored properties)]), or None: not a plain send."""
        (word,) = struct.unpack_from(">I", frame, 4)
        header_size = word & 0xFFFFFF
        if word >> 24 != 0 or header_size + 8 > len(frame) or header_size > HEADER_SIZE_MAX:
            return None
        found = plain_header(bytes(frame[8 : 8 + header_size]))
        if found is None:
            return None
        header, values = found
        if values.get(FIELD_BATCH, "false") not in ("false", "true"):
            return None
        batch = values.get(FIELD_BATCH) == "true"
        topic = self.topics.get(values.get(FIELD_TOPIC, "").encode())
        fields = plain_numbers(values)
        properties = stored_properties(values.get(FIELD_PROPERTIES, "").encode(), batch)
        if topic is None or fields is None or properties is None:
            return None
        if (
            not 0 <= fields[FIELD_QUEUE_ID] < topic.queue_count
            or fields[FIELD_SYS_FLAG] & SYS_FLAG_TRANSACTION
        ):
            return None
        properties = properties + b"\x02" + self._cluster if properties else self._cluster
        if len(properties) > PROPERTIES_SIZE_MAX:
            return None
        body = frame[8 + header_size :]
        if not batch:
            return header, topic, fields, [(fields[FIELD_FLAG], body, properties)]
        items = self._batch_items(body, properties)
        return None if items is None else (header, topic, fields, items)

    def _batch_items(self, body, shared):
        """The messages of a batch with their stored properties; None when something is odd or too much."""
        items = []
        position = 0
        if len(body) > self._body_size_max:
            return None
        while position < len(body):
            if len(body) - position < BATCH_ITEM_SIZE_MIN or len(items) == BATCH_COUNT_MAX:
                return None
            size, _, _, flag, body_size = struct.unpack_from(">iiiii", body, position)
            if size > len(body) - position or not 0 <= body_size <= size - BATCH_ITEM_SIZE_MIN:
                return None
            start = position + 20
            (properties_size,) = struct.unpack_from(">h", body, start + body_size)
            if size != BATCH_ITEM_SIZE_MIN + body_size + properties_size:
                return None
            own = bytes(body[start + body_size + 2 : position + size])
            if len(own) + 1 + len(shared) > PROPERTIES_SIZE_MAX:
                return None
            separator = b"\x02" if own and not own.endswith(b"\x02") else b""
            items.append((flag, body[start : start + body_size], own + separator + shared))
            position += size
        return items or None

    def _record(
        self, size, topic, fields, properties, body, queue_offset, physical_offset, born_host, now_ms
    ):
        sys_flag = fields[FIELD_SYS_FLAG] & ~(SYS_FLAG_BORN_V6 | SYS_FLAG_STORE_V6)
        sys_flag |= SYS_FLAG_BORN_V6 if len(born_host) == 20 else 0
        sys_flag |= SYS_FLAG_STORE_V6 if len(self._store_host) == 20 else 0
        crc = zlib.crc32(body) & 0x7FFFFFFF
        return b"".join(
            (
                struct.pack(">IIIii", size, RECORD_MAGIC, crc, fields[FIELD_QUEUE_ID], fields[FIELD_FLAG]),
                struct.pack(">qqiq", queue_offset, physical_offset, sys_flag, fields[FIELD_BORN]),
                born_host,
                struct.pack(">q", now_ms),
                self._store_host,
                struct.pack(">iqi", fields[FIELD_RECONSUME], 0, len(body)),
                body,
                struct.pack(">B", len(topic)),
                topic,
                struct.pack(">h", len(properties)),
                properties,
            )
        )

    def _response(self, opaque, queue_id, queue_offset, physical_offsets):
        header = b'%b%d%b%b","queueOffset":"%d"},"flag":1,"language":"PYTHON","opaque":%d%b' % (
            self._head,
            queue_id,
            self._middle,
            b",".join([self._host_hex + b"%016X" % offset for offset in physical_offsets]),
            queue_offset,
            opaque,
            self._tail,
        )
        return struct.pack(">II", len(header) + 4, len(header)) + header

    # ---- the same in C ------------------------------------------------------------------------------------------

    if cython.compiled:

        @cython.cfunc
        def _consume(
            self,
            data: cython.pointer(cython.const[cython.uchar]),
            start: cython.Py_ssize_t,
            end: cython.Py_ssize_t,
            born_host: bytes,
            now_ms: cython.longlong,
        ) -> cython.Py_ssize_t:
            position: cython.Py_ssize_t = self.position
            limit: cython.Py_ssize_t = self._limit
            physical_base: cython.longlong = self._physical_base
            target: cython.pointer(cython.uchar) = self._target
            out: cython.pointer(cython.uchar) = cython.cast(cython.pointer(cython.uchar), self._out)
            born: cython.pointer(cython.const[cython.uchar]) = born_host
            born_size: cython.Py_ssize_t = len(born_host)
            out_size: cython.Py_ssize_t = 0
            pos: cython.Py_ssize_t = start
            size: cython.Py_ssize_t
            written: cython.Py_ssize_t
            header_size: cython.uint
            topic: PlainTopic
            numbers: cython.longlong[14]
            count: cython.Py_ssize_t
            while end - pos >= 8 and out_size + RESPONSE_SIZE_MAX <= RESPONSES_SIZE_MAX:
                size = get_u32(data + pos)
                if size < 4 or size + 4 > self._frame_size_max or pos + 4 + size > end:
                    break
                header_size = get_u32(data + pos + 4)
                if header_size + 4 > size or header_size > HEADER_SIZE_MAX:
                    break
                if not parse_send_header(cython.address(self._header), data + pos + 8, header_size):
                    break
                topic = self._plain_topic(data + pos + 8, numbers)
                if topic is None or not self._properties(data + pos + 8):
                    break
                self._body = data + pos + 8 + header_size
                self._body_size = size - 4 - header_size
                count = self._count_items(topic, born_size, limit - position, out_size)
                if count == 0:
                    break
                if not self._header.flag & FLAG_ONEWAY:
                    out_size += self._write_response(
                        out + out_size, numbers[FIELD_QUEUE_ID], topic.next_offsets[numbers[FIELD_QUEUE_ID]],
                        topic, born_size, physical_base + position, count,
                    )  # fmt: skip
                written = self._write_items(
                    target + position,
                    topic,
                    numbers,
                    count,
                    physical_base + position,
                    born,
                    born_size,
                    now_ms,
                )
                topic.messages += count
                topic.size += written
                position += written
                self.count += count
                self.stored_size += written
                pos += 4 + size
            self.position = position
            if out_size:
                self.responses = PyBytes_FromStringAndSize(cython.cast(cython.p_char, out), out_size)
            return pos - start

        @cython.cfunc
        def _record_size(
            self,
            topic: PlainTopic,
            born_size: cython.Py_ssize_t,
            body_size: cython.Py_ssize_t,
            own: cython.Py_ssize_t,
        ) -> cython.Py_ssize_t:
            """Of a record whose own properties, with separator, have ``own`` bytes."""
            return (
                RECORD_FIXED_SIZE + len(topic.name) + born_size - 8 + len(self._store_host) - 8
                + body_size + own + self._shared_size
            )  # fmt: skip

        @cython.cfunc
        def _count_items(
            self,
            topic: PlainTopic,
            born_size: cython.Py_ssize_t,
            room: cython.Py_ssize_t,
            out_size: cython.Py_ssize_t,
        ) -> cython.Py_ssize_t:
            """How many messages the body holds; 0 when it is not plain or its records do not fit."""
            position: cython.Py_ssize_t = 0
            total: cython.Py_ssize_t = 0
            count: cython.Py_ssize_t = 0
            size: cython.longlong
            body_size: cython.longlong
            own: cython.Py_ssize_t
            if self._body_size > self._body_size_max:
                return 0
            if not self._batch:
                return 1 if self._record_size(topic, born_size, self._body_size, 0) <= room else 0
            while position < self._body_size:
                if self._body_size - position < BATCH_ITEM_SIZE_MIN or count == BATCH_COUNT_MAX:
                    return 0
                size = cython.cast(cython.int, get_u32(self._body + position))
                body_size = cython.cast(cython.int, get_u32(self._body + position + 16))
                if (
                    size > self._body_size - position
                    or body_size < 0
                    or body_size > size - BATCH_ITEM_SIZE_MIN
                ):
                    return 0
                own = (self._body[position + 20 + body_size] << 8) | self._body[position + 21 + body_size]
                if own > PROPERTIES_SIZE_MAX or size != BATCH_ITEM_SIZE_MIN + body_size + own:
                    return 0
                if own + 1 + self._shared_size > PROPERTIES_SIZE_MAX:
                    return 0
                if own > 0 and self._body[position + size - 1] != 2:
                    own += 1
                total += self._record_size(topic, born_size, body_size, own)
                count += 1
                position += size
            if total > room or (count > 1 and total > self._body_size_max + RECORD_SLACK_SIZE):
                return 0
            if count > 1 and count * BATCH_RESPONSE_SIZE > RESPONSES_SIZE_MAX - out_size - RESPONSE_SIZE_MAX:
                return 0
            return count

        @cython.cfunc
        def _write_items(
            self,
            target: cython.pointer(cython.uchar),
            topic: PlainTopic,
            numbers: cython.pointer(cython.longlong),
            count: cython.Py_ssize_t,
            physical_offset: cython.longlong,
            born: cython.pointer(cython.const[cython.uchar]),
            born_size: cython.Py_ssize_t,
            now_ms: cython.longlong,
        ) -> cython.Py_ssize_t:
            """Write the records that _count_items found to fit; their size."""
            written: cython.Py_ssize_t = 0
            size: cython.Py_ssize_t
            body_size: cython.Py_ssize_t
            item: cython.pointer(cython.const[cython.uchar]) = self._body
            k: cython.Py_ssize_t
            if not self._batch:
                written = self._write_record(
                    target, topic, numbers, self._body, 0, self._body, self._body_size, physical_offset,
                    born, born_size, now_ms,
                )  # fmt: skip
                topic.next_offsets[numbers[FIELD_QUEUE_ID]] += 1
                return written
            for k in range(count):
                size = get_u32(item)
                body_size = get_u32(item + 16)
                numbers[FIELD_FLAG] = cython.cast(cython.int, get_u32(item + 12))
                written += self._write_record(
                    target + written, topic, numbers, item + 22 + body_size, size - BATCH_ITEM_SIZE_MIN - body_size,
                    item + 20, body_size, physical_offset + written, born, born_size, now_ms,
                )  # fmt: skip
                topic.next_offsets[numbers[FIELD_QUEUE_ID]] += 1
                item += size
            return written

        @cython.cfunc
        def _plain_topic(
            self, p: cython.pointer(cython.const[cython.uchar]), numbers: cython.pointer(cython.longlong)
        ) -> PlainTopic:
            """The topic entry with the numbers read, or None."""
            topic: PlainTopic
            found: object
            values: cython.pointer(cython.Py_ssize_t) = self._header.values
            sizes: cython.pointer(cython.Py_ssize_t) = self._header.sizes
            if sizes[FIELD_TOPIC] < 1 or not read_send_numbers(cython.address(self._header), p, numbers):
                return None
            self._batch = sizes[FIELD_BATCH] == 4 and memcmp(p + values[FIELD_BATCH], b"true", 4) == 0
            if (
                sizes[FIELD_BATCH] >= 0
                and not self._batch
                and (sizes[FIELD_BATCH] != 5 or memcmp(p + values[FIELD_BATCH], b"false", 5) != 0)
            ):
                return None
            found = self.topics.get(
                PyBytes_FromStringAndSize(
                    cython.cast(cython.p_char, p + values[FIELD_TOPIC]), sizes[FIELD_TOPIC]
                )
            )
            if found is None:
                return None
            topic = found
            if (
                not 0 <= numbers[FIELD_QUEUE_ID] < topic.queue_count
                or numbers[FIELD_SYS_FLAG] & SYS_FLAG_TRANSACTION
            ):
                return None
            return topic

        @cython.cfunc
        def _properties(self, p: cython.pointer(cython.const[cython.uchar])) -> cython.bint:
            """The request's stored properties into the scratch area; False: not plain."""
            scratch: cython.pointer(cython.uchar) = cython.cast(cython.pointer(cython.uchar), self._scratch)
            values: cython.pointer(cython.Py_ssize_t) = self._header.values
            sizes: cython.pointer(cython.Py_ssize_t) = self._header.sizes
            cluster_size: cython.Py_ssize_t = len(self._cluster)
            n: cython.Py_ssize_t = 0
            if sizes[FIELD_PROPERTIES] > 0:
                n = unescape(p + values[FIELD_PROPERTIES], sizes[FIELD_PROPERTIES], scratch)
                if n < 0:
                    return False
                n = edit_properties(scratch, n, self._batch)
                if n < 0:
                    return False
            if n > 0:
                scratch[n] = 2
                n += 1
            memcpy(scratch + n, cython.cast(cython.p_char, self._cluster), cluster_size)
            self._shared_size = n + cluster_size
            return self._shared_size <= PROPERTIES_SIZE_MAX

        @cython.cfunc
        def _write_record(
            self,
            r: cython.pointer(cython.uchar),
            topic: PlainTopic,
            numbers: cython.pointer(cython.longlong),
            own: cython.pointer(cython.const[cython.uchar]),
            own_size: cython.Py_ssize_t,
            body: cython.pointer(cython.const[cython.uchar]),
            body_size: cython.Py_ssize_t,
            physical_offset: cython.longlong,
            born: cython.pointer(cython.const[cython.uchar]),
            born_size: cython.Py_ssize_t,
            now_ms: cython.longlong,
        ) -> cython.Py_ssize_t:
            """Write one record: its own properties (of a batch item), then those of the request; its size."""
            store_size: cython.Py_ssize_t = len(self._store_host)
            topic_size: cython.Py_ssize_t = len(topic.name)
            separator: cython.Py_ssize_t = 1 if own_size > 0 and own[own_size - 1] != 2 else 0
            properties_size: cython.Py_ssize_t = own_size + separator + self._shared_size
            size: cython.Py_ssize_t = self._record_size(topic, born_size, body_size, own_size + separator)
            sys_flag: cython.longlong = numbers[FIELD_SYS_FLAG] & ~0x30
            if born_size == 20:
                sys_flag |= SYS_FLAG_BORN_V6
            if store_size == 20:
                sys_flag |= SYS_FLAG_STORE_V6
            put_32(r, size)
            put_32(r + 4, RECORD_MAGIC)
            put_32(r + 8, crc32(body, body_size) & CRC_MASK)
            put_32(r + 12, cython.cast(cython.uint, numbers[FIELD_QUEUE_ID]))
            put_32(r + 16, cython.cast(cython.uint, numbers[FIELD_FLAG]))
            put_64(r + 20, topic.next_offsets[numbers[FIELD_QUEUE_ID]])
            put_64(r + 28, physical_offset)
            put_32(r + 36, cython.cast(cython.uint, sys_flag))
            put_64(r + 40, numbers[FIELD_BORN])
            memcpy(r + 48, born, born_size)
            r += 48 + born_size
            put_64(r, now_ms)
            memcpy(r + 8, cython.cast(cython.p_char, self._store_host), store_size)
            r += 8 + store_size
            put_32(r, cython.cast(cython.uint, numbers[FIELD_RECONSUME]))
            put_64(r + 4, 0)
            put_32(r + 12, body_size)
            memcpy(r + 16, body, body_size)
            r += 16 + body_size
            r[0] = topic_size
            memcpy(r + 1, cython.cast(cython.p_char, topic.name), topic_size)
            r += 1 + topic_size
            r[0] = (properties_size >> 8) & 0xFF
            r[1] = properties_size & 0xFF
            memcpy(r + 2, own, own_size)
            r += 2 + own_size
            if separator:
                r[0] = 2
            memcpy(r + separator, cython.cast(cython.p_char, self._scratch), self._shared_size)
            return size

        @cython.cfunc
        def _write_response(
            self,
            out: cython.pointer(cython.uchar),
            queue_id: cython.longlong,
            queue_offset: cython.longlong,
            topic: PlainTopic,
            born_size: cython.Py_ssize_t,
            physical_offset: cython.longlong,
            count: cython.Py_ssize_t,
        ) -> cython.Py_ssize_t:
            n: cython.Py_ssize_t = 8
            i: cython.Py_ssize_t
            size: cython.Py_ssize_t
            own: cython.Py_ssize_t
            item: cython.pointer(cython.const[cython.uchar]) = self._body
            n += _copy(out + n, self._head)
            n += write_number(out + n, queue_id)
            n += _copy(out + n, self._middle)
            for i in range(count):
                if i > 0:
                    out[n] = 0x2C
                    n += 1
                n += _copy(out + n, self._host_hex)
                n += write_hex(out + n, physical_offset)
                if self._batch:
                    size = get_u32(item)
                    own = size - BATCH_ITEM_SIZE_MIN - get_u32(item + 16)
                    if own > 0 and item[size - 1] != 2:
                        own += 1
                    physical_offset += self._record_size(topic, born_size, get_u32(item + 16), own)
                    item += size
            n += _copy(out + n, b'","queueOffset":"')
            n += write_number(out + n, queue_offset)
            n += _copy(out + n, b'"},"flag":1,"language":"PYTHON","opaque":')
            n += write_number(out + n, self._header.opaque)
            n += _copy(out + n, self._tail)
            put_32(out, n - 4)
            put_32(out + 4, n - 8)
            return n


if cython.compiled:

    @cython.cfunc
    def _writable(view: object) -> cython.pointer(cython.uchar):
        """Where the bytes of a view are; valid while somebody keeps the view."""
        buffer: Py_buffer
        PyObject_GetBuffer(view, cython.address(buffer), PyBUF_SIMPLE)
        PyBuffer_Release(cython.address(buffer))
        return cython.cast(cython.pointer(cython.uchar), buffer.buf)

    @cython.cfunc
    @cython.inline
    def _copy(out: cython.pointer(cython.uchar), text: bytes) -> cython.Py_ssize_t:
        memcpy(out, cython.cast(cython.p_char, text), len(text))
        return len(text)
