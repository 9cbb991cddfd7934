"""``cometmq nameserver`` as a process of its own."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cometmq.net.client import RemotingClient
from cometmq.protocol.command import RemotingCommand

START_SECONDS_MAX = 20  # the machine may be busy


class Process:
    def __init__(self, *arguments: str) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "cometmq.cli.main", "nameserver", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []

    def ready(self) -> str:
        """The address in the line that says so."""
        assert self.popen.stdout is not None
        deadline = time.monotonic() + START_SECONDS_MAX
        for line in self.popen.stdout:
            self.lines.append(line.rstrip())
            if line.startswith("ready "):
                return dict(word.split("=", 1) for word in line.split()[1:])["nameserver"]
            assert time.monotonic() < deadline
        raise AssertionError("\n".join(self.lines))

    def end(self, number: int = signal.SIGTERM) -> int:
        self.popen.send_signal(number)
        output, _ = self.popen.communicate(timeout=10)
        self.lines += output.splitlines()
        return self.popen.returncode


@contextlib.contextmanager
def process(*arguments: str) -> Iterator[Process]:
    started = Process(*arguments)
    try:
        yield started
    finally:
        if started.popen.poll() is None:
            started.popen.kill()
            started.popen.communicate()


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    file = tmp_path / "namesrv.conf"
    file.write_text(
        f"listenPort=0\nbindAddress=127.0.0.1\nkvConfigPath={tmp_path / 'kv.json'}\nlistnPort=1\n"
    )
    return file


def ask(run: Any, address: str, code: int, **fields: str) -> RemotingCommand:
    async def main() -> RemotingCommand:
        client = RemotingClient()
        answer = await client.invoke(address, RemotingCommand(code, ext_fields=fields))
        await client.close()
        return answer

    answer: RemotingCommand = run(main())
    return answer


def test_process_serves_keeps_kv_over_kill_and_stops_on_sigterm(run: Any, conf: Path) -> None:
    with process("-c", str(conf)) as first:
        address = first.ready()
        assert "The Name Server boot success. serializeType=JSON" in first.lines
        assert any("did you mean 'listenPort'?" in line for line in first.lines)
        assert ask(run, address, 100, namespace="ns", key="k", value="v").code == 0
        first.end(signal.SIGKILL)
    with process("-c", str(conf)) as second:
        assert ask(run, second.ready(), 101, namespace="ns", key="k").ext_fields == {"value": "v"}
        began = time.monotonic()
        assert second.end() == 0
        assert time.monotonic() - began < 5


def test_port_of_the_command_line_wins_and_a_taken_port_is_one_sentence(run: Any, conf: Path) -> None:
    with process("-c", str(conf)) as first:
        port = first.ready().rpartition(":")[2]
        with process("-c", str(conf), "--port", port) as second:
            output, _ = second.popen.communicate(timeout=START_SECONDS_MAX)
            assert second.popen.returncode == 1
            assert f"Cannot listen on 127.0.0.1:{port}" in output
            assert "Traceback" not in output
        assert first.end() == 0
