"""Free ports on loopback. Java's servers take no port 0, so a port is found first and given to them."""

from __future__ import annotations

import socket

HOST = "127.0.0.1"
_handed_out: set[int] = set()


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_port() -> int:
    return _search(lambda port: True)


def free_broker_port() -> int:
    """A port whose neighbours are free too: a broker listens on port - 2 (fast port) and port + 1 (HA)."""
    return _search(lambda port: is_free(port - 2) and is_free(port + 1))


def _search(suits) -> int:  # type: ignore[no-untyped-def]
    while True:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port = int(probe.getsockname()[1])
        neighbours = range(port - 3, port + 4)
        if _handed_out.isdisjoint(neighbours) and suits(port):
            _handed_out.add(port)
            return port


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0
