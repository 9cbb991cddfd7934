"""The brokers under test: one alone, a 4.9 pair of master and slave, or a group that elects its master."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.macro.servers import wait_for_port
from cometmq.testing.group_control import GroupControl
from cometmq.testing.group_processes import HOST, GroupProcesses, free_block

LOG_FILE_SIZE = 1 << 30  # as in production
STORE_SETTINGS = {
    "mappedFileSizeCommitLog": str(LOG_FILE_SIZE),
    "mappedFileSizeConsumeQueue": "6000000",
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
}
PORTS_PER_BROKER = 4
STOP_LIMIT_S = 40.0


@dataclass
class Served:
    """Where to send, and who works for it."""

    address: str
    master_pid: int
    other_pids: list[int]


@contextmanager
def one_broker(settings: dict[str, str]) -> Iterator[Served]:
    with _plain_brokers([settings]) as served:
        yield served


@contextmanager
def classic_pair(settings: dict[str, str]) -> Iterator[Served]:
    """As 4.9 has it: the slave is told where its master is, nobody elects."""
    with _plain_brokers([settings, settings | {"brokerRole": "SLAVE", "brokerId": "1"}]) as served:
        yield served


@contextmanager
def with_taker(settings: dict[str, str]) -> Iterator[Served]:
    """A master whose slave does its work elsewhere, as far as this machine can tell."""
    with _plain_brokers([settings]) as served:
        host, _, port = served.address.partition(":")
        command = [sys.executable, "-m", "bench.safety.taker", host, str(int(port) + 1)]
        taker = subprocess.Popen(command)
        try:
            yield Served(served.address, served.master_pid, [taker.pid])
        finally:
            taker.terminate()
            taker.wait(STOP_LIMIT_S)


@contextmanager
def group_of(brokers: int, settings: dict[str, str]) -> Iterator[Served]:
    """Everybody in sync. In a group of two the NameServer has the third vote."""
    group = GroupProcesses(brokers=brokers, witness=brokers == 2, settings=STORE_SETTINGS | settings)
    with group:
        master = asyncio.run(_master(group))
        others = [group.processes[number].pid for number in group.ids if number != master]
        yield Served(group.address(master), group.processes[master].pid, others)


async def _master(group: GroupProcesses) -> int:
    async with GroupControl(group) as control:
        return await leased_master(group, control)


async def leased_master(group: GroupProcesses, control: GroupControl) -> int:
    """One that may create topics: a new master gets its first lease a moment after its election."""

    async def leased() -> int:
        master = await control.master(in_sync=len(group.ids))
        status = await control.status(master)
        return master if status is not None and status["lease"] else 0

    return int(await control.until(leased, "a master with a lease"))


@contextmanager
def _plain_brokers(each: list[dict[str, str]]) -> Iterator[Served]:
    """The first is the master; they know each other by the address of its replication port."""
    directory = Path(tempfile.mkdtemp(prefix="cometmq-safety-"))
    ports = [free_block(PORTS_PER_BROKER) + 2 for _ in each]
    processes = []
    try:
        for number, settings in enumerate(each):
            own = STORE_SETTINGS | settings | {
                "listenPort": str(ports[number]), "bindAddress": HOST, "brokerIP1": HOST,
                "storePathRootDir": str(directory / str(number)),
                **({"haMasterAddress": f"{HOST}:{ports[0] + 1}"} if number else {}),
            }  # fmt: skip
            processes.append(_start(own, directory / f"{number}.log"))
            wait_for_port(ports[number])
        yield Served(f"{HOST}:{ports[0]}", processes[0].pid, [process.pid for process in processes[1:]])
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(STOP_LIMIT_S)
        shutil.rmtree(directory, ignore_errors=True)


def _start(settings: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    pairs = [part for key, value in settings.items() for part in ("-o", f"{key}={value}")]
    with log.open("ab") as file:
        return subprocess.Popen([sys.executable, "-m", "cometmq", "broker", *pairs], stdout=file, stderr=file)


def cpu_seconds(pids: list[int]) -> float:
    """What these processes have used so far."""
    used = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        used += int(fields[11]) + int(fields[12])
    return used / os.sysconf("SC_CLK_TCK")
