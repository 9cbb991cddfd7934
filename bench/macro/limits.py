"""What this machine can do at best, measured in the same run: no broker on it comes past these.

Memory is copied, bytes go through the loopback, a file is synced; and a server that only reads a request and writes a
ready answer takes the broker's place under the load of one request at a time.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import re
import socket
import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.macro.generators import Mqload
from bench.macro.servers import Broker

MEMORY_COPIED = "memory copied"
LOOPBACK_STREAM = "bytes through one loopback connection"
FILE_SYNC = "fdatasync after 64 messages of 1 KiB"
READY_P50 = "1 KiB, 1 x 1, answers that are ready: p50"
READY_CPU = "1 KiB, 1 x 1, answers that are ready: CPU"

ROUNDS = 5
COPY_SIZE = 64 << 20
STREAM_SIZE = 1 << 30
STREAM_STEP = 256 << 10
SYNC_COUNT = 100
SYNCED_SIZE = 64 * 1200  # 64 messages of 1 KiB, as the log has them
FRAME_SIZE_MAX = 1 << 20
ANSWER = (
    '{"code":0,"extFields":{"msgId":"7F00000100002A9F0000000000000000","queueId":"0","queueOffset":"0"},"flag":1,'
    '"language":"JAVA","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":399}'
)
OPAQUE = re.compile(rb'"opaque":(\d+)')


@dataclass
class Limit:
    name: str
    unit: str
    figures: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.figures)


def limits(mqload: Mqload | None, directory: Path) -> list[Limit]:
    print("  measuring what the machine can do", flush=True)
    found = [
        _limit(MEMORY_COPIED, "GB/s", copied_gb_s),
        _limit(LOOPBACK_STREAM, "GB/s", streamed_gb_s),
        _limit(FILE_SYNC, "ms", lambda: synced_ms(directory)),
    ]
    if mqload is not None:
        answers = [answered(mqload, directory) for _ in range(ROUNDS)]
        found.append(Limit(READY_P50, "us", [p50_us for p50_us, _ in answers]))
        found.append(Limit(READY_CPU, "us", [cpu_us for _, cpu_us in answers]))
    return found


def _limit(name: str, unit: str, measure: Callable[[], float]) -> Limit:
    return Limit(name, unit, [measure() for _ in range(ROUNDS)])


def copied_gb_s() -> float:
    with mmap.mmap(-1, COPY_SIZE) as source, mmap.mmap(-1, COPY_SIZE) as target:
        target[:] = source[:]  # all pages are there
        began = time.perf_counter()
        with memoryview(source) as read, memoryview(target) as written:
            written[:] = read
        return COPY_SIZE / (time.perf_counter() - began) / 1e9


def streamed_gb_s() -> float:
    """From one process to another."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = multiprocessing.get_context("fork").Process(target=_stream, args=(server.getsockname(),))
        sender.start()
        connection, _ = server.accept()
        buffer, got = bytearray(STREAM_STEP), 0
        with connection:
            began = time.perf_counter()
            while size := connection.recv_into(buffer):
                got += size
            elapsed_s = time.perf_counter() - began
        sender.join()
    return got / elapsed_s / 1e9


def _stream(address: tuple[str, int]) -> None:
    with socket.create_connection(address) as connection:
        for _ in range(STREAM_SIZE // STREAM_STEP):
            connection.sendall(bytes(STREAM_STEP))


def synced_ms(directory: Path) -> float:
    """The median of one round, in a file whose pages are there already."""
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(os.urandom(SYNCED_SIZE * SYNC_COUNT))
        file.flush()
        os.fsync(file.fileno())
        took = []
        for number in range(SYNC_COUNT):
            os.pwrite(file.fileno(), os.urandom(SYNCED_SIZE), number * SYNCED_SIZE)
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    return statistics.median(took) * 1000


def answered(mqload: Mqload, directory: Path) -> tuple[float, float]:
    """Median latency and CPU of a request, in microseconds."""
    target = Broker(directory)
    with socket.create_server(("127.0.0.1", target.port)) as server:
        process = multiprocessing.get_context("fork").Process(target=_answer, args=(server,), daemon=True)
        process.start()
    assert process.pid is not None
    target.pid = process.pid
    try:
        result = mqload.run(target, "send -size 1024 -conns 1 -inflight 1 -create=false", 2)
    finally:
        process.terminate()
        process.join()
    return result["latency_us"]["p50"], result["broker"]["cpu_us_per_msg"]


def _answer(server: socket.socket) -> None:
    """One connection at a time, one request at a time, nothing but the two system calls that this takes."""
    buffer = bytearray(FRAME_SIZE_MAX)
    while True:
        connection, _ = server.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with connection:
            while connection.recv_into(buffer):
                opaque = OPAQUE.search(buffer)
                assert opaque is not None
                header = (ANSWER % int(opaque[1])).encode()
                connection.sendall(struct.pack(">II", 4 + len(header), len(header)) + header)
