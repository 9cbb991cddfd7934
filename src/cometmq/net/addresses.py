"""Host and port as text and as bytes: ``host:port``, ``[v6]:port``, and the wire form of a born host."""

from __future__ import annotations

import socket

from cometmq.errors import ConfigError, LocalProtocolError
from cometmq.protocol.host import encode_host

V4_MAPPED_PREFIX = bytes(10) + b"\xff\xff"


def parse_address(text: str) -> tuple[str, int]:
    """Split ``host:port`` (a name, IPv4, ``[::1]:port`` or Java's bare ``0:0:..:1:port``)."""
    host, colon, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 0xFFFF:
        raise ConfigError(
            f"Address {text!r} is not host:port; write for example 127.0.0.1:9876 or [::1]:9876."
        )
    return host, int(port)


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def plain_host(host: str) -> str:
    """The address without a scope id; IPv4 is written as IPv4 even when it came through an IPv6 socket."""
    host = host.partition("%")[0]
    packed = _packed_v6(host)
    if packed is not None and packed.startswith(V4_MAPPED_PREFIX):
        return socket.inet_ntoa(packed[12:])
    return host


def host_bytes(host: str, port: int) -> bytes:
    """4 or 16 address bytes and the port as a 4-byte integer, as stored in messages."""
    try:
        return encode_host(host, port)
    except LocalProtocolError:
        return bytes(8)  # a unix socket: no address to show


def _packed_v6(host: str) -> bytes | None:
    if ":" not in host:
        return None
    try:
        return socket.inet_pton(socket.AF_INET6, host)
    except OSError:
        return None
