"""What a master replicates beside its log: topics, groups, accounts, consumer and delay offsets, queue locks.

An item is a small JSON object with its ``kind``. Each can be applied again without harm. Event loop only.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from cometmq.broker.delay import DELAY_OFFSET_FILE
from cometmq.broker.groups import GROUPS_FILE
from cometmq.broker.ha import provisional_offsets
from cometmq.broker.timers import TIMER_OFFSET_FILE
from cometmq.broker.topics import TOPICS_FILE
from cometmq.protocol import json_java
from cometmq.protocol.bodies.group import SubscriptionGroupWrapper
from cometmq.protocol.bodies.topic import TopicConfigSerializeWrapper
from cometmq.protocol.message import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cometmq.broker.broker import Broker

log = logging.getLogger(__name__)

Item = dict[str, Any]
Delays = tuple[dict[int, int], dict[int, int]]  # level -> offset, of delay levels and of timers


class MetaItems:
    """The items of one broker: made on the master, applied on followers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._delays: Delays = ({}, {})  # as followers may know them: their deliveries are confirmed
        self._looked: Delays | None = None
        self._access: dict[str, dict[str, int]] | None = None

    # -- made on the master ---------------------------------------------------------------------------------------

    def snapshot(self) -> list[Item]:
        broker = self._broker
        return [
            {"kind": "topics", "text": broker.topics.file_text()},
            self.groups(),
            {"kind": "all-offsets", "text": broker.offsets.file_text()},
            {"kind": "delays", "delay": self._delays[0], "timer": self._delays[1]},
            {"kind": "locks", "all": _encoded(broker.locks.entries())},
            *self.access(),
        ]

    def topics(self, names: Iterable[str]) -> Item:
        """Changed ones; without names all."""
        names = list(names)
        if not names:
            return {"kind": "topics", "text": self._broker.topics.file_text()}
        return {"kind": "some-topics", "lines": {n: self._broker.topics.journal_line(n) for n in names}}

    def groups(self) -> Item:
        return {"kind": "groups", "text": json_java.dumps(self._broker.groups.snapshot())}

    def begin(self) -> None:
        """We are master now."""
        self._delays = self._present_delays()
        self._looked = None
        self._broker.offsets.changed = set()

    def _present_delays(self) -> Delays:
        return self._broker.delay.offsets(), self._broker.timers.offsets()

    def offsets(self) -> list[Item]:
        """Consumer and delay offsets that changed since the last call.

        To be published when the log is confirmed up to its present end: a delay level is past a message whose copy
        at its target must not be missing where the offset is known.
        """
        broker = self._broker
        items: list[Item] = []
        changed, broker.offsets.changed = broker.offsets.changed, set()
        if changed:
            table = [(group, topic, broker.offsets.queues(group, topic)) for group, topic in changed]
            items.append({"kind": "offsets", "table": table})
        delays = self._present_delays()
        if delays != self._looked:
            self._looked = delays
            items.append({"kind": "delays", "delay": delays[0], "timer": delays[1]})
        return items

    def published(self, items: list[Item]) -> None:
        for item in items:
            if item["kind"] == "delays":
                self._delays = (item["delay"], item["timer"])

    def locks(self) -> list[Item]:
        """Queue locks that changed since the last call."""
        changed = self._broker.locks.take_changed()
        return [{"kind": "locks", "some": _encoded(changed)}] if changed else []

    def access(self) -> list[Item]:
        """The files with accounts."""
        acl, home = self._broker.acl, self._broker.config.rocketmq_home
        if acl is None:
            return []
        self._access = acl.versions()
        files = {str(path.relative_to(home)): path.read_text() for path in acl.files()}
        return [{"kind": "access", "files": files}]

    def changed_access(self) -> list[Item]:
        acl = self._broker.acl
        return self.access() if acl is not None and acl.versions() != self._access else []

    # -- applied on followers -------------------------------------------------------------------------------------

    def apply(self, item: Item) -> None:
        kind = item.get("kind")
        action = getattr(self, f"_apply_{str(kind).replace('-', '_')}", None)
        if action is None:
            log.warning("metadata of a kind that this version does not know kind=%s", kind)
            return
        action(item)

    def _apply_topics(self, item: Item) -> None:
        broker = self._broker
        wrapper = TopicConfigSerializeWrapper.decode(item["text"])
        if wrapper.data_version != broker.topics.data_version or wrapper.topic_config_table.keys() != (
            broker.topics.table.keys()
        ):
            broker.topics.replace_all(wrapper.topic_config_table, wrapper.data_version)
            broker.save(TOPICS_FILE)

    def _apply_some_topics(self, item: Item) -> None:
        broker = self._broker
        for name, line in item["lines"].items():
            broker.topics.load_journal_line(line.encode())
            if name not in broker.topics.table and broker.store.queue_ids(name):
                broker.store.delete_topic(name)
        broker.files.changed(TOPICS_FILE, list(item["lines"]))

    def _apply_groups(self, item: Item) -> None:
        wrapper = SubscriptionGroupWrapper.from_json(json_java.loads(item["text"]))
        if wrapper.data_version != self._broker.groups.data_version:
            self._broker.groups.replace_all(wrapper)
            self._broker.save(GROUPS_FILE)

    def _apply_all_offsets(self, item: Item) -> None:
        self._broker.offsets.load_text(item["text"])
        self._broker.offsets.unsaved = True

    def _apply_offsets(self, item: Item) -> None:
        for group, topic, queues in item["table"]:
            self._broker.offsets.assign(
                group, topic, {int(number): offset for number, offset in queues.items()}
            )

    def _apply_provisional_offsets(self, item: Item) -> None:
        """On the master: from a replica that served consumers while nobody was master."""
        provisional_offsets.merge(self._broker.offsets, item["table"])

    def _apply_delays(self, item: Item) -> None:
        broker = self._broker
        broker.delay.load_text(msgspec.json.encode({"offsetTable": item["delay"]}))
        broker.timers.load_text(msgspec.json.encode({"offsetTable": item["timer"]}))
        broker.save(DELAY_OFFSET_FILE)
        broker.save(TIMER_OFFSET_FILE)

    def _apply_locks(self, item: Item) -> None:
        locks = self._broker.locks
        if "all" in item:
            locks.clear()
        for group, (topic, broker_name, queue_id), client_id in item.get("all") or item.get("some") or ():
            queue = MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)
            locks.assign(group, queue, client_id)

    def _apply_access(self, item: Item) -> None:
        broker = self._broker
        if broker.acl is None:
            return
        home = Path(broker.config.rocketmq_home)
        for name, text in item["files"].items():
            path = (home / name).resolve()
            if path.is_relative_to(home.resolve()) and (not path.exists() or path.read_text() != text):
                path.parent.mkdir(parents=True, exist_ok=True)
                beside = path.with_name(path.name + ".new")
                beside.write_text(text)
                os.chmod(beside, 0o600)
                os.replace(beside, path)
        broker.acl.reload_changed()


def _encoded(locks: Sequence[tuple[str, Any, str | None]]) -> list[Any]:
    return [(group, (q.topic, q.broker_name, q.queue_id), owner) for group, q, owner in locks]
