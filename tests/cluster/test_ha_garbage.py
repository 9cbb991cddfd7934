"""Peers of the replication port that do not speak its language, or lie."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from ha_kit import LOG_FILE_SIZE, RawMaster, caught_up, digest, frame, master, send_many, slave
from wire_client import until

from cometmq.broker.ha import follower, replication
from cometmq.store.config import BrokerRole


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "RETRY_S_MAX", 0.1)
    monkeypatch.setattr(replication, "QUESTIONS_MAX", 1)  # a raw master answers no questions


BAD_BEGINNINGS = {
    "text": b"HTTP/1.1 400 Bad Request\r\n\r\n" * 4,
    "noise": random.Random(7).randbytes(4096),
    "negative offset": frame(-8, b"x" * 8),
    "in the middle of a file": frame(4096, b"x" * 64),
    "far away and no file begins there": frame((1 << 60) + 1, b"x" * 64),
    "a gap": frame(0, b"") + frame(500, b"x"),
}


@pytest.mark.parametrize("name", BAD_BEGINNINGS)
def test_an_empty_slave_takes_nothing_from_a_bad_master(run: Any, tmp_path: Path, name: str) -> None:
    async def main() -> None:
        bad = RawMaster(BAD_BEGINNINGS[name])
        async with bad.listening() as address, slave(tmp_path, ha_master_address=address) as (second, _):
            await until(lambda: bad.connections >= 2)
            assert second.store.max_physical_offset == 0
            assert second.store.min_physical_offset == -1
            assert set(bad.reports) == {0}

    run(main())


def test_a_slave_with_data_is_not_changed_by_a_master_with_another_log(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with master(tmp_path) as (first, producer), slave(tmp_path, first) as (second, _):
            await send_many(producer, "T", 20)
            await caught_up(first, second)
            kept, end = digest(second.store), second.store.max_physical_offset
        for start in (0, end - 50, end + 50):
            bad = RawMaster(frame(start, b"x" * 200))
            async with bad.listening() as address, slave(tmp_path, ha_master_address=address) as (second, _):
                await until(lambda other=bad: other.connections >= 2)
                assert (second.store.max_physical_offset, digest(second.store)) == (end, kept)
                assert bad.reports[0] == end

    run(main())


def test_bytes_that_are_no_records_are_noticed_and_hide_nothing_before_them(
    run: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with master(tmp_path) as (first, producer):
            await send_many(producer, "T", 5)
            good = bytes(first.store.read_log(0, LOG_FILE_SIZE) or b"")
        bad = RawMaster(frame(0, good + b"\xff" * (LOG_FILE_SIZE - len(good) - 1)))
        async with (
            bad.listening() as address,
            slave(tmp_path, ha_master_address=address, max_message_size=8192) as (second, _),
        ):
            await until(lambda: second.store.max_physical_offset == LOG_FILE_SIZE - 1)
            assert second.store.max_offset("T", 0) == 5
            assert second.store.dispatched_offset == len(good)
            await until(lambda: "bytes that are no record" in caplog.text)

    run(main())


def test_noise_on_the_replication_port_leaves_the_master_alone(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        noise = random.Random(11)
        async with master(tmp_path, "SYNC_MASTER") as (first, producer):
            await send_many(producer, "T", 5)
            for _ in range(30):
                reader, writer = await asyncio.open_connection("127.0.0.1", first.config.ha_listen_port)
                writer.write(b"\xff" + noise.randbytes(noise.randint(0, 300)))
                writer.write_eof()
                assert await asyncio.wait_for(reader.read(), 5) == b""
                writer.close()
            await until(lambda: not first.replication.server.links)
            assert first.replication.acknowledgements.acknowledged_offset == 0
            assert first.store.on_append is None
            async with slave(tmp_path, first) as (second, _):
                assert second.store.role is BrokerRole.SLAVE
                await caught_up(first, second)

    run(main())
