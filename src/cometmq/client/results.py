"""Outcomes: what a send says, and what a handler may say by raising.

Plain values, immutable.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from cometmq.client.queue import Queue
from cometmq.errors import CometMQError
from cometmq.protocol.codes import ResponseCode


class SendStatus(Enum):
    """All four mean that the master has stored the message; the last three, that a further wish was not met."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


SEND_STATUSES: dict[int, SendStatus] = {status.value: status for status in SendStatus}
assert {int(ResponseCode.FLUSH_DISK_TIMEOUT), int(ResponseCode.FLUSH_SLAVE_TIMEOUT)} < set(SEND_STATUSES)


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message went."""

    msg_id: str
    queue: Queue
    offset: int
    status: SendStatus = SendStatus.SEND_OK
    offset_msg_id: str = ""
    region: str | None = None
    traced: bool = True

    @property
    def ok(self) -> bool:
        """Stored, and everything that was asked for is done."""
        return self.status is SendStatus.SEND_OK


class TransactionState(Enum):
    """What became of a local transaction; the value is the wire's."""

    COMMIT = 8
    ROLLBACK = 12
    UNKNOWN = 0


class Disposition(CometMQError):
    """Base of what a handler raises to say what shall happen to its message."""


class Retry(Disposition):
    """Deliver again later.

    ``delay_level`` 1..18 chooses the delay (1s 5s 10s 30s 1m ... 2h); 0 leaves it to the broker, which
    waits longer each time. In an ordered consumer ``seconds`` is how long the queue pauses.
    """

    def __init__(self, reason: str = "", *, delay_level: int = 0, seconds: float | None = None) -> None:
        super().__init__(reason or "retry later")
        self.delay_level = delay_level
        self.seconds = seconds


class Reject(Disposition):
    """Give up: the message goes to the dead-letter topic ``%DLQ%<group>``."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "rejected")
