"""The queues a source reads: found by list, pattern or assignment, with their offsets. Planner only, blocking."""

from __future__ import annotations

import time
from collections.abc import Callable

from cometmq.errors import ConfigError, TopicNotFound
from cometmq.protocol.message import MessageQueue
from cometmq.spark.cluster import Addresses, Bounds, Cluster, Route, master_address
from cometmq.spark.offsets import QueueOffsets
from cometmq.spark.option_values import OFFSET_EARLIEST, OFFSET_LATEST, Offsets
from cometmq.spark.options import ReadOptions


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Subscription:
    """Routes are asked every ``metadataRefreshMs``, offsets at most every ``offsetPollMs``."""

    def __init__(self, options: ReadOptions, now_ms: Callable[[], int] = monotonic_ms) -> None:
        self._options = options
        self._now_ms = now_ms
        self.cluster = Cluster(
            options, timeout_ms=options.pull_timeout_ms, retries=options.retries, group=options.group
        )
        self._routes: dict[str, Route] = {}
        self._routes_ms: int | None = None
        self._bounds: dict[MessageQueue, Bounds] = {}
        self._bounds_ms: int | None = None

    @property
    def addresses(self) -> Addresses:
        found: Addresses = {}
        for route in self.routes().values():
            found.update(route.addresses)
        return found

    def routes(self) -> dict[str, Route]:
        now = self._now_ms()
        if self._routes_ms is None or now - self._routes_ms >= self._options.metadata_refresh_ms:
            self._routes = self._find_routes()
            self._routes_ms = now
        return self._routes

    def _find_routes(self) -> dict[str, Route]:
        options = self._options
        if options.subscribe_pattern is not None:
            return {
                topic: self.cluster.route(topic)
                for topic in self.cluster.topics_like(options.subscribe_pattern)
            }
        found: dict[str, Route] = {}
        for topic in options.assign or options.subscribe:
            try:
                found[topic] = self.cluster.route(topic)
            except TopicNotFound:
                if self._routes_ms is None:
                    raise
        return found

    def bounds(self, *, fresh: bool = False) -> dict[MessageQueue, Bounds]:
        """First and next offset of every queue."""
        now = self._now_ms()
        if fresh or self._bounds_ms is None or now - self._bounds_ms >= self._options.offset_poll_ms:
            found: dict[MessageQueue, Bounds] = {}
            for topic, route in self.routes().items():
                found.update(self.cluster.bounds(topic, route))
            self._bounds = self._assigned(found)
            self._bounds_ms = now
        return self._bounds

    def _assigned(self, found: dict[MessageQueue, Bounds]) -> dict[MessageQueue, Bounds]:
        if self._options.assign is None:
            return found
        wanted = [
            MessageQueue(topic, broker, queue_id)
            for topic, brokers in self._options.assign.items()
            for broker, queue_ids in brokers.items()
            for queue_id in queue_ids
        ]
        missing = [str(queue) for queue in wanted if queue not in found]
        if missing and self._bounds_ms is None:
            raise ConfigError(f"The option assign names queues that do not exist: {', '.join(missing)}.")
        return {queue: found[queue] for queue in wanted if queue in found}

    def address(self, queue: MessageQueue) -> str:
        return master_address(self.routes()[queue.topic].addresses, queue.broker_name)

    # -- where to begin and to end ---------------------------------------------------------------------------

    def starting_offsets(self, default: str) -> QueueOffsets:
        options, bounds = self._options, self.bounds(fresh=True)
        if options.starting_by_timestamp is not None or options.starting_timestamp_ms is not None:
            return self._by_time(options.starting_by_timestamp, options.starting_timestamp_ms, default)
        place = options.starting_offsets if options.starting_offsets is not None else default
        return {queue: self._place(queue, bounds[queue], place, default) for queue in bounds}

    def _place(self, queue: MessageQueue, bounds: Bounds, place: str | Offsets, default: str) -> int:
        if place == "group":
            stored = self.cluster.group_offset(self.address(queue), self._options.group, queue)
            if stored is not None:
                return stored
            place = self._options.group_fallback
        if isinstance(place, str):
            return bounds.min_offset if place == "earliest" else bounds.max_offset
        offset = place.get(queue.topic, {}).get(queue.broker_name, {}).get(queue.queue_id)
        if offset is None:
            return self._place(queue, bounds, default, default)
        if offset == OFFSET_EARLIEST:
            return bounds.min_offset
        return bounds.max_offset if offset == OFFSET_LATEST else offset

    def ending_offsets(self) -> QueueOffsets:
        """Exclusive ends of a batch read."""
        options, bounds = self._options, self.bounds(fresh=True)
        if options.ending_by_timestamp is None and options.ending_timestamp_ms is None:
            return {
                queue: self._place(queue, bounds[queue], options.ending_offsets, "latest") for queue in bounds
            }
        ends = {}
        for queue, found in bounds.items():
            instant = _instant(options.ending_by_timestamp, options.ending_timestamp_ms, queue)
            if instant is None:
                ends[queue] = found.max_offset
            else:
                ends[queue] = self.cluster.offset_at(self.address(queue), queue, found, instant)
        return ends

    def _by_time(self, table: Offsets | None, general: int | None, default: str) -> QueueOffsets:
        starts: QueueOffsets = {}
        too_old: list[str] = []
        for queue, found in self.bounds().items():
            instant = _instant(table, general, queue)
            if instant is None:
                starts[queue] = self._place(queue, found, default, default)
                continue
            starts[queue] = self.cluster.offset_at(self.address(queue), queue, found, instant)
            if starts[queue] >= found.max_offset:
                too_old.append(str(queue))
        if too_old and self._options.by_timestamp_strategy == "error":
            raise ConfigError(
                f"Nothing in {', '.join(too_old[:8])} is as young as the starting time; set "
                "startingOffsetsByTimestampStrategy=latest to begin there at the end."
            )
        return starts

    def offset_at(self, queue: MessageQueue, instant_ms: int) -> int:
        return self.cluster.offset_at(self.address(queue), queue, self.bounds()[queue], instant_ms)


def _instant(table: Offsets | None, general: int | None, queue: MessageQueue) -> int | None:
    if table is not None:
        found = table.get(queue.topic, {}).get(queue.broker_name, {}).get(queue.queue_id)
        if found is not None:
            return found
    return general
