"""What Java clients and a prober asked the Java broker in the recordings, asked of ours.

The frames of a case are replayed in the order of recording, over as many connections; an answer is looked
at when the recorded one was seen. Code, remark, ext fields and messages must be equal, apart from what
differs by nature (ports, times, the texts of Java exceptions) and from what we do better on purpose
(``FIXED``).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from golden_frames import GoldenFrame, frames
from wire_client import running_broker, until

from cometmq.broker.broker import Broker
from cometmq.clock import Clock, now_ms
from cometmq.protocol.bodies.topic import TopicConfig
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import RemotingCommand, decode_frame
from cometmq.protocol.record_cy import decode_records

ANSWER_LIMIT_S = 10
TIME_FIELDS = {"indexLastUpdateTimestamp", "timestamp"}
FAST_PORT_CONNECTIONS = {125, 209}

# Our answer where it is not the recorded one: mistakes of the original that are not repeated.
FIXED = {
    "probe_b_pull_bad_sql": 23,  # a wrong expression is an error, not a match of everything
}
# Depends on messages and clients of recordings that are not replayed here.
OTHER_STATE = {
    "probe_b_view_bin", "probe_b_view_json", "probe_b_sendback_to_dlq", "probe_b_sendback_default_level",
    "probe_b_reset_offset_from_cpp", "probe_pull_ipv6_bornhost", "probe_b_end_tx_bad",
    "probe_b_pull_delay_level_gt_max",
}  # fmt: skip
# The remark is the text of a Java exception.
CODE_ONLY = {"probe_b_acl_update_when_disabled_50"}

PRODUCER_BEGAN_MS = 1_794_778_956_000  # queries of the recordings name times
PROBES_BEGAN_MS = 1_794_779_059_000


class Replay:
    def __init__(self, port: int) -> None:
        self._port = port
        self._peers: dict[int, Peer] = {}
        self.differences: list[str] = []

    async def step(self, frame: GoldenFrame, *, same_state: bool) -> None:
        """Send a recorded request, or compare with a recorded answer."""
        if frame.direction == "c->b":
            await (await self._peer(frame.conn)).send(frame.data)
        elif frame.command.is_response and frame.conn in self._peers:
            answer = await self._peers[frame.conn].answer(frame.command.opaque)
            for problem in differences(frame, answer, same_state=same_state):
                self.differences.append(f"{frame.case} ({frame.request_code}): {problem}")

    async def _peer(self, conn: int) -> Peer:
        if conn not in self._peers:
            port = self._port - 2 if conn in FAST_PORT_CONNECTIONS else self._port
            self._peers[conn] = Peer(*await asyncio.open_connection("127.0.0.1", port))
        return self._peers[conn]

    async def close(self) -> None:
        for peer in self._peers.values():
            await peer.close()


class Peer:
    """One raw connection; answers are kept until somebody asks for them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._answers: dict[int, RemotingCommand] = {}
        self._task = asyncio.ensure_future(self._read())

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def _read(self) -> None:
        while True:
            word = await self._reader.readexactly(4)
            command = decode_frame(word + await self._reader.readexactly(int.from_bytes(word, "big")))
            if command.is_response:
                self._answers[command.opaque] = command

    async def answer(self, opaque: int) -> RemotingCommand:
        await until(lambda: opaque in self._answers or self._task.done(), limit_s=ANSWER_LIMIT_S)
        return self._answers.pop(opaque)

    async def close(self) -> None:
        self._task.cancel()
        self._writer.close()
        await asyncio.gather(self._task, return_exceptions=True)


def differences(frame: GoldenFrame, ours: RemotingCommand, *, same_state: bool) -> Iterator[str]:
    theirs = frame.command
    if frame.case in FIXED:
        if ours.code != FIXED[frame.case]:
            yield f"code {ours.code} in place of {FIXED[frame.case]}"
        return
    if ours.code != theirs.code:
        yield f"code {ours.code} ({ours.remark}) in place of {theirs.code} ({theirs.remark})"
        return
    if frame.case in CODE_ONLY:
        return
    if remark_pattern(ours) != remark_pattern(theirs):
        yield f"remark {ours.remark!r} in place of {theirs.remark!r}"
    our_fields, their_fields = ours.ext_fields or {}, theirs.ext_fields or {}
    if our_fields.keys() != their_fields.keys():
        yield f"fields {sorted(our_fields)} in place of {sorted(their_fields)}"
    elif same_state and comparable(our_fields) != comparable(their_fields):
        yield f"fields {our_fields} in place of {their_fields}"
    if bool(ours.body) != bool(theirs.body):
        yield f"body of {len(ours.body)} bytes in place of {len(theirs.body)}"
    elif (
        same_state
        and frame.request_code in (11, 12, 33)
        and theirs.code == 0
        and messages(ours) != messages(theirs)
    ):
        yield f"messages {messages(ours)} in place of {messages(theirs)}"


