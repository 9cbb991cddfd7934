"""Expression filters (SQL92) of consumer groups, kept in consumerFilter.json.

A group's heartbeat registers its expressions; a newer version with another expression is compiled anew, one
that does not compile removes the entry (the group's pulls then fail instead of running unfiltered). When
the group leaves, its entries are dead; dead ones are dropped after a day. The times matter for the Bloom
bits of the ConsumeQueue extension: they are valid only for messages stored after ``born_time``.

Pure table, loop thread only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cometmq.clock import Clock, now_ms
from cometmq.errors import CometMQError
from cometmq.protocol import json_java
from cometmq.protocol.filters import sql92
from cometmq.protocol.filters.bloom import BloomFilter, is_hit
from cometmq.protocol.filters.tag import SQL92, is_tag_type

if TYPE_CHECKING:
    from cometmq.protocol.bodies.heartbeat import SubscriptionData

log = logging.getLogger(__name__)

FILTER_FILE = "consumerFilter.json"
ERROR_PERCENT = 20  # maxErrorRateOfBloomFilter
GROUPS_EXPECTED = 32  # expectConsumerNumUseFilter
CLEAN_TIME_SPAN_MS = 86_400_000  # filterDataCleanTimeSpan
DEAD_AT_LOAD_MS = 30_000  # loaded entries count as dead since then, until their group comes back

Compiled = Callable[[Mapping[str, str]], bool | None]
BloomBits = tuple[int, tuple[int, ...]]  # number of bits, positions


class ExpressionError(CometMQError):
    """An expression that does not compile, or of a type that nobody knows."""


def compile_expression(expression_type: str, expression: str) -> Compiled:
    """Compile with the filter module of the type; raises ExpressionError with the parser's words."""
    if expression_type != SQL92:
        raise ExpressionError(f"The expression type {expression_type} is unknown; TAG and SQL92 exist.")
    try:
        return sql92.compile(expression)
    except sql92.Sql92Error as error:
        raise ExpressionError(str(error)) from error


@dataclass(slots=True, eq=False)
class GroupFilter:
    """The expression of one group for one topic."""

    topic: str
    group: str
    expression: str
    expression_type: str
    client_version: int
    born_time_ms: int
    dead_time_ms: int = 0
    bloom: BloomBits = (0, ())
    compiled: Compiled | None = None

    @property
    def dead(self) -> bool:
        return self.dead_time_ms >= self.born_time_ms

    def wants(self, properties: Mapping[str, str]) -> bool:
        return self.compiled is not None and self.compiled(properties) is True

    def may_want(self, store_timestamp_ms: int, bit_map: bytes) -> bool:
        """False when the bits of a message say for certain that the expression is not true for it.

        Bits that were set before the expression came, or with other parameters, say nothing.
        """
        bit_count, positions = self.bloom
        if store_timestamp_ms <= self.born_time_ms or len(bit_map) * 8 != bit_count:
            return True
        return is_hit(positions, bit_map)

    def as_json(self) -> dict[str, Any]:
        return {
            "bloomFilterData": {"bitNum": self.bloom[0], "bitPos": list(self.bloom[1])},
            "bornTime": self.born_time_ms,
            "clientVersion": self.client_version,
            "consumerGroup": self.group,
            "dead": self.dead,
            "deadTime": self.dead_time_ms,
            "expression": self.expression,
            "expressionType": self.expression_type,
            "topic": self.topic,
        }


