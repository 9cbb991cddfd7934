"""The load of the delay benchmark: a paced sender and a reader that waits, both of which outlive the broker.

One process, one connection each way. The sender writes frames at an even pace without waiting for answers; what was
not answered when the connection broke is sent again. The reader holds a pull on every queue and notes when each copy
was stored and when it arrived.
"""

from __future__ import annotations

import asyncio
import struct
from array import array
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from cometmq.client.send_frames import SendTemplate
from cometmq.clock import now_ms
from cometmq.errors import CometMQError
from cometmq.net.client import RemotingClient
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import PullMessageHeader
from cometmq.protocol.message import MessageExt
from cometmq.protocol.record_cy import decode_records

QUEUES = 4
TICK_S = 0.005
CATCH_UP = 1.5  # after an outage the sender may go that much faster than its pace
UNANSWERED_MAX = 4_000
RETRY_S = 0.02
HOLD_MS = 2_000
PULL_COUNT = 256
SUSPEND_AND_SUBSCRIBE = 2 | 4  # pull flags: wait for messages; the subscription is in the request

_WORDS = struct.Struct(">iI")


class _Answer(msgspec.Struct, gc=False):
    code: int = 0
    opaque: int = 0


_decode = msgspec.json.Decoder(_Answer).decode


@dataclass(frozen=True)
class Load:
    """``count`` messages at ``rate`` a second; number n waits ``delays_ms[n % len(delays_ms)]``, levels from 1 on."""

    topic: str
    count: int
    rate: float
    delays_ms: tuple[int, ...]

    def level(self, number: int) -> int:
        return 1 + number % len(self.delays_ms)

    def delay_ms(self, number: int) -> int:
        return self.delays_ms[number % len(self.delays_ms)]


class Sender(asyncio.Protocol):
    """Sends every number until it is acknowledged."""

    def __init__(self, host: str, port: int, load: Load) -> None:
        self._place = (host, port)
        self._load = load
        self._template = SendTemplate("delays", load.topic, "broker-a", queue_count=QUEUES)
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._unanswered: set[int] = set()
        self._again: deque[int] = deque()
        self._next = 0
        self.asked_ms = array("q", bytes(8 * load.count))
        self.acknowledged = bytearray(load.count)
        self.acknowledged_count = 0
        self.repeated = 0  # sends whose answer did not come or was a refusal

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        allowance, looked = 0.0, loop.time()
        while self.acknowledged_count < self._load.count:
            if self._transport is None:
                await self._connect()
            now = loop.time()
            allowance = min(allowance + (now - looked) * self._pace(now), self._load.rate / 10)
            looked = now
            self._write(min(int(allowance), UNANSWERED_MAX - len(self._unanswered)))
            allowance -= int(allowance)
            await asyncio.sleep(TICK_S)
        assert self._transport is not None
        self._transport.close()

    def _pace(self, now: float) -> float:
        if self._next == 0:
            self._began = now
        behind = self._next < (now - self._began) * self._load.rate
        return self._load.rate * (CATCH_UP if behind else 1.0)

    async def _connect(self) -> None:
        while self._transport is None:
            with suppress(OSError):
                await asyncio.get_running_loop().create_connection(lambda: self, *self._place)
                return
            await asyncio.sleep(RETRY_S)

    def _write(self, count: int) -> None:
        numbers = [number for _ in range(count) if (number := self._take()) is not None]
        if not numbers or self._transport is None:
            return
        self._unanswered.update(numbers)
        self._transport.write(b"".join([self._frame(number) for number in numbers]))

    def _take(self) -> int | None:
        if self._again:
            return self._again.popleft()
        if self._next < self._load.count:
            self._next += 1
            return self._next - 1
        return None

    def _frame(self, number: int) -> bytes:
        now = now_ms()
        if not self.asked_ms[number]:
            self.asked_ms[number] = now
        properties = f"DELAY\x01{self._load.level(number)}\x02UNIQ_KEY\x01{number:032X}"
        return self._template.frame(number % QUEUES, 0, now, 0, properties, number, b"%d" % number)

    # -- protocol -------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.repeated += len(self._unanswered)
        self._again.extend(sorted(self._unanswered))
        self._unanswered.clear()

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        at = 0
        while len(received) - at >= 8:
            length, word = _WORDS.unpack_from(received, at)
            if len(received) - at < 4 + length:
                break
            header_end = at + 8 + (word & 0xFFFFFF)
            self._answered(_decode(received[at + 8 : header_end]))
            at += 4 + length
        del received[:at]

    def _answered(self, answer: _Answer) -> None:
        number = answer.opaque
        if number not in self._unanswered:
            return
        self._unanswered.discard(number)
        if answer.code != 0:
            self.repeated += 1
            self._again.append(number)
        elif not self.acknowledged[number]:
            self.acknowledged[number] = 1
            self.acknowledged_count += 1


@dataclass(slots=True)
class Copy:
    """A delivered copy: when the broker stored it, and when it arrived at the reader."""

    stored_ms: int
    arrived_ms: int


class Reader:
    """Reads all queues of a topic as they grow; survives the broker's absence."""

    def __init__(self, address: str, topic: str) -> None:
        self._address = address
        self._topic = topic
        self._client = RemotingClient()
        self._tasks: list[asyncio.Task[None]] = []
        self.copies: dict[int, list[Copy]] = {}

    def start(self) -> None:
        self._tasks = [asyncio.ensure_future(self._follow(queue_id)) for queue_id in range(QUEUES)]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()

    async def _follow(self, queue_id: int) -> None:
        offset = 0
        while True:
            try:
                offset, messages = await pull(self._client, self._address, self._topic, queue_id, offset)
            except (CometMQError, OSError):
                await asyncio.sleep(RETRY_S)
                continue
            if not messages:
                await asyncio.sleep(RETRY_S)  # the topic may not exist yet
            arrived_ms = now_ms()
            for message in messages:
                copy = Copy(message.store_timestamp_ms, arrived_ms)
                self.copies.setdefault(int(message.body), []).append(copy)


async def pull(
    client: RemotingClient, address: str, topic: str, queue_id: int, offset: int, *, hold: bool = True
) -> tuple[int, list[MessageExt]]:
    """The next messages of a queue and the offset after them."""
    header = PullMessageHeader(
        consumer_group="delays", topic=topic, queue_id=queue_id, queue_offset=offset, max_msg_nums=PULL_COUNT,
        sys_flag=SUSPEND_AND_SUBSCRIBE if hold else 4, commit_offset=0, suspend_timeout_millis=HOLD_MS,
        subscription="*", sub_version=0,
    )  # fmt: skip
    request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
    response = await client.invoke(address, request, HOLD_MS * 5)
    if response.code != 0:
        return offset, []
    return int((response.ext_fields or {})["nextBeginOffset"]), decode_records(response.body)


async def originals(address: str, load: Load) -> dict[int, list[int]]:
    """When each delayed message was stored to wait, by number: read from the schedule topic after the run."""
    client, found = RemotingClient(), dict[int, list[int]]()
    for queue_id in range(len(load.delays_ms)):
        offset = 0
        while True:
            offset, messages = await pull(
                client, address, "SCHEDULE_TOPIC_XXXX", queue_id, offset, hold=False
            )
            if not messages:
                break
            for message in messages:
                if message.properties["REAL_TOPIC"] == load.topic:
                    found.setdefault(int(message.body), []).append(message.store_timestamp_ms)
    await client.close()
    return found
