"""The rows of the table: how each is measured, and its bars."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from bench.macro import lives
from bench.macro.generators import Mqload
from bench.macro.servers import Broker


@dataclass
class Row:
    """One line of the table: how to load, which figures to compare, and the bars (ratio ours / Java)."""

    name: str
    arguments: str
    bars: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    fill: str = ""  # a load before the measurement, e.g. the messages that will be pulled
    cold: bool = False


@dataclass
class Life:
    """A group of lines measured on servers of their own; bars as in Row."""

    name: str
    measure: Callable[[Broker, Mqload, lives.Load, lives.Fill], dict[str, float]]
    bars: dict[str, str]
    rounds: int = 1


LIVES = [
    Life("start to first send", lives.start_up,
         {"empty, ms": "<= 0.2", "after a clean stop, ms": "<= 0.3", "after kill -9, ms": "<= 0.5",
          "anonymous MB after a million": "<= 0.08"}),
    Life("10,000 topics x 8 queues", lives.many_queues,
         {"create, s": "<= 0.2", "pulled of 160,000": ">= 160000"}),
    Life("reading far behind, with 2,000 sends/s", lives.far_behind,
         {"read, messages/s": ">= 1.5", "send p99 alone, us": "", "send p99 beside, us": "",
          "send p99 beside / alone": "<= 3", lives.TO_ANOTHER: ""}, rounds=3),
]  # fmt: skip

PURE_RATE_MIN = 10_000
PURE_ROW = Row("uncompiled: send 1 KiB, 8 x 32", "send -size 1024 -conns 8 -inflight 32 -busyok")
SEND_BARS = {"rate": ">= 3.0", "cpu": "<= 0.25"}
SYNC = {"flushDiskType": "SYNC_FLUSH"}
BEYOND_MEMORY = {"accessMessageInMemoryMaxRatio": "0"}  # all messages count as too many to be in memory
ROWS = [
    Row("send 128 B, 1 x 128", "send -size 128 -conns 1 -inflight 128"),
    Row("send 128 B, 8 x 32", "send -size 128 -conns 8 -inflight 32", SEND_BARS),
    Row("send 128 B, 64 x 8", "send -size 128 -conns 64 -inflight 8", SEND_BARS),
    Row("send 1 KiB, 1 x 1", "send -size 1024 -conns 1 -inflight 1", {"p50": "<= 0.6", "cpu": "<= 0.3"}),
    Row("send 1 KiB, 8 x 32", "send -size 1024 -conns 8 -inflight 32", SEND_BARS),
    Row("send 1 KiB, 64 x 8", "send -size 1024 -conns 64 -inflight 8", SEND_BARS),
    Row("send 4 KiB, 8 x 32", "send -size 4096 -conns 8 -inflight 32", {"rate": ">= 2.0", "cpu": "<= 0.4"}),
    Row("batch 32 x 1 KiB, 4 x 4", "send -batch 32 -size 1024 -conns 4 -inflight 4",
        {"rate": ">= 1.5", "cpu": "<= 0.5"}),
    Row("sync flush 1 KiB, 64 x 1", "send -size 1024 -conns 64 -inflight 1", {"rate": ">= 1.5"}, options=SYNC),
    Row("sync flush 1 KiB, 8 x 32", "send -size 1024 -conns 8 -inflight 32", {"rate": ">= 1.5"}, options=SYNC),
    Row("pull 1 KiB cold, beyond memory", "pull -conns 4 -seconds 0", {"rate": ">= 1.5"},
        fill="send -size 1024 -conns 8 -inflight 32 -count 400000", cold=True, options=BEYOND_MEMORY),
    Row("pull 1 KiB hot, 32 a pull", "pull -conns 4", {"rate": ">= 1.5", "cpu": "<= 0.6"},
        fill="send -size 1024 -conns 8 -inflight 32 -count 400000"),
    Row("pull 1 KiB cold", "pull -conns 4 -seconds 0", {"rate": ">= 1.5"},
        fill="send -size 1024 -conns 8 -inflight 32 -count 400000", cold=True),
    Row("end to end 1 KiB, 1,000/s", "latency -size 1024 -rate 1000", {"e2e p50": "<= 0.4", "e2e p99": "<= 0.5"}),
    Row("end to end 1 KiB, 10,000/s", "latency -size 1024 -rate 10000", {"e2e p50": "<= 0.4", "e2e p99": "<= 0.5"}),
    Row("5,000 idle connections", "fanin -conns 5000", {"kB each": "<= 20", "cpu": "<= 0.5"}),
    Row("5,000 held pulls", "fanin -conns 5000 -hold", {"kB each": "<= 20", "cpu": "<= 0.5"}),
]  # fmt: skip