class FilterData:
    def __init__(
        self,
        *,
        bloom: BloomFilter | None = None,
        clean_time_span_ms: Callable[[], int] = lambda: CLEAN_TIME_SPAN_MS,
        now_ms: Clock = now_ms,
    ) -> None:
        self._bloom = bloom or BloomFilter.of(ERROR_PERCENT, GROUPS_EXPECTED)
        self._clean_time_span_ms = clean_time_span_ms
        self._now_ms = now_ms
        self._topics: dict[str, dict[str, GroupFilter]] = {}
        self.unsaved = False

    def get(self, topic: str, group: str) -> GroupFilter | None:
        return self._topics.get(topic, {}).get(group)

    def of_topic(self, topic: str) -> Iterable[GroupFilter]:
        return self._topics.get(topic, {}).values()

    def __iter__(self) -> Iterator[GroupFilter]:
        for groups in self._topics.values():
            yield from groups.values()

    def _bits(self, topic: str, group: str) -> BloomBits:
        return self._bloom.bit_count, self._bloom.positions(group, topic)

    def bit_map(self, topic: str, properties: Mapping[str, str]) -> bytes | None:
        """The bits of all groups whose expression is true for a message; None when no group filters the
        topic.
        """
        filters = self._topics.get(topic)
        if not filters:
            return None
        return self._bloom.bit_map(known.bloom[1] for known in filters.values() if known.wants(properties))

    # --- what heartbeats do ---

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """All subscriptions of a group: expressions of topics that are not among them any more die."""
        topics: set[str] = set()
        for data in subscriptions:
            topics.add(data.topic)
            if not is_tag_type(data.expression_type) and data.sub_string:
                self._register(data.topic, group, data.sub_string, data.expression_type, data.sub_version)
        for known in [known for known in self if known.group == group and known.topic not in topics]:
            self._die(known)

    def _register(self, topic: str, group: str, expression: str, expression_type: str, version: int) -> None:
        known = self.get(topic, group)
        if known is not None and version <= known.client_version:
            if version == known.client_version and known.dead:
                self._revive(known)
            return
        bloom = self._bits(topic, group)
        same = known is not None and (expression, expression_type, bloom) == (
            known.expression, known.expression_type, known.bloom,
        )  # fmt: skip
        if known is not None and same:
            known.client_version = version
            self._revive(known)
            return
        created = GroupFilter(topic, group, expression, expression_type, version, self._now_ms(), bloom=bloom)
        self._replace(created)

    def _replace(self, created: GroupFilter) -> None:
        self.unsaved = True
        groups = self._topics.setdefault(created.topic, {})
        try:
            created.compiled = compile_expression(created.expression_type, created.expression)
        except ExpressionError as error:
            log.warning("filter does not compile group=%s topic=%s: %s", created.group, created.topic, error)
            groups.pop(created.group, None)
            return
        groups[created.group] = created

    def unregister(self, group: str) -> None:
        """The last member of a group left."""
        for known in [known for known in self if known.group == group]:
            self._die(known)

    def _die(self, known: GroupFilter) -> None:
        if not known.dead:
            known.dead_time_ms = self._now_ms()
            self.unsaved = True

    def _revive(self, known: GroupFilter) -> None:
        known.dead_time_ms = 0
        self.unsaved = True

    def drop_dead(self) -> None:
        """Forget entries that have been dead for a day."""
        oldest_ms = self._now_ms() - self._clean_time_span_ms()
        for topic, groups in list(self._topics.items()):
            for known in [
                known for known in groups.values() if known.dead and known.dead_time_ms <= oldest_ms
            ]:
                del groups[known.group]
                self.unsaved = True
            if not groups:
                del self._topics[topic]

    # --- the file ---

    def file_text(self) -> str:
        self.drop_dead()
        table = {
            topic: {
                "groupFilterData": {group: known.as_json() for group, known in groups.items()},
                "topic": topic,
            }
            for topic, groups in self._topics.items()
        }
        return json_java.dumps_pretty({"filterDataByTopic": table})

    def load_text(self, data: str | bytes) -> None:
        """Take over a file. Other Bloom parameters than ours make all of it worthless, as in the original."""
        content = json_java.loads(data) or {}
        loaded = [
            _from_json(entry)
            for topic in (content.get("filterDataByTopic") or {}).values()
            for entry in (topic.get("groupFilterData") or {}).values()
        ]
        if any(known.bloom != self._bits(known.topic, known.group) for known in loaded):
            log.info("filter data is not used because the Bloom filter was made with other parameters")
            return
        for known in loaded:
            if known.dead_time_ms == 0:
                known.dead_time_ms = max(known.born_time_ms, self._now_ms() - DEAD_AT_LOAD_MS)
            self._load(known)

    def _load(self, known: GroupFilter) -> None:
        try:
            known.compiled = compile_expression(known.expression_type, known.expression)
        except ExpressionError as error:
            log.warning("filter does not compile group=%s topic=%s: %s", known.group, known.topic, error)
            return
        self._topics.setdefault(known.topic, {})[known.group] = known


def _from_json(entry: dict[str, Any]) -> GroupFilter:
    bloom = entry.get("bloomFilterData") or {}
    return GroupFilter(
        topic=str(entry["topic"]),
        group=str(entry["consumerGroup"]),
        expression=str(entry.get("expression", "")),
        expression_type=str(entry.get("expressionType", SQL92)),
        client_version=int(entry.get("clientVersion", 0)),
        born_time_ms=int(entry.get("bornTime", 0)),
        dead_time_ms=int(entry.get("deadTime", 0)),
        bloom=(int(bloom.get("bitNum", 0)), tuple(int(bit) for bit in bloom.get("bitPos", ()))),
    )
