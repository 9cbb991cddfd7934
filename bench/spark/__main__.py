"""Speed of the Spark connector on one machine: reading, scanning, sending, and the least time of a micro-batch.

    python -m bench.spark --count 1000000 --size 1024

Starts a broker of its own in a process of its own, fills a topic, and prints rows a second and CPU time a row. CPU time
counts all processes below this one (JVM, workers) and not the broker's, which is told apart. Needs cometmq[spark];
without Spark (``--no-spark``) only our own part is measured.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cometmq.protocol.codes import RequestCode
from cometmq.protocol.headers import CreateTopicHeader
from cometmq.spark.arrow_cy import decode_columns
from cometmq.spark.cluster import Cluster
from cometmq.spark.columns import BASIC
from cometmq.spark.offsets import ranges_between
from cometmq.spark.options import ClusterOptions, ReadOptions, WriteOptions
from cometmq.spark.pulls import RangeReader
from cometmq.spark.sending import Sender
from cometmq.spark.sink_rows import OutgoingMessage

TOPIC = "bench"
QUEUES = 8
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@contextmanager
def broker(store: Path, *settings: str) -> Iterator[tuple[str, str, int]]:
    """NameServer, broker, pid."""
    options = [word for setting in settings for word in ("-o", setting)]
    command = [
        sys.executable,
        "-m",
        "cometmq.cli.main",
        "standalone",
        "--port",
        "0",
        "--nameserver-port",
        "0",
    ]
    process = subprocess.Popen([*command, "--store", str(store), *options], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if line.startswith("ready "):
                ready = dict(word.split("=", 1) for word in line.split()[1:])
                break
        yield ready["nameserver"], ready["broker"], process.pid
    finally:
        process.kill()
        process.communicate()


def cpu_s(pid: int) -> float:
    """CPU time of one process, from /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def descendants_cpu_s(broker_pid: int) -> float:
    """CPU time of this process and everything below it, the broker left out."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    total = 0.0
    for pid in parents:
        above = pid
        while above not in (0, 1, os.getpid(), broker_pid):
            above = parents.get(above, 0)
        if above == os.getpid():
            try:
                total += cpu_s(pid)
            except OSError:
                continue
    return total


def measured(name: str, rows: int, broker_pid: int, action: Callable[[], Any]) -> Any:
    before, broker_before, began = descendants_cpu_s(broker_pid), cpu_s(broker_pid), time.monotonic()
    result = action()
    seconds = time.monotonic() - began
    own = (descendants_cpu_s(broker_pid) - before) / rows * 1e6
    theirs = (cpu_s(broker_pid) - broker_before) / rows * 1e6
    print(
        f"{name:<28} {rows / seconds:>10.0f} rows/s  {own:6.2f} us CPU a row, broker {theirs:5.2f}",
        flush=True,
    )
    return result


def fill(name_server: str, address: str, count: int, size: int) -> int:
    cluster = Cluster(ClusterOptions(name_server=(name_server,)))
    for topic in (TOPIC, f"{TOPIC}-copy"):
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
    sender = Sender(WriteOptions(name_server=(name_server,), topic=TOPIC, send_timeout_ms=30_000))
    body = os.urandom(size)
    for number in range(count):
        properties = b"TAGS\x01t\x02KEYS\x01k%d\x02UNIQ_KEY\x01%032X" % (number, number)
        sender.send(OutgoingMessage(TOPIC, body, properties, 0, "", None, None, False))
    sender.close()
    return sender.sent_count


def read_without_spark(name_server: str) -> int:
    """Pulls and decoding in this process: what the connector itself can do."""
    options = ReadOptions(name_server=(name_server,), subscribe=(TOPIC,))
    cluster = Cluster(options)
    route = cluster.route(TOPIC)
    bounds = cluster.bounds(TOPIC, route)
    ranges = ranges_between(
        {queue: found.min_offset for queue, found in bounds.items()},
        {queue: found.max_offset for queue, found in bounds.items()},
    )
    numbers = [column.number for column in BASIC]
    rows = 0
    pieces: list[Any] = []
    for piece in RangeReader(options, route.addresses, ranges).pieces():
        pieces.append((piece.body, piece.start, piece.end))
        if len(pieces) == 32:
            rows += decode_columns(pieces, numbers, broker_name="broker-a")[0]
            pieces = []
    return rows + decode_columns(pieces, numbers, broker_name="broker-a")[0]


def with_spark(args: argparse.Namespace, name_server: str, pid: int, store: Path) -> None:
    from cometmq.spark import session

    spark = session("bench", master="local[2]")
    spark.sparkContext.setLogLevel("ERROR")

    def source(**options: str) -> Any:
        settings = {"nameServer": name_server, "subscribe": TOPIC, "minPartitions": "2", **options}
        return spark.read.format("rocketmq").options(**settings)

    def drain(frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()

    drain(source().load().limit(10))  # the first query loads classes
    measured("batch read, 14 columns", args.count, pid, lambda: drain(source().load()))
    narrow = "queueOffset long, body binary"
    measured("batch read, 2 columns", args.count, pid, lambda: drain(source().schema(narrow).load()))
    scan = spark.read.format("rocketmq-store").option("subscribe", TOPIC)
    measured("store scan, 16 columns", args.count, pid, lambda: drain(scan.load(str(store))))
    rows = min(args.count, 100_000)
    out = source(endingOffsets="latest").schema(narrow).load().select("body").limit(rows)
    writer = out.repartition(2).write.format("rocketmq").mode("append")
    target = {"nameServer": name_server, "topic": f"{TOPIC}-copy"}
    measured("sink", rows, pid, lambda: writer.options(**target).save())
    spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument(
        "--pulled", type=int, default=32, help="maxTransferCountOnMessageInMemory of the broker"
    )
    parser.add_argument("--no-spark", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cometmq-bench-") as directory:
        store = Path(directory) / "store"
        with broker(store, f"maxTransferCountOnMessageInMemory={args.pulled}") as (name_server, address, pid):
            measured("fill", args.count, pid, lambda: fill(name_server, address, args.count, args.size))
            found = measured("read without Spark", args.count, pid, lambda: read_without_spark(name_server))
            assert found == args.count
            if not args.no_spark:
                with_spark(args, name_server, pid, store)


if __name__ == "__main__":
    main()
