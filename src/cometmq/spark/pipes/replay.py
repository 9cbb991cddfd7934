"""Replay: messages of an archive or a topic once more, into a topic, with filter, rate and order per queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cometmq.errors import ConfigError
from cometmq.spark.loading import load
from cometmq.spark.option_values import instant_ms
from cometmq.spark.pipes.topics import account_of, need_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORIGIN = ("ORIGIN_TOPIC", "ORIGIN_BROKER", "ORIGIN_QUEUE_ID", "ORIGIN_QUEUE_OFFSET")


def replay(
    spark: SparkSession,
    name_server: str,
    target: str,
    *,
    from_archive: str | Path | None = None,
    from_topic: str | None = None,
    source_topic: str | None = None,
    since: str | None = None,
    until: str | None = None,
    key: str | None = None,
    where: str | None = None,
    rate: float | None = None,
    dry_run: bool = False,
    options: Mapping[str, str] | None = None,
    on_plan: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Send messages again. ``dry_run`` only counts. Gives the number of messages of each source queue;
    ``on_plan`` is told so before the first is sent.

    Messages keep keys, tags and properties and get their origin as properties; their ids are their old coordinates, so
    a second replay is recognised by its ids.
    """
    check_times(since, until)
    need_topic(name_server, target, options, f"Create it first: cometmq topic create {target}.")
    frame = _source(spark, name_server, from_archive, from_topic, options or {})
    frame = _filtered(frame, source_topic, since, until, key, where)
    counts = frame.groupBy("topic", "brokerName", "queueId").count().orderBy("topic", "brokerName", "queueId")
    queues = [row.asDict() for row in counts.collect()]
    summary = {"queues": queues, "messages": sum(queue["count"] for queue in queues), "sent": not dry_run}
    if on_plan is not None:
        on_plan(summary)
    if not dry_run and queues:
        tasks = min(len(queues), spark.sparkContext.defaultParallelism)
        send(frame, name_server, target, tasks, rate, options or {})
    return summary


def _source(
    spark: SparkSession,
    name_server: str,
    from_archive: str | Path | None,
    from_topic: str | None,
    options: Mapping[str, str],
) -> DataFrame:
    if (from_archive is None) == (from_topic is None):
        raise ConfigError("A replay reads an archive or a topic: give one of from_archive and from_topic.")
    if from_topic is not None:
        settings = {"nameServer": name_server, "subscribe": from_topic, **options}
        return load(spark, "rocketmq", **settings)
    return archived(spark, Path(str(from_archive)))


def archived(spark: SparkSession, root: Path) -> DataFrame:
    """The messages of an archive of either format."""
    return spark.read.option("basePath", str(root.absolute())).parquet(*archived_files(root))


def archived_files(root: Path) -> list[str]:
    """Those that count."""
    from cometmq.spark.pipes.archive_files import live_files

    root = root.absolute()
    paths = [str(root / path) for path in live_files(root)]
    if not paths:
        raise ConfigError(f"The archive {root} is empty.")
    return paths


def check_times(since: str | None, until: str | None) -> None:
    for name, text in (("since", since), ("until", until)):
        try:
            if text is not None:
                instant_ms(text)
        except ValueError as error:
            raise ConfigError(f"The time {name} is {text!r}; it must be {error}.") from error


def _filtered(
    frame: DataFrame,
    source_topic: str | None,
    since: str | None,
    until: str | None,
    key: str | None,
    where: str | None,
) -> DataFrame:
    from pyspark.sql import functions as f

    if source_topic is not None:
        frame = frame.where(f.col("topic") == source_topic)
    if since is not None:
        frame = frame.where(f.col("storeTimestamp") >= f.timestamp_millis(f.lit(instant_ms(since))))
    if until is not None:
        frame = frame.where(f.col("storeTimestamp") < f.timestamp_millis(f.lit(instant_ms(until))))
    if key is not None:
        frame = frame.where(f.array_contains(f.split("keys", " "), key))
    return frame if where is None else frame.where(where)


def send(
    frame: DataFrame,
    name_server: str,
    target: str | None,
    tasks: int,
    rate: float | None,
    options: Mapping[str, str],
) -> None:
    """Send rows of ours, in the order of their queues. Without a target the column ``target`` says where."""
    from pyspark.sql import functions as f

    origin = f.create_map(
        *(
            part
            for name, column in zip(ORIGIN, COORDINATES, strict=True)
            for part in (f.lit(name), f.col(column).cast("string"))
        )
    )
    ordered = frame.repartition(tasks, "topic", "brokerName", "queueId").sortWithinPartitions(
        "topic", "brokerName", "queueId", "queueOffset"
    )
    own = f.map_filter("properties", lambda name, _value: ~name.isin(*ORIGIN))
    rows = ordered.select(
        (f.col("target") if target is None else f.lit(target)).alias("topic"),
        "body",
        "tags",
        "keys",
        "queueId",
        f.concat_ws(":", *COORDINATES).alias("originId"),
        f.map_concat(own, origin).alias("properties"),
    )
    settings = {
        "nameServer": name_server,
        "idColumn": "originId",
        "rateTasks": str(tasks),
        **account_of(options),
    }
    if rate is not None:
        settings["rate"] = str(rate)
    rows.write.format("rocketmq").mode("append").options(**settings).save()


COORDINATES = ("topic", "brokerName", "queueId", "queueOffset")
