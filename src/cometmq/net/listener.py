"""Listening sockets: accept, look at the first byte, and hand the socket on as plain or TLS.

asyncio cannot start TLS once it has read a byte, so the first byte is *peeked* (MSG_PEEK) before a transport
exists. Where TLS is disabled nothing is peeked: a TLS hello then fails as a frame and is counted as refused.
A peer that connects and says nothing costs one socket and one reader entry until it expires.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from cometmq.clock import Clock
from cometmq.errors import ConfigError
from cometmq.net.config import NetConfig
from cometmq.net.metrics import CloseReason, NetMetrics
from cometmq.net.tls import TlsMode

log = logging.getLogger(__name__)

TLS_HANDSHAKE = b"\x16"  # a plain frame never starts so: its length would be 369 MB
ACCEPT_CHUNK_COUNT = 128  # connections accepted in one turn of the loop
ACCEPT_PAUSE_SECONDS = 0.5  # after the process ran out of file descriptors
_OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

OnSocket = Callable[[socket.socket, bool], None]


def bind(host: str, port: int, config: NetConfig) -> socket.socket:
    """A listening socket; port 0 picks a free one, an empty host or ``::`` means every address, v4 and v6."""
    try:
        info = socket.getaddrinfo(host or "::", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return _listen(info[0], info[4], config)
    except OSError as error:
        if not host and error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            return bind("0.0.0.0", port, config)  # this machine has no IPv6
        raise ConfigError(
            f"Cannot listen on {host or '*'}:{port}: {error.strerror or error}. Is another server there? "
            "listenPort (or --port) 0 takes a free port."
        ) from error


def _listen(family: int, address: tuple[object, ...], config: NetConfig) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and address[0] == "::":
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        for option, size in (
            (socket.SO_SNDBUF, config.server_socket_snd_buf_size),
            (socket.SO_RCVBUF, config.server_socket_rcv_buf_size),
        ):
            if size > 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        sock.bind(address)
        sock.listen(config.server_socket_backlog)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


class Listener:
    """Accepts on one socket. ``on_socket(sock, tls)`` gets every connection worth a transport."""

    def __init__(
        self,
        sock: socket.socket,
        on_socket: OnSocket,
        *,
        mode: TlsMode,
        metrics: NetMetrics,
        now_ms: Clock,
    ) -> None:
        self._sock = sock
        self._on_socket = on_socket
        self._mode = mode
        self._metrics = metrics
        self._now_ms = now_ms
        self._loop = asyncio.get_running_loop()
        self._silent: dict[socket.socket, int] = {}  # accepted, no byte yet -> since when
        self._loop.add_reader(sock, self._accept)
        self._pause: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        return int(self._sock.getsockname()[1])

    @property
    def silent_count(self) -> int:
        return len(self._silent)

    def _accept(self) -> None:
        for _ in range(ACCEPT_CHUNK_COUNT):
            try:
                sock, _address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._accept_failed(error)
                return
            self._accepted(sock)

    def _accept_failed(self, error: OSError) -> None:
        self._metrics.accept_errors += 1
        if error.errno not in _OUT_OF_RESOURCES:
            log.warning("port=%s accept failed: %s", self.port, error)
            return
        log.error("port=%s accepts no connections for %s s: %s", self.port, ACCEPT_PAUSE_SECONDS, error)
        self._loop.remove_reader(self._sock)
        self._pause = self._loop.call_later(ACCEPT_PAUSE_SECONDS, self._accept_again)

    def _accept_again(self) -> None:
        self._pause = None
        self._loop.add_reader(self._sock, self._accept)

    def _accepted(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            sock.close()  # gone already
            return
        if self._mode is TlsMode.DISABLED:
            self._on_socket(sock, False)
        else:
            self._silent[sock] = self._now_ms()
            self._loop.add_reader(sock, self._first_byte, sock)

    def _first_byte(self, sock: socket.socket) -> None:
        try:
            first = sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._refuse(sock, CloseReason.RESET)
            return
        tls = first[:1] == TLS_HANDSHAKE
        if not first:
            self._refuse(sock, CloseReason.PEER_CLOSED)
        elif not tls and self._mode is TlsMode.ENFORCING:
            self._refuse(sock, CloseReason.PLAIN_REFUSED)
        else:
            self._forget(sock)
            self._on_socket(sock, tls)

    def _forget(self, sock: socket.socket) -> None:
        self._loop.remove_reader(sock)
        del self._silent[sock]

    def _refuse(self, sock: socket.socket, reason: CloseReason) -> None:
        """Close a socket that never became a connection; it is counted as if it had been one."""
        self._forget(sock)
        sock.close()
        self._metrics.connections_opened += 1
        self._metrics.connections_closed[reason] += 1

    def expire_silent(self, idle_ms: int) -> None:
        """Close peers that connected and said nothing."""
        deadline_ms = self._now_ms() - idle_ms
        for sock, since_ms in list(self._silent.items()):
            if since_ms > deadline_ms:
                break  # in order of arrival
            self._refuse(sock, CloseReason.IDLE)

    def close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        else:
            self._loop.remove_reader(self._sock)
        self._sock.close()
        for sock in list(self._silent):
            self._refuse(sock, CloseReason.STOPPED)
