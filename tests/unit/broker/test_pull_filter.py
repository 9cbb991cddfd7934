"""Filters of pulls: tags by hash, expressions on the properties of a record."""

from __future__ import annotations

from collections.abc import Mapping

from cometmq.broker.pull_filter import (
    PropertyFilter,
    RetryPropertyFilter,
    TagFilter,
    record_properties,
)
from cometmq.protocol.filters.tag import is_tag_type, tag_codes
from cometmq.protocol.hashing import tags_code
from cometmq.protocol.host import encode_host
from cometmq.protocol.record_cy import encode_record


def record(properties: bytes, *, host: str = "127.0.0.1") -> memoryview:
    return memoryview(
        encode_record(
            topic=b"TopicA",
            body=b"hello",
            properties=properties,
            born_host=encode_host(host, 1),
            store_host=encode_host("127.0.0.1", 10911),
        )
    )


def test_subscription_text_is_split_and_hashed() -> None:
    assert tag_codes("*") == tag_codes(None) == tag_codes("") == frozenset()
    assert tag_codes(" TagA ||TagB|| ") == {2598919, 2598920}


def test_tags_with_the_same_hash_pass() -> None:
    wanted = TagFilter(tag_codes("AaAa"))
    assert wanted.matches_tags_code(tags_code("BBBB"))
    assert not wanted.matches_tags_code(tags_code("TagA"))
    assert not wanted.matches_tags_code(0)


def test_missing_type_means_tag() -> None:
    assert is_tag_type(None)
    assert is_tag_type("")
    assert is_tag_type("TAG")
    assert not is_tag_type("SQL92")


def test_properties_of_a_record_are_found_behind_either_kind_of_host() -> None:
    for host in ("127.0.0.1", "::1"):
        assert record_properties(record(b"a\x015\x02TAGS\x01x", host=host)) == {"a": "5", "TAGS": "x"}


def test_expression_must_be_true_to_match() -> None:
    def evaluate(properties: Mapping[str, str]) -> bool | None:
        return int(properties["a"]) > 3 if "a" in properties else None

    wanted = PropertyFilter(evaluate)
    assert wanted.matches_record(record(b"a\x015"))
    assert not wanted.matches_record(record(b"a\x012"))
    assert not wanted.matches_record(record(b"b\x012"))


def test_retried_messages_are_filtered_by_their_original_topic() -> None:
    wanted = RetryPropertyFilter(lambda topic: (lambda properties: False) if topic == "TopicA" else None)
    assert not wanted.matches_record(record(b"RETRY_TOPIC\x01TopicA"))
    assert wanted.matches_record(record(b"RETRY_TOPIC\x01TopicB"))
