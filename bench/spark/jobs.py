"""The Spark jobs of the benchmark, for one side, in a process of their own: sink, batch read, store scan, micro-batch.

    python -m bench.spark.jobs '{"side": "comet", ...}'

Reads names of jobs, a line each, runs them and answers each with a JSON line. The peer's side imports nothing but
pyspark and what measures, so that it may run on another Spark than ours.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.spark.measure import Measure, measured

WARM_ROWS = 20_000
FLOOR_BATCHES = 60
FLOOR_SKIPPED = 20  # the first batches load classes
FLOOR_ROWS = 100  # rows of a batch
STREAM_WAIT_S = 300


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to do, as given on the command line."""

    side: str
    count: int
    size: int
    broker_pid: int
    topic: str
    warm_topic: str
    address: str
    store: str = ""
    jars: str = ""
    java_options: str = ""


class Side:
    """How one connector is called."""

    def __init__(self, spark: Any, plan: Plan) -> None:
        self.spark = spark
        self.plan = plan

    def rows(self, count: int) -> Any:
        raise NotImplementedError

    def reader(self, reader: Any, topic: str) -> Any:
        raise NotImplementedError

    def writer(self, writer: Any, topic: str) -> Any:
        raise NotImplementedError


class Comet(Side):
    def rows(self, count: int) -> Any:
        body = f"cast(repeat('x', {self.plan.size}) as binary) as body"
        columns = (body, "cast(id as string) as keys", "'t' as tags")
        return self.spark.range(0, count, 1, 2).selectExpr(*columns)

    def reader(self, reader: Any, topic: str) -> Any:
        return reader.format("rocketmq").options(nameServer=self.plan.address, subscribe=topic)

    def writer(self, writer: Any, topic: str) -> Any:
        return writer.format("rocketmq").options(nameServer=self.plan.address, topic=topic)


class Kafka(Side):
    def rows(self, count: int) -> Any:
        value = f"cast(repeat('x', {self.plan.size}) as binary) as value"
        return self.spark.range(0, count, 1, 2).selectExpr(value, "cast(cast(id as string) as binary) as key")

    def reader(self, reader: Any, topic: str) -> Any:
        servers = {"kafka.bootstrap.servers": self.plan.address, "subscribe": topic}
        return reader.format("kafka").options(**servers, startingOffsets="earliest")

    def writer(self, writer: Any, topic: str) -> Any:
        return writer.format("kafka").options(
            **{"kafka.bootstrap.servers": self.plan.address, "topic": topic}
        )


def start_spark(plan: Plan) -> Any:
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.numRecentProgressUpdates": str(FLOOR_BATCHES * 2),
        **side_settings(plan),
    }
    builder = SparkSession.builder.appName(f"bench-{plan.side}").master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def side_settings(plan: Plan) -> dict[str, str]:
    """Each connector as its users have it: ours in the session that we make, the peer's in one of Spark's own."""
    if plan.side == "comet":
        from cometmq.spark.sessions import LOCAL_SETTINGS

        return LOCAL_SETTINGS
    options = {"spark.driver.extraJavaOptions": plan.java_options} if plan.java_options else {}
    return {"spark.jars": plan.jars, **options}


def drain(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def sink(side: Side) -> Measure:
    """Fills the topic that the other rows read, so it runs once; a smaller one before it loads classes."""
    plan = side.plan
    side.writer(side.rows(WARM_ROWS).write, plan.warm_topic).mode("append").save()
    frame = side.rows(plan.count)
    return measured(
        "sink",
        plan.side,
        plan.count,
        plan.broker_pid,
        lambda: side.writer(frame.write, plan.topic).mode("append").save(),
    )


def floor(side: Side) -> Measure:
    """The median time of a micro-batch of few rows, all of which are there."""
    plan = side.plan
    reader = side.reader(side.spark.readStream, plan.warm_topic)
    reader = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=str(FLOOR_ROWS))
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = reader.load().writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.start()
        try:
            wait_for_batches(query)
            times = [
                progress.durationMs["triggerExecution"]
                for progress in query.recentProgress
                if progress.numInputRows and progress.batchId >= FLOOR_SKIPPED
            ]
        finally:
            side.spark.sparkContext.setLogLevel("OFF")  # pages about the batch that is cut off
            query.stop()
    return Measure("micro-batch floor", plan.side, batch_ms=statistics.median(times))


def wait_for_batches(query: Any) -> None:
    import time

    deadline = time.monotonic() + STREAM_WAIT_S
    while not any(progress.batchId >= FLOOR_BATCHES for progress in query.recentProgress):
        if query.exception() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the stream did not run: {query.exception()}")
        time.sleep(0.2)


def repeated(side: Side, scan: Any) -> Any:
    """As many rows with the columns of a scan, from memory."""
    from bench.spark import ceiling

    path = Path(side.plan.store).parent / "one-batch.arrow"
    if not path.exists():
        ceiling.save_batch(scan, path)
    return ceiling.repeating(side.spark, path, side.plan.count)


def jobs(side: Side) -> dict[str, Callable[[], Measure]]:
    """What can be asked for, by name."""
    return {"sink": lambda: sink(side), "micro-batch floor": lambda: floor(side)} | {
        row: partial(_read, side, row, load) for row, load in reads(side).items()
    }


def _read(side: Side, row: str, load: Callable[[], Any]) -> Measure:
    plan = side.plan
    return measured(row, plan.side, plan.count, plan.broker_pid, lambda: drain(load()))


def reads(side: Side) -> dict[str, Callable[[], Any]]:
    """The frames that are read, by the name of the row; the peer has one."""
    spark, plan = side.spark, side.plan
    by_format = side.reader(spark.read, plan.topic).load
    if plan.side == "kafka":
        return {"batch read": by_format}

    from cometmq.spark import load

    messages = partial(load, spark, "rocketmq", nameServer=plan.address, subscribe=plan.topic)
    scan = partial(load, spark, "rocketmq-store", plan.store, subscribe=plan.topic)
    return {
        "batch read": messages,
        "batch read, 2 columns": partial(messages, schema="queueOffset long, body binary"),
        "batch read by format": by_format,
        "store scan": scan,
        "store scan by format": lambda: (
            spark.read.format("rocketmq-store").option("subscribe", plan.topic).load(plan.store)
        ),
        "one batch repeated": lambda: repeated(side, scan()),
    }


def main() -> None:
    plan = Plan(**json.loads(sys.argv[1]))
    spark = start_spark(plan)
    known = jobs((Comet if plan.side == "comet" else Kafka)(spark, plan))
    for name in sys.stdin:
        print(json.dumps(known[name.strip()]().to_json()), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
