"""The short way for pulls of what is in memory: what the checks said is remembered, the answer is made in C.

A ``PullPlan`` is made by the checks of ``pull_checks`` and holds until anything they look at changes: topics, groups,
subscriptions and queues each count their changes, and a plan knows the sum. It serves all pulls of one *shape*: they
differ in their offsets only (``pull_shape_cy``). What a plan does not cover, or ``pull_answer_cy`` is not certain of,
goes the way of ``handlers/pull.py``. Loop thread only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.broker.pull_answer_cy import PullAnswers, PullPlan
from cometmq.broker.pull_checks import Refused, check
from cometmq.broker.pull_filter import TagFilter
from cometmq.protocol.headers import PullMessageHeader
from cometmq.protocol.names import RETRY_PREFIX
from cometmq.protocol.pull_frames import decode_pull
from cometmq.protocol.pull_shape_cy import PullShape
from cometmq.store.queue_scan_cy import ENTRY_SIZE
from cometmq.store.reader import FILTER_ENTRIES_MAX
from cometmq.store.window import Window

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker

PLANS_MAX = 50_000  # shapes of so many pulls are remembered, with up to a kilobyte each
CHANGING_NAMES = (b'"queueOffset"', b'"commitOffset"', b'"opaque"')


class PlainPulls:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._store = broker.store
        self._reader = broker.store.reader
        self._limits = broker.store.reader.config
        self._log = broker.store.commit_log
        self.answers = PullAnswers()  # its count and size tell of the last answer
        self.numbers = PullShape()  # of the last pull that plan() was asked for
        self._plans: dict[bytes, PullPlan] = {}
        self._plans_stamp = 0

    def plan(self, view: memoryview, start: int, end: int) -> PullPlan | None:
        """What is known about pulls like the one at ``start``; None when it must be looked at by itself."""
        numbers = self.numbers
        if not numbers.read(view, start, end):
            return None
        plan = self._plans.get(numbers.shape)
        return plan if plan is not None and self.is_good(plan) else self._learn(view, start, end)

    def _learn(self, view: memoryview, start: int, end: int) -> PullPlan | None:
        """Look at the first pull of its shape, or at one after something changed."""
        numbers, plans = self.numbers, self._plans
        if self._stamp() != self._plans_stamp or len(plans) >= PLANS_MAX:
            plans.clear()  # something changed: none of them is good any more
            self._plans_stamp = self._stamp()
        plans.pop(numbers.shape, None)
        request = decode_pull(view, start, end)
        if request is None or not _names_each_once(numbers.shape):
            return None
        plan = self.new_plan(request.header)
        if plan is not None:
            plans[numbers.shape] = plan
        return plan

    def is_good(self, plan: PullPlan) -> bool:
        """Does what the plan says still hold?"""
        broker = self._broker
        return bool(
            plan.stamp == self._stamp()
            and plan.group.consume_enable
            and broker.config.readable
            and self._store.readable
        )

    def _stamp(self) -> int:
        """Another number after every change of what the checks look at."""
        broker = self._broker
        return (
            broker.topics.epoch + broker.groups.epoch + broker.consumers.epoch + self._store.table.offsets_epoch
        )  # fmt: skip

    def new_plan(self, terms: PullMessageHeader) -> PullPlan | None:
        """For pulls with these terms, whatever their offsets."""
        stamp = self._stamp()
        try:
            group, message_filter = check(self._broker, terms, "")
        except Refused:
            return None
        if not self._store.readable:
            return None
        queue = self._store.table.find(terms.topic, terms.queue_id)
        if queue is None or queue.ext is not None or terms.topic.startswith(RETRY_PREFIX):
            return None
        if message_filter is None:
            return PullPlan(queue, group, None, stamp, terms)
        if isinstance(message_filter, TagFilter):
            return PullPlan(queue, group, message_filter.tags_codes, stamp, terms)
        return None

    def waits(self, plan: PullPlan, queue_offset: int) -> bool:
        """The pull is at the end of its queue."""
        return bool(queue_offset * ENTRY_SIZE == plan.queue.end)

    def answer(self, plan: PullPlan, queue_offset: int, opaque: int) -> bytes | None:
        """The frame with the messages, None if it has to be made the long way; ``answers`` tells of it."""
        limits, count_max, size_max = self._limits, plan.terms.max_msg_nums, plan.terms.max_msg_bytes
        if count_max > limits.max_transfer_count_on_message_in_memory:
            count_max = limits.max_transfer_count_on_message_in_memory
        if count_max < 1:
            count_max = 1
        looked_at = count_max if plan.tags_codes is None else max(count_max, FILTER_ENTRIES_MAX)
        if plan.window is None:
            plan.window = Window()
        found = self._reader.at_hand(plan.queue, queue_offset, looked_at, plan.window)
        slave_reads = self._broker.config.slave_read_enable
        if found is None or (slave_reads and found.first < self._reader.disk_below):
            return None  # who reads that far behind may be sent to a slave
        return self.answers.make(
            plan,
            queue_offset,
            opaque,
            plan.group.broker_id if slave_reads else 0,
            count_max,
            limits.max_transfer_bytes_on_message_in_memory
            if size_max is None
            else self._broker.config.pull_bytes(size_max),
            found.entries,
            found.entries_start,
            found.file.buffer(),
            found.file.start,
            self._log.end_offset,
        )


def _names_each_once(shape: bytes) -> bool:
    """No second member, somewhere else or written with escapes, may be what the decoder takes a number from."""
    return b"\\" not in shape and all(shape.count(name) == 1 for name in CHANGING_NAMES)
