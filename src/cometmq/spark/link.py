"""A blocking connection to a NameServer or broker, for Spark's planner and workers: plain sockets, no event loop.

Requests may be sent ahead; answers are read one at a time and told apart by their opaque. Connections are kept per
process and opened again after a fork. One thread at a time may use a link.
"""

from __future__ import annotations

import itertools
import os
import socket
import ssl
import struct
import threading
from typing import IO, cast

from cometmq.errors import BrokerError, ConnectionLost, RemoteProtocolError, Timeout
from cometmq.protocol.acl_signature import sign
from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.command import FRAME_SIZE_MAX, EncodesToFields, RemotingCommand, decode_frame
from cometmq.spark.options import ClusterOptions

# Answers with messages are larger: most of their bytes go straight where they belong.
RECEIVE_BUFFER_SIZE = 64 << 10
SOCKET_BUFFER_SIZE = 4 << 20
CONNECT_TIMEOUT_S = 3.0
OPAQUE_MASK = 0x7FFFFFFF

_WORDS = struct.Struct(">iI")


class Link:
    """One connection. After any failure it is closed; the next use opens it again."""

    def __init__(self, address: str, options: ClusterOptions) -> None:
        self.address = address
        self._options = options
        self._socket: socket.socket | None = None
        self._file: IO[bytes] | None = None
        self._opaques = itertools.count(1)
        self._waiting: list[bytes] = []

    def post(self, command: RemotingCommand) -> int:
        """Put a request into the queue of what is sent with the next flush(); its opaque."""
        command.opaque = next(self._opaques) & OPAQUE_MASK
        options = self._options
        if options.access_key is not None and options.secret_key is not None:
            sign(command, options.access_key, options.secret_key, options.security_token)
        self._waiting.append(command.encode())
        return command.opaque

    def flush(self, timeout_s: float) -> None:
        if not self._waiting:
            return
        data, self._waiting = b"".join(self._waiting), []
        try:
            connection = self._opened()
            connection.settimeout(timeout_s)
            connection.sendall(data)
        except OSError as error:
            raise self._failed(error) from error

    def receive(self, timeout_s: float) -> RemotingCommand:
        """The next answer, whichever request it belongs to."""
        self.flush(timeout_s)
        while True:
            try:
                self._opened().settimeout(timeout_s)
                command = self._read_frame()
            except OSError as error:
                raise self._failed(error) from error
            except RemoteProtocolError:
                self.close()
                raise
            if command.is_response:
                return command

    def call(
        self, code: int, header: EncodesToFields | None, body: bytes, timeout_s: float
    ) -> RemotingCommand:
        """One request and its answer; answers to older requests are passed over."""
        opaque = self.post(RemotingCommand.request(code, header, body))
        while True:
            answer = self.receive(timeout_s)
            if answer.opaque == opaque:
                return answer

    def close(self) -> None:
        connection, file, self._socket, self._file = self._socket, self._file, None, None
        self._waiting = []
        if file is not None:
            file.close()
        if connection is not None:
            connection.close()

    def _opened(self) -> socket.socket:
        if self._socket is None:
            host, _, port = self.address.rpartition(":")
            connection = socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_SIZE)
            self._socket = _secured(connection, host) if self._options.tls else connection
            self._file = cast(IO[bytes], self._socket.makefile("rb", RECEIVE_BUFFER_SIZE))
        return self._socket

    def _read_frame(self) -> RemotingCommand:
        length, word = _WORDS.unpack(self._read(8))
        header_size = word & 0xFFFFFF
        if not 4 + header_size <= length < FRAME_SIZE_MAX:
            raise RemoteProtocolError(f"A frame from {self.address} has an impossible length.")
        header = self._read(header_size)
        command = decode_frame(_WORDS.pack(4 + header_size, word) + header)
        command.body = self._read(length - 4 - header_size)
        return command

    def _read(self, size: int) -> bytes:
        assert self._file is not None
        data = self._file.read(size)
        if len(data) < size:
            raise ConnectionResetError("the peer closed the connection")
        return data

    def _failed(self, error: OSError) -> ConnectionLost | Timeout:
        self.close()
        if isinstance(error, TimeoutError):
            return Timeout(f"{self.address} did not answer in time.")
        return ConnectionLost(f"The connection to {self.address} failed ({error}).")


def _secured(connection: socket.socket, host: str) -> ssl.SSLSocket:
    """TLS as RocketMQ clients do it by default: encrypted, the certificate is not checked."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(connection, server_hostname=host)


def checked(answer: RemotingCommand, address: str) -> RemotingCommand:
    """The answer itself; raises BrokerError if it is not a success."""
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError(answer.code, answer.remark, address)
    return answer


_links: dict[tuple[object, ...], Link] = {}
_links_pid = 0


def link_to(address: str, options: ClusterOptions) -> Link:
    """The connection of this thread to an address; workers keep it from task to task."""
    global _links_pid
    if _links_pid != os.getpid():  # after a fork the sockets belong to the parent: forget, do not close
        _links.clear()
        _links_pid = os.getpid()
    key = (
        threading.get_ident(),
        address,
        options.tls,
        options.access_key,
        options.secret_key,
        options.security_token,
    )
    found = _links.get(key)
    if found is None:
        found = _links[key] = Link(address, options)
    return found


def close_links() -> None:
    """Close the connections of this thread: it may not need them for long, and brokers drop who is silent."""
    own = [key for key in _links if key[0] == threading.get_ident()] if _links_pid == os.getpid() else []
    for key in own:
        _links.pop(key).close()
