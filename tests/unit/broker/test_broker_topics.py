"""Topics: system topics, automatic creation, the order table, topics.json."""

from __future__ import annotations

import time

import pytest

from cometmq.broker.config import BrokerConfig
from cometmq.broker.topics import Topics, describe, name_problem
from cometmq.protocol.bodies.topic import TopicConfig


def make_topics(**settings: object) -> Topics:
    return Topics(BrokerConfig(broker_name="broker-a", **settings))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (None, "The specified topic is blank."),
        ("  ", "The specified topic is blank."),
        ("a.b", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("x" * 128, "The specified topic is longer than topic max length."),
        ("x" * 127, None),
        ("%RETRY%g|1_-", None),
        ("täglich", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("a\n", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
    ],
)
def test_names_are_checked_in_the_words_of_the_original(name: str | None, problem: str | None) -> None:
    assert name_problem(name) == problem


def test_system_topics_stand_from_the_start() -> None:
    topics = make_topics(broker_cluster_name="C1")
    shapes = {name: (c.read_queue_nums, c.write_queue_nums, c.perm) for name, c in topics.table.items()}
    assert shapes == {
        "SELF_TEST_TOPIC": (1, 1, 6),
        "TBW102": (8, 8, 7),
        "BenchmarkTest": (1024, 1024, 6),
        "C1": (16, 16, 7),
        "broker-a": (1, 1, 7),
        "OFFSET_MOVED_EVENT": (1, 1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 18, 6),
        "C1_REPLY_TOPIC": (1, 1, 6),
    }


def test_switches_of_system_topics() -> None:
    topics = make_topics(
        auto_create_topic_enable=False,
        cluster_topic_enable=False,
        broker_topic_enable=False,
        trace_topic_enable=True,
    )
    assert "TBW102" not in topics.table
    assert topics.table["DefaultCluster"].perm == topics.table["broker-a"].perm == 1
    assert topics.table["RMQ_SYS_TRACE_TOPIC"].read_queue_nums == 1


def test_system_topics_are_recognised() -> None:
    topics = make_topics()
    assert all(map(topics.is_system, ("TBW102", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_anything", "broker-a")))
    assert not topics.is_system("TopicA")


@pytest.mark.parametrize(("wanted", "queues"), [(4, 4), (100, 8), (0, 0), (-1, 0)])
def test_automatic_creation_takes_the_smaller_queue_count(wanted: int, queues: int) -> None:
    created = make_topics().create_by_send("T", template="TBW102", queue_nums=wanted)
    assert created is not None
    assert (created.read_queue_nums, created.write_queue_nums, created.perm) == (queues, queues, 6)


def test_automatic_creation_needs_a_template_that_lets_others_inherit() -> None:
    topics = make_topics(auto_create_topic_enable=False)
    assert topics.create_by_send("T", template="TBW102", queue_nums=4) is None
    assert topics.create_by_send("T", template="BenchmarkTest", queue_nums=4) is None
    assert topics.create_by_send("T", template=None, queue_nums=4) is None
    assert topics.create_by_send("T", template="broker-a", queue_nums=4) is not None


def test_template_from_the_file_does_not_inherit_when_creation_is_off() -> None:
    topics = make_topics(auto_create_topic_enable=False)
    topics.put(TopicConfig(topic_name="TBW102", perm=7))
    assert topics.create_by_send("T", template="TBW102", queue_nums=4) is None
    assert topics.table["TBW102"].perm == 6


def test_every_change_raises_data_version_and_epoch_and_names_the_topic() -> None:
    topics = make_topics()
    changed: list[list[str]] = []
    topics.on_change = lambda names: changed.append(list(names))
    before, epoch = topics.data_version, topics.epoch
    topics.put(TopicConfig(topic_name="T"))
    assert topics.data_version.counter == before.counter + 1
    assert topics.epoch == epoch + 1
    topics.delete("T")
    assert not topics.delete("T")
    assert changed == [["T"], ["T"]]


def test_order_flag_belongs_to_the_nameserver() -> None:
    topics = make_topics()
    topics.put(TopicConfig(topic_name="T", order=True))
    assert not topics.table["T"].order
    topics.apply_order_table({"T": "broker-a:8"})
    assert topics.table["T"].order
    topics.put(TopicConfig(topic_name="T", read_queue_nums=4))
    assert topics.table["T"].order
    counter = topics.data_version.counter
    topics.apply_order_table({"T": "broker-a:8"})
    assert topics.data_version.counter == counter
    topics.apply_order_table({})
    assert not topics.table["T"].order


def test_file_has_the_layout_of_the_original_and_is_read_back() -> None:
    topics = make_topics()
    topics.put(TopicConfig(topic_name="TopicBatch", read_queue_nums=4, write_queue_nums=4))
    text = topics.file_text()
    assert text.startswith('{\n\t"dataVersion":{\n\t\t"counter":1,\n\t\t"timestamp":')
    assert (
        '\t\t"TopicBatch":{\n\t\t\t"order":false,\n\t\t\t"perm":6,\n\t\t\t"readQueueNums":4,\n'
        '\t\t\t"topicFilterType":"SINGLE_TAG",\n\t\t\t"topicName":"TopicBatch",\n\t\t\t"topicSysFlag":0,\n'
        '\t\t\t"writeQueueNums":4\n\t\t}'
    ) in text
    again = make_topics()
    again.load_text(text)
    assert again.table == topics.table
    assert again.data_version == topics.data_version


def test_ten_thousand_topics_are_created_and_rendered_in_linear_time() -> None:
    topics = make_topics()
    began = time.process_time()
    for number in range(10_000):
        topics.create_by_send(f"T{number}", template="TBW102", queue_nums=8)
        if number % 1000 == 0:
            topics.file_text()
    assert time.process_time() - began < 2
    assert topics.file_text().count('"topicName"') == len(topics.table)


def test_remark_text_of_a_topic() -> None:
    assert describe(TopicConfig(topic_name="T", perm=7, read_queue_nums=4, write_queue_nums=8)) == (
        "TopicConfig [topicName=T, readQueueNums=4, writeQueueNums=8, perm=RWX, topicFilterType=SINGLE_TAG, "
        "topicSysFlag=0, order=false]"
    )


def test_light_queues_need_no_settings_when_enabled() -> None:
    assert make_topics().find("%LMQ%x") is None
    found = make_topics(enable_lmq=True).find("%LMQ%x")
    assert found is not None
    assert (found.read_queue_nums, found.write_queue_nums) == (1, 1)
