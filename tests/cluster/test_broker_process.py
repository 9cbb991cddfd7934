"""Server processes: start, ready line, signals, the store lock, what survives."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from wire_client import WireClient, until

from cometmq.cli.main import version_text
from cometmq.protocol.codes import RequestCode

COMMAND = (sys.executable, "-m", "cometmq.cli.main")
SMALL = ("-o", "mappedFileSizeCommitLog=16777216", "-o", "maxHashSlotNum=1000", "-o", "maxIndexNum=4000")
READY_LIMIT_S = 10


@asynccontextmanager
async def process(*arguments: str) -> AsyncIterator[tuple[Process, dict[str, str], list[str]]]:
    """A server; the values of its ready line, and the lines before it."""
    started = await asyncio.create_subprocess_exec(*COMMAND, *arguments, stdout=PIPE, stderr=PIPE)
    try:
        ready, lines = await asyncio.wait_for(_ready(started), READY_LIMIT_S)
        yield started, ready, lines
    finally:
        if started.returncode is None:
            started.kill()
        await started.communicate()


async def _ready(started: Process) -> tuple[dict[str, str], list[str]]:
    assert started.stdout is not None
    lines: list[str] = []
    while True:
        line = (await started.stdout.readline()).decode()
        if not line:
            _, errors = await started.communicate()
            raise AssertionError(errors.decode())
        if line.startswith("ready "):
            return dict(word.split("=", 1) for word in line.split()[1:]), lines
        lines.append(line.rstrip())


def standalone(store: Path, *more: str) -> tuple[str, ...]:
    return ("standalone", "--port", "0", "--nameserver-port", "0", "--store", str(store), *SMALL, *more)


def test_standalone_prints_its_addresses_serves_and_stops_on_sigterm(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with process(*standalone(tmp_path)) as (server, ready, lines):
            client = WireClient(ready["broker"])
            assert (await client.send("TopicA")).code == 0
            route = await client.call(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"}, address=ready["nameserver"]
            )
            assert ready["broker"].encode() in bytes(route.body)
            await client.close()
            assert lines[0] == f"NameServer  {ready['nameserver']}"
            assert lines[1] == f"Broker      {ready['broker']} (broker-a, DefaultCluster)"
            assert int(ready["pid"]) == server.pid
            server.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(server.wait(), 5) == 0
            assert not (tmp_path / "abort").exists()
            assert (tmp_path / "checkpoint").exists()

    run(main())


def test_nameserver_takes_a_properties_file(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        conf = tmp_path / "namesrv.conf"
        conf.write_text(f"listenPort = 0\nkvConfigPath = {tmp_path / 'kv.json'}\nbindAddress = 127.0.0.1\n")
        async with process("nameserver", "-c", str(conf)) as (server, ready, lines):
            assert lines == ["The Name Server boot success. serializeType=JSON"]
            client = WireClient(ready["nameserver"])
            assert (await client.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})).code == 17
            await client.close()
            server.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(server.wait(), 5) == 0

    run(main())


def test_second_start_on_the_same_store_says_who_holds_it(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with process(*standalone(tmp_path)) as (server, _, _):
            second = await asyncio.create_subprocess_exec(
                *COMMAND, *standalone(tmp_path), stdout=PIPE, stderr=PIPE
            )
            _, errors = await asyncio.wait_for(second.communicate(), READY_LIMIT_S)
            assert second.returncode == 1
            last = errors.decode().splitlines()[-1]
            assert last.startswith("cometmq standalone: ")
            assert f"process {server.pid}" in last

    run(main())


def test_port_in_use_is_one_sentence(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with process(*standalone(tmp_path / "1")) as (_, ready, _):
            port = ready["broker"].rpartition(":")[2]
            arguments = (
                "standalone",
                "--port",
                port,
                "--nameserver-port",
                "0",
                "--store",
                str(tmp_path / "2"),
            )
            second = await asyncio.create_subprocess_exec(
                *COMMAND, *arguments, *SMALL, stdout=PIPE, stderr=PIPE
            )
            _, errors = await asyncio.wait_for(second.communicate(), READY_LIMIT_S)
            assert second.returncode == 1
            assert "Traceback" not in errors.decode()
            assert port in errors.decode().splitlines()[-1]

    run(main())


def test_broker_takes_a_properties_file_and_options(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        conf = tmp_path / "broker.conf"
        conf.write_text(
            "# an existing file\nbrokerClusterName = C7\nbrokerName = b7\nlistenPort = 0\nbrokerIP1 = 127.0.0.1\n"
            f"storePathRootDir = {tmp_path / 'store'}\nflushDiskTyp = SYNC_FLUSH\n"
        )
        arguments = ("broker", "-c", str(conf), "-n", "127.0.0.1:1", "-o", "regionId=R1", *SMALL)
        async with process(*arguments, "--log-json") as (server, ready, lines):
            [boot] = lines
            assert boot == (
                f"The broker[b7, {ready['broker']}] boot success. serializeType=JSON and name server is 127.0.0.1:1"
            )
            client = WireClient(ready["broker"])
            response = await client.send("TopicA")
            assert (response.ext_fields or {})["MSG_REGION"] == "R1"
            await client.close()
            server.send_signal(signal.SIGINT)
            _, errors = await asyncio.wait_for(server.communicate(), 5)
            entries = [json.loads(line) for line in errors.decode().splitlines()]
            assert any("did you mean 'flushDiskType'" in entry["message"] for entry in entries)
            assert {"time", "level", "logger", "message"} <= entries[0].keys()

    run(main())


def test_committed_offsets_and_messages_survive_a_kill(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        arguments = standalone(tmp_path, "-o", "flushConsumerOffsetInterval=50")
        place = {"consumerGroup": "CG", "topic": "TopicA", "queueId": "0"}
        async with process(*arguments) as (server, ready, _):
            client = WireClient(ready["broker"])
            for _ in range(3):
                await client.send("TopicA")
            await client.call(RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": "2"})
            file = tmp_path / "config" / "consumerOffset.json"
            await until(lambda: file.exists() and "TopicA@CG" in file.read_text())
            await client.close()
            server.kill()
            await server.wait()
        async with process(*arguments) as (_, ready, _):
            client = WireClient(ready["broker"])
            answer = await client.call(RequestCode.QUERY_CONSUMER_OFFSET, place)
            assert answer.ext_fields == {"offset": "2"}
            assert len(await client.messages("TopicA")) == 3
            await client.close()

    run(main(), 60)


def test_metrics_and_health_are_served(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        arguments = standalone(tmp_path, "--metrics-port", "0", "--metrics-host", "127.0.0.1")
        async with process(*arguments) as (_, ready, _):
            client = WireClient(ready["broker"])
            await client.send("TopicA")
            await client.send("TopicA")
            await client.messages("TopicA")
            await client.close()
            text = await asyncio.to_thread(fetch, ready["metrics"])
            values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
            assert values["cometmq_messages_in_total"] == "2"
            assert values["cometmq_messages_out_total"] == "2"
            assert values["cometmq_held_pulls"] == "0"
            assert values["cometmq_nameserver_brokers"] == "1"
            assert values['cometmq_requests_total{server="broker",code="11"}'] == "1"
            base = ready["metrics"].removesuffix("/metrics")
            assert await asyncio.to_thread(fetch, f"{base}/healthz") == "ok\n"
            assert await asyncio.to_thread(fetch, f"{base}/readyz") == "ready\n"

    run(main())


def fetch(url: str) -> str:
    with urlopen(url, timeout=5) as response:
        text: str = response.read().decode()
    return text


def test_version_help_and_unknown_commands(run: Any) -> None:
    async def main() -> None:
        async def call(*arguments: str) -> tuple[int | None, str]:
            started = await asyncio.create_subprocess_exec(*COMMAND, *arguments, stdout=PIPE, stderr=PIPE)
            output, errors = await started.communicate()
            return started.returncode, (output + errors).decode()

        assert await call("--version") == (0, version_text() + "\n")
        assert re.fullmatch(r"cometmq \d+\.\d+\.\d+ \((compiled|pure)\)", version_text())
        code, text = await call("--help")
        assert code == 0
        assert "standalone" in text
        code, text = await call("brokr")
        assert code == 2
        assert "did you mean 'broker'?" in text
        code, text = await call("broker", "-p", "-o", "brokerName=x", "-o", "brokerRole=NONE")
        assert code == 1
        assert "brokerRole" in text

    run(main())


def test_idle_standalone_stays_below_60_megabytes(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with process(*standalone(tmp_path)) as (server, ready, _):
            client = WireClient(ready["broker"])
            await client.send("TopicA")
            await client.close()
            status = Path(f"/proc/{server.pid}/status").read_text()
            own = re.search(r"RssAnon:\s+(\d+) kB", status)
            assert own is not None
            assert int(own.group(1)) < 60 * 1024

    if os.path.exists("/proc/self/status"):
        run(main())
