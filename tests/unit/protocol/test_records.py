"""Message records and batches."""

from __future__ import annotations

import struct
from types import ModuleType
from typing import Any

import pytest
from twins import twins

from cometmq.errors import LocalProtocolError, RemoteProtocolError
from cometmq.protocol.host import HostPort
from cometmq.protocol.limits import RECORD_SIZE_MAX
from cometmq.protocol.message import Message, MessageQueue

record_cy = twins("cometmq.protocol.record_cy")

V4 = HostPort("127.0.0.1", 10911).encode()
V6 = HostPort("::1", 10911).encode()


def record(module: ModuleType, **fields: Any) -> bytes:
    values = {
        "topic": b"TopicA",
        "body": b"hello",
        "properties": b"TAGS\x01TagA\x02KEYS\x01k1 k2",
        "born_host": V4,
        "store_host": V4,
        **fields,
    }
    encoded: bytes = module.encode_record(**values)
    return encoded


@pytest.mark.parametrize(
    ("born", "store"), [(V4, V4), (V6, V4), (V4, V6), (V6, V6)], ids=["44", "64", "46", "66"]
)
def test_all_fields_come_back(record_cy: ModuleType, born: bytes, store: bytes) -> None:
    data = record(
        record_cy,
        born_host=born,
        store_host=store,
        queue_id=3,
        flag=-7,
        queue_offset=2**40,
        physical_offset=2**62,
        sys_flag=0x8,
        born_timestamp_ms=1794778976475,
        store_timestamp_ms=-1,
        reconsume_times=2,
        prepared_transaction_offset=99,
    )
    (message,) = record_cy.decode_records(data)
    assert len(data) == message.store_size == 75 + len(born) + len(store) + 5 + 6 + 20
    assert message.topic == "TopicA"
    assert (message.queue_id, message.flag, message.reconsume_times) == (3, -7, 2)
    assert (message.queue_offset, message.physical_offset) == (2**40, 2**62)
    assert (message.born_timestamp_ms, message.store_timestamp_ms) == (1794778976475, -1)
    assert message.prepared_transaction_offset == 99
    assert message.sys_flag & 0xF == 0x8
    assert bool(message.sys_flag & 0x10) == (born == V6)
    assert bool(message.sys_flag & 0x20) == (store == V6)
    assert (message.born_host.is_v6, message.store_host.is_v6) == (born == V6, store == V6)
    assert message.store_host.port == 10911
    assert message.body == b"hello"
    assert message.body_crc == 0x3610A686
    assert message.tag == "TagA"
    assert message.keys == ["k1", "k2"]
    assert record_cy.encode_message(message) == data


def test_ids_of_a_received_message(record_cy: ModuleType) -> None:
    (plain,) = record_cy.decode_records(
        record(record_cy, store_host=HostPort("127.0.0.1", 21010).encode(), physical_offset=154)
    )
    assert plain.offset_msg_id == plain.msg_id == "7F00000100005212000000000000009A"
    (named,) = record_cy.decode_records(record(record_cy, properties=b"UNIQ_KEY\x01ABC"))
    assert named.msg_id == "ABC"
    named.broker_name = "b"
    assert named.queue == MessageQueue("TopicA", "b", 0)


def test_many_records_with_changing_topics_and_hosts(record_cy: ModuleType) -> None:
    kinds = [(b"A", V4), (b"A", V6), (b"BB", V6), (b"", V4), (b"A", V4)] * 3
    data = b"".join(
        record(record_cy, topic=topic, born_host=host, body=b"x" * n) for n, (topic, host) in enumerate(kinds)
    )
    messages = record_cy.decode_records(data)
    assert [(m.topic.encode(), m.born_host_bytes) for m in messages] == kinds
    assert [len(m.body) for m in messages] == list(range(15))
    assert record_cy.decode_records(b"") == []
    assert len(record_cy.decode_records(b"??" + data + b"?", 2, 2 + len(data))) == 15
    assert record_cy.decode_records(memoryview(bytearray(data)))[3].topic == ""


def test_an_empty_body_has_crc_zero(record_cy: ModuleType) -> None:
    (message,) = record_cy.decode_records(record(record_cy, body=b""))
    assert message.body == b""
    assert message.body_crc == 0


def test_a_topic_that_is_no_utf8_does_not_stop_the_consumer(record_cy: ModuleType) -> None:
    (message,) = record_cy.decode_records(record(record_cy, topic=b"a\xff", properties=b"k\x01\xff"))
    assert message.topic == "a�"
    assert message.properties == {"k": "�"}