def remark_pattern(command: RemotingCommand) -> str | None:
    if command.remark and command.remark.startswith("java."):
        return "exception"
    if command.remark and command.code == 1 and re.match(r"\w+: ", command.remark):
        return "exception"
    return re.sub(r"127\.0\.0\.1:\d+", "address", command.remark) if command.remark else None


def comparable(fields: dict[str, str]) -> dict[str, str]:
    """Without times and without the port in offset message ids."""
    kept = {name: value for name, value in fields.items() if name not in TIME_FIELDS}
    if "msgId" in kept:
        kept["msgId"] = ",".join(part[16:] for part in kept["msgId"].split(","))
    return kept


def messages(command: RemotingCommand) -> list[tuple[Any, ...]]:
    return [
        (m.topic, m.queue_id, m.queue_offset, m.physical_offset, m.flag, m.sys_flag, m.reconsume_times,
         m.born_timestamp_ms, m.stored_body, m.properties, m.prepared_transaction_offset)
        for m in decode_records(command.body)
    ]  # fmt: skip


def recorded(file: str) -> list[GoldenFrame]:
    return [frame for frame in frames() if frame.file == file and frame.direction in ("c->b", "b->c")]


def clock_from(began_ms: int) -> Clock:
    """The time of a recording goes on from its beginning."""
    ahead_ms = now_ms() - began_ms
    return lambda: now_ms() - ahead_ms


async def prepare(broker: Broker) -> None:
    for name, queues, perm in (
        ("TopicA", 4, 6),
        ("ReqTopic", 2, 6),
        ("OrderTopic", 2, 6),
        ("NoPermTopic", 2, 4),
    ):
        broker.topics.put(
            TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
        )


def test_recorded_producer_and_pull_consumer_see_the_same_broker(run: Any, tmp_path: Path) -> None:
    """The same log, byte position by byte position: sends, queries, pulls with every status, long polling."""

    async def main() -> None:
        settings = {"enable_property_filter": True, "message_delay_level": "1s 1s 10s"}
        clock = clock_from(PRODUCER_BEGAN_MS)
        async with running_broker(tmp_path, now_ms=clock, **settings) as (broker, _):
            await prepare(broker)
            replay = Replay(broker.config.listen_port)
            for frame in recorded("producer"):
                if frame.case != "vip_channel_send":  # recorded after the rest
                    await replay.step(frame, same_state=True)
            # The delayed message arrives before the pulls begin, as it did then.
            await until(lambda: broker.store.max_offset("TopicA", 0) == 9, limit_s=8)
            for frame in recorded("pull"):
                await replay.step(sooner(frame), same_state=frame.case != "pull_long_poll_wakeup")
            await replay.close()
            assert not replay.differences, "\n".join(replay.differences)

    run(main(), 60)


def sooner(frame: GoldenFrame) -> GoldenFrame:
    """A pull that waits for 3 s in the recording waits for 0.3 s."""
    return frame._replace(data=frame.data.replace(b'"3000"', b'"0300"'))


def test_recorded_corner_cases_get_the_recorded_answers(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = clock_from(PROBES_BEGAN_MS)
        async with running_broker(tmp_path, now_ms=clock, enable_property_filter=True) as (broker, client):
            await prepare(broker)
            for _ in range(11):
                await client.send("TopicA", b"filler", properties="TAGS\x01TagA")
            replay = Replay(broker.config.listen_port)
            missing = {50} - broker.handler_table().keys()  # access control comes with its own handlers
            for frame in recorded("probe"):
                if frame.case not in OTHER_STATE and frame.request_code not in missing:
                    await replay.step(frame, same_state=False)
            await replay.close()
            assert not replay.differences, "\n".join(replay.differences)

    run(main(), 60)


def test_recorded_clients_with_long_names_and_with_binary_headers(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await prepare(broker)
            for queue_id in [0, 1, 2, 3] * 10:
                await client.send("TopicA", b"filler", queue_id=queue_id)
            replay = Replay(broker.config.listen_port)
            for file in ("send_v1", "binary_header", "compression"):
                for frame in recorded(file):
                    if frame.request_code != RequestCode.HEART_BEAT or not frame.command.is_response:
                        await replay.step(frame, same_state=False)
            await replay.close()
            assert not replay.differences, "\n".join(replay.differences)

    run(main(), 60)
