"""The metrics of the network layer, for brokers and NameServers."""

from __future__ import annotations

from collections.abc import Iterator

from cometmq.metrics.exposition import COUNTER, Family
from cometmq.net.metrics import CloseReason, NetMetrics


def net_families(net: NetMetrics, server: str) -> Iterator[Family]:
    """``server`` is a label: a standalone process has two."""
    yield Family("cometmq_connections", "Open connections").add(net.connections_open, server=server)
    yield _total("cometmq_connections_opened", "Connections accepted", net.connections_opened, server)
    closed = Family("cometmq_connections_closed_total", "Connections ended, by reason", COUNTER)
    for reason in CloseReason:
        closed.add(net.connections_closed[reason], server=server, reason=reason.value)
    yield closed
    yield _total("cometmq_net_bytes_in", "Bytes received", net.bytes_in, server)
    yield _total("cometmq_net_bytes_out", "Bytes sent", net.bytes_out, server)
    yield from _requests(net, server)
    yield _total(
        "cometmq_busy_answers", "Requests refused because too many were in flight", net.busy_answers, server
    )
    yield _total("cometmq_oneway_dropped", "One-way requests dropped", net.oneway_dropped, server)
    yield _total("cometmq_reading_paused", "Times a connection was not read", net.reading_paused, server)
    yield _total("cometmq_unknown_codes", "Requests with an unknown code", net.unknown_codes, server)
    yield _total("cometmq_accept_errors", "Connections that could not be accepted", net.accept_errors, server)
    yield _total(
        "cometmq_request_timeouts", "Our requests that nobody answered", net.request_timeouts, server
    )
    yield _total("cometmq_background_errors", "Errors in callbacks and timers", net.background_errors, server)


def _requests(net: NetMetrics, server: str) -> Iterator[Family]:
    requests = Family("cometmq_requests_total", "Requests served by handlers, by code", COUNTER)
    for code, count in sorted(net.requests.items()):
        requests.add(count, server=server, code=str(code))
    yield requests
    errors = Family("cometmq_handler_errors_total", "Requests that failed in a handler, by code", COUNTER)
    for code, count in sorted(net.handler_errors.items()):
        errors.add(count, server=server, code=str(code))
    yield errors


def _total(name: str, help_text: str, value: float, server: str) -> Family:
    return Family(f"{name}_total", help_text, COUNTER).add(value, server=server)
