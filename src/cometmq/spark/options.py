"""The options of sources and sink: names, defaults, checks. An unknown name is an error that suggests the nearest one.

Option names are not case-sensitive, as always in Spark. Needs neither Spark nor a network.
"""

# ruff: noqa: RUF009 (option() makes a dataclass field)

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from cometmq.errors import ConfigError
from cometmq.properties_file import nearest
from cometmq.spark import option_values as values
from cometmq.spark.option_values import Offsets

MIB = 1 << 20
IN_FLIGHT_MAX = 256
# Options that Spark hands on to a source or sink although they are its own.
SPARK_OWN = frozenset(("path", "checkpointlocation", "queryname", "partitionoverwritemode"))


def option(
    name: str, parse: Callable[[str], Any], default: Any, *, secret: bool = False, alias: str = ""
) -> Any:
    metadata = {"name": name, "parse": parse, "secret": secret, "alias": alias}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Base: reads the fields of a subclass from Spark's options."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        texts = {name.lower(): text for name, text in given.items()}
        known = {entry.metadata["name"]: entry for entry in fields(cls)}
        aliases = {entry.metadata["alias"]: entry for entry in fields(cls) if entry.metadata["alias"]}
        folded = {name.lower(): entry for name, entry in (aliases | known).items()}
        found: dict[str, Any] = {}
        for name in given:
            entry = folded.get(name.lower())
            if entry is None:
                if name.lower() not in SPARK_OWN:
                    hint = nearest(name, aliases | known) or "."
                    raise ConfigError(f"There is no option {name!r}{hint}")
            elif entry.name not in found:
                found[entry.name] = _value(entry.metadata, texts[name.lower()])
        options = cls(**found)
        options.check()
        return options

    def check(self) -> None:
        """Raise ConfigError if the options do not go together."""

    def describe(self) -> dict[str, str]:
        """Effective values by option name, secrets hidden."""
        shown = {}
        for entry in fields(self):
            value = getattr(self, entry.name)
            if value is not None and value != ():
                shown[entry.metadata["name"]] = "(hidden)" if entry.metadata["secret"] else str(value)
        return shown


def _value(metadata: Mapping[str, Any], text: str) -> Any:
    try:
        return metadata["parse"](text)
    except ValueError as error:
        shown = "a value that is not shown" if metadata["secret"] else repr(text)
        raise ConfigError(f"The option {metadata['name']} has {shown}; expected is {error}.") from None


@dataclass(frozen=True, kw_only=True)
class ClusterOptions(Options):
    """How to reach a cluster."""

    name_server: tuple[str, ...] = option("nameServer", values.addresses, ())
    access_key: str | None = option("accessKey", values.text, None, secret=True)
    secret_key: str | None = option("secretKey", values.text, None, secret=True)
    security_token: str | None = option("securityToken", values.text, None, secret=True)
    tls: bool = option("tls", values.switch, False)

    def check(self) -> None:
        if not self.name_server:
            raise ConfigError("The option nameServer is missing: give it as host:port;host:port.")
        if (self.access_key is None) != (self.secret_key is None):
            raise ConfigError("The options accessKey and secretKey go together: give both or none.")


