"""The last act: the Spark pipelines in a process of their own, or what to install to see them.

Spark needs ten seconds to start, so it starts with the first act, which leaves the processors alone.
"""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from cometmq.demo.pipeline import LEFT_OUT
from cometmq.demo.screen import Screen

if TYPE_CHECKING:
    from cometmq.demo.children import Child, Children

NEEDED = ("pyspark", "pyarrow")
START_LIMIT_S = 300.0
PATIENCE_S = 2.0  # before a word is said about waiting


class SparkAct:
    def __init__(self, screen: Screen, directory: Path, report: Path | None) -> None:
        self._screen = screen
        self._directory = directory
        self._report = report
        self._missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        self._child: Child | None = None
        self._about = ""

    async def start(self, children: Children) -> None:
        """Start Spark, if it is installed."""
        if self._missing:
            return
        # Whatever Spark leaves in temporary directories goes with ours.
        own = {"TMPDIR": str(self._directory), "SPARK_LOCAL_DIRS": str(self._directory / "spark")}
        arguments = (str(self._directory / "lake"), str(self._report or ""))
        self._child = await children.start("spark", "cometmq.demo.pipeline", *arguments, environment=own)

    async def started(self) -> None:
        """Wait until it is idle: what is measured next should not share the processors with a JVM that starts."""
        if self._child is None:
            return
        ready = asyncio.ensure_future(self._child.ready(START_LIMIT_S))
        done, _ = await asyncio.wait({ready}, timeout=PATIENCE_S)
        if not done:
            self._screen.say("  (Spark, for the last part, is still starting; the next part waits for that.)")
        self._about = await ready

    async def play(self, name_server: str) -> bool:
        """False if it failed; an act that is left out has not failed."""
        self._screen.title("3. Spark archives the events and counts the funnel")
        if self._child is None:
            self._screen.say(
                f"  Left out: {' and '.join(self._missing)} not installed. To see the archive and the"
            )
            self._screen.say(
                "  funnel: pip install 'cometmq[spark]' (in a clone: pip install -e '.[spark]')."
            )
            return True
        self._screen.say(f"  {self._about}")
        if self._about.startswith(LEFT_OUT):
            return True
        self._child.tell(name_server)
        while line := await self._child.line():
            self._screen.say(f"  {line}")
        code = await self._child.wait()
        if code:
            self._screen.say(f"  The pipeline failed:\n{self._child.complaint()}")
        return not code
