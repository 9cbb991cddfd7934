"""Who waits for a slave, and how far the slaves are: the rule of SYNC_MASTER.

After an append the answer waits until any one slave has the record. There must be a slave that is less than
haSlaveFallbehindMax behind, else the answer says at once SLAVE_NOT_AVAILABLE; after slaveTimeout it says
FLUSH_SLAVE_TIMEOUT. In all cases the message is stored. Loop thread only.
"""

from __future__ import annotations

from cometmq.broker.config import BrokerConfig
from cometmq.broker.ha.confirm_waits import ConfirmWaits, Settled
from cometmq.store.model import PutResult, PutStatus

SYNC_MASTER = "SYNC_MASTER"


class Acknowledgements:
    """``acknowledged_offset`` never goes back: what a slave has reported it has written."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._waits = ConfirmWaits(lambda: config.slave_timeout)
        self.slave_count = 0  # slaves that have reported where they are
        self.acknowledged_offset = 0
        self.not_available = 0

    @property
    def waiting(self) -> int:
        return len(self._waits)

    @property
    def timeouts(self) -> int:
        return self._waits.timeouts

    @property
    def may_wait(self) -> bool:
        return self._config.broker_role == SYNC_MASTER

    def must_wait(self, result: PutResult) -> bool:
        return self.may_wait and result.end_offset > self.acknowledged_offset

    def wait(self, result: PutResult, callback: Settled) -> None:
        """callback(status) when a slave has everything below the end of this put, or never will in time."""
        if result.end_offset <= self.acknowledged_offset:
            callback(PutStatus.PUT_OK)
            return
        behind = result.end_offset - self.acknowledged_offset
        if not self.slave_count or behind >= self._config.ha_slave_fallbehind_max:
            self.not_available += 1
            callback(PutStatus.SLAVE_NOT_AVAILABLE)
            return
        self._waits.add(result.end_offset, callback)

    def acknowledge(self, physical_offset: int) -> None:
        """A slave has everything below this offset."""
        if physical_offset > self.acknowledged_offset:
            self.acknowledged_offset = physical_offset
            self._waits.confirmed(physical_offset, PutStatus.PUT_OK)

    def stop(self) -> None:
        """Nobody will acknowledge any more."""
        self._waits.give_up()
