"""The pull loop of one assigned queue: ask, put what came into the process queue, ask again.

One task per queue; it ends when the queue is dropped. It stops asking while too much of its queue is unfinished.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from cometmq.client import failover
from cometmq.client.broker_calls import PullAnswer
from cometmq.client.consumer.process_queue import ProcessQueue
from cometmq.client.message import ReceivedMessage
from cometmq.errors import BrokerError, ClientClosed, CometMQError
from cometmq.protocol import sys_flag as flags
from cometmq.protocol.bodies.heartbeat import SubscriptionData
from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.headers import PullMessageHeader
from cometmq.protocol.properties import PROPERTY_RETRY_TOPIC
from cometmq.protocol.record_cy import decode_records

if TYPE_CHECKING:
    from cometmq.client.consumer.member import Member

log = logging.getLogger(__name__)

SUSPEND_MS = 15_000
PULL_TIMEOUT_MS = 30_000
ERROR_PAUSE_S = 1.0
FLOW_CONTROL_PAUSE_S = 0.02
NOT_RUNNING_PAUSE_S = 1.0
ROOM_CHECK_S = 5.0
# Normal for a moment after start or rebalance: our heartbeat has not reached this broker yet.
HEARTBEAT_CODES = frozenset({ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST})


class PullLoop:
    """Pulls one queue for one consumer."""

    def __init__(self, consumer: Member, process_queue: ProcessQueue) -> None:
        self._consumer = consumer
        self._instance = consumer.instance
        self._pq = process_queue
        self._retry = process_queue.queue.topic == consumer.retry_topic

    async def run(self) -> None:
        pq, consumer = self._pq, self._consumer
        while not pq.dropped:
            pq.last_pull_ms = self._instance.now_ms()
            if consumer.is_paused(pq.queue):
                await asyncio.sleep(NOT_RUNNING_PAUSE_S)
            elif consumer.limits.full(pq):
                await self._wait_for_room()
            else:
                await self._step()

    async def _step(self) -> None:
        try:
            answer = await self._pull()
            if answer is not None and not self._pq.dropped:
                await self._take(answer)
        except BrokerError as error:
            await self._refused(error)
        except ClientClosed:
            self._pq.dropped = True
        except CometMQError as error:
            log.info("group=%s pull of %s failed: %s", self._consumer.group, self._pq.queue, error)
            await self._look_for_another_broker()

    async def _look_for_another_broker(self) -> None:
        """The connection is gone. Replicas can be read at once, and one of them may be master soon."""
        topic = self._pq.queue.topic
        self._instance.refresh_soon(topic)
        replicas = failover.possible(self._instance.routes, topic)
        await asyncio.sleep(ERROR_PAUSE_S / 10 if replicas else ERROR_PAUSE_S)

    async def _refused(self, error: BrokerError) -> None:
        if error.code == ResponseCode.FLOW_CONTROL:
            await asyncio.sleep(FLOW_CONTROL_PAUSE_S)
            return
        if error.code in HEARTBEAT_CODES:
            await self._instance.heartbeat()
            await asyncio.sleep(ERROR_PAUSE_S / 10)
            return
        log.warning("group=%s pull of %s was refused: %s", self._consumer.group, self._pq.queue, error)
        await asyncio.sleep(ERROR_PAUSE_S)

    async def _wait_for_room(self) -> None:
        self._pq.room = asyncio.Event()
        try:
            await asyncio.wait_for(self._pq.room.wait(), ROOM_CHECK_S)
        except TimeoutError:
            pass
        finally:
            self._pq.room = None

    async def _pull(self) -> PullAnswer | None:
        pq, consumer = self._pq, self._consumer
        queue = pq.queue
        subscription = consumer.subscriptions.get(queue.topic)
        if subscription is None:
            await asyncio.sleep(ERROR_PAUSE_S)
            return None
        address, slave = await self._instance.routes.reader_of(
            queue.broker_name, queue.topic, pq.suggested_broker_id
        )
        header = self._header(subscription, slave)
        return await self._instance.brokers.pull(address, header, PULL_TIMEOUT_MS)

    def _header(self, subscription: SubscriptionData, slave: bool) -> PullMessageHeader:
        pq, consumer = self._pq, self._consumer
        queue = pq.queue
        # A slave keeps no offsets, and broadcast groups keep theirs at home.
        commit = 0 if slave or not consumer.commits_with_pulls else max(0, consumer.offsets.get(queue))
        post = consumer.sends_subscription
        return PullMessageHeader(
            consumer_group=consumer.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=pq.next_pull_offset,
            max_msg_nums=consumer.pull_batch,
            sys_flag=consumer.pull_flags
            | (flags.PULL_COMMIT_OFFSET if commit else 0)
            | (flags.PULL_SUBSCRIPTION if post else 0),
            commit_offset=commit,
            suspend_timeout_millis=SUSPEND_MS,
            subscription=subscription.sub_string if post else None,
            sub_version=subscription.sub_version,
            expression_type=subscription.expression_type,
            broker_name=queue.broker_name,
        )

    async def _take(self, answer: PullAnswer) -> None:
        pq, consumer = self._pq, self._consumer
        pq.suggested_broker_id = answer.suggested_broker_id
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            await consumer.offset_moved(pq, answer.next_offset)
            return
        pq.next_pull_offset = answer.next_offset
        if answer.code != ResponseCode.SUCCESS:
            if not pq.count:
                consumer.offsets.update(pq.queue, answer.next_offset, increase_only=True)
            return
        messages = self._messages(answer)
        if messages:
            consumer.delivery.arrived(pq, messages)
            if consumer.pull_pause_s:
                await asyncio.sleep(consumer.pull_pause_s)

    def _messages(self, answer: PullAnswer) -> list[ReceivedMessage]:
        pq, consumer = self._pq, self._consumer
        records = decode_records(answer.body)
        consumer.rates.pulled(pq.queue.topic, len(records))
        made = []
        topic = consumer.plain_topic(pq.queue.topic)
        for record in consumer.subscriptions.wanted(pq.queue.topic, records):
            record.broker_name = pq.queue.broker_name
            message = ReceivedMessage(record, topic)
            message.process_queue = pq
            message._settler = consumer.settler
            if self._retry:
                origin = record.properties.get(PROPERTY_RETRY_TOPIC)
                if origin:
                    message.topic = consumer.plain_topic(origin)
            made.append(message)
        return pq.put(made)
