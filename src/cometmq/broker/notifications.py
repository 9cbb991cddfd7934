"""NOTIFY_CONSUMER_IDS_CHANGED: telling the members of a group that it changed, so that they share its queues anew.

Members are told at once, the one who caused it included, before its heartbeat is answered. In a group with
many members that all join within a moment, at once would mean members times members frames; there the
changes of a tenth of a second are told together. Event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cometmq.broker.clients import ConsumerGroup, Consumers
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import ConsumerGroupHeader

AT_ONCE_MEMBERS_MAX = 64
MERGE_MS = 100


class Notifications:
    """``consumers.on_change`` of a broker. ``enabled`` is notifyConsumerIdsChangedEnable."""

    def __init__(self, consumers: Consumers, *, enabled: Callable[[], bool] = lambda: True) -> None:
        self._consumers = consumers
        self._enabled = enabled
        self._pending: set[str] = set()
        self.sent = 0

    def group_changed(self, group: ConsumerGroup) -> None:
        if not self._enabled():
            return
        if len(group.members) <= AT_ONCE_MEMBERS_MAX:
            self._tell(group)
        elif group.name not in self._pending:
            self._pending.add(group.name)
            asyncio.get_running_loop().call_later(MERGE_MS / 1000, self._tell_pending, group.name)

    def _tell_pending(self, name: str) -> None:
        self._pending.discard(name)
        group = self._consumers.find(name)
        if group is not None:
            self._tell(group)

    def _tell(self, group: ConsumerGroup) -> None:
        header = ConsumerGroupHeader(consumer_group=group.name)
        request = RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, oneway=True)
        frame = request.encode()  # nobody answers, so one frame serves all
        for connection in list(group.members):
            connection.write([frame])
        self.sent += len(group.members)
