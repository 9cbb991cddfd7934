"""Master and slave of 4.9, both ours."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from ha_kit import (
    LOG_FILE_SIZE,
    RawSlave,
    caught_up,
    digest,
    fill_files,
    free_port_pair,
    master,
    send_many,
    slave,
)
from test_broker_registration import running_nameserver
from wire_client import until

from cometmq.broker.ha import follower
from cometmq.broker.ha import metadata as metadata_part
from cometmq.errors import ConfigError
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.properties import encode_properties


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "RETRY_S_MAX", 0.2)
    monkeypatch.setattr(metadata_part, "SYNC_MS", 100)


def test_a_blank_slave_copies_the_whole_log_and_then_follows(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path) as (first, producer):
            await fill_files(producer, first, 3)
            async with slave(tmp_path, first) as (second, reader):
                await caught_up(first, second)
                assert second.store.min_physical_offset == 0
                assert set(await send_many(producer, "T", 50)) == {0}
                await caught_up(first, second)
                count = first.store.max_offset("T", 0)
                assert second.store.max_offset("T", 0) == count
                await until(lambda: second.topics.find("T") is not None)
                found = await reader.messages("T", count - 1)
                assert [message.body for message in found] == [bytes([49]) * 100]

    run(main())


def test_a_blank_slave_begins_with_the_oldest_file_that_is_left(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path) as (first, producer):
            await fill_files(producer, first, 4)
            for _ in range(2):
                expired = first.store.commit_log.remove_first()
                assert expired is not None
                expired.delete()
            async with slave(tmp_path, first) as (second, _):
                await caught_up(first, second, begin=2 * LOG_FILE_SIZE)
                assert second.store.min_physical_offset == 2 * LOG_FILE_SIZE

    run(main())


def test_a_peer_of_4_9_that_reports_zero_is_sent_everything(run: Any, tmp_path: Path) -> None:
    """The original begins with its last file."""

    async def main() -> None:
        async with master(tmp_path) as (first, producer):
            await fill_files(producer, first, 3)
            peer = await RawSlave.connect(first, 0)
            await peer.receive_until(lambda: len(peer.data) == first.store.max_physical_offset)
            assert peer.first_offset == 0
            log = b"".join(
                bytes(first.store.read_log(start, LOG_FILE_SIZE) or b"")
                for start in range(0, len(peer.data), LOG_FILE_SIZE)
            )
            assert bytes(peer.data) == log
            peer.close()

    run(main())


def test_slave_restarts_and_goes_on_where_it_was(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path) as (first, producer):
            async with slave(tmp_path, first) as (second, _):
                await send_many(producer, "T", 30)
                await caught_up(first, second)
            await fill_files(producer, first, 3)
            async with slave(tmp_path, first) as (second, _):
                await caught_up(first, second)
                assert second.store.max_offset("T", 0) == first.store.max_offset("T", 0)

    run(main())


def test_slave_with_a_cut_record_at_its_end_fetches_it_again(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path) as (first, producer):
            await send_many(producer, "T", 30)
            end = first.store.max_physical_offset
            async with slave(tmp_path, first) as (second, _):
                await caught_up(first, second)
                path = Path(second.config.store_path_root_dir)
            log = path / "commitlog" / f"{0:020d}"
            with log.open("r+b") as file:
                file.seek(end - 20)
                file.write(bytes(20))
            (path / "abort").touch()
            await send_many(producer, "T", 5)
            async with slave(tmp_path, first) as (second, _):
                await caught_up(first, second)

    run(main())


def test_slave_finds_a_master_that_comes_back(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        port = free_port_pair()
        async with master(tmp_path, listen_port=port) as (first, producer):
            await send_many(producer, "T", 10)
            follows = slave(tmp_path, first)
            second, _ = await follows.__aenter__()
            await caught_up(first, second)
        async with master(tmp_path, listen_port=port) as (first, producer):
            await send_many(producer, "T", 10)
            await caught_up(first, second)
            await follows.__aexit__(None, None, None)

    run(main())


def test_slave_finds_its_master_through_the_nameserver_even_if_it_starts_first(
    run: Any, tmp_path: Path
) -> None:
    async def main() -> None:
        async with (
            running_nameserver(tmp_path) as (_, address),
            slave(tmp_path, namesrv_addr=address) as (second, _),
            master(tmp_path, namesrv_addr=address) as (first, producer),
        ):
            await send_many(producer, "T", 10)
            await caught_up(first, second)
            await until(lambda: second.topics.find("T") is not None)
            answer = await producer.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}, address=address)
            assert second.address.encode() in answer.body

    run(main())


def test_slaves_follow_side_by_side_and_one_behind_the_other(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            master(tmp_path) as (first, producer),
            slave(tmp_path, first, 1) as (second, _),
            slave(tmp_path, first, 2) as (third, _),
            slave(tmp_path, second, 3) as (fourth, _),
        ):
            await fill_files(producer, first, 2)
            for other in (second, third, fourth):
                await caught_up(first, other)

    run(main())


# -- SYNC_MASTER -----------------------------------------------------------------------------------------------------


def test_sync_master_answers_when_a_slave_has_the_message(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            master(tmp_path, "SYNC_MASTER") as (first, producer),
            slave(tmp_path, first) as (second, _),
        ):
            await until(lambda: first.replication.acknowledgements.slave_count == 1)
            for _ in range(3):  # the first through the handlers, the others through the compiled path
                before = second.store.max_physical_offset
                assert set(await send_many(producer, "T", 20)) == {0}
                assert second.store.max_physical_offset == first.store.max_physical_offset > before
            assert first.replication.acknowledgements.waiting == 0

    run(main())


def test_sync_master_without_a_slave_stores_and_says_so(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path, "SYNC_MASTER") as (_, producer):
            for _ in range(3):
                assert set(await send_many(producer, "T", 5)) == {ResponseCode.SLAVE_NOT_AVAILABLE}
            assert len(await producer.messages("T")) == 15

    run(main())


def test_sync_master_with_a_slave_that_hangs_says_so_in_time(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path, "SYNC_MASTER", slave_timeout=150, ha_housekeeping_interval=60_000) as (
            first,
            producer,
        ):
            peer = await RawSlave.connect(first, 0)
            await until(lambda: first.replication.acknowledgements.slave_count == 1)
            assert (await producer.send("T")).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            peer.close()

    run(main())


def test_sync_master_answers_when_a_slave_that_hung_goes_on(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path, "SYNC_MASTER", slave_timeout=60_000, ha_housekeeping_interval=60_000) as (
            first,
            producer,
        ):
            peer = await RawSlave.connect(first, 0)
            await until(lambda: first.replication.acknowledgements.slave_count == 1)
            sends = asyncio.gather(*(producer.send("T") for _ in range(10)))
            await until(lambda: first.store.max_offset("T", 0) == 10)
            await peer.receive_until(lambda: len(peer.data) == first.store.max_physical_offset)
            assert not sends.done()
            peer.report(first.store.max_physical_offset)
            assert {answer.code for answer in await sends} == {0}
            peer.close()

    run(main())


def test_a_message_that_does_not_want_to_wait_does_not(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path, "SYNC_MASTER") as (_, producer):
            assert (await producer.send("T")).code == ResponseCode.SLAVE_NOT_AVAILABLE
            answer = await producer.send("T", properties=encode_properties({"WAIT": "false"}))
            assert answer.code == 0

    run(main())


def test_a_slave_too_far_behind_does_not_count(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path, "SYNC_MASTER", ha_slave_fallbehind_max=10_000) as (first, producer):
            peer = await RawSlave.connect(first, 0)
            await until(lambda: first.replication.acknowledgements.slave_count == 1)
            assert (await producer.send("T", bytes(20_000))).code == ResponseCode.SLAVE_NOT_AVAILABLE
            peer.close()

    run(main())


def test_a_slave_that_claims_what_it_was_never_sent_is_refused(run: Any, tmp_path: Path) -> None:
    """The original would answer SEND_OK although nothing was replicated."""

    async def main() -> None:
        async with master(tmp_path, "SYNC_MASTER") as (first, producer):
            await send_many(producer, "T", 3)
            end = first.store.max_physical_offset
            for reports in ((end + 1,), (1 << 60,), (-1,), (0, end * 2), (0, -5)):
                peer = await RawSlave.connect(first, *reports)
                assert await peer.closed()
                peer.close()
            acknowledged = first.replication.acknowledgements
            await until(lambda: acknowledged.slave_count == 0)
            assert acknowledged.acknowledged_offset == 0
            assert first.replication.server.refused == 5
            assert (await producer.send("T")).code == ResponseCode.SLAVE_NOT_AVAILABLE

    run(main())


def test_a_slave_that_was_away_too_long_is_refused(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path) as (first, producer):
            await fill_files(producer, first, 3)
            expired = first.store.commit_log.remove_first()
            assert expired is not None
            expired.delete()
            peer = await RawSlave.connect(first, 5000)
            assert await peer.closed()
            assert not peer.data
            peer.close()

    run(main())


def test_idle_slaves_get_heartbeats_and_silent_ones_are_closed(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path, ha_send_heartbeat_interval=20, ha_housekeeping_interval=1_000) as (
            first,
            producer,
        ):
            await send_many(producer, "T", 3)
            end = first.store.max_physical_offset
            peer = await RawSlave.connect(first, 0)
            assert await peer.closed()
            assert set(peer.heartbeats) == {end}
            peer.close()

    run(main())


def test_a_slow_slave_does_not_fill_the_memory_and_gets_everything(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path, mapped_file_size_commit_log=16 << 20) as (first, producer):
            while first.store.max_physical_offset < 12 << 20:
                await send_many(producer, "T", 50, 60_000)
            peer = await RawSlave.connect(first, 0)
            await until(
                lambda: first.replication.server.links and first.replication.server.links[0].bytes_sent
            )
            await peer.receive(1000)
            link = first.replication.server.links[0]
            assert link.bytes_sent < 11 << 20  # the transport was full long before the end
            await peer.receive_until(lambda: len(peer.data) == first.store.max_physical_offset)
            assert bytes(peer.data) == bytes(first.store.read_log(0, len(peer.data)) or b"")
            peer.close()

    run(main())


# -- what a slave does when asked directly ---------------------------------------------------------------------------


def test_slave_refuses_what_would_write(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path) as (first, producer), slave(tmp_path, first) as (second, client):
            await send_many(producer, "T", 3)
            await caught_up(first, second)
            await until(lambda: second.topics.find("T") is not None)
            assert (await client.send("T")).code == ResponseCode.SERVICE_NOT_AVAILABLE
            created = await client.call(
                RequestCode.UPDATE_AND_CREATE_TOPIC,
                {"topic": "N", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
                 "topicFilterType": "SINGLE_TAG", "order": "false"},
            )  # fmt: skip
            assert created.code == ResponseCode.SYSTEM_ERROR
            assert digest(first.store) == digest(second.store)

    run(main())


def test_slave_runs_no_delayed_messages(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            master(tmp_path, message_delay_level="1s 1h") as (first, producer),
            slave(tmp_path, first, message_delay_level="1s 1h") as (second, _),
        ):
            answer = await producer.send("T", properties=encode_properties({"DELAY": "1"}))
            assert answer.code == 0
            await until(lambda: first.store.max_offset("T", 0) == 1)
            await caught_up(first, second)
            assert not second.delay.queues
            await until(lambda: second.delay.offsets() == {1: 1})

    run(main())


def test_slave_serves_pulls_and_sends_readers_where_the_group_says(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            master(tmp_path) as (first, producer),
            slave(tmp_path, first) as (second, client),
        ):
            await send_many(producer, "T", 3)
            await caught_up(first, second)
            await until(lambda: second.topics.find("T") is not None)
            answer = await client.pull("T", 0)
            assert answer.code == 0
            assert answer.ext_fields["suggestWhichBrokerId"] == "0"
            second.config.slave_read_enable = True
            second.groups.find("CG").broker_id = 1
            answer = await client.pull("T", 0)
            assert answer.ext_fields["suggestWhichBrokerId"] == "1"
            beyond = await client.pull("T", 99)
            assert beyond.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert beyond.ext_fields["nextBeginOffset"] == "99"

    run(main())


def test_slave_copies_topics_groups_and_offsets(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path) as (first, producer):
            await send_many(producer, "T", 3)
            first.offsets.commit("CG", "T", 0, 2)
            first.groups.find("CG")
            async with slave(tmp_path, first) as (second, _):
                await until(lambda: second.offsets.query("CG", "T", 0) == 2)
                await until(lambda: second.groups.data_version == first.groups.data_version)
                assert second.topics.data_version == first.topics.data_version
                assert second.topics.table == first.topics.table
                first.offsets.commit("CG", "T", 0, 3)
                first.topics.delete("T")
                await until(lambda: second.offsets.query("CG", "T", 0) == 3)
                await until(lambda: second.topics.find("T") is None)
            async with slave(tmp_path) as (second, _):  # no master: what was copied is kept
                assert second.offsets.query("CG", "T", 0) == 3
                assert second.topics.find("T") is None
                assert "CG" in second.groups

    run(main())


def test_a_group_that_elects_its_master_needs_to_know_its_voters(run: Any, tmp_path: Path) -> None:
    """Three brokers of a DLedger group started as plain masters would each take writes of their own."""

    async def main() -> None:
        with pytest.raises(ConfigError, match="enableDLegerCommitLog"):
            async with master(tmp_path, enable_dleger_commit_log=True):
                pass

    run(main())
