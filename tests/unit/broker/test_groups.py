"""Settings of consumer groups and expression filters, and their files."""

from __future__ import annotations

import pytest

from cometmq.broker.filter_data import (
    CLEAN_TIME_SPAN_MS,
    DEAD_AT_LOAD_MS,
    ExpressionError,
    FilterData,
    compile_expression,
)
from cometmq.broker.groups import SubscriptionGroups
from cometmq.protocol import json_java
from cometmq.protocol.bodies.group import SubscriptionGroupConfig
from cometmq.protocol.bodies.heartbeat import SubscriptionData
from cometmq.protocol.filters.bloom import BloomFilter
from cometmq.protocol.names import BUILT_IN_GROUPS


class ManualClock:
    def __init__(self) -> None:
        self.now = 1_000_000_000

    def __call__(self) -> int:
        return self.now


def test_groups_come_into_being_by_being_named() -> None:
    changes: list[int] = []
    groups = SubscriptionGroups(on_change=lambda: changes.append(1))
    assert groups.get("G") is None
    created = groups.find("G")
    assert created == SubscriptionGroupConfig(group_name="G")
    assert groups.find("G") is created
    assert groups.data_version.counter == 1
    assert len(changes) == 1


def test_without_automatic_creation_only_system_groups_do() -> None:
    groups = SubscriptionGroups(auto_create=lambda: False)
    assert groups.find("G") is None
    assert groups.find("CID_RMQ_SYS_TRANS") is not None
    assert groups.find("TOOLS_CONSUMER") is not None


def test_built_in_groups_are_there() -> None:
    assert [config.group_name for config in SubscriptionGroups()] == list(BUILT_IN_GROUPS)


def test_update_and_delete_count_as_changes() -> None:
    groups = SubscriptionGroups()
    groups.put(SubscriptionGroupConfig(group_name="G", retry_queue_nums=3))
    assert groups.get("G").retry_queue_nums == 3  # type: ignore[union-attr]
    assert groups.delete("G")
    assert not groups.delete("G")
    assert groups.data_version.counter == 2


def test_slow_group_is_stopped_in_memory_only() -> None:
    groups = SubscriptionGroups()
    groups.find("G")
    groups.disable_consume("G")
    assert groups.get("G").consume_enable is False  # type: ignore[union-attr]
    again = SubscriptionGroups()
    again.load_text(groups.file_text())
    assert again.get("G").consume_enable is True  # type: ignore[union-attr]


def test_file_has_the_layout_of_the_original_and_comes_back() -> None:
    groups = SubscriptionGroups(now_ms=ManualClock())
    groups.put(SubscriptionGroupConfig(group_name="CG", consume_broadcast_enable=False))
    text = groups.file_text()
    assert text == json_java.dumps_pretty(groups.snapshot())
    assert text.startswith('{\n\t"dataVersion":{\n\t\t"counter":1,\n\t\t"timestamp":1000000000\n\t},\n')
    assert '\n\t\t"CG":{\n\t\t\t"brokerId":0,\n\t\t\t"consumeBroadcastEnable":false,\n' in text
    again = SubscriptionGroups()
    again.load_text(text)
    assert again.file_text() == text


FILTER_FILE = """{
	"filterDataByTopic":{
		"TopicSql":{
			"groupFilterData":{
				"CG_sql0":{
					"bloomFilterData":{
						"bitNum":112,
						"bitPos":[92,98,7]
					},
					"bornTime":1794779037199,
					"clientVersion":1794779077339,
					"consumerGroup":"CG_sql0",
					"dead":true,
					"deadTime":1794779094081,
					"expression":"a > 5 AND color = 'red'",
					"expressionType":"SQL92",
					"topic":"TopicSql"
				}
			},
			"topic":"TopicSql"
		}
	}
}"""


def sql(topic: str = "T", expression: str = "a > 3", version: int = 1) -> SubscriptionData:
    return SubscriptionData(topic=topic, sub_string=expression, expression_type="SQL92", sub_version=version)


def test_filter_file_of_the_java_broker_is_read_and_written_back() -> None:
    clock = ManualClock()
    clock.now = 1794779095000
    filters = FilterData(now_ms=clock)
    filters.load_text(FILTER_FILE)
    known = filters.get("TopicSql", "CG_sql0")
    assert known is not None
    assert known.dead
    assert known.wants({"a": "6", "color": "red"})
    assert filters.file_text() == FILTER_FILE


def test_other_bloom_parameters_make_the_file_worthless() -> None:
    filters = FilterData(bloom=BloomFilter.of(10, 32))
    filters.load_text(FILTER_FILE)
    assert list(filters) == []


def test_empty_filter_file_has_the_form_of_the_original() -> None:
    assert json_java.loads(FilterData().file_text()) == {"filterDataByTopic": {}}


def test_newer_version_replaces_an_expression_and_older_ones_are_ignored() -> None:
    filters = FilterData()
    filters.register("G", [sql(version=5)])
    filters.register("G", [sql(expression="a > 9", version=4)])
    assert filters.get("T", "G").expression == "a > 3"  # type: ignore[union-attr]
    filters.register("G", [sql(expression="a > 9", version=6)])
    assert filters.get("T", "G").expression == "a > 9"  # type: ignore[union-attr]


def test_expression_that_does_not_compile_removes_the_entry() -> None:
    filters = FilterData()
    filters.register("G", [sql()])
    filters.register("G", [sql(expression="a >< 3", version=2)])
    assert filters.get("T", "G") is None


def test_filters_die_with_their_group_and_revive_with_it() -> None:
    clock = ManualClock()
    filters = FilterData(now_ms=clock)
    filters.register("G", [sql()])
    clock.now += 1
    filters.unregister("G")
    known = filters.get("T", "G")
    assert known is not None
    assert known.dead
    filters.register("G", [sql()])
    assert not known.dead
    clock.now += 1
    filters.register("G", [SubscriptionData(topic="Other")])  # T is not subscribed any more
    assert known.dead
    clock.now += CLEAN_TIME_SPAN_MS - 1
    filters.drop_dead()
    assert filters.get("T", "G") is known
    clock.now += 1
    filters.drop_dead()
    assert filters.get("T", "G") is None


def test_loaded_filters_count_as_dead_until_their_group_comes_back() -> None:
    clock = ManualClock()
    filters = FilterData(now_ms=clock)
    filters.register("G", [sql()])
    clock.now += 100_000
    again = FilterData(now_ms=clock)
    again.load_text(filters.file_text())
    known = again.get("T", "G")
    assert known is not None
    assert known.dead_time_ms == clock.now - DEAD_AT_LOAD_MS


def test_bit_map_has_the_bits_of_groups_that_want_the_message() -> None:
    filters = FilterData()
    filters.register("G1", [sql(expression="a > 3")])
    filters.register("G2", [sql(expression="a < 3")])
    bloom = BloomFilter.of(20, 32)
    assert filters.bit_map("T", {"a": "5"}) == bloom.bit_map([bloom.positions("G1", "T")])
    assert filters.bit_map("nobody filters", {"a": "5"}) is None


@pytest.mark.parametrize(("kind", "expression"), [("SQL92", "a >< 1"), ("CLASS", "x"), ("SQL92", "")])
def test_bad_expressions_are_errors(kind: str, expression: str) -> None:
    with pytest.raises(ExpressionError):
        compile_expression(kind, expression)
