"""What the tests with Spark share: a broker in a process of its own, and messages in it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
from cometmq.spark.pulls import RangeReader

BROKER = "broker-a"
CALL_TIMEOUT_S = 10.0
SMALL = (
    "mappedFileSizeCommitLog=16777216",
    "maxHashSlotNum=1000",
    "maxIndexNum=20000",
    "enablePropertyFilter=true",
)


class RunningBroker:
    """A NameServer and a broker in one process, and a plain connection to each."""

    def __init__(self, store: Path, process: subprocess.Popen[str], ready: dict[str, str]) -> None:
        self.store = store
        self.process = process
        self.name_server = ready["nameserver"]
        self.address = ready["broker"]
        self.options = ClusterOptions(name_server=(self.name_server,))
        self.cluster = Cluster(self.options)
        self._link = Link(self.address, self.options)

    def close(self) -> None:
        self._link.close()
        close_links()

    def call(self, code: int, header: Any = None, body: bytes = b"") -> RemotingCommand:
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

    def bodies(self, topic: str) -> list[bytes]:
        """The bodies of all messages of a topic, read without Spark."""
        route = self.cluster.route(topic)
        bounds = self.cluster.bounds(topic, route)
        starts = {queue: found.min_offset for queue, found in bounds.items()}
        ranges = ranges_between(starts, {queue: found.max_offset for queue, found in bounds.items()})
        options = ReadOptions(name_server=(self.name_server,), subscribe=(topic,))
        return [
            message.body
            for piece in RangeReader(options, route.addresses, ranges).pieces()
            for message in decode_records(piece.body)
            if piece.start <= message.queue_offset < piece.end
        ]

    def route(self, topic: str) -> TopicRouteData:
        answer = self.cluster.ask_name_server(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoHeader(topic=topic)
        )
        return TopicRouteData.decode(bytes(answer.body))


@contextmanager
def running_broker(
    store: Path, *settings: str, port: int = 0, nameserver_port: int = 0
) -> Iterator[RunningBroker]:
    options = [word for setting in (*SMALL, *settings) for word in ("-o", setting)]
    ports = ("--port", str(port), "--nameserver-port", str(nameserver_port))
    command = [
        sys.executable,
        "-m",
        "cometmq.cli.main",
        "standalone",
        *ports,
        "--store",
        str(store),
        *options,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    running: RunningBroker | None = None
    try:
        assert process.stdout is not None
        ready: dict[str, str] = {}
        for line in process.stdout:
            if line.startswith("ready "):
                ready = dict(word.split("=", 1) for word in line.split()[1:])
                break
        assert ready, "the broker did not start"
        running = RunningBroker(store, process, ready)
        yield running
    finally:
        if running is not None:
            running.close()
        process.kill()
        process.communicate()
