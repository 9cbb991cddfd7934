"""Keyword arguments of the public constructors as types, so that editors and type checkers know them.

Only types: the defaults and their meaning stand where the arguments are used (Settings, Producer,
ConsumerOptions, Stream). tests/unit/client/test_arguments.py holds the names equal.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import TypedDict

from cometmq.client.consumer.allocation import Allocation
from cometmq.client.consumer.options import StartFrom
from cometmq.client.queue import Queue
from cometmq.client.settings import Duration
from cometmq.client.subscription import Filter


class ClientArguments(TypedDict, total=False):
    """Fields of Settings."""

    discovery_domain: str
    discovery_group: str
    access_key: str
    secret_key: str
    security_token: str
    namespace: str
    instance_name: str
    unit_name: str
    unit_mode: bool
    client_ip: str
    tls: bool | ssl.SSLContext
    tls_verify: bool
    vip_channel: bool
    isolate: bool
    trace: bool
    trace_topic: str
    connect_timeout: Duration
    request_timeout: Duration
    route_interval: Duration
    heartbeat_interval: Duration
    offset_interval: Duration
    rebalance_interval: Duration
    drain_timeout: Duration
    offset_directory: str
    compress_over_bytes: int
    compression: str
    compression_level: int
    message_bytes_max: int


class ProducerArguments(TypedDict, total=False):
    """Options of a Producer."""

    timeout: Duration
    retries: int
    retry_not_stored: bool
    avoid_slow_brokers: bool
    in_flight_max: int


class ConsumerArguments(TypedDict, total=False):
    """Fields of ConsumerOptions."""

    start: StartFrom
    concurrency: int
    batch: int
    max_retries: int | None
    ordered: bool
    broadcast: bool
    allocation: Allocation
    pull_batch: int
    pull_interval: Duration
    queue_messages_max: int
    queue_bytes_max: int
    topic_messages_max: int | None
    topic_bytes_max: int | None
    span_max: int
    suspend_time: Duration
    consume_timeout: Duration
    post_subscription: bool


class StreamArguments(TypedDict, total=False):
    """Options of a Stream."""

    assign: Iterable[Queue] | None
    filter: Filter | str | None
    start: StartFrom
    auto_commit: bool
    auto_commit_interval: Duration
    pull_batch: int
    queue_messages_max: int
    queue_bytes_max: int
    messages_max: int
    poll_timeout: Duration
    allocation: Allocation | None
