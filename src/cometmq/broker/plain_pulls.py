"""The short way for pulls of what is in memory: what the checks said is remembered, the answer is made in C.

A ``PullPlan`` is made by the checks of ``pull_checks`` and holds until anything they look at changes: topics, groups,
subscriptions and queues each count their changes, and a plan knows the sum. What a plan does not cover, or
``pull_answer_cy`` is not certain of, goes the way of ``handlers/pull.py``. Loop thread only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.broker.pull_answer_cy import PullAnswers, PullPlan
from cometmq.broker.pull_checks import Refused, check
from cometmq.broker.pull_filter import TagFilter
from cometmq.protocol.headers import PullMessageHeader
from cometmq.protocol.names import RETRY_PREFIX
from cometmq.protocol.sys_flag import PULL_SUBSCRIPTION
from cometmq.store.queue_scan_cy import ENTRY_SIZE
from cometmq.store.reader import FILTER_ENTRIES_MAX

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker

PLANS_MAX = 100_000  # pulls of so many groups and queues are remembered

Key = tuple[str, str, int, int, int, str | None, str | None]


class PlainPulls:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._store = broker.store
        self._reader = broker.store.reader
        self._limits = broker.store.reader.config
        self._log = broker.store.commit_log
        self.answers = PullAnswers()  # its count and size tell of the last answer
        self._plans: dict[Key, PullPlan] = {}

    def plan(self, header: PullMessageHeader) -> PullPlan | None:
        """What is known about pulls like this one; None when they must be looked at one by one."""
        key = (
            header.consumer_group, header.topic, header.queue_id, header.sys_flag & PULL_SUBSCRIPTION,
            header.sub_version, header.subscription, header.expression_type,
        )  # fmt: skip
        plan = self._plans.get(key)
        if plan is None or not self.is_good(plan):
            plan = self._make_plan(header, self._stamp())
            if plan is None:
                self._plans.pop(key, None)
                return None
            if len(self._plans) >= PLANS_MAX:
                self._plans.clear()
            self._plans[key] = plan
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

    def _make_plan(self, header: PullMessageHeader, stamp: int) -> PullPlan | None:
        try:
            group, message_filter = check(self._broker, header, "")
        except Refused:
            return None
        if not self._store.readable:
            return None
        queue = self._store.table.find(header.topic, header.queue_id)
        if queue is None or queue.ext is not None or header.topic.startswith(RETRY_PREFIX):
            return None
        if message_filter is None:
            return PullPlan(queue, group, None, stamp)
        if isinstance(message_filter, TagFilter):
            return PullPlan(queue, group, message_filter.tags_codes, stamp)
        return None

    def waits(self, plan: PullPlan, queue_offset: int) -> bool:
        """The pull is at the end of its queue."""
        return bool(queue_offset * ENTRY_SIZE == plan.queue.end)

    def answer(
        self, plan: PullPlan, header: PullMessageHeader, queue_offset: int, opaque: int
    ) -> bytes | None:
        """The frame with the messages, None if it has to be made the long way; ``answers`` tells of it."""
        limits, count_max = self._limits, header.max_msg_nums
        if count_max > limits.max_transfer_count_on_message_in_memory:
            count_max = limits.max_transfer_count_on_message_in_memory
        if count_max < 1:
            count_max = 1
        looked_at = count_max if plan.tags_codes is None else max(count_max, FILTER_ENTRIES_MAX)
        found = self._reader.at_hand(plan.queue, queue_offset, looked_at)
        if found is None:
            return None
        return self.answers.make(
            plan,
            queue_offset,
            opaque,
            plan.group.broker_id if self._broker.config.slave_read_enable else 0,
            count_max,
            limits.max_transfer_bytes_on_message_in_memory,
            found.entries,
            found.entries_start,
            found.file.buffer(),
            found.file.start,
            self._log.end_offset,
        )
