"""Look into a store directory: what is in it, is it sound, the messages as JSON lines.

Nothing is written, and the broker may be running. File sizes are found out from the directory itself.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from cometmq.protocol.message import MessageExt
    from cometmq.store.inspect import QueueSummary, StoreSummary
    from cometmq.store.verify import VerifyReport

EXIT_UNSOUND = 1
TERMINAL_WIDTH_MIN = 60
PROGRESS_INTERVAL_S = 0.1
PROGRESS_BAR_WIDTH = 30
NAME_WIDTH_MIN = 12
FACT_INDENT = 13
KIB = 1024


def configure(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="what", required=True, metavar="inspect|verify|dump")
    inspect = _command(commands, "inspect", "files, topics, queues, index and state of a store")
    inspect.add_argument("--queues", action="store_true", help="one line per queue, not per topic")
    inspect.add_argument("--json", action="store_true", help="everything as one JSON object")
    verify = _command(commands, "verify", "read everything and say whether it is sound (exit code 1: no)")
    verify.add_argument("--json", action="store_true", help="the result as one JSON object")
    dump = _command(
        commands, "dump", "messages as JSON lines, in the order of the log or of a topic's queues"
    )
    dump.add_argument("--json", action="store_true", help="as always: JSON lines")
    dump.add_argument("--topic", help="only this topic, queue by queue")
    dump.add_argument("--queue", type=int, metavar="ID", help="only this queue of the topic")
    dump.add_argument(
        "--from-offset",
        type=int,
        default=0,
        metavar="N",
        help="begin at this queue offset (with --topic) or physical offset (without)",
    )
    dump.add_argument("--limit", type=int, metavar="N", help="at most this many messages")
    dump.add_argument(
        "--body",
        choices=("text", "base64", "none"),
        default="text",
        help="how to show bodies; what is no text is shown as base64 (default: text)",
    )


def run(args: argparse.Namespace) -> int:
    runs = {"inspect": run_inspect, "verify": run_verify, "dump": run_dump}
    return runs[args.what](args)


def run_inspect(args: argparse.Namespace) -> int:
    from cometmq.store.inspect import inspect

    summary = inspect(args.directory, args.commitlog)
    if args.json:
        print(json.dumps(asdict(summary) | {"state": summary.state}, indent=2))
    else:
        for line in describe(summary, per_queue=args.queues, width=terminal_width()):
            print(line)
    return 0


def run_verify(args: argparse.Namespace) -> int:
    from cometmq.store.verify import verify

    started_s = time.monotonic()
    show = sys.stderr.isatty() and not args.json
    report = verify(args.directory, args.commitlog, ProgressBar(sys.stderr) if show else None)
    if args.json:
        print(json.dumps(_report_value(report), indent=2))
    else:
        _print_report(report, args.directory, time.monotonic() - started_s)
    return 0 if report.sound else EXIT_UNSOUND


def run_dump(args: argparse.Namespace) -> int:
    from cometmq.store.dump import as_json, messages_in_log, messages_of_topic
    from cometmq.store.read_only import StoreFiles

    if args.queue is not None and args.topic is None:
        print("cometmq store dump: --queue needs --topic", file=sys.stderr)
        return 2
    files = StoreFiles(args.directory, args.commitlog)
    messages: Iterator[MessageExt]
    if args.topic is None:
        messages = messages_in_log(files, args.from_offset, _warn)
    else:
        messages = messages_of_topic(files, args.topic, args.queue, args.from_offset, _warn)
    for message in islice(messages, args.limit):
        print(json.dumps(as_json(message, args.body), ensure_ascii=False))
    return 0


class ProgressBar:
    """Bytes done on one line of a terminal, drawn a few times a second."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._drawn_s = 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if done < total and now - self._drawn_s < PROGRESS_INTERVAL_S:
            return
        self._drawn_s = now
        share = done / total if total else 1.0
        bar = ("#" * round(share * PROGRESS_BAR_WIDTH)).ljust(PROGRESS_BAR_WIDTH, ".")
        end = "\r\x1b[K" if done >= total else ""
        self._out.write(f"\r[{bar}] {share:4.0%} of {size_text(total)}{end}")
        self._out.flush()


def describe(summary: StoreSummary, *, per_queue: bool, width: int) -> Iterator[str]:
    """The tables of ``inspect``."""
    yield f"Store {summary.root}: {summary.state}"
    yield from (f"  ! {problem}" for problem in summary.problems)
    yield ""
    for name, fact in _facts(summary):
        yield from textwrap.wrap(
            fact, width, initial_indent=name.ljust(FACT_INDENT), subsequent_indent=" " * FACT_INDENT
        )
    yield ""
    yield from queue_table(summary.queues, width) if per_queue else topic_table(summary.queues, width)
    yield ""
    yield from _index_table(summary, width)


