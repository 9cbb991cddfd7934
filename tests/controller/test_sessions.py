"""Replicas with sessions at real controllers: who is elected and when, leases, the in-sync set, operators."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from controller.controller_kit import SESSION_TIMES, Controllers, FakeReplica, until

from cometmq.clock import boot_ms
from cometmq.controller.replicas import GroupSettings
from cometmq.controller.wire import (
    AlterSyncSetBody,
    Body,
    ControllerCode,
    ForceElectBody,
    GroupBody,
    RemoveReplicaBody,
    SetConfigBody,
    SnapshotBody,
    request,
)
from cometmq.errors import BrokerError
from cometmq.net.client import RemotingClient
from cometmq.protocol.command import RemotingCommand

Run = Callable[[Awaitable[Any]], Any]


@pytest.fixture(scope="module")
def controllers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controllers]:
    """Shared: each test has a group of its own."""
    made = Controllers(Path(tmp_path_factory.mktemp("controllers")))
    yield made
    made.close()


@asynccontextmanager
async def replicas(
    controllers: Controllers, group: str, size: int = 3, settings: GroupSettings | None = None
) -> AsyncIterator[list[FakeReplica]]:
    """Replicas 1..size, all in sync, 1 is master."""
    made = [FakeReplica(controllers, n, group=group, settings=settings) for n in range(1, size + 1)]
    try:
        for replica in made:
            await replica.start()
        await until(lambda: all(replica.sees_master(1) for replica in made), "the first master")
        await in_sync(made[0], range(1, size + 1))
        yield made
    finally:
        for replica in made:
            await replica.stop()


async def in_sync(master: FakeReplica, members: Any) -> None:
    wanted = frozenset(members)
    for _ in range(5):  # registrations may change the version in between
        view = master.view.view
        if view.sync_set == wanted or await master.session.alter_sync_set(
            view.epoch, view.set_version, wanted
        ):
            break
    await until(lambda: master.view.view.sync_set == wanted, "the in-sync set")


async def ask(controllers: Controllers, code: ControllerCode, body: Body) -> RemotingCommand:
    """As an operator does: ask the leader."""
    client = RemotingClient()
    try:
        leader = await asyncio.to_thread(controllers.leader)
        return await client.invoke(controllers.peers[leader], request(code, body))
    finally:
        await client.close()


async def lose_connections(master: FakeReplica, others: list[FakeReplica]) -> None:
    """The process of the master is gone: its session, and its streams to the others."""
    await master.stop()
    for replica in others:
        replica.status = replica.status._replace(stream_closed=True)
        replica.session.poke()


async def heard(controllers: Controllers, group: str, ends: dict[int, int]) -> None:
    """The controllers have been told these ends of logs."""
    while True:
        sessions = (await _status(controllers, group))["sessions"]
        if all(sessions.get(str(number), {}).get("max_offset") == end for number, end in ends.items()):
            return
        await asyncio.sleep(0.01)


async def _status(controllers: Controllers, group: str) -> Any:
    answer = await ask(controllers, ControllerCode.HA_STATUS, GroupBody(group))
    return msgspec.json.decode(answer.body)["groups"][group]


def test_the_one_with_the_most_bytes_follows_a_killed_master(controllers: Controllers, run: Run) -> None:
    async def main() -> None:
        async with replicas(controllers, "killed") as (one, two, three):
            two.status = two.status._replace(last_epoch=1, max_offset=100)
            three.status = three.status._replace(last_epoch=1, max_offset=101)
            await heard(controllers, "killed", {2: 100, 3: 101})
            await lose_connections(one, [two, three])
            await until(lambda: three.sees_master(3) and two.sees_master(3), "the new master")
            assert three.view.view.sync_set == {2, 3}
            assert three.view.view.epoch == 2
            assert three.view.reason == "connections closed"
            assert three.view.replicas[1].ha_address == "127.0.0.1:20001"

    run(main())


def test_a_silent_master_is_replaced_after_the_session_timeout(controllers: Controllers, run: Run) -> None:
    async def main() -> None:
        async with replicas(controllers, "silent") as (one, two, three):
            await until(one.session.lease_valid, "a lease")
            task = one.session._task
            assert task is not None
            task.cancel()  # stopped, as by SIGSTOP: its connection stays open
            await until(lambda: two.view.view.master in (2, 3), "the new master")
            assert two.view.reason == "no heartbeat"
            assert not one.session.lease_valid()  # it ended before anybody else could have one
            del three

    run(main())


def test_leases_count_from_the_sending_and_never_overlap(controllers: Controllers, run: Run) -> None:
    async def main() -> None:
        async with replicas(controllers, "leases") as (one, two, three):
            await until(one.session.lease_valid, "a lease")
            sent = one.leases[-1][1]
            assert one.session.lease_until <= boot_ms() + SESSION_TIMES.lease
            assert not one.session.lease_valid(one.session.lease_until)
            assert sent + SESSION_TIMES.lease <= one.session.lease_until
            await lose_connections(one, [two, three])
            await until(lambda: two.sees_master(2), "the new master")
            await until(two.session.lease_valid, "its lease")
            first = next(sent for epoch, sent in two.leases if epoch == 2)
            assert first >= one.session.lease_until - SESSION_TIMES.heartbeat
            assert boot_ms() >= one.session.lease_until

    run(main())


def test_a_planned_switch_keeps_the_old_master_in_sync(controllers: Controllers, run: Run) -> None:
    async def main() -> None:
        async with replicas(controllers, "planned") as (one, two, three):
            assert await one.session.resign(one.view.view.epoch, preferred=3)
            await until(lambda: all(r.sees_master(3) for r in (one, two, three)), "the new master")
            assert three.view.view.sync_set == {1, 2, 3}
            assert three.view.reason == "resigned"
            assert not await one.session.resign(1)  # an epoch that is over
            await until(three.session.lease_valid, "a lease at once")

    run(main())


def test_nobody_follows_who_may_lack_bytes(
    controllers: Controllers, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with replicas(controllers, "lacking") as (one, two, three):
            await in_sync(one, (1,))  # two and three may have every byte, or not: minInSync is 2
            assert one.view.eligible == {2, 3}
            await in_sync(one, (1, 2))
            assert one.view.eligible == frozenset()
            await lose_connections(one, [two, three])
            await until(lambda: three.sees_master(2), "the member of the set")
            await lose_connections(two, [three])
            await until(lambda: "NO_ELIGIBLE_REPLICA group=lacking" in caplog.text, "the event")
            assert (await _status(controllers, "lacking"))["sessions"]["3"]["alive"]
            assert not three.sees_master(3)

    run(main())


def test_an_operator_forces_only_when_nobody_clean_is_there(
    controllers: Controllers, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cometmq.controller")

    async def main() -> None:
        async with replicas(controllers, "forced", 2, GroupSettings(min_in_sync=1)) as (one, two):
            await in_sync(one, (1,))
            force = ForceElectBody("forced", 2, "forced")
            assert (await ask(controllers, ControllerCode.FORCE_ELECT, force)).code == ControllerCode.REFUSED
            await lose_connections(one, [two])
            await until(lambda: "NO_ELIGIBLE_REPLICA group=forced" in caplog.text, "the event")
            careless = ForceElectBody("forced", 2, "yes")
            assert (
                await ask(controllers, ControllerCode.FORCE_ELECT, careless)
            ).code == ControllerCode.REFUSED
            assert (await ask(controllers, ControllerCode.FORCE_ELECT, force)).code == 0
            await until(lambda: two.sees_master(2), "the forced master")
            assert two.view.view.forced_epoch == two.view.view.epoch
        assert "FORCED group=forced master=2" in caplog.text
        assert "POSSIBLE_LOSS group=forced replica=2" in caplog.text
        assert "MASTER_DEAD" not in caplog.text  # nobody could follow

    run(main())


@pytest.mark.parametrize("change", [{"epoch": 9}, {"set_version": 0}, {"master": 2}, {"members": (2, 3)}])
def test_the_in_sync_set_is_changed_only_by_who_knows_the_present_one(
    controllers: Controllers, run: Run, change: dict[str, Any]
) -> None:
    group = "set-" + next(iter(change))

    async def main() -> None:
        async with replicas(controllers, group) as (one, *_):
            view = one.view.view
            asked = {"master": 1, "epoch": view.epoch, "set_version": view.set_version, "members": (1, 2)}
            body = AlterSyncSetBody(group, **{**asked, **change})
            answer = await ask(controllers, ControllerCode.ALTER_SYNC_SET, body)
            assert answer.code == ControllerCode.REFUSED
            assert (
                msgspec.json.decode(answer.body, type=SnapshotBody).view == view
            )  # how it is, for the asker

    run(main())


def test_ids_are_given_and_never_given_again(controllers: Controllers, run: Run) -> None:
    async def main() -> None:
        async with replicas(controllers, "ids", 2) as (one, two):
            third = FakeReplica(controllers, 0, group="ids", store_id="store-3")
            assert await third.start() == 3
            await third.stop()
            third = FakeReplica(controllers, 0, group="ids", store_id="store-3")
            assert await third.start() == 3  # the same store
            await third.stop()
            removal = RemoveReplicaBody("ids", 3)
            assert (await ask(controllers, ControllerCode.REMOVE_REPLICA, removal)).code == 0
            gone = FakeReplica(controllers, 3, group="ids", store_id="store-3")
            with pytest.raises(BrokerError, match="never used again"):
                await gone.start()
            await gone.stop()
            fourth = FakeReplica(controllers, 0, group="ids")
            assert await fourth.start() == 4
            await fourth.stop()
            master = RemoveReplicaBody("ids", one.view.view.master)
            refused = await ask(controllers, ControllerCode.REMOVE_REPLICA, master)
            assert refused.code == ControllerCode.REFUSED
            del two

    run(main())


def test_new_controllers_of_an_old_group_do_not_begin_again_with_its_epochs(
    controllers: Controllers, run: Run
) -> None:
    async def main() -> None:
        old = FakeReplica(controllers, 1, group="old")
        old.status = old.status._replace(last_epoch=41)
        try:
            await old.start()
            await until(lambda: old.sees_master(1), "a master")
            assert old.view.view.epoch == 42
        finally:
            await old.stop()

    run(main())


def test_settings_of_a_group(controllers: Controllers, run: Run) -> None:
    async def main() -> None:
        async with replicas(controllers, "settings") as (one, two, _three):
            assert one.view.view.min_in_sync == 2  # by the number of replicas
            body = SetConfigBody("settings", min_in_sync=1, preferred_master=3)
            assert (await ask(controllers, ControllerCode.SET_CONFIG, body)).code == 0
            await until(lambda: two.view.view.min_in_sync == 1, "the new setting")
            assert two.view.preferred_master == 3

    run(main())


def test_by_quorum_the_longest_log_is_elected(controllers: Controllers, run: Run) -> None:
    async def main() -> None:
        async with replicas(controllers, "quorum", 3, GroupSettings(ack_replicas=2)) as (one, two, three):
            three.status = three.status._replace(last_epoch=1, max_offset=50)
            await heard(controllers, "quorum", {3: 50})
            await lose_connections(one, [two, three])
            await until(lambda: two.sees_master(3), "the one with the longest log")
            assert two.view.view.epoch == 3  # one epoch without a master, so that all reports were fresh
            assert two.view.view.sync_set == {1, 2, 3}

    run(main())


def test_a_new_leading_controller_takes_over_the_sessions(controllers: Controllers, run: Run) -> None:
    """Last: it stops a controller, and starts it again."""

    async def main() -> None:
        async with replicas(controllers, "takeover") as (one, two, three):
            await until(one.session.lease_valid, "a lease")
            gone = await asyncio.to_thread(controllers.leader)
            await asyncio.to_thread(controllers.stop, gone)
            leader = await asyncio.to_thread(controllers.leader)
            address = controllers.peers[leader]
            await until(
                lambda: all(r.session.leader_address == address for r in (one, two, three)), "the sessions"
            )
            # On a busy machine somebody else may have become master meanwhile.
            everybody = [one, two, three]
            master = await until(
                lambda: next((r for r in everybody if r.session.lease_valid()), None),
                "a lease of the new leader",
            )
            others = [replica for replica in everybody if replica is not master]
            await lose_connections(master, others)
            gone_id = master.session.replica_id
            await until(lambda: others[0].view.view.master not in (0, gone_id), "the new master")
            await asyncio.to_thread(controllers.start, gone)

    run(main())
