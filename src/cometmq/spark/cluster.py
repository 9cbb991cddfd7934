"""What the planner asks a cluster: routes, topics, first and last offsets, offsets by time, progress of groups.

Blocking. An unreachable broker is asked again a few times and then reported; it is never taken for lost data.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from cometmq.errors import BrokerError, CometMQError, ConfigError, ConnectionLost, Timeout, TopicNotFound
from cometmq.protocol.bodies.offsets import ConsumerOffsetTable
from cometmq.protocol.bodies.route import ClusterInfo, TopicRouteData
from cometmq.protocol.bodies.stats import TopicStatsTable
from cometmq.protocol.bodies.topic import TopicList
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import EncodesToFields, RemotingCommand
from cometmq.protocol.headers import (
    GetRouteInfoHeader,
    OffsetResponseHeader,
    PullMessageHeader,
    QueryConsumerOffsetHeader,
    QueueHeader,
    SearchOffsetHeader,
    TopicHeader,
    UpdateConsumerOffsetHeader,
)
from cometmq.protocol.message import MessageQueue
from cometmq.protocol.names import PERM_READ, PERM_WRITE
from cometmq.protocol.record_cy import decode_records
from cometmq.protocol.sys_flag import PULL_SUBSCRIPTION
from cometmq.spark.link import checked, link_to
from cometmq.spark.options import ClusterOptions

log = logging.getLogger(__name__)

T = TypeVar("T")

MASTER = 0
SAMPLE_COUNT = 32
# Between attempts: a dropped connection is made anew at once, a broker that restarts gets some seconds. The last one
# repeats.
RETRY_WAITS_MS = (100, 2000, 5000)
TRANSIENT = frozenset((ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE))
SYSTEM_TOPICS = frozenset(
    ("TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "OFFSET_MOVED_EVENT", "SELF_TEST_TOPIC")
)
SYSTEM_PREFIXES = ("RMQ_SYS_", "rmq_sys_", "rocketmq-broker-", "CID_RMQ_SYS_")
GROUP_PREFIXES = ("%RETRY%", "%DLQ%")

Addresses = dict[str, dict[int, str]]  # broker name -> broker id -> address


@dataclass(frozen=True, slots=True)
class Bounds:
    """First offset of a queue, and the one its next message gets."""

    min_offset: int
    max_offset: int


@dataclass(slots=True)
class Route:
    """Queues of one topic and the addresses of its brokers."""

    read_queues: dict[str, int] = field(default_factory=dict)  # broker name -> number of queues
    write_queues: dict[str, int] = field(default_factory=dict)
    addresses: Addresses = field(default_factory=dict)


def is_transient(error: CometMQError) -> bool:
    """Worth another attempt: nothing says that the request itself is wrong."""
    if isinstance(error, BrokerError):
        return error.code in TRANSIENT
    return isinstance(error, (ConnectionLost, Timeout))


def pause(attempt: int) -> None:
    time.sleep(RETRY_WAITS_MS[min(attempt, len(RETRY_WAITS_MS) - 1)] / 1000)


class Cluster:
    """One cluster, asked through its NameServers."""

    def __init__(
        self,
        options: ClusterOptions,
        *,
        timeout_ms: int = 10_000,
        retries: int = 3,
        group: str = "SPARK_SOURCE",
    ) -> None:
        self._options = options
        self._timeout_s = timeout_ms / 1000
        self._retries = retries
        self._group = group

    # -- calls -----------------------------------------------------------------------------------------------

    def call(
        self, address: str, code: int, header: EncodesToFields | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """One request to one address; failures of the connection are tried again."""
        return self._repeated(lambda: self._call_once(address, code, header, body))

    def _call_once(
        self, address: str, code: int, header: EncodesToFields | None, body: bytes
    ) -> RemotingCommand:
        return checked(link_to(address, self._options).call(code, header, body, self._timeout_s), address)

    def _repeated(self, action: Callable[[], T]) -> T:
        attempt = 0
        while True:
            try:
                return action()
            except CometMQError as error:
                if attempt >= self._retries or not is_transient(error):
                    raise
                log.warning("attempt %d failed: %s", attempt + 1, error)
            pause(attempt)
            attempt += 1

    def ask_name_server(self, code: int, header: EncodesToFields | None = None) -> RemotingCommand:
        """Ask the NameServers in turn until one answers."""

        def any_of_them() -> RemotingCommand:
            last: CometMQError | None = None
            for address in self._options.name_server:
                try:
                    return self._call_once(address, code, header, b"")
                except (ConnectionLost, Timeout) as error:
                    last = error
            assert last is not None
            raise last

        return self._repeated(any_of_them)

    # -- topics ----------------------------------------------------------------------------------------------

    def route(self, topic: str) -> Route:
        try:
            answer = self.ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoHeader(topic=topic))
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                raise TopicNotFound(
                    f"No NameServer of {';'.join(self._options.name_server)} knows the topic {topic}."
                ) from error
            raise
        data = TopicRouteData.decode(bytes(answer.body))
        route = Route()
        for queues in data.queue_datas:
            if queues.perm & PERM_READ:
                route.read_queues[queues.broker_name] = queues.read_queue_nums
            if queues.perm & PERM_WRITE:
                route.write_queues[queues.broker_name] = queues.write_queue_nums
        route.addresses = {broker.broker_name: broker.broker_addrs for broker in data.broker_datas}
        return route

    def topics_like(self, pattern: str) -> list[str]:
        """Topics whose whole name matches; those of the system and of groups only if the pattern names them."""
        answer = self.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        names = TopicList.decode(bytes(answer.body)).topic_list
        hidden = SYSTEM_TOPICS | self._names_of_brokers()
        expression = re.compile(pattern)
        return sorted(
            name
            for name in names
            if expression.fullmatch(name)
            and name not in hidden
            and not name.startswith(SYSTEM_PREFIXES)
            and (pattern.startswith("%") or not name.startswith(GROUP_PREFIXES))
        )

    def _names_of_brokers(self) -> set[str]:
        """Every cluster and every broker has a topic of its own name."""
        answer = self.ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        info = ClusterInfo.decode(bytes(answer.body))
        return {*info.broker_addr_table, *info.cluster_addr_table}

    # -- offsets ---------------------------------------------------------------------------------------------

    def bounds(self, topic: str, route: Route) -> dict[MessageQueue, Bounds]:
        """First and next offset of every queue that can be read: one request a broker, more after a shrink."""
        found: dict[MessageQueue, Bounds] = {}
        for broker, count in sorted(route.read_queues.items()):
            address = master_address(route.addresses, broker)
            try:
                answer = self.call(address, RequestCode.GET_TOPIC_STATS_INFO, TopicHeader(topic=topic))
            except BrokerError as error:
                if error.code == ResponseCode.TOPIC_NOT_EXIST:
                    continue  # deleted there; NameServers remember it a while longer
                raise
            table = TopicStatsTable.decode(bytes(answer.body)).offset_table
            known = {queue.queue_id: offsets for queue, offsets in table.items()}
            for queue_id in range(count):
                queue = MessageQueue(topic, broker, queue_id)
                if queue_id in known:
                    low, high = known[queue_id].min_offset, known[queue_id].max_offset
                    found[queue] = Bounds(max(low, 0), max(high, 0))
                else:
                    found[queue] = self._bounds_of_queue(address, queue)
        return found

    def _bounds_of_queue(self, address: str, queue: MessageQueue) -> Bounds:
        header = QueueHeader(topic=queue.topic, queue_id=queue.queue_id)
        low, high = (
            OffsetResponseHeader.decode(self.call(address, code, header).ext_fields).offset or 0
            for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
        )
        return Bounds(max(low, 0), max(high, 0))

    def offset_at(self, address: str, queue: MessageQueue, bounds: Bounds, instant_ms: int) -> int:
        """The first offset whose store time is not before an instant; the queue's end if there is none.

        The broker's own search gives the nearest message, which may be earlier, and any one of several with the same
        time. It is only where our search begins.
        """
        low, high = bounds.min_offset, bounds.max_offset
        if low >= high:
            return high
        header = SearchOffsetHeader(topic=queue.topic, queue_id=queue.queue_id, timestamp=instant_ms)
        answer = self.call(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        hint = OffsetResponseHeader.decode(answer.ext_fields).offset or 0
        return first_not_before(
            low,
            high,
            min(max(hint, low), high - 1),
            lambda at: self._store_time(address, queue, at) >= instant_ms,
        )

    def _store_time(self, address: str, queue: MessageQueue, queue_offset: int) -> int:
        answer = self._pull(address, queue, queue_offset, 1)
        return decode_records(answer.body)[0].store_timestamp_ms

    def mean_size(self, address: str, queue: MessageQueue, queue_offset: int) -> int:
        """Mean stored size of the messages at an offset, 0 if there are none to be seen."""
        try:
            answer = self._pull(address, queue, queue_offset, SAMPLE_COUNT)
        except BrokerError:
            return 0
        records = decode_records(answer.body)
        return len(answer.body) // len(records) if records else 0

    def _pull(self, address: str, queue: MessageQueue, queue_offset: int, count: int) -> RemotingCommand:
        header = PullMessageHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=queue_offset,
            max_msg_nums=count,
            sys_flag=PULL_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        return self.call(address, RequestCode.PULL_MESSAGE, header)

    # -- groups ----------------------------------------------------------------------------------------------

    def group_offset(self, address: str, group: str, queue: MessageQueue) -> int | None:
        """Where a group will go on; None if the broker has no offset of it."""
        header = QueryConsumerOffsetHeader(consumer_group=group, topic=queue.topic, queue_id=queue.queue_id)
        try:
            answer = self.call(address, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        offset = OffsetResponseHeader.decode(answer.ext_fields).offset
        return None if offset is None or offset < 0 else offset

    def groups_with_offsets(self, address: str) -> set[str]:
        """``topic@group`` of everything that a broker has offsets of. An answer of some size: ask once."""
        answer = self.call(address, RequestCode.GET_ALL_CONSUMER_OFFSET)
        return set(ConsumerOffsetTable.decode(bytes(answer.body)).offset_table)

    def report_progress(self, group: str, offsets: Iterable[tuple[MessageQueue, int]]) -> None:
        """Store a group's next offsets at the brokers."""
        routes: dict[str, Route] = {}
        for queue, offset in offsets:
            if queue.topic not in routes:
                routes[queue.topic] = self.route(queue.topic)
            address = master_address(routes[queue.topic].addresses, queue.broker_name)
            header = UpdateConsumerOffsetHeader(
                consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
            )
            self.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)


def first_not_before(low: int, high: int, hint: int, is_late: Callable[[int], bool]) -> int:
    """The first of [low, high) that is late, else high: steps of growing size away from a hint, then halving."""
    step = 1
    if is_late(hint):
        high = hint
        while high - step >= low and is_late(high - step):
            high -= step
            step *= 2
        low = max(low, high - step + 1) if high - step >= low else low
    else:
        low = hint + 1
        while low + step - 1 < high and not is_late(low + step - 1):
            low += step
            step *= 2
        high = min(high, low + step - 1)
    while low < high:
        middle = (low + high) // 2
        if is_late(middle):
            high = middle
        else:
            low = middle + 1
    return low


def master_address(addresses: Addresses, broker: str) -> str:
    """The master's address, or that of the lowest slave while there is no master."""
    known = addresses.get(broker)
    if not known:
        raise ConfigError(f"The route has no address of the broker {broker}.")
    return known[MASTER] if MASTER in known else known[min(known)]
