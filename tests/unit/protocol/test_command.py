"""Frames and headers: what is tolerated, what is refused, what is written."""

from __future__ import annotations

import json
import struct

import pytest

from cometmq.errors import LocalProtocolError, RemoteProtocolError
from cometmq.protocol.codes import LanguageCode, RequestCode, ResponseCode, SerializeType
from cometmq.protocol.command import RemotingCommand, decode_frame
from cometmq.protocol.headers import EmptyHeader, GetRouteInfoHeader
from cometmq.protocol.limits import EXT_FIELD_COUNT_MAX, FRAME_SIZE_MAX


def json_frame(header: str | bytes, body: bytes = b"") -> bytes:
    data = header.encode() if isinstance(header, str) else header
    return struct.pack(">II", 4 + len(data) + len(body), len(data)) + data + body


def binary_frame(header: bytes) -> bytes:
    return struct.pack(">II", 4 + len(header), 1 << 24 | len(header)) + header


def binary_header(remark: bytes = b"", block: bytes = b"", code: int = 105, language: int = 0) -> bytes:
    fixed = struct.pack(">hbhiii", code, language, 407, 7, 0, len(remark))
    return fixed + remark + struct.pack(">i", len(block)) + block


def test_a_request_is_written_with_javas_members_in_javas_order() -> None:
    command = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoHeader(topic="T"))
    command.opaque = 1
    header = b'{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"PYTHON","opaque":1,'
    header += b'"serializeTypeCurrentRPC":"JSON","version":407}'
    assert command.encode() == json_frame(header)


def test_property_separators_are_escaped_as_java_does() -> None:
    command = RemotingCommand(code=310, ext_fields={"i": 'KEYS\x01k\x02TAGS\x01中"\\\n'})
    assert rb'"i":"KEYS\u0001k\u0002TAGS\u0001' in command.encode()
    assert '中\\"\\\\\\n'.encode() in command.encode()
    assert decode_frame(command.encode()) == command


@pytest.mark.parametrize("kind", SerializeType)
def test_a_response_mirrors_opaque_and_encoding_of_its_request(kind: SerializeType) -> None:
    request = RemotingCommand(code=11, opaque=-5, serialize_type=kind)
    response = request.response(ResponseCode.PULL_NOT_FOUND, "none", EmptyHeader(), b"body")
    decoded = decode_frame(response.encode())
    assert decoded.is_response
    assert not decoded.is_oneway
    assert (decoded.code, decoded.opaque, decoded.remark) == (19, -5, "none")
    assert decoded.serialize_type == kind
    assert decoded.body == b"body"


def test_an_empty_header_class_gives_an_empty_object_and_no_header_gives_nothing() -> None:
    assert b'"extFields":{},' in RemotingCommand(code=0).response(header=EmptyHeader()).encode()
    assert b"extFields" not in RemotingCommand(code=0).response().encode()


def test_oneway_requests_carry_their_flag() -> None:
    assert decode_frame(RemotingCommand.request(15, oneway=True).encode()).is_oneway


@pytest.mark.parametrize("kind", SerializeType)
def test_head_and_body_can_be_sent_apart(kind: SerializeType) -> None:
    command = RemotingCommand(code=0, flag=1, ext_fields={"a": "b"}, body=b"12345", serialize_type=kind)
    assert command.encode_head(5) + b"12345" == command.encode()


def test_a_minimal_header_has_javas_defaults() -> None:
    command = decode_frame(json_frame('{"code":105,"opaque":5,"extFields":{"topic":"T"}}'))
    assert (command.version, command.flag, command.language) == (0, 0, LanguageCode.JAVA)
    assert command.remark is None
    assert command.body == b""


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ('{"code":1,"extFields":null}', None),
        ('{"code":1,"extFields":{}}', {}),
        ('{"code":1,"extFields":{"n":5,"b":true,"f":1.5,"z":null}}', {"n": "5", "b": "true", "f": "1.5"}),
        ('{"code":"1","opaque":"7","extFields":{"o":{"x":1}}}', {"o": '{"x":1}'}),
        ('{"code":1, "remark" : null, "unknown":[1,{"a":2}], "extFields":{"a":""}}', {"a": ""}),
    ],
)
def test_scalars_nulls_and_unknown_members_are_tolerated(text: str, fields: dict[str, str] | None) -> None:
    command = decode_frame(json_frame(text))
    assert command.code == 1
    assert command.remark is None
    assert command.ext_fields == fields


@pytest.mark.parametrize("language", ['"COBOL"', "null", "17"])
def test_an_unknown_language_is_accepted_as_other(language: str) -> None:
    assert decode_frame(json_frame(f'{{"code":1,"language":{language}}}')).language == LanguageCode.OTHER


