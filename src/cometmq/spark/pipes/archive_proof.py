"""The proof that an archive is whole: every queue's ranges join, every noted file is there, no other is."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from cometmq.spark.pipes.archive_files import format_of, live_files, parse_path


def verify_archive(root: str | Path) -> list[str]:
    """Gaps, overlaps and files that no note knows, as sentences; an empty list proves the archive whole."""
    root = Path(root)
    listed = set(live_files(root))
    present = {str(path.relative_to(root)) for path in root.glob("topic=*/date=*/*.parquet")}
    problems = [f"{path} is missing" for path in sorted(listed - present)]
    if (
        format_of(root) == "parquet"
    ):  # a Delta table keeps files that no longer count, for readers of the past
        problems += [f"{path} is in no manifest" for path in sorted(present - listed)]
    return problems + range_problems(listed & present)


def range_problems(paths: Iterable[str]) -> list[str]:
    """From names alone: the ranges of a queue must join without gap or overlap.

    >>> names = [f"topic=t/date=2026-01-01/b-0-{start}-{end}-1.parquet" for start, end in ((0, 5), (7, 9))]
    >>> range_problems(names)
    ['offsets [5, 7) of t/b/0 are missing']
    """
    ranges: dict[tuple[str, str, int], list[tuple[int, int]]] = defaultdict(list)
    for path in paths:
        found = parse_path(path)
        if found is not None:
            topic, broker, queue_id, start, end = found
            ranges[(topic, broker, queue_id)].append((start, end))
    problems: list[str] = []
    for (topic, broker, queue_id), pieces in sorted(ranges.items()):
        pieces.sort()
        for (_, end), (start, _) in itertools.pairwise(pieces):
            if start != end:
                what = "are missing" if start > end else "are there twice"
                low, high = sorted((start, end))
                problems.append(f"offsets [{low}, {high}) of {topic}/{broker}/{queue_id} {what}")
    return problems
