"""bench/RESULTS.md: both brokers' figures row by row, and what of them comes near the limits of the machine."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from bench.macro.limits import FILE_SYNC, LOOPBACK_STREAM, MEMORY_COPIED, READY_CPU, READY_P50, Limit
from bench.macro.rows import PURE_RATE_MIN, PURE_ROW, Life, Row


class Report:
    """bench/RESULTS.md, written again with each row: a long run may be stopped."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.remarks: list[str] = []
        self.limits: list[Limit] = []
        self.lines: list[str] = []
        self.ours: dict[tuple[str, str], float] = {}  # medians by row and figure

    def remark(self, text: str) -> None:
        print(text, flush=True)
        self.remarks.append(text)

    def add(self, row: Row | Life, found: dict[str, list[dict[str, float]]]) -> None:
        self.lines += lines_of(row, found)
        ours = found["comet"]
        for figure in ours[0]:
            if (value := median(ours, figure)) is not None:
                self.ours[row.name, figure] = value
        self._write()

    def add_pure(self, rate: float) -> None:
        reached = _said(rate >= PURE_RATE_MIN)
        self.lines.append(
            f"| {PURE_ROW.name} | rate | {rate:,.6g} | | – | | – | >= {PURE_RATE_MIN:,}/s | {reached} |"
        )
        self._write()

    def _write(self) -> None:
        args = self.args
        text = [
            "# Measured beside the Java broker",
            "",
            f"`python -m bench.macro --rounds {args.rounds} --seconds {args.seconds:g}"
            f"{' --fill-cache' if args.fill_cache else ''}{' --keep-awake' if args.keep_awake else ''}`, "
            f"{time.strftime('%Y-%m-%d')}.",
            "rate: messages/s; cpu: microseconds of broker CPU per message; p50, p99, e2e: microseconds.",
            "Medians, with the range over the rounds.",
            *(["", *self.remarks] if self.remarks else []),
            "",
            "| row | figure | CometMQ | range | Java 4.9.7 | range | ratio | bar | reached |",
            "|---|---|---|---|---|---|---|---|---|",
            *self.lines,
            "",
        ]
        if self.limits:
            text += [
                "What the machine can do at best, measured at the beginning of the same run:",
                "",
                "| limit | measured | range | row | ours | times the limit |",
                "|---|---|---|---|---|---|",
                *(line for limit in self.limits for line in limit_lines(limit, self.ours)),
                "",
            ]
        args.output.write_text("\n".join(text), "utf-8")


def limit_lines(limit: Limit, ours: dict[tuple[str, str], float]) -> list[str]:
    """Rows that come near a limit, in its unit; fewer than two times is near."""
    begin = f"| {limit.name} | {limit.median:.3g} {limit.unit} | {min(limit.figures):.3g} to {max(limit.figures):.3g} "
    lines = []
    for name, row, figure, in_its_unit in NEAR:
        if name == limit.name and (value := ours.get((row, figure))) is not None:
            mine = in_its_unit(value)
            times = limit.median / mine if limit.unit == "GB/s" else mine / limit.median
            lines.append(
                f"{begin}| {row} | {mine:.3g} {limit.unit} | {times:.2g}{' (near)' if times < 2 else ''} |"
            )
    return lines or [f"{begin}| | | |"]


NEAR: list[tuple[str, str, str, Callable[[float], float]]] = [
    (MEMORY_COPIED, "batch 32 x 1 KiB, 4 x 4", "rate", lambda rate: rate * 1024 / 1e9),
    (MEMORY_COPIED, "send 4 KiB, 8 x 32", "rate", lambda rate: rate * 4096 / 1e9),
    (LOOPBACK_STREAM, "pull 1 KiB hot, 32 a pull", "rate", lambda rate: rate * 1024 / 1e9),
    (LOOPBACK_STREAM, "send 4 KiB, 8 x 32", "rate", lambda rate: rate * 4096 / 1e9),
    (FILE_SYNC, "sync flush 1 KiB, 64 x 1", "rate", lambda rate: 64 / rate * 1e3),
    (READY_P50, "send 1 KiB, 1 x 1", "p50", lambda us: us),
    (READY_CPU, "send 1 KiB, 1 x 1", "cpu", lambda us: us),
]


def median(found: list[dict[str, float]], figure: str) -> float | None:
    values = [figures[figure] for figures in found if figures.get(figure)]
    return statistics.median(values) if values else None


def spread(found: list[dict[str, float]], figure: str) -> str:
    values = [figures[figure] for figures in found if figures.get(figure)]
    return f"{min(values):,.6g} to {max(values):,.6g}" if values else ""


# Their bars are on the figure itself, not on its ratio
ABSOLUTE = ("kB each", "pulled of 160,000", "send p99 beside / alone")


def lines_of(row: Row | Life, found: dict[str, list[dict[str, float]]]) -> list[str]:
    lines = []
    ours, java = found.get("comet", []), found.get("java", [])
    wanted = [*row.bars]
    if isinstance(row, Row) and "kB each" not in wanted:
        wanted = ["rate", "cpu", *wanted]
    for figure in dict.fromkeys(wanted):
        mine, theirs = median(ours, figure), median(java, figure)
        if mine is None:
            continue
        ratio = f"{mine / theirs:.2f}" if theirs else "–"
        bar = row.bars.get(figure, "")
        verdict = ""
        if bar:
            sign, number = bar.split()
            value = mine if figure in ABSOLUTE else (mine / theirs if theirs else None)
            if value is not None:
                verdict = _said(value >= float(number) if sign == ">=" else value <= float(number))
        shown = f"{theirs:,.6g}" if theirs else "–"
        lines.append(
            f"| {row.name} | {figure} | {mine:,.6g} | {spread(ours, figure)} | {shown} | {spread(java, figure)} "
            f"| {ratio} | {bar} | {verdict} |"
        )
    return lines


def _said(reached: bool) -> str:
    return "yes" if reached else "**no**"
