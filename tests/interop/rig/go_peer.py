"""The Go client of Apache RocketMQ as a process: built once, read line by line."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .build import Unavailable, cache_directory, digest_of, is_current, locked, run_build

GO_DIR = Path(__file__).parents[1] / "go"

Line = dict[str, Any]


def build_go() -> Path:
    go = shutil.which("go")
    if not go:
        raise Unavailable("Go is not installed")
    cache = cache_directory()
    binary, stamp = cache / "go-peer", cache / "go.stamp"
    digest = digest_of(sorted(GO_DIR.iterdir()))
    with locked(cache / "lock"):
        if not (is_current(stamp, digest) and binary.exists()):
            command = [go, "build", "-C", str(GO_DIR), "-o", str(binary), "."]
            run_build(command, "the Go client could not be built", Unavailable)
            stamp.write_text(digest)
    return binary


class GoPeer:
    """One run of the program; its lines are collected while it runs."""

    def __init__(self, binary: Path, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [str(binary), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._lines: list[Line] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def lines(self) -> list[Line]:
        with self._changed:
            return list(self._lines)

    def values(self, name: str) -> list[Any]:
        return [line[name] for line in self.lines if name in line]

    def wait(self, enough: Callable[[list[Line]], bool], what: str, timeout: float = 30) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: enough(self._lines), timeout):
                raise AssertionError(f"waited {timeout} s for {what}; got {self._lines[-20:]}")

    def wait_for(self, name: str, *values: Any, timeout: float = 30) -> None:
        self.wait(
            lambda lines: set(values) <= {line.get(name) for line in lines}, f"{name} in {values}", timeout
        )

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(10)
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            if text.startswith(b"{"):
                with self._changed:
                    self._lines.append(json.loads(text))
                    self._changed.notify_all()
