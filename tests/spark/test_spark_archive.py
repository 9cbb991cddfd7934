"""Archives beyond the plain ones: Delta tables, compaction, decoded bodies, errors with a remedy."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from spark_kit import RunningBroker

from cometmq.errors import ClientError, ConfigError

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

LIMIT = {"maxOffsetsPerTrigger": "40"}
IN_TWO_HOURS_MS = 2 * 3_600_000


def forget_last_commit(checkpoint: Path) -> None:
    """As if the driver had died before Spark noted the last batch as done."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


def in_two_hours() -> int:
    from cometmq.clock import now_ms

    return now_ms() + IN_TWO_HOURS_MS


def wanted(count: int) -> list[bytes]:
    return sorted(b"body-%d" % number for number in range(count))


def test_delta_archive_is_exactly_once_and_compacts(
    broker: RunningBroker, topic: str, spark: Any, tmp_path: Path
) -> None:
    deltalake = pytest.importorskip("deltalake", reason="pip install 'cometmq[delta]'")
    from cometmq.spark.pipes import archive, compact_archive, replay, verify_archive

    def bodies() -> list[bytes]:
        table = deltalake.DeltaTable(str(root)).to_pyarrow_table(columns=["topic", "body"])
        assert set(table.column("topic").to_pylist()) == {topic}
        return sorted(table.column("body").to_pylist())

    root = tmp_path / "lake"
    broker.fill(topic, 100)
    result = archive(spark, broker.name_server, [topic], root, format="delta", options=LIMIT)
    assert (result.rows, result.batches) == (100, 3)
    assert bodies() == wanted(100)
    forget_last_commit(root / "_checkpoint")  # the table has the batch, Spark brings it again
    again = archive(spark, broker.name_server, [topic], root, format="delta", options=LIMIT)
    assert (again.rows, again.skipped_batches) == (0, 1)
    assert bodies() == wanted(100)

    assert compact_archive(root).merged == 0  # the hour is not over
    done = compact_archive(root, clock=in_two_hours)
    assert (done.merged, done.rows) == (4, 100)
    assert bodies() == wanted(100)
    assert verify_archive(root) == []
    assert replay(spark, broker.name_server, topic, from_archive=root, dry_run=True)["messages"] == 100

    broker.fill(topic, 8, first=100)
    archive(spark, broker.name_server, [topic], root, format="delta")
    assert bodies() == wanted(108)
    assert verify_archive(root) == []
    with pytest.raises(ConfigError, match="of the format delta: say --format delta"):
        archive(spark, broker.name_server, [topic], root)
    shutil.rmtree(root / "_checkpoint")
    with pytest.raises(ClientError, match="written by another query: its checkpoint was removed"):
        archive(spark, broker.name_server, [topic], root, format="delta")


def test_compacted_archive_goes_on_and_is_whole(
    broker: RunningBroker, topic: str, spark: Any, tmp_path: Path
) -> None:
    from cometmq.spark.pipes import archive, compact_archive, replay, verify_archive

    root = tmp_path / "lake"
    broker.fill(topic, 100)
    lags: list[int] = []
    archive(spark, broker.name_server, [topic], root, options=LIMIT, on_lag=lags.append)
    assert lags == [60, 20, 0]
    done = compact_archive(root, clock=in_two_hours)
    assert (done.merged, done.replaced, done.rows) == (4, 12, 100)
    assert len(list(root.glob("topic=*/date=*/*.parquet"))) == 4
    broker.fill(topic, 8, first=100)
    assert archive(spark, broker.name_server, [topic], root).rows == 8
    assert verify_archive(root) == []
    rows = spark.read.option("basePath", str(root)).parquet(f"{root}/topic=*").collect()
    assert sorted(bytes(row.body) for row in rows) == wanted(108)
    assert replay(spark, broker.name_server, topic, from_archive=root, dry_run=True)["messages"] == 108


def test_variant_of_any_json(broker: RunningBroker, topic: str, spark: Any, tmp_path: Path) -> None:
    from cometmq.spark.pipes import archive, compact_archive

    root = tmp_path / "lake"
    bodies = (b'{"id": 7, "items": [1, 2]}', b"not json", b'"text"', b'{"id": 8}')
    for body in bodies:
        broker.send(topic, body)
    archive(spark, broker.name_server, [topic], root, decode="variant", options={"maxOffsetsPerTrigger": "2"})

    def ids() -> list[tuple[bytes, int | None]]:
        frame = spark.read.parquet(f"{root}/topic=*").orderBy("queueOffset")
        assert frame.schema["value"].dataType.simpleString() == "variant"
        picked = frame.selectExpr("body", "try_variant_get(value, '$.id', 'int') as id")
        return [(bytes(row.body), row.id) for row in picked.collect()]

    expected = list(zip(bodies, (7, None, None, 8), strict=True))
    assert ids() == expected
    assert compact_archive(root, clock=in_two_hours).merged == 1
    assert ids() == expected


def test_schema_comes_from_a_sample_and_stays(
    broker: RunningBroker, topic: str, spark: Any, tmp_path: Path
) -> None:
    from cometmq.spark.pipes import archive

    root = tmp_path / "lake"
    broker.send(topic, b"[]")
    with pytest.raises(ConfigError, match="no JSON objects to take a schema from"):
        archive(spark, broker.name_server, [topic], root, decode="json", schema="sample")
    broker.send(topic, b'{"id": 7, "name": "x"}')
    archive(spark, broker.name_server, [topic], root, decode="json", schema="sample")
    broker.send(topic, b'{"id": 8, "colour": "red"}')
    archive(spark, broker.name_server, [topic], root, decode="json")  # the schema of the first run
    rows = spark.read.parquet(f"{root}/topic=*").orderBy("queueOffset").collect()
    assert [row.value and row.value.asDict() for row in rows][1:] == [
        {"id": 7, "name": "x"},
        {"id": 8, "name": None},
    ]


def test_errors_are_sentences(broker: RunningBroker, topic: str, spark: Any, tmp_path: Path) -> None:
    from cometmq.spark.pipes import archive, replay
    from cometmq.spark.pipes.failures import plain_failures

    with pytest.raises(ClientError) as failure:
        archive(spark, broker.name_server, [f"{topic}-none"], tmp_path / "lake")
    assert "\n" not in str(failure.value)
    assert f"{topic}-none" in str(failure.value)
    broker.fill(topic, 1)
    with pytest.raises(ClientError, match=r"colour.*Spark: UNRESOLVED_COLUMN"), plain_failures():
        replay(spark, broker.name_server, topic, from_topic=topic, where="colour = 1", dry_run=True)
