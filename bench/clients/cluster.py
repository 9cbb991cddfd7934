"""The servers of a run: those that were named, or our own in a process of its own for as long as the run lasts."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from types import TracebackType


class Cluster:
    """``with Cluster(servers) as servers``: the address list of NameServers."""

    def __init__(self, servers: str | None) -> None:
        self._servers = servers
        self._process: subprocess.Popen[str] | None = None
        self._directory = ""

    def __enter__(self) -> str:
        if self._servers:
            return self._servers
        self._directory = tempfile.mkdtemp(prefix="cometmq-clients-")
        command = [sys.executable, "-m", "cometmq", "standalone", "--port", "0", "--nameserver-port", "0"]
        command += ["--store", self._directory, "--log-level", "warning"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("ready "):
                words = dict(word.split("=", 1) for word in line.split()[1:])
                return words["nameserver"]
        raise SystemExit("the broker did not start")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.communicate(timeout=40)
            shutil.rmtree(self._directory, ignore_errors=True)
