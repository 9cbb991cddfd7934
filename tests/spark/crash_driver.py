"""One life of a pipeline in a process of its own, to be killed at any moment. Not a test.

    python crash_driver.py archive|delta|sink NAMESERVER SOURCE_TOPIC TARGET CHECKPOINT

Prints ``started`` when Spark runs, then waits for a line: ``run`` goes on until it is killed, ``finish`` ends when
everything that is there is done and prints ``finished``.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

BATCH_ROWS = "200"
ATTEMPTS = 20  # of a query in one life
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "600m",
    # Short lives: no optimising compiler, no parallel collector.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",
}


def archive_table(spark: Any, once: bool, name_server: str, topic: str, target: str, checkpoint: str) -> None:
    archive_lake(spark, once, name_server, topic, target, checkpoint, "delta")


def archive_lake(
    spark: Any,
    once: bool,
    name_server: str,
    topic: str,
    target: str,
    _checkpoint: str,
    format: str = "parquet",
) -> None:
    from cometmq.spark.pipes import archive

    options = {"minPartitions": "2"} if once else {"minPartitions": "2", "maxOffsetsPerTrigger": BATCH_ROWS}
    archive(spark, name_server, [topic], Path(target), once=once, every=0.1, options=options, format=format)


def copy_topic(spark: Any, once: bool, name_server: str, topic: str, target: str, checkpoint: str) -> None:
    reader = spark.readStream.format("rocketmq").options(
        nameServer=name_server, subscribe=topic, startingOffsets="earliest", minPartitions="2"
    )
    if not once:
        reader = reader.option("maxOffsetsPerTrigger", BATCH_ROWS)
    options = {"nameServer": name_server, "topic": target, "checkpointLocation": checkpoint}
    writer = reader.load().writeStream.format("rocketmq").options(**options)
    writer = writer.options(delivery="exactlyOnce", sendBatchBytes="2k")
    (writer.trigger(availableNow=True) if once else writer).start().awaitTermination()


def main() -> None:
    from cometmq.spark import session

    what, *arguments = sys.argv[1:]
    spark = session("crash", master="local[2,4]", settings=SETTINGS)  # a task may fail three times
    spark.sparkContext.setLogLevel("ERROR")
    spark.range(1).rdd.map(lambda row: row.id).collect()  # the first worker takes long
    print("started", flush=True)
    order = sys.stdin.readline().strip()
    work = {"archive": archive_lake, "delta": archive_table, "sink": copy_topic}[what]
    for _ in range(ATTEMPTS):
        try:
            work(spark, order == "finish", *arguments)
        except (
            Exception
        ):  # tasks failed too often, or a busy machine did not start a planner in Spark's ten seconds
            traceback.print_exc()
        else:
            print("finished", flush=True)
            return


if __name__ == "__main__":
    main()
