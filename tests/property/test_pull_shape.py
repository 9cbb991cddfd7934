"""The shape of a pull: both twins read the same, and pulls of one shape differ in their three numbers only."""

from __future__ import annotations

import json
import struct
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twins import load_twin, twins

from cometmq.protocol.pull_frames import decode_pull

pull_shape_cy = twins("cometmq.protocol.pull_shape_cy")

FIELDS = {
    "consumerGroup": "group", "topic": "TopicA", "queueId": "3", "queueOffset": "17", "maxMsgNums": "32",
    "sysFlag": "6", "commitOffset": "15", "suspendTimeoutMillis": "20000", "subscription": "red || green",
    "subVersion": "1", "expressionType": "TAG",
}  # fmt: skip

texts = st.text(st.sampled_from('ab:"\\{},é5'), max_size=12)
odd_texts = st.sampled_from(['"queueOffset":"5"', '"opaque":7,', "queueOffset", '","opaque":1', "\\", "ünï"])
numbers = st.integers(-(10**18) + 1, 10**18 - 1)


def frame(text: bytes) -> bytes:
    return struct.pack(">II", 4 + len(text), len(text)) + text


def pull(opaque: int = 9, **fields: str) -> bytes:
    header = {"code": 11, "extFields": {**FIELDS, **fields}, "flag": 0, "language": "JAVA", "opaque": opaque}
    return frame(json.dumps({**header, "version": 407}, separators=(",", ":"), ensure_ascii=False).encode())


def read(twin: ModuleType, data: bytes, start: int = 0) -> tuple[Any, ...] | None:
    shape = twin.PullShape()
    if not shape.read(memoryview(data), start, len(data)):
        return None
    return shape.size, shape.opaque, shape.queue_offset, shape.commit_offset, shape.shape


def test_the_three_numbers_are_read_and_the_shape_is_without_them(pull_shape_cy: ModuleType) -> None:
    first, second = (
        pull(),
        pull(opaque=-2147483648, queueOffset="-1", commitOffset="9223372036854775"),
    )
    found, other = read(pull_shape_cy, first), read(pull_shape_cy, b"xxx" + second + b"yyy", 3)
    assert found is not None
    assert other is not None
    assert found[:4] == (len(first), 9, 17, 15)
    assert other[:4] == (len(second), -2147483648, -1, 9223372036854775)
    assert found[4] == other[4]
    assert b'"queueOffset":""' in found[4]
    assert b'"opaque":,' in found[4]


@pytest.mark.parametrize(
    "change", [{"queueId": "4"}, {"topic": "TopicB"}, {"subscription": "red"}, {"maxMsgNums": "33"}, {"sysFlag": "2"}]
)  # fmt: skip
def test_whatever_else_differs_makes_another_shape(pull_shape_cy: ModuleType, change: dict[str, str]) -> None:
    found, other = read(pull_shape_cy, pull()), read(pull_shape_cy, pull(**change))
    assert found is not None
    assert other is not None
    assert found[4] != other[4]


def test_the_name_of_a_number_in_a_text_is_no_number(pull_shape_cy: ModuleType) -> None:
    found = read(pull_shape_cy, pull(subscription='"queueOffset":"5","opaque":6'))
    assert found is not None
    assert found[1:4] == (9, 17, 15)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"queueOffset":"17"', b'"queueOffset":"17","queueOffset":"18"'),
        (b'"queueOffset":"17",', b""),
        (b'"17"', b'"017"'),
        (b'"17"', b'"1234567890123456789"'),
        (b'"17"', b'"1-7"'),
        (b'"17"', b'""'),
        (b'"17"', b"17"),
        (b'"opaque":9', b'"opaque":2147483648'),
        (b'"opaque":9', b'"opaque":"9"'),
        (b'"opaque":9', b'"opaque":09'),
        (b'"code":11', b'"code":12'),
        (b'"subscription":"', b'"subscription":"' + b"x" * 1024),
    ],
)
def test_what_is_odd_is_left_to_the_decoder(pull_shape_cy: ModuleType, old: bytes, new: bytes) -> None:
    text = pull()[8:]
    assert old in text
    assert read(pull_shape_cy, frame(text.replace(old, new))) is None


def test_cut_frames_and_bodies_are_left_to_the_decoder(pull_shape_cy: ModuleType) -> None:
    data = pull()
    assert all(read(pull_shape_cy, data[:size]) is None for size in range(len(data)))
    with_body = struct.pack(">II", len(data), len(data) - 8) + data[8:] + b"body"
    assert read(pull_shape_cy, with_body) is None


@given(
    st.dictionaries(st.sampled_from(sorted(FIELDS)), texts | odd_texts), numbers, numbers, numbers, st.data()
)
def test_both_twins_read_the_same_and_as_the_decoder_does(
    fields: dict[str, str], opaque: int, queue_offset: int, commit_offset: int, data: st.DataObject
) -> None:
    whole = pull(opaque, **{"queueOffset": str(queue_offset), "commitOffset": str(commit_offset), **fields})
    at = data.draw(st.integers(8, len(whole) - 1))
    changed = whole[:at] + data.draw(st.binary(max_size=3)) + whole[at + data.draw(st.integers(0, 3)) :]
    name = "cometmq.protocol.pull_shape_cy"
    in_python, in_c = load_twin(name, "py"), load_twin(name, "c")
    for text in (whole[8:], changed[8:]):
        found = read(in_python, frame(text))
        assert found == read(in_c, frame(text))
        decoded = decode_pull(memoryview(frame(text)), 0, len(text) + 8)
        if found is not None and decoded is not None:
            header = decoded.header
            assert found[:4] == (decoded.size, decoded.opaque, header.queue_offset, header.commit_offset)
