"""One queue of messages that all wait equally long, so that the first is always the next to be due.

Theory of operation. A message that shall wait is stored in a queue of a system topic; the queue's constant delay
makes it a FIFO of due times, and one number (the offset of the first undelivered message) is all the state there is.
That number is saved now and then: after a crash some messages are delivered again, none is lost.

The queue sleeps until its first message is due (looking at the clock at least every ``POLL_MS``, because clocks
jump and tests turn them), or, when it is empty, until the store reports an append. It delivers at most
``DELIVERIES_PER_TURN`` messages a turn of the loop. Loop thread only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from cometmq.protocol import json_java
from cometmq.protocol.message import MessageExt
from cometmq.protocol.record_cy import decode_records
from cometmq.store.model import GetStatus

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker

log = logging.getLogger(__name__)

POLL_MS = 100
RETRY_MS = 100  # after a put that the store refused
DELIVERIES_PER_TURN = 200
READ_COUNT = 64
READ_SIZE = 1_048_576  # bytes

Deliver = Callable[[MessageExt], bool]  # False: not now, try again
Due = Callable[[MessageExt, "int | None"], int]  # (message, tags code of its queue entry) -> ms


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


class DelayQueue:
    def __init__(self, broker: Broker, topic: str, queue_id: int, *, due: Due, deliver: Deliver) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.next_offset = 0
        self.delivered = 0
        self._broker = broker
        self._due = due
        self._deliver = deliver
        self._due_ms: int | None = None  # of the first message, when it is known
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._watch = broker.store.watch(topic, queue_id, self._appended)
        self._stopped = False

    def start(self) -> None:
        low = self._broker.store.min_offset(self.topic, self.queue_id)
        high = self._broker.store.max_offset(self.topic, self.queue_id)
        self.next_offset = min(max(self.next_offset, low), high)
        self._soon(0)

    def stop(self) -> None:
        self._stopped = True
        self._watch.cancel()
        if self._timer is not None:
            self._timer.cancel()

    @property
    def pending(self) -> int:
        return self._broker.store.max_offset(self.topic, self.queue_id) - self.next_offset

    def _soon(self, delay_ms: int) -> None:
        if not self._stopped:
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._run)

    def _appended(self, topic: str, queue_id: int) -> None:
        if self._timer is None:
            self._soon(0)

    def _run(self) -> None:
        self._timer = None
        now = self._broker.now_ms()
        if self._due_ms is not None and self._due_ms > now:
            self._soon(min(self._due_ms - now, POLL_MS))
            return
        try:
            wait_ms = self._work()
        except Exception:
            log.exception(
                "delayed messages wait topic=%s queue=%d offset=%d",
                self.topic,
                self.queue_id,
                self.next_offset,
            )
            wait_ms = RETRY_MS
        if wait_ms is not None:
            self._soon(wait_ms)

    def _work(self) -> int | None:
        """Deliver what is due; how long to wait before the next look, None until something is appended."""
        budget = DELIVERIES_PER_TURN
        while budget > 0:
            messages = self._read()
            if messages is None:
                return None
            for message, tags_code in messages:
                due_ms = self._due(message, tags_code)
                now = self._broker.now_ms()
                if due_ms > now:
                    self._due_ms = due_ms
                    return min(due_ms - now, POLL_MS)
                if not self._deliver(message):
                    return RETRY_MS
                self._due_ms = None
                self.next_offset = message.queue_offset + 1
                self.delivered += 1
                budget -= 1
        return 0

    def _read(self) -> list[tuple[MessageExt, int | None]] | None:
        """The next messages; an empty list when the offset had to be moved, None at the end of the queue."""
        codes = _TagsCodes()
        result = self._broker.store.get(
            self.topic, self.queue_id, self.next_offset, READ_COUNT, max_bytes=READ_SIZE, filter=codes
        )
        if result.status is GetStatus.FOUND:
            messages = [message for part in result.slices for message in decode_records(part)]
            known: list[int | None] = (
                list(codes.codes) if len(codes.codes) == len(messages) else [None] * len(messages)
            )
            return list(zip(messages, known, strict=True))
        if result.next_offset > self.next_offset or result.status is GetStatus.OFFSET_OVERFLOW_BADLY:
            log.warning(
                "delayed messages are gone topic=%s queue=%d from=%d to=%d status=%s",
                self.topic, self.queue_id, self.next_offset, result.next_offset, result.status.name,
            )  # fmt: skip
            self.next_offset = result.next_offset
            return []
        return None


class DelayQueues:
    """A family of delay queues by level, and the offsets that it keeps in a file."""

    def __init__(self) -> None:
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
