"""Who this client is: its address and its client id, ``ip@instance[@unit]``.

Touches the network interfaces only to ask which local address would be used; sends nothing.
"""

from __future__ import annotations

import os
import socket
import time
from functools import cache

DEFAULT_INSTANCE = "DEFAULT"
# Any address outside will do: connecting a datagram socket only selects the local interface.
_OUTSIDE = ("192.0.2.1", 9)


@cache
def local_ip() -> str:
    """The IPv4 address of the interface that leads outside, else whatever the host name gives, else loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_OUTSIDE)
            return str(probe.getsockname()[0])
        except OSError:
            pass
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def unique_instance() -> str:
    """``pid#nanoseconds``, as clients of every language name themselves when nobody gave a name."""
    return f"{os.getpid()}#{time.monotonic_ns()}"


def client_id(instance: str, unit: str = "", ip: str | None = None) -> str:
    """
    >>> client_id("orders", ip="10.0.0.5")
    '10.0.0.5@orders'
    """
    made = f"{ip or local_ip()}@{instance}"
    return f"{made}@{unit}" if unit else made
