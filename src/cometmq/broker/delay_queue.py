"""One queue of messages that all wait equally long, so that the first is always the next to be due.

Theory of operation. A message that shall wait is stored in a queue of a system topic; the queue's constant delay
makes it a FIFO of due times, and one number (the offset of the first undelivered message) is all the state there is.
That number is saved now and then: after a crash some messages are delivered again, none is lost.

The queue sleeps until its first message is due (looking at the clock at least every ``POLL_MS``, because clocks
jump and tests turn them), or, when it is empty, until the store reports an append. It delivers at most
``DELIVERIES_PER_TURN`` messages a turn of the loop, usually in one call of a compiled loop (``redelivery``); what that
finds unusual goes the way that is written down here. Loop thread only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from cometmq.broker.redelivery import Redelivery
from cometmq.broker.redelivery_cy import AT_END, NOT_DUE, Plan
from cometmq.errors import RemoteProtocolError
from cometmq.protocol import json_java
from cometmq.protocol.message import MessageExt
from cometmq.protocol.record_cy import decode_records
from cometmq.store.model import GetStatus

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker

log = logging.getLogger(__name__)

POLL_MS = 100
RETRY_MS = 100  # after a put that the store refused
ERROR_MS = 10_000  # after something unforeseen
DELIVERIES_PER_TURN = 500
READ_COUNT = 64


class Waiting(NamedTuple):
    """A message and the number in its queue entry: in the schedule topic that is its delivery time."""

    message: MessageExt
    tags_code: int


class DelayQueue:
    """Subclasses say when a message is due and what happens to it then."""

    def __init__(self, broker: Broker, topic: str, queue_id: int, redelivery: Redelivery) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.next_offset = 0
        self.delivered = 0
        self._broker = broker
        self._store = broker.store
        self._redelivery = redelivery
        self._due_ms: int | None = None  # of the first message, when it is known
        self._looked_ms = 0  # at the clock
        self._timer: asyncio.TimerHandle | None = None
        self._watch = broker.store.watch(topic, queue_id, self._appended)
        self._stopped = False

    def due_ms(self, waiting: Waiting) -> int:
        """When something is to be done with a message."""
        raise NotImplementedError

    def out_ms(self, waiting: Waiting) -> int:
        """When a message shall be delivered."""
        raise NotImplementedError

    def deliver(self, message: MessageExt) -> bool:
        """Do it; False: not now, try again."""
        raise NotImplementedError

    def plan(self) -> Plan:
        """The same for the compiled loop."""
        raise NotImplementedError

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        low = self._store.min_offset(self.topic, self.queue_id)
        high = self._store.max_offset(self.topic, self.queue_id)
        self.next_offset = min(max(self.next_offset, low), high)
        self._soon(0)

    def stop(self) -> None:
        self._stopped = True
        self._watch.cancel()
        if self._timer is not None:
            self._timer.cancel()

    @property
    def pending(self) -> int:
        return self._store.max_offset(self.topic, self.queue_id) - self.next_offset

    def rescue(self, physical_offset: int) -> bool:
        """The log is about to lose what lies below an offset: store what waits there anew. False: not possible."""
        for waiting in self._waiting():
            if waiting.message.physical_offset >= physical_offset:
                break
            if not self._broker.timers.keep_waiting(waiting.message, self.out_ms(waiting)):
                return False
            self._advance(waiting.message.queue_offset + 1, 1)
        return True

    # -- turns ----------------------------------------------------------------------------------------------------

    def _soon(self, delay_ms: int) -> None:
        if not self._stopped:
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._run)

    def _appended(self, topic: str, queue_id: int) -> None:
        if self._timer is None:
            self._soon(0)

    def _run(self) -> None:
        self._timer = None
        now = self._broker.now_ms()
        clock_went_back, self._looked_ms = now < self._looked_ms, now
        if self._due_ms is not None and now < self._due_ms and not clock_went_back:
            self._soon(min(self._due_ms - now, POLL_MS))
            return
        try:
            wait_ms = self._work()
        except Exception:
            log.exception(
                "delayed messages wait topic=%s queue=%d offset=%d",
                self.topic, self.queue_id, self.next_offset,
            )  # fmt: skip
            wait_ms = ERROR_MS
        if wait_ms is not None:
            self._soon(wait_ms)

    def _work(self) -> int | None:
        """Deliver what is due; how long to wait before the next look, None until something is appended."""
        budget = DELIVERIES_PER_TURN
        while budget > 0:
            done = self._redelivery.deliver(self.topic, self.queue_id, self.next_offset, budget, self.plan())
            self._advance(self.next_offset + done.count, done.count)
            budget -= done.count
            if done.stop == NOT_DUE:
                return self._wait_until(done.due_ms)
            if done.stop != AT_END:
                waiting = next(self._waiting(), None)
                if waiting is None:
                    return None
                wait_ms = self._deliver_one(waiting)
                if wait_ms is not None:
                    return wait_ms
                budget -= 1
        return 0

    def _deliver_one(self, waiting: Waiting) -> int | None:
        """The way of the unusual messages; None when it was delivered, else how long to wait."""
        due_ms = self.due_ms(waiting)
        if due_ms > self._broker.now_ms():
            return self._wait_until(due_ms)
        if not self.deliver(waiting.message):
            return RETRY_MS
        self._advance(waiting.message.queue_offset + 1, 1)
        return None

    def _wait_until(self, due_ms: int) -> int:
        self._due_ms = due_ms
        return min(max(due_ms - self._broker.now_ms(), 0), POLL_MS)

    def _advance(self, queue_offset: int, count: int) -> None:
        if count:
            self._due_ms = None
            self.next_offset = queue_offset
            self.delivered += count

    def _waiting(self) -> Iterator[Waiting]:
        """The messages from ``next_offset`` on, in order, as long as each is done with before the next is asked for."""
        while (batch := self._read()) is not None:
            yield from batch

    def _read(self, count: int = READ_COUNT) -> list[Waiting] | None:
        """The next messages; an empty list when the offset had to be moved, None at the end of the queue."""
        codes = _TagsCodes()
        result = self._store.get(
            self.topic, self.queue_id, self.next_offset, count, filter=codes, warmed=True
        )
        if result.status is GetStatus.FOUND:
            messages = list(_decoded(result.slices))
            if not messages and count > 1:
                return self._read(1)  # a damaged record among them
            if not messages:
                self._skip(self.next_offset + 1, "cannot be read")
            return [Waiting(*pair) for pair in zip(messages, codes.codes, strict=False)]
        if result.status is GetStatus.OFFSET_FOUND_NULL and result.next_offset == self.next_offset:
            self._skip(self.next_offset + 1, "its record is damaged")
            return []
        if result.next_offset > self.next_offset or result.status is GetStatus.OFFSET_OVERFLOW_BADLY:
            self._skip(result.next_offset, result.status.name)
            return []
        return None

    def _skip(self, queue_offset: int, reason: str) -> None:
        log.error(
            "delayed messages are gone topic=%s queue=%d from=%d to=%d: %s",
            self.topic, self.queue_id, self.next_offset, queue_offset, reason,
        )  # fmt: skip
        self.next_offset = queue_offset


class _TagsCodes:
    """A filter that lets everything pass and notes the tags codes: in the schedule topic they are due times."""

    needs_record = False

    def __init__(self) -> None:
        self.codes: list[int] = []

    def matches_tags_code(self, tags_code: int) -> bool:
        self.codes.append(tags_code)
        return True

    def matches_record(self, record: memoryview) -> bool:
        return True


def _decoded(parts: Iterable[memoryview]) -> Iterator[MessageExt]:
    """The messages up to the first damaged record."""
    for part in parts:
        try:
            yield from decode_records(part)
        except RemoteProtocolError:
            return


class DelayQueues:
    """A family of delay queues by level, and the offsets that it keeps in a file."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._redelivery = Redelivery(broker)
        self.queues: dict[int, DelayQueue] = {}
        self._loaded: dict[int, int] = {}

    def run(self, queues: dict[int, DelayQueue]) -> None:
        self.queues = queues
        for level, queue in queues.items():
            queue.next_offset = self._loaded.get(level, 0)
            queue.start()

    def stop(self) -> None:
        self._loaded = self.offsets()
        for queue in self.queues.values():
            queue.stop()
        self.queues = {}

    def rescue(self, physical_offset: int) -> bool:
        return all(queue.rescue(physical_offset) for queue in self.queues.values())

    @property
    def pending(self) -> int:
        return sum(queue.pending for queue in self.queues.values())

    def offsets(self) -> dict[int, int]:
        """Level -> offset of the first message that was not delivered."""
        known = {level: queue.next_offset for level, queue in self.queues.items() if queue.next_offset}
        return dict(sorted((self._loaded | known).items()))

    def encode(self) -> bytes:
        """The offset table as GET_ALL_DELAY_OFFSET answers it."""
        return json_java.dumps({"offsetTable": self.offsets()}).encode()

    def file_text(self) -> str:
        return json_java.dumps_pretty({"offsetTable": self.offsets()})

    def load_text(self, data: str | bytes) -> None:
        table = json_java.loads(data).get("offsetTable") or {}
        self._loaded = {int(level): int(offset) for level, offset in table.items()}
