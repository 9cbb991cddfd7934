"""Settings of the network layer: the RocketMQ keys under their Python spelling, and our own limits.

Every limit has a unit in its name. A limit that a peer can run into is counted in :class:`NetMetrics`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, kw_only=True)
class NetConfig:
    # RocketMQ's keys
    server_channel_max_idle_time_seconds: int = 120
    client_channel_max_idle_time_seconds: int = 120
    server_socket_backlog: int = 1024
    server_socket_snd_buf_size: int = 0  # bytes, 0 = the system's default
    server_socket_rcv_buf_size: int = 0
    write_buffer_high_water_mark: int = 0  # bytes, 0 = ours
    write_buffer_low_water_mark: int = 0
    connect_timeout_millis: int = 3000
    client_close_socket_if_timeout: bool = True

    # Our own limits
    frame_size_max: int = 16 * MIB  # length word included
    connections_max: int = 100_000
    in_flight_per_connection_max: int = 4096  # requests being handled by tasks
    in_flight_max: int = 65_536
    output_bytes_max: int = 64 * MIB  # unsent bytes of one connection before it is closed
    slow_reader_timeout_ms: int = 60_000  # no byte leaves a full output buffer for so long
    half_frame_timeout_ms: int = 30_000  # plus the time the received part takes at half_frame_rate
    half_frame_bytes_per_second: int = 16 * KIB
    receive_bytes_max: int = 512 * MIB  # held in incomplete frames by all connections together
    close_linger_ms: int = 5_000  # unsent answers may go out for so long after close()
    scan_interval_ms: int = 1_000

    @classmethod
    def from_settings(cls, settings: object, **changes: Any) -> Self:
        """The network part of a larger settings object (BrokerConfig): fields of the same name."""
        names = [field.name for field in fields(cls)]
        found: dict[str, Any] = {name: getattr(settings, name) for name in names if hasattr(settings, name)}
        return cls(**{**found, **changes})

    @property
    def high_water_bytes(self) -> int:
        return self.write_buffer_high_water_mark or 1 * MIB

    @property
    def low_water_bytes(self) -> int:
        return min(self.write_buffer_low_water_mark or 256 * KIB, self.high_water_bytes)

    @property
    def server_idle_ms(self) -> int:
        return self.server_channel_max_idle_time_seconds * 1000

    @property
    def client_idle_ms(self) -> int:
        return self.client_channel_max_idle_time_seconds * 1000


def frame_size_from(system_properties: Mapping[str, str], default: int = 16 * MIB) -> int:
    """The Java system property for the frame limit, when the file sets it to a usable number."""
    text = system_properties.get("com.rocketmq.remoting.frameMaxLength", "")
    return int(text) if text.isdigit() and int(text) > 0 else default
