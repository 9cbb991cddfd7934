"""Recorded traffic of RocketMQ 4.9.7 against our codecs: everything decodes, and what we write is what Java wrote."""

from __future__ import annotations

import json
from collections import Counter
from types import ModuleType

import pytest
from golden_frames import UNREADABLE_CASE, GoldenFrame, frames, lines
from twins import twins

from cometmq.errors import RemoteProtocolError
from cometmq.protocol import acl_signature, json_java
from cometmq.protocol.bodies.offsets import ResetOffsetBody
from cometmq.protocol.bodies.registry import REQUEST_BODIES, RESPONSE_BODIES
from cometmq.protocol.bodies.route import TopicRouteData
from cometmq.protocol.bodies.topic import RegisterBrokerBody
from cometmq.protocol.codes import RequestCode, SerializeType
from cometmq.protocol.command import decode_frame
from cometmq.protocol.headers import REQUEST_HEADERS, RESPONSE_HEADERS, BadHeader
from cometmq.protocol.message import Message
from cometmq.protocol.properties import decode_properties_bytes, encode_properties

record_cy = twins("cometmq.protocol.record_cy")
frame_cy = twins("cometmq.protocol.frame_cy")

MAGIC = bytes.fromhex("DAA320A7")
MESSAGE_RESPONSES = {11, 12, 33}  # answers whose body, if any, is messages
# Fields that belong to no header: added by hooks of the client.
HOOK_FIELDS = {"AccessKey", "Signature", "SecurityToken", "ReqT"}
# Probes that leave out or spoil a required field on purpose.
BAD_HEADER_CASES = {
    "probe_ns_route_no_ext",
    "probe_ns_route_missing_required",
    "probe_b_missing_required_maxoffset",
    "probe_b_bad_int",
    "probe_b_send_missing_field",
    "probe_b_oneway_error",
}


def is_probe(frame: GoldenFrame) -> bool:
    """Made by hand by the recorder, so not in Java's form."""
    return frame.file == "probe" and not frame.command.is_response


def test_every_recorded_frame_decodes_except_the_broken_one() -> None:
    assert len(lines()) == 1994
    assert len(frames()) == 1993
    (broken,) = [line for line in lines() if line["case"] == UNREADABLE_CASE]
    with pytest.raises(RemoteProtocolError):
        decode_frame(bytes.fromhex(broken["hex"]))


def test_json_headers_reencode_to_the_same_json() -> None:
    count = 0
    for frame in frames():
        if frame.command.serialize_type != SerializeType.JSON or is_probe(frame):
            continue
        encoded = frame.command.encode()
        assert split(encoded)[1] == split(frame.data)[1]
        assert json.loads(split(encoded)[0]) == json.loads(split(frame.data)[0]), frame.case
        assert encoded == frame.data, frame.case  # even the order of members and the escapes are Java's
        count += 1
    assert count == 1859


def test_binary_headers_reencode_to_the_same_bytes_and_mean_what_the_recorder_says() -> None:
    count = repeated = 0
    for frame in frames():
        command = frame.command
        if command.serialize_type != SerializeType.ROCKETMQ:
            continue
        header = frame.header
        assert header is not None
        assert command.code == header["code"]
        assert command.opaque == header["opaque"]
        assert command.flag == header["flag"]
        assert command.version == header["version"]
        assert command.language.name == header["language"]
        assert command.remark == header.get("remark")
        assert (command.ext_fields or {}) == {k: v for k, v in (header.get("extFields") or {}).items() if v}
        encoded = command.encode()
        if encoded != frame.data:  # ACL hooks write each field twice, and Java writes a null as nothing
            assert decode_frame(encoded) == command
            assert len(encoded) < len(frame.data)
            repeated += 1
        count += 1
    assert count > 40
    assert repeated <= 4


def split(data: bytes) -> tuple[bytes, bytes]:
    end = 8 + int.from_bytes(data[5:8], "big")
    return data[8:end], data[end:]


def test_ext_fields_decode_through_typed_headers_and_encode_to_the_same_fields() -> None:
    seen: set[tuple[int, bool]] = set()
    for frame in frames():
        command = frame.command
        table = RESPONSE_HEADERS if command.is_response else REQUEST_HEADERS
        kind = table.get(frame.request_code or 0)
        if kind is None:
            assert not command.is_response or not command.ext_fields or frame.request_code is None
            continue
        try:
            header = kind.decode(command.ext_fields)
        except BadHeader:
            assert frame.case in BAD_HEADER_CASES or (command.is_response and command.code != 0)
            continue
        fields = {k: v for k, v in (command.ext_fields or {}).items() if k not in HOOK_FIELDS}
        assert header.encode() == fields, frame.case
        seen.add((frame.request_code or 0, command.is_response))
    assert len(seen) > 60


