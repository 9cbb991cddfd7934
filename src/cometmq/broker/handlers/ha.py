"""Requests about a replica of a group that elects its master: its state, a checksum of its log, a planned switch."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from cometmq.controller.wire import ControllerCode, ResignBody
from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.command import RemotingCommand

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker
    from cometmq.net.connection import Connection
    from cometmq.net.server import Handler

CHECKSUM_STEP = 4 << 20  # bytes


def handlers(broker: Broker) -> dict[int, Handler]:
    if broker.group is None:
        return {}
    return {
        ControllerCode.HA_STATUS: partial(ha_status, broker),
        ControllerCode.HA_CHECKSUM: partial(ha_checksum, broker),
        ControllerCode.RESIGN: partial(resign, broker),
    }


def ha_status(broker: Broker, connection: Connection, command: RemotingCommand) -> RemotingCommand:
    assert broker.group is not None
    return command.response(body=msgspec.json.encode(broker.group.status()))


def ha_checksum(broker: Broker, connection: Connection, command: RemotingCommand) -> RemotingCommand:
    """SHA-256 of [from, to) of the log; without ``to`` up to what is confirmed."""
    fields = command.ext_fields or {}
    store = broker.store
    begin = int(fields.get("from", max(store.min_physical_offset, 0)))
    end = int(fields.get("to", store.confirmed_offset))
    seen = hashlib.sha256()
    at = begin
    while at < end:
        part = store.read_log(at, min(end - at, CHECKSUM_STEP))
        if not part:
            return command.response(ResponseCode.SYSTEM_ERROR, f"the log does not have offset {at}")
        seen.update(part)
        at += len(part)
    return command.response(body=msgspec.json.encode({"from": begin, "to": end, "sha256": seen.hexdigest()}))


async def resign(broker: Broker, connection: Connection, command: RemotingCommand) -> RemotingCommand:
    """Hand the mastership over in order."""
    assert broker.group is not None
    body = msgspec.json.decode(command.body, type=ResignBody) if command.body else None
    preferred = body.preferred if body is not None else 0
    problem = await broker.group.hand_over(preferred)
    if problem:
        return command.response(ResponseCode.SYSTEM_ERROR, problem)
    return command.response(body=msgspec.json.encode(broker.group.status()))
