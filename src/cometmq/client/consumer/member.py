"""What the rebalance and the pull loops need of a consumer: the common base of ``Consumer`` and ``Stream``.

Holds state, joins the group, does nothing more by itself. Loop thread only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

from cometmq.client.background import Background
from cometmq.client.consumer.allocation import Allocation
from cometmq.client.consumer.locks import QueueLocks
from cometmq.client.consumer.offset_store import OffsetStore
from cometmq.client.consumer.options import StartFrom
from cometmq.client.consumer.process_queue import ProcessQueue
from cometmq.client.consumer.rates import Rates
from cometmq.client.consumer.subscriptions import SubscriptionTable
from cometmq.client.instance import Instance
from cometmq.client.lifetime import Lifetime
from cometmq.client.message import ReceivedMessage
from cometmq.client.queue import Queue
from cometmq.errors import ClientClosed
from cometmq.protocol import sys_flag as flags
from cometmq.protocol.bodies.heartbeat import ConsumerData

if TYPE_CHECKING:
    from cometmq.client.message import Settler


class Arrivals(Protocol):
    """Where pulled messages go."""

    def arrived(self, process_queue: ProcessQueue, messages: list[ReceivedMessage]) -> None: ...


class Fullness(Protocol):
    """When a queue is not pulled any further."""

    def full(self, process_queue: ProcessQueue) -> bool: ...
    def share(self, queue_count: int) -> None: ...


class Member(Lifetime, ABC):
    """A member of a consumer group, with the queues it holds."""

    kind = "consumer"  # what messages for people call it
    instance: Instance
    group: str  # wire name
    plain_group: str
    retry_topic: str | None = None
    subscriptions: SubscriptionTable
    offsets: OffsetStore
    delivery: Arrivals
    limits: Fullness
    allocation: Allocation
    start_from: StartFrom
    broadcast = False
    locks: QueueLocks | None = None
    settler: Settler | None = None
    pull_batch = 32
    pull_pause_s = 0.0
    pull_flags = flags.PULL_SUSPEND
    sends_subscription = False
    commits_with_pulls = True

    def __init__(self, instance: Instance, group: str) -> None:
        self.instance = instance
        self.plain_group = group
        self.group = instance.wire(group)
        self.queues: dict[Queue, ProcessQueue] = {}
        self.rates = Rates(instance.now_ms)
        self.background = Background()
        self.paused = False
        self.started_ms = 0
        self._plain_topics: dict[str, str] = {}
        self._started = False
        self._closed = False

    async def start(self) -> None:
        """Join the group: returns when the first assignment was made."""
        if self._closed:
            raise ClientClosed(f"{self.kind} of group {self.plain_group!r} is closed; make a new one")
        if self._started:
            return
        self._started = True
        await self.instance.start()
        self.instance.check_usable()
        self.instance.add_consumer(self)
        try:
            await self._join()
        except BaseException:
            self._started = False
            self.abandon()
            raise
        self._begin_background()

    @abstractmethod
    async def _join(self) -> None:
        """Everything up to the first assignment; if it fails, the member is as if never started."""

    @abstractmethod
    def _begin_background(self) -> None:
        """What goes on from then on."""

    @abstractmethod
    async def offset_moved(self, process_queue: ProcessQueue, offset: int) -> None:
        """The broker does not have the offset asked for; it names another."""

    @abstractmethod
    def heartbeat_data(self) -> ConsumerData:
        """What brokers are told about this member."""

    @abstractmethod
    def wake(self) -> None:
        """Look at the assignment again, soon."""

    def is_paused(self, queue: Queue) -> bool:
        """Is a queue (wire name) not pulled at the moment?"""
        return self.paused

    def abandon(self) -> None:
        """Forget queues and membership without telling anybody: a start that failed, brokers that do not answer."""
        for held in self.queues.values():
            held.dropped = True
            if held.pull_task is not None:
                held.pull_task.cancel()
        self.queues.clear()
        if self.instance.consumers.get(self.group) is self:
            del self.instance.consumers[self.group]

    def topics(self) -> list[str]:
        """The topics that are read, as brokers know them."""
        return self.subscriptions.topics()

    def plain_topic(self, topic: str) -> str:
        """The name without namespace."""
        plain = self._plain_topics.get(topic)
        if plain is None:
            plain = self._plain_topics[topic] = self.instance.plain(topic)
        return plain

    def plain_queue(self, queue: Queue) -> Queue:
        """A queue with the name of its topic as the application knows it."""
        return Queue(self.plain_topic(queue.topic), queue.broker_name, queue.queue_id)

    def wire_queue(self, queue: Queue) -> Queue:
        """A queue with the name of its topic as brokers know it: with the namespace."""
        return Queue(self.instance.wire(queue.topic), queue.broker_name, queue.queue_id)
