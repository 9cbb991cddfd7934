"""The pipelines of the demo: archive both topics, prove the archive whole, print the funnel per second.

``python -m cometmq.demo.pipeline LAKE REPORT``; REPORT may be empty. Starts Spark, says ready, then waits for the
address of the NameServer as a line of input. Ends when its input ends.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from cometmq.demo.plan import STEPS, STEPS_TOPIC, TOPIC
from cometmq.demo.screen import Screen
from cometmq.errors import CometMQError, ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXIT_UNSOUND = 1
LEFT_OUT = "Left out:"
SETTINGS = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}


def run(spark: SparkSession, name_server: str, lake: Path, report: str) -> int:
    screen = Screen()
    sound = _archive(screen, spark, name_server, lake)
    _funnel(screen, spark, lake)
    if report:
        _audit(screen, spark, name_server, Path(report))
    return 0 if sound else EXIT_UNSOUND


def start() -> tuple[SparkSession, str]:
    """A session that has run a query, and a sentence about it."""
    from cometmq.spark.java import find_java
    from cometmq.spark.sessions import session

    began = time.monotonic()
    java = find_java()
    spark = session("cometmq-demo", master="local[2]", settings=SETTINGS)
    spark.sparkContext.setLogLevel("ERROR")
    spark.range(1).count()
    seconds = time.monotonic() - began
    return (
        spark,
        f"Spark {spark.version} on Java {java.version} (from {java.origin}), started in {seconds:.1f} s",
    )


def _archive(screen: Screen, spark: SparkSession, name_server: str, lake: Path) -> bool:
    from cometmq.spark.pipes import archive, verify_archive

    began = time.monotonic()
    result = archive(spark, name_server, [TOPIC, STEPS_TOPIC], lake)
    screen.say(
        f"Archived {result.rows} messages exactly once as Parquet: {result.files} files, "
        f"{result.size / 1024:.0f} KiB, {time.monotonic() - began:.1f} s"
    )
    problems = verify_archive(lake)
    screen.say(
        "Proof from the names of the files: no gap, no overlap" if not problems else "; ".join(problems)
    )
    return not problems


def _funnel(screen: Screen, spark: SparkSession, lake: Path) -> None:
    from pyspark.sql import functions as f

    from cometmq.spark.pipes import funnel

    events = spark.read.option("basePath", str(lake)).parquet(f"{lake}/topic=*").cache()
    rows = funnel(events, STEPS).orderBy("start").collect()
    users = events.groupBy("tags").agg(f.count_distinct("keys").alias("users")).collect()
    total = {row.tags: row.users for row in users}
    screen.say("Users per second (time of the event) and step, from the archive:")
    lines = [(f"{row.start:%H:%M:%S}", *(row[step] for step in STEPS)) for row in rows]
    screen.table(("second", *STEPS), [*lines, ("users", *(total.get(step, 0) for step in STEPS))])


def _audit(screen: Screen, spark: SparkSession, name_server: str, report: Path) -> None:
    from cometmq.spark.pipes import audit, report_html

    found = audit(spark, name_server, TOPIC)
    report.write_text(report_html(found), "utf-8")
    screen.say(f"Audit: sent {found.sent}, stored {found.stored}, lost {found.lost}; report in {report}")


def _end_with_input() -> None:
    """The demo is gone: so are we, and with us the JVM, whose input we hold."""
    sys.stdin.read()
    os._exit(EXIT_UNSOUND)


def main() -> int:
    try:
        spark, about = start()
    except ConfigError as error:
        print(f"ready {LEFT_OUT} {error}", flush=True)
        return 0
    print(f"ready {about}", flush=True)
    name_server = sys.stdin.readline().strip()
    if not name_server:
        return 0
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        return run(spark, name_server, Path(sys.argv[1]), sys.argv[2])
    except CometMQError as error:
        print(error, file=sys.stderr)
        return EXIT_UNSOUND


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # not waiting for Spark's own farewell
