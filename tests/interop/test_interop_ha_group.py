"""A group of ours under the stock Java client (F-15), and stores that go from Java to groups and back (F-40)."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rig.clients import JavaClients, PushConsumer
from rig.raw import is_registered
from rig.sending import Place, SteadySender, number_of
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
PADDING = "x" * 2000
SENT_AT_ONCE = 20
ROUTE_POLL_S = 30  # of the Java client, unless it is told otherwise
SLACK_S = 15


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


def steady(java: JavaClients, name_server: str, topic: str) -> SteadySender:
    return SteadySender(java.producer(name_server), topic, at_once=SENT_AT_ONCE, padding=PADDING)


def read_all(java: JavaClients, name_server: str, topic: str) -> dict[Place, int]:
    """The number of the message at each place, by the Java client."""
    consumer = java.pull(name_server)
    messages = [one for queue in consumer.queues(topic) for one in consumer.pull_all(queue)]
    consumer.stop()
    return {(one["queue"], one["offset"]): number_of(one) for one in messages}


def wait_consumed(consumer: PushConsumer, sender: SteadySender, limit_s: float = 60) -> None:
    """Until the consumer has everything that was acknowledged."""
    wanted = set(sender.places)
    consumer.wait(lambda got: wanted <= {*map(number_of, got)}, f"{len(wanted)} messages", limit_s)


def test_java_clients_see_no_error_in_planned_switches_and_java_opens_every_store(
    group: GroupProcesses, foundry: Foundry, java: JavaClients
) -> None:
    wait_for(lambda: all_in_sync(group), "all replicas to be in sync", 60)
    topic = java.admin(group.name_server).create_topic("HA")
    consumer = java.push(group.name_server, "CG_switches", {topic: "*"})
    with steady(java, group.name_server, topic) as sender:
        for _ in range(SWITCHES):
            sender.wait_more(2 * SENT_AT_ONCE, 60)
            wait_for(lambda: all_in_sync(group), "all replicas to be in sync", 60)
            switch(group)
        sender.wait_more(2 * SENT_AT_ONCE, 60)
    assert sender.failed == []
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
        with steady(java, name_server, topic) as sender:
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
    with steady(java, group.name_server, topic) as sender:
        sender.wait_more(2 * SENT_AT_ONCE, 60)
        wait_for(lambda: all_in_sync(group), "all replicas to be in sync", 60)
        group.kill(serving(group))
        began = time.monotonic()
        sender.wait_more(2 * SENT_AT_ONCE, ROUTE_POLL_S + SLACK_S)
        print(f"sends go on {time.monotonic() - began:.1f} s after the kill, {len(sender.failed)} failed")
        sender.wait_more(2 * SENT_AT_ONCE, 60)
    wait_consumed(consumer, sender, ROUTE_POLL_S + SLACK_S)
    found = read_all(java, group.name_server, topic)
    assert {place: found.get(place) for place in sender.places.values()} == {
        place: number for number, place in sender.places.items()
    }
