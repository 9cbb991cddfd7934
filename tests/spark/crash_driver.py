"""One run of a pipeline in a process of its own, to be killed at any moment. Not a test.

python crash_driver.py archive|sink NAMESERVER SOURCE_TOPIC TARGET CHECKPOINT
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

SMALL = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "600m"}


def archive_once(spark: Any, name_server: str, topic: str, target: str, _checkpoint: str) -> None:
    from cometmq.spark.pipes import archive

    archive(spark, name_server, [topic], Path(target), options={"maxOffsetsPerTrigger": "200"})


def copy_once(spark: Any, name_server: str, topic: str, target: str, checkpoint: str) -> None:
    reader = spark.readStream.format("rocketmq").options(
        nameServer=name_server,
        subscribe=topic,
        startingOffsets="earliest",
        maxOffsetsPerTrigger="200",
        minPartitions="2",
    )
    options = {"nameServer": name_server, "topic": target, "checkpointLocation": checkpoint}
    writer = (
        reader.load()
        .writeStream.format("rocketmq")
        .options(**options, delivery="exactlyOnce", sendBatchBytes="2k")
    )
    writer.trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    from cometmq.spark import session

    what, *arguments = sys.argv[1:]
    spark = session("crash", master="local[2]", settings=SMALL)
    spark.sparkContext.setLogLevel("ERROR")
    print("started", flush=True)
    {"archive": archive_once, "sink": copy_once}[what](spark, *arguments)
    print("finished", flush=True)


if __name__ == "__main__":
    main()
