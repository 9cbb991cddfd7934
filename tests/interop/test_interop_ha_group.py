"""A group of ours under the stock Java client (F-15), and stores that go from Java to groups and back (F-40)."""

from __future__ import annotations

import asyncio
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from rig.clients import JavaClients, Json, Producer, PushConsumer
from rig.raw import is_registered
from rig.servers import Foundry
from rig.waiting import wait_for

from cometmq import Client
from cometmq.errors import CometMQError
from cometmq.testing.group_processes import GroupProcesses

LOG_FILE_SIZE = 1 << 20
SIZES = {
    "mappedFileSizeCommitLog": str(LOG_FILE_SIZE),
    "mappedFileSizeConsumeQueue": "300000",
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
}
SWITCHES = 3
BODY = "x" * 2000
SENT_AT_ONCE = 20
ROUTE_POLL_S = 30  # of the Java client, unless it is told otherwise
SLACK_S = 15

Place = tuple[int, int]  # queue and offset


@pytest.fixture
def group(tmp_path: Path) -> Iterator[GroupProcesses]:
    with GroupProcesses(tmp_path, name="broker-a", settings=SIZES) as found:
        yield found


async def status(address: str, namesrv: str) -> dict[str, Any] | None:
    async with Client(namesrv) as client:
        try:
            return await client.admin.ha_status(address)
        except CometMQError:
            return None


def masters(group: GroupProcesses) -> dict[int, dict[str, Any]]:
    """Status of those that serve, by number."""
    found = {number: asyncio.run(status(group.address(number), group.name_server)) for number in group.ids}
    return {number: one for number, one in found.items() if one is not None and one["standing"] == "SERVING"}


def all_in_sync(group: GroupProcesses) -> bool:
    serving = list(masters(group).values())
    return len(serving) == 1 and len(serving[0]["syncSet"]) == len(group.ids)


def serving(group: GroupProcesses) -> int:
    (number,) = masters(group)
    return number


def switch(group: GroupProcesses) -> None:
    async def now() -> None:
        async with Client(group.name_server) as client:
            await client.admin.switch_master(group.name)

    asyncio.run(now())


class Sender:
    """A Java producer that goes on sending in the background; every result."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.producer = producer
        self.topic = topic
        self.results: list[Json] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            numbers = range(len(self.results), len(self.results) + SENT_AT_ONCE)
            messages = [{"topic": self.topic, "body": f"{number}-{BODY}"} for number in numbers]
            self.results += self.producer.send_many(messages)

    def wait_more(self, limit_s: float = 60) -> None:
        """Until two more rounds were acknowledged."""
        wanted = len(self.places) + 2 * SENT_AT_ONCE
        wait_for(lambda: len(self.places) >= wanted, "sends to be acknowledged", limit_s)

    @property
    def places(self) -> dict[int, Place]:
        """Where each message is that was acknowledged, by its number."""
        found = enumerate(list(self.results))
        return {number: (one["queue"], one["queueOffset"]) for number, one in found if "error" not in one}

    @property
    def errors(self) -> list[Json]:
        return [result["error"] for result in self.results if "error" in result]


def read_all(java: JavaClients, name_server: str, topic: str) -> dict[Place, int]:
    """The number of the message at each place, by the Java client."""
    consumer = java.pull(name_server)
    messages = [one for queue in consumer.queues(topic) for one in consumer.pull_all(queue)]
    consumer.stop()
    return {(one["queue"], one["offset"]): number_of(one) for one in messages}


def number_of(message: Json) -> int:
    return int(message["body"].partition("-")[0])


def wait_consumed(consumer: PushConsumer, sender: Sender, limit_s: float = 60) -> None:
    """Until the consumer has everything that was acknowledged."""
    wanted = set(sender.places)
    consumer.wait(lambda got: wanted <= {*map(number_of, got)}, f"{len(wanted)} messages", limit_s)


def test_java_clients_see_no_error_in_planned_switches_and_java_opens_every_store(
    group: GroupProcesses, foundry: Foundry, java: JavaClients
) -> None:
    wait_for(lambda: all_in_sync(group), "all replicas to be in sync", 60)
    topic = java.admin(group.name_server).create_topic("HA")
    consumer = java.push(group.name_server, "CG_switches", {topic: "*"})
    with Sender(java.producer(group.name_server), topic) as sender:
        for _ in range(SWITCHES):
            sender.wait_more()
            wait_for(lambda: all_in_sync(group), "all replicas to be in sync", 60)
            switch(group)
        sender.wait_more()
    assert sender.errors == []
    assert {result["status"] for result in sender.results} == {"SEND_OK"}
    wait_consumed(consumer, sender)
    consumer.stop()
    wait_for(lambda: all_in_sync(group), "all replicas to be in sync", 60)
    for number in group.ids:
        group.signal(number, signal.SIGTERM)
    for number in group.ids:
        group.processes[number].wait(30)
    sent = {place: number for number, place in sender.places.items()}
    for number in group.ids:
        with java_broker(foundry, group.store(number)) as name_server:
            assert read_all(java, name_server, topic) == sent


@contextmanager
def java_broker(foundry: Foundry, store: Path) -> Iterator[str]:
    """A Java broker on that store; the address of its NameServer."""
    nameserver = foundry.nameserver("comet")
    nameserver.start()
    nameserver.wait_ready()
    broker = foundry.broker("java", nameserver.address, store=store, **SIZES)
    broker.restart()
    wait_for(lambda: is_registered(nameserver.address, broker.address), "the Java broker to register", 60)
    yield nameserver.address
    broker.stop()
    nameserver.stop()


def test_a_group_begins_with_the_store_of_a_java_broker(
    tmp_path: Path, foundry: Foundry, java: JavaClients
) -> None:
    store = tmp_path / "java-store"
    with java_broker(foundry, store) as name_server:
        topic = java.admin(name_server).create_topic("HA")
        with Sender(java.producer(name_server), topic) as sender:
            wait_for(lambda: len(sender.places) > 1000, "sends to be acknowledged")
    group = GroupProcesses(tmp_path / "group", name="broker-a", settings=SIZES)
    shutil.copytree(store, group.store(1))
    sent = {place: number for number, place in sender.places.items()}
    with group:
        for _ in group.ids:
            wait_for(lambda: all_in_sync(group), "all replicas to be in sync", 60)
            assert read_all(java, group.name_server, topic) == sent
            switch(group)


@pytest.mark.slow
def test_java_clients_go_on_after_a_kill_of_the_master(group: GroupProcesses, java: JavaClients) -> None:
    """With their own settings: they ask for the route every 30 s, and between have nobody to turn to."""
    wait_for(lambda: all_in_sync(group), "all replicas to be in sync", 60)
    topic = java.admin(group.name_server).create_topic("HA")
    consumer = java.push(group.name_server, "CG_kill", {topic: "*"})
    with Sender(java.producer(group.name_server), topic) as sender:
        sender.wait_more()
        wait_for(lambda: all_in_sync(group), "all replicas to be in sync", 60)
        group.kill(serving(group))
        began = time.monotonic()
        sender.wait_more(ROUTE_POLL_S + SLACK_S)
        print(f"sends go on {time.monotonic() - began:.1f} s after the kill, {len(sender.errors)} failed")
        sender.wait_more()
    wait_consumed(consumer, sender, ROUTE_POLL_S + SLACK_S)
    found = read_all(java, group.name_server, topic)
    assert {place: found.get(place) for place in sender.places.values()} == {
        place: number for number, place in sender.places.items()
    }
