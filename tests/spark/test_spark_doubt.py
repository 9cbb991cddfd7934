"""Requests whose answers are lost: whether they are stored is found out before they are sent again. Without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spark_kit import RunningBroker

from cometmq.errors import ConnectionLost
from cometmq.protocol.command import RemotingCommand
from cometmq.spark import sending
from cometmq.spark.fence import Attempt, Fence
from cometmq.spark.link import Link
from cometmq.spark.options import WriteOptions
from cometmq.spark.sending import Sender
from cometmq.spark.sink_rows import OutgoingMessage

COUNT = 100


class DeafLink(Link):
    """Some answers do not arrive: the connection breaks when they have been given."""

    answers = 0

    def receive(self, timeout_s: float) -> RemotingCommand:
        answer = super().receive(timeout_s)
        self.answers += 1
        if self.answers in (2, 5):
            self.close()
            raise ConnectionLost(f"The connection to {self.address} broke.")
        return answer


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    links: dict[str, DeafLink] = {}

    def link_to(address: str, options: Any) -> DeafLink:
        return links.setdefault(address, DeafLink(address, options))

    monkeypatch.setattr(sending, "link_to", link_to)
    yield
    for link in links.values():
        link.close()


def message(topic: str, number: int) -> OutgoingMessage:
    name = f"id-{number}"
    properties = f"UNIQ_KEY\x01{name}".encode()
    return OutgoingMessage(topic, b"body-%d" % number, properties, 0, name, number % 4, None, False)


def options_for(broker: RunningBroker, checkpoint: Path, delivery: str) -> WriteOptions:
    return WriteOptions(
        name_server=(broker.name_server,),
        delivery=delivery,
        checkpoint_location=str(checkpoint),
        send_batch_bytes=1024,
    )


@pytest.mark.usefixtures("deaf")
def test_exactly_once_looks_before_it_sends_again(broker: RunningBroker, topic: str, tmp_path: Path) -> None:
    options = options_for(broker, tmp_path, "exactlyOnce")
    fence = Fence(options, 0, Attempt("run", True))
    sender = Sender(options, stored_ids=fence.ids)
    for number in range(COUNT):
        assert not fence.has(topic, f"id-{number}")
        sender.send(message(topic, number))
    sender.flush()
    assert sender.sent_count == COUNT
    assert Counter(broker.bodies(topic)) == Counter(b"body-%d" % number for number in range(COUNT))
    for run in ("run", "another run"):
        again = Fence(options, 0, Attempt(run, run != "run"))
        assert all(again.has(topic, f"id-{number}") for number in range(COUNT))
        assert not again.has(topic, "id-new")


@pytest.mark.usefixtures("deaf")
def test_at_least_once_sends_again_and_loses_nothing(
    broker: RunningBroker, topic: str, tmp_path: Path
) -> None:
    sender = Sender(options_for(broker, tmp_path, "atLeastOnce"))
    for number in range(COUNT):
        sender.send(message(topic, number))
    sender.flush()
    assert sender.sent_count == COUNT
    bodies = broker.bodies(topic)
    assert set(bodies) == {b"body-%d" % number for number in range(COUNT)}
    assert len(bodies) > COUNT


@pytest.mark.usefixtures("deaf")
def test_order_within_a_queue_outlives_a_broken_connection(
    broker: RunningBroker, topic: str, tmp_path: Path
) -> None:
    options = options_for(broker, tmp_path, "exactlyOnce")
    fence = Fence(options, 0, Attempt("run", True))
    sender = Sender(options, stored_ids=fence.ids)
    for number in range(COUNT):
        fence.has(topic, f"id-{number}")
        sender.send(message(topic, number))
    sender.flush()
    found = [int(body.removeprefix(b"body-")) for body in broker.bodies(topic)]
    for queue_id in range(4):
        own = [number for number in found if number % 4 == queue_id]
        assert own == sorted(own)
