"""The topics of a broker: their settings, automatic creation, the order flags, and ``topics.json``.

Loop thread only. Nothing here writes files or talks to NameServers: a change is reported to ``on_change``
with the names that changed, and whoever composed the broker saves and registers. ``epoch`` grows with every
change, so that code which resolved a topic (the compiled send path) knows when to look again.

The text of ``topics.json`` is kept per topic and joined when asked for: with 10,000 topics a change costs
one small string, and a save one join.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping

from cometmq.broker.config import BrokerConfig
from cometmq.clock import Clock, now_ms
from cometmq.protocol.bodies.body import Body
from cometmq.protocol.bodies.topic import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from cometmq.protocol.names import (
    AUTO_CREATE_KEY_TOPIC,
    BENCHMARK_TOPIC,
    LMQ_PREFIX,
    OFFSET_MOVED_EVENT,
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    REPLY_TOPIC_SUFFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    TIMER_TOPIC,
    TRACE_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)

TOPICS_FILE = "topics.json"
TOPIC_LENGTH_MAX = 127  # characters
SCHEDULE_QUEUES = 18  # fixed, even with more delay levels
BENCHMARK_QUEUES = 1024
CLUSTER_TOPIC_QUEUES = 16

NO_SEND_TOPICS = frozenset(
    (
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    )
)

_legal_characters = re.compile(r"[%|a-zA-Z0-9_-]+", re.ASCII)


def name_problem(topic: str | None) -> str | None:
    """Why a name cannot be a topic, in the words of the original, or None."""
    if topic is None or not topic.strip():
        return "The specified topic is blank."
    if not _legal_characters.fullmatch(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    if len(topic) > TOPIC_LENGTH_MAX:
        return "The specified topic is longer than topic max length."
    return None


def perm_text(perm: int) -> str:
    return (
        ("R" if perm & PERM_READ else "-")
        + ("W" if perm & PERM_WRITE else "-")
        + ("X" if perm & PERM_INHERIT else "-")
    )


def describe(config: TopicConfig) -> str:
    """A topic's settings as the original prints them in remarks."""
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm_text(config.perm)}, "
        f"topicFilterType={config.topic_filter_type}, topicSysFlag={config.topic_sys_flag}, "
        f"order={'true' if config.order else 'false'}]"
    )


class TopicChange(Body, kw_only=True):
    """A line of the journal of ``topics.json``."""

    config: TopicConfig | None = None
    data_version: DataVersion
    topic: str


