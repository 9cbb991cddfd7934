"""Dead letters: what is in ``%DLQ%group`` and why, export, and sending chosen ones back to where they came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cometmq.errors import ClientError, TopicNotFound
from cometmq.protocol.names import DLQ_PREFIX
from cometmq.spark.cluster import Cluster
from cometmq.spark.fence import ids_in
from cometmq.spark.loading import load
from cometmq.spark.offsets import ranges_between
from cometmq.spark.options import ClusterOptions, ReadOptions
from cometmq.spark.pipes.replay import COORDINATES, send
from cometmq.spark.pipes.topics import account_of, need_topic
from cometmq.spark.pulls import RangeReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class RedriveResult:
    """What became of each message: its id and the topic it was sent to."""

    delivered: list[tuple[str, str]]


def dead_letters(
    spark: SparkSession, name_server: str, group: str, options: Mapping[str, str] | None = None
) -> DataFrame:
    """The dead letters of a group with the column ``originTopic``, for SQL of your own."""
    from pyspark.sql import functions as f

    topic = f"{DLQ_PREFIX}{group}"
    need_topic(name_server, topic, options, f"The group {group} has no dead letters, or its name is another.")
    settings = {"nameServer": name_server, "subscribe": topic, **(options or {})}
    frame = load(spark, "rocketmq", **settings)
    origin = f.coalesce(f.col("properties")["RETRY_TOPIC"], f.col("properties")["REAL_TOPIC"], f.lit(None))
    return frame.withColumn("originTopic", origin)


def analyse_dlq(
    spark: SparkSession, name_server: str, group: str, options: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Counts and times by origin topic, tag and number of retries, the most frequent first."""
    from pyspark.sql import functions as f

    try:
        frame = dead_letters(spark, name_server, group, options)
    except TopicNotFound:  # made by the first dead letter: a watch from the beginning is no mistake
        return []
    rows = (
        frame.groupBy("originTopic", "tags", "reconsumeTimes")
        .agg(
            f.count("*").alias("messages"),
            f.min("storeTimestamp").alias("first"),
            f.max("storeTimestamp").alias("last"),
            f.min("keys").alias("exampleKeys"),
        )
        .orderBy(f.desc("messages"), "originTopic", "tags")
        .collect()
    )
    return [row.asDict() for row in rows]


def export_dlq(
    spark: SparkSession,
    name_server: str,
    group: str,
    target: str | Path,
    *,
    where: str | None = None,
    options: Mapping[str, str] | None = None,
) -> int:
    """Write dead letters as JSON lines with the body as text; the number of them."""
    from pyspark.sql import functions as f

    frame = dead_letters(spark, name_server, group, options)
    frame = frame if where is None else frame.where(where)
    frame = frame.withColumn("body", f.col("body").cast("string")).cache()
    frame.write.mode("errorifexists").json(str(target))
    return frame.count()


def redrive_dlq(
    spark: SparkSession,
    name_server: str,
    group: str,
    *,
    where: str | None = None,
    rate: float | None = None,
    options: Mapping[str, str] | None = None,
) -> RedriveResult:
    """Send dead letters to their origin topics and look them up there. Raises unless every one is found."""
    from pyspark.sql import functions as f

    frame = dead_letters(spark, name_server, group, options)
    frame = (frame if where is None else frame.where(where)).withColumn("target", f.col("originTopic"))
    ids = f.concat_ws(":", *COORDINATES)
    wanted = [(row.id, row.target) for row in frame.select(ids.alias("id"), "target").collect()]
    homeless = sum(target is None for _, target in wanted)
    if homeless:
        raise ClientError(
            f"{homeless} of {len(wanted)} dead letters do not say which topic they came from; leave them out with "
            "where='originTopic is not null'. Nothing was sent."
        )
    watch = _Watch(name_server, {target for _, target in wanted}, options or {})
    if wanted:
        send(frame, name_server, None, 1, rate, options or {})
    arrived = watch.arrived()
    missing = [pair for pair in wanted if pair not in arrived]
    if missing:
        shown = ", ".join(f"{message_id} to {target}" for message_id, target in missing[:5])
        raise ClientError(f"{len(missing)} of {len(wanted)} dead letters did not arrive: {shown}.")
    return RedriveResult(wanted)


class _Watch:
    """The ids that come to some topics from now on."""

    def __init__(self, name_server: str, topics: set[str], options: Mapping[str, str]) -> None:
        settings = {"nameServer": name_server, **account_of(options)}
        self._settings = settings
        self._cluster = Cluster(ClusterOptions.parse(settings))
        self._routes = {topic: self._cluster.route(topic) for topic in topics}
        self._starts = {topic: self._ends(topic) for topic in topics}

    def _ends(self, topic: str) -> dict[Any, int]:
        bounds = self._cluster.bounds(topic, self._routes[topic])
        return {queue: found.max_offset for queue, found in bounds.items()}

    def arrived(self) -> set[tuple[str, str]]:
        found: set[tuple[str, str]] = set()
        for topic, route in self._routes.items():
            options = ReadOptions.parse({**self._settings, "subscribe": topic})
            reader = RangeReader(
                options, route.addresses, ranges_between(self._starts[topic], self._ends(topic))
            )
            found |= {(message_id, topic) for message_id in ids_in(reader)}
        return found
