"""Transactional messages over the wire, on a clock that is turned by hand."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from live_broker import LiveBroker, LiveClient, eventually, live_broker
from message_kit import StoppedClock, arrived, calm, fields_of, props, stored

from cometmq.metrics.broker import broker_families
from cometmq.metrics.exposition import render
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import (
    CheckTransactionStateHeader,
    EndTransactionHeader,
    ResumeCheckHalfMessageHeader,
)
from cometmq.protocol.message import MessageExt
from cometmq.protocol.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from cometmq.protocol.record_cy import decode_record, decode_records

TOPIC = "TopicTran"
GROUP = "PG"
PREPARED, COMMIT, ROLLBACK, UNKNOWN = 4, 8, 12, 0
TIMEOUT_MS = 7_000  # transactionTimeOut and a little: messages are born by the wall clock


class Half:
    """A half message as its producer knows it."""

    def __init__(self, fields: dict[str, str], key: str) -> None:
        self.key = key
        self.msg_id = fields["msgId"]
        self.queue_offset = int(fields["queueOffset"])
        self.physical_offset = int(fields["msgId"][16:], 16)


async def prepare(client: LiveClient, key: str = "U1", body: bytes = b"half", **properties: object) -> Half:
    text = props(TRAN_MSG="true", PGROUP=GROUP, UNIQ_KEY=key, **properties)
    sent = await client.send(TOPIC, 1, body, properties=text, sys_flag=PREPARED, producer_group=GROUP)
    return Half(fields_of(sent), key)


async def end(client: LiveClient, half: Half, how: int = COMMIT, **changes: Any) -> RemotingCommand:
    values: dict[str, Any] = {
        "producer_group": GROUP,
        "tran_state_table_offset": half.queue_offset,
        "commit_log_offset": half.physical_offset,
        "commit_or_rollback": how,
        "msg_id": half.key,
    }
    return await client.call(RequestCode.END_TRANSACTION, EndTransactionHeader(**{**values, **changes}))


async def check_round(live: LiveBroker, clock: StoppedClock, after_ms: int = TIMEOUT_MS) -> None:
    clock.ms += after_ms
    await live.broker.transactions.check()


async def asked(client: LiveClient, count: int) -> list[tuple[CheckTransactionStateHeader, MessageExt]]:
    """The checks that a producer was sent."""
    await eventually(lambda: client.codes_asked().count(RequestCode.CHECK_TRANSACTION_STATE) >= count)
    checks = [request for request in client.asked if request.code == RequestCode.CHECK_TRANSACTION_STATE]
    return [
        (CheckTransactionStateHeader.decode(request.ext_fields), decode_record(bytes(request.body)))
        for request in checks
    ]


def as_half(header: CheckTransactionStateHeader) -> Half:
    assert header.offset_msg_id is not None
    fields = {"msgId": header.offset_msg_id, "queueOffset": str(header.tran_state_table_offset)}
    return Half(fields, header.msg_id or "")


def in_queue(live: LiveBroker, topic: str) -> list[MessageExt]:
    found = live.broker.store.get(topic, 0, live.broker.store.min_offset(topic, 0), 1000)
    return [message for part in found.slices for message in decode_records(part)]


# -- the end of a transaction ------------------------------------------------------------------------------------


def test_commit_makes_it_visible_and_rollback_never(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            wanted, unwanted = await prepare(client, "A", b"wanted"), await prepare(client, "B", b"unwanted")
            assert await stored(client, TOPIC, 1) == []
            response = await end(client, unwanted, ROLLBACK)
            assert (response.code, response.remark) == (0, "not set any response code")
            response = await end(client, wanted)
            assert (response.code, response.remark) == (0, None)
            (message,) = await stored(client, TOPIC, 1)
            assert message.body == b"wanted"
            assert message.sys_flag & 0xC == COMMIT
            assert message.prepared_transaction_offset == wanted.physical_offset
            assert message.properties["TRAN_MSG"] == "true"
            assert (message.properties["REAL_TOPIC"], message.properties["REAL_QID"]) == (TOPIC, "1")

    run(main())


def test_half_and_op_records_are_those_of_the_original(run: Any, tmp_path: Path) -> None:
    """A Java broker can take over the store."""

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            await prepare(client, "A")
            await end(client, await prepare(client, "B"))
            half = in_queue(live, TRANS_HALF_TOPIC)[1]
            assert (half.queue_id, half.queue_offset, half.sys_flag & 0xC) == (0, 1, 0)
            (op,) = in_queue(live, TRANS_OP_HALF_TOPIC)
            assert (op.stored_body, op.sys_flag) == (b"1", 0)
            assert op.properties == {"TAGS": "d", "WAIT": "true"}
            assert op.store_size == 135

    run(main())


def test_repeated_ends_change_nothing(run: Any, tmp_path: Path) -> None:
    """A second commit delivers nothing more, and a rollback after a commit takes nothing back; the original does."""

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            half, gone = await prepare(client, "A"), await prepare(client, "B")
            for how in (COMMIT, COMMIT, ROLLBACK, COMMIT):
                assert (await end(client, half, how)).code == 0
            for how in (ROLLBACK, COMMIT, COMMIT):
                assert (await end(client, gone, how)).code == 0
            assert len(await stored(client, TOPIC, 1)) == 1
            assert len(in_queue(live, TRANS_OP_HALF_TOPIC)) == 2

    run(main())


@pytest.mark.parametrize("orderly", [True, False])
def test_repeated_commit_after_a_restart_delivers_nothing_more(
    run: Any, tmp_path: Path, orderly: bool
) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            early, late = await prepare(client, "A"), await prepare(client, "B")
            await end(client, early)
            if orderly:
                await check_round(live, clock)
            else:
                live.broker.offsets.unsaved = False
            open_one = await prepare(client, "C")
            await end(client, late, ROLLBACK)
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            for half in (early, late):
                assert (await end(client, half)).code == 0
            assert len(await stored(client, TOPIC, 1)) == 1
            assert (await end(client, open_one)).code == 0
            assert len(await stored(client, TOPIC, 1)) == 2

    run(main())


def test_commit_delivers_and_notes_the_end_together_or_not_at_all(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            half = await prepare(client)
            live.broker.store.retention.disk.full = True
            for how in (COMMIT, ROLLBACK):
                response = await end(client, half, how)
                assert response.code == 14
                assert "service not available now" in (response.remark or "")
            live.broker.store.retention.disk.full = False
            assert in_queue(live, TRANS_OP_HALF_TOPIC) == []
            assert (await end(client, half)).code == 0
            assert len(await stored(client, TOPIC, 1)) == 1

    run(main())


def test_delay_of_a_transaction_begins_with_its_commit(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            half = await prepare(client, DELAY=1)
            clock.ms += 3_000
            await end(client, half)
            clock.ms += 999
            await calm()
            assert await stored(client, TOPIC, 1) == []
            clock.ms += 1
            await arrived(client, TOPIC, 1, queue_id=1)

    run(main())


def test_unknown_state_gets_no_answer(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            half = await prepare(client)
            for how in (UNKNOWN, PREPARED, 99):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(end(client, half, how), 0.1)
            assert (await end(client, half)).code == 0

    run(main())


def test_ends_that_do_not_fit_are_refused(run: Any, tmp_path: Path) -> None:
    """Also one that names a record which is no half message: the original would take it."""

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            half = await prepare(client)
            text = props(PGROUP=GROUP, REAL_TOPIC=TOPIC, REAL_QID=1)
            plain = Half(fields_of(await client.send(TOPIC, 0, b"plain", properties=text)), "P")
            cases: list[tuple[Half, dict[str, Any], str]] = [
                (half, {"producer_group": "other"}, "The producer group wrong"),
                (half, {"tran_state_table_offset": 7}, "The transaction state table offset wrong"),
                (half, {"commit_log_offset": 10_000_000}, "Find prepared transaction message failed"),
                (half, {"commit_log_offset": -1}, "Find prepared transaction message failed"),
                (half, {"commit_log_offset": 3}, "Find prepared transaction message failed"),
                (plain, {}, "The commit log offset wrong"),
            ]
            for named, changes, remark in cases:
                for how in (COMMIT, ROLLBACK):
                    response = await end(client, named, how, **changes)
                    assert (response.code, response.remark) == (1, remark)
            assert await stored(client, TOPIC, 1) == []
            assert in_queue(live, TRANS_OP_HALF_TOPIC) == []

    run(main())


def test_record_made_up_inside_of_a_body_ends_nothing(run: Any, tmp_path: Path) -> None:
    """A body may look like a half message at its very place in the log."""

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            half = await prepare(client)
            record = bytearray(live.broker.store.read_record(half.physical_offset) or b"")
            send_at = live.broker.store.max_physical_offset
            body_at = send_at + 88
            record[28:36] = body_at.to_bytes(8, "big")
            await client.send(TOPIC, 0, bytes(record))
            forged = await end(client, half, COMMIT, commit_log_offset=body_at)
            assert (forged.code, forged.remark) == (1, "The commit log offset wrong")

    run(main())


def test_slave_ends_no_transaction_and_a_broker_may_refuse_them(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path / "a", reject_transaction_message=True) as live:
            sent = await live.client().send(TOPIC, properties=props(TRAN_MSG="true"), sys_flag=PREPARED)
            assert (sent.code, sent.remark) == (
                16, "the broker[127.0.0.1] sending transaction message is forbidden",
            )  # fmt: skip
        async with live_broker(tmp_path / "b", broker_role="SLAVE", broker_id=1) as live:
            half = Half({"msgId": "0" * 32, "queueOffset": "0"}, "U")
            assert (await end(live.client(), half)).code == 11

    run(main())


def test_counters_of_the_broker_are_not_taken_from_a_producer(run: Any, tmp_path: Path) -> None:
    """A consumed message that is sent again as a transaction still has the properties of its first life."""

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            victim = await prepare(client, "A")
            forged = await prepare(client, "B", TRAN_PREPARED_QUEUE_OFFSET=0, TRANSACTION_CHECK_TIMES=15)
            await end(client, forged, ROLLBACK)
            assert (await end(client, victim)).code == 0
            assert len(await stored(client, TOPIC, 1)) == 1

    run(main())


# -- checks ------------------------------------------------------------------------------------------------------


def test_producer_is_asked_after_the_timeout_with_the_newest_copy(run: Any, tmp_path: Path) -> None:
    """An unknown state is asked for with request 39."""

    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            await client.heartbeat(producer=GROUP)
            half = await prepare(client, "U1", b"state?", born=1)
            await check_round(live, clock, 3_000)
            assert client.asked == []
            await check_round(live, clock, TIMEOUT_MS)
            ((header, message),) = await asked(client, 1)
            assert (message.topic, message.queue_id, message.body) == (TOPIC, 1, b"state?")
            assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
            assert (header.msg_id, header.transaction_id) == ("U1", "U1")
            newest = as_half(header)
            assert newest.queue_offset == 1
            assert newest.physical_offset == header.commit_log_offset
            assert client.asked[0].is_oneway
            assert (await end(client, newest, COMMIT, from_transaction_check=True)).code == 0
            assert (await end(client, half)).code == 0
            assert len(await stored(client, TOPIC, 1)) == 1
            await check_round(live, clock)
            await check_round(live, clock)
            assert len(client.asked) == 1

    run(main())


def test_commit_of_an_old_copy_ends_the_transaction_for_good(run: Any, tmp_path: Path) -> None:
    """A slow producer commits with the offsets of its send, after it was asked; the original then delivers twice."""

    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            await client.heartbeat(producer=GROUP)
            half = await prepare(client)
            for _ in range(3):
                await check_round(live, clock)
            copies = await asked(client, 3)
            assert (await end(client, half)).code == 0
            for header, _ in copies:
                assert (await end(client, as_half(header))).code == 0
            assert len(await stored(client, TOPIC, 1)) == 1
            await check_round(live, clock)
            assert len(client.asked) == 3
            assert live.broker.transactions.pending == 0

    run(main())


def test_young_message_stops_the_round_and_a_settled_one_does_not(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            await client.heartbeat(producer=GROUP)
            await end(client, await prepare(client, "A"))
            await prepare(client, "B")
            clock.ms += TIMEOUT_MS
            text = props(TRAN_MSG="true", PGROUP=GROUP, UNIQ_KEY="C")
            await client.send(TOPIC, 1, b"young", properties=text, sys_flag=4, born_timestamp=clock.ms)
            await check_round(live, clock, 1)
            assert [header.msg_id for header, _ in await asked(client, 1)] == ["B"]
            assert live.broker.transactions.half_offset == 2

    run(main())


def test_after_the_last_check_it_goes_to_the_topic_of_those_given_up(run: Any, tmp_path: Path) -> None:
    """15 checks -> TRANS_CHECK_MAX_TIME_TOPIC; nobody online: the counter advances too."""

    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            await client.heartbeat(producer=GROUP)
            half = await prepare(client, "U1", b"undecided")
            for _ in range(17):
                await check_round(live, clock)
            assert len(await asked(client, 15)) == 15
            (given_up,) = await stored(client, TRANS_CHECK_MAX_TIME_TOPIC)
            assert given_up.body == b"undecided"
            assert given_up.properties["TRANSACTION_CHECK_TIMES"] == "15"
            assert live.broker.transactions.pending == 0
            assert live.broker.transactions.given_up == 1
            await prepare(client, "U2", b"nobody asked")
            await client.call(
                RequestCode.UNREGISTER_CLIENT, fields={"clientID": "c1", "producerGroup": GROUP}
            )
            for _ in range(17):
                await check_round(live, clock)
            assert len(await stored(client, TRANS_CHECK_MAX_TIME_TOPIC)) == 2
            assert len(client.asked) == 15
            assert (await end(client, half)).code == 0
            assert [message.body for message in await stored(client, TOPIC, 1)] == [b"undecided"]

    run(main())


@pytest.mark.parametrize("restart", [False, True])
def test_late_commit_of_one_given_up_is_taken_once(run: Any, tmp_path: Path, restart: bool) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock, transaction_check_max=2) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            half = await prepare(client)
            for _ in range(4):
                await check_round(live, clock)
            if not restart:
                for _ in range(2):
                    assert (await end(client, half)).code == 0
                assert len(await stored(client, TOPIC, 1)) == 1
        async with live_broker(tmp_path, clock=clock, transaction_check_max=2) as live:
            client = live.client()
            for _ in range(2):
                assert (await end(client, half)).code == 0
                await check_round(live, clock)
            assert len(await stored(client, TOPIC, 1)) == 1
            assert len(await stored(client, TRANS_CHECK_MAX_TIME_TOPIC)) == 1

    run(main())


def test_message_older_than_the_log_is_kept_is_given_up_at_once(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock, file_reserved_time=1) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            await prepare(client)
            await check_round(live, clock, 3_700_000)
            assert len(await stored(client, TRANS_CHECK_MAX_TIME_TOPIC)) == 1

    run(main())


def test_immunity_replaces_the_timeout_and_holds_up_nobody(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            await client.heartbeat(producer=GROUP)
            immune = await prepare(client, "A", CHECK_IMMUNITY_TIME_IN_SECONDS=60)
            await prepare(client, "B")
            await check_round(live, clock)
            assert [header.msg_id for header, _ in await asked(client, 1)] == ["B"]
            await check_round(live, clock, 10_000)
            assert [header.msg_id for header, _ in await asked(client, 2)] == ["B", "B"]
            await check_round(live, clock, 50_000)
            checks = await asked(client, 4)
            assert sorted(header.msg_id or "" for header, _ in checks[2:]) == ["A", "B"]
            renewed = next(message for header, message in checks if header.msg_id == "A")
            assert renewed.properties["TRANSACTION_CHECK_TIMES"] == "1"
            assert renewed.properties["TRAN_PREPARED_QUEUE_OFFSET"] == str(immune.queue_offset)
            assert (await end(client, immune)).code == 0
            assert len(await stored(client, TOPIC, 1)) == 1

    run(main())


def test_checks_go_on_after_a_restart(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            half = await prepare(client)
            await check_round(live, clock)
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.heartbeat(producer=GROUP)
            await check_round(live, clock)
            ((header, message),) = await asked(client, 1)
            assert message.properties["TRANSACTION_CHECK_TIMES"] == "2"
            assert (await end(client, half)).code == 0
            assert (await end(client, as_half(header))).code == 0
            assert len(await stored(client, TOPIC, 1)) == 1

    run(main())


def test_rounds_come_by_themselves(run: Any, tmp_path: Path) -> None:
    """transactionCheckInterval, on the real clock."""

    async def main() -> None:
        settings = {"transaction_check_interval": 50, "transaction_time_out": 100}
        async with live_broker(tmp_path, **settings) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            await client.heartbeat(producer=GROUP)
            await prepare(client)
            ((header, _), *_) = await asked(client, 2)
            assert (await end(client, as_half(header), ROLLBACK)).code == 0
            assert await stored(client, TOPIC, 1) == []

    run(main())


def test_producers_of_a_group_are_asked_in_turn(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            clients = [live.client(f"c{number}") for number in range(3)]
            for client in clients:
                await client.heartbeat(producer=GROUP)
            other = live.client("other")
            await other.heartbeat(producer="another group")
            for number in range(6):
                await prepare(clients[0], f"U{number}")
            await check_round(live, clock)
            for client in clients:
                await eventually(lambda client=client: len(client.asked) == 2)
            assert other.asked == []

    run(main())


def test_progress_goes_on_and_forgets_what_is_settled(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client, transactions = live.client(), live.broker.transactions
            await client.create_topic(TOPIC)
            halves = [await prepare(client, f"U{number}") for number in range(150)]
            for half in halves:
                await end(client, half, COMMIT if half.queue_offset % 2 else ROLLBACK)
            await check_round(live, clock)
            assert (transactions.half_offset, transactions.op_offset) == (150, 150)
            assert (transactions._ended, transactions._newest) == ({}, {})
            assert len(await stored(client, TOPIC, 1)) == 75
            for half in halves:
                assert (await end(client, half)).code == 0
            assert len(await stored(client, TOPIC, 1)) == 75

    run(main())


def test_broker_without_transactions_has_no_offsets_of_them(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            await check_round(live, clock)
            assert live.broker.offsets.groups() == []

    run(main())


def test_progress_beyond_the_queue_does_not_swallow_new_transactions(run: Any, tmp_path: Path) -> None:
    """The log was cut, or the queues were removed by hand."""

    async def main() -> None:
        config = tmp_path / "store/config"
        config.mkdir(parents=True)
        table = "".join(
            f'"{topic}@CID_RMQ_SYS_TRANS":{{0:700}},' for topic in (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC)
        )
        (config / "consumerOffset.json").write_text('{"offsetTable":{' + table[:-1] + "}}")
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            await client.heartbeat(producer=GROUP)
            await end(client, await prepare(client, "A"))
            await prepare(client, "B")
            assert len(await stored(client, TOPIC, 1)) == 1
            await check_round(live, clock)
            assert len(await asked(client, 1)) == 1

    run(main())


def test_half_messages_outlive_the_log_file_they_stand_in(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock, mapped_file_size_commit_log=65_536) as live:
            client, store = live.client(), live.broker.store
            await client.create_topic(TOPIC)
            await client.heartbeat(producer=GROUP)
            await end(client, await prepare(client, "done"), ROLLBACK)
            await prepare(client, "open")
            for _ in range(9):
                await client.send("Other", 0, b"x" * 20_000)
            store.retention._take_files(clock.ms, True)
            assert store.min_physical_offset > 0
            await check_round(live, clock)
            ((header, _),) = await asked(client, 1)
            assert header.msg_id == "open"
            assert (await end(client, as_half(header))).code == 0
            assert len(await stored(client, TOPIC, 1)) == 1

    run(main())


# -- resuming ----------------------------------------------------------------------------------------------------


async def resume(client: LiveClient, msg_id: str | None) -> tuple[int, str | None]:
    header = ResumeCheckHalfMessageHeader(msg_id=msg_id)
    response = await client.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
    return response.code, response.remark


@pytest.mark.parametrize("restart", [False, True])
def test_message_that_was_given_up_is_checked_again_when_resumed(
    run: Any, tmp_path: Path, restart: bool
) -> None:
    """RESUME_CHECK_HALF_MESSAGE (323)."""

    async def main() -> None:
        clock = StoppedClock()
        async with live_broker(tmp_path, clock=clock, transaction_check_max=2) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            half = await prepare(client)
            for _ in range(4):
                await check_round(live, clock)
            (given_up,) = await stored(client, TRANS_CHECK_MAX_TIME_TOPIC)
            if not restart:
                assert await resume(client, given_up.offset_msg_id) == (0, None)
        async with live_broker(tmp_path, clock=clock, transaction_check_max=2) as live:
            client = live.client()
            await client.heartbeat(producer=GROUP)
            if restart:
                assert await resume(client, given_up.offset_msg_id) == (0, None)
            await check_round(live, clock)
            ((header, message),) = await asked(client, 1)
            assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
            assert (await end(client, as_half(header))).code == 0
            assert (await end(client, half)).code == 0
            assert len(await stored(client, TOPIC, 1)) == 1

    run(main())


def test_only_open_transactions_are_resumed(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            open_one, ended = await prepare(client, "A"), await prepare(client, "B")
            await end(client, ended)
            (final,) = await stored(client, TOPIC, 1)
            plain = fields_of(await client.send(TOPIC, 0, b"plain"))
            failed = (1, "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed.")
            for msg_id in (ended.msg_id, final.offset_msg_id, plain["msgId"]):
                assert await resume(client, msg_id) == failed
            for nonsense in (None, "xyz", "7F00000100002A9F00000000000F4240"):
                assert (await resume(client, nonsense))[0] == 1
            assert await resume(client, open_one.msg_id) == (0, None)
            assert (await end(client, open_one)).code == 0
            assert len(await stored(client, TOPIC, 1)) == 2

    run(main())


def test_waiting_messages_are_in_the_metrics(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as live:
            client = live.client()
            await client.create_topic(TOPIC)
            await prepare(client)
            await client.send(TOPIC, 0, properties=props(DELAY=18))
            await client.send(TOPIC, 0, properties=props(TIMER_DELAY_SEC=3_600))
            text = render(broker_families(live.broker))
            for kind in ("delay_level", "timer", "transaction"):
                assert f'cometmq_messages_waiting{{kind="{kind}"}} 1' in text

    run(main())
