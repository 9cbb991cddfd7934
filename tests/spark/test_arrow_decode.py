"""Records become Arrow buffers: both twins give the same bytes, and they say what the messages say."""

from __future__ import annotations

import itertools
import random
import struct
import zlib
from typing import Any

import pytest
from twins import load_twin, twins

from cometmq.errors import RemoteProtocolError
from cometmq.protocol.host import encode_host
from cometmq.protocol.record_cy import encode_record
from cometmq.spark import arrow_columns

arrow_cy = twins("cometmq.spark.arrow_cy")
ALL_COLUMNS = list(range(21))
EVERYTHING = 1 << 62
V4 = encode_host("10.1.2.3", 10911)
V6 = encode_host("fe80::1", 10911)


def record(number: int = 0, **parts: Any) -> bytes:
    values: dict[str, Any] = {
        "topic": b"orders",
        "body": b"body %d" % number,
        "properties": b"TAGS\x01a\x02KEYS\x01k%d\x02UNIQ_KEY\x01ID%d\x02" % (number, number),
        "born_host": V4,
        "store_host": V4,
        "queue_offset": number,
        "physical_offset": number * 100,
        "born_timestamp_ms": 1_700_000_000_000 + number,
        "store_timestamp_ms": 1_700_000_000_500 + number,
    }
    return encode_record(**{**values, **parts})


def texts(parts: tuple[Any, ...]) -> list[bytes | None]:
    nulls, validity, offsets, data = parts
    ends = struct.unpack(f"={len(offsets) // 4}i", offsets)
    values: list[bytes | None] = [data[a:b] for a, b in itertools.pairwise(ends)]
    if nulls:
        values = [v if validity[i >> 3] >> (i & 7) & 1 else None for i, v in enumerate(values)]
    return values


def maps(parts: tuple[Any, ...]) -> list[dict[bytes, bytes]]:
    count, offsets, key_offsets, keys, value_offsets, values = parts
    pairs = list(
        zip(texts((0, None, key_offsets, keys)), texts((0, None, value_offsets, values)), strict=True)
    )
    assert len(pairs) == count
    ends = struct.unpack(f"={len(offsets) // 4}i", offsets)
    return [dict(pairs[a:b]) for a, b in itertools.pairwise(ends)]  # type: ignore[arg-type]


def decode(twin: Any, data: bytes, column: int, **more: Any) -> Any:
    _rows, columns = twin.decode_columns([(data, 0, EVERYTHING)], [column], **more)
    return columns[0]


def test_numbers_times_and_texts_of_a_message(arrow_cy: Any) -> None:
    data = record(7, queue_id=3, reconsume_times=2, flag=5, prepared_transaction_offset=9)
    rows, columns = arrow_cy.decode_columns([(data, 0, EVERYTHING)], ALL_COLUMNS, broker_name="broker-a")
    assert rows == 1
    assert texts(columns[arrow_columns.TOPIC]) == [b"orders"]
    assert texts(columns[arrow_columns.BROKER_NAME]) == [b"broker-a"]
    assert struct.unpack("=i", columns[arrow_columns.QUEUE_ID][0]) == (3,)
    assert struct.unpack("=q", columns[arrow_columns.QUEUE_OFFSET][0]) == (7,)
    assert texts(columns[arrow_columns.BODY]) == [b"body 7"]
    assert texts(columns[arrow_columns.TAGS]) == [b"a"]
    assert texts(columns[arrow_columns.KEYS]) == [b"k7"]
    assert texts(columns[arrow_columns.MSG_ID]) == [b"ID7"]
    assert maps(columns[arrow_columns.PROPERTIES]) == [{b"TAGS": b"a", b"KEYS": b"k7", b"UNIQ_KEY": b"ID7"}]
    assert struct.unpack("=q", columns[arrow_columns.BORN_TIMESTAMP][0]) == (1_700_000_000_007_000,)
    assert struct.unpack("=q", columns[arrow_columns.STORE_TIMESTAMP][0]) == (1_700_000_000_507_000,)
    assert struct.unpack("=i", columns[arrow_columns.RECONSUME_TIMES][0]) == (2,)
    assert texts(columns[arrow_columns.BORN_HOST]) == [b"10.1.2.3:10911"]
    assert texts(columns[arrow_columns.OFFSET_MSG_ID]) == [b"0A01020300002A9F00000000000002BC"]
    assert struct.unpack("=q", columns[arrow_columns.PREPARED_TRANSACTION_OFFSET][0]) == (9,)
    assert struct.unpack("=i", columns[arrow_columns.STORE_SIZE][0]) == (len(data),)


def test_only_offsets_of_the_range_are_taken(arrow_cy: Any) -> None:
    data = b"".join(record(number) for number in range(10))
    rows, columns = arrow_cy.decode_columns([(data, 3, 6), (data, 8, 100)], [arrow_columns.QUEUE_OFFSET])
    assert rows == 5
    assert struct.unpack("=5q", columns[0][0]) == (3, 4, 5, 8, 9)


def test_missing_properties_are_null(arrow_cy: Any) -> None:
    data = record(0, properties=b"") + record(1) + record(2, properties=b"a\x01b")
    assert texts(decode(arrow_cy, data, arrow_columns.TAGS)) == [None, b"a", None]
    assert maps(decode(arrow_cy, data, arrow_columns.PROPERTIES))[0] == {}


