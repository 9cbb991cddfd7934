"""Looking into the store: messages by key (12) and by id (33), and positions of a queue (29 to 32).

Positions are answered for any topic and queue, also unknown ones, and asking creates nothing.
Event loop only; the index is read from mapped files.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import (
    OffsetResponseHeader,
    QueryMessageHeader,
    QueryMessageResponseHeader,
    QueueHeader,
    SearchOffsetHeader,
    TimestampResponseHeader,
    ViewMessageHeader,
)

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker
    from cometmq.net.connection import Connection
    from cometmq.net.server import Handler

RECORD_MAGIC = 0xDAA320A7
RECORD_START = struct.Struct(">II20xQ")  # size, magic, ..., physical offset at byte 28
QUERY_COUNT_MAX = 1024  # messages per answer, whatever is asked for
QUERY_SIZE_MAX = 8 * 1024 * 1024  # bytes per answer


def handlers(broker: Broker) -> dict[int, Handler]:
    queries = Queries(broker)
    return {
        RequestCode.QUERY_MESSAGE: queries.query_message,
        RequestCode.VIEW_MESSAGE_BY_ID: queries.view_message_by_id,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: queries.search_offset_by_timestamp,
        RequestCode.GET_MAX_OFFSET: queries.get_max_offset,
        RequestCode.GET_MIN_OFFSET: queries.get_min_offset,
        RequestCode.GET_EARLIEST_MSG_STORETIME: queries.get_earliest_msg_storetime,
    }


class Queries:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    # -- messages --------------------------------------------------------------------------------------------

    def query_message(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """By key, through the hash index: other keys of the same hash are in the answer, clients compare."""
        header = QueryMessageHeader.decode(command.ext_fields)
        count_max = min(max(header.max_num, 1), QUERY_COUNT_MAX)
        if header.unique_key_query:
            count_max = self._broker.config.default_query_max_num
        found = self._broker.store.query(
            header.topic, header.key, count_max, header.begin_timestamp, header.end_timestamp
        )
        records = _within(found.records, QUERY_SIZE_MAX)
        if not records:
            return command.response(
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
                QueryMessageResponseHeader(index_last_update_timestamp=0, index_last_update_phyoffset=0),
            )
        position = QueryMessageResponseHeader(
            index_last_update_timestamp=found.index_last_update_timestamp,
            index_last_update_phyoffset=found.index_last_update_physical_offset,
        )
        _send(connection, command, command.response(header=position), records)
        return None

    def view_message_by_id(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """By physical offset; what is not the start of a record is not found."""
        offset = ViewMessageHeader.decode(command.ext_fields).offset
        record = self._broker.store.read_record(offset) if offset >= 0 else None
        if record is None or not is_record_at(record, offset):
            return command.response(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}"
            )
        _send(connection, command, command.response(), [record])
        return None

    # -- positions -------------------------------------------------------------------------------------------

    def search_offset_by_timestamp(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = SearchOffsetHeader.decode(command.ext_fields)
        offset = self._broker.store.offset_by_time(header.topic, header.queue_id, header.timestamp)
        return command.response(header=OffsetResponseHeader(offset=offset))

    def get_max_offset(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = QueueHeader.decode(command.ext_fields)
        offset = self._broker.store.max_offset(header.topic, header.queue_id)
        return command.response(header=OffsetResponseHeader(offset=offset))

    def get_min_offset(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = QueueHeader.decode(command.ext_fields)
        offset = self._broker.store.min_offset(header.topic, header.queue_id)
        return command.response(header=OffsetResponseHeader(offset=offset))

    def get_earliest_msg_storetime(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = QueueHeader.decode(command.ext_fields)
        timestamp = self._broker.store.earliest_time(header.topic, header.queue_id)
        return command.response(header=TimestampResponseHeader(timestamp=timestamp))


def is_record_at(record: memoryview, physical_offset: int) -> bool:
    """The bytes are one whole record, and it says that it lies there."""
    if len(record) < RECORD_START.size:
        return False
    size, magic, offset_in_record = RECORD_START.unpack_from(record)
    return bool(size == len(record) and magic == RECORD_MAGIC and offset_in_record == physical_offset)


def _within(records: list[memoryview], size_max: int) -> list[memoryview]:
    """As many records as fit, at least one."""
    size = 0
    for count, record in enumerate(records):
        size += len(record)
        if size > size_max and count:
            return records[:count]
    return records


def _send(
    connection: Connection, command: RemotingCommand, response: RemotingCommand, records: list[memoryview]
) -> None:
    """Write an answer whose body is records, without copying them."""
    if not command.is_oneway:
        connection.write([response.encode_head(sum(map(len, records))), *records])
