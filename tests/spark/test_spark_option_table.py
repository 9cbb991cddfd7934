"""Every option of sources and sink: a good value, a wrong one with its sentence, and a slip of the pen."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any, NamedTuple

import pytest

from cometmq.errors import ConfigError
from cometmq.spark.options import Options, ReadOptions, StoreOptions, WriteOptions, names_of

READ = {"nameServer": "a:1", "subscribe": "t"}
WRITE = {"nameServer": "a:1"}
STORE = {"path": "store"}
NEEDED: dict[type[Options], dict[str, str]] = {ReadOptions: READ, WriteOptions: WRITE, StoreOptions: STORE}

OFFSETS = '{"t":{"b":{"0":7,"1":-1}}}'
TIMES = '{"t":{"b":{"0":1700000000000}}}'
NOT_EMPTY = "a text that is not empty"
SWITCH = "true or false"
SIZE = "a size in bytes, or like 512k, 4m"
TIME = "milliseconds since 1970, or a time like 2026-01-31T12:00:00Z"
TIME_JSON = 'JSON like {"T":{"broker-a":{"0":1767225600000}}}'
OFFSET_JSON = 'JSON like {"T":{"broker-a":{"0":100,"1":-1}}}'


class Entry(NamedTuple):
    name: str
    good: str
    value: Any
    wrong: str
    expected: str  # what the sentence says


CLUSTER_TABLE = [
    Entry("nameServer", "a:1;b:2", ("a:1", "b:2"), "a", "host:port;host:port"),
    Entry("accessKey", "k", "k", " ", NOT_EMPTY),
    Entry("secretKey", "k", "k", " ", NOT_EMPTY),
    Entry("securityToken", "k", "k", " ", NOT_EMPTY),
    Entry("tls", "TRUE", True, "1", SWITCH),
]
READ_TABLE = [
    *CLUSTER_TABLE,
    Entry("subscribe", "x, y,x", ("x", "y"), " , ", "names with commas between them"),
    Entry("subscribePattern", "x.*", "x.*", "(", "a regular expression"),
    Entry("assign", '{"t":{"b":[1,0]}}', {"t": {"b": (0, 1)}}, "[]", 'JSON like {"T":{"broker-a":[0,1]}}'),
    Entry("tags", "a || b", "a || b", " ", NOT_EMPTY),
    Entry("sql92", "a > 1", "a > 1", " ", NOT_EMPTY),
    Entry("startingOffsets", "Group", "group", "first", f"earliest, latest, group or {OFFSET_JSON}"),
    Entry("startingTimestamp", "2023-11-14T22:13:20Z", 1_700_000_000_000, "soon", TIME),
    Entry("startingOffsetsByTimestamp", TIMES, {"t": {"b": {0: 1_700_000_000_000}}}, "1", TIME_JSON),
    Entry("startingOffsetsByTimestampStrategy", "Latest", "latest", "early", "error or latest"),
    Entry("endingOffsets", OFFSETS, {"t": {"b": {0: 7, 1: -1}}}, "earliest", f"latest or {OFFSET_JSON}"),
    Entry("endingTimestamp", "1700000000000", 1_700_000_000_000, "tomorrow", TIME),
    Entry("endingOffsetsByTimestamp", TIMES, {"t": {"b": {0: 1_700_000_000_000}}}, '{"t":1}', TIME_JSON),
    Entry("maxOffsetsPerTrigger", "5", 5, "0", "a whole number from 1"),
    Entry("maxBytesPerTrigger", "8k", 8192, "0", SIZE),
    Entry("minOffsetsPerTrigger", "5", 5, "-1", "a whole number from 1"),
    Entry("maxTriggerDelay", "30s", 30_000, "5 years", "a duration like 500ms, 30s, 15m"),
    Entry("minPartitions", "2", 2, "0", "a whole number from 1 to 100000"),
    Entry("maxRecordsPerPartition", "2", 2, "1.5", "a whole number from 1"),
    Entry("minRecordsPerTask", "0", 0, "-1", "a whole number from 0"),
    Entry("failOnDataLoss", "false", False, "no", SWITCH),
    Entry("group", "G", "G", "", NOT_EMPTY),
    Entry("commitOffsets", "true", True, "yes", SWITCH),
    Entry("groupFallback", "latest", "latest", "group", "earliest or latest"),
    Entry("readFrom", "Slave", "slave", "moon", "auto or master or slave"),
    Entry("pullBatchSize", "32", 32, "0", "a whole number from 1 to 100000"),
    Entry("pullInFlight", "1", 1, "257", "a whole number from 1 to 256"),
    Entry("pullTimeoutMs", "1", 1, "0", "a whole number from 1"),
    Entry("retries", "0", 0, "many", "a whole number from 0 to 1000"),
    Entry("offsetPollMs", "0", 0, "-1", "a whole number from 0"),
    Entry("metadataRefreshMs", "1", 1, "0", "a whole number from 1"),
    Entry("metadata", "ALL", "all", "some", "basic or all"),
    Entry("decompress", "false", False, "gzip", SWITCH),
    Entry("pushdown", "true", True, "", SWITCH),
]
WRITE_TABLE = [
    *CLUSTER_TABLE,
    Entry("topic", "T", "T", " ", NOT_EMPTY),
    Entry("sendBatchBytes", "512k", 512 << 10, "big", SIZE),
    Entry("sendInFlight", "1", 1, "0", "a whole number from 1 to 256"),
    Entry("compressThreshold", "0", 0, "-1", "a whole number from 0"),
    Entry("sendTimeoutMs", "1", 1, "0", "a whole number from 1"),
    Entry("retries", "1000", 1000, "1001", "a whole number from 0 to 1000"),
    Entry("rate", "0.5", 0.5, "0", "messages a second, a number above 0"),
    Entry("rateTasks", "4", 4, "0", "a whole number from 1 to 100000"),
    Entry("idColumn", "id", "id", "", NOT_EMPTY),
    Entry("delivery", "exactlyonce", "exactlyOnce", "twice", "atLeastOnce or exactlyOnce"),
    Entry("group", "G", "G", "", NOT_EMPTY),
    Entry("checkpointLocation", "c", "c", " ", NOT_EMPTY),
]
STORE_TABLE = [
    Entry("path", "store", "store", " ", NOT_EMPTY),
    Entry("commitLogPath", "log", "log", " ", NOT_EMPTY),
    Entry("storeReadMode", "Snapshot", "snapshot", "live", "snapshot"),
    Entry("subscribe", "t", ("t",), ",", "names with commas between them"),
    Entry("metadata", "all", "all", "none", "basic or all"),
    Entry("decompress", "false", False, "no", SWITCH),
    Entry("sliceBytes", "1m", 1 << 20, "0", SIZE),
    Entry("checkCrc", "false", False, "no", SWITCH),
    Entry("brokerName", "b", "b", " ", NOT_EMPTY),
]
TABLES: dict[type[Options], list[Entry]] = {
    ReadOptions: READ_TABLE,
    WriteOptions: WRITE_TABLE,
    StoreOptions: STORE_TABLE,
}
EVERY = [
    pytest.param(kind, entry, id=f"{kind.__name__}-{entry.name}")
    for kind, table in TABLES.items()
    for entry in table
]
TOGETHER = {"accessKey": {"secretKey": "s"}, "secretKey": {"accessKey": "a"}}
ALTERNATIVES = ("subscribePattern", "assign")  # in place of subscribe


def given(kind: type[Options], entry: Entry, text: str) -> dict[str, str]:
    needed = dict(NEEDED[kind])
    if entry.name in ALTERNATIVES:
        del needed["subscribe"]
    return {**needed, **TOGETHER.get(entry.name, {}), entry.name: text}


@pytest.mark.parametrize("kind", list(TABLES))
def test_the_table_has_every_option(kind: type[Options]) -> None:
    assert sorted(entry.name for entry in TABLES[kind]) == names_of((kind,))


@pytest.mark.parametrize(("kind", "entry"), EVERY)
def test_good_value_is_taken(kind: type[Options], entry: Entry) -> None:
    options = kind.parse(given(kind, entry, entry.good))
    attribute = next(found.name for found in fields(kind) if found.metadata["name"] == entry.name)
    assert getattr(options, attribute) == entry.value


@pytest.mark.parametrize(("kind", "entry"), EVERY)
def test_wrong_value_is_named_with_what_was_expected(kind: type[Options], entry: Entry) -> None:
    secret = next(found for found in fields(kind) if found.metadata["name"] == entry.name).metadata["secret"]
    shown = "a value that is not shown" if secret else repr(entry.wrong)
    sentence = f"The option {entry.name} has {shown}; expected is {entry.expected}"
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
        kind.parse(given(kind, entry, entry.wrong))


@pytest.mark.parametrize(("kind", "entry"), EVERY)
def test_slip_of_the_pen_is_answered_with_the_right_name(kind: type[Options], entry: Entry) -> None:
    middle = len(entry.name) // 2
    slip = entry.name[:middle] + entry.name[middle + 1 :] if middle > 1 else f"{entry.name}s"
    sentence = f"There is no option {slip!r}; did you mean {entry.name!r}?"
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}$"):
        kind.parse({**NEEDED[kind], slip: entry.good})


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        (WriteOptions, {}, "The option nameServer is missing"),
        (WriteOptions, {**WRITE, "secretKey": "s"}, "accessKey and secretKey go together"),
        (WriteOptions, {**WRITE, "sendBatchBytes": "4m"}, "brokers take 4128768 at most"),
        (WriteOptions, {**WRITE, "subscribe": "t"}, "There is no option 'subscribe'"),
        (StoreOptions, {}, "The option path is missing"),
        (StoreOptions, {**STORE, "nameServer": "a:1"}, "There is no option 'nameServer'"),
    ],
)
def test_options_that_do_not_go_together(kind: type[Options], options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        kind.parse(options)
