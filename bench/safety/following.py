"""How fast a copy follows: an empty replica that copies a full store, and a replica under a load of 100 MB/s."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable
from typing import Any

from bench.safety.servers import STORE_SETTINGS, cpu_seconds, leased_master
from cometmq.testing.group_control import GroupControl
from cometmq.testing.group_processes import GroupProcesses

MB = 1_000_000
WATCH_S = 0.1
CATCH_UP_LIMIT_S = 300.0
LOAD_BODY = 4096  # bytes
# Nobody shall be called dead or late because the machine also runs the load.
PATIENT = {
    "brokerRole": "ASYNC_MASTER",
    "haMaxTimeSlaveNotCatchup": "60000",
    "haLeaseMs": "10000",
    "haSessionTimeoutMs": "15000",
}

Load = Callable[..., dict[str, Any]]


def follow(load: Load, store_gib: float, rate_mb: float, seconds: float) -> dict[str, float]:
    """Two brokers and a NameServer with a vote; level leader, so that sends do not wait for the copy."""
    with GroupProcesses(brokers=2, witness=True, settings=STORE_SETTINGS | PATIENT) as group:
        return asyncio.run(_follow(group, load, store_gib, rate_mb, seconds))


async def _follow(
    group: GroupProcesses, load: Load, store_gib: float, rate_mb: float, seconds: float
) -> dict[str, float]:
    async with GroupControl(group) as control:
        master = await leased_master(group, control)
        follower = next(number for number in group.ids if number != master)
        figures = await _under_load(group, control, master, follower, load, rate_mb, seconds)
        group.stop(follower)
        shutil.rmtree(group.store(follower))
        await control.until(lambda: _alone(control, master), "a master that is alone")
        wanted = int(store_gib * 2**30)
        status = await control.status(master)
        assert status is not None
        messages = max(wanted - status["maxOffset"], 0) // (LOAD_BODY + 250)
        if messages:
            await _loaded(load, group, master, f"-count {messages} -conns 4 -inflight 16")
        return figures | await _catch_up(group, control, master, follower)


async def _alone(control: GroupControl, master: int) -> bool:
    status = await control.status(master)
    return status is not None and status["syncSet"] == [master]


async def _loaded(load: Load, group: GroupProcesses, master: int, arguments: str) -> dict[str, Any]:
    command = f"send -topic follow -size {LOAD_BODY} -busyok {arguments}"
    pid = group.processes[master].pid
    return await asyncio.to_thread(load, group.address(master), pid, command)


async def _under_load(
    group: GroupProcesses,
    control: GroupControl,
    master: int,
    follower: int,
    load: Load,
    rate_mb: float,
    seconds: float,
) -> dict[str, float]:
    pids = [group.processes[follower].pid]
    used = cpu_seconds(pids)
    lags: list[int] = []
    done = threading.Event()
    watching = asyncio.create_task(_watch_lag(control, master, follower, lags, done))
    rate = rate_mb * MB / LOAD_BODY
    result = await _loaded(
        load, group, master, f"-rate {rate:.0f} -conns 4 -inflight 64 -seconds {seconds:g}"
    )
    end_lag = lags[-1] if lags else -1
    done.set()
    await watching
    sent_mb = result["msgs"] * LOAD_BODY / MB
    return {
        "load MB/s": round(sent_mb / result["seconds"], 1),
        "load lag worst MB": round(max(lags) / MB, 1),
        "load lag at the end MB": round(end_lag / MB, 1),
        "load follower CPU s per GB": round((cpu_seconds(pids) - used) / (sent_mb / 1000), 2),
    }


async def _watch_lag(
    control: GroupControl, master: int, follower: int, lags: list[int], done: threading.Event
) -> None:
    while not done.is_set():
        status = await control.status(master)
        if status is not None and str(follower) in status["followers"]:
            lags.append(status["followers"][str(follower)]["lagBytes"])
        await asyncio.sleep(WATCH_S)


async def _catch_up(
    group: GroupProcesses, control: GroupControl, master: int, follower: int
) -> dict[str, float]:
    """From the first byte that arrives to the last; the start of the process is not counted."""
    status = await control.status(master)
    assert status is not None
    end = status["maxOffset"]
    await asyncio.to_thread(group.start, follower)
    used = cpu_seconds([group.processes[follower].pid])
    used_by_master = cpu_seconds([group.processes[master].pid])
    began, begin = 0.0, 0
    deadline = time.monotonic() + CATCH_UP_LIMIT_S
    while (at := await _end_of(control, follower)) < end:
        if at and not began:
            began, begin = time.monotonic(), at
        if time.monotonic() > deadline:
            raise RuntimeError(f"the follower is at {at} of {end} after {CATCH_UP_LIMIT_S:g} s")
        await asyncio.sleep(WATCH_S / 4)
    copied_mb, seconds = (end - begin) / MB, time.monotonic() - began
    return {
        "catch-up MB": round(copied_mb),
        "catch-up MB/s": round(copied_mb / seconds, 1),
        "catch-up follower CPU s per GB": round(
            (cpu_seconds([group.processes[follower].pid]) - used) / copied_mb * 1000, 2
        ),
        "catch-up master CPU s per GB": round(
            (cpu_seconds([group.processes[master].pid]) - used_by_master) / copied_mb * 1000, 2
        ),
    }


async def _end_of(control: GroupControl, number: int) -> int:
    status = await control.status(number)
    return int(status["maxOffset"]) if status is not None else 0