def _facts(summary: StoreSummary) -> Iterator[tuple[str, str]]:
    log = summary.log
    yield (
        "Commit log",
        f"{plural(log.file_count, 'file')} of {size_text(log.file_size)}, {size_text(log.disk_size)} on disk",
    )
    yield "  offsets", f"{log.min_physical_offset} .. {log.max_physical_offset}"
    yield "  stored", f"{time_text(log.first_store_timestamp_ms)} .. {time_text(log.last_store_timestamp_ms)}"
    names = ("log", "queues", "index")
    times = zip(names, (summary.checkpoint or {}).values(), strict=False)
    yield "Checkpoint", ", ".join(f"{name} {time_text(value)}" for name, value in times) or "none"
    yield "Config", ", ".join(summary.config_files) or "none"


def topic_table(queues: Sequence[QueueSummary], width: int) -> Iterator[str]:
    rows = []
    for topic, group in groupby(queues, key=lambda queue: queue.topic):
        members = list(group)
        firsts = [queue.first_store_timestamp_ms for queue in members if queue.first_store_timestamp_ms > 0]
        last_ms = max(queue.last_store_timestamp_ms for queue in members)
        count = sum(queue.message_count for queue in members)
        times = time_text(min(firsts, default=0)), time_text(last_ms)
        rows.append((topic, str(len(members)), str(count), *times))
    yield from table(("TOPIC", "QUEUES", "MESSAGES", "FIRST STORED", "LAST STORED"), rows, width, "lrrll")


def queue_table(queues: Sequence[QueueSummary], width: int) -> Iterator[str]:
    rows = [
        (
            queue.topic,
            str(queue.queue_id) + ("+ext" if queue.has_extension else ""),
            str(queue.min_offset),
            str(queue.max_offset),
            str(queue.file_count),
            time_text(queue.last_store_timestamp_ms),
        )
        for queue in queues
    ]
    yield from table(("TOPIC", "QUEUE", "MIN", "MAX", "FILES", "LAST STORED"), rows, width, "lrrrrl")


def _index_table(summary: StoreSummary, width: int) -> Iterator[str]:
    rows = [
        (
            index.name,
            size_text(index.size),
            str(index.entry_count),
            time_text(index.begin_timestamp_ms),
            time_text(index.end_timestamp_ms),
        )
        for index in summary.index
    ]
    yield from table(("INDEX FILE", "SIZE", "KEYS", "FIRST STORED", "LAST STORED"), rows, width, "lrrll")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], width: int, align: str) -> Iterator[str]:
    """Columns two spaces apart; the first one is shortened in the middle until a line fits."""
    rows = list(rows)
    if not rows:
        yield f"{head[0].capitalize()}: none"
        return
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    rest = sum(widths[1:]) + 2 * (len(widths) - 1)
    widths[0] = min(widths[0], max(width - rest, NAME_WIDTH_MIN))
    for row in [head, *rows]:
        cells = [shorten(row[0], widths[0]), *row[1:]]
        aligned = zip(cells, widths, align, strict=True)
        padded = (cell.rjust(size) if side == "r" else cell.ljust(size) for cell, size, side in aligned)
        yield "  ".join(padded).rstrip()


def shorten(text: str, width: int) -> str:
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return text[: width - 1 - tail] + "…" + text[len(text) - tail :]


def size_text(size: int) -> str:
    """1.5 GiB and the like."""
    value, unit = float(size), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < KIB:
            break
        value, unit = value / KIB, larger
    return f"{value:.0f} {unit}" if value == int(value) else f"{value:.1f} {unit}"


def time_text(timestamp_ms: int) -> str:
    """Local time; a dash for none."""
    if timestamp_ms <= 0:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(timestamp_ms / 1000))


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def terminal_width() -> int:
    return max(shutil.get_terminal_size((100, 24)).columns, TERMINAL_WIDTH_MIN)


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=summary, description=summary)
    parser.add_argument("directory", type=Path, metavar="DIR", help="storePathRootDir of a broker")
    parser.add_argument(
        "--commitlog", type=Path, metavar="DIR", help="storePathCommitLog, if it is not DIR/commitlog"
    )
    return parser


def _report_value(report: VerifyReport) -> dict[str, object]:
    findings = [asdict(finding) | {"severity": finding.severity.value} for finding in report.findings]
    return asdict(report) | {"findings": findings, "sound": report.sound}


def _print_report(report: VerifyReport, directory: Path, seconds: float) -> None:
    for finding in report.findings:
        print(f"{finding.severity.value.upper():5} {finding}")
    if report.left_out:
        print(f"... and {report.left_out} more")
    what = (
        f"{plural(report.record_count, 'record')} ({size_text(report.log_size)}), "
        f"{report.entry_count} queue {'entry' if report.entry_count == 1 else 'entries'} "
        f"in {plural(report.queue_count, 'queue')}, "
        f"{plural(report.key_count, 'key')}; {seconds:.1f} s"
    )
    notes = len(report.findings) + report.left_out - report.error_count
    verdict = "is sound" if report.sound else f"is NOT sound, {plural(report.error_count, 'error')}"
    aside = f", {plural(notes, 'note')}" if notes else ""
    print(f"{directory} {verdict}{aside}: {what}")


def _warn(sentence: str) -> None:
    print(f"cometmq store dump: {sentence}", file=sys.stderr)
