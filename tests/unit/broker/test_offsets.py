"""The table of committed offsets and its file."""

from __future__ import annotations

from pathlib import Path

from cometmq.broker.offsets import ConsumerOffsets
from cometmq.protocol import json_java

FILE = (
    '{\n\t"offsetTable":{\n\t\t"TopicRetry@CG_retry":{0:1,1:0,2:0,3:0\n\t\t},'
    '\n\t\t"TopicA@CG_normal":{0:10,1:7,2:8,3:9\n\t\t},'
    '\n\t\t"%RETRY%CG_retry@CG_retry":{0:1\n\t\t}\n\t}\n}'
)


def table() -> ConsumerOffsets:
    offsets = ConsumerOffsets()
    for queue_id, offset in ((3, 9), (0, 10), (1, 7), (2, 8)):
        offsets.commit("CG", "TopicA", queue_id, offset)
    offsets.commit("Other", "TopicA", 0, 4)
    offsets.commit("CG", "TopicB", 0, 1)
    return offsets


def test_any_offset_is_stored_also_a_smaller_one() -> None:
    offsets = ConsumerOffsets()
    assert offsets.query("g", "t", 0) == -1
    offsets.commit("g", "t", 0, 10)
    offsets.commit("g", "t", 0, 3)
    assert offsets.query("g", "t", 0) == 3
    assert offsets.query("g", "t", 1) == -1
    assert offsets.unsaved


def test_file_of_the_java_broker_is_read_and_written_in_its_layout() -> None:
    offsets = ConsumerOffsets()
    offsets.load_text(FILE)
    assert offsets.queues("CG_normal", "TopicA") == {0: 10, 1: 7, 2: 8, 3: 9}
    again = ConsumerOffsets()
    again.load_text(offsets.file_text())
    assert json_java.loads(again.file_text()) == json_java.loads(FILE)
    assert '\n\t\t"TopicA@CG_normal":{0:10,1:7,2:8,3:9\n\t\t}' in again.file_text()


def test_a_group_may_contain_the_separator() -> None:
    offsets = ConsumerOffsets()
    offsets.commit("a@b", "T", 0, 5)
    again = ConsumerOffsets()
    again.load_text(offsets.file_text())
    assert again.query("a@b", "T", 0) == 5


def test_empty_table_has_the_layout_of_the_original() -> None:
    assert ConsumerOffsets().file_text() == '{\n\t"offsetTable":{}\n}'
    assert ConsumerOffsets().encode() == b'{"offsetTable":{}}'


def test_wire_form_has_bare_integer_keys_in_order() -> None:
    assert table().encode() == (
        b'{"offsetTable":{"TopicA@CG":{0:10,1:7,2:8,3:9},"TopicB@CG":{0:1},"TopicA@Other":{0:4}}}'
    )


def test_a_commit_after_a_save_is_in_the_next_save() -> None:
    offsets = table()
    offsets.file_text()
    offsets.commit("CG", "TopicA", 1, 70)
    assert '"TopicA@CG":{0:10,1:70,2:8,3:9' in offsets.file_text()


def test_topics_of_a_group_and_groups_of_a_topic() -> None:
    offsets = table()
    assert sorted(offsets.topics_of("CG")) == ["TopicA", "TopicB"]
    assert sorted(offsets.groups_of("TopicA")) == ["CG", "Other"]
    assert offsets.topics_of("nobody") == []


def test_clone_replaces_and_does_not_share() -> None:
    offsets = table()
    offsets.commit("Copy", "TopicA", 9, 99)
    offsets.clone("CG", "Copy", "TopicA")
    assert offsets.queues("Copy", "TopicA") == offsets.queues("CG", "TopicA")
    offsets.commit("Copy", "TopicA", 0, 0)
    assert offsets.query("CG", "TopicA", 0) == 10
    offsets.clone("nobody", "Copy", "TopicA")
    assert offsets.query("Copy", "TopicA", 0) == 0


def test_removed_group_leaves_nothing() -> None:
    offsets = table()
    assert offsets.remove_group("CG")
    assert not offsets.remove_group("CG")
    assert offsets.encode() == b'{"offsetTable":{"TopicA@Other":{0:4}}}'


def test_lowest_offsets_leave_out_groups_and_offsets_below_the_queue() -> None:
    """QUERY_CORRECTION_OFFSET: asking must not delete."""
    offsets = table()
    assert offsets.lowest("TopicA", (), lambda queue_id: 0) == {0: 4, 1: 7, 2: 8, 3: 9}
    assert offsets.lowest("TopicA", ("Other",), lambda queue_id: 8)[0] == 10
    assert 1 not in offsets.lowest("TopicA", (), lambda queue_id: 8)
    assert offsets.query("Other", "TopicA", 0) == 4


def test_light_groups_have_a_table_of_their_own(tmp_path: Path) -> None:
    offsets = ConsumerOffsets(enable_lmq=True)
    offsets.commit("%LMQ%g", "%LMQ%t", 7, 5)
    offsets.commit("g", "t", 1, 2)
    assert offsets.file_name == "lmqConsumerOffset.json"
    assert offsets.query("%LMQ%g", "%LMQ%t", 0) == 5
    assert offsets.encode() == b'{"lmqOffsetTable":{"%LMQ%t@%LMQ%g":5},"offsetTable":{"t@g":{1:2}}}'
    again = ConsumerOffsets(enable_lmq=True)
    again.load_text(offsets.file_text())
    assert again.encode() == offsets.encode()
