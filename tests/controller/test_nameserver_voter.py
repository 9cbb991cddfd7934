"""A NameServer with a vote: two keys in its configuration start a controller beside it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from controller.controller_kit import SESSION_TIMES, until

from cometmq.controller.replicas import ReplicaIdentity, ReplicaStatus
from cometmq.controller.session import ControllerSession
from cometmq.metrics.nameserver import nameserver_families
from cometmq.nameserver.config import NameServerConfig
from cometmq.nameserver.server import NameServer
from cometmq.testing.group_processes import free_ports

Run = Callable[[Awaitable[Any]], Any]


def config(tmp_path: Path, **keys: str) -> NameServerConfig:
    made = NameServerConfig(
        listen_port=0, bind_address="127.0.0.1", kv_config_path=str(tmp_path / "kvConfig.json")
    )
    assert made.update(keys) == []
    return made


def test_it_elects_masters_and_keeps_its_files_beside_its_own(tmp_path: Path, run: Run) -> None:
    peer = f"127.0.0.1:{free_ports(1)[0]}"
    voter = config(
        tmp_path,
        controllerPeers=f"1-{peer}",
        controllerSelfId="1",
        controllerElectionTimeoutMs="100..200",
        controllerHeartbeatMs="20",
    )

    async def main() -> None:
        nameserver = NameServer(voter)
        await nameserver.start()
        session = ControllerSession(
            [peer],
            ReplicaIdentity("g", 1, "store", "127.0.0.1:1", "127.0.0.1:2"),
            ReplicaStatus,
            lambda _snapshot: None,
            SESSION_TIMES,
        )
        try:
            await session.start()
            assert await session.register() == 1
            await until(
                lambda: session.snapshot is not None and session.snapshot.view.master == 1, "a master"
            )
            assert (tmp_path / "controller" / "log").exists()
            figures = {
                family.name: family.samples[0][2]
                for family in nameserver_families(nameserver)
                if family.samples
            }
            assert figures["cometmq_controller_leader"] == 1
            assert figures["cometmq_controller_term"] >= 1
        finally:
            await session.stop()
            await nameserver.stop()

    run(main())


def test_without_the_keys_there_is_none(tmp_path: Path) -> None:
    assert NameServer(config(tmp_path)).controller is None
    assert config(tmp_path, controllerPeers="1-127.0.0.1:1").controller() is None
