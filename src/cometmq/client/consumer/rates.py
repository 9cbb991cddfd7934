"""Rates of a consumer, for the tools that ask a running client (request 307).

Counters per topic in slices of ten seconds; the last minute is the sum of six slices. Loop thread only.
"""

from __future__ import annotations

from collections import deque

from cometmq.clock import Clock
from cometmq.protocol.bodies.running_info import ConsumeStatus

SLICE_MS = 10_000
SLICES_PER_MINUTE = 6
SLICES_PER_HOUR = 360


class _Slice:
    __slots__ = ("failed", "ok", "pulled", "pulls", "start_ms", "took_ms")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.pulled = self.pulls = self.ok = self.failed = 0
        self.took_ms = 0.0


class Rates:
    def __init__(self, now_ms: Clock) -> None:
        self._now_ms = now_ms
        self._slices: dict[str, deque[_Slice]] = {}

    def _current(self, topic: str) -> _Slice:
        now_ms = self._now_ms()
        slices = self._slices.get(topic)
        if slices is None:
            slices = self._slices[topic] = deque(maxlen=SLICES_PER_HOUR)
        if not slices or now_ms - slices[-1].start_ms >= SLICE_MS:
            slices.append(_Slice(now_ms))
        return slices[-1]

    def pulled(self, topic: str, count: int) -> None:
        current = self._current(topic)
        current.pulls += 1
        current.pulled += count

    def consumed(self, topic: str, count: int, took_ms: float, ok: bool) -> None:
        current = self._current(topic)
        if ok:
            current.ok += count
        else:
            current.failed += count
        current.took_ms += took_ms

    def table(self) -> dict[str, ConsumeStatus]:
        return {topic: self._status(slices) for topic, slices in self._slices.items()}

    def _status(self, slices: deque[_Slice]) -> ConsumeStatus:
        horizon_ms = self._now_ms() - SLICES_PER_MINUTE * SLICE_MS
        minute = [one for one in slices if one.start_ms >= horizon_ms]
        span_s = SLICES_PER_MINUTE * SLICE_MS / 1000
        handled = sum(one.ok + one.failed for one in minute)
        return ConsumeStatus(
            consume_failed_msgs=sum(one.failed for one in slices),
            consume_failed_tps=sum(one.failed for one in minute) / span_s,
            consume_ok_tps=sum(one.ok for one in minute) / span_s,
            consume_rt=sum(one.took_ms for one in minute) / handled if handled else 0.0,
            pull_tps=sum(one.pulled for one in minute) / span_s,
        )
