"""What the commands that run a server share: options, the event loop, signals, and the words on the terminal.

A server is anything with ``async start()`` and ``async stop()``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from cometmq.cli.parser import port
from cometmq.errors import ConfigError
from cometmq.logging_setup import LEVELS, set_up_logging
from cometmq.turns import take_short_turns

log = logging.getLogger(__name__)

STOP_LIMIT_S = 5.0
HEAP_KEPT_SIZE = 16 << 20  # bytes that are free at the end of the heap and stay there
HEAP_PIECE_SIZE_MAX = 4 << 20  # bytes; larger pieces are mapped each by itself
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt in glibc


class Server(Protocol):
    async def start(self) -> Any: ...

    async def stop(self) -> None: ...


def add_server_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metrics-port",
        type=port,
        metavar="PORT",
        help="serve Prometheus metrics and health on this port (0: any)",
    )
    parser.add_argument(
        "--metrics-host", default="", metavar="HOST", help="address for --metrics-port (default: all)"
    )
    parser.add_argument(
        "--log-level", choices=LEVELS, default="info", help="least level that is logged (info)"
    )
    parser.add_argument("--log-json", action="store_true", help="one JSON object per log line")


def add_setting_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o",
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="a setting as in the configuration file; wins over it (may be given several times)",
    )


def settings_of(pairs: list[str]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            raise ConfigError(f"{pair!r} is not of the form key=value.")
        settings[key.strip()] = value.strip()
    return settings


def serve(server: Server, args: argparse.Namespace, ready: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Run a server until SIGTERM or SIGINT; ``ready`` is called once it serves."""
    set_up_logging(args.log_level, as_json=args.log_json)
    keep_freed_memory()
    take_short_turns()  # the loop shall not wait behind others, and be back soon when it steps aside for a client
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_serve(server, ready))


async def _serve(server: Server, ready: Callable[[], Coroutine[Any, Any, None]]) -> int:
    stop = asyncio.Event()
    exit_codes: list[int] = []
    _on_signals(stop)

    def failed(exit_code: int) -> None:
        exit_codes.append(exit_code)
        stop.set()

    if hasattr(server, "on_fail"):
        server.on_fail = failed
    try:
        await server.start()
        await ready()
        gc.collect()
        gc.freeze()  # what stands now stays: the collector need not look at it again
        await stop.wait()
    finally:
        # Also after a failed start: what did start must let go of its files and ports.
        try:
            await asyncio.wait_for(server.stop(), STOP_LIMIT_S)
        except TimeoutError:
            log.error("stopping took longer than %g s; the store recovers with the next start", STOP_LIMIT_S)
            logging.shutdown()
            os._exit(1)  # what did not end in this time may never end
    return exit_codes[0] if exit_codes else 0


def _on_signals(stop: asyncio.Event) -> None:
    """The first signal stops in order, the second at once."""

    def received() -> None:
        if stop.is_set():
            os._exit(130)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(number, received)


def keep_freed_memory() -> None:
    """Have the C library keep what it frees, up to a limit. Loop thread, before anything else.

    Answers come and go. Without this the heap shrinks and grows with them, a hundred times a second under load; that
    needs the lock of the address space, which threads that read pages in hold meanwhile.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_TRIM_THRESHOLD, HEAP_KEPT_SIZE)
        mallopt(M_MMAP_THRESHOLD, HEAP_PIECE_SIZE_MAX)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop when it is there."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def say(line: str) -> None:
    """A line for whoever started the server; at once, also into a pipe."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
