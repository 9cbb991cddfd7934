"""Typed headers."""

from __future__ import annotations

import pytest

from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import RemotingCommand, decode_frame
from cometmq.protocol.headers import (
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    V2_NAMES,
    BadHeader,
    EndTransactionHeader,
    Header,
    PullMessageResponseHeader,
    QueueHeader,
    ResetOffsetHeader,
    SendMessageHeader,
    SendMessageResponseHeader,
    SendMessageV2Header,
    UnregisterClientHeader,
)

SEND = {
    "producer_group": "pg",
    "topic": "T",
    "default_topic": "TBW102",
    "default_topic_queue_nums": 4,
    "queue_id": 2,
    "sys_flag": 0,
    "born_timestamp": 1794779059021,
    "flag": 0,
    "properties": "TAGS\x01a",
    "unit_mode": False,
    "batch": True,
}


def test_none_is_left_out_and_booleans_are_words() -> None:
    header = ResetOffsetHeader(topic="T", group="g", timestamp=-1, is_force=True)
    assert header.encode() == {"topic": "T", "group": "g", "timestamp": "-1", "isForce": "true"}
    assert UnregisterClientHeader(client_id="c").encode() == {"clientID": "c"}


def test_a_send_header_reads_and_writes_both_name_sets() -> None:
    long_names = SendMessageHeader(**SEND)
    short_names = SendMessageV2Header(**SEND)
    assert set(long_names.encode()) <= set(V2_NAMES)
    assert short_names.encode() == long_names.encode_v2() == short_names.encode_v2()
    assert short_names.encode()["m"] == "true"
    for code, fields in (
        (RequestCode.SEND_MESSAGE, long_names.encode()),
        (RequestCode.SEND_REPLY_MESSAGE, long_names.encode()),
        (RequestCode.SEND_MESSAGE_V2, short_names.encode()),
        (RequestCode.SEND_BATCH_MESSAGE, short_names.encode()),
        (RequestCode.SEND_REPLY_MESSAGE_V2, short_names.encode()),
    ):
        command = decode_frame(RemotingCommand(code=code, ext_fields=fields).encode())
        assert SendMessageHeader.decode_any(command).encode_v2() == short_names.encode()
        assert REQUEST_HEADERS[code].decode(fields).encode() == fields


def test_a_missing_or_unreadable_required_field_is_named() -> None:
    with pytest.raises(BadHeader, match="queueId of the request is missing") as missing:
        QueueHeader.decode({"topic": "T"})
    assert missing.value.field == "queueId"
    with pytest.raises(BadHeader, match="'xx', which cannot be read"):
        QueueHeader.decode({"topic": "T", "queueId": "xx"})
    with pytest.raises(BadHeader, match="field b of"):
        SendMessageV2Header.decode({"a": "pg"})
    with pytest.raises(BadHeader):
        PullMessageResponseHeader.decode(None)


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "1_000", "0x10", "1.5", "2147483648", "-2147483649", "٣", "9" * 30]
)
def test_what_java_does_not_read_as_an_int_is_refused(text: str) -> None:
    with pytest.raises(BadHeader):
        QueueHeader.decode({"topic": "T", "queueId": text})


@pytest.mark.parametrize(("text", "value"), [("+7", 7), ("-7", -7), ("007", 7), ("2147483647", 2**31 - 1)])
def test_what_java_reads_as_an_int_is_read(text: str, value: int) -> None:
    assert QueueHeader.decode({"topic": "T", "queueId": text}).queue_id == value


def test_an_unreadable_optional_field_is_as_missing() -> None:
    fields = SendMessageHeader(**SEND).encode() | {"reconsumeTimes": "many"}
    assert SendMessageHeader.decode(fields).reconsume_times is None


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("TRUE", True), ("1", False), ("", False), ("yes", False)]
)
def test_only_the_word_true_is_true(text: str, value: bool) -> None:
    header = EndTransactionHeader.decode(
        {
            "producerGroup": "g",
            "tranStateTableOffset": "1",
            "commitLogOffset": "2",
            "commitOrRollback": "8",
            "msgId": "m",
            "fromTransactionCheck": text,
        }
    )
    assert header.from_transaction_check is value


def test_other_fields_are_passed_over() -> None:
    header = SendMessageResponseHeader.decode(
        {"msgId": "M", "queueId": "1", "queueOffset": "5", "extra": "x"}
    )
    assert header == SendMessageResponseHeader(msg_id="M", queue_id=1, queue_offset=5)


def test_every_header_class_belongs_to_a_request_code() -> None:
    known = set(REQUEST_HEADERS.values()) | set(RESPONSE_HEADERS.values())
    unused = {kind.__name__ for kind in _subclasses(Header)} - {kind.__name__ for kind in known}
    assert unused == {"EmptyHeader"}


def _subclasses(kind: type[Header]) -> set[type[Header]]:
    return {found for child in kind.__subclasses__() for found in {child, *_subclasses(child)}}
