"""Who waits for a slave and how it ends."""

from __future__ import annotations

import asyncio
from typing import Any

from cometmq.broker.config import BrokerConfig
from cometmq.broker.ha.acknowledgements import Acknowledgements
from cometmq.store.model import PutResult, PutStatus


def put(end_offset: int) -> PutResult:
    return PutResult(PutStatus.PUT_OK, end_offset=end_offset)


def acknowledgements(role: str = "SYNC_MASTER", **settings: Any) -> Acknowledgements:
    found = Acknowledgements(BrokerConfig(broker_role=role, **settings))
    found.slave_count = 1
    return found


def test_an_asynchronous_master_never_waits() -> None:
    assert not acknowledgements("ASYNC_MASTER").must_wait(put(100))


def test_waits_end_in_the_order_of_the_log(run: Any) -> None:
    async def main() -> None:
        acks = acknowledgements()
        done: list[tuple[int, PutStatus]] = []
        for end in (100, 200, 300):
            acks.wait(put(end), lambda status, end=end: done.append((end, status)))
        acks.acknowledge(99)
        assert done == []
        acks.acknowledge(250)
        assert done == [(100, PutStatus.PUT_OK), (200, PutStatus.PUT_OK)]
        acks.acknowledge(120)  # another slave, further behind
        assert acks.acknowledged_offset == 250
        assert not acks.must_wait(put(250))
        assert acks.must_wait(put(251))
        acks.stop()
        assert done[2:] == [(300, PutStatus.FLUSH_SLAVE_TIMEOUT)]

    run(main())


def test_without_a_slave_nobody_waits(run: Any) -> None:
    async def main() -> None:
        acks = acknowledgements()
        acks.slave_count = 0
        done: list[PutStatus] = []
        acks.wait(put(10), done.append)
        assert done == [PutStatus.SLAVE_NOT_AVAILABLE]

    run(main())


def test_each_wait_has_its_own_time(run: Any) -> None:
    async def main() -> None:
        acks = acknowledgements(slave_timeout=30)
        loop = asyncio.get_running_loop()
        began, ended = {}, {}
        for end in (1, 2):
            began[end] = loop.time()

            def settled(status: PutStatus, end: int = end) -> None:
                assert status is PutStatus.FLUSH_SLAVE_TIMEOUT
                ended[end] = loop.time()

            acks.wait(put(end), settled)
            await asyncio.sleep(0.015)
        while len(ended) < 2:
            await asyncio.sleep(0.001)
        for end in (1, 2):
            assert ended[end] - began[end] >= 0.029
        assert acks.timeouts == 2

    run(main())


def test_a_callback_may_wait_again(run: Any) -> None:
    async def main() -> None:
        acks = acknowledgements()
        done: list[PutStatus] = []
        acks.wait(put(10), lambda status: acks.wait(put(20), done.append))
        acks.acknowledge(15)
        assert done == []
        acks.acknowledge(20)
        assert done == [PutStatus.PUT_OK]
        acks.stop()

    run(main())
