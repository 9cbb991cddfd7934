"""Consumer offsets: the next queue offset of every (group, topic, queue), kept in consumerOffset.json.

Committing happens with nearly every pull, writing every five seconds. So the table is nested by group and
topic (no key is put together per commit), and each topic of a group remembers the JSON text of its line: a
save joins ready lines and makes anew only those that changed. Pure table, loop thread only; whoever saves
writes the text in another thread.

With light queues (enableLmq) the offsets of ``%LMQ%`` groups are one number per topic in a table of their
own, and the file is lmqConsumerOffset.json.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any

from cometmq.protocol import json_java
from cometmq.protocol.names import LMQ_PREFIX

OFFSETS_FILE = "consumerOffset.json"
LMQ_OFFSETS_FILE = "lmqConsumerOffset.json"
OFFSET_UNKNOWN = -1
OFFSET_MAX = 2**63 - 1
SEPARATOR = "@"  # between topic and group in the key of the file

log = logging.getLogger(__name__)


class TopicOffsets:
    """Offsets of one group in one topic."""

    __slots__ = ("_key", "_text", "queues")

    def __init__(self, topic: str, group: str, queues: dict[int, int]) -> None:
        self.queues = queues
        self._key = json.dumps(topic + SEPARATOR + group, ensure_ascii=False)
        self._text: str | None = None

    def commit(self, queue_id: int, queue_offset: int) -> int | None:
        """Store an offset, answers the one before."""
        before = self.queues.get(queue_id)
        self.queues[queue_id] = queue_offset
        self._text = None
        return before

    def line(self) -> str:
        """``"topic@group":{0:5,1:7`` without the closing brace; integer keys stand bare in that JSON."""
        if self._text is None:
            pairs = ",".join(f"{queue_id}:{offset}" for queue_id, offset in sorted(self.queues.items()))
            self._text = f"{self._key}:{{{pairs}"
        return self._text

    def lmq_line(self) -> str:
        return f"{self._key}:{self.queues.get(0, 0)}"


class ConsumerOffsets:
    def __init__(self, *, enable_lmq: bool = False) -> None:
        self._groups: dict[str, dict[str, TopicOffsets]] = {}
        self._enable_lmq = enable_lmq
        self.unsaved = False
        self.changed: set[tuple[str, str]] | None = None  # (group, topic), for replicas; None: nobody asks

    @property
    def file_name(self) -> str:
        return LMQ_OFFSETS_FILE if self._enable_lmq else OFFSETS_FILE

    def assign(self, group: str, topic: str, queues: dict[int, int]) -> None:
        """Take over what the master has for a topic of a group; without queues it is gone."""
        if queues:
            self._put(group, topic, queues)
        else:
            self._groups.get(group, {}).pop(topic, None)
        self.unsaved = True

    def clamp(self, end_of: Callable[[str, int], int]) -> None:
        """No offset lies behind the end of its queue (the log was cut)."""
        for topics in self._groups.values():
            for topic, entry in topics.items():
                for queue_id, queue_offset in list(entry.queues.items()):
                    end = end_of(topic, queue_id)
                    if end < queue_offset != OFFSET_MAX:
                        entry.commit(queue_id, end)
                        self.unsaved = True

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Store whatever is sent, also a smaller offset, also for topics and queues that do not exist."""
        if self._enable_lmq and group.startswith(LMQ_PREFIX):
            queue_id = 0
        before = self._entry(group, topic).commit(queue_id, queue_offset)
        self.unsaved = True
        if self.changed is not None:
            self.changed.add((group, topic))
        if before is not None and queue_offset < before:
            log.info(
                "offset moves back group=%s topic=%s queue=%d from=%d to=%d",
                group,
                topic,
                queue_id,
                before,
                queue_offset,
            )

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """The committed offset, or -1."""
        if self._enable_lmq and group.startswith(LMQ_PREFIX):
            queue_id = 0
        entry = self._groups.get(group, {}).get(topic)
        return OFFSET_UNKNOWN if entry is None else entry.queues.get(queue_id, OFFSET_UNKNOWN)

    def queues(self, group: str, topic: str) -> Mapping[int, int]:
        """All committed offsets of a group in a topic; empty when there are none."""
        entry = self._groups.get(group, {}).get(topic)
        return {} if entry is None else entry.queues

    def topics_of(self, group: str) -> list[str]:
        return list(self._groups.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        return [group for group, topics in self._groups.items() if topic in topics]

    def groups(self) -> list[str]:
        return list(self._groups)

    def clone(self, source_group: str, target_group: str, topic: str) -> None:
        """Replace the offsets of ``target_group`` in a topic by those of ``source_group``, if it has any."""
        source = self._groups.get(source_group, {}).get(topic)
        if source is not None:
            self._put(target_group, topic, dict(source.queues))
            self.unsaved = True
            if self.changed is not None:
                self.changed.add((target_group, topic))

    def remove_group(self, group: str) -> bool:
        removed = self._groups.pop(group, None)
        self.unsaved = self.unsaved or removed is not None
        if self.changed is not None:
            self.changed.update((group, topic) for topic in removed or ())
        return removed is not None

    def lowest(
        self, topic: str, without_groups: Container[str], min_offset: Callable[[int], int]
    ) -> dict[int, int]:
        """Per queue the lowest offset any group committed, leaving out ``without_groups`` and offsets below
        the queue.
        """
        lowest: dict[int, int] = {}
        for group, topics in self._groups.items():
            entry = topics.get(topic)
            if entry is None or group in without_groups:
                continue
            for queue_id, offset in entry.queues.items():
                if offset >= min_offset(queue_id):
                    lowest[queue_id] = min(offset, lowest.get(queue_id, OFFSET_MAX))
        return lowest

    def items(self) -> Iterator[tuple[str, str, Mapping[int, int]]]:
        """(group, topic, offsets per queue) of everything."""
        for group, topics in self._groups.items():
            for topic, entry in topics.items():
                yield group, topic, entry.queues

    def _entry(self, group: str, topic: str) -> TopicOffsets:
        topics = self._groups.get(group)
        if topics is not None:
            entry = topics.get(topic)
            if entry is not None:
                return entry
        return self._put(group, topic, {})

    def _put(self, group: str, topic: str, queues: dict[int, int]) -> TopicOffsets:
        entry = TopicOffsets(topic, group, queues)
        self._groups.setdefault(group, {})[topic] = entry
        return entry

    # --- the file and the answer to GET_ALL_CONSUMER_OFFSET ---

    def encode(self) -> bytes:
        """The compact form of the wire."""
        lmq, normal = self._lines()
        table = "{" + ",".join(line + "}" for line in normal) + "}"
        lmq_table = f'"lmqOffsetTable":{{{",".join(lmq)}}},' if self._enable_lmq else ""
        return f'{{{lmq_table}"offsetTable":{table}}}'.encode()

    def file_text(self) -> str:
        """The layout of the file: tabs, and a table of integer keys on the line of its name."""
        lmq, normal = self._lines()
        parts = ["{\n"]
        if self._enable_lmq:
            parts += ['\t"lmqOffsetTable":{', _indented(lmq, ""), "},\n"]
        parts += ['\t"offsetTable":{', _indented(normal, "\n\t\t}"), "}\n}"]
        return "".join(parts)

    def _lines(self) -> tuple[list[str], list[str]]:
        lmq: list[str] = []
        normal: list[str] = []
        for group, topics in self._groups.items():
            if self._enable_lmq and group.startswith(LMQ_PREFIX):
                lmq += [entry.lmq_line() for entry in topics.values()]
            else:
                normal += [entry.line() for entry in topics.values()]
        return lmq, normal

    def load_text(self, data: str | bytes) -> None:
        """Take over a file, or the body of a master's answer; what it does not name stays."""
        content: dict[str, Any] = json_java.loads(data) or {}
        for key, queues in (content.get("offsetTable") or {}).items():
            group, topic = _split_key(key)
            self._put(group, topic, {int(queue_id): int(offset) for queue_id, offset in queues.items()})
        for key, offset in (content.get("lmqOffsetTable") or {}).items():
            group, topic = _split_key(key)
            self._put(group, topic, {0: int(offset)})


def _split_key(key: str) -> tuple[str, str]:
    topic, _, group = key.partition(SEPARATOR)  # a topic cannot contain the separator, a group can
    return group, topic


def _indented(lines: Iterable[str], end: str) -> str:
    text = ",".join(f"\n\t\t{line}{end}" for line in lines)
    return text + "\n\t" if text else ""
