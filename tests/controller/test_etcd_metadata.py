"""The same controllers with their metadata in a real etcd (Debian: etcd-server)."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from controller.controller_kit import SESSION_TIMES, Controllers, FakeReplica, until, wait_for

from cometmq.controller.commands import SetConfig
from cometmq.controller.config import ControllerConfig
from cometmq.controller.controller import Controller, open_controller
from cometmq.controller.etcd_client import Compare, EtcdClient
from cometmq.controller.etcd_metadata import EtcdMetadata
from cometmq.controller.metadata import NotLeader
from cometmq.errors import ConnectionLost, Timeout

Run = Callable[[Awaitable[Any]], Any]

pytestmark = pytest.mark.skipif(shutil.which("etcd") is None, reason="etcd is not installed (etcd-server)")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An etcd of one member; its ports are chosen by us, as it cannot say which ones it got."""
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        client, peer = one.getsockname()[1], two.getsockname()[1]
    directory = tmp_path_factory.mktemp("etcd")
    urls = (f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}")
    process = subprocess.Popen(
        [
            *("etcd", "--data-dir", str(directory / "data"), "--name", "one", "--unsafe-no-fsync"),
            *("--listen-client-urls", urls[0], "--advertise-client-urls", urls[0]),
            *("--listen-peer-urls", urls[1], "--initial-advertise-peer-urls", urls[1]),
            *("--initial-cluster", f"one={urls[1]}"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: _answers(urls[0]), "etcd")
        yield urls[0]
    finally:
        process.terminate()
        process.wait(10)


def _answers(endpoint: str) -> bool:
    async def ask() -> bool:
        client = EtcdClient((endpoint,))
        try:
            await client.get("/")
        except (ConnectionLost, Timeout):
            return False
        finally:
            client.close()
        return True

    return asyncio.run(ask())


class EtcdControllers:
    """Two controllers that keep everything in etcd; what FakeReplica needs of ``Controllers``."""

    def __init__(self, endpoint: str, prefix: str) -> None:
        self.endpoint, self.prefix = endpoint, prefix
        self.peers: dict[int, str] = {}
        self.running: dict[int, Controller] = {}
        for number in (1, 2):
            self.start(number)

    def start(self, number: int) -> None:
        config = ControllerConfig(
            peers={number: "127.0.0.1:0"},
            self_id=number,
            bind_address="127.0.0.1",
            session_times=SESSION_TIMES,
            metadata="etcd",
            etcd_endpoints=(self.endpoint,),
            etcd_prefix=self.prefix,
        )
        self.running[number] = open_controller(config)
        self.peers[number] = self.running[number].start()

    def leader(self) -> int:
        return int(wait_for(self._leader, "a leader"))

    def _leader(self) -> int:
        return next((n for n, c in self.running.items() if c.metadata.is_leader), 0)

    def close(self) -> None:
        for controller in self.running.values():
            controller.stop()


@pytest.fixture
def controllers(endpoint: str, tmp_path: Path) -> Iterator[EtcdControllers]:
    made = EtcdControllers(endpoint, f"/{tmp_path.name}/")
    yield made
    made.close()


def replica(controllers: EtcdControllers, number: int) -> FakeReplica:
    some: Any = controllers
    assert isinstance(some, EtcdControllers | Controllers)
    return FakeReplica(some, number)


def test_masters_are_elected_and_replaced(controllers: EtcdControllers, run: Run) -> None:
    async def main() -> None:
        one, two = replica(controllers, 1), replica(controllers, 2)
        try:
            for each in (one, two):
                await each.start()
            await until(lambda: one.sees_master(1) and two.sees_master(1), "the first master")
            view = one.view.view
            assert await one.session.alter_sync_set(view.epoch, view.set_version, (1, 2))
            assert not await one.session.alter_sync_set(view.epoch, view.set_version, (1,))
            await until(one.session.lease_valid, "a lease")
            gone = controllers.leader()
            await asyncio.to_thread(controllers.running.pop(gone).stop)
            await asyncio.to_thread(controllers.leader)
            await one.stop()
            two.status = two.status._replace(stream_closed=True)
            await until(lambda: two.sees_master(2), "the new master")
            assert two.view.view.epoch == 2
        finally:
            for each in (one, two):
                await each.stop()

    run(main())


def test_who_was_replaced_changes_nothing(controllers: EtcdControllers, endpoint: str) -> None:
    """Its key is gone and another one leads, but it does not know yet."""
    leader = controllers.running[controllers.leader()]
    metadata = leader.metadata
    assert isinstance(metadata, EtcdMetadata)
    assert leader.call(metadata.propose("g", SetConfig(preferred_master=1))).accepted
    asyncio.run(_take_over(endpoint, controllers.prefix + "leader"))
    with pytest.raises(NotLeader):
        leader.call(metadata.confirm_leadership())
    stale = metadata._leads
    assert stale is None


def test_a_write_of_a_replaced_leader_is_refused(controllers: EtcdControllers, endpoint: str) -> None:
    leader = controllers.running[controllers.leader()]
    asyncio.run(_take_over(endpoint, controllers.prefix + "leader"))
    with pytest.raises(NotLeader):
        leader.call(leader.metadata.propose("g", SetConfig(preferred_master=2)))

    async def written() -> object:
        client = EtcdClient((endpoint,))
        try:
            return await client.get(controllers.prefix + "groups/g")
        finally:
            client.close()

    assert asyncio.run(written()) is None


async def _take_over(endpoint: str, key: str) -> None:
    """What etcd does when the lease of a leader ends and another one comes first."""
    client = EtcdClient((endpoint,))
    try:
        holder = await client.get(key)
        assert holder is not None
        await client.revoke(holder.lease)
        done, _ = await client.put_if([Compare(key, "CREATE", 0)], key, b"127.0.0.1:1")
        assert done
    finally:
        client.close()


def test_without_etcd_there_is_no_leader(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "cometmq.controller")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        made = EtcdControllers.__new__(EtcdControllers)
        made.endpoint, made.prefix = f"http://127.0.0.1:{closed.getsockname()[1]}", "/none/"
        made.peers, made.running = {}, {}
        made.start(1)
        try:
            wait_for(lambda: "No endpoint of etcd" in caplog.text, "the warning")
            assert not made.running[1].metadata.is_leader
        finally:
            made.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "controller"]
