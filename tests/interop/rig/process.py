"""A server process of a test: started, awaited, stopped or killed, started again on the same ports."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

from .ports import HOST, accepts
from .waiting import wait_for

START_SECONDS_MAX = 40
STOP_SECONDS_MAX = 30
# A server must not outlive a test session that was killed.
DIES_WITH_PARENT = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []


class ServerProcess:
    """``directory`` holds everything of the server: configuration, store, log."""

    def __init__(self, name: str, command: list[str], port: int, directory: Path) -> None:
        self.name = name
        self.command = command
        self.port = port
        self.directory = directory
        self.log = directory / f"{name}.out"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        """Begin to start; ``wait_ready`` tells when it serves (several servers may start side by side)."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*DIES_WITH_PARENT, *self.command], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def wait_ready(self) -> None:
        wait_for(self._is_ready, f"{self.name} to accept connections on {self.port}", START_SECONDS_MAX)

    def _is_ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"{self.name} ended with {self.process.returncode}: {self.tail()}")
        return accepts(self.port)

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def stop(self) -> int:
        """Stop cleanly (SIGTERM); returns the exit status."""
        return self._end(signal.SIGTERM)

    def kill(self) -> int:
        return self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> int:
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"{self.name} did not stop in {STOP_SECONDS_MAX} s: {self.tail()}") from None

    def restart(self) -> None:
        self.start()
        self.wait_ready()

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None
