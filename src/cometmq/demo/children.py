"""Processes of the demo: started, watched, ended. None outlives the demo.

A child ends when its input ends, so it goes even when the demo is killed. It has a session of its own: Ctrl-C in the
terminal reaches the demo only, which then ends its children in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from cometmq.errors import CometMQError

READY_LIMIT_S = 60.0
END_LIMIT_S = 10.0
TAIL_LINES = 15


async def input_ended() -> None:
    """In a child: wait until the demo closes our input, or dies."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


class Child:
    """A running module of ours. What it complains about goes to a file."""

    def __init__(self, name: str, process: Process, errors: Path) -> None:
        self.name = name
        self.errors = errors
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    async def line(self) -> str:
        """Its next line of output; empty at the end."""
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode().rstrip("\n")

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    async def ready(self, limit_s: float = READY_LIMIT_S) -> str:
        """Wait for the line ``ready ...``; what stands behind the word."""
        try:
            async with asyncio.timeout(limit_s):
                line = await self.line()
        except TimeoutError:
            line = ""
        if not line.startswith("ready"):
            raise CometMQError(f"The {self.name} process did not start: {self.complaint()}")
        return line.removeprefix("ready").strip()

    async def wait(self) -> int:
        return await self._process.wait()

    async def kill(self) -> None:
        """SIGKILL, by pid, without a word."""
        os.kill(self.pid, signal.SIGKILL)
        await self._process.wait()

    async def end(self) -> None:
        """Close its input and wait; whatever is left of its session afterwards is killed."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(END_LIMIT_S):
                await self._process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            await self._process.wait()

    def complaint(self) -> str:
        """The end of what it wrote to its error output."""
        lines = self.errors.read_text("utf-8", "replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:]) or "it gave no reason."


class Children:
    """All processes of one run; leaving the context ends them, the last started first."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._children: list[Child] = []

    async def start(
        self, name: str, module: str, *arguments: str, environment: dict[str, str] | None = None
    ) -> Child:
        errors = self._directory / f"{name}-{len(self._children)}.err"
        with errors.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                *arguments,
                stdin=PIPE,
                stdout=PIPE,
                stderr=out,
                cwd=self._directory,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        child = Child(name, process, errors)
        self._children.append(child)
        return child

    async def __aenter__(self) -> Children:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        for child in reversed(self._children):
            with contextlib.suppress(TimeoutError):
                await child.end()