@dataclass(frozen=True, kw_only=True)
class ReadOptions(ClusterOptions):
    """Everything a source may be told."""

    subscribe: tuple[str, ...] = option("subscribe", values.names, (), alias="topic")
    subscribe_pattern: str | None = option("subscribePattern", values.pattern, None)
    assign: dict[str, dict[str, tuple[int, ...]]] | None = option("assign", values.assignment, None)
    tags: str = option("tags", values.text, "*")
    sql92: str | None = option("sql92", values.text, None)
    starting_offsets: str | Offsets | None = option(
        "startingOffsets", values.place("earliest", "latest", "group"), None
    )
    starting_timestamp_ms: int | None = option("startingTimestamp", values.instant_ms, None)
    starting_by_timestamp: Offsets | None = option("startingOffsetsByTimestamp", values.times, None)
    by_timestamp_strategy: str = option(
        "startingOffsetsByTimestampStrategy", values.choice("error", "latest"), "error"
    )
    ending_offsets: str | Offsets = option("endingOffsets", values.place("latest"), "latest")
    ending_timestamp_ms: int | None = option("endingTimestamp", values.instant_ms, None)
    ending_by_timestamp: Offsets | None = option("endingOffsetsByTimestamp", values.times, None)
    max_offsets_per_trigger: int | None = option("maxOffsetsPerTrigger", values.number(1), None)
    max_bytes_per_trigger: int | None = option("maxBytesPerTrigger", values.size, None)
    min_offsets_per_trigger: int | None = option("minOffsetsPerTrigger", values.number(1), None)
    max_trigger_delay_ms: int = option("maxTriggerDelay", values.duration_ms, 15 * 60_000)
    min_partitions: int | None = option("minPartitions", values.number(1, 100_000), None)
    max_records_per_partition: int | None = option("maxRecordsPerPartition", values.number(1), None)
    min_records_per_task: int = option("minRecordsPerTask", values.number(0), 10_000)
    fail_on_data_loss: bool = option("failOnDataLoss", values.switch, True)
    group: str = option("group", values.text, "SPARK_SOURCE")
    commit_offsets: bool = option("commitOffsets", values.switch, False)
    group_fallback: str = option("groupFallback", values.choice("earliest", "latest"), "earliest")
    read_from: str = option("readFrom", values.choice("auto", "master", "slave"), "auto")
    pull_batch_size: int = option("pullBatchSize", values.number(1, 100_000), 1024)
    pull_in_flight: int = option("pullInFlight", values.number(1, IN_FLIGHT_MAX), 8)
    pull_timeout_ms: int = option("pullTimeoutMs", values.number(1), 10_000)
    retries: int = option("retries", values.number(0, 1000), 3)
    offset_poll_ms: int = option("offsetPollMs", values.number(0), 100)
    metadata_refresh_ms: int = option("metadataRefreshMs", values.number(1), 30_000)
    metadata: str = option("metadata", values.choice("basic", "all"), "basic")
    decompress: bool = option("decompress", values.switch, True)
    pushdown: bool = option("pushdown", values.switch, False)

    def check(self) -> None:
        super().check()
        given = [
            name
            for name, value in (
                ("subscribe", self.subscribe),
                ("subscribePattern", self.subscribe_pattern),
                ("assign", self.assign),
            )
            if value
        ]
        if len(given) != 1:
            what = " and ".join(given) + " were given" if given else "none was given"
            raise ConfigError(f"One of the options subscribe, subscribePattern and assign is needed; {what}.")
        if self.sql92 is not None and self.tags != "*":
            raise ConfigError("The options tags and sql92 exclude each other: give one of them.")

    @property
    def is_filtered(self) -> bool:
        """The broker leaves messages out, so a range has fewer rows than offsets."""
        return self.sql92 is not None or self.tags != "*"


def tag_set(expression: str) -> frozenset[bytes] | None:
    """The tags of ``a || b``; None for all."""
    found = frozenset(tag.strip().encode() for tag in expression.split("||") if tag.strip())
    return None if not found or b"*" in found else found


@dataclass(frozen=True, kw_only=True)
class WriteOptions(ClusterOptions):
    """Everything the sink may be told."""

    topic: str | None = option("topic", values.text, None)
    send_batch_bytes: int = option("sendBatchBytes", values.size, MIB)
    send_in_flight: int = option("sendInFlight", values.number(1, IN_FLIGHT_MAX), 4)
    compress_threshold: int = option("compressThreshold", values.number(0), 4096)
    send_timeout_ms: int = option("sendTimeoutMs", values.number(1), 3000)
    retries: int = option("retries", values.number(0, 1000), 3)
    rate: float | None = option("rate", values.rate, None)
    rate_tasks: int = option("rateTasks", values.number(1, 100_000), 1)
    id_column: str | None = option("idColumn", values.text, None)
    delivery: str = option("delivery", values.choice("atLeastOnce", "exactlyOnce"), "atLeastOnce")
    group: str = option("group", values.text, "SPARK_SINK")
    checkpoint_location: str | None = option("checkpointLocation", values.text, None)

    def check(self) -> None:
        super().check()
        if self.send_batch_bytes > BATCH_BYTES_MAX:
            raise ConfigError(
                f"The option sendBatchBytes is {self.send_batch_bytes}; brokers take {BATCH_BYTES_MAX} at most."
            )


BATCH_BYTES_MAX = 4 * MIB - 64 * 1024  # bytes: below maxMessageSize, which counts the stored batch


@dataclass(frozen=True, kw_only=True)
class StoreOptions(Options):
    """Everything the scan of a store directory may be told."""

    path: str = option("path", values.text, "")
    commit_log_path: str | None = option("commitLogPath", values.text, None)
    store_read_mode: str = option("storeReadMode", values.choice("snapshot"), "snapshot")
    subscribe: tuple[str, ...] = option("subscribe", values.names, (), alias="topic")
    metadata: str = option("metadata", values.choice("basic", "all"), "basic")
    decompress: bool = option("decompress", values.switch, True)
    slice_bytes: int | None = option("sliceBytes", values.size, None)  # None: see store_slices
    check_crc: bool = option("checkCrc", values.switch, True)
    broker_name: str = option("brokerName", values.text, "")

    def check(self) -> None:
        if not self.path:
            raise ConfigError('The option path is missing: give the store directory as load("store").')


def names_of(kinds: Iterable[type[Options]]) -> list[str]:
    """All option names, for the documentation's test."""
    return sorted({entry.metadata["name"] for kind in kinds for entry in fields(kind)})
