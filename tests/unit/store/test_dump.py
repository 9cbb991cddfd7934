"""Messages out of a store directory."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from cometmq.errors import StoreError
from cometmq.store.dump import as_json, messages_in_log, messages_of_topic
from cometmq.store.read_only import StoreFiles

GoldenStore = Callable[[str], Path]


def no_damage(sentence: str) -> None:
    raise AssertionError(sentence)


@pytest.mark.parametrize("name", ["clean", "crash", "features"])
def test_all_messages_come_out_as_listed(golden: Path, golden_store: GoldenStore, name: str) -> None:
    listed = json.loads((golden / "store-4.9.7" / f"{name}.manifest.json").read_text())["messages"]
    messages = list(messages_in_log(StoreFiles(golden_store(name)), 0, no_damage))
    assert len(messages) == len(listed)
    for message, expected in zip(messages, listed, strict=True):
        value = as_json(message, "none")
        assert value["topic"] == expected["topic"]
        assert value["queueOffset"] == expected["queueOffset"]
        assert value["physicalOffset"] == expected["phyOffset"]
        assert value["offsetMsgId"] == expected["msgId"]
        assert value["bornHost"] == expected["bornHost"]
        assert value["storeTimestamp"] == expected["storeTimestamp"]
        assert value["bodySize"] == expected["bodyLen"]
        assert hashlib.sha256(message.stored_body).hexdigest() == expected["bodySha256"]


def test_a_queue_is_dumped_in_its_order_from_an_offset(golden_store: GoldenStore) -> None:
    files = StoreFiles(golden_store("clean"))
    messages = list(messages_of_topic(files, "TopicFill", 2, 98, no_damage))
    assert [message.queue_offset for message in messages] == list(range(98, 233))
    everything = list(messages_of_topic(files, "TopicFill", None, 0, no_damage))
    assert len(everything) == 700


def test_physical_offset_inside_of_a_record_means_the_next_one(golden_store: GoldenStore) -> None:
    files = StoreFiles(golden_store("clean"))
    first, second = islice(messages_in_log(files, 0, no_damage), 2)
    (found,) = islice(messages_in_log(files, 1, no_damage), 1)
    assert found.physical_offset == second.physical_offset == first.store_size


def test_damage_is_reported_and_stepped_over(golden_store: GoldenStore) -> None:
    root = golden_store("clean")
    path = root / "commitlog" / f"{262144:020d}"
    data = bytearray(path.read_bytes())
    data[1000:1400] = bytes(400)
    path.write_bytes(data)
    sentences: list[str] = []
    count = sum(1 for _ in messages_in_log(StoreFiles(root), 0, sentences.append))
    assert 820 < count < 827
    assert len(sentences) == 1
    assert f"{path} is damaged at" in sentences[0]


def test_unknown_topic_and_queue_are_named(golden_store: GoldenStore) -> None:
    files = StoreFiles(golden_store("clean"))
    with pytest.raises(StoreError, match=r"did you mean TopicFill\?"):
        next(messages_of_topic(files, "TopicFil", None, 0, no_damage))
    with pytest.raises(StoreError, match=r"has no queue 9 .* it has 0, 1, 2"):
        next(messages_of_topic(files, "TopicFill", 9, 0, no_damage))


def test_bodies_as_text_base64_or_not_at_all(golden_store: GoldenStore) -> None:
    files = StoreFiles(golden_store("clean"))
    text = next(messages_of_topic(files, "TopicA", 1, 0, no_damage))
    assert as_json(text, "text")["body"] == "body 1"
    assert base64.b64decode(as_json(text, "base64")["bodyBase64"]) == b"body 1"
    assert as_json(text, "none")["bodySize"] == 6
    zipped = list(messages_of_topic(files, "TopicZip", None, 0, no_damage))
    assert all("bodyError" not in as_json(message, "text") for message in zipped)
    assert any("bodyBase64" in as_json(message, "text") for message in zipped)  # one is random bytes
