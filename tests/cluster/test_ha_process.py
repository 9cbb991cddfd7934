"""Masters and slaves as processes of their own, killed and started again."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
from pathlib import Path
from typing import Any

from ha_kit import free_port_pair, send_many
from test_broker_process import COMMAND, process
from wire_client import WireClient

from cometmq.protocol import json_java
from cometmq.protocol.codes import RequestCode

LOG_FILE_SIZE = 1 << 20
WAIT_S = 15.0


def options(store: Path, port: int, role: str, broker_id: int, **settings: str) -> tuple[str, ...]:
    values = {
        "listenPort": str(port),
        "brokerName": "broker-a",
        "brokerRole": role,
        "brokerId": str(broker_id),
        "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "storePathRootDir": str(store),
        "mappedFileSizeCommitLog": str(LOG_FILE_SIZE),
        "maxHashSlotNum": "1000",
        "maxIndexNum": "4000",
        "haSendHeartbeatInterval": "200",
        **settings,
    }
    return ("broker", *(word for key, value in values.items() for word in ("-o", f"{key}={value}")))


async def end_of_log(client: WireClient) -> int:
    answer = await client.call(RequestCode.GET_BROKER_RUNTIME_INFO)
    return int(json_java.loads(answer.body)["table"]["commitLogMaxOffset"])


async def wait_same(one: WireClient, other: WireClient) -> int:
    deadline = asyncio.get_running_loop().time() + WAIT_S
    while True:
        ends = [await end_of_log(one), await end_of_log(other)]
        if ends[0] == ends[1]:
            return ends[0]
        assert asyncio.get_running_loop().time() < deadline, ends
        await asyncio.sleep(0.02)


def log_digest(store: Path, end: int) -> str:
    seen = hashlib.sha256()
    for start in range(0, end, LOG_FILE_SIZE):
        seen.update((store / "commitlog" / f"{start:020d}").read_bytes()[: end - start])
    return seen.hexdigest()


def test_killed_masters_and_slaves_come_back_and_have_the_same_log(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        port, slave_port = free_port_pair(), free_port_pair()
        as_master = options(tmp_path / "m", port, "SYNC_MASTER", 0)
        as_slave = options(tmp_path / "s", slave_port, "SLAVE", 1, haMasterAddress=f"127.0.0.1:{port + 1}")
        client, other = WireClient(f"127.0.0.1:{port}"), WireClient(f"127.0.0.1:{slave_port}")
        acknowledged = 0
        async with process(*as_slave) as (slave, _, _):
            for _ in range(2):
                async with process(*as_master) as (master, _, _):
                    await wait_same(client, other)
                    codes = list[int]()
                    while 0 not in codes:
                        codes = await send_many(client, "T", 200, 2000)
                        acknowledged += codes.count(0)
                        assert set(codes) <= {0, 11}  # 11 until the slave has reported
                    master.kill()
                    await master.wait()
            slave.kill()
            await slave.wait()
        async with process(*as_master) as (master, _, _):
            await send_many(client, "T", 200, 2000)
            async with process(*as_slave) as (slave, _, _):
                end = await wait_same(client, other)
                assert acknowledged >= 2
                for server in (slave, master):
                    server.send_signal(signal.SIGTERM)
                    assert await asyncio.wait_for(server.wait(), 10) == 0
        assert log_digest(tmp_path / "m", end) == log_digest(tmp_path / "s", end)
        await client.close()
        await other.close()

    run(main(), 60)


def test_ha_status_shows_roles_and_lag(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        port, slave_port = free_port_pair(), free_port_pair()
        conf = tmp_path / "namesrv.conf"
        conf.write_text(f"listenPort = 0\nkvConfigPath = {tmp_path / 'kv.json'}\nbindAddress = 127.0.0.1\n")
        async with process("nameserver", "-c", str(conf)) as (_, ready, _):
            address = ready["nameserver"]
            as_master = options(tmp_path / "m", port, "ASYNC_MASTER", 0, namesrvAddr=address)
            as_slave = options(tmp_path / "s", slave_port, "SLAVE", 1, namesrvAddr=address)
            async with process(*as_master), process(*as_slave):
                client, other = WireClient(f"127.0.0.1:{port}"), WireClient(f"127.0.0.1:{slave_port}")
                await send_many(client, "T", 20)
                end = await wait_same(client, other)
                status = await asyncio.create_subprocess_exec(
                    *COMMAND, "ha", "status", "-n", address, "--json", stdout=asyncio.subprocess.PIPE
                )
                shown, _ = await asyncio.wait_for(status.communicate(), WAIT_S)
                first, second = json.loads(shown)
                assert (first["role"], first["log to"], first["behind bytes"]) == ("master", end, None)
                assert (second["role"], second["log to"], second["behind bytes"]) == ("slave", end, 0)
                await client.close()
                await other.close()

    run(main(), 60)