def test_json_bodies_decode_through_typed_bodies_and_encode_to_the_same_text() -> None:
    seen: Counter[str] = Counter()
    for frame in frames():
        command = frame.command
        body = bytes(command.body)
        table = RESPONSE_BODIES if command.is_response else REQUEST_BODIES
        kind = table.get(frame.request_code or 0)
        if kind is None or not body:
            assert not body.startswith(b"{"), frame.case
            continue
        if kind is RegisterBrokerBody and not body.startswith(b"{"):
            registration = RegisterBrokerBody.decode(body, compressed=True)
            assert registration.encode(compressed=True) == body
            seen["compressed"] += 1
            continue
        decoded = kind.decode(body)
        if isinstance(decoded, TopicRouteData):
            encoded = decoded.encode(strict=b'{"0":' in body)
        elif isinstance(decoded, ResetOffsetBody) and b":[" in body:
            encoded = decoded.encode_for_cpp()
        else:
            encoded = decoded.encode()
        if is_probe(frame):
            assert json_java.loads(encoded) == json_java.loads(body), frame.case
        else:
            assert encoded == body, frame.case
        seen[kind.__name__] += 1
    assert seen["compressed"] == 2
    assert len(seen) >= 30, seen


def test_every_message_body_decodes_and_encodes_to_the_same_bytes(record_cy: ModuleType) -> None:
    bodies = messages = 0
    for frame in frames():
        body = bytes(frame.command.body)
        if body[4:8] != MAGIC:
            assert not (body and frame.command.is_response and frame.request_code in MESSAGE_RESPONSES)
            continue
        decoded = record_cy.decode_records(body)
        assert b"".join(map(record_cy.encode_message, decoded)) == body
        for message in decoded:
            assert message.topic
            assert message.msg_id
            assert isinstance(message.body, bytes)
            assert message.properties
            if b"\x02WAIT\x01" not in message.stored_properties:  # a batch has WAIT twice
                assert encode_properties(message.properties).encode() == message.stored_properties
        bodies += 1
        messages += len(decoded)
    assert (bodies, messages) == (38, 87)


def test_recorded_compressed_messages_come_out_as_they_were_sent(record_cy: ModuleType) -> None:
    found: dict[int, bytes] = {}
    for frame in frames():
        body = bytes(frame.command.body)
        if body[4:8] == MAGIC:
            for message in record_cy.decode_records(body):
                if message.sys_flag & 1:
                    found[message.sys_flag & 0x700] = message.body
    assert set(found) >= {0x100, 0x200, 0x300}
    assert all(len(body) >= 4096 for body in found.values())


def test_batches_split_and_encode_to_the_same_bytes(record_cy: ModuleType) -> None:
    (frame,) = [
        f for f in frames() if f.request_code == 320 and f.case == "send_batch" and not f.command.flag
    ]
    items = record_cy.split_batch(frame.command.body)
    assert [item.body for item in items] == [b"batch-0", b"batch-1", b"batch-2"]
    again = [Message("T", item.body, flag=item.flag) for item in items]
    for message, item in zip(again, items, strict=True):
        message.properties = decode_properties_bytes(item.properties)
    assert record_cy.encode_batch(again) == frame.command.body


def test_all_acl_signatures_agree() -> None:
    signed = wrong = 0
    for frame in frames():
        command = frame.command
        fields = command.ext_fields or {}
        if acl_signature.SIGNATURE not in fields:
            continue
        secret = "87654321" if frame.case == "acl/wrong_key" else "12345678"
        good = acl_signature.is_signed(command, secret)
        if frame.case == "acl/wrong_key":
            wrong += not acl_signature.is_signed(command, "12345678")
        assert good, frame.case
        signed += 1
        if acl_signature.UNIQUE_KEY_QUERY not in fields:
            assert acl_signature.signature(fields, command.body, secret) == fields["Signature"]
    assert signed == 50
    assert wrong > 0


def test_frames_of_a_connection_are_found_again_in_their_stream(frame_cy: ModuleType) -> None:
    stream = b"".join(frame.data for frame in frames())
    ends, rest = frame_cy.split_frames(stream, 0, len(stream))
    assert len(ends) == 1993
    assert rest == len(stream)
    sizes = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    assert sizes == [len(frame.data) for frame in frames()]
    assert RequestCode.SEND_MESSAGE_V2 in {frame.request_code for frame in frames()}
