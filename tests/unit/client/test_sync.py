"""The blocking twin: the same behaviour from threads."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cometmq import (
    BrokerError,
    ClientClosed,
    CometMQError,
    Message,
    MessageInvalid,
    Reject,
    StartFrom,
    Timeout,
    TransactionState,
)
from cometmq.sync import Client
from cometmq.testing import LocalBroker

ROOT = Path(__file__).resolve().parents[3]


def test_send_and_consume(cometmq_sync: Client, topic: str, group: str) -> None:
    cometmq_sync.admin.create_topic(topic, queues=2)
    with cometmq_sync.producer("p") as producer:
        results = [producer.send(Message(topic, b"%d" % n, tag="t")) for n in range(10)]
    assert all(one.ok for one in results)
    got = []
    with cometmq_sync.consumer(group, topic, start=StartFrom.FIRST) as consumer:
        for message in consumer:
            with message.process():
                got.append((message.topic, message.body, message.tag))
            if len(got) == 10:
                break
    assert sorted(got) == [(topic, b"%d" % n, "t") for n in range(10)]
    assert sum(cometmq_sync.admin.lag(group).values()) == 0


def test_reserved_property_names_are_refused(cometmq_sync: Client, topic: str, group: str) -> None:
    producer = cometmq_sync.producer("p")
    with pytest.raises(MessageInvalid, match="'TAGS' is reserved for the system; use the argument tag"):
        producer.send(Message(topic, b"x", properties={"TAGS": "a"}))
    producer.send(Message(topic, b"x", tag="a", properties={"amount": "1"}))
    with cometmq_sync.consumer(group, topic, start=StartFrom.FIRST) as consumer:
        message = consumer.get(timeout=10)
        assert message is not None
        assert (message.tag, message.user_properties) == ("a", {"amount": "1"})
        message.ack()


def test_get_returns_none_when_nothing_comes(cometmq_sync: Client, topic: str, group: str) -> None:
    cometmq_sync.admin.create_topic(topic, queues=1)
    with cometmq_sync.consumer(group, topic, start=StartFrom.FIRST) as consumer:
        assert consumer.get(timeout=0.05) is None
        cometmq_sync.producer("p").send(Message(topic, b"x"))
        message = consumer.get(timeout=10)
        assert message is not None
        assert message.body == b"x"
        message.ack()


def test_an_exception_in_the_block_sends_back_and_goes_on(
    cometmq_sync: Client, topic: str, group: str
) -> None:
    cometmq_sync.admin.create_topic(topic, queues=1)
    producer = cometmq_sync.producer("p")
    for body in (b"bad", b"worse", b"good"):
        producer.send(Message(topic, body))
    got = []
    with cometmq_sync.consumer(group, topic, start=StartFrom.FIRST) as consumer:
        for message in consumer:
            with message.process():
                if message.body == b"bad":
                    raise Reject
                if message.body == b"worse":
                    raise ValueError
                got.append(message.body)
            if got:
                break
    assert got == [b"good"]
    # a broker tells its NameServer of the topic a moment after it has made it
    deadline = time.monotonic() + 20
    while f"%DLQ%{group}" not in cometmq_sync.admin.topics(system=True):
        assert time.monotonic() < deadline, "no dead letter"
        time.sleep(0.02)


def test_threads_share_a_producer(cometmq_sync: Client, topic: str) -> None:
    cometmq_sync.admin.create_topic(topic, queues=2)
    producer = cometmq_sync.producer("p")

    def work(n: int) -> int:
        return sum(producer.send(Message(topic, b"%d" % (n * 20 + k))).ok for k in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == 160


def test_send_soon_flush_batch_and_oneway(cometmq_sync: Client, topic: str) -> None:
    cometmq_sync.admin.create_topic(topic, queues=1)
    producer = cometmq_sync.producer("p")
    futures = [producer.send_soon(Message(topic, b"x")) for _ in range(50)]
    producer.flush()
    assert all(one.result(5).ok for one in futures)
    assert producer.send_batch([Message(topic, b"1"), Message(topic, b"2")]).ok
    producer.send_oneway(Message(topic, b"3"))
    assert len(producer.queues(topic)) == 1


def test_handlers_run_in_threads_until_closed(cometmq_sync: Client, topic: str, group: str) -> None:
    cometmq_sync.admin.create_topic(topic, queues=1)
    producer = cometmq_sync.producer("p")
    for n in range(5):
        producer.send(Message(topic, b"%d" % n))
    seen = []
    done = threading.Event()

    def handle(message: object) -> None:
        seen.append(threading.current_thread().name)
        if len(seen) == 5:
            done.set()

    consumer = cometmq_sync.consumer(group, topic, start=StartFrom.FIRST)
    runner = threading.Thread(target=consumer.run, args=(handle,))
    runner.start()
    assert done.wait(10)
    consumer.close()
    runner.join(10)
    assert not runner.is_alive()


def test_streams_poll_seek_and_commit(cometmq_sync: Client, topic: str, group: str) -> None:
    cometmq_sync.admin.create_topic(topic, queues=1)
    producer = cometmq_sync.producer("p")
    for n in range(4):
        producer.send(Message(topic, b"%d" % n))
    with cometmq_sync.stream(group, topic, start=StartFrom.FIRST, auto_commit=False) as stream:
        got: list[bytes] = []
        while len(got) < 4:
            got += [one.body for one in stream.poll(4, timeout=5)]
        assert got == [b"0", b"1", b"2", b"3"]
        queue = stream.assignment()[0]
        stream.commit()
        assert stream.committed(queue) == 4
        stream.seek(queue, 2)
        assert stream.poll(1, timeout=5)[0].body == b"2"
        stream.seek_to_begin()
        assert stream.poll(1, timeout=5)[0].body == b"0"


def test_transactions(cometmq_sync: Client, topic: str, name: Callable[[str], str]) -> None:
    cometmq_sync.admin.create_topic(topic, queues=1)
    tx = cometmq_sync.transactional(name("tx"), check=lambda _: TransactionState.UNKNOWN)
    with tx.begin(Message(topic, b"good")) as half:
        assert half.transaction_id
    with pytest.raises(ValueError, match="no"), tx.begin(Message(topic, b"bad")):
        raise ValueError("no")
    with cometmq_sync.stream(name("g"), topic, start=StartFrom.FIRST) as stream:
        assert [one.body for one in stream.poll(timeout=5)] == [b"good"]


def test_a_closed_or_unstarted_client_says_so(cometmq_servers: str, topic: str) -> None:
    client = Client(cometmq_servers)
    with pytest.raises(ClientClosed, match="not started"):
        client.producer("p")
    with client:
        producer = client.producer("p")
    client.close()
    with pytest.raises(ClientClosed, match="closed"):
        producer.send(Message(topic, b"x"))


def test_the_blocking_admin_is_made_from_the_asyncio_one() -> None:
    script = ROOT / "scripts" / "make_sync_admin.py"
    done = subprocess.run([sys.executable, str(script), "--check"], check=False)
    assert done.returncode == 0, "run scripts/make_sync_admin.py"


def test_direct_sends_carry_what_ordinary_ones_carry(cometmq_sync: Client, topic: str) -> None:
    cometmq_sync.admin.create_topic(topic, queues=1)
    producer = cometmq_sync.producer("p")
    results = [
        producer.send(Message(topic, b"%d" % n, tag="t", keys=["k"], properties={"p": "grün"}))
        for n in range(5)
    ]
    assert [one.offset for one in results] == [0, 1, 2, 3, 4]
    queue = results[0].queue
    found: list[object] = []
    while len(found) < 5:
        found, _ = cometmq_sync.admin.read(queue, 0)  # type: ignore[assignment]
    seen = [(one.body, one.tag, one.keys, one.properties["p"]) for one in found]  # type: ignore[attr-defined]
    assert seen == [(b"%d" % n, "t", ["k"], "grün") for n in range(5)]
    assert [one.msg_id for one in found] == [one.msg_id for one in results]  # type: ignore[attr-defined]


def test_a_direct_send_survives_a_restart_of_the_broker(local_broker: LocalBroker) -> None:
    with Client(local_broker.name_servers) as mq:
        mq.admin.create_topic("t", queues=1)
        producer = mq.producer("p", timeout=5)
        for n in range(3):
            assert producer.send(Message("t", b"%d" % n)).ok
        local_broker.kill_broker()
        with pytest.raises(CometMQError):
            producer.send(Message("t", b"lost"), timeout=0.5)
        local_broker.start_broker()
        assert producer.send(Message("t", b"again")).ok
        assert [one.body for one in local_broker.wait("t", 4)] == [b"0", b"1", b"2", b"again"]


def test_a_direct_send_that_is_not_answered_times_out(local_broker: LocalBroker) -> None:
    with Client(local_broker.name_servers) as mq:
        mq.admin.create_topic("t", queues=1)
        producer = mq.producer("p")
        for n in range(3):
            producer.send(Message("t", b"%d" % n))
        with local_broker.fault("send", drop=True, times=1), pytest.raises(Timeout, match="outcome unknown"):
            producer.send(Message("t", b"x"), timeout=0.2)
        with local_broker.fault("send", error=14, times=1):
            assert producer.send(Message("t", b"second attempt")).ok
        with local_broker.fault("send", error=13, times=1), pytest.raises(BrokerError, match="13"):
            producer.send(Message("t", b"x"))
