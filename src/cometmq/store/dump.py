"""Messages of a store as plain values: in the order of the log, or of the queues of one topic. Reads only."""

from __future__ import annotations

import base64
import difflib
import struct
from collections.abc import Callable, Iterator
from typing import Any

from cometmq.errors import ProtocolError, StoreError
from cometmq.protocol.message import MessageExt
from cometmq.protocol.record_cy import decode_record
from cometmq.store.inspect import entry_at, queue_range
from cometmq.store.log_walk import walk_log
from cometmq.store.queue_scan_cy import BLANK_SIZE_FIELD, ENTRY_SIZE
from cometmq.store.read_only import Segment, StoreFiles, Stream
from cometmq.store.scan_cy import scan_records

OnDamage = Callable[[str], None]  # gets a sentence

_SIZE = struct.Struct(">i")


def messages_in_log(files: StoreFiles, physical_offset: int, on_damage: OnDamage) -> Iterator[MessageExt]:
    """All messages from a physical offset on."""
    for piece in walk_log(files.log, physical_offset, check_crc=False):
        if piece.reason:
            # An offset in the middle of a record is no damage: the next record is meant.
            if piece.physical_offset != physical_offset:
                on_damage(f"{piece.segment.path} is damaged at {piece.physical_offset}: {piece.reason}")
            continue
        position = piece.start
        while position < piece.end:
            size = _SIZE.unpack_from(piece.view, position)[0]
            yield decode_record(piece.view[position : position + size])
            position += size


def messages_of_topic(
    files: StoreFiles, topic: str, queue_id: int | None, queue_offset: int, on_damage: OnDamage
) -> Iterator[MessageExt]:
    """Messages of a topic queue by queue, or of one queue, each from a queue offset on."""
    names = [name for name in files.queues if name.topic == topic and queue_id in (None, name.queue_id)]
    if not names:
        raise _no_queue(files, topic, queue_id)
    reader = _RecordReader(files.log)
    for name in names:
        stream = files.queues[name]
        min_offset, max_offset = queue_range(stream, files.log.start)
        stream.let_go()
        for offset in range(max(queue_offset, min_offset), max_offset):
            segment = stream.at(offset * ENTRY_SIZE)
            if segment is None:
                on_damage(f"{stream.directory} has no file with queue offset {offset}")
                return
            physical_offset, size, _ = entry_at(reader.view(segment), offset * ENTRY_SIZE - segment.start)
            if size == BLANK_SIZE_FIELD or physical_offset < files.log.start:
                continue
            message = reader.read(physical_offset, size)
            if message is None:
                on_damage(f"{stream.directory} queue offset {offset}: no good record at {physical_offset}")
            else:
                yield message


class _RecordReader:
    """Reads records here and there; keeps the last mapping of each stream."""

    def __init__(self, log: Stream) -> None:
        self._log = log
        self._views: dict[str, tuple[Segment, memoryview]] = {}

    def view(self, segment: Segment) -> memoryview:
        key = str(segment.path.parent)
        known = self._views.get(key)
        if known is None or known[0] != segment:
            known = self._views[key] = (segment, segment.view())
        return known[1]

    def read(self, physical_offset: int, size: int) -> MessageExt | None:
        segment = self._log.at(physical_offset)
        if segment is None:
            return None
        at = physical_offset - segment.start
        view = self.view(segment)
        if at + size > len(view) or scan_records(view, at, at + size, segment.start, True).count != 1:
            return None
        return decode_record(view[at : at + size])


def as_json(message: MessageExt, body_mode: str) -> dict[str, Any]:
    """Field names as RocketMQ's tools spell them. A body that is no text falls back to base64."""
    value: dict[str, Any] = {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "storeSize": message.store_size,
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "storeTimestamp": message.store_timestamp_ms,
        "bornTimestamp": message.born_timestamp_ms,
        "storeHost": str(message.store_host),
        "bornHost": str(message.born_host),
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "properties": message.properties,
    }
    return value | _body(message, body_mode)


def _body(message: MessageExt, mode: str) -> dict[str, Any]:
    if mode == "none":
        return {"bodySize": len(message.stored_body)}
    try:
        body = message.body
    except (ProtocolError, ImportError) as error:
        return {"bodySize": len(message.stored_body), "bodyError": str(error)}
    if mode == "text":
        try:
            return {"body": body.decode()}
        except UnicodeDecodeError:
            pass
    return {"bodyBase64": base64.b64encode(body).decode()}


def _no_queue(files: StoreFiles, topic: str, queue_id: int | None) -> StoreError:
    topics = sorted({name.topic for name in files.queues})
    if topic in topics:
        ids = ", ".join(str(name.queue_id) for name in files.queues if name.topic == topic)
        return StoreError(f"The topic {topic} has no queue {queue_id} in {files.root}: it has {ids}.")
    near = difflib.get_close_matches(topic, topics, 1)
    hint = f"did you mean {near[0]}?" if near else "cometmq store inspect lists the topics."
    return StoreError(f"The topic {topic} has no queue in {files.root}: {hint}")
