"""Figures of a broker's life that no load row shows: start-up, memory, many queues, reading far behind.

Each function measures one broker and returns named figures; ``__main__`` compares them.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.macro.generators import Mqload
from bench.macro.servers import Broker, Comet, drop_pages, wait_for_port
from bench.processes import TICKS_PER_S, stat_fields

MESSAGES = 1_000_000
FAR_BEHIND_MESSAGES = 7_200_000  # more than any broker here reads in FAR_BEHIND_SECONDS
FAR_BEHIND_SECONDS = 4
TO_ANOTHER = "the same sends to an idle broker of ours: p99 beside / alone"
LIGHT_RATE = 2_000  # sends a second while somebody reads far behind

Load = Callable[..., dict[str, Any]]
Fill = Callable[[], None]  # of the page cache


def process_start_s(pid: int) -> float:
    """When a process began, on the clock of time.clock_gettime(CLOCK_BOOTTIME)."""
    return int(stat_fields(pid)[19]) / TICKS_PER_S


def anonymous_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0


def ready_ms(broker: Broker, mqload: Mqload) -> float:
    """Start a broker; from the start of its process to the first send that it accepted."""
    starting = threading.Thread(target=broker.start)
    starting.start()
    ready = [str(mqload.program), "ready", "-addr", broker.address]
    try:
        subprocess.run(ready, check=True, capture_output=True, timeout=120)
        done_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    finally:
        starting.join()  # whoever stops it must find what there is to stop
    return (done_s - process_start_s(broker.pid)) * 1000


def start_up(broker: Broker, mqload: Mqload, load: Load, fill: Fill) -> dict[str, float]:
    """Empty; with a million messages after a clean stop; after kill -9. And the memory they leave."""
    figures = {"empty, ms": ready_ms(broker, mqload)}
    load(broker, f"send -size 1024 -conns 8 -inflight 32 -count {MESSAGES} -busyok -topic million")
    figures["anonymous MB after a million"] = anonymous_mb(broker.pid)
    broker.stop()
    figures["after a clean stop, ms"] = ready_ms(broker, mqload)
    load(broker, "send -size 1024 -conns 8 -inflight 32 -count 20000 -busyok -topic million -create=false")
    broker.stop(kill=True)
    figures["after kill -9, ms"] = ready_ms(broker, mqload)
    broker.stop()
    return figures


def many_queues(broker: Broker, mqload: Mqload, load: Load, fill: Fill) -> dict[str, float]:
    """10,000 topics x 8: created; ours also written and read (the Java broker runs out of descriptors there)."""
    broker.start()
    wait_for_port(broker.port)
    began = time.monotonic()
    load(broker, "create -topics 10000 -queues 8 -topic many")
    figures = {"create, s": time.monotonic() - began, "anonymous MB": anonymous_mb(broker.pid)}
    if broker.name == "comet":
        topics = "-topics 10000 -queues 8 -topic many -create=false"
        sent = load(broker, f"send -size 128 -conns 8 -inflight 32 -count 160000 -busyok {topics}")
        pulled = load(broker, f"pull -conns 4 -seconds 0 {topics}")
        figures |= {"sent": sent["msgs"], "pulled of 160,000": pulled["msgs"], "send errors": sent["errors"]}
    broker.stop()
    return figures


def far_behind(broker: Broker, mqload: Mqload, load: Load, fill: Fill) -> dict[str, float]:
    """Light sends alone, then the same for as long, all of it while a consumer reads old messages from disk.

    And, for ours, the same sends to another broker that has nothing else to do, beside the same reader: what the
    processors of this machine, which are never idle then, do to such sends by themselves.
    """
    broker.start()
    wait_for_port(broker.port)
    load(broker, f"send -size 1024 -conns 8 -inflight 32 -count {FAR_BEHIND_MESSAGES} -busyok -topic behind")
    broker.stop()
    reading, alone_us, beside_us = _beside_reader(broker, broker, mqload, load, fill)
    broker.stop()
    figures = {
        "read, messages/s": reading,
        "send p99 alone, us": alone_us,
        "send p99 beside, us": beside_us,
        "send p99 beside / alone": round(beside_us / alone_us, 2),
    }
    if isinstance(broker, Comet):
        other = Comet(broker.directory.with_name("other"))
        try:
            other.start()
            wait_for_port(other.port)
            _, alone_us, beside_us = _beside_reader(broker, other, mqload, load, fill)
        finally:
            other.stop()
            other.wipe()
        broker.stop()
        figures[TO_ANOTHER] = round(beside_us / alone_us, 2)
    return figures


def _beside_reader(
    read_from: Broker, send_to: Broker, mqload: Mqload, load: Load, fill: Fill
) -> tuple[float, float, float]:
    """Messages read a second, and the sends' p99 in microseconds alone and beside the reader."""
    drop_pages(read_from.directory)
    fill()
    read_from.start()
    wait_for_port(read_from.port)
    light = (
        f"send -size 1024 -conns 1 -inflight 8 -rate {LIGHT_RATE} -seconds {FAR_BEHIND_SECONDS} -topic light"
    )
    load(send_to, light)  # warms what has just started
    alone = load(send_to, light)
    reading = mqload.command(read_from, "pull -conns 4 -seconds 0 -create=false -topic behind")
    reader = subprocess.Popen(reading, stdout=subprocess.PIPE)
    beside = load(send_to, light)
    if reader.poll() is not None:
        print(
            f"  the reader was done before the sends: {FAR_BEHIND_MESSAGES:,} messages are too few",
            flush=True,
        )
    printed, _ = reader.communicate(timeout=300)
    return json.loads(printed)["msgs_per_s"], alone["latency_us"]["p99"], beside["latency_us"]["p99"]
