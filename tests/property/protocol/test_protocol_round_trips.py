"""What is written comes back, and both twins agree on every input, good or bad."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twins import load_twin

from cometmq.errors import ProtocolError
from cometmq.protocol import json_java
from cometmq.protocol.bodies.offsets import GetConsumerStatusBody
from cometmq.protocol.codes import LanguageCode, SerializeType
from cometmq.protocol.command import RemotingCommand, decode_frame
from cometmq.protocol.message import Message, MessageQueue
from cometmq.protocol.properties import decode_properties, encode_properties, find_property

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
text = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
property_text = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\x01\x02"), min_size=1, max_size=20
)
properties = st.dictionaries(property_text, property_text, max_size=8)
hosts = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
queues = st.builds(MessageQueue, text, text, int32)
records = st.fixed_dictionaries(
    {
        "topic": st.binary(max_size=127),
        "body": st.binary(max_size=200),
        "properties": st.binary(max_size=200),
        "born_host": hosts,
        "store_host": hosts,
        "queue_id": int32,
        "flag": int32,
        "queue_offset": int64,
        "physical_offset": int64,
        "sys_flag": int32,
        "born_timestamp_ms": int64,
        "store_timestamp_ms": int64,
        "reconsume_times": int32,
        "prepared_transaction_offset": int64,
    }
)
PY = load_twin("cometmq.protocol.record_cy", "py")
FRAME_PY = load_twin("cometmq.protocol.frame_cy", "py")


@pytest.fixture(scope="module")
def record_c() -> Any:
    return load_twin("cometmq.protocol.record_cy", "c")


@pytest.fixture(scope="module")
def frame_c() -> Any:
    return load_twin("cometmq.protocol.frame_cy", "c")


def outcome(function: Any, *arguments: Any) -> Any:
    """The result, or the sentence of the error."""
    try:
        return function(*arguments)
    except ProtocolError as error:
        return str(error)


@given(
    st.builds(
        RemotingCommand,
        code=st.integers(-(2**15), 2**15 - 1),
        opaque=int32,
        flag=int32,
        remark=st.none() | text.filter(bool),
        ext_fields=st.dictionaries(text.filter(bool), text.filter(bool), min_size=1, max_size=8) | st.none(),
        body=st.binary(max_size=100),
        language=st.sampled_from(LanguageCode),
        version=st.integers(0, 2**15 - 1),
        serialize_type=st.sampled_from(SerializeType),
    )
)
def test_commands_come_back(command: RemotingCommand) -> None:
    assert decode_frame(command.encode()) == command


@given(st.binary(max_size=300))
def test_any_bytes_are_a_command_or_refused(data: bytes) -> None:
    for word in (0, 1 << 24):
        header = len(data) - min(len(data), 3)
        frame = (len(data) + 4).to_bytes(4, "big") + (word | header).to_bytes(4, "big") + data
        command = outcome(decode_frame, frame)
        assert isinstance(command, str | RemotingCommand)


@given(st.lists(records, max_size=5))
def test_records_come_back_and_twins_agree(record_c: Any, values: list[dict[str, Any]]) -> None:
    data = b"".join(PY.encode_record(**value) for value in values)
    assert data == b"".join(record_c.encode_record(**value) for value in values)
    from_py, from_c = PY.decode_records(data), record_c.decode_records(data)
    assert [_fields(message) for message in from_py] == [_fields(message) for message in from_c]
    for value, message in zip(values, from_py, strict=True):
        assert (message.stored_body, message.stored_properties) == (value["body"], value["properties"])
        assert (message.queue_offset, message.physical_offset) == (
            value["queue_offset"],
            value["physical_offset"],
        )
        assert (message.born_host_bytes, message.store_host_bytes) == (
            value["born_host"],
            value["store_host"],
        )
        assert message.sys_flag & ~0x30 == value["sys_flag"] & ~0x30


def _fields(message: Any) -> tuple[Any, ...]:
    return tuple(getattr(message, name) for name in message.__struct_fields__)


@given(records, st.data())
def test_twins_agree_on_damaged_records(record_c: Any, value: dict[str, Any], data: Any) -> None:
    good = PY.encode_record(**value)
    record = bytearray(good + good)
    for _ in range(data.draw(st.integers(1, 4))):
        record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    del record[data.draw(st.integers(0, len(record))) :]
    from_py, from_c = (
        outcome(PY.decode_records, bytes(record)),
        outcome(record_c.decode_records, bytes(record)),
    )
    if isinstance(from_py, str):
        assert from_py == from_c
    else:
        assert [_fields(message) for message in from_py] == [_fields(message) for message in from_c]


@given(st.lists(st.tuples(st.binary(max_size=50), properties, int32), max_size=5))
def test_batches_come_back(record_c: Any, values: list[tuple[bytes, dict[str, str], int]]) -> None:
    messages = [Message("T", body, flag=flag) for body, _, flag in values]
    for message, (_, wanted, _) in zip(messages, values, strict=True):
        message.properties = wanted
    body = PY.encode_batch(messages)
    for items in (PY.split_batch(body), record_c.split_batch(body)):
        assert [
            (item.body, decode_properties(item.properties.decode()), item.flag) for item in items
        ] == values


@given(st.binary(max_size=80), st.integers(0, 60), st.integers(0, 255))
def test_twins_agree_on_damaged_batches(record_c: Any, body: bytes, position: int, value: int) -> None:
    batch = bytearray(PY.encode_batch([Message("T", body, tag="a"), Message("T", b"")]))
    batch[min(position, len(batch) - 1)] = value
    for data in (bytes(batch), body):
        from_py, from_c = outcome(PY.split_batch, data), outcome(record_c.split_batch, data)
        assert (from_py if isinstance(from_py, str) else list(map(tuple, from_py))) == (
            from_c if isinstance(from_c, str) else list(map(tuple, from_c))
        )


@given(st.lists(st.binary(max_size=20), max_size=6), st.binary(max_size=12), st.integers(8, 40))
def test_frames_are_found_again_and_twins_agree(
    frame_c: Any, bodies: list[bytes], rest: bytes, limit: int
) -> None:
    stream = b"".join((len(body) + 4).to_bytes(4, "big") + bytes(4) + body for body in bodies) + rest
    ends, _ = FRAME_PY.split_frames(stream[: len(stream) - len(rest)], 0, len(stream) - len(rest))
    assert len(ends) == len(bodies)
    assert outcome(FRAME_PY.split_frames, stream, 0, len(stream), limit) == outcome(
        frame_c.split_frames, stream, 0, len(stream), limit
    )


@given(st.binary(max_size=80))
def test_twins_agree_on_any_ext_block(frame_c: Any, block: bytes) -> None:
    assert outcome(FRAME_PY.decode_ext_fields, block, 0, len(block)) == outcome(
        frame_c.decode_ext_fields, block, 0, len(block)
    )


@given(properties)
def test_properties_come_back(given_properties: dict[str, str]) -> None:
    encoded = encode_properties(given_properties)
    assert decode_properties(encoded) == decode_properties(encoded + "\x02") == given_properties
    for name, value in given_properties.items():
        assert find_property(encoded.encode(), name.encode()) == value.encode()


@given(
    st.text(st.sampled_from("ab\x01\x02"), max_size=14),
    st.text(st.sampled_from("ab"), min_size=1, max_size=2),
)
def test_finding_one_property_agrees_with_reading_all(encoded: str, name: str) -> None:
    found = find_property(encoded.encode(), name.encode())
    assert (found.decode() if found else None) == decode_properties(encoded).get(name)


json_values = st.recursive(
    st.none() | st.booleans() | int64 | text | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=15,
)


@given(json_values)
def test_json_values_come_back_from_all_three_writers(value: Any) -> None:
    for write in (json_java.dumps, json_java.dumps_strict, json_java.dumps_pretty):
        assert json_java.loads(write(value)) == value


@given(st.dictionaries(int32, json_values, min_size=1, max_size=4))
def test_bare_keys_come_back_as_text(value: dict[int, Any]) -> None:
    assert json_java.loads(json_java.dumps(value)) == {str(key): item for key, item in value.items()}


@given(
    st.dictionaries(queues, int64, max_size=5),
    st.dictionaries(text, st.dictionaries(queues, int64, max_size=3), max_size=3),
)
def test_tables_with_object_keys_come_back(
    table: dict[MessageQueue, int], tables: dict[str, dict[MessageQueue, int]]
) -> None:
    body = GetConsumerStatusBody(message_queue_table=table, consumer_table=tables)
    assert GetConsumerStatusBody.decode(body.encode()) == body


@settings(max_examples=300)
@given(st.text(st.sampled_from('{}[]:,"\\0a -.$ref\x01'), max_size=40))
def test_any_text_is_json_or_refused(value: str) -> None:
    result = outcome(json_java.loads, value)
    assert isinstance(result, str | dict | list | int | float | None)
