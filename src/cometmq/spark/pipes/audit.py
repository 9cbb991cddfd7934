"""Audit: what was sent, stored and consumed, from the trace topic and the topic itself.

Only traced clients leave records, and tracing drops records rather than stop work: a difference says where to look, the
store says what is there. Fields of a record are split by U+0001, records by U+0002 (see client/trace.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cometmq.protocol.names import TRACE_TOPIC
from cometmq.spark.loading import load
from cometmq.spark.pipes.topics import need_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PERCENTILES = (0.5, 0.95, 0.99)
EXAMPLES_MAX = 10
NO_TRACE = "No client has sent trace records yet: Client(..., trace=True), in Java enableMsgTrace."


@dataclass(frozen=True, slots=True)
class GroupAudit:
    """What one group did with the messages of the topic."""

    group: str
    consumed: int  # different messages
    deliveries: int
    failed_deliveries: int
    unconsumed: int  # stored, and never consumed with success
    latency_ms: list[float]  # from birth to the end of the successful delivery, for PERCENTILES
    lag: list[tuple[int, int]]  # second since 1970, messages stored and not consumed then


@dataclass(frozen=True, slots=True)
class Audit:
    topic: str
    sent: int
    failed_sends: int
    stored: int
    lost: int  # sent with success, not stored
    duplicates: int  # ids that are stored more than once
    send_ms: list[float]  # cost of a send, for PERCENTILES
    lost_examples: list[str] = field(default_factory=list)
    groups: list[GroupAudit] = field(default_factory=list)


def audit(
    spark: SparkSession,
    name_server: str,
    topic: str,
    *,
    trace_topic: str = TRACE_TOPIC,
    options: Mapping[str, str] | None = None,
) -> Audit:
    """Compare the trace of a topic with its messages."""
    from pyspark.sql import functions as f

    need_topic(name_server, trace_topic, options, NO_TRACE)
    records = trace_records(_read(spark, name_server, trace_topic, options)).cache()
    stored = (
        _read(spark, name_server, topic, options).select("msgId", "bornTimestamp", "storeTimestamp").cache()
    )
    sends = _sends(records).where(f.col("topic") == topic).cache()
    good = sends.where("ok").select("msgId").distinct()
    lost = good.join(stored, "msgId", "left_anti")
    doubled = stored.where("msgId is not null").groupBy("msgId").count().where("count > 1")
    deliveries = _deliveries(records).join(stored.select("msgId").distinct(), "msgId", "left_semi").cache()
    groups = sorted(row.group for row in deliveries.select("group").distinct().collect())
    return Audit(
        topic=topic,
        sent=good.count(),
        failed_sends=sends.where("not ok").count(),
        stored=stored.count(),
        lost=lost.count(),
        duplicates=doubled.count(),
        send_ms=_percentiles(sends, "cost"),
        lost_examples=[row.msgId for row in lost.limit(EXAMPLES_MAX).collect()],
        groups=[_group_audit(group, deliveries.where(f.col("group") == group), stored) for group in groups],
    )


def _read(spark: SparkSession, name_server: str, topic: str, options: Mapping[str, str] | None) -> DataFrame:
    settings = {"nameServer": name_server, "subscribe": topic, **(options or {})}
    return load(spark, "rocketmq", **settings)


def trace_records(frame: DataFrame) -> DataFrame:
    """One row a record, with its fields as an array ``fields``."""
    from pyspark.sql import functions as f

    texts = f.explode(f.split(f.col("body").cast("string"), "\x02"))
    return (
        frame.select(texts.alias("text")).where("text <> ''").select(f.split("text", "\x01").alias("fields"))
    )


def _sends(records: DataFrame) -> DataFrame:
    """Pub: type, time, region, group, topic, id, tag, keys, host, size, cost, kind, offset id, success."""
    return records.where("fields[0] = 'Pub' and size(fields) >= 14").selectExpr(
        "cast(fields[1] as bigint) as bornMs",
        "fields[4] as topic",
        "fields[5] as msgId",
        "cast(fields[10] as bigint) as cost",
        "fields[13] = 'true' as ok",
    )


def _deliveries(records: DataFrame) -> DataFrame:
    """SubAfter: type, request, id, cost, success, keys, code, time, group."""
    return records.where("fields[0] = 'SubAfter' and size(fields) >= 9").selectExpr(
        "fields[2] as msgId",
        "fields[4] = 'true' as ok",
        "cast(fields[7] as bigint) as endMs",
        "fields[8] as group",
    )


def _percentiles(frame: DataFrame, column: str) -> list[float]:
    from pyspark.sql import functions as f

    found = frame.agg(f.percentile_approx(column, list(PERCENTILES)).alias("p")).collect()[0].p
    return [float(value) for value in found or ()]


def _group_audit(group: str, deliveries: DataFrame, stored: DataFrame) -> GroupAudit:
    from pyspark.sql import functions as f

    done = deliveries.where("ok").groupBy("msgId").agg(f.min("endMs").alias("endMs")).cache()
    born = stored.groupBy("msgId").agg(
        f.min("bornTimestamp").alias("born"), f.min("storeTimestamp").alias("stored")
    )
    latency = done.join(born, "msgId").select((f.col("endMs") - f.unix_millis("born")).alias("latency"))
    return GroupAudit(
        group=group,
        consumed=done.count(),
        deliveries=deliveries.count(),
        failed_deliveries=deliveries.where("not ok").count(),
        unconsumed=born.join(done, "msgId", "left_anti").count(),
        latency_ms=_percentiles(latency, "latency"),
        lag=_lag_history(
            born.select(f.unix_millis("stored").alias("ms")), done.select(f.col("endMs").alias("ms"))
        ),
    )


def _lag_history(stored: DataFrame, done: DataFrame) -> list[tuple[int, int]]:
    """Stored minus consumed at the end of every second in which something happened."""
    from pyspark.sql import functions as f

    changes = stored.withColumn("change", f.lit(1)).unionAll(done.withColumn("change", f.lit(-1)))
    rows: list[Any] = (
        changes.groupBy(f.floor(f.col("ms") / 1000).alias("second"))
        .agg(f.sum("change").alias("change"))
        .collect()
    )
    history: list[tuple[int, int]] = []
    lag = 0
    for row in sorted(rows, key=lambda row: row.second):
        lag += row.change
        history.append((int(row.second), lag))
    return history
