"""GroupGuard: what stands between a request and its handler on a broker whose group elects its master.

On the master it lets requests through, with two exceptions: what only one broker may grant needs a lease (locks,
changes by administrators), and is answered when the in-sync set has it. While the master hands over, requests wait.
A broker that was master until a moment ago passes on to the new one what clients with an old route send to it, so
that a planned switch causes no error. Others refuse, and say who the master is. Event loop only.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from cometmq.broker.ha.replica_state import ReplicaRole
from cometmq.clock import boot_ms
from cometmq.errors import CometMQError
from cometmq.protocol.bodies.locks import LockBatchRequestBody, LockBatchResponseBody
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker
    from cometmq.broker.ha.group_replication import GroupReplication
    from cometmq.net.connection import Connection
    from cometmq.net.server import Handler

log = logging.getLogger(__name__)

Answer = RemotingCommand | None

# Answered when the in-sync set has what they changed.
GRANTS = frozenset(
    (
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
    )
)
SENDS = frozenset(
    (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
    )
)
OFFSETS = frozenset((RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET))
FORWARD_TIMEOUT_MS = 3_000
HANDOVER_LIMIT_MS = 3_000  # how long a request waits for the next master
POLL_S = 0.01


class GroupGuard:
    def __init__(self, broker: Broker, group: GroupReplication) -> None:
        self._broker = broker
        self._group = group
        self.forwarded = 0

    def guard(self, code: int, handler: Handler) -> Handler:
        if code in GRANTS:
            return lambda connection, command: self._grant(handler, connection, command)
        if code in SENDS:
            handler = self._refuse_where_not_master(handler)
        if code in SENDS or code in OFFSETS:
            return lambda connection, command: self._serve(handler, connection, command)
        return handler

    def _refuse_where_not_master(self, handler: Handler) -> Handler:
        """Before anything happens: a send must not even create its topic on a broker that cannot take it."""

        def checked(connection: Connection, command: RemotingCommand) -> Answer | Awaitable[Answer]:
            if self._group.member.may_append():
                return handler(connection, command)
            return self._refuse(command, "this broker cannot confirm messages at the moment")

        return checked

    # -- sends and offsets ----------------------------------------------------------------------------------------

    def _serve(
        self, handler: Handler, connection: Connection, command: RemotingCommand
    ) -> Answer | Awaitable[Answer]:
        core = self._group.member.core
        if core.role is ReplicaRole.MASTER and not core.resigning:
            return handler(connection, command)
        if core.resigning or self._group.roles.forwards:
            return self._elsewhere(handler, connection, command)
        if command.code == RequestCode.UPDATE_CONSUMER_OFFSET and not self._is_news(command):
            return command.response()
        return handler(connection, command)  # it refuses sends itself, naming the master

    def _is_news(self, command: RemotingCommand) -> bool:
        """A commit here is provisional, and only a larger offset than the known one counts."""
        return self._group.provisional.note(command, self._broker.offsets)

    async def _elsewhere(self, handler: Handler, connection: Connection, command: RemotingCommand) -> Answer:
        """Wait for the next master and pass the request on; if we stay master after all, serve it."""
        deadline = boot_ms() + HANDOVER_LIMIT_MS
        core = self._group.member.core
        while boot_ms() < deadline:
            if core.role is ReplicaRole.MASTER and not core.resigning:
                return await _done(handler(connection, command))
            if core.role is not ReplicaRole.MASTER:
                answer = await self._forward(command)
                if answer is not None:
                    return answer
            await asyncio.sleep(POLL_S)
        return await _done(handler(connection, command))

    async def _forward(self, command: RemotingCommand) -> Answer:
        """None: the master is not there yet, or does not know that it is."""
        address = self._group.member.master_address
        if not address or address == self._broker.address:
            return None
        passed_on = RemotingCommand(
            code=command.code, flag=command.flag, remark=command.remark, ext_fields=command.ext_fields,
            body=bytes(command.body), language=command.language, version=command.version,
            serialize_type=command.serialize_type,
        )  # fmt: skip
        try:
            connection = await self._broker.client.connection(address, FORWARD_TIMEOUT_MS)
            if command.is_oneway:
                await self._broker.client.invoke_oneway(address, passed_on)
                return command.response()
        except CometMQError as error:
            log.info("not forwarded code=%d master=%s: %s", command.code, address, error)
            return None
        try:
            answer = await connection.begin(passed_on, FORWARD_TIMEOUT_MS)
        except CometMQError as error:
            log.info("forwarded without answer code=%d master=%s: %s", command.code, address, error)
            if command.code in SENDS:
                # It may have been stored. Neither "surely not" nor a second attempt of ours would be right.
                return command.response(ResponseCode.SYSTEM_ERROR, f"the master did not answer: {error}")
            return None
        if answer.code == ResponseCode.SERVICE_NOT_AVAILABLE:
            return None
        self.forwarded += 1
        response = command.response(answer.code, answer.remark, body=bytes(answer.body))
        response.ext_fields = answer.ext_fields
        return response

    # -- what only one may grant ----------------------------------------------------------------------------------

    async def _grant(self, handler: Handler, connection: Connection, command: RemotingCommand) -> Answer:
        core = self._group.member.core
        if core.role is not ReplicaRole.MASTER or core.resigning:
            if self._group.roles.forwards or core.resigning:
                return await self._elsewhere(handler, connection, command)
            return self._refuse(command, "this broker is not the master of its group")
        if not core.has_lease(boot_ms()):
            return self._refuse(command, "the master has no lease of the controllers at the moment")
        if command.code == RequestCode.LOCK_BATCH_MQ and not core.may_grant(boot_ms()):
            return await self._lock_in_quarantine(handler, connection, command)
        return await self._replicate(command, await _done(handler(connection, command)))

    async def _lock_in_quarantine(
        self, handler: Handler, connection: Connection, command: RemotingCommand
    ) -> Answer:
        """The master before us may still believe in its lease: only locks that it granted are renewed."""
        body = LockBatchRequestBody.decode(command.body)
        owner = self._broker.locks.owner
        mine = [queue for queue in body.mq_set if owner(body.consumer_group, queue) == body.client_id]
        locked = self._broker.locks.lock(body.consumer_group, body.client_id, mine)
        return await self._replicate(
            command, command.response(body=LockBatchResponseBody(lock_ok_mq_set=locked).encode())
        )

    async def _replicate(self, command: RemotingCommand, answer: Answer) -> Answer:
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return answer
        meta = self._group.meta
        meta.publish(meta.items.locks() + meta.items.changed_access())
        if await meta.replicated(self._broker.config.slave_timeout):
            return answer
        return self._refuse(command, "the replicas in sync have not confirmed the change in time")

    def _refuse(self, command: RemotingCommand, why: str) -> RemotingCommand:
        response = command.response(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {why}")
        response.ext_fields = self._group.hint()
        return response


async def _done(answer: Answer | Awaitable[Answer]) -> Answer:
    return await answer if inspect.isawaitable(answer) else answer
