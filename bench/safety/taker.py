"""A slave that takes the log and keeps nothing: what remains is what a slave on another machine costs its master.

    python -m bench.safety.taker HOST PORT          of the master's replication port

Protocol of 4.9: after every read from the socket it reports the end of what it has.
"""

from __future__ import annotations

import socket
import sys

from cometmq.broker.ha.stream import REPORT, FrameReader

RECEIVE_SIZE = 1 << 20  # bytes read at once


def take(host: str, port: int) -> None:
    buffer = memoryview(bytearray(RECEIVE_SIZE))
    frames = FrameReader()
    end = 0
    with socket.create_connection((host, port)) as sock:
        sock.sendall(REPORT.pack(end))
        while size := sock.recv_into(buffer):
            for piece in frames.feed(buffer[:size]):
                end = piece.physical_offset + len(piece.data)
            sock.sendall(REPORT.pack(end))


if __name__ == "__main__":
    take(sys.argv[1], int(sys.argv[2]))
