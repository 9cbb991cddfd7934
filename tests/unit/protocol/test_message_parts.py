"""Properties, hashes, ids, addresses, compression, tags, signatures: the small parts of a message."""

from __future__ import annotations

import sys
import zlib
from datetime import datetime

import pytest

from cometmq.errors import LocalProtocolError, MessageInvalid, RemoteProtocolError
from cometmq.protocol import acl_signature, sys_flag
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.compression import compress, decompress
from cometmq.protocol.hashing import java_string_hash, tags_code
from cometmq.protocol.host import HostPort, decode_host, encode_host
from cometmq.protocol.message import Message
from cometmq.protocol.message_id import (
    UniqueIds,
    month_start_ms,
    offset_message_id,
    parse_offset_message_id,
    parse_unique_id,
    unique_id_time_ms,
)
from cometmq.protocol.properties import (
    RESERVED_PROPERTIES,
    decode_properties,
    encode_properties,
    find_property,
    user_properties,
)
from cometmq.protocol.sys_flag import CompressionType


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("中文", 646394),
        ("zzzzzzzzzz", -1580979136),
        ("order-1", -1207111310),
        ("order-2", -1207111309),
        ("abcdefghijk", 1810989158),
        ("😀", 0xD83D * 31 + 0xDE00),
    ],
)
def test_string_hashes_are_javas(text: str, value: int) -> None:
    assert java_string_hash(text) == value
    assert tags_code(text) == value


