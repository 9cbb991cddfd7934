"""What an archive makes of bodies: nothing (raw), columns by a schema (json), or a value of any shape (variant).

The body itself is always kept; ``value`` is null where it cannot be read.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cometmq.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DECODES = ("raw", "json", "variant")
SAMPLE = "sample"
SAMPLE_ROWS = 1000
SCHEMA_NOTE = "_schema.json"  # the schema that a sample gave: runs that continue an archive use the same one


def check_decode(decode: str, schema: str | None, kind: str, root: Path) -> None:
    """Refuse what cannot be, before Spark starts anything."""
    if decode not in DECODES:
        raise ConfigError(f"decode is {decode!r}; it may be {', '.join(DECODES)}.")
    if decode == "json" and schema is None and not (root / SCHEMA_NOTE).exists():
        raise ConfigError(
            "decode=json needs a schema: 'id bigint, name string', @FILE with such a text or with JSON of a schema, or "
            f"{SAMPLE!r} to take it from the first {SAMPLE_ROWS} messages."
        )
    if decode != "json" and schema is not None:
        raise ConfigError(f"A schema goes with decode=json, not with {decode}.")
    if decode == "variant" and kind == "delta":
        raise ConfigError(
            "The package deltalake writes no variants: take --format parquet, or --decode json with a schema."
        )


def decoded(
    spark: SparkSession,
    frame: DataFrame,
    decode: str,
    schema: str | None,
    root: Path,
    sample: Callable[[], DataFrame],
) -> DataFrame:
    """The frame with its column ``value``. ``sample`` gives messages to look at."""
    from pyspark.sql import functions as f

    text = f.col("body").cast("string")
    if decode == "variant":
        return frame.withColumn("value", f.try_parse_json(text))
    if decode == "json":
        return frame.withColumn("value", f.from_json(text, _schema(spark, schema, root, sample)))
    return frame


def _schema(spark: SparkSession, schema: str | None, root: Path, sample: Callable[[], DataFrame]) -> Any:
    from pyspark.sql.types import StructType

    note = root / SCHEMA_NOTE
    if schema in (None, SAMPLE) and note.exists():
        return StructType.fromJson(json.loads(note.read_text("utf-8")))
    if schema == SAMPLE:
        found = _sampled(spark, sample())
        note.write_text(found.json(), "utf-8")
        return found
    assert schema is not None
    text = read_schema(schema)
    return StructType.fromJson(json.loads(text)) if text.startswith("{") else text


def read_schema(schema: str) -> str:
    """The text, or with @ the text of the file."""
    if not schema.startswith("@"):
        return schema
    try:
        return Path(schema[1:]).read_text("utf-8").strip()
    except OSError as error:
        raise ConfigError(f"The schema file {schema[1:]} cannot be read: {error.strerror}.") from error


def _sampled(spark: SparkSession, frame: DataFrame) -> Any:
    rows = frame.select(frame.body.cast("string").alias("text")).take(SAMPLE_ROWS)
    texts = [row.text for row in rows if row.text]
    found = spark.read.json(spark.sparkContext.parallelize(texts, 1)).schema if texts else None
    names = [] if found is None else [name for name in found.names if name != "_corrupt_record"]
    if found is None or not names:
        raise ConfigError(
            f"The first {len(rows)} messages have no JSON objects to take a schema from: give the schema, or "
            "archive raw."
        )
    from pyspark.sql.types import StructType

    return StructType([found[name] for name in names])
