"""A few lines of the remoting protocol, independent of ours: one request with a JSON header, one answer."""

from __future__ import annotations

import itertools
import json
import socket
import struct
from typing import Any

GET_BROKER_CLUSTER_INFO = 106
_opaque = itertools.count(1)


def invoke(
    address: str, code: int, fields: dict[str, str] | None = None, body: bytes = b""
) -> tuple[Any, bytes]:
    """The answer's header and body."""
    host, port = address.rsplit(":", 1)
    header = {"code": code, "language": "JAVA", "version": 407, "opaque": next(_opaque), "flag": 0}
    head = json.dumps({**header, "extFields": fields or {}, "serializeTypeCurrentRPC": "JSON"}).encode()
    frame = struct.pack(">II", 4 + len(head) + len(body), len(head)) + head + body
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(frame)
        (length,) = struct.unpack(">I", _read(connection, 4))
        answer = _read(connection, length)
    (head_length,) = struct.unpack(">I", answer[:4])
    head_length &= 0xFFFFFF  # the first byte is the serialization
    return json.loads(answer[4 : 4 + head_length]), answer[4 + head_length :]


def _read(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("closed in the middle of an answer")
        data += part
    return data


def is_registered(nameserver: str, broker_address: str) -> bool:
    _, body = invoke(nameserver, GET_BROKER_CLUSTER_INFO)
    return broker_address.encode() in body