def patched(data: bytes, position: int, value: bytes) -> bytes:
    return data[:position] + value + data[position + len(value) :]


def bad_records(module: ModuleType) -> list[tuple[str, bytes]]:
    good = record(module)
    topic_at = 88 + 5
    properties_at = topic_at + 1 + 6
    return [
        ("cut off", good[:-1]),
        ("cut off", good + good[:90]),
        ("cut off", good[:3]),
        ("impossible", patched(good, 0, struct.pack(">i", 90)) + bytes(100)),
        ("impossible", patched(good, 0, b"\xff\xff\xff\xff")),
        ("impossible", patched(good, 0, struct.pack(">i", RECORD_SIZE_MAX + 1))),
        ("add up", patched(good, 84, struct.pack(">i", -1))),
        ("add up", patched(good, 84, struct.pack(">i", 2**31 - 1))),
        ("add up", patched(good, 84, struct.pack(">i", 6))),
        ("add up", patched(good, topic_at, b"\x80")),
        ("add up", patched(good, topic_at, b"\x07")),
        ("add up", patched(good, properties_at, b"\xff\xff")),
        ("add up", patched(good, properties_at, b"\0\0")),
        ("add up", patched(good, 36, struct.pack(">i", 0x30))),
        ("add up", patched(record(module, body=b"", topic=b"", properties=b""), 36, struct.pack(">i", 0x30))),
    ]


def test_records_whose_lengths_do_not_fit_are_refused(record_cy: ModuleType) -> None:
    for problem, data in bad_records(record_cy):
        with pytest.raises(RemoteProtocolError, match=problem):
            record_cy.decode_records(data)


def test_positions_outside_of_the_buffer_are_a_mistake_of_the_caller(record_cy: ModuleType) -> None:
    for start, end in ((0, 10), (5, 4), (-1, 5)):
        with pytest.raises(ValueError, match="outside"):
            record_cy.decode_records(bytes(9), start, end)


def test_one_record_is_expected_where_one_belongs(record_cy: ModuleType) -> None:
    data = record(record_cy)
    assert record_cy.decode_record(data).topic == "TopicA"
    with pytest.raises(RemoteProtocolError, match="2 came"):
        record_cy.decode_record(data + data)


def test_what_no_record_can_hold_is_not_encoded(record_cy: ModuleType) -> None:
    with pytest.raises(LocalProtocolError, match="topic"):
        record(record_cy, topic=b"t" * 128)
    with pytest.raises(LocalProtocolError, match="properties"):
        record(record_cy, properties=b"p" * 32768)
    with pytest.raises(LocalProtocolError, match="neither IPv4 nor IPv6"):
        record(record_cy, born_host=b"1234567")
    assert record(record_cy, topic=b"t" * 127, properties=b"p" * 32767)


def test_a_batch_comes_back_item_by_item(record_cy: ModuleType) -> None:
    messages = [
        Message("T", b"one", tag="a"),
        Message("T", b"", properties={"k": "值"}, flag=-1),
        Message("T", b"three"),
    ]
    items = record_cy.split_batch(record_cy.encode_batch(messages))
    assert [tuple(item) for item in items] == [
        (0, b"one", b"TAGS\x01a"),
        (-1, b"", "k\x01值".encode()),
        (0, b"three", b""),
    ]
    assert record_cy.split_batch(b"") == []


def test_batches_whose_lengths_do_not_fit_are_refused(record_cy: ModuleType) -> None:
    good = record_cy.encode_batch([Message("T", b"body", tag="a")])
    for data in (
        good[:-1],
        good + b"\0",
        b"notabatch",
        patched(good, 0, struct.pack(">i", len(good) - 1)),
        patched(good, 0, struct.pack(">i", 0)),
        patched(good, 0, b"\xff\xff\xff\xff"),
        patched(good, 16, struct.pack(">i", 5)),
        patched(good, 16, struct.pack(">i", -1)),
        patched(good, 24, b"\x80\x06"),
    ):
        with pytest.raises(RemoteProtocolError, match="batch item"):
            record_cy.split_batch(data)
    with pytest.raises(LocalProtocolError, match="properties"):
        record_cy.encode_batch([Message("T", b"x", properties={"k": "v" * 32767})])


def test_a_batch_of_too_many_items_is_refused(record_cy: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_cy, "BATCH_ITEM_COUNT_MAX", 2)
    item = record_cy.encode_batch([Message("T", b"")])
    assert len(record_cy.split_batch(item * 2)) == 2
    with pytest.raises(RemoteProtocolError, match="more than 2"):
        record_cy.split_batch(item * 3)
