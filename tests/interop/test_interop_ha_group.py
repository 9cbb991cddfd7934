"""A group of ours under the stock Java client, and Java brokers on the stores of its replicas."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rig.clients import JavaClients
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


def all_in_sync(group: GroupProcesses) -> bool:
    found = [asyncio.run(status(group.address(number), group.name_server)) for number in group.ids]
    serving = [one for one in found if one is not None and one["standing"] == "SERVING"]
    return len(serving) == 1 and len(serving[0]["syncSet"]) == len(group.ids)


def switch(group: GroupProcesses) -> None:
    async def now() -> None:
        async with Client(group.name_server) as client:
            await client.admin.switch_master(group.name)

    asyncio.run(now())


def test_a_java_producer_sees_no_error_in_planned_switches_and_java_opens_every_store(
    group: GroupProcesses, foundry: Foundry, java: JavaClients
) -> None:
    wait_for(lambda: all_in_sync(group), "all replicas to be in sync", 60)
    namesrv = group.name_server
    topic = java.admin(namesrv).create_topic("HA")
    producer = java.producer(namesrv)
    results: list[dict[str, Any]] = []
    stop = threading.Event()

    def send_on() -> None:
        while not stop.is_set():
            bodies = [f"{len(results) + number}-{BODY}" for number in range(20)]
            results.extend(producer.send_many([{"topic": topic, "body": body} for body in bodies]))

    sending = threading.Thread(target=send_on)
    sending.start()
    try:
        for _ in range(SWITCHES):
            reached = len(results)
            wait_for(lambda before=reached: len(results) >= before + 40, "sends to go on", 60)
            wait_for(lambda: all_in_sync(group), "all replicas to be in sync", 60)
            switch(group)
    finally:
        stop.set()
        sending.join()
    assert [result for result in results if "error" in result] == []
    assert {result["status"] for result in results} == {"SEND_OK"}
    wait_for(lambda: all_in_sync(group), "all replicas to be in sync", 60)
    for number in group.ids:
        group.signal(number, 15)
    for number in group.ids:
        group.processes[number].wait(30)
    for number in group.ids:
        _java_reads(group, number, foundry, java, topic, len(results))


def _java_reads(
    group: GroupProcesses, number: int, foundry: Foundry, java: JavaClients, topic: str, count: int
) -> None:
    nameserver = foundry.nameserver("comet")
    nameserver.start()
    nameserver.wait_ready()
    heir = foundry.broker("java", nameserver.address, store=group.store(number), **SIZES)
    heir.restart()
    wait_for(lambda: is_registered(nameserver.address, heir.address), "the Java broker to register", 60)
    consumer = java.pull(nameserver.address)
    read = [message["body"] for queue in consumer.queues(topic) for message in consumer.pull_all(queue)]
    assert sorted(body.partition("-")[0] for body in read) == sorted(str(i) for i in range(count))
    heir.stop()
    nameserver.stop()
