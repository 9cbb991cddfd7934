"""Clients of a group under test: they send, read, commit positions and ask for locks, and write down what happened.

Raw requests, one attempt per operation, so that every outcome is known for what it is: ``ok``, ``fail`` (surely not
appended) or ``info`` (nobody knows). They find the master as clients do, in the route of the NameServer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import msgspec
from ha.history import History, boot_ns

from cometmq.controller.wire import ControllerCode
from cometmq.errors import ConnectionLost, Timeout
from cometmq.net.client import RemotingClient
from cometmq.net.config import NetConfig
from cometmq.protocol.bodies.locks import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from cometmq.protocol.bodies.route import TopicRouteData
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import (
    CreateTopicHeader,
    GetRouteInfoHeader,
    PullMessageHeader,
    QueryConsumerOffsetHeader,
    QueryMessageHeader,
    SendMessageV2Header,
    UpdateConsumerOffsetHeader,
)
from cometmq.protocol.message import MessageExt, MessageQueue
from cometmq.protocol.record_cy import decode_records
from cometmq.testing.group_processes import GroupProcesses

TOPIC = "Orders"
CONSUMER_GROUP = "readers"
LOCK_GROUP = "orderly"
SEND_MS = 4_000  # longer than slaveTimeout
PULL_MS = 3_000
ROUTE_MS = 500
RETRY_S = 0.02
LOCK_TRUST_NS = 30_000_000_000  # as long a client of 4.9 believes in a lock
MASTER_ID = 0
NS_PER_MS = 1_000_000


class Workload:
    def __init__(
        self,
        group: GroupProcesses,
        history: History,
        *,
        producers: int = 4,
        queues: int = 8,
        consumers: int = 4,
        size: int = 1024,
        level: str = "insync",
    ) -> None:
        self.group = group
        self.history = history
        self.queues = queues
        self.level = level
        self.acknowledged = 0
        self.problems: list[str] = []
        self.watch_leases = True  # a planned switch ends a lease early, which the history cannot say
        self.positions: dict[int, int] = {}
        self.sent: set[str] = set()  # keys that were acknowledged
        self._size = size
        self._producers = producers
        self._consumers = consumers
        self._master = ""
        self._client = RemotingClient(config=NetConfig(connect_timeout_millis=ROUTE_MS))
        self._sending = asyncio.Event()
        self._stopped = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._looking: asyncio.Task[None] | None = None

    # -- life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        await self._create_topic()
        self._sending.set()
        work: list[Coroutine[Any, Any, None]] = [self._produce(n) for n in range(self._producers)]
        work += [self._consume(n) for n in range(self._consumers)]
        work += [self._watch(), self._ask_for_lock("holder", 0.1), self._ask_for_lock("rival", 0.15)]
        self._tasks = [asyncio.create_task(one) for one in work]

    async def stop_sending(self) -> None:
        self._sending.clear()
        await asyncio.gather(*self._tasks[: self._producers])

    async def close(self) -> None:
        self._sending.clear()
        self._stopped.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close(grace_ms=100)

    async def more(self, count: int) -> None:
        """Wait until so many more sends were acknowledged."""
        wanted = self.acknowledged + count
        async with asyncio.timeout(60):
            while self.acknowledged < wanted:
                self._raise_failed()
                await asyncio.sleep(RETRY_S)

    def _raise_failed(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    # -- finding the master ---------------------------------------------------------------------------------------

    async def _find_master(self, not_this: str = "") -> str:
        """Shared by all; ``not_this`` did not answer well."""
        if self._master and self._master != not_this:
            return self._master
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        await asyncio.shield(self._looking)
        return self._master

    async def _look(self) -> None:
        header = GetRouteInfoHeader(topic=TOPIC)
        command = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        found = ""
        with contextlib.suppress(ConnectionLost, Timeout):
            answer = await self._client.invoke(self.group.name_server, command, ROUTE_MS)
            if answer.code == 0:
                route = TopicRouteData.decode(answer.body)
                found = next((b.broker_addrs.get(MASTER_ID, "") for b in route.broker_datas), "")
        if not found or found == self._master:
            await asyncio.sleep(RETRY_S)
        self._master = found

    async def _create_topic(self) -> None:
        header = CreateTopicHeader(
            topic=TOPIC,
            default_topic="TBW102",
            read_queue_nums=self.queues,
            write_queue_nums=self.queues,
            perm=6,
            topic_filter_type="SINGLE_TAG",
        )
        async with asyncio.timeout(30):
            while True:
                for number in self.group.ids:
                    command = RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
                    with contextlib.suppress(ConnectionLost, Timeout):
                        await self._client.invoke(self.group.address(number), command, SEND_MS)
                if await self._find_master():
                    return

    # -- sends ----------------------------------------------------------------------------------------------------

    async def _produce(self, number: int) -> None:
        name = f"producer-{number}"
        seq = 0
        while self._sending.is_set():
            address = await self._find_master()
            if not address:
                await asyncio.sleep(RETRY_S)
                continue
            seq += 1
            if not await self._send(name, seq, address):
                await asyncio.sleep(RETRY_S)

    async def _send(self, name: str, seq: int, address: str) -> bool:
        key, queue = f"{name}-{seq}", seq % self.queues
        known: dict[str, Any] = {"topic": TOPIC, "key": key, "seq": seq, "level": self.level}
        header = SendMessageV2Header(
            topic=TOPIC,
            producer_group="producers",
            default_topic="TBW102",
            default_topic_queue_nums=self.queues,
            queue_id=queue,
            sys_flag=0,
            born_timestamp=0,
            flag=0,
            properties=f"KEYS\x01{key}",
        )
        body = key.encode().ljust(self._size, b".")
        self.history.add(name, "send", "invoke", **known)
        try:
            answer = await self._client.invoke(
                address, RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, body), SEND_MS
            )
        except (ConnectionLost, Timeout):
            self.history.add(name, "send", "info", **known)
            await self._find_master(not_this=address)
            return False
        if answer.code in (ResponseCode.SUCCESS, ResponseCode.SLAVE_NOT_AVAILABLE):
            if answer.code:
                known["level"] = "alone"  # stored, and the answer says that there is no other copy
            fields = answer.ext_fields or {}
            place = {"queue": int(fields["queueId"]), "offset": int(fields["queueOffset"])}
            self.history.add(name, "send", "ok", **known, **place)
            self.acknowledged += 1
            self.sent.add(key)
            return True
        refused = answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        self.history.add(name, "send", "fail" if refused else "info", value=str(answer.code), **known)
        if refused:
            await self._find_master(not_this=address)
        return False

    # -- reads ----------------------------------------------------------------------------------------------------

    async def _consume(self, number: int) -> None:
        """A consumer of some of the queues; it goes to the master, as consumers do."""
        name = f"consumer-{number}"
        mine = range(number, self.queues, self._consumers)
        for queue in mine:
            self.positions[queue] = 0
        while not self._stopped.is_set():
            address = await self._find_master()
            moved = False
            for queue in mine if address else ():
                read = await self._read(
                    name, queue, self.positions[queue], address, seek=self.positions[queue] == 0
                )
                moved = moved or bool(read)
                self.positions[queue] += len(read)
                if read:
                    await self._commit(name, queue, address)
            if not moved:
                await asyncio.sleep(RETRY_S)

    async def _read(
        self, name: str, queue: int, offset: int, address: str, *, seek: bool = False, final: bool = False
    ) -> list[MessageExt]:
        header = PullMessageHeader(
            topic=TOPIC,
            consumer_group=CONSUMER_GROUP,
            queue_id=queue,
            queue_offset=offset,
            max_msg_nums=256,
            sys_flag=4,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        try:
            answer = await self._client.invoke(
                address, RemotingCommand.request(RequestCode.PULL_MESSAGE, header), PULL_MS
            )
        except (ConnectionLost, Timeout):
            if not final:
                await self._find_master(not_this=address)
            return []
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            self.problems.append(f"{name}: offset {offset} of queue {queue} was moved: {answer.ext_fields}")
        if answer.code != ResponseCode.SUCCESS:
            return []
        found = decode_records(answer.body)
        replica = self.group.id_of(address)
        for message in found:
            self.history.add(
                name,
                "read",
                topic=TOPIC,
                queue=queue,
                offset=message.queue_offset,
                key=message.keys[0],
                replica=replica,
                seek=seek,
                final=final,
            )
            seek = False
        return found

    async def caught_up(self) -> None:
        """Wait until the consumers are at the ends of all queues."""
        async with asyncio.timeout(60):
            while True:
                before = dict(self.positions)
                self._raise_failed()
                await asyncio.sleep(10 * RETRY_S)
                if before == self.positions:
                    return

    async def drain(self) -> None:
        """Read everything of every replica."""
        for number in self.group.ids:
            await self.read_all(number, final=True)

    async def read_all(self, number: int, *, final: bool = False) -> None:
        """Everything that one replica has."""
        name = f"drain-{number}" if final else f"reader-{number}"
        for queue in range(self.queues):
            offset = 0
            while found := await self._read(
                name, queue, offset, self.group.address(number), seek=offset == 0, final=final
            ):
                offset += len(found)

    async def query(self, number: int, key: str, timeout_ms: int) -> list[str]:
        """Keys of the messages that one replica finds by its index."""
        header = QueryMessageHeader(topic=TOPIC, key=key, max_num=32, begin_timestamp=0, end_timestamp=2**62)
        command = RemotingCommand.request(RequestCode.QUERY_MESSAGE, header)
        answer = await self._client.invoke(self.group.address(number), command, timeout_ms)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return [message.keys[0] for message in decode_records(answer.body)]

    # -- positions and locks --------------------------------------------------------------------------------------

    async def _commit(self, name: str, queue: int, address: str) -> None:
        where = {"group": CONSUMER_GROUP, "topic": TOPIC, "queue": queue, "offset": self.positions[queue]}
        header = UpdateConsumerOffsetHeader(
            consumer_group=CONSUMER_GROUP, topic=TOPIC, queue_id=queue, commit_offset=self.positions[queue]
        )
        command = RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        with contextlib.suppress(ConnectionLost, Timeout):
            answer = await self._client.invoke(address, command, ROUTE_MS)
            if answer.code == 0:
                self.history.add(name, "commit", **where)

    async def look_at_positions(self) -> None:
        """After a failover: where would a consumer that starts now go on?"""
        address = await self._find_master()
        for queue in range(self.queues):
            header = QueryConsumerOffsetHeader(consumer_group=CONSUMER_GROUP, topic=TOPIC, queue_id=queue)
            command = RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
            with contextlib.suppress(ConnectionLost, Timeout):
                answer = await self._client.invoke(address, command, ROUTE_MS)
                if answer.code == 0:
                    offset = int((answer.ext_fields or {})["offset"])
                    self.history.add(
                        "operator", "committed", group=CONSUMER_GROUP, topic=TOPIC, queue=queue, offset=offset
                    )

    async def _ask_for_lock(self, name: str, pause_s: float) -> None:
        """Two clients want the same queue all the time; the first gives it back now and then."""
        queue = MessageQueue(TOPIC, self.group.name, 0)
        turns = 0
        while not self._stopped.is_set():
            await asyncio.sleep(pause_s)
            address = await self._find_master()
            body = LockBatchRequestBody(client_id=name, consumer_group=LOCK_GROUP, mq_set=[queue]).encode()
            asked = boot_ns()
            answer = await self.ask(address, RemotingCommand.request(RequestCode.LOCK_BATCH_MQ, body=body))
            if answer is None or answer.code != 0:
                continue
            if not LockBatchResponseBody.decode(answer.body).lock_ok_mq_set:
                continue
            turns += 1
            where = {"group": LOCK_GROUP, "topic": TOPIC, "queue": 0}
            self.history.add(name, "lock", **where, until=asked + LOCK_TRUST_NS)
            if turns % 20 == 0:
                self.history.add(
                    name, "unlock", **where
                )  # before it is asked for: it may be done without an answer
                body = UnlockBatchRequestBody(
                    client_id=name, consumer_group=LOCK_GROUP, mq_set=[queue]
                ).encode()
                await self.ask(address, RemotingCommand.request(RequestCode.UNLOCK_BATCH_MQ, body=body))

    async def ask(self, address: str, command: RemotingCommand) -> RemotingCommand | None:
        if address:
            with contextlib.suppress(ConnectionLost, Timeout):
                return await self._client.invoke(address, command, ROUTE_MS)
        return None

    # -- what the brokers say ---------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Leases and confirmed offsets as the replicas report them."""
        epoch = 0
        while not self._stopped.is_set():
            for number in self.group.ids:
                status = await self._status(number)
                if status is None or status["role"] != "MASTER":
                    continue
                if status["epoch"] >= epoch and status["standing"] == "SERVING":
                    epoch = status["epoch"]
                    self.history.add(
                        "watch",
                        "confirm",
                        group=self.group.name,
                        offset=status["confirmOffset"],
                        t=status["asked"],
                    )
                until = status["leaseUntil"] * NS_PER_MS
                if self.watch_leases and until > (answered := boot_ns()):
                    self.history.add(
                        "watch", "lease", group=self.group.name, replica=number, t=answered, until=until
                    )
            await asyncio.sleep(RETRY_S)

    async def _status(self, number: int) -> dict[str, Any] | None:
        asked = boot_ns()
        answer = await self.ask(self.group.address(number), RemotingCommand.request(ControllerCode.HA_STATUS))
        if answer is None or answer.code != 0:
            return None
        found: dict[str, Any] = msgspec.json.decode(answer.body)
        found["asked"] = asked
        return found
