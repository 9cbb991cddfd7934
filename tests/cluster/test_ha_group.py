"""Groups that elect their master: failover, rejoining, planned switch, too few copies."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from ha_group_kit import (
    LOG_FILE_SIZE,
    append_alone,
    drain,
    in_sync,
    member,
    running_group,
    sent_message,
    until_async,
)
from ha_kit import send_many
from wire_client import WireClient, broker_config, until

from cometmq import Client
from cometmq.broker.broker import Broker
from cometmq.broker.config import BrokerConfig
from cometmq.broker.ha.replica import Standing
from cometmq.broker.ha.roles import FAILED_EXIT_CODE
from cometmq.clock import boot_ms
from cometmq.protocol.bodies.locks import LockBatchRequestBody, LockBatchResponseBody
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.message import MessageQueue
from cometmq.protocol.properties import encode_properties
from cometmq.testing.group_processes import GroupProcesses, free_ports


def test_sends_are_confirmed_by_all_and_every_log_is_the_same(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_group(tmp_path) as group:
            master = await group.elected()
            assert set(await send_many(group.client(master), "T", 300, 2000)) == {0}
            await group.equal()
            ends = {broker.store.max_offset("T", 0) for broker in group.brokers.values()}
            assert ends == {300}
            for follower in group.followers:
                await until(lambda broker=follower: broker.topics.find("T") is not None)
                refused = await group.client(follower).send("T", b"x")
                assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
                assert refused.ext_fields["masterAddr"] == master.address
                assert follower.store.max_offset("T", 0) == 300

    run(main())


def test_a_planned_switch_loses_nothing_and_refuses_nothing(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_group(tmp_path) as group:
            first = await group.elected()
            client = group.client(first)  # a client that never hears of the new master
            codes: list[int] = []
            stop = asyncio.Event()

            async def send_on() -> None:
                while not stop.is_set():
                    codes.append((await client.send("T", b"m%d" % len(codes))).code)

            sending = asyncio.create_task(send_on())
            await until(lambda: len(codes) > 20)
            assert await first.group.hand_over() is None
            await until(lambda: group.master is not None and group.master is not first)
            reached = len(codes)
            await until(lambda: len(codes) > reached + 20)
            stop.set()
            await sending
            assert set(codes) == {0}
            await group.elected()
            await group.equal()
            assert group.master.store.max_offset("T", 0) == len(codes)

    run(main())


def test_offsets_groups_and_locks_are_there_at_the_new_master(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_group(tmp_path) as group:
            first = await group.elected()
            client = group.client(first)
            await send_many(client, "T", 10)
            first.offsets.commit("CG", "T", 0, 7)
            first.groups.find("CG")
            follower = group.followers[0]
            await until(lambda: follower.offsets.query("CG", "T", 0) == 7)
            await until(lambda: "CG" in follower.groups)
            number = follower.replica_id
            assert await first.group.hand_over(number) is None
            second = await group.elected()
            assert second.replica_id == number
            assert second.offsets.query("CG", "T", 0) == 7
            assert second.config.broker_id == 0
            assert first.config.broker_id == first.replica_id

    run(main())


def test_a_lost_follower_leaves_the_set_and_comes_back(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_group(tmp_path) as group:
            master = await group.elected()
            client = group.client(master)
            assert set(await send_many(client, "T", 20)) == {0}
            number = group.followers[0].replica_id
            await group.stop(number)
            await group.elected(in_sync=2)
            assert set(await send_many(client, "T", 20)) == {0}
            await group.start(number)
            await group.elected()
            assert set(await send_many(client, "T", 20)) == {0}
            await group.equal()

    run(main())


def test_with_too_few_copies_nothing_is_taken(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_group(tmp_path) as group:
            master = await group.elected()
            client = group.client(master)
            await send_many(client, "T", 5)
            for follower in group.followers:
                await group.stop(follower.replica_id)
            await until(lambda: not member(master).may_append(), limit_s=20)
            end = master.store.max_physical_offset
            refused = await client.send("T", b"x")
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert master.store.max_physical_offset == end
            found = await client.messages("T", 0)  # what is confirmed is read as ever
            assert len(found) == 5

    run(main())


def test_a_killed_master_is_replaced_and_comes_back_without_its_unconfirmed_tail(tmp_path: Path) -> None:
    """Processes and kill -9; meanwhile its log gets records that nobody else ever saw."""
    with GroupProcesses(tmp_path, settings={"mappedFileSizeCommitLog": str(1 << 20)}) as group:
        asyncio.run(_kill_and_rejoin(group))


async def _kill_and_rejoin(group: GroupProcesses) -> None:
    async with Client(group.name_server) as client, client.producer("P") as producer:
        first = await in_sync(client, group)
        sent = [await sent_message(producer, number) for number in range(50)]
        group.kill(first)
        sent += [await sent_message(producer, number) for number in range(50, 100)]
        tail = append_alone(group.store(first))
        group.start(first)
        second = await in_sync(client, group)
        assert second != first
        sent += [await sent_message(producer, number) for number in range(100, 120)]
        status = await client.admin.ha_status(group.address(second))
        assert status is not None
        end = status["confirmOffset"]
        await until_async(lambda: _confirmed(client, group, end))
        sums = {await client.admin.ha_checksum(group.address(number), 0, end) for number in group.ids}
        assert len(sums) == 1
        found = await drain(client, producer)
        assert all(found[result.queue.queue_id, result.offset] == body for result, body in sent)
        assert len(found) == len(sent)
        assert tail not in found.values()


async def _confirmed(client: Client, group: GroupProcesses, end: int) -> bool:
    found = [await client.admin.ha_status(group.address(number)) for number in group.ids]
    return all(status is not None and status["confirmOffset"] >= end for status in found)


def test_delayed_messages_and_locks_go_on_at_the_next_master(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_group(tmp_path, message_delay_level="1s 2s") as group:
            first = await group.elected()
            client = group.client(first)
            queue = MessageQueue(topic="T", broker_name="G", queue_id=0)
            lock = LockBatchRequestBody(client_id="c1", consumer_group="CG", mq_set=[queue])
            await until(lambda: member(first).core.may_grant(boot_ms()))
            granted = await client.call(RequestCode.LOCK_BATCH_MQ, body=lock.encode())
            assert LockBatchResponseBody.decode(granted.body).lock_ok_mq_set == [queue]
            assert all(follower.locks.owner("CG", queue) == "c1" for follower in group.followers)
            delayed = await client.send("T", b"later", properties=encode_properties({"DELAY": "2"}))
            assert delayed.code == 0
            assert await first.group.hand_over() is None
            second = await group.elected()
            assert second is not first
            other = LockBatchRequestBody(client_id="c2", consumer_group="CG", mq_set=[queue])
            await until(lambda: member(second).has_lease)
            refused = await group.client(second).call(RequestCode.LOCK_BATCH_MQ, body=other.encode())
            assert LockBatchResponseBody.decode(refused.body).lock_ok_mq_set == []
            await until(lambda: second.store.max_offset("T", 0) == 1, limit_s=20)
            await until(lambda: first.delay.offsets().get(2) == 1)
            assert first.delay.pending == 0

    run(main())


def test_without_controllers_sends_go_on_and_locks_do_not(run: Any, tmp_path: Path) -> None:
    """NOLEASE: confirmation is protected by epochs, what only one may grant is not."""

    async def main() -> None:
        async with running_group(tmp_path) as group:
            master = await group.elected()
            client = group.client(master)
            for broker in group.brokers.values():
                await asyncio.to_thread(broker.group.controller.stop)
            await until(lambda: not member(master).has_lease)
            assert set(await send_many(client, "T", 20)) == {0}
            assert member(master).core.standing(boot_ms()) is Standing.NOLEASE
            lock = LockBatchRequestBody(client_id="c", consumer_group="CG", mq_set=[])
            refused = await client.call(RequestCode.LOCK_BATCH_MQ, body=lock.encode())
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE

    run(main())


def test_the_keys_of_a_dledger_group_start_a_group(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        ports = free_ports(3)
        peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(ports))
        brokers = []
        for number in range(3):
            settings = {
                "enableDLegerCommitLog": "true", "dLegerGroup": "G", "dLegerPeers": peers,
                "dLegerSelfId": f"n{number}", "brokerName": "G", "storePathRootDir": str(tmp_path / str(number)),
                "brokerIP1": "127.0.0.1", "bindAddress": "127.0.0.1", "listenPort": "0",
                "mappedFileSizeCommitLog": "262144", "maxHashSlotNum": "1000", "maxIndexNum": "4000",
            }  # fmt: skip
            broker = Broker(BrokerConfig.from_properties(settings))
            await broker.start()
            brokers.append(broker)
        try:
            await until(lambda: any(member(broker).is_serving for broker in brokers), limit_s=30)
            master = next(broker for broker in brokers if member(broker).is_serving)
            await until(lambda: len(member(master).core.view.sync_set) == 3, limit_s=30)
            assert member(master).core.view.ack_replicas == 2
            assert {broker.replica_id for broker in brokers} == {1, 2, 3}
            client = WireClient(master.address)
            assert set(await send_many(client, "T", 20)) == {0}
            await client.close()
        finally:
            for broker in brokers:
                await broker.stop()

    run(main())


def test_a_new_replica_copies_what_is_there_and_joins(run: Any, tmp_path: Path) -> None:
    """The begin of the log is gone at the master; the new one has no vote."""

    async def main() -> None:
        async with running_group(tmp_path) as group:
            master = await group.elected()
            client = group.client(master)
            for _ in range(4):
                assert set(await send_many(client, "T", 20, 8192)) == {0}
            assert master.store.max_physical_offset > 2 * LOG_FILE_SIZE
            expired = master.store.commit_log.remove_first()
            assert expired is not None
            expired.delete()
            new = await group.start(4)
            await group.elected(in_sync=4)
            assert new.store.min_physical_offset == LOG_FILE_SIZE
            assert set(await send_many(client, "T", 20)) == {0}
            await group.equal()
            assert new.store.max_offset("T", 0) == 100
            await until(lambda: new.topics.find("T") is not None)

    run(main())


def test_a_replica_whose_disk_is_new_is_somebody_new(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_group(tmp_path) as group:
            master = await group.elected()
            client = group.client(master)
            assert set(await send_many(client, "T", 50)) == {0}
            number = group.followers[0].replica_id
            await group.stop(number)
            shutil.rmtree(tmp_path / f"replica-{number}" / "store", ignore_errors=True)
            shutil.rmtree(tmp_path / f"replica-{number}", ignore_errors=True)
            again = await group.start(number)
            await group.elected()
            await group.equal()
            assert again.store.max_offset("T", 0) == 50

    run(main())


async def leave_a_log(directory: Path) -> bytes:
    """A broker by itself has stored 50 messages there; its log."""
    config = broker_config(
        directory, mapped_file_size_commit_log=LOG_FILE_SIZE, max_message_size=65536, broker_name="G"
    )
    broker = Broker(config)
    await broker.start()
    client = WireClient(broker.address)
    try:
        assert set(await send_many(client, "T", 50)) == {0}
    finally:
        await client.close()
        await broker.stop()
    return (Path(config.store_path_commit_log) / f"{0:020d}").read_bytes()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_group_begins_with_the_log_that_one_of_its_replicas_brings(
    run: Any, tmp_path: Path, number: int
) -> None:
    async def main() -> None:
        await leave_a_log(tmp_path / f"replica-{number}")
        async with running_group(tmp_path) as group:
            master = await group.elected()
            assert master.replica_id == number
            await group.equal()
            assert {broker.store.max_offset("T", 0) for broker in group.brokers.values()} == {50}

    run(main())


def test_a_log_of_its_own_is_neither_given_up_nor_mixed_with_the_group_s(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        log = await leave_a_log(tmp_path / "replica-4")
        async with running_group(tmp_path) as group:
            master = await group.elected()
            assert set(await send_many(group.client(master), "T", 20)) == {0}
            late = await group.start(4)
            ends: list[int] = []
            late.on_fail = ends.append
            await until(lambda: ends == [FAILED_EXIT_CODE])
            assert Path(late.config.store_path_commit_log, f"{0:020d}").read_bytes() == log
            await group.stop(4)
            assert set(await send_many(group.client(master), "T", 20)) == {0}
            await group.elected()
            await group.equal()

    run(main())
