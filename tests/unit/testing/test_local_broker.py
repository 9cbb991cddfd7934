"""The broker for tests: real, empty, quick, with a clock to turn and faults to inject."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from cometmq import BrokerError, Client, Message
from cometmq.testing import LocalBroker, eventually

pytest_plugins = ["pytester"]


async def test_a_sent_message_can_be_waited_for(cometmq_broker: LocalBroker, cometmq_client: Client) -> None:
    await cometmq_client.producer("t").send(Message("orders", b"{}", tag="a"))
    got = await cometmq_broker.wait_for("orders", count=1, timeout=2)
    assert [(one.body, one.tag) for one in got] == [(b"{}", "a")]


@pytest.mark.parametrize("round_", range(3))
async def test_each_test_finds_an_empty_broker(
    round_: int, cometmq_broker: LocalBroker, cometmq_client: Client
) -> None:
    assert cometmq_broker.messages("same-topic") == []
    await cometmq_client.producer("t").send(Message("same-topic", b"x"))
    assert len(await cometmq_broker.wait_for("same-topic")) == 1


def test_waiting_in_vain_says_what_is_there() -> None:
    with LocalBroker() as broker, pytest.raises(AssertionError, match="holds 0 of 1"):
        broker.wait("nothing", timeout=0.05)


async def test_delayed_messages_come_when_the_clock_is_turned(
    cometmq_broker: LocalBroker, cometmq_client: Client
) -> None:
    await cometmq_client.producer("t").send(Message("later", b"x", delay_level=18))  # two hours
    assert cometmq_broker.messages("later") == []
    began = time.monotonic()
    cometmq_broker.advance(2 * 3600 + 1)
    got = await cometmq_broker.wait_for("later", timeout=5)
    assert got[0].body == b"x"
    assert time.monotonic() - began < 5


async def test_an_injected_error_reaches_the_sender_once(
    cometmq_broker: LocalBroker, cometmq_client: Client
) -> None:
    producer = cometmq_client.producer("t")
    with cometmq_broker.fault("send", error=2, remark="too busy", times=1) as fault:
        with pytest.raises(BrokerError, match="too busy") as caught:
            await producer.send(Message("orders", b"1"))
        assert caught.value.code == 2
        await producer.send(Message("orders", b"2"))
    await producer.send(Message("orders", b"3"))
    assert fault.hits == 1
    assert [one.body for one in sorted(cometmq_broker.messages("orders"), key=lambda m: m.body)] == [
        b"2",
        b"3",
    ]


async def test_a_late_answer_is_still_an_answer(cometmq_broker: LocalBroker, cometmq_client: Client) -> None:
    producer = cometmq_client.producer("t")
    await producer.send(Message("orders", b"warm"))
    with cometmq_broker.fault("send", delay=0.2, times=1):
        began = time.monotonic()
        await producer.send(Message("orders", b"1"))
        assert time.monotonic() - began >= 0.2


async def test_the_broker_can_be_restarted_with_its_store(cometmq_broker: LocalBroker) -> None:
    async with cometmq_broker.client() as mq:
        await mq.producer("t").send(Message("orders", b"1"))
    await asyncio.to_thread(cometmq_broker.kill_broker)
    await asyncio.to_thread(cometmq_broker.start_broker)
    assert [one.body for one in cometmq_broker.messages("orders")] == [b"1"]


def test_eventually_returns_the_value_or_fails_with_the_last_one() -> None:
    assert asyncio.run(eventually(lambda: "yes")) == "yes"
    with pytest.raises(AssertionError, match="last value: 0"):
        asyncio.run(eventually(lambda: 0, timeout=0.03))


def test_a_test_that_hangs_ends_at_the_limit_of_its_mark(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import asyncio
        import pytest

        @pytest.mark.timeout(0.2)
        async def test_endless(cometmq_broker):
            await asyncio.sleep(600)
        """
    )
    result = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider", "-p", "no:timeout")
    result.assert_outcomes(failed=1, warnings=1)  # the mark is unknown without its plugin
    result.stdout.fnmatch_lines(["*TimeoutError*"])


def test_a_hundred_tests_with_a_broker_each_take_less_than_ten_seconds(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from cometmq import Message

        @pytest.mark.parametrize("n", range(100))
        async def test_one(n, cometmq_broker, cometmq_client):
            await cometmq_client.producer("t").send(Message("orders", b"x"))
            assert len(await cometmq_broker.wait_for("orders")) == 1
        """
    )
    began = sum(os.times()[2:4])
    result = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=100)
    assert sum(os.times()[2:4]) - began < 10  # CPU seconds: other work on the machine does not count
