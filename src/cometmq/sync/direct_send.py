"""The short way of a blocking send: the calling thread talks to the broker itself, over a blocking socket.

Waking the loop thread and being woken by it costs more than the send. So a plain send (see ``client/plain_send.py``)
goes over a socket that is taken from a small pool: write the frame, read the answer. When the pool is empty,
when the send is not plain, and when anything goes wrong, the ordinary way over the loop thread is taken; a
failed try counts as the first attempt there. The broker needs no heartbeat over these sockets: the client's
other connection introduces it.

Any thread; each socket has one user at a time.
"""

from __future__ import annotations

import os
import random
import socket
import ssl
import struct
import time
from collections import deque

import msgspec

from cometmq.client import identity
from cometmq.client.instance import Instance
from cometmq.client.plain_send import PlainSends, Target
from cometmq.client.send_pipe import SendAnswer, answer_of
from cometmq.client.settings import seconds
from cometmq.errors import ConnectionLost, RemoteProtocolError, Timeout
from cometmq.net.addresses import parse_address
from cometmq.protocol.command import decode_frame
from cometmq.protocol.limits import FRAME_SIZE_MAX
from cometmq.protocol.message import Message
from cometmq.protocol.message_id import UniqueIds

SOCKETS_PER_BROKER_MAX = 8
IDLE_MAX_S = 60.0  # brokers close idle connections after two minutes; older sockets are not trusted
RECEIVE_SIZE = 64 * 1024
OPAQUE_MASK = 0x7FFFFFFF

_LENGTH = struct.Struct(">i")
_decode = msgspec.json.Decoder(SendAnswer, strict=False).decode


class DirectSocket:
    """One blocking connection to a broker."""

    __slots__ = ("_buffer", "_opaque", "_socket", "unique_ids", "used_at")

    def __init__(
        self, address: str, connect_timeout_s: float, tls: ssl.SSLContext | None, instance: Instance
    ) -> None:
        host, port = parse_address(address)
        try:
            plain = socket.create_connection((host, port), connect_timeout_s)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname=host)
        except OSError as error:
            raise ConnectionLost(f"cannot connect to {address}: {error}") from error
        self._buffer = bytearray(RECEIVE_SIZE)
        self._opaque = 0
        # An id maker of its own: threads that send at the same time need no lock.
        self.unique_ids = UniqueIds(identity.local_ip(), os.getpid(), random.getrandbits(32), instance.now_ms)
        self.used_at = time.monotonic()

    def next_opaque(self) -> int:
        self._opaque = (self._opaque + 1) & OPAQUE_MASK
        return self._opaque

    def exchange(self, frame: bytes, opaque: int, timeout_s: float) -> SendAnswer:
        """Write a request and read its answer. After any error the socket must be closed."""
        self._socket.settimeout(timeout_s)
        try:
            self._socket.sendall(frame)
            while True:
                answer = self._receive()
                if answer.opaque == opaque and answer.flag & 1:
                    self.used_at = time.monotonic()
                    return answer
        except TimeoutError:
            raise Timeout(f"no answer within {timeout_s:.1f} s") from None
        except OSError as error:
            raise ConnectionLost(f"the connection was lost before the answer: {error}") from error

    def _receive(self) -> SendAnswer:
        """One frame. Answers of sends are small; one read brings them whole."""
        buffer = self._buffer
        got = self._socket.recv_into(buffer)
        end = FRAME_SIZE_MAX
        while got < 4 or got < (end := 4 + _LENGTH.unpack_from(buffer)[0]):
            if got and end > FRAME_SIZE_MAX:
                raise RemoteProtocolError(f"an answer of {end} bytes is too large")
            more = self._socket.recv(RECEIVE_SIZE) if got else b""
            if not more:
                raise ConnectionLost("the broker closed the connection before the answer")
            buffer[got : got + len(more)] = more
            got += len(more)
        frame = memoryview(buffer)[:end]
        if buffer[4] == 0:
            try:
                return _decode(frame[8:])
            except (msgspec.MsgspecError, UnicodeDecodeError):
                pass
        return answer_of(decode_frame(frame))

    def close(self) -> None:
        self._socket.close()


class DirectSends:
    """The sockets of one producer, by broker address."""

    def __init__(self, instance: Instance, plain: PlainSends) -> None:
        self._instance = instance
        self._plain = plain
        self._idle: dict[str, deque[DirectSocket]] = {}
        self._count: dict[str, int] = {}
        self._tls = instance.settings.ssl_context()
        self._connect_timeout_s = seconds(instance.settings.connect_timeout)
        self._closed = False

    def send(
        self, message: Message, timeout_s: float
    ) -> tuple[Target, str, int, SendAnswer | Exception] | None:
        """Target, id, time and outcome; None when the ordinary way has to be taken."""
        target = self._plain.pick(message)
        if target is None:
            return None
        connection = self._take(target.address)
        if connection is None:
            return None
        unique_id = message.unique_id or connection.unique_ids.next()
        born_ms = self._instance.now_ms()
        opaque = connection.next_opaque()
        frame = self._plain.frame(target, message, unique_id, born_ms, opaque)
        try:
            answer = connection.exchange(frame, opaque, timeout_s)
        except BaseException as error:
            self._drop(target.address, connection)
            if not isinstance(error, ConnectionLost | Timeout):
                raise
            return target, unique_id, born_ms, error
        self._give_back(target.address, connection)
        return target, unique_id, born_ms, answer

    def _take(self, address: str) -> DirectSocket | None:
        """An idle socket, or a new one while there are few. deque operations are atomic, so no lock."""
        idle = self._idle.setdefault(address, deque())
        horizon = time.monotonic() - IDLE_MAX_S
        while idle:
            try:
                connection = idle.pop()
            except IndexError:
                break
            if connection.used_at > horizon:
                return connection
            self._drop(address, connection)
        if self._closed or self._count.get(address, 0) >= SOCKETS_PER_BROKER_MAX:
            return None
        self._count[address] = self._count.get(address, 0) + 1
        try:
            return DirectSocket(address, self._connect_timeout_s, self._tls, self._instance)
        except ConnectionLost:
            self._count[address] -= 1
            return None

    def _give_back(self, address: str, connection: DirectSocket) -> None:
        if self._closed:
            self._drop(address, connection)
        else:
            self._idle[address].append(connection)

    def _drop(self, address: str, connection: DirectSocket) -> None:
        self._count[address] -= 1
        connection.close()

    def close(self) -> None:
        self._closed = True
        for address, idle in self._idle.items():
            while idle:
                self._drop(address, idle.pop())
