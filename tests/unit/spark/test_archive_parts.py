"""Files and notes of an archive, without Spark: names, what counts, merges that die half-way, Delta commits."""

from __future__ import annotations

import doctest
import importlib
from dataclasses import replace
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow", reason="pip install 'cometmq[spark]'")
pytest.importorskip("pyspark", reason="pip install 'cometmq[spark]'")

import pyarrow.parquet as parquet  # noqa: E402

from cometmq.errors import ConfigError, StoreError  # noqa: E402
from cometmq.spark.pipes import archive_compact, compact_archive, verify_archive  # noqa: E402
from cometmq.spark.pipes.archive_compact import HOUR_MS, plan_merges  # noqa: E402
from cometmq.spark.pipes.archive_files import (  # noqa: E402
    ArchiveFile,
    Manifest,
    check_format,
    format_of,
    live_files,
    parse_path,
    publish,
)

TOPIC = "%DLQ%a/b"
NOON_MS = 1_767_268_800_000
LATER_MS = NOON_MS + 3 * HOUR_MS
SCHEMA = pa.schema(
    [("queueId", pa.int32()), ("queueOffset", pa.int64()), ("storeTimestamp", pa.timestamp("us", tz="UTC"))]
)


def staged_file(root: Path, start: int, end: int, *, queue_id: int = 0, at_ms: int = NOON_MS) -> ArchiveFile:
    """A file as a task writes it: one message a millisecond."""
    offsets = range(start, end)
    table = pa.table(
        {
            "queueId": [queue_id] * len(offsets),
            "queueOffset": list(offsets),
            "storeTimestamp": [(at_ms + n) * 1000 for n in range(len(offsets))],
        },
        schema=SCHEMA,
    )
    path = root / "_staging" / f"{queue_id}-{start}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, path)
    last_ms = at_ms + len(offsets) - 1
    return ArchiveFile(
        TOPIC,
        "2026-01-01",
        "b-1",
        queue_id,
        start,
        end,
        len(offsets),
        path.stat().st_size,
        str(path),
        at_ms,
        last_ms,
    )


def make_archive(root: Path, *ranges: tuple[int, int]) -> None:
    for batch_id, (start, end) in enumerate(ranges):
        publish(root, Manifest(batch_id, "q", [staged_file(root, start, end)]))


def offsets_in(root: Path) -> list[int]:
    tables = [parquet.ParquetFile(root / path).read(columns=["queueOffset"]) for path in live_files(root)]
    return sorted(pa.concat_tables(tables).column("queueOffset").to_pylist())


@pytest.mark.parametrize("name", ["archive", "archive_files", "archive_proof", "archive_writer"])
def test_examples_of_archives_hold(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"cometmq.spark.pipes.{name}"))
    assert tried
    assert not failed


def test_paths_tell_what_is_inside(tmp_path: Path) -> None:
    file = staged_file(tmp_path, 3, 9, queue_id=2)
    assert parse_path(file.path(7)) == (TOPIC, "b-1", 2, 3, 9)
    assert parse_path(file.path("m7")) == (TOPIC, "b-1", 2, 3, 9)
    assert parse_path("topic=t/date=d/part-0001.parquet") is None


def test_only_neighbours_of_an_hour_that_is_over_are_merged(tmp_path: Path) -> None:
    one = staged_file(tmp_path, 0, 5)
    files = {
        "a": one,
        "b": replace(one, start=5, end=9),
        "gap": replace(one, start=10, end=12),
        "next hour": replace(one, start=12, end=14, first_ms=NOON_MS + HOUR_MS, last_ms=NOON_MS + HOUR_MS),
        "other queue": replace(one, queue_id=1, start=5, end=9),
        "open": replace(one, start=14, end=15, first_ms=LATER_MS, last_ms=LATER_MS),
    }
    assert plan_merges(files, LATER_MS) == [["a", "b"]]
    assert plan_merges(files, NOON_MS) == []
    assert plan_merges(files, LATER_MS, size_max=one.size) == []


def test_merged_archive_has_the_same_messages(tmp_path: Path) -> None:
    make_archive(tmp_path, (0, 5), (5, 9), (9, 20))
    assert compact_archive(tmp_path, clock=lambda: NOON_MS).merged == 0
    done = compact_archive(tmp_path, clock=lambda: LATER_MS)
    assert (done.merged, done.replaced, done.rows) == (1, 3, 20)
    assert offsets_in(tmp_path) == list(range(20))
    assert verify_archive(tmp_path) == []
    publish(tmp_path, Manifest(3, "q", [staged_file(tmp_path, 20, 30)]))
    assert compact_archive(tmp_path, clock=lambda: LATER_MS).replaced == 2  # the merged one is merged again
    assert offsets_in(tmp_path) == list(range(30))
    assert verify_archive(tmp_path) == []
    assert compact_archive(tmp_path, clock=lambda: LATER_MS).merged == 0


