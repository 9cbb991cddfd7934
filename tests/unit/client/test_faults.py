"""Faults: servers gone, connections cut or silent, slow handlers, fork, cancel. No hang, nothing lost, clear errors."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import socket
import time
from collections.abc import Iterator

import pytest

from cometmq import (
    BrokerError,
    Client,
    ClientForked,
    CometMQError,
    ConnectionLost,
    Message,
    ReceivedMessage,
    SendFailed,
    StartFrom,
    Timeout,
)
from cometmq.protocol.codes import ResponseCode
from cometmq.testing import LocalBroker, Proxy, eventually


@pytest.fixture
def proxied() -> Iterator[LocalBroker]:
    with LocalBroker(proxied=True) as broker:
        yield broker


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_no_name_server_at_start_is_a_clear_error() -> None:
    async def main() -> None:
        address = f"127.0.0.1:{free_port()}"
        async with Client(address) as mq:
            with pytest.raises(ConnectionLost, match=address):
                await mq.producer("p").send(Message("t", b"x"))

    asyncio.run(main())


def test_no_address_at_all_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Client(discovery_domain=f"127.0.0.1:{free_port()}") as mq:
            with pytest.raises(CometMQError, match="NAMESRV_ADDR"):
                await mq.producer("p").send(Message("t", b"x"))

    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    asyncio.run(main())


async def test_addresses_come_over_http_when_none_is_given(
    cometmq_broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    text = cometmq_broker.name_servers.encode()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readuntil(b"\r\n\r\n")
        assert request.startswith(b"GET /rocketmq/nsaddr ")
        writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with Client(discovery_domain=f"127.0.0.1:{port}") as mq:
        assert (await mq.producer("p").send(Message("t", b"x"))).ok
    server.close()
    await server.wait_closed()


async def test_the_next_name_server_is_asked_when_one_is_dead(cometmq_broker: LocalBroker) -> None:
    dead = f"127.0.0.1:{free_port()}"
    for order in ([dead, cometmq_broker.name_servers], [cometmq_broker.name_servers, dead]):
        async with Client(order) as mq:
            for n in range(3):
                assert (await mq.producer("p").send(Message("t", b"%d" % n))).ok


async def test_a_consumer_waits_for_a_name_server_that_comes_later(cometmq_broker: LocalBroker) -> None:
    proxy = Proxy(cometmq_broker.name_servers)
    address = await proxy.start()
    proxy.refusing = True
    async with Client(address, request_timeout=0.5) as mq, cometmq_broker.client() as other:
        consumer = mq.consumer("g", "t", start=StartFrom.FIRST)
        await consumer.start()
        assert consumer.assignment() == []
        await other.producer("p").send(Message("t", b"x"))
        proxy.refusing = False
        message = await asyncio.wait_for(anext(consumer), 20)
        assert message.body == b"x"
        await message.ack()
    await proxy.stop()


async def test_no_acknowledged_message_is_lost_when_the_broker_is_killed_while_sending(
    cometmq_broker: LocalBroker,
) -> None:
    acknowledged: list[bytes] = []
    failures: list[BaseException] = []
    async with cometmq_broker.client() as mq:
        await mq.admin.create_topic("t", queues=2)
        producer = mq.producer("p", timeout=2.0)
        stop = asyncio.Event()

        async def work(n: int) -> None:
            k = 0
            while not stop.is_set():
                body = b"%d-%d" % (n, k)
                k += 1
                try:
                    await producer.send(Message("t", body))
                    acknowledged.append(body)
                except CometMQError as error:
                    failures.append(error)
                    await asyncio.sleep(0.02)

        tasks = [asyncio.ensure_future(work(n)) for n in range(8)]
        await eventually(lambda: len(acknowledged) > 50)
        await asyncio.to_thread(cometmq_broker.kill_broker)
        await eventually(lambda: failures)
        await asyncio.to_thread(cometmq_broker.start_broker)
        after = len(acknowledged)
        await eventually(lambda: len(acknowledged) > after + 50, 20)
        stop.set()
        await asyncio.gather(*tasks)
    stored = {one.body for one in await asyncio.to_thread(cometmq_broker.messages, "t")}
    assert not [body for body in acknowledged if body not in stored]
    assert all(isinstance(one, SendFailed | ConnectionLost | BrokerError | Timeout) for one in failures)


async def test_a_connection_cut_inside_a_frame_is_retried(proxied: LocalBroker) -> None:
    assert proxied.proxy is not None
    async with proxied.client() as mq:
        await mq.admin.create_topic("t", queues=1)
        producer = mq.producer("p")
        assert (await producer.send(Message("t", b"warm"))).ok
        for n in range(5):
            proxied.proxy.cut_after(700)  # the next frame has 1 KiB
            result = await producer.send(Message("t", b"%d" % n * 1024))
            assert result.ok
        assert len(await proxied.wait_for("t", 6)) == 6


async def test_a_connection_that_falls_silent_times_out_and_is_replaced(proxied: LocalBroker) -> None:
    assert proxied.proxy is not None
    async with proxied.client() as mq:
        await mq.admin.create_topic("t", queues=1)
        producer = mq.producer("p", timeout=0.5)
        assert (await producer.send(Message("t", b"warm"))).ok
        before = proxied.proxy.connections
        proxied.proxy.stall()
        began = time.monotonic()
        with pytest.raises(Timeout, match="outcome unknown") as caught:
            await producer.send(Message("t", b"lost"))
        assert isinstance(caught.value, TimeoutError)
        assert time.monotonic() - began < 3
        proxied.proxy.cut()
        proxied.proxy.resume()
        assert (await producer.send(Message("t", b"again"), timeout=5)).ok
        assert proxied.proxy.connections > before


async def test_a_consumer_survives_cuts_and_a_restart_of_the_broker(proxied: LocalBroker) -> None:
    assert proxied.proxy is not None
    got: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        got.append(message.body)

    async with proxied.client() as mq:
        await mq.admin.create_topic("t", queues=2)
        consumer = mq.consumer("g", "t", start=StartFrom.FIRST)
        task = asyncio.ensure_future(consumer.run(handle))
        producer = mq.producer("p")
        await producer.send(Message("t", b"1"))
        await eventually(lambda: b"1" in got, 10)
        proxied.proxy.cut()
        await producer.send(Message("t", b"2"), timeout=5)
        await eventually(lambda: b"2" in got, 15)
        await consumer.aclose()
        await task


async def test_one_slow_answer_does_not_cost_the_connection(cometmq_broker: LocalBroker) -> None:
    async with cometmq_broker.client() as mq:
        await mq.admin.create_topic("t", queues=1)
        producer = mq.producer("p")
        await producer.send(Message("t", b"warm"))
        with cometmq_broker.fault("send", delay=1.0, times=1):
            slow = asyncio.ensure_future(producer.send(Message("t", b"slow"), timeout=0.2))
            await asyncio.sleep(0.05)
            for n in range(20):
                assert (await producer.send(Message("t", b"%d" % n))).ok
            with pytest.raises(Timeout):
                await slow


async def test_a_busy_broker_is_not_asked_again(cometmq_broker: LocalBroker) -> None:
    async with cometmq_broker.client() as mq:
        with cometmq_broker.fault("send", error=2) as fault, pytest.raises(BrokerError) as caught:
            await mq.producer("p").send(Message("t", b"x"))
        assert caught.value.code == 2
        assert fault.hits == 1


async def test_a_failing_broker_is_tried_three_times(cometmq_broker: LocalBroker) -> None:
    async with cometmq_broker.client() as mq:
        with (
            cometmq_broker.fault("send", error=14, remark="no") as fault,
            pytest.raises(SendFailed, match="3 times") as caught,
        ):
            await mq.producer("p").send(Message("t", b"x"))
        assert fault.hits == 3
        assert caught.value.code == 14
        assert isinstance(caught.value.__cause__, BrokerError)


async def test_a_second_attempt_carries_the_same_id(cometmq_broker: LocalBroker) -> None:
    async with cometmq_broker.client() as mq:
        await mq.admin.create_topic("t", queues=1)
        producer = mq.producer("p")
        await producer.send(Message("t", b"warm"))
        with cometmq_broker.fault("send", close=True, times=1):
            result = await producer.send(Message("t", b"x"))
        stored = cometmq_broker.messages("t")
        assert stored[-1].msg_id == result.msg_id


async def test_heartbeats_go_on_while_a_plain_handler_blocks(cometmq_broker: LocalBroker) -> None:
    """A handler that sleeps without end must not stop the network: it is in a thread."""
    release = asyncio.Event()
    entered = asyncio.Event()
    loop = asyncio.get_running_loop()

    def handle(message: ReceivedMessage) -> None:
        loop.call_soon_threadsafe(entered.set)
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(30)

    async with cometmq_broker.client(heartbeat_interval=0.1) as mq:
        await mq.producer("p").send(Message("t", b"x"))
        consumer = mq.consumer("g", "t", start=StartFrom.FIRST)
        task = asyncio.ensure_future(consumer.run(handle))
        await asyncio.wait_for(entered.wait(), 10)
        with cometmq_broker.fault("heartbeat", delay=0.0) as seen:
            await eventually(lambda: seen.hits >= 3)
        release.set()
        await consumer.aclose()
        await task


def _child(queue: multiprocessing.Queue[str], mq: Client) -> None:
    async def use() -> str:
        try:
            await mq.producer("p").send(Message("t", b"x"))
        except ClientForked as error:
            return str(error)
        return "no error"

    queue.put(asyncio.run(use()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_client_in_a_forked_child_says_so_and_the_parent_goes_on(cometmq_broker: LocalBroker) -> None:
    context = multiprocessing.get_context("fork")
    async with cometmq_broker.client() as mq:
        producer = mq.producer("p")
        await producer.send(Message("t", b"1"))
        answers = context.Queue()
        child = context.Process(target=_child_main, args=(answers, mq))
        child.start()
        text = await asyncio.to_thread(answers.get, True, 20)
        await asyncio.to_thread(child.join, 20)
        assert "after the fork" in text
        assert (await producer.send(Message("t", b"2"))).ok


def _child_main(answers: multiprocessing.Queue[str], mq: Client) -> None:
    # The child inherits a running loop of the parent; it must not be touched.
    asyncio.events._set_running_loop(None)  # type: ignore[attr-defined]
    _child(answers, mq)
    answers.close()
    answers.join_thread()
    os._exit(0)


@pytest.mark.parametrize("what", ["send", "batch", "request", "poll", "next", "start", "commit", "admin"])
async def test_every_awaitable_can_be_cancelled(cometmq_broker: LocalBroker, what: str) -> None:
    async with cometmq_broker.client() as mq:
        await mq.admin.create_topic("t", queues=2)
        producer = mq.producer("p")
        await producer.send(Message("t", b"x"))
        stream = mq.stream("s", "t")
        consumer = mq.consumer("c", "t")
        await stream.start()

        def begin() -> asyncio.Future[object]:
            calls = {
                "send": lambda: producer.send(Message("t", b"x")),
                "batch": lambda: producer.send_batch([Message("t", b"x")]),
                "request": lambda: producer.request(Message("t", b"x")),
                "poll": lambda: stream.poll(timeout=5),
                "next": lambda: anext(consumer),
                "start": lambda: mq.consumer("c2", "t").start(),
                "commit": lambda: stream.commit(),
                "admin": lambda: mq.admin.topic_stats("t"),
            }
            return asyncio.ensure_future(calls[what]())

        for pause in (0.0, 0.001, 0.01):
            task = begin()
            await asyncio.sleep(pause)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait_for(task, 5)
        assert (await producer.send(Message("t", b"still fine"))).ok


async def test_a_deleted_offset_is_corrected(cometmq_broker: LocalBroker) -> None:
    async with cometmq_broker.client() as mq:
        await mq.admin.create_topic("t", queues=1)
        producer = mq.producer("p")
        for n in range(3):
            await producer.send(Message("t", b"%d" % n))
        queue = (await mq.admin.queues("t"))[0]
        await mq.admin.set_offset("g", queue, 1000)
        async with mq.consumer("g", "t", start=StartFrom.FIRST) as consumer:
            await eventually(lambda: _committed_is(mq, queue, 3), 15)
            await producer.send(Message("t", b"new"))
            message = await asyncio.wait_for(anext(consumer), 15)
            assert message.body == b"new"
            await message.ack()


async def test_a_first_offset_that_the_broker_confirms_and_does_not_keep_is_stored_again(
    cometmq_broker: LocalBroker,
) -> None:
    async with cometmq_broker.client() as mq:
        await mq.admin.create_topic("t", queues=2)
        first, second = await mq.admin.queues("t")
        async with mq.stream("g", assign=[first, second], auto_commit=False) as stream:
            with cometmq_broker.fault("commit", error=ResponseCode.SUCCESS, times=1) as fault:
                await stream.commit({first: 3, second: 4})
                assert fault.hits == 1
            assert [await stream.committed(first), await stream.committed(second)] == [3, 4]


async def _committed_is(mq: Client, queue: object, offset: int) -> bool:
    return await mq.admin.committed("g", queue) == offset  # type: ignore[arg-type]


async def test_an_ordinary_request_over_a_silent_connection_replaces_it(proxied: LocalBroker) -> None:
    assert proxied.proxy is not None
    async with proxied.client() as mq:
        await mq.admin.create_topic("t", queues=1)
        queue = (await mq.admin.queues("t"))[0]
        before = proxied.proxy.connections
        address = proxied.broker_address
        connection = mq.instance.remoting.open_connections()[address]
        proxied.proxy.stall()
        for _ in range(5):  # an answer that was under way may still arrive during the first
            with pytest.raises(Timeout):
                await mq.instance.brokers.call(address, 30, None, timeout_ms=200)
            if connection.closed:
                break
        assert connection.closed
        proxied.proxy.resume()
        assert await mq.admin.max_offset(queue) == 0
        assert proxied.proxy.connections > before
