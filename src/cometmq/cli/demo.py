"""A registration service with and without a broker, in about a minute: a surge, a killed consumer, a funnel on Spark.

Real processes in a temporary directory on loopback; every number is measured in the run. Ctrl-C ends it and cleans up.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cometmq.cli.server import loop_factory, say

if TYPE_CHECKING:
    from cometmq.demo.plan import Plan

EXIT_LOST = 1
EXIT_TERMINATED = 143


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="a few seconds, a small surge, no Spark")
    parser.add_argument("--no-spark", action="store_true", help="leave out the archive and the funnel")
    parser.add_argument(
        "--audit", metavar="FILE", help="trace all clients and write the audit of the run as one HTML file"
    )


def run(args: argparse.Namespace) -> int:
    from cometmq.demo.plan import QUICK, Plan

    spark = not (args.quick or args.no_spark)
    report = Path(args.audit).absolute() if args.audit else None
    plan = QUICK if args.quick else Plan()
    with (
        tempfile.TemporaryDirectory(prefix="cometmq-demo-", ignore_cleanup_errors=True) as directory,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        try:
            whole = runner.run(_tell(plan, Path(directory), spark, report))
        except asyncio.CancelledError:
            return EXIT_TERMINATED
    return 0 if whole else EXIT_LOST


async def _tell(plan: Plan, directory: Path, spark: bool, report: Path | None) -> bool:
    from cometmq.demo.screen import Screen
    from cometmq.demo.story import Story

    task = asyncio.current_task()
    assert task is not None
    with contextlib.suppress(NotImplementedError):  # Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    whole = await Story(plan, Screen(), directory, spark=spark, report=report).tell()
    command = (
        sys.argv[0] if sys.argv[0].endswith("cometmq") else "cometmq"
    )  # as it was called: maybe not in the path
    say(f"\nNext:  {command} standalone   keeps one running; RocketMQ clients find it at 127.0.0.1:9876")
    return whole
