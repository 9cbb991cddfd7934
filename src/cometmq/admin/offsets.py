"""Offsets: positions of queues, and moving groups to another place."""

from __future__ import annotations

import datetime as dt

from cometmq.admin.base import AdminBase
from cometmq.client.consumer.options import StartFrom
from cometmq.client.queue import Queue
from cometmq.errors import ClientError
from cometmq.protocol.bodies.offsets import ResetOffsetBody
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.headers import CloneGroupOffsetHeader, ResetOffsetHeader

LATEST_MS = -1
RESET_TIMEOUT_MS = 10_000

Moment = dt.datetime | float


class OffsetAdmin(AdminBase):
    """Operations on offsets."""

    async def _address(self, queue: Queue) -> tuple[str, Queue]:
        wire = Queue(self._instance.wire(queue.topic), queue.broker_name, queue.queue_id)
        masters = await self._masters_of_topic(wire.topic)
        if queue.broker_name not in masters:
            raise ClientError(f"broker {queue.broker_name!r} has no master with topic {queue.topic!r}")
        return masters[queue.broker_name], wire

    async def queues(self, topic: str) -> list[Queue]:
        """The readable queues of a topic."""
        wire = self._instance.wire(topic)
        await self._masters_of_topic(wire)
        route = self._instance.routes.known(wire)
        assert route is not None
        return sorted(Queue(topic, queue.broker_name, queue.queue_id) for queue in route.read_queues)

    async def max_offset(self, queue: Queue) -> int:
        """The offset that the next message of a queue will have."""
        address, wire = await self._address(queue)
        return await self._instance.brokers.max_offset(address, wire)

    async def min_offset(self, queue: Queue) -> int:
        """The offset of the first message that a queue still has."""
        address, wire = await self._address(queue)
        return await self._instance.brokers.min_offset(address, wire)

    async def offset_at(self, queue: Queue, moment: Moment) -> int:
        """Offset of the first message stored at or after a moment."""
        address, wire = await self._address(queue)
        return await self._instance.brokers.search_offset(address, wire, StartFrom.time(moment).timestamp_ms)

    async def committed(self, group: str, queue: Queue) -> int | None:
        """The stored offset of a group, None without one."""
        address, wire = await self._address(queue)
        offset = await self._instance.brokers.query_offset(address, self._instance.wire(group), wire)
        return None if offset < 0 else offset

    async def set_offset(self, group: str, queue: Queue, offset: int) -> None:
        """Store an offset. A running member overwrites it: use ``reset_offsets`` for groups that are online."""
        address, wire = await self._address(queue)
        await self._instance.brokers.update_offset(
            address, self._instance.wire(group), wire, offset, confirmed=True
        )

    async def reset_offsets(
        self, group: str, topic: str, to: Moment | str, *, force: bool = True
    ) -> dict[Queue, int]:
        """Move a group in a topic to a moment, ``"begin"`` or ``"end"``; online members are told to follow.

        Without ``force`` nothing moves forward. Returns the offsets that are set.
        """
        timestamp_ms = _timestamp_ms(to)
        wire_topic, wire_group = self._instance.wire(topic), self._instance.wire(group)
        header = ResetOffsetHeader(topic=wire_topic, group=wire_group, timestamp=timestamp_ms, is_force=force)
        moved: dict[Queue, int] = {}
        offline: dict[str, str] = {}
        for name, address in (await self._masters_of_topic(wire_topic)).items():
            response = await self._call(
                address,
                RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
                header,
                accept=(ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR),
                timeout_ms=RESET_TIMEOUT_MS,
            )
            if response.code == 0:
                moved.update(ResetOffsetBody.decode(response.body).offset_table)
            else:
                offline[name] = address
        for name in offline:
            moved.update(await self._reset_offline(group, topic, name, timestamp_ms, force))
        return {Queue(topic, queue.broker_name, queue.queue_id): moved[queue] for queue in sorted(moved)}

    async def _reset_offline(
        self, group: str, topic: str, broker_name: str, timestamp_ms: int, force: bool
    ) -> dict[Queue, int]:
        """Nobody is online (or the group never committed): store the offsets ourselves."""
        moved = {}
        for queue in await self.queues(topic):
            if queue.broker_name != broker_name:
                continue
            address, wire = await self._address(queue)
            brokers = self._instance.brokers
            if timestamp_ms == LATEST_MS:
                offset = await brokers.max_offset(address, wire)
            else:
                offset = await brokers.search_offset(address, wire, timestamp_ms)
            current = await self.committed(group, queue)
            if not force and current is not None and offset >= current:
                offset = current
            await brokers.update_offset(address, self._instance.wire(group), wire, offset, confirmed=True)
            moved[queue] = offset
        return moved

    async def clone_offsets(self, source: str, target: str, topic: str, *, offline: bool = False) -> None:
        """Give a group the offsets of another one."""
        header = CloneGroupOffsetHeader(
            src_group=self._instance.wire(source),
            dest_group=self._instance.wire(target),
            topic=self._instance.wire(topic),
            offline=offline,
        )
        for address in (await self._masters_of_topic(header.topic or "")).values():
            await self._call(address, RequestCode.CLONE_GROUP_OFFSET, header)


def _timestamp_ms(to: Moment | str) -> int:
    if to == "end":
        return LATEST_MS
    if to == "begin":
        return 0
    if isinstance(to, str):
        raise ClientError(f"offsets are reset to a moment, 'begin' or 'end', not {to!r}")
    return StartFrom.time(to).timestamp_ms
