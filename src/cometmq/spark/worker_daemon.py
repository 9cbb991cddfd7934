"""Spark's own daemon of Python workers, for local sessions: quiet when Java has enough, and with our modules loaded.

Through a Unix socket a worker learns at once that Java has closed it, as it does after ``show()`` or ``limit()``;
Spark's daemon prints that as a traceback. Modules that start no threads are loaded before the workers are forked, so
that not each of them, nor each planner of a query, does it again. Arrow is none of those.
"""

from __future__ import annotations

import socket

from pyspark import daemon

import cometmq.spark.source
import cometmq.spark.store_slices
import cometmq.spark.store_source  # noqa: F401

CLOSED = 1  # the exit code after which the daemon lets a worker go

_worker = daemon.worker


def quiet_worker(sock: socket.socket, authenticated: bool) -> int:
    try:
        return int(_worker(sock, authenticated))
    except BrokenPipeError:
        return CLOSED


if __name__ == "__main__":
    daemon.worker = quiet_worker
    daemon.manager()
