"""What a running consumer tells tools about itself (requests 221, 307, 309). Reads, and changes nothing."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

from cometmq.client.consumer.options import ConsumerOptions
from cometmq.client.consumer.process_queue import ProcessQueue
from cometmq.client.message import ReceivedMessage
from cometmq.client.results import Disposition
from cometmq.client.settings import milliseconds, seconds
from cometmq.protocol.bodies.heartbeat import CONSUME_PASSIVELY
from cometmq.protocol.bodies.running_info import (
    CR_LATER,
    CR_SUCCESS,
    CR_THROW_EXCEPTION,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ProcessQueueInfo,
)
from cometmq.protocol.codes import VERSION, version_name
from cometmq.protocol.message import MessageQueue
from cometmq.protocol.record_cy import decode_records

if TYPE_CHECKING:
    from cometmq.client.consumer.push import Consumer

MIB = 1024 * 1024


def consumer_status(consumer: Consumer, topic: str) -> dict[MessageQueue, int]:
    """Committed offsets of one topic, by queue."""
    return {queue: max(0, consumer.offsets.get(queue)) for queue in consumer.queues if queue.topic == topic}


def running_info(consumer: Any, *, stacks: bool) -> ConsumerRunningInfo:
    """Of a push consumer everything, of a stream only its settings and subscriptions, as Java does."""
    data = consumer.heartbeat_data()
    info = ConsumerRunningInfo(
        properties=_properties(consumer),
        subscription_set=sorted(data.subscription_data_set, key=lambda one: f"{one.topic}@{one.sub_string}"),
        jstack=_stacks() if stacks else None,
    )
    if data.consume_type == CONSUME_PASSIVELY:
        info.mq_table = {
            queue: _queue_info(consumer, consumer.queues[queue]) for queue in sorted(consumer.queues)
        }
        info.status_table = consumer.rates.table()
    return info


def _properties(consumer: Any) -> dict[str, str]:
    data = consumer.heartbeat_data()
    instance = consumer.instance
    properties = {
        "PROP_NAMESERVER_ADDR": "".join(f"{one};" for one in instance.name_servers.addresses),
        "PROP_CONSUME_TYPE": data.consume_type,
        "PROP_CLIENT_VERSION": version_name(VERSION),
        "PROP_CONSUMER_START_TIMESTAMP": str(consumer.started_ms),
        "consumerGroup": data.group_name,
        "messageModel": data.message_model,
        "consumeFromWhere": data.consume_from_where,
    }
    options = getattr(consumer, "options", None)
    if isinstance(options, ConsumerOptions):
        properties.update(_option_properties(options))
    return properties


def _option_properties(options: ConsumerOptions) -> dict[str, str]:
    """Under the names of the Java settings, which tools show."""
    return {
        "PROP_CONSUMEORDERLY": "true" if options.ordered else "false",
        "PROP_THREADPOOL_CORE_SIZE": str(options.concurrency),
        "consumeThreadMin": str(options.concurrency),
        "consumeThreadMax": str(options.concurrency),
        "pullBatchSize": str(options.pull_batch),
        "pullInterval": str(milliseconds(options.pull_interval)),
        "pullThresholdForQueue": str(options.queue_messages_max),
        "pullThresholdSizeForQueue": str(options.queue_bytes_max // MIB),
        "pullThresholdForTopic": str(options.topic_messages_max or -1),
        "consumeConcurrentlyMaxSpan": str(options.span_max),
        "consumeMessageBatchMaxSize": str(options.batch),
        "maxReconsumeTimes": str(-1 if options.max_retries is None else options.max_retries),
        "suspendCurrentQueueTimeMillis": str(milliseconds(options.suspend_time)),
        "consumeTimeout": str(round(seconds(options.consume_timeout) / 60)),
        "allocateMessageQueueStrategy": options.allocation.name,
    }


def _queue_info(consumer: Consumer, held: ProcessQueue) -> ProcessQueueInfo:
    messages = held.messages
    return ProcessQueueInfo(
        commit_offset=max(0, consumer.offsets.get(held.queue)),
        cached_msg_count=held.count,
        cached_msg_min_offset=messages[0].offset if messages else 0,
        cached_msg_max_offset=messages[-1].offset if messages else 0,
        cached_msg_size_in_mib=held.size_bytes // MIB,
        locked=held.locked if consumer.options.ordered else True,
        try_unlock_times=held.unlock_tries,
        last_lock_timestamp=held.last_lock_ms,
        dropped=held.dropped,
        last_pull_timestamp=held.last_pull_ms,
        last_consume_timestamp=held.last_consume_ms,
    )


def _stacks() -> str:
    """Where every thread and every task of this loop stands."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"thread {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}")
    for task in asyncio.all_tasks():
        frames = "".join(f"  {one.f_code.co_filename}:{one.f_lineno}\n" for one in task.get_stack())
        parts.append(f"task {task.get_name()}\n{frames}")
    return "\n".join(parts)


async def consume_directly(
    consumer: Consumer, record: bytes, broker_name: str
) -> ConsumeMessageDirectlyResult:
    """Give one message to the handler now; offsets are not touched."""
    result = ConsumeMessageDirectlyResult(order=consumer.options.ordered)
    records = decode_records(record)
    if consumer.workers is None or not records:
        result.consume_result = CR_LATER
        result.remark = "this consumer has no handler: it iterates"
        return result
    records[0].broker_name = broker_name
    message = ReceivedMessage(records[0], consumer.plain_topic(records[0].topic))
    message._settler = consumer
    started = time.monotonic()
    try:
        await consumer.workers.call([message])
        result.consume_result = CR_SUCCESS
    except Disposition as error:
        result.consume_result, result.remark = CR_LATER, str(error)
    except Exception as error:  # noqa: BLE001 - whatever the handler raises is the answer
        result.consume_result, result.remark = CR_THROW_EXCEPTION, repr(error)
    result.spent_time_mills = round((time.monotonic() - started) * 1000)
    return result