def test_compressed_body_is_inflated_unless_told_otherwise(arrow_cy: Any) -> None:
    packed = zlib.compress(b"x" * 1000)
    data = record(0, body=packed, sys_flag=1) + record(1)
    assert texts(decode(arrow_cy, data, arrow_columns.BODY)) == [b"x" * 1000, b"body 1"]
    assert texts(decode(arrow_cy, data, arrow_columns.BODY, inflate=False)) == [packed, b"body 1"]


def test_tag_text_and_topic_are_checked(arrow_cy: Any) -> None:
    data = (
        record(0) + record(1, properties=b"TAGS\x01b") + record(2, properties=b"") + record(3, topic=b"other")
    )
    wanted = {"tags": frozenset((b"b",))}
    assert decode(arrow_cy, data, arrow_columns.QUEUE_OFFSET, **wanted) == (struct.pack("=q", 1),)
    wanted = {"topics": frozenset((b"other",))}
    assert decode(arrow_cy, data, arrow_columns.QUEUE_OFFSET, **wanted) == (struct.pack("=q", 3),)


def test_bytes_that_are_no_text_become_replacement_characters(arrow_cy: Any) -> None:
    data = record(0, topic=b"t\xff", properties=b"TAGS\x01\xffx\x02\xe4\xbd\xa0\x01\xe5\xa5\xbd")
    assert texts(decode(arrow_cy, data, arrow_columns.TOPIC)) == ["t\ufffd".encode()]
    assert texts(decode(arrow_cy, data, arrow_columns.TAGS)) == ["\ufffdx".encode()]
    assert maps(decode(arrow_cy, data, arrow_columns.PROPERTIES))[0]["你".encode()] == "好".encode()


def test_later_double_of_a_property_wins(arrow_cy: Any) -> None:
    data = record(0, properties=b"a\x011\x02TAGS\x01x\x02a\x012\x02TAGS\x01y\x02\x01z\x02b\x01\x02c")
    assert maps(decode(arrow_cy, data, arrow_columns.PROPERTIES)) == [{b"a": b"2", b"TAGS": b"y"}]
    assert texts(decode(arrow_cy, data, arrow_columns.TAGS)) == [b"y"]


def test_many_properties(arrow_cy: Any) -> None:
    pairs = {b"p%d" % number: b"v%d" % number for number in range(200)}
    stored = b"\x02".join(name + b"\x01" + value for name, value in pairs.items())
    assert maps(decode(arrow_cy, record(0, properties=stored), arrow_columns.PROPERTIES)) == [pairs]


@pytest.mark.parametrize("cut", [1, 50, 90, 100, 130])
def test_damaged_records_are_refused(arrow_cy: Any, cut: int) -> None:
    with pytest.raises(RemoteProtocolError):
        arrow_cy.decode_columns([((record(0) + record(1))[:-cut], 0, EVERYTHING)], [arrow_columns.BODY])


def test_no_rows_give_empty_columns(arrow_cy: Any) -> None:
    rows, columns = arrow_cy.decode_columns([], ALL_COLUMNS)
    assert rows == 0
    assert columns[arrow_columns.BODY] == (0, None, bytes(4), b"")


def random_record(rng: random.Random, number: int) -> bytes:
    names = ["TAGS", "KEYS", "UNIQ_KEY", "a", "bb", "ключ", ""]
    pairs = [
        (rng.choice(names), rng.choice(["", "v", "значение", "x" * 40])) for _ in range(rng.randrange(6))
    ]
    stored = "\x02".join("\x01".join(pair) for pair in pairs).encode()
    if rng.random() < 0.1:
        stored = rng.randbytes(rng.randrange(40))
    body = rng.randbytes(rng.randrange(80))
    packed = rng.random() < 0.2
    return record(
        number,
        topic=rng.choice([b"orders", b"t", "тема".encode(), b"\xff\xfe"]),
        body=zlib.compress(body) if packed else body,
        sys_flag=1 if packed else 0,
        properties=stored,
        born_host=rng.choice([V4, V6]),
        store_host=rng.choice([V4, V6]),
        born_timestamp_ms=rng.choice([0, -1, 1 << 62, -(1 << 62), 1_700_000_000_000]),
    )


@pytest.mark.parametrize("seed", range(40))
def test_both_twins_give_the_same_bytes(seed: int) -> None:
    rng = random.Random(seed)
    data = b"".join(random_record(rng, number) for number in range(rng.randrange(30)))
    settings = {
        "inflate": rng.random() < 0.7,
        "broker_name": "b-ä",
        "topics": rng.choice([None, frozenset((b"orders", "тема".encode()))]),
        "tags": rng.choice([None, frozenset((b"v",))]),
    }
    pieces = [(data, 2, 20), (memoryview(data), 0, EVERYTHING)]
    wanted = load_twin("cometmq.spark.arrow_cy", "py").decode_columns(pieces, ALL_COLUMNS, **settings)
    assert load_twin("cometmq.spark.arrow_cy", "c").decode_columns(pieces, ALL_COLUMNS, **settings) == wanted
