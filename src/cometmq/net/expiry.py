"""When must a connection end? One pure function, asked by the endpoint's scan for every connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.net.metrics import CloseReason

if TYPE_CHECKING:
    from cometmq.net.config import NetConfig
    from cometmq.net.connection import Connection


def expiry_reason(connection: Connection, now_ms: int, config: NetConfig, idle_ms: int) -> CloseReason | None:
    if connection.closed:
        overdue = now_ms - connection.closed_at_ms > config.close_linger_ms
        return CloseReason.LOCAL if overdue else None
    if connection.write_paused or connection.unsent_bytes:
        return _slow_reader(connection, now_ms, config)
    if connection.partial_since_ms and _half_frame_overdue(connection, now_ms, config):
        return CloseReason.HALF_FRAME
    if now_ms - connection.last_active_ms >= idle_ms and not connection.in_flight:
        return CloseReason.IDLE
    return None


def _slow_reader(connection: Connection, now_ms: int, config: NetConfig) -> CloseReason | None:
    """A full output buffer is no fault as long as it drains; one that stands still is."""
    drained = connection.bytes_written - connection.unsent_bytes
    if drained != connection.drained_bytes:
        connection.drained_bytes = drained
        connection.drained_at_ms = connection.last_active_ms = now_ms
        return None
    return (
        CloseReason.SLOW_READER
        if now_ms - connection.drained_at_ms >= config.slow_reader_timeout_ms
        else None
    )


def _half_frame_overdue(connection: Connection, now_ms: int, config: NetConfig) -> bool:
    """A slow link gets the time its bytes need, a peer that trickles single bytes does not."""
    earned_ms = connection.partial_bytes * 1000 // config.half_frame_bytes_per_second
    return now_ms - connection.partial_since_ms >= config.half_frame_timeout_ms + earned_ms
