"""Which answers wait for the disk or for replicas, and for how long.

A put is in the log (and readable) at once. Its answer waits when flushDiskType is SYNC_FLUSH and the
message did not say WAIT=false: until the flush thread has passed the record's end, or syncFlushTimeout is
over. Replication adds its own wait through ``replication`` (absent on a broker without replicas); its
verdict wins over the flush's. Event loop only: the store delivers its callbacks through ``call_soon``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cometmq.store.model import PutResult, PutStatus

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker
    from cometmq.broker.ha.group_replication import GroupReplication
    from cometmq.broker.ha.replication import Replication

Settled = Callable[[PutStatus], None]


class Durability:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.replication: Replication | GroupReplication | None = None

    @property
    def at_once(self) -> bool:
        """No answer waits: neither for the disk nor for a replica."""
        config = self._broker.config
        return (
            config.broker_role == "ASYNC_MASTER"
            and config.flush_disk_type == "ASYNC_FLUSH"
            and not config.enable_controller_mode
        )

    def must_wait(self, result: PutResult, wait_store_ok: bool) -> bool:
        if not wait_store_ok or result.status is not PutStatus.PUT_OK:
            return False
        if self.replication is not None and self.replication.must_wait(result):
            return True
        return self._sync_flush and self._broker.store.flushed_offset < result.end_offset

    @property
    def _sync_flush(self) -> bool:
        return self._broker.config.flush_disk_type == "SYNC_FLUSH"

    def when_settled(self, result: PutResult, callback: Settled) -> None:
        """callback(status) once the put is as durable as configured, or its time is over."""
        _Wait(self._broker, self.replication, result, callback)


class _Wait:
    """One answer that waits for one or two verdicts."""

    __slots__ = ("_broker", "_callback", "_missing", "_status")

    def __init__(
        self,
        broker: Broker,
        replication: Replication | GroupReplication | None,
        result: PutResult,
        callback: Settled,
    ) -> None:
        self._broker = broker
        self._callback = callback
        self._status = PutStatus.PUT_OK
        self._missing = 1
        broker.flow_control.waiting += 1
        if replication is not None and replication.must_wait(result):
            self._missing += 1
            replication.wait(result, self._replicated)
        if broker.config.flush_disk_type == "SYNC_FLUSH":
            broker.store.flush_waiter(result.end_offset, self._flushed)
        else:
            self._one_less()

    def _flushed(self, ok: bool) -> None:
        if not ok and self._status is PutStatus.PUT_OK:
            self._status = PutStatus.FLUSH_DISK_TIMEOUT
        self._one_less()

    def _replicated(self, status: PutStatus) -> None:
        if status is not PutStatus.PUT_OK:
            self._status = status
        self._one_less()

    def _one_less(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            self._broker.flow_control.waiting -= 1
            group = self._broker.group
            if group is not None and self._status is PutStatus.PUT_OK and not group.member.may_answer():
                self._status = PutStatus.FLUSH_SLAVE_TIMEOUT  # another may be master: the outcome is unknown
            self._callback(self._status)
