"""What a broker does when it becomes master of its group, or is master no more. Event loop only.

A master answers as brokerId 0, runs what writes to the log by itself (delayed messages, transactions) from the moment
it serves, and tells NameServers and consumers. A broker that was master forwards for a while what clients with an old
route still send to it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cometmq.clock import boot_ms

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker

log = logging.getLogger(__name__)

FAILED_EXIT_CODE = 3


class BrokerRoles:
    """Implements ``member.Roles``."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.epoch = 0  # of our mastership
        self.forward_until = 0

    def became_master(self, epoch: int) -> None:
        broker = self._broker
        self.epoch = epoch
        self.forward_until = 0
        broker.config.following = False
        broker.config.broker_id = 0
        broker.locks.renew_all()
        assert broker.group is not None
        broker.group.meta.items.begin()
        self._tell()

    def serving(self) -> None:
        log.info("event=SERVING epoch=%d", self.epoch)
        self._broker.begin_masters_work()

    def became_follower(self) -> None:
        broker = self._broker
        self.epoch = 0
        self.forward_until = boot_ms() + broker.config.ha_forward_ms
        broker.end_masters_work()
        broker.config.following = True
        broker.config.broker_id = broker.replica_id
        self._tell()

    def fenced(self, gone: bool) -> None:
        log.warning("event=%s epoch=%d", "FENCED" if gone else "NOT_FENCED_ANY_MORE", self.epoch)
        self._broker.config.broker_id = self._broker.replica_id if gone else 0
        self._broker.registration.role_changed()

    def failed(self, error: BaseException | None) -> None:
        broker = self._broker
        broker.end_masters_work()
        broker.config.following = True
        broker.config.broker_id = broker.replica_id
        self.forward_until = 0
        broker.fail(FAILED_EXIT_CODE)

    @property
    def forwards(self) -> bool:
        return boot_ms() < self.forward_until

    def _tell(self) -> None:
        broker = self._broker
        broker.registration.role_changed()
        for group in list(broker.consumers):
            broker.consumers.on_change(group)
