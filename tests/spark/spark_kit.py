"""What the tests with Spark share: a broker in a process of its own, and messages in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import cometmq.spark
from cometmq.protocol.bodies.route import TopicRouteData
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import CreateTopicHeader, GetRouteInfoHeader, SendMessageV2Header, TopicHeader
from cometmq.protocol.properties import encode_properties
from cometmq.protocol.record_cy import decode_records
from cometmq.spark.cluster import Cluster
from cometmq.spark.link import Link, checked, close_links
from cometmq.spark.offsets import ranges_between
from cometmq.spark.options import ClusterOptions, ReadOptions
from cometmq.spark.pulls import Piece, RangeReader

BROKER = "broker-a"
CALL_TIMEOUT_S = 10.0
SMALL = (
    "mappedFileSizeCommitLog=16777216",
    "maxHashSlotNum=1000",
    "maxIndexNum=20000",
    "enablePropertyFilter=true",
)
# A broker closes connections that are silent for 120 s; a test on a busy machine may take longer.
FRESH_S = 60


class RunningBroker:
    """A NameServer and a broker in one process, and a plain connection to each."""

    def __init__(
        self, store: Path, process: Any, ready: dict[str, str], options: ClusterOptions | None = None
    ) -> None:
        self.store = store
        self.process = process
        self.name_server = ready["nameserver"]
        self.address = ready["broker"]
        self.options = replace(options or ClusterOptions(), name_server=(self.name_server,))
        self.cluster = Cluster(self.options)
        self._link = Link(self.address, self.options)
        self._called = time.monotonic()

    def close(self) -> None:
        self._link.close()
        close_links()

    def call(self, code: int, header: Any = None, body: bytes = b"") -> RemotingCommand:
        now = time.monotonic()
        if now - self._called > FRESH_S:
            self._link.close()  # the next use opens it again
        self._called = now
        return checked(self._link.call(code, header, body, CALL_TIMEOUT_S), self.address)

    def create_topic(self, topic: str, queues: int = 4, *, write: int | None = None) -> None:
        header = CreateTopicHeader(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues if write is None else write,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
        )
        self.call(RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    def delete_topic(self, topic: str) -> None:
        self.call(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(topic=topic))

    def send(
        self,
        topic: str,
        body: bytes,
        queue_id: int = 0,
        properties: dict[str, str] | None = None,
        *,
        sys_flag: int = 0,
        batch: bool = False,
    ) -> None:
        header = SendMessageV2Header(
            producer_group="PG",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=sys_flag,
            born_timestamp=1_700_000_000_000,
            flag=0,
            properties=encode_properties(properties or {}),
            batch=batch,
        )
        self.call(RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2, header, body)

    def fill(self, topic: str, count: int, queues: int = 4, first: int = 0) -> None:
        for number in range(first, first + count):
            self.send(
                topic, b"body-%d" % number, number % queues, {"KEYS": f"k{number}", "TAGS": f"t{number % 3}"}
            )

    def pieces(self, topic: str) -> list[Piece]:
        """All messages of a topic, as the broker's answers, read without Spark."""
        route = self.cluster.route(topic)
        bounds = self.cluster.bounds(topic, route)
        starts = {queue: found.min_offset for queue, found in bounds.items()}
        ranges = ranges_between(starts, {queue: found.max_offset for queue, found in bounds.items()})
        options = ReadOptions(**asdict(self.options), subscribe=(topic,))
        return list(RangeReader(options, route.addresses, ranges).pieces())

    def bodies(self, topic: str) -> list[bytes]:
        return [
            message.body
            for piece in self.pieces(topic)
            for message in decode_records(piece.body)
            if piece.start <= message.queue_offset < piece.end
        ]

    def copy_store(self, target: Path) -> Path:
        """The log and the queues only: files of the configuration come and go while a broker runs."""
        for name in ("commitlog", "consumequeue"):
            shutil.copytree(self.store / name, target / name)
        return target

    def route(self, topic: str) -> TopicRouteData:
        answer = self.cluster.ask_name_server(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoHeader(topic=topic)
        )
        return TopicRouteData.decode(bytes(answer.body))


def read_frame(spark: Any, broker: RunningBroker, schema: str | None = None, **options: Any) -> Any:
    """A batch read of a broker, by the format."""
    reader = spark.read.format("rocketmq").option("nameServer", broker.name_server)
    reader = reader.options(**{name: str(value) for name, value in options.items()})
    return (reader if schema is None else reader.schema(schema)).load()


def load_frame(spark: Any, broker: RunningBroker, schema: str | None = None, **options: Any) -> Any:
    """The same, by ``load``."""
    return cometmq.spark.load(spark, "rocketmq", schema=schema, nameServer=broker.name_server, **options)


WAYS = {"format": read_frame, "load": load_frame}


def wait(condition: Callable[[], Any], limit_s: float = 60) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


@contextmanager
def running_broker(
    store: Path,
    *settings: str,
    port: int = 0,
    nameserver_port: int = 0,
    options: ClusterOptions | None = None,
    environment: dict[str, str] | None = None,
) -> Iterator[RunningBroker]:
    """A NameServer and a broker in one process; ``options`` say how the kit itself reaches them."""
    ports = ["--port", str(port), "--nameserver-port", str(nameserver_port)]
    words = ["standalone", *ports, "--store", str(store)]
    with _server(words, settings, environment) as (process, ready):
        running = RunningBroker(store, process, ready, options)
        try:
            yield running
        finally:
            running.close()


@contextmanager
def joining_broker(name_server: str, store: Path, name: str, *settings: str) -> Iterator[RunningBroker]:
    """One more broker for NameServers that run."""
    own = (f"brokerName={name}", "listenPort=0", f"storePathRootDir={store}", "brokerIP1=127.0.0.1")
    with _server(["broker", "-n", name_server], (*own, *settings)) as (process, ready):
        running = RunningBroker(store, process, {**ready, "nameserver": name_server})
        try:
            yield running
        finally:
            running.close()


@contextmanager
def _server(
    words: list[str], settings: tuple[str, ...], environment: dict[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    options = [word for setting in (*SMALL, *settings) for word in ("-o", setting)]
    process = subprocess.Popen(
        [sys.executable, "-m", "cometmq", *words, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | (environment or {}),
    )
    try:
        assert process.stdout is not None
        ready: dict[str, str] = {}
        for line in process.stdout:
            if line.startswith("ready "):
                ready = dict(word.split("=", 1) for word in line.split()[1:])
                break
        assert ready, "the broker did not start"
        yield process, ready
    finally:
        process.kill()
        process.communicate()
