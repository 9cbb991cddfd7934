"""``python -m bench.micro``: what one message costs in each compiled part.

Everything runs in this process on one core, 64 frames a call, against a real store in a temporary directory, with
ConsumeQueue and index. The figure is CPU time of the calling thread, the best of several rounds (the machine is
shared; the best round is the one that was disturbed least). Populating pages ahead is done by a thread and shown apart.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cometmq import __version__
from cometmq.broker.plain_send_cy import PlainSends
from cometmq.cli.main import version_text
from cometmq.protocol.command import decode_frame
from cometmq.protocol.frame_cy import split_frames
from cometmq.protocol.record_cy import decode_records
from cometmq.store.config import StoreConfig
from cometmq.store.scan_cy import scan_records
from cometmq.store.store import MessageStore

FRAMES = 64
TOPIC = "BenchTopic"
QUEUES = 8
BORN = b"\x7f\x00\x00\x01\x00\x00\x10\x00"
STORE_HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
FRAME_SIZE_MAX = 16 << 20
BARS = {"send 128 B": 1.5, "send 1024 B": 2.5, "scan records": 0.2}  # microseconds, from issue A


def frame(number: int, size: int) -> bytes:
    properties = (
        f"UNIQ_KEY\\u00017F000001292630946E094CC1{number:08X}\\u0002WAIT\\u0001true\\u0002TAGS\\u0001TagA"
    )
    header = (
        f'{{"code":310,"extFields":{{"a":"PG_bench","b":"{TOPIC}","c":"TBW102","d":"4","e":"{number % QUEUES}","f":"0",'
        f'"g":"1794778956313","h":"0","i":"{properties}","j":"0","k":"false","m":"false","n":"broker-a"}},"flag":0,'
        f'"language":"JAVA","opaque":{number},"serializeTypeCurrentRPC":"JSON","version":407}}'
    ).encode()
    body = bytes([number % 256]) * size
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


class SendPath:
    """From received bytes to log, queue entry, index entry and response bytes."""

    def __init__(self, store: MessageStore, size: int) -> None:
        self.store = store
        self.sends = PlainSends(
            cluster="DefaultCluster",
            region="DefaultRegion",
            trace_on=True,
            store_host=STORE_HOST,
            body_size_max=4 << 20,
            frame_size_max=FRAME_SIZE_MAX,
        )
        self.sends.admit(TOPIC.encode(), QUEUES, store.queue_offsets(TOPIC.encode(), QUEUES))
        self.size = size
        self.buffers = [
            b"".join(frame(block * FRAMES + number, size) for number in range(FRAMES)) for block in range(64)
        ]
        self.turn = 0

    def __call__(self) -> int:
        data = self.buffers[self.turn % len(self.buffers)]
        self.turn += 1
        space = self.store.reserve(FRAMES * (self.size + 400))
        assert space is not None
        self.sends.open(space.buffer, space.position, space.limit, space.physical_base)
        consumed = self.sends.consume(data, 0, len(data), BORN, 1_794_778_956_999)
        assert consumed == len(data), (consumed, len(data))
        self.store.commit(self.sends.position)
        return FRAMES


def cpu_us(work: Callable[[], int], *, rounds: int, calls: int) -> dict[str, float]:
    """Best and median CPU microseconds of this thread per item."""
    figures = []
    for _ in range(rounds):
        items = 0
        began = time.thread_time_ns()
        for _ in range(calls):
            items += work()
        figures.append((time.thread_time_ns() - began) / items / 1000)
    figures.sort()
    return {"best": round(figures[0], 3), "median": round(figures[len(figures) // 2], 3)}


def send_costs(size: int) -> tuple[dict[str, float], MessageStore, Path]:
    directory = Path(tempfile.mkdtemp(prefix="cometmq-bench-"))
    store = MessageStore(StoreConfig(store_path_root_dir=directory))
    store.open()
    send = SendPath(store, size)
    for _ in range(50):
        send()
    time.sleep(0.3)  # the thread that populates pages gets ahead
    calls = max(20, (8 << 20) // (FRAMES * (size + 400)))
    figures = []
    for _ in range(12):
        figures.append(cpu_us(send, rounds=1, calls=calls)["best"])
        time.sleep(0.05)
    figures.sort()
    return {"best": figures[0], "median": figures[len(figures) // 2]}, store, directory


def measure() -> dict[str, Any]:
    results: dict[str, Any] = {}
    for size in (128, 1024, 4096):
        cost, store, directory = send_costs(size)
        results[f"send {size} B"] = cost
        if size == 1024:
            results |= read_costs(store)
        store.close()
        _remove(directory)
    return results


def read_costs(store: MessageStore) -> dict[str, Any]:
    log = store.read_log(0, 32 << 20)
    assert log is not None

    def scan() -> int:
        return int(scan_records(log, 0, len(log), 0, False).count)

    def scan_with_crc() -> int:
        return int(scan_records(log, 0, len(log), 0, True).count)

    part = store.get(TOPIC, 0, 0, 32).slices
    body = b"".join(bytes(piece) for piece in part)
    frames = b"".join(frame(number, 1024) for number in range(FRAMES))

    def split_and_decode() -> int:
        ends, _ = split_frames(frames, 0, len(frames), FRAME_SIZE_MAX)
        start = 0
        for end in ends:
            decode_frame(frames[start:end])
            start = end
        return len(ends)

    return {
        "scan records": cpu_us(scan, rounds=7, calls=1),
        "scan records with CRC": cpu_us(scan_with_crc, rounds=5, calls=1),
        "pull of 32: queue scan to slices": cpu_us(
            lambda: store.get(TOPIC, 0, 0, 32).count, rounds=7, calls=300
        ),
        "decode pulled records (client)": cpu_us(lambda: len(decode_records(body)), rounds=7, calls=100),
        "split frames, decode commands": cpu_us(split_and_decode, rounds=7, calls=20),
    }


def _remove(directory: Path) -> None:
    import shutil

    shutil.rmtree(directory, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.micro", description=__doc__)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results = measure()
    if args.json:
        print(json.dumps({"version": __version__, "build": version_text(), "us": results}, indent=1))
        return 0
    print(f"{version_text()}; CPU microseconds per message, {FRAMES} frames a call\n")
    print(f"{'what':36} {'best':>8} {'median':>8} {'bar':>6}")
    for name, cost in results.items():
        bar = BARS.get(name)
        verdict = "" if bar is None else ("  ok" if cost["best"] <= bar else "  above the bar")
        print(f"{name:36} {cost['best']:8.3f} {cost['median']:8.3f} {bar or '':>6}{verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