def test_bytes_that_are_no_utf8_become_replacement_characters() -> None:
    command = decode_frame(json_frame(b'{"code":1,"remark":"a\xff"}'))
    assert command.remark == "a�"


def test_half_characters_become_replacement_characters() -> None:
    command = decode_frame(json_frame('{"code":1,"extFields":{"i":"a\\ud800b\\ud83d\\ude00"}}'))
    assert command.ext_fields == {"i": "a�b😀"}


@pytest.mark.parametrize(
    "header",
    [
        "",
        "{nope",
        "[]",
        '"text"',
        '{"code":1',
        '{"code":1}x',
        '{"code":"x"}',
        '{"code":[1]}',
        '{"code":99999999999}',
        '{"extFields":[1]}',
        '{"code":1e999}',
        '{"a":' * 5000,
        "[" * 100_000,
    ],
)
def test_headers_that_cannot_be_read_are_refused(header: str) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_frame(json_frame(header))


def test_the_number_of_ext_fields_is_limited() -> None:
    fields = {str(n): "x" for n in range(EXT_FIELD_COUNT_MAX + 1)}
    with pytest.raises(RemoteProtocolError, match="ext fields"):
        decode_frame(json_frame(json.dumps({"code": 1, "extFields": fields})))
    with pytest.raises(RemoteProtocolError, match="ext fields"):
        decode_frame(
            RemotingCommand(code=1, ext_fields=fields, serialize_type=SerializeType.ROCKETMQ).encode()
        )


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\0\0\4",
        struct.pack(">II", 5, 0),
        struct.pack(">II", 3, 0),
        struct.pack(">II", 4, 1),
        struct.pack(">iI", -1, 0),
        struct.pack(">II", 6, 2 << 24 | 2) + b"{}",
    ],
)
def test_frames_whose_lengths_do_not_fit_are_refused(frame: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_frame(frame)


def test_a_frame_larger_than_java_accepts_is_not_written() -> None:
    with pytest.raises(LocalProtocolError, match="send less"):
        RemotingCommand(code=310).encode_head(FRAME_SIZE_MAX - 50)


def test_a_binary_header_leaves_out_what_is_empty_and_the_last_of_two_fields_wins() -> None:
    block = b"\0\1a\0\0\0\1x" + b"\0\1b\0\0\0\0" + b"\0\0\0\0\0\1z" + b"\0\1a\0\0\0\1y"
    command = decode_frame(binary_frame(binary_header(block=block)))
    assert command.ext_fields == {"a": "y"}
    assert command.remark is None
    assert command.serialize_type == SerializeType.ROCKETMQ


def test_an_unknown_language_byte_is_accepted() -> None:
    assert decode_frame(binary_frame(binary_header(language=99))).language == LanguageCode.OTHER


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\0" * 20,
        struct.pack(">hbhiii", 1, 0, 407, 0, 0, -1) + b"\0\0\0\0",
        struct.pack(">hbhiii", 1, 0, 407, 0, 0, 5) + b"\0\0\0\0",
        struct.pack(">hbhiii", 1, 0, 407, 0, 0, 0) + b"\0\0\0\1",
        struct.pack(">hbhiii", 1, 0, 407, 0, 0, 0) + b"\xff\xff\xff\xff",
        binary_header(block=b"\0"),
        binary_header(block=b"\0\5a"),
        binary_header(block=b"\xff\xffa\0\0\0\1x"),
        binary_header(block=b"\0\1a\0\0"),
        binary_header(block=b"\0\1a\0\0\0\2x"),
        binary_header(block=b"\0\1a\xff\xff\xff\xffx"),
        binary_header(block=b"\0\1a\x7f\xff\xff\xffx"),
    ],
)
def test_binary_headers_whose_lengths_do_not_fit_are_refused(header: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_frame(binary_frame(header))


def test_what_cannot_be_written_is_refused_with_a_sentence() -> None:
    for kind in SerializeType:
        with pytest.raises(LocalProtocolError, match="cannot be written"):
            RemotingCommand(code=1, remark="\ud800", serialize_type=kind).encode()
    long_name = RemotingCommand(code=1, ext_fields={"n" * 40_000: "x"}, serialize_type=SerializeType.ROCKETMQ)
    with pytest.raises(LocalProtocolError, match="name of an ext field"):
        long_name.encode()


def test_the_body_of_a_decoded_frame_is_a_copy() -> None:
    buffer = bytearray(RemotingCommand(code=1, body=b"body").encode())
    command = decode_frame(memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    assert command.body == b"body"
