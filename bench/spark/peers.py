"""The brokers of the benchmark: ours, and a Kafka broker (KRaft) from the jars of Maven Central.

The jars come once, by Maven, below build/spark-peer (or COMETMQ_SPARK_PEER).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
CONNECTOR_VERSION = "4.2.0"
CONNECTOR_JARS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR_VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
FETCH_S = 900
START_S = 90
KAFKA_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
QUEUES = 2  # of every topic: as many tasks as cores


class Unavailable(Exception):
    """The Kafka peer cannot be had here."""


@dataclass(frozen=True, slots=True)
class Running:
    address: str
    pid: int
    store: str = ""


@contextmanager
def comet(directory: Path, topics: tuple[str, ...], *settings: str) -> Iterator[Running]:
    """Our broker with its NameServer; ``address`` is the NameServer's."""
    options = [word for setting in settings for word in ("-o", setting)]
    command = [sys.executable, "-m", "cometmq", "standalone", "--port", "0", "--nameserver-port", "0"]
    store = directory / "store"
    process = subprocess.Popen([*command, "--store", str(store), *options], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        ready: dict[str, str] = {}
        for line in process.stdout:
            if line.startswith("ready "):
                ready = dict(word.split("=", 1) for word in line.split()[1:])
                break
        _create_comet_topics(ready["nameserver"], ready["broker"], topics)
        yield Running(ready["nameserver"], process.pid, str(store))
    finally:
        process.kill()
        process.communicate()


def _create_comet_topics(name_server: str, address: str, topics: tuple[str, ...]) -> None:
    from cometmq.protocol.codes import RequestCode
    from cometmq.protocol.headers import CreateTopicHeader
    from cometmq.spark.cluster import Cluster
    from cometmq.spark.options import ClusterOptions

    cluster = Cluster(ClusterOptions(name_server=(name_server,)))
    for topic in topics:
        header = CreateTopicHeader(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=QUEUES,
            write_queue_nums=QUEUES,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
        )
        cluster.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)


# Kafka ----------------------------------------------------------------------------------------------


def peer_directory() -> Path:
    return Path(os.environ.get("COMETMQ_SPARK_PEER", REPOSITORY / "build" / "spark-peer"))


def fetch_jars() -> tuple[Path, Path]:
    """Directories of the broker's jars and of the connector's."""
    broker, connector = peer_directory() / "broker", peer_directory() / "connector"
    if not list(broker.glob("kafka_*.jar")):
        pom = HERE / "kafka.xml"
        _maven(f"{DEPENDENCY_PLUGIN}:copy-dependencies", "-DincludeScope=runtime", broker, "-f", str(pom))
    for (
        artifact
    ) in CONNECTOR_JARS:  # one by one: Spark's own descriptions ask for repositories besides Central
        _, name, version = artifact.split(":")
        if not (connector / f"{name}-{version}.jar").exists():
            _maven(f"{DEPENDENCY_PLUGIN}:copy", f"-Dartifact={artifact}", connector)
    return broker, connector


def _maven(goal: str, argument: str, target: Path, *more: str) -> None:
    if not shutil.which("mvn"):
        raise Unavailable("Maven is not installed")
    target.mkdir(parents=True, exist_ok=True)
    command = ["mvn", "-q", "-B", "-U", goal, argument, f"-DoutputDirectory={target}", *more]
    done = subprocess.run(command, cwd=target, capture_output=True, text=True, timeout=FETCH_S, check=False)
    if done.returncode:
        raise Unavailable(f"the jars cannot be had: {done.stdout[-400:]}")


@contextmanager
def kafka(directory: Path, lib: Path, topics: tuple[str, ...]) -> Iterator[Running]:
    port, controller = _free_port(), _free_port()
    directory.mkdir(parents=True)
    conf = directory / "server.properties"
    conf.write_text(
        f"process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n"
        "controller.listener.names=CONTROLLER\ninter.broker.listener.name=PLAINTEXT\n"
        f"log.dirs={directory / 'logs'}\nnum.partitions={QUEUES}\noffsets.topic.replication.factor=1\n"
        "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
    )
    java = [shutil.which("java") or "java", "-Xmx1g", "-cp", f"{lib}/*"]
    with (directory / "out").open("wb") as out:
        formatting = [*java, "kafka.tools.StorageTool", "format", "-t", KAFKA_CLUSTER, "-c", str(conf)]
        subprocess.run(formatting, check=True, stdout=out, stderr=out)
        process = subprocess.Popen([*java, "kafka.Kafka", str(conf)], stdout=out, stderr=out)
    try:
        _wait_for_port(port, process, directory / "out")
        for topic in topics:
            name = ["--create", "--topic", topic, "--partitions", str(QUEUES)]
            tool = [*java, "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", f"127.0.0.1:{port}"]
            subprocess.run([*tool, *name], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        yield Running(f"127.0.0.1:{port}", process.pid)
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _wait_for_port(port: int, process: subprocess.Popen[bytes], out: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise Unavailable(f"Kafka did not start: {out.read_text(errors='replace')[-400:]}") from None
            time.sleep(0.05)
