"""Types and nulls: what a message that lacks a part is as a row, and a row that lacks one as a message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from spark_kit import RunningBroker

from cometmq.errors import MessageInvalid
from cometmq.protocol.properties import decode_properties
from cometmq.spark.options import WriteOptions
from cometmq.spark.sink_rows import OutgoingMessage, RowReader

pytestmark = pytest.mark.spark
Read = Callable[..., Any]

SCHEMA = {
    "topic": "string",
    "brokerName": "string",
    "queueId": "int",
    "queueOffset": "bigint",
    "tags": "string",
    "keys": "string",
    "body": "binary",
    "properties": "map<string,string>",
    "bornTimestamp": "timestamp",
    "storeTimestamp": "timestamp",
    "msgId": "string",
    "reconsumeTimes": "int",
    "sysFlag": "int",
    "commitLogOffset": "bigint",
}
MORE = {
    "flag": "int",
    "bornHost": "string",
    "storeHost": "string",
    "offsetMsgId": "string",
    "bodyCRC": "int",
    "storeSize": "int",
    "preparedTransactionOffset": "bigint",
}

OF_BROKER = {"CLUSTER": "DefaultCluster"}  # the property that a broker adds


def types_of(frame: Any) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in frame.schema.fields}


def test_schema_has_the_documented_names_and_types(read: Read, spark: Any, topic: str) -> None:
    assert types_of(read(subscribe=topic)) == SCHEMA
    assert types_of(read(subscribe=topic, metadata="all")) == {**SCHEMA, **MORE}
    stored = spark.read.format("rocketmq-store").load("anywhere")
    assert types_of(stored) == {**SCHEMA, "valid": "boolean", "problem": "string"}


def test_parts_that_a_message_lacks_are_null(broker: RunningBroker, topic: str, read: Read) -> None:
    broker.send(topic, b"")
    broker.send(topic, b"\x00\xff", 1, {"TAGS": "t"})
    bare, tagged = sorted(read(subscribe=topic).collect(), key=lambda row: row.queueId)
    assert (bytes(bare.body), bare.tags, bare.keys, bare.msgId) == (b"", None, None, None)
    assert bare.properties == OF_BROKER
    assert (bytes(tagged.body), tagged.tags, tagged.keys) == (b"\x00\xff", "t", None)
    assert tagged.properties == {"TAGS": "t", **OF_BROKER}
    assert (tagged.reconsumeTimes, tagged.sysFlag) == (0, 0)
    assert read(subscribe=topic).where("tags is null").count() == 1


def test_nulls_in_all_columns_but_the_body_are_left_out(
    broker: RunningBroker, topic: str, spark: Any, read: Read
) -> None:
    columns = (
        "body binary, tags string, keys array<string>, properties map<string,string>, shardingKey string"
    )
    schema = f"{columns}, queueId int, delayLevel int, flag int, msgId string"
    rows = [
        (b"bare", *[None] * 8),
        (b"partly", "", ["a", None, "", "b"], {"x": None, "y": "1", "z": ""}, None, 3, 0, None, "id-1"),
    ]
    frame = spark.createDataFrame(rows, schema)
    options = {"nameServer": broker.name_server, "topic": topic}
    frame.write.format("rocketmq").mode("append").options(**options).save()
    found = {bytes(row.body): row for row in read(subscribe=topic, metadata="all").collect()}
    bare, partly = found[b"bare"], found[b"partly"]
    assert (bare.tags, bare.keys, bare.flag, set(bare.properties)) == (
        None,
        None,
        0,
        {"UNIQ_KEY", *OF_BROKER},
    )
    assert (partly.tags, partly.keys, partly.queueId, partly.msgId) == (None, "a b", 3, "id-1")
    assert partly.properties == {"KEYS": "a b", "y": "1", "UNIQ_KEY": "id-1", **OF_BROKER}


def messages(row: dict[str, Any], **options: str) -> list[OutgoingMessage]:
    import pyarrow as pa

    reader = RowReader(WriteOptions.parse({"nameServer": "a:1", **options}), "prefix")
    return list(reader.messages(pa.RecordBatch.from_pylist([row])))


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"topic": "T", "body": None}, "A row for T has no body."),
        (
            {"topic": None, "body": b"x"},
            "A row has no topic: fill the column topic, or set the option topic.",
        ),
        ({"topic": "T", "body": b"x", "id": None}, "A row has no id in the column id."),
        ({"topic": "T", "body": b"x", "id": "1", "flag": 1 << 31}, "A row for T has the flag 2147483648"),
        ({"topic": "T", "body": b"x", "id": "1", "tags": "t" * 33_000}, "brokers take 32767."),
    ],
)
def test_rows_that_are_no_messages_are_told_in_a_sentence(row: dict[str, Any], sentence: str) -> None:
    with pytest.raises(MessageInvalid) as failure:
        messages(row, **({"idColumn": "id"} if "id" in row else {}))
    assert sentence in str(failure.value)


@pytest.mark.parametrize(
    ("keys", "stored"), [("a b", "a b"), (["a", None], "a"), ([None, ""], None), ([], None)]
)
def test_keys_are_words_or_a_list_of_them(keys: Any, stored: str | None) -> None:
    properties = messages({"topic": "T", "body": b"x", "keys": keys})[0].properties
    assert decode_properties(properties.decode()).get("KEYS") == stored
    assert (b"KEYS" in properties) == (stored is not None)


def test_ids_are_those_of_the_column_or_of_the_origin_or_made() -> None:
    origin = {"topic": "T", "brokerName": "b", "queueId": 1, "queueOffset": 7}
    row = {**origin, "body": b"x", "id": 12, "msgId": "own"}
    assert messages(row, idColumn="id")[0].message_id == "12"
    assert messages(row)[0].message_id == "T:b:1:7"
    assert messages({**row, "queueOffset": None})[0].message_id == "own"
    made = messages({"body": b"x"}, topic="T")[0]
    assert made.message_id == "prefix-0"
    assert decode_properties(made.properties.decode())["UNIQ_KEY"] == "prefix-0"
