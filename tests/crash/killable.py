"""A broker process that tests kill by SIGKILL and start again on the same store and port."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path

from cometmq.clock import now_ms

COMMAND = (sys.executable, "-m", "cometmq.cli.main")
SMALL = {"mappedFileSizeCommitLog": 64 << 20, "maxHashSlotNum": 1_000, "maxIndexNum": 100_000}
READY_LIMIT_S = 20


class KillableBroker:
    def __init__(self, store: Path, **options: object) -> None:
        self.address = ""
        self.down_ms: list[tuple[int, int]] = []  # when it was away
        self._store = store
        self._options = {**SMALL, **options}
        self._process: Process | None = None

    async def start(self) -> None:
        port = self.address.rpartition(":")[2] or "0"
        options = [word for key, value in self._options.items() for word in ("-o", f"{key}={value}")]
        self._process = await asyncio.create_subprocess_exec(
            *COMMAND, "standalone", "--port", port, "--nameserver-port", "0", "--store", str(self._store), *options,
            stdout=PIPE, stderr=DEVNULL,
        )  # fmt: skip
        self.address = await asyncio.wait_for(self._ready(self._process), READY_LIMIT_S)

    async def _ready(self, started: Process) -> str:
        assert started.stdout is not None
        async for line in started.stdout:
            if line.startswith(b"ready "):
                words = dict(word.split("=", 1) for word in line.decode().split()[1:])
                return words["broker"]
        raise AssertionError("the broker ended before it was ready")

    async def kill(self) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.communicate()

    async def kill_and_start(self) -> None:
        killed_ms = now_ms()
        await self.kill()
        await self.start()
        self.down_ms.append((killed_ms, now_ms()))
