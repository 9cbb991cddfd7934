"""Archives as Delta tables, through the package deltalake: no jar, exactly once by the table's own transactions.

Tasks write the same files as for Parquet; the driver moves them and commits them together with the number of the batch
as the table's application transaction. A batch whose number the table has is never written again. File names tell the
offsets here too.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from cometmq.errors import ConfigError
from cometmq.spark.pipes.archive_files import (
    DELTA_LOG,
    STAGING,
    ArchiveFile,
    Manifest,
    parse_path,
    place,
    write_manifest,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

APP_ID = "cometmq-archive"
PARTITIONS = ["topic", "date"]


def check_installed() -> None:
    try:
        import deltalake  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "The format delta needs the package deltalake: pip install 'cometmq[delta]'."
        ) from error


def table_of(root: Path) -> DeltaTable | None:
    check_installed()
    from deltalake import DeltaTable

    return DeltaTable(str(root)) if (root / DELTA_LOG).is_dir() else None


def is_committed(root: Path, batch_id: int, query_id: str) -> bool:
    """The table has the batch. Raises if it belongs to another checkpoint: its numbers would mean other messages."""
    table = table_of(root)
    if table is None:
        return False
    if table.metadata().description != _description(query_id):
        raise ConfigError(
            f"The table {root} was written by another query: its checkpoint was removed. Archive to another directory, "
            "or bring the checkpoint back."
        )
    version = table.transaction_version(APP_ID)
    return version is not None and version >= batch_id


def _description(query_id: str) -> str:
    return f"CometMQ archive, query {query_id}"


def commit_batch(root: Path, manifest: Manifest) -> None:
    """Move the files, commit them with the batch number, note the batch for people."""
    from deltalake import CommitProperties, Transaction

    schema = _schema(manifest.files)
    place(root, manifest)
    if schema is not None:
        table = table_of(root) or _create(root, schema, manifest.query_id)
        _check_columns(root, table, schema)
        transaction = Transaction(APP_ID, manifest.batch_id)
        table.create_write_transaction(
            [_added(file, file.path(manifest.batch_id)) for file in manifest.files],
            "append",
            schema,
            partition_by=PARTITIONS,
            commit_properties=CommitProperties(app_transactions=[transaction]),
        )
    write_manifest(root, manifest)
    shutil.rmtree(root / STAGING / str(manifest.batch_id), ignore_errors=True)


def _schema(files: Iterable[ArchiveFile]) -> pa.Schema | None:
    """Of the table: that of the files, and what their directories say."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    for file in files:
        found = parquet.read_schema(file.staged).remove_metadata()
        return pa.schema([*found, *(pa.field(name, pa.string()) for name in PARTITIONS)])
    return None


def _create(root: Path, schema: pa.Schema, query_id: str) -> DeltaTable:
    from deltalake import DeltaTable

    return DeltaTable.create(
        str(root), schema, partition_by=PARTITIONS, name=APP_ID, description=_description(query_id)
    )


def _check_columns(root: Path, table: DeltaTable, schema: pa.Schema) -> None:
    known = {field.name for field in table.schema().fields}
    if known != set(schema.names):
        different = ", ".join(sorted(known ^ set(schema.names)))
        raise ConfigError(
            f"The table {root} has other columns ({different}): archive with the same --decode as before, or to "
            "another directory."
        )


def _added(file: ArchiveFile, path: str, *, data_change: bool = True) -> Any:
    from deltalake.transaction import AddAction

    lowest: dict[str, object] = {"queueId": file.queue_id, "queueOffset": file.start}
    highest: dict[str, object] = {"queueId": file.queue_id, "queueOffset": file.end - 1}
    if file.last_ms:
        lowest["storeTimestamp"], highest["storeTimestamp"] = _iso(file.first_ms), _iso(file.last_ms)
    stats = {"numRecords": file.rows, "minValues": lowest, "maxValues": highest, "nullCount": {}}
    values = {"topic": file.topic, "date": file.date}
    return AddAction(path, file.size, values, _now_ms(), data_change, json.dumps(stats))


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def table_files(root: Path) -> dict[str, ArchiveFile]:
    """The files of the table's newest version that we wrote, by their paths."""
    import pyarrow as pa

    table = table_of(root)
    assert table is not None
    files: dict[str, ArchiveFile] = {}
    for row in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        path = unquote(row["path"])
        found = parse_path(path)
        if found is None:
            continue
        topic, broker, queue_id, start, end = found
        files[path] = ArchiveFile(
            topic=topic,
            date=row["partition.date"],
            broker=broker,
            queue_id=queue_id,
            start=start,
            end=end,
            rows=row["num_records"],
            size=row["size_bytes"],
            first_ms=_ms(row.get("min.storeTimestamp")),
            last_ms=_ms(row.get("max.storeTimestamp")),
        )
    return files


def _ms(moment: datetime | None) -> int:
    return 0 if moment is None else round(moment.timestamp() * 1000)


def commit_merge(root: Path, inputs: dict[str, ArchiveFile], merged: ArchiveFile, path: str) -> None:
    """Swap files in one commit. Readers of older versions still find the old ones, until vacuum takes them."""
    from deltalake.transaction import RemoveAction

    table = table_of(root)
    assert table is not None
    actions: list[Any] = [_added(merged, path, data_change=False)]
    for name, file in inputs.items():
        values: dict[str, str | None] = {"topic": file.topic, "date": file.date}
        actions.append(RemoveAction(name, False, _now_ms(), file.size, values))
    table.create_write_transaction(actions, "append", table.schema(), partition_by=PARTITIONS)


def vacuum(root: Path) -> None:
    """Delete files that left the table longer ago than the table's retention (a week unless set)."""
    table = table_of(root)
    assert table is not None
    table.vacuum(dry_run=False)
