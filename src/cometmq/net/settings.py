"""ServerSettings: the keys of a RocketMQ 4.9 server's network layer, which ``broker.conf`` and ``namesrv.conf`` share.

What has an effect reaches the network layer as a :class:`NetConfig`; the rest is accepted and shown again.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(kw_only=True, eq=False, repr=False)
class ServerSettings:
    server_channel_max_idle_time_seconds: int = 120
    server_socket_backlog: int = 1_024
    server_socket_snd_buf_size: int = 0  # bytes, 0: the system's default
    server_socket_rcv_buf_size: int = 0
    write_buffer_high_water_mark: int = 0  # bytes, 0: ours
    write_buffer_low_water_mark: int = 0
    # No effect: one thread serves, and buffers and selectors are not Netty's.
    server_worker_threads: int = 8
    server_callback_executor_threads: int = 0
    server_selector_threads: int = 3
    server_oneway_semaphore_value: int = 256
    server_async_semaphore_value: int = 64
    server_pooled_byte_buf_allocator_enable: bool = True
    use_epoll_native_selector: bool = False
