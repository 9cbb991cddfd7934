"""A NameServer and a group of brokers that elect their master, each a process of its own on this machine.

For tests with kill -9, for ``cometmq ha demo`` and for trying things out. Ports are free ones, directories stay so
that a broker can be started again on its store.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from cometmq.controller.config import CONTROLLER_KEYS

HOST = "127.0.0.1"
NAME_SERVER = 0  # its number among the processes
START_LIMIT_S = 120.0
STOP_LIMIT_S = 30.0
PORT_RANGE = (12_000, 32_000)
PORTS_PER_BROKER = 4  # fast port, main port and replication port are neighbours
SETTINGS = {
    "mappedFileSizeCommitLog": str(64 << 20),
    "mappedFileSizeConsumeQueue": str(6000 * 20),
    "maxHashSlotNum": "10000",
    "maxIndexNum": "40000",
    # Whatever else is on the disk of the machine: nothing is refused or deleted here because it is rather full.
    "rocketmq.broker.diskSpaceWarningLevelRatio": "1.0",
    "rocketmq.broker.diskSpaceCleanForciblyRatio": "1.0",
}
FAST_PROFILE = {
    "controllerElectionTimeoutMs": "200..400",
    "controllerHeartbeatMs": "40",
    "haSessionHeartbeatMs": "50",
    "haLeaseMs": "300",
    "haSessionTimeoutMs": "450",
    "haDisconnectGraceMs": "50",
    "haHeartbeatMs": "30",
    "haMaxTimeSlaveNotCatchup": "500",
    "haDropDelayMs": "100",
    "haMetaIntervalMs": "50",
}


class GroupProcesses:
    """``with GroupProcesses() as group:`` starts a NameServer and three brokers and waits until they listen."""

    def __init__(
        self,
        directory: str | Path | None = None,
        *,
        brokers: int = 3,
        name: str = "G",
        settings: Mapping[str, str] | None = None,
        witness: bool = False,
    ) -> None:
        """``witness``: the NameServer has a vote, as it should where there are two brokers."""
        self._own_directory = directory is None
        self.directory = (
            Path(tempfile.mkdtemp(prefix="cometmq-group-")) if directory is None else Path(directory)
        )
        self.directory.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.ids = list(range(1, brokers + 1))
        self.settings = {**SETTINGS, **(settings or {})}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self._name_server: subprocess.Popen[bytes] | None = None
        taken: set[int] = set()
        blocks = [free_block(PORTS_PER_BROKER, taken) for _ in self.ids]
        ports = [free_block(1, taken) for _ in range(1 + brokers + 1)]
        self.name_server = f"{self.host_of(NAME_SERVER)}:{ports[0]}"
        self._main_ports = {number: block + 2 for number, block in zip(self.ids, blocks, strict=True)}
        voters = [*self.ids, brokers + 1] if witness else self.ids
        self.voters = dict(zip(voters, ports[1:], strict=False))

    # -- life -----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self.start_all()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start_all(self) -> None:
        self.start_name_server()
        for number in self.ids:
            self.launch(number)
        for number in self.ids:
            self.wait_ready(number)

    def start_name_server(self) -> None:
        arguments = [
            "nameserver",
            "--host",
            self.host_of(NAME_SERVER),
            "--port",
            self.name_server.rpartition(":")[2],
        ]
        witness = next((voter for voter in self.voters if voter not in self.ids), 0)
        if witness:
            own = {key: value for key, value in self.settings.items() if key in CONTROLLER_KEYS}
            own |= {"controllerPeers": self.peers, "controllerSelfId": str(witness)}
            own["kvConfigPath"] = str(self.directory / "nameserver" / "kvConfig.json")
            arguments += [part for key, value in own.items() for part in ("-o", f"{key}={value}")]
        self._name_server = self._spawn("nameserver", [*self.command_of(NAME_SERVER), *arguments])
        _wait_for(lambda: "ready" in self.output("nameserver"), "the NameServer", self._name_server)

    def launch(self, number: int) -> None:
        """Start a broker without waiting for it."""
        pairs = {**self.settings, **self.settings_of(number)}
        arguments = ["broker", "-n", self.name_server]
        for key, value in pairs.items():
            arguments += ["-o", f"{key}={value}"]
        command = [*self.command_of(number), *arguments]
        self.processes[number] = self._spawn(f"broker-{number}", command, self.environment_of(number))

    def wait_ready(self, number: int) -> None:
        mark = f"pid={self.processes[number].pid}"
        _wait_for(lambda: mark in self.output(f"broker-{number}"), f"broker {number}", self.processes[number])

    def start(self, number: int) -> None:
        self.launch(number)
        self.wait_ready(number)

    def settings_of(self, number: int) -> dict[str, str]:
        return {
            "brokerName": self.name,
            "brokerId": str(number),
            "brokerIP1": self.host_of(number),
            "bindAddress": self.host_of(number),
            "listenPort": str(self._main_ports[number]),
            "storePathRootDir": str(self.store(number)),
            "enableControllerMode": "true",
            "controllerPeers": self.peers,
            **({"controllerSelfId": str(number)} if number in self.voters else {}),
        }

    @property
    def peers(self) -> str:
        return ";".join(f"{voter}-{self.controller_address(voter)}" for voter in self.voters)

    def store(self, number: int) -> Path:
        return self.directory / f"store-{number}"

    def wipe(self, number: int) -> None:
        """The store of a broker that does not run is lost."""
        shutil.rmtree(self.store(number))

    def address(self, number: int) -> str:
        return f"{self.host_of(number)}:{self._main_ports[number]}"

    def controller_address(self, voter: int) -> str:
        return f"{self.host_of(voter if voter in self.ids else NAME_SERVER)}:{self.voters[voter]}"

    def host_of(self, number: int) -> str:
        """Where a broker, or the NameServer, listens."""
        return HOST

    def command_of(self, number: int) -> list[str]:
        """What runs a broker, or the NameServer."""
        return [sys.executable, "-m", "cometmq"]

    def environment_of(self, number: int) -> dict[str, str]:
        """What a broker finds in its environment besides ours."""
        return {}

    def id_of(self, address: str) -> int:
        return next(number for number in self.ids if self.address(number) == address)

    # -- faults ---------------------------------------------------------------------------------------------------

    def kill(self, number: int) -> None:
        """kill -9."""
        process = self.processes[number]
        process.kill()
        process.wait()

    def signal(self, number: int, what: signal.Signals) -> None:
        self.processes[number].send_signal(what)

    def pause(self, number: int) -> None:
        self.signal(number, signal.SIGSTOP)

    def resume(self, number: int) -> None:
        self.signal(number, signal.SIGCONT)

    def stop(self, number: int) -> int:
        """In order; the exit code."""
        process = self.processes[number]
        if process.poll() is None:
            process.terminate()
        return process.wait(STOP_LIMIT_S)

    def alive(self, number: int) -> bool:
        return number in self.processes and self.processes[number].poll() is None

    def close(self) -> None:
        everyone = [*self.processes.values(), *([self._name_server] if self._name_server else [])]
        for process in everyone:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in everyone:
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._own_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    # -- output ---------------------------------------------------------------------------------------------------

    def output(self, who: str) -> str:
        with contextlib.suppress(FileNotFoundError):
            return (self.directory / f"{who}.log").read_text(errors="replace")
        return ""

    def _spawn(
        self, who: str, command: list[str], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        with (self.directory / f"{who}.log").open("ab") as file:
            return subprocess.Popen(
                command,
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})},
            )


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago."""
    taken: set[int] = set()
    return [free_block(1, taken) for _ in range(count)]


def free_block(count: int, taken: set[int] | None = None) -> int:
    """The first of some neighbouring ports that were free a moment ago, and are not ``taken``; then they are.

    Below those that the system gives to outgoing connections: one of these could take the port in between.
    """
    taken = set() if taken is None else taken
    while True:
        first = random.randrange(*PORT_RANGE)
        block = range(first, first + count)
        if taken.isdisjoint(block) and _are_free(block):
            taken.update(block)
            return first


def _are_free(ports: Iterable[int]) -> bool:
    with contextlib.ExitStack() as stack:
        try:
            for port in ports:
                stack.enter_context(socket.socket()).bind((HOST, port))
        except OSError:
            return False
        return True


def _wait_for(condition: object, what: str, process: subprocess.Popen[bytes]) -> None:
    assert callable(condition)
    deadline = time.monotonic() + START_LIMIT_S
    while not condition():
        if process.poll() is not None:
            raise RuntimeError(f"{what} ended with exit code {process.returncode} instead of starting")
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} did not start within {START_LIMIT_S:g} s")
        time.sleep(0.02)