@pytest.mark.parametrize("step", ["write_note", "finish_merge"])
def test_merge_that_dies_half_way_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    make_archive(tmp_path, (0, 5), (5, 9), (9, 20))

    def die(*_arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(archive_compact, step, die)
        with pytest.raises(KeyboardInterrupt):
            compact_archive(tmp_path, clock=lambda: LATER_MS)
    assert offsets_in(tmp_path) == list(range(20))
    assert verify_archive(tmp_path) == []
    compact_archive(tmp_path, clock=lambda: LATER_MS)
    assert len(list(tmp_path.glob("topic=*/date=*/*.parquet"))) == 1
    assert offsets_in(tmp_path) == list(range(20))
    assert verify_archive(tmp_path) == []


def test_merge_that_died_between_move_and_deletions_is_finished(tmp_path: Path) -> None:
    make_archive(tmp_path, (0, 5), (5, 9))
    kept = {path: path.read_bytes() for path in tmp_path.glob("topic=*/date=*/*.parquet")}
    compact_archive(tmp_path, clock=lambda: LATER_MS)
    for path, data in kept.items():
        path.write_bytes(data)
    assert verify_archive(tmp_path) == []
    assert not any(path.exists() for path in kept)


def test_two_compactions_at_once_are_refused(tmp_path: Path) -> None:
    make_archive(tmp_path, (0, 5), (5, 9))

    def clock_that_compacts() -> int:
        with pytest.raises(ConfigError, match="Another compaction"):
            compact_archive(tmp_path)
        return LATER_MS

    assert compact_archive(tmp_path, clock=clock_that_compacts).merged == 1


def test_files_with_other_columns_stay(tmp_path: Path) -> None:
    make_archive(tmp_path, (0, 5), (5, 9))
    path = max(tmp_path.glob("topic=*/date=*/*.parquet"))
    table = parquet.ParquetFile(path).read()
    parquet.write_table(table.append_column("value", pa.array(["x"] * table.num_rows)), path)
    assert compact_archive(tmp_path, clock=lambda: LATER_MS).merged == 0
    assert verify_archive(tmp_path) == []


def test_other_directories_and_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is no archive"):
        compact_archive(tmp_path)
    with pytest.raises(StoreError, match="is no archive"):
        verify_archive(tmp_path)
    check_format(tmp_path, "delta")
    make_archive(tmp_path, (0, 5))
    with pytest.raises(ConfigError, match="of the format parquet: say --format parquet"):
        check_format(tmp_path, "delta")
    with pytest.raises(ConfigError, match="not 'orc'"):
        check_format(tmp_path, "orc")


def test_delta_table_has_a_batch_once_and_swaps_merged_files(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="pip install 'cometmq[delta]'")
    from cometmq.spark.pipes.archive_delta import commit_batch, is_committed

    assert not is_committed(tmp_path, 0, "q")
    for batch_id, (start, end) in enumerate([(0, 5), (5, 9), (9, 20)]):
        commit_batch(tmp_path, Manifest(batch_id, "q", [staged_file(tmp_path, start, end)]))
    assert format_of(tmp_path) == "delta"
    assert [is_committed(tmp_path, batch_id, "q") for batch_id in range(4)] == [True, True, True, False]
    with pytest.raises(ConfigError, match="written by another query"):
        is_committed(tmp_path, 3, "another")
    assert compact_archive(tmp_path, clock=lambda: LATER_MS).replaced == 3
    table = deltalake.DeltaTable(str(tmp_path))
    assert len(table.file_uris()) == 1
    rows = table.to_pyarrow_table()
    assert sorted(rows.column("queueOffset").to_pylist()) == list(range(20))
    assert set(rows.column("topic").to_pylist()) == {TOPIC}
    assert verify_archive(tmp_path) == []
    assert is_committed(tmp_path, 2, "q")  # the merge has not forgotten the batches


def test_missing_variants_are_written(tmp_path: Path) -> None:
    from cometmq.spark.pipes.archive_writer import with_filled_variants

    parts = [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False),
    ]
    values = pa.array([b"1", None, b"2"]), pa.array([b"m", None, b"m"])
    column = pa.StructArray.from_arrays(values, fields=parts, mask=pa.array([False, True, False]))
    rows = pa.table({"n": [1, 2, 3], "value": column})
    parquet.write_table(with_filled_variants(rows), tmp_path / "f.parquet")
    found = parquet.read_table(tmp_path / "f.parquet").column("value").to_pylist()
    assert found == [{"value": b"1", "metadata": b"m"}, None, {"value": b"2", "metadata": b"m"}]
    assert not any(part.nullable for part in parquet.read_schema(tmp_path / "f.parquet").field("value").type)
