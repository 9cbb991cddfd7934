"""When sends are refused as busy."""

from __future__ import annotations

import asyncio

from cometmq.broker.config import BrokerConfig
from cometmq.broker.flow_control import FlowControl


class Stopwatch:
    def __init__(self) -> None:
        self.ms = 1

    def __call__(self) -> int:
        return self.ms * 1_000_000


async def two_turns() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


STALL_NS = 200_000_000  # waitTimeMillsInSendQueue


def test_sends_behind_one_stall_after_the_other_are_refused() -> None:
    async def main() -> None:
        clock = Stopwatch()
        flow = FlowControl(BrokerConfig(), monotonic_ns=clock)
        clock.ms += 200
        flow.took(STALL_NS)
        assert flow.refusal() is None  # one stalled turn is forgiven
        await two_turns()
        assert flow.refusal() is None  # the turn after: whoever is served first has not waited
        clock.ms += 200
        flow.took(STALL_NS)
        remark = (
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
            "period in queue: {}ms, size of queue: 0"
        )
        assert flow.refusal() == remark.format(200)
        clock.ms += 1
        assert flow.refusal() == remark.format(201)  # everybody else in this turn
        await two_turns()
        clock.ms += 1_200
        flow.took(STALL_NS)
        assert flow.refusal() is None  # the stall before is long ago

    asyncio.run(main())


def test_many_slow_sends_are_no_stall() -> None:
    async def main() -> None:
        clock = Stopwatch()
        flow = FlowControl(BrokerConfig(), monotonic_ns=clock)
        for _ in range(3):
            for _ in range(10):
                assert flow.refusal() is None
                clock.ms += 199
                flow.took(STALL_NS - 1_000_000)
            await two_turns()

    asyncio.run(main())


def test_stall_is_ignored_when_fast_failure_is_off() -> None:
    async def main() -> None:
        clock = Stopwatch()
        flow = FlowControl(BrokerConfig(broker_fast_failure_enable=False), monotonic_ns=clock)
        for _ in range(3):
            clock.ms += 300
            flow.took(STALL_NS)
            assert flow.refusal() is None
            await two_turns()

    asyncio.run(main())


def test_too_many_answers_waiting_for_the_disk_is_overload() -> None:
    async def main() -> None:
        flow = FlowControl(BrokerConfig(send_thread_pool_queue_capacity=2))
        flow.waiting = 2
        assert flow.refusal() == "[OVERLOAD]system busy, start flow control for a while"

    asyncio.run(main())
