"""Counters of the network layer: plain integers, read by cometmq.metrics and by the tests."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from cometmq.net.pump_cy import Traffic


class CloseReason(StrEnum):
    """Why a connection ended. Every closed connection is counted under exactly one of these."""

    PEER_CLOSED = "peer_closed"
    RESET = "connection_reset"
    IDLE = "idle"
    HALF_FRAME = "half_frame_timeout"
    FRAME_TOO_LARGE = "frame_too_large"
    BAD_FRAME = "bad_frame"
    TLS_REFUSED = "tls_refused"  # a TLS hello where TLS is disabled or has no certificate
    PLAIN_REFUSED = "plain_refused"  # plain bytes where TLS is enforced
    TLS_FAILED = "tls_handshake_failed"
    SLOW_READER = "slow_reader"
    OUTPUT_FULL = "output_full"
    RECEIVE_MEMORY = "receive_memory"
    TOO_MANY = "too_many_connections"
    REQUEST_TIMEOUT = "request_timeout"
    INTERNAL_ERROR = "internal_error"
    EXPIRED = "expired"  # the owner found the peer dead (no heartbeat)
    LOCAL = "closed_by_us"
    STOPPED = "endpoint_stopped"


@dataclass
class NetMetrics:
    connections_opened: int = 0
    connections_closed: Counter[str] = field(default_factory=Counter)  # by CloseReason
    traffic: Traffic = field(default_factory=Traffic)
    requests: Counter[int] = field(default_factory=Counter)  # table path only, by request code
    responses_unmatched: int = 0
    handler_errors: Counter[int] = field(default_factory=Counter)  # by request code
    unknown_codes: int = 0
    busy_answers: int = 0
    oneway_dropped: int = 0
    reading_paused: int = 0  # times a connection was not read because its answers were not taken
    request_timeouts: int = 0  # our requests to peers
    accept_errors: int = 0
    tls_connections: int = 0
    background_errors: int = 0  # exceptions in close callbacks and timers, logged

    @property
    def bytes_in(self) -> int:
        return self.traffic.bytes_in

    @property
    def bytes_out(self) -> int:
        return self.traffic.bytes_out

    @property
    def connections_open(self) -> int:
        return self.connections_opened - sum(self.connections_closed.values())
