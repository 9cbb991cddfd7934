"""The queues a source reads: found by list, pattern or assignment, with their offsets. Planner only, blocking."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from cometmq.errors import CometMQError, ConfigError, ConnectionLost, Timeout, TopicNotFound
from cometmq.protocol.message import MessageQueue
from cometmq.spark.cluster import (
    MASTER,
    Addresses,
    Bounds,
    Cluster,
    Route,
    is_transient,
    master_address,
    pause,
)
from cometmq.spark.offsets import QueueOffsets
from cometmq.spark.option_values import OFFSET_EARLIEST, OFFSET_LATEST, Offsets
from cometmq.spark.options import ReadOptions

log = logging.getLogger(__name__)


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Subscription:
    """Routes are asked every ``metadataRefreshMs``, offsets at most every ``offsetPollMs``.

    Brokers that the NameServers have forgotten stay in the routes: only they themselves can tell a topic that is gone
    from a broker that is down.
    """

    def __init__(self, options: ReadOptions, now_ms: Callable[[], int] = monotonic_ms) -> None:
        self._options = options
        self._now_ms = now_ms
        self.cluster = Cluster(
            options, timeout_ms=options.pull_timeout_ms, retries=options.retries, group=options.group
        )
        self._hasty = Cluster(options, timeout_ms=options.pull_timeout_ms, retries=0, group=options.group)
        self._routes: dict[str, Route] = {}
        self._routes_ms: int | None = None
        self._bounds: dict[MessageQueue, Bounds] = {}
        self._bounds_ms: int | None = None
        self._known_groups: dict[str, set[str]] = {}

    @property
    def addresses(self) -> Addresses:
        found: Addresses = {}
        for route in self.routes().values():
            found.update(route.addresses)
        return found

    def routes(self) -> dict[str, Route]:
        now = self._now_ms()
        if self._routes_ms is None or now - self._routes_ms >= self._options.metadata_refresh_ms:
            self._routes = (
                self._find_routes(self.cluster) if self._routes_ms is None else self._newer_routes()
            )
            self._routes_ms = now
        return self._routes

    def _find_routes(self, cluster: Cluster) -> dict[str, Route]:
        options = self._options
        if options.subscribe_pattern is not None:
            return {topic: cluster.route(topic) for topic in cluster.topics_like(options.subscribe_pattern)}
        found: dict[str, Route] = {}
        for topic in options.assign or options.subscribe:
            try:
                found[topic] = cluster.route(topic)
            except TopicNotFound:
                if self._routes_ms is None:
                    raise
        return found

    def _newer_routes(self) -> dict[str, Route]:
        """What the NameServers say now, and what they said before about brokers they do not know any more."""
        try:
            found = self._find_routes(self._hasty)
        except (ConnectionLost, Timeout) as error:  # the brokers may well be there
            log.warning("routes not refreshed: %s", error)
            return self._routes
        for topic, known in self._routes.items():
            route = found.setdefault(topic, Route())
            for broker in known.addresses.keys() - route.addresses.keys():
                route.addresses[broker] = known.addresses[broker]
                route.read_queues[broker] = known.read_queues.get(broker, 0)
        return found

    def bounds(self, *, fresh: bool = False) -> dict[MessageQueue, Bounds]:
        """First and next offset of every queue."""
        now = self._now_ms()
        if fresh or self._bounds_ms is None or now - self._bounds_ms >= self._options.offset_poll_ms:
            self._bounds = self._assigned(self._ask_bounds())
            self._bounds_ms = now
        return self._bounds

    def _ask_bounds(self) -> dict[MessageQueue, Bounds]:
        """Tried again like every request, but with new routes: a broker may come back at another address."""
        attempt = 0
        while True:
            found: dict[MessageQueue, Bounds] = {}
            try:
                for topic, route in self.routes().items():
                    found.update(self._hasty.bounds(topic, route))
                return found
            except CometMQError as error:
                if self._routes_ms is None or attempt >= self._options.retries or not is_transient(error):
                    raise
                log.warning("attempt %d failed: %s", attempt + 1, error)
            pause(attempt)
            attempt += 1
            self._routes = self._newer_routes()

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

    def has_master(self, queue: MessageQueue) -> bool:
        """Whether the answers about a queue came from a master."""
        return MASTER in self.routes()[queue.topic].addresses.get(queue.broker_name, {})

    # -- where to begin and to end ---------------------------------------------------------------------------

    def starting_offsets(self, default: str) -> QueueOffsets:
        options, bounds = self._options, self.bounds(fresh=True)
        if options.starting_by_timestamp is not None or options.starting_timestamp_ms is not None:
            return self._by_time(options.starting_by_timestamp, options.starting_timestamp_ms, default)
        place = options.starting_offsets if options.starting_offsets is not None else default
        return {queue: self._place(queue, bounds[queue], place, default) for queue in bounds}

    def _place(self, queue: MessageQueue, bounds: Bounds, place: str | Offsets, default: str) -> int:
        if place == "group":
            stored = self._group_offset(queue)
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

    def _group_offset(self, queue: MessageQueue) -> int | None:
        """A broker also says 0 when it has no offset of a group, as long as nothing of the queue was deleted."""
        address, group = self.address(queue), self._options.group
        stored = self.cluster.group_offset(address, group, queue)
        if stored != 0 or self._options.group_fallback == "earliest":
            return stored
        if address not in self._known_groups:
            self._known_groups[address] = self.cluster.groups_with_offsets(address)
        return 0 if f"{queue.topic}@{group}" in self._known_groups[address] else None

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
