"""Addresses of born hosts and store hosts: ``ip · port as int32``, 8 bytes for IPv4, 20 for IPv6."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import NamedTuple

from cometmq.errors import LocalProtocolError, RemoteProtocolError

HOST_V4_SIZE = 8
HOST_V6_SIZE = 20


class HostPort(NamedTuple):
    """A numeric address and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_v6(self) -> bool:
        return ":" in self.host

    def encode(self) -> bytes:
        """The form in a record."""
        return encode_host(self.host, self.port)

    @classmethod
    def parse(cls, text: str) -> HostPort:
        """Read ``ip:port`` or ``[ip]:port``; Java's leading slash is left out."""
        host, _, port = text.removeprefix("/").rpartition(":")
        try:
            return cls(host.removeprefix("[").removesuffix("]"), int(port))
        except ValueError as error:
            raise RemoteProtocolError(f"{text!r} is not an address of the form ip:port.") from error


@lru_cache(maxsize=4096)
def encode_host(host: str, port: int) -> bytes:
    """Address and port as in a record. A zone (``fe80::1%eth0``) has no place there and is left out."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
        return address.packed + port.to_bytes(4, "big", signed=True)
    except (ValueError, OverflowError) as error:
        raise LocalProtocolError(f"{host}:{port} is not a numeric address with a port.") from error


@lru_cache(maxsize=4096)
def decode_host(data: bytes) -> HostPort:
    """The reverse of :func:`encode_host`."""
    port = int.from_bytes(data[-4:], "big", signed=True)
    if len(data) == HOST_V4_SIZE:
        return HostPort(f"{data[0]}.{data[1]}.{data[2]}.{data[3]}", port)
    if len(data) == HOST_V6_SIZE:
        return HostPort(str(ipaddress.IPv6Address(data[:16])), port)
    raise RemoteProtocolError(f"An address of {len(data)} bytes is neither IPv4 nor IPv6 with a port.")
