"""Who sends and reads: ``mqload`` (Go, from ../shared/bench), or else ``cometmq bench``, which comes with the project.

A load is described in mqload's words; a result has its fields.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

from bench.macro.servers import Broker
from bench.processes import cpu_s

SHARED = Path(__file__).parents[3] / "shared" / "bench"
LOAD_SECONDS_MAX = 600
MODES_TIMED = ("send", "pull", "latency", "fanin")


class Generator(Protocol):
    needs_nameserver: bool

    def can(self, load: str) -> bool: ...

    def run(self, broker: Broker, load: str, seconds: float | None = None) -> dict[str, Any]:
        """With ``seconds``, for so long unless the load says how much it is."""


class Mqload:
    needs_nameserver = False

    def __init__(self, program: Path) -> None:
        self.program = program

    @classmethod
    def build(cls, directory: Path) -> Mqload | None:
        """None where its source or Go is missing."""
        source = SHARED / "mqload"
        if not source.exists() or shutil.which("go") is None:
            return None
        program = directory / "mqload"
        subprocess.run(["go", "build", "-o", str(program), "."], cwd=source, check=True)
        return cls(program)

    def can(self, load: str) -> bool:
        return True

    def command(self, broker: Broker, load: str) -> list[str]:
        mode, *rest = load.split()
        return [str(self.program), mode, "-addr", broker.address, "-pid", str(broker.pid), *rest]

    def run(self, broker: Broker, load: str, seconds: float | None = None) -> dict[str, Any]:
        command, mode = self.command(broker, load), load.split()[0]
        if seconds and "-seconds" not in command and "-count" not in command and mode in MODES_TIMED:
            command += ["-seconds", str(seconds)]
            if mode != "pull":
                command += ["-warmup", "1"]  # ours has just been started
        if mode == "send" and "-busyok" not in command:
            # A broker whose disk cannot follow refuses: that is no message stored, and no end.
            command += ["-busyok"]
        return run_for_json(command)


class OwnClient:
    """``cometmq bench``: a client in Python, slower than the broker. Rates are its own, CPU is the broker's."""

    needs_nameserver = True
    COUNT = 50_000  # messages of a load
    COUNT_ALONE = 5_000  # of one that has one request in flight

    def can(self, load: str) -> bool:
        return load.split()[0] in ("send", "pull") and "-rate" not in load

    def run(self, broker: Broker, load: str, seconds: float | None = None) -> dict[str, Any]:
        mode, *rest = load.split()
        said, _ = _LOAD.parse_known_args(rest)
        tasks = said.conns * said.inflight
        count = min(said.count or self.COUNT, self.COUNT if tasks > 1 else self.COUNT_ALONE)
        servers = f"127.0.0.1:{broker.nameserver_port}"
        command = [
            sys.executable,
            "-m",
            "cometmq",
            "bench",
            "send" if mode == "send" else "consume",
            "-n",
            servers,
        ]
        command += ["--json", "--topic", said.topic, "-c", str(count)]
        if mode == "send":
            command += ["--size", str(said.size), "--tasks", str(tasks), "--batch", str(said.batch or 1)]
        before_s = cpu_s(broker.pid)
        found = run_for_json(command)
        result: dict[str, Any] = {
            "msgs": found["messages"],
            "msgs_per_s": found["messages/s"],
            "broker": {"cpu_us_per_msg": (cpu_s(broker.pid) - before_s) / max(1, found["messages"]) * 1e6},
        }
        if "p50 ms" in found:
            result["latency_us"] = {name: found[f"{name} ms"] * 1000 for name in ("p50", "p99")}
        return result


_LOAD = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
for _name, _default in {"-size": 1024, "-conns": 1, "-inflight": 64, "-batch": 0, "-count": 0}.items():
    _LOAD.add_argument(_name, type=int, default=_default)
_LOAD.add_argument("-topic", default="bench")


class LoadFailed(RuntimeError):
    """The generator ended with an error; the broker's own words are in it."""


def run_for_json(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_SECONDS_MAX)
    if done.returncode:
        raise LoadFailed(f"{' '.join(command[1:])}: {done.stderr[-500:] or done.stdout[-500:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result
