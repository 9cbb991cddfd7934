"""What the test of the standalone cluster does, in a process of its own (one has only one Spark). Not a test.

    python cluster_driver.py MASTER NAMESERVER SOURCE_TOPIC TARGET_TOPIC CHECKPOINT

Prints one JSON line with what was found.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # both executors, before the first task
}


def batch_read(spark: Any, name_server: str, topic: str) -> dict[str, Any]:
    reader = spark.read.format("rocketmq").options(nameServer=name_server, subscribe=topic, minPartitions="4")
    rows = reader.load().select("queueId", "queueOffset", "body").collect()
    return {"rows": len(rows), "bodies": len({bytes(row.body) for row in rows})}


def load_frame(spark: Any, name_server: str, topic: str) -> dict[str, Any]:
    from cometmq.spark import load

    frame = load(spark, "rocketmq", nameServer=name_server, subscribe=topic, minPartitions=4)
    rows = frame.select("body").collect()
    return {"rows": len(rows), "bodies": len({bytes(row.body) for row in rows})}


def stream_to_sink(spark: Any, name_server: str, topic: str, target: str, checkpoint: str) -> dict[str, Any]:
    reader = spark.readStream.format("rocketmq").options(
        nameServer=name_server,
        subscribe=topic,
        startingOffsets="earliest",
        maxOffsetsPerTrigger="500",
        minPartitions="2",
    )
    options = {"nameServer": name_server, "topic": target, "checkpointLocation": checkpoint}
    writer = reader.load().writeStream.format("rocketmq").options(**options, delivery="exactlyOnce")
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return {"batches": len([progress for progress in query.recentProgress if progress.numInputRows])}


def executor_pids(spark: Any) -> list[int]:
    """The parents of Python workers while both executors have something to do."""
    pids = spark.sparkContext.parallelize(range(8), 8).map(lambda _: os.getppid()).collect()
    return sorted(set(pids))


def main() -> None:
    master, name_server, topic, target, checkpoint = sys.argv[1:]
    from cometmq.spark import session

    spark = session("standalone", master=master, settings=SETTINGS)
    spark.sparkContext.setLogLevel("ERROR")
    found = {
        "master": spark.sparkContext.master,
        "daemons": executor_pids(spark),
        "read": batch_read(spark, name_server, topic),
        "load": load_frame(spark, name_server, topic),
        "stream": stream_to_sink(spark, name_server, topic, target, checkpoint),
    }
    print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
