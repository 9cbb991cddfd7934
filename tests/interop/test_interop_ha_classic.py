"""Mixed groups of 4.9.7 and ours: a Java slave of our master, our slave of a Java master."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from rig.clients import JavaClients, Producer
from rig.process import ServerProcess
from rig.raw import invoke, is_registered
from rig.servers import Foundry
from rig.waiting import wait_for

GET_BROKER_RUNTIME_INFO = 28
LOG_FILE_SIZE = 1 << 20
BODY = "x" * 4000
FILES_FULL = 3
SENT_COUNT = FILES_FULL * LOG_FILE_SIZE // len(BODY) + 100
SMALL_FILES = {"mappedFileSizeCommitLog": str(LOG_FILE_SIZE)}
# A Java slave reports for the first time after 5 s, and learns its master by registering
CATCH_UP_SECONDS = 60


def end_of_log(server: ServerProcess) -> int:
    """-1 in its first second: until a broker of 4.9 has counted something it fails to answer."""
    head, body = invoke(server.address, GET_BROKER_RUNTIME_INFO)
    return int(json.loads(body)["table"]["commitLogMaxOffset"]) if head["code"] == 0 else -1


def log_digest(server: ServerProcess, end: int) -> str:
    """SHA-256 of the log files on disk from 0 to ``end``."""
    seen = hashlib.sha256()
    for start in range(0, end, LOG_FILE_SIZE):
        path = server.directory / "store" / "commitlog" / f"{start:020d}"
        seen.update(path.read_bytes()[: end - start])
    return seen.hexdigest()


def wait_same(one: ServerProcess, other: ServerProcess) -> int:
    end = wait_for(
        lambda: max(end_of_log(one), 0) if end_of_log(one) == end_of_log(other) else 0,
        f"{one.name} and {other.name} to end at the same offset",
        CATCH_UP_SECONDS,
    )
    assert log_digest(one, end) == log_digest(other, end)
    return end


def send(producer: Producer, topic: str, bodies: list[str]) -> set[str]:
    """Send one after another; the statuses."""
    results = producer.send_many([{"topic": topic, "body": body} for body in bodies])
    assert not [result for result in results if "error" in result]
    return {result["status"] for result in results}


@pytest.fixture(params=[("comet", "java"), ("java", "comet")], ids=["java-slave", "our-slave"])
def kinds(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Kind of the master, kind of the slave."""
    return request.param  # type: ignore[no-any-return]


def test_a_slave_of_the_other_kind_has_the_same_log(
    kinds: tuple[str, str], foundry: Foundry, java: JavaClients
) -> None:
    """It begins blank while the master has several files, follows, and restarts.

    Then a broker of the master's kind takes over the slave's directory and has every message (F-40).
    """
    master_kind, slave_kind = kinds
    nameserver = foundry.nameserver("comet")
    nameserver.start()
    nameserver.wait_ready()
    namesrv = nameserver.address
    master = foundry.broker(master_kind, namesrv, brokerRole="SYNC_MASTER", **SMALL_FILES)
    slave = foundry.broker(slave_kind, namesrv, brokerRole="SLAVE", brokerId="1", **SMALL_FILES)
    master.restart()
    wait_for(lambda: is_registered(namesrv, master.address), "the master to register", 40)
    topic = java.admin(namesrv).create_topic("HA")
    producer = java.producer(namesrv)
    sent = [f"{i}-{BODY}" for i in range(SENT_COUNT)]
    assert send(producer, topic, sent[:-100]) == {"SLAVE_NOT_AVAILABLE"}
    wait_for(lambda: end_of_log(master) > (FILES_FULL - 1) * LOG_FILE_SIZE, "the master to count its bytes")

    slave.restart()
    assert wait_same(master, slave) > (FILES_FULL - 1) * LOG_FILE_SIZE
    assert send(producer, topic, sent[-100:-50]) == {"SEND_OK"}
    wait_same(master, slave)

    slave.stop()
    send(producer, topic, sent[-50:])
    slave.restart()
    end = wait_same(master, slave)

    master.stop()
    assert end_of_log(slave) == end
    slave.stop()
    heir = foundry.broker(master_kind, namesrv, store=Path(slave.directory) / "store", **SMALL_FILES)
    heir.restart()
    wait_for(lambda: is_registered(namesrv, heir.address), "the heir to register", 40)
    assert wait_for(lambda: max(end_of_log(heir), 0), "the heir to answer") == end
    consumer = java.pull(namesrv)
    read = [message["body"] for queue in consumer.queues(topic) for message in consumer.pull_all(queue)]
    assert sorted(read) == sorted(sent)
