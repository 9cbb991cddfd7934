"""The leave to take sends, and the room for them, is kept for some milliseconds: it ends when it must."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from live_broker import small_config
from wire_client import send_header

from cometmq.broker.broker import Broker
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand, decode_frame
from cometmq.store.model import PutStatus, StoreMessage

KEPT_MS = 20


class StandingClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


class Sender:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, body: bytes) -> RemotingCommand:
        header = send_header("TopicA", properties="WAIT\x01true\x02")
        self._writer.write(RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, body=body).encode())
        length = await self._reader.readexactly(4)
        return decode_frame(length + await self._reader.readexactly(int.from_bytes(length, "big")))


@asynccontextmanager
async def sending(directory: Path, **settings: Any) -> AsyncIterator[tuple[Broker, StandingClock, Sender]]:
    clock = StandingClock()
    broker = Broker(small_config(directory, **settings), now_ms=clock)
    await broker.start()
    assert broker.server is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.server.port)
    try:
        sender = Sender(reader, writer)
        for body in (b"by the handlers", b"plain"):
            assert (await sender.send(body)).code == 0
        assert broker.plain_sends is not None
        assert broker.plain_sends.messages == 1
        yield broker, clock, sender
    finally:
        writer.close()
        await broker.stop()


async def keep_room(broker: Broker, sender: Sender) -> None:
    """Room is kept after a send, unless that took long."""
    while broker.store.commit_log.finish_batch is None:
        assert (await sender.send(b"plain")).code == 0


def bodies(broker: Broker) -> list[bytes]:
    count = broker.store.max_offset("TopicA", 0)
    records = [bytes(part) for part in broker.store.get("TopicA", 0, 0, count).slices]
    return [body for body in (b"by the handlers", b"plain", b"other", b"third") if body in b"".join(records)]


def test_who_appends_in_between_gets_a_place_of_his_own(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with sending(tmp_path) as (broker, _clock, sender):
            await keep_room(broker, sender)
            count = broker.store.max_offset("TopicA", 0)
            assert broker.store.put(StoreMessage("TopicA", 0, b"other")).status is PutStatus.PUT_OK
            assert broker.store.commit_log.finish_batch is None
            assert (await sender.send(b"third")).code == 0
            assert broker.store.max_offset("TopicA", 0) == count + 2
            assert bodies(broker) == [b"by the handlers", b"plain", b"other", b"third"]

    run(main())


def test_a_log_that_is_cut_takes_the_room_away(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with sending(tmp_path) as (broker, _clock, sender):
            await keep_room(broker, sender)
            broker.store.truncate(start_of_second(broker))
            assert broker.store.commit_log.finish_batch is None
            assert (await sender.send(b"third")).code == 0
            assert bodies(broker) == [b"by the handlers", b"third"]

    run(main())


def start_of_second(broker: Broker) -> int:
    queue = broker.store.table.find("TopicA", 0)
    assert queue is not None
    entry = queue.entry(1)
    assert entry is not None
    return entry.physical_offset


def test_what_changed_by_itself_counts_after_some_milliseconds(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with sending(tmp_path) as (broker, clock, sender):
            broker.config.start_accept_send_request_time_stamp = clock.now_ms + 60_000
            clock.now_ms += KEPT_MS
            assert (await sender.send(b"third")).code == ResponseCode.SYSTEM_ERROR
            assert broker.store.max_offset("TopicA", 0) == 2

    run(main())


def test_nothing_is_kept_where_answers_wait(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with sending(tmp_path, flush_disk_type="SYNC_FLUSH") as (broker, clock, sender):
            assert broker.store.commit_log.finish_batch is None
            broker.config.start_accept_send_request_time_stamp = clock.now_ms + 60_000
            assert (await sender.send(b"third")).code == ResponseCode.SYSTEM_ERROR

    run(main())


def test_each_send_is_in_the_histogram_once(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with sending(tmp_path) as (broker, _clock, sender):
            for round_ends in (12, 22):
                for _ in range(10):
                    await sender.send(b"plain")
                broker.collect()
                times = broker.counters.put_times
                assert (times.count, times.total_us > 0) == (round_ends, True)
                broker.collect()
                assert times.count == round_ends

    run(main())