def test_no_tag_has_code_zero() -> None:
    assert tags_code(None) == 0


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("a\x01b", {"a": "b"}),
        ("a\x01b\x02", {"a": "b"}),
        ("a\x01b\x02\x02c\x01d", {"a": "b", "c": "d"}),
        ("a\x01b\x02a\x01c", {"a": "c"}),
        ("a\x01\x02b\x01x", {"b": "x"}),
        ("\x01v\x02nothing\x02a\x01b\x01c", {"a": "b\x01c"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, properties: dict[str, str]) -> None:
    assert decode_properties(text) == properties
    for name in ("a", "b", "c", ""):
        value = find_property(text.encode(), name.encode())
        assert (value.decode() if value else None) == properties.get(name)


def test_a_property_is_found_without_reading_the_others() -> None:
    data = b"XKEYS\x01no\x02KEYS\x01k1 k2\x02TAGS\x01KEYS\x02v\x01KEYS\x01x"
    assert find_property(data, b"KEYS") == b"k1 k2"
    assert find_property(data, b"TAGS") == b"KEYS"
    assert find_property(data, b"EYS") is None
    assert find_property(b"a\x01b\x02a\x01c\x02a\x01", b"a") == b"c"


@pytest.mark.parametrize("properties", [{"a\x01": "b"}, {"a": "\x02"}, {"": "\x01"}, {"a": "b\x02c\x01d"}])
def test_separators_inside_a_property_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(LocalProtocolError, match=r"U\+0001"):
        encode_properties(properties)


def test_reserved_names() -> None:
    assert {"KEYS", "TAGS", "UNIQ_KEY", "CLUSTER", "REAL_QID", "TTL"} <= RESERVED_PROPERTIES
    assert (
        not {"INNER_MULTI_DISPATCH", "CHECK_IMMUNITY_TIME_IN_SECONDS", "TIMER_DELAY_SEC"}
        & RESERVED_PROPERTIES
    )
    assert "\x02" not in RESERVED_PROPERTIES


@pytest.mark.parametrize(
    ("properties", "remedy"),
    [
        ({"TAGS": "a"}, "use the argument tag"),
        ({"KEYS": "a"}, "use the argument keys"),
        ({"DELAY": "3"}, "use the argument delay_level"),
        ({"fine": "1", "UNIQ_KEY": "x"}, "'UNIQ_KEY' is reserved .* choose another name"),
        ({"empty": " "}, "leave it out"),
        ({"": "1"}, "leave it out"),
        ({"amount": 120}, r"use str\(\)"),
    ],
)
def test_properties_that_are_not_the_applications_are_refused(properties: dict, remedy: str) -> None:
    with pytest.raises(MessageInvalid, match=remedy):
        Message("T", b"x", properties=properties)


def test_what_the_application_gave_can_be_told_from_the_rest() -> None:
    message = Message("T", b"x", tag="a", keys="k", properties={"amount": "120"})
    assert user_properties(message.properties) == {"amount": "120"}
    Message("T", b"x", properties=user_properties(message.properties))


def test_a_message_keeps_tag_keys_and_delay_as_properties() -> None:
    message = Message(
        "T", b"x", tag="a", keys=["k1", "k2"], delay_level=3, wait_store_ok=False, properties={"u": "1"}
    )
    assert message.properties == {"u": "1", "TAGS": "a", "KEYS": "k1 k2", "DELAY": "3", "WAIT": "false"}
    assert (message.tag, message.tags, message.keys, message.delay_level) == ("a", "a", ["k1", "k2"], 3)
    other = message.copy()
    other.tag = None
    other.delay_level = 0
    other.keys = []
    other.wait_store_ok = True
    assert other.properties == {"u": "1", "WAIT": "true"}
    assert message.tag == "a"
    assert Message("T", b"", keys="one").keys == ["one"]
    odd = Message("T")
    odd.properties["DELAY"] = "x"
    assert odd.delay_level == 0
    assert "T" in repr(message)


@pytest.mark.parametrize(
    ("host", "port", "data"),
    [
        ("127.0.0.1", 21010, "7f00000100005212"),
        ("::1", 1, "00000000000000000000000000000001" + "00000001"),
        ("fe80::1%eth0", 0, "fe800000000000000000000000000001" + "00000000"),
    ],
)
def test_addresses_in_records(host: str, port: int, data: str) -> None:
    assert encode_host(host, port).hex() == data
    assert decode_host(bytes.fromhex(data)) == (host.partition("%")[0], port)


def test_addresses_as_text() -> None:
    assert HostPort.parse("/127.0.0.1:80") == ("127.0.0.1", 80)
    assert HostPort.parse("[::1]:80") == ("::1", 80)
    assert str(HostPort("::1", 80)) == "[::1]:80"
    for text in ("nothing", "h:x", ""):
        with pytest.raises(RemoteProtocolError):
            HostPort.parse(text)
    for host, port in (("example.org", 80), ("127.0.0.1", 2**31)):
        with pytest.raises(LocalProtocolError):
            encode_host(host, port)
    with pytest.raises(RemoteProtocolError):
        decode_host(b"12345")


def test_offset_ids_say_where_a_message_is() -> None:
    message_id = offset_message_id(HostPort("127.0.0.1", 21010), 154)
    assert message_id == "7F00000100005212000000000000009A"
    assert parse_offset_message_id(message_id.lower()) == (("127.0.0.1", 21010), 154)
    long_id = offset_message_id(encode_host("::1", 10911), 2**40)
    assert len(long_id) == 56
    assert parse_offset_message_id(long_id) == (("::1", 10911), 2**40)
    for text in ("", "x" * 32, "00", "7F" * 17, "7F " * 10 + "7F"):
        with pytest.raises(RemoteProtocolError, match="not a message id"):
            parse_offset_message_id(text)


def at(*moment: int) -> int:
    return round(datetime(*moment).timestamp() * 1000)  # type: ignore[arg-type]


def test_unique_ids_have_javas_layout() -> None:
    now = [at(2026, 11, 15, 21, 42, 35)]
    ids = UniqueIds("127.0.0.1", 0x12926, 0x30946E09, lambda: now[0])
    first, second = ids.next(), ids.next()
    assert first[:20] == "7F000001292630946E09"
    assert parse_unique_id(first) == ("127.0.0.1", 0x2926, 0x30946E09, now[0] - at(2026, 11, 1), 0)
    assert parse_unique_id(second.lower()).counter == 1
    assert unique_id_time_ms(first, now[0] + 5) == now[0]
    assert unique_id_time_ms(first, at(2026, 12, 1, 1)) == at(2026, 11, 15, 21, 42, 35)
    now[0] = at(2026, 12, 1, 0, 0, 1)
    assert parse_unique_id(ids.next()).month_ms == 1000
    assert month_start_ms(at(2026, 12, 31, 23)) == at(2026, 12, 1)


def test_unique_ids_wrap_their_counter_and_take_ipv6() -> None:
    ids = UniqueIds("::1", 1, 2, lambda: at(2026, 1, 1))
    made = [ids.next() for _ in range(65_537)]
    assert len(set(made)) == 65_536
    assert made[0] == made[-1]
    assert len(made[0]) == 56
    with pytest.raises(LocalProtocolError):
        UniqueIds("nowhere", 1, 2, lambda: 0)
    with pytest.raises(RemoteProtocolError):
        parse_unique_id("7F0000")


@pytest.mark.parametrize("kind", CompressionType)
def test_bodies_survive_compression(kind: CompressionType) -> None:
    for body in (b"", b"x", bytes(100_000)):
        packed = compress(body, kind)
        assert decompress(packed, sys_flag.compression_bits(kind)) == body


def test_no_type_bits_mean_zlib() -> None:
    assert decompress(zlib.compress(b"go"), sys_flag.COMPRESSED) == b"go"


@pytest.mark.parametrize("kind", CompressionType)
def test_growth_is_limited_and_damage_is_reported(kind: CompressionType) -> None:
    bits = sys_flag.compression_bits(kind)
    packed = compress(bytes(1_000_000), kind)
    with pytest.raises(RemoteProtocolError, match="grows beyond"):
        decompress(packed, bits, 999_999)
    assert len(decompress(packed, bits, 1_000_000)) == 1_000_000
    for damaged in (packed[: len(packed) // 2], b"nonsense", b"\xff" + packed[1:]):
        with pytest.raises(RemoteProtocolError):
            decompress(damaged, bits)


def test_an_unknown_compression_type_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="nobody knows"):
        decompress(b"x", 0x701)


def test_a_missing_compression_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    with pytest.raises(LocalProtocolError, match="install cometmq"):
        decompress(b"x", sys_flag.compression_bits(CompressionType.LZ4))


def test_addresses_have_the_size_that_the_flags_say() -> None:
    assert (sys_flag.born_host_size(0x10), sys_flag.store_host_size(0x10)) == (20, 8)


def test_the_worked_example_of_a_signature() -> None:
    fields = {"topic": "TopicA", "AccessKey": "rocketmq2"}
    assert acl_signature.signature(fields, b"", "12345678") == "yvZvKMqXR7E4uBCgkiiGE2OZ9Zg="


def test_signed_requests_verify_and_changed_ones_do_not() -> None:
    command = RemotingCommand(code=12, ext_fields={"topic": "T", "_UNIQUE_KEY_QUERY": "true"}, body=b"body")
    acl_signature.sign(command, "ak", "secret", "token")
    assert command.ext_fields is not None
    assert command.ext_fields["SecurityToken"] == "token"
    assert acl_signature.is_signed(command, "secret")
    assert not acl_signature.is_signed(command, "other")
    command.body = b"other"
    assert not acl_signature.is_signed(command, "secret")
    bare = RemotingCommand(code=34)
    assert not acl_signature.is_signed(bare, "secret")
    acl_signature.sign(bare, "ak", "secret")
    assert acl_signature.is_signed(bare, "secret")


def test_fields_are_signed_in_the_order_of_utf16_units() -> None:
    # U+FF5E sorts after U+1F600 in UTF-16 (surrogates), before it in code points.
    fields = {"\uff5e": "1", "\U0001f600": "2"}
    assert acl_signature.signature(fields, b"", "s") == acl_signature.signature(
        {"a": "2", "b": "1"}, b"", "s"
    )


def test_value_with_a_separator_survives_decoding_and_joining() -> None:
    from cometmq.protocol.properties import decode_properties, join_properties

    text = "a\x01b\x01c\x02d\x01e"
    assert join_properties(decode_properties(text)) == text