class Topics:
    def __init__(self, config: BrokerConfig, *, now_ms: Clock = now_ms) -> None:
        self.config = config
        self.now_ms = now_ms
        self.table: dict[str, TopicConfig] = {}
        self.data_version = DataVersion(timestamp=now_ms(), counter=0)
        self.epoch = 0
        self.on_change: Callable[[Iterable[str]], None] = lambda names: None
        self._texts: dict[str, str] = {}
        self._system: set[str] = set()
        self._add_system_topics()

    # -- looking up ------------------------------------------------------------------------------------------

    def find(self, topic: str) -> TopicConfig | None:
        found = self.table.get(topic)
        if found is None and self.config.enable_lmq and topic.startswith(LMQ_PREFIX):
            return TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1)
        return found

    def is_system(self, topic: str) -> bool:
        return topic in self._system or topic.startswith(SYSTEM_TOPIC_PREFIX)

    @property
    def system_topics(self) -> set[str]:
        """What GET_SYSTEM_TOPIC_LIST_FROM_BROKER lists."""
        return set(self._system)

    def snapshot(self, names: Iterable[str] | None = None) -> TopicConfigSerializeWrapper:
        """Data version and settings of all topics, or of those named."""
        if names is None:
            table = dict(self.table)
        else:
            table = {name: self.table[name] for name in names if name in self.table}
        return TopicConfigSerializeWrapper(topic_config_table=table, data_version=self.data_version)

    # -- changing --------------------------------------------------------------------------------------------

    def put(self, config: TopicConfig) -> None:
        """Create or replace a topic. The order flag is the NameServer's and stays as it was."""
        before = self.table.get(config.topic_name)
        config.order = before.order if before is not None else False
        self._set(config)
        self._changed((config.topic_name,))

    def delete(self, topic: str) -> bool:
        if self.table.pop(topic, None) is None:
            return False
        self._texts.pop(topic, None)
        self._changed((topic,))
        return True

    def create_by_send(
        self, topic: str, *, template: str | None, queue_nums: int, sys_flag: int = 0
    ) -> TopicConfig | None:
        """Automatic creation after a template topic that lets others inherit; None when there is none."""
        found = self.find(topic)
        if found is not None:
            return found
        parent = self.table.get(template or "")
        if parent is None:
            return None
        if parent.topic_name == AUTO_CREATE_KEY_TOPIC and not self.config.auto_create_topic_enable:
            parent.perm = PERM_READ | PERM_WRITE
        if not parent.perm & PERM_INHERIT:
            return None
        queues = max(0, min(queue_nums, parent.write_queue_nums))
        created = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=parent.perm & ~PERM_INHERIT,
            topic_filter_type=parent.topic_filter_type,
            topic_sys_flag=sys_flag,
        )
        self.put(created)
        return created

    def find_or_create(
        self, topic: str, *, queue_nums: int, perm: int = PERM_READ | PERM_WRITE, sys_flag: int = 0
    ) -> TopicConfig:
        """For the topics that the broker needs itself: retry, dead letter, transaction topics."""
        found = self.find(topic)
        if found is not None:
            return found
        created = TopicConfig(
            topic_name=topic,
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=perm,
            topic_sys_flag=sys_flag,
        )
        self.put(created)
        return created

    def apply_order_table(self, table: Mapping[str, str]) -> None:
        """Topics named by the NameServer's order table are ordered, all others are not."""
        changed = [name for name, config in self.table.items() if config.order != (name in table)]
        for name in changed:
            config = self.table[name]
            config.order = name in table
            self._set(config)
        if changed:
            self._changed(changed)

    def replace_all(self, table: Mapping[str, TopicConfig], data_version: DataVersion) -> None:
        """Take over another broker's topics (a replica follows its master)."""
        self.table = {}
        self._texts = {}
        for config in table.values():
            self._set(config)
        self.data_version = data_version
        self.epoch += 1

    def bump(self) -> None:
        """A change that concerns all topics (brokerPermission): new data version, nobody named."""
        self._changed(())

    def _set(self, config: TopicConfig) -> None:
        self.table[config.topic_name] = config
        self._texts[config.topic_name] = _entry_text(config)

    def _changed(self, names: Iterable[str]) -> None:
        self.epoch += 1
        self.data_version = self.data_version.next(self.now_ms())
        self.on_change(names)

    # -- the file --------------------------------------------------------------------------------------------

    def file_text(self) -> str:
        """The content of ``topics.json``, laid out as the original does."""
        version = self.data_version
        entries = ",\n".join(self._texts.values())
        table = f"{{\n{entries}\n\t}}" if entries else "{}"
        return (
            f'{{\n\t"dataVersion":{{\n\t\t"counter":{version.counter},\n\t\t"timestamp":{version.timestamp}\n\t}},\n'
            f'\t"topicConfigTable":{table}\n}}'
        )

    def load_text(self, data: str | bytes) -> None:
        """Overlay what ``topics.json`` holds."""
        wrapper = TopicConfigSerializeWrapper.decode(data)
        for config in wrapper.topic_config_table.values():
            self._set(config)
        self.data_version = wrapper.data_version
        self.epoch += 1

    def journal_line(self, name: str) -> str:
        """One changed topic; without settings it was deleted."""
        config = self.table.get(name)
        change = TopicChange(data_version=self.data_version, topic=name, config=config)
        return change.encode().decode()

    def load_journal_line(self, data: bytes) -> None:
        change = TopicChange.decode(data)
        if change.config is not None:
            self._set(change.config)
        else:
            self.table.pop(change.topic, None)
            self._texts.pop(change.topic, None)
        if change.data_version.counter > self.data_version.counter:
            self.data_version = change.data_version
        self.epoch += 1

    # -- system topics ---------------------------------------------------------------------------------------

    def _add_system_topics(self) -> None:
        config = self.config
        cluster, broker = config.broker_cluster_name, config.broker_name
        inherit = PERM_READ | PERM_WRITE | PERM_INHERIT
        self._add_system(SELF_TEST_TOPIC, 1)
        if config.auto_create_topic_enable:
            self._add_system(AUTO_CREATE_KEY_TOPIC, config.default_topic_queue_nums, inherit)
        self._add_system(BENCHMARK_TOPIC, BENCHMARK_QUEUES)
        self._add_system(
            cluster, CLUSTER_TOPIC_QUEUES, inherit if config.cluster_topic_enable else PERM_INHERIT
        )
        self._add_system(broker, 1, inherit if config.broker_topic_enable else PERM_INHERIT)
        self._add_system(OFFSET_MOVED_EVENT, 1)
        self._add_system(SCHEDULE_TOPIC, SCHEDULE_QUEUES)
        if config.trace_topic_enable:
            self._add_system(config.msg_trace_topic_name, 1)
        self._add_system(cluster + REPLY_TOPIC_SUFFIX, 1)
        self._system |= {
            AUTO_CREATE_KEY_TOPIC,
            TRANS_HALF_TOPIC,
            TRANS_OP_HALF_TOPIC,
            TRANS_CHECK_MAX_TIME_TOPIC,
            TRACE_TOPIC,
        }

    def _add_system(self, topic: str, queues: int, perm: int = PERM_READ | PERM_WRITE) -> None:
        self._system.add(topic)
        self._set(TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=perm))


def _entry_text(config: TopicConfig) -> str:
    name = json.dumps(config.topic_name, ensure_ascii=False)
    return (
        f"\t\t{name}:{{\n"
        f'\t\t\t"order":{"true" if config.order else "false"},\n'
        f'\t\t\t"perm":{config.perm},\n'
        f'\t\t\t"readQueueNums":{config.read_queue_nums},\n'
        f'\t\t\t"topicFilterType":"{config.topic_filter_type}",\n'
        f'\t\t\t"topicName":{name},\n'
        f'\t\t\t"topicSysFlag":{config.topic_sys_flag},\n'
        f'\t\t\t"writeQueueNums":{config.write_queue_nums}\n'
        "\t\t}"
    )
