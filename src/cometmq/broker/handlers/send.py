"""SEND_MESSAGE (10), SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320): every rule of a send, readable.

``broker/plain_send_cy.py`` serves the plain ones faster and must give the same bytes; what it does not know
for certain comes here. The order of the checks is the original's, because the first failure answers.

The rules are small functions of their arguments: ``refuse_*`` answer a ``Refusal`` or None, ``choose_queue``,
``edit_properties``, ``answer_fields`` compute values; ``send_message`` puts them in order.
Event loop only.
"""

from __future__ import annotations

import logging
import random
import time
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from cometmq.broker.timers import TIMER_NAMES
from cometmq.broker.topics import NO_SEND_TOPICS, TOPIC_LENGTH_MAX, describe, name_problem
from cometmq.errors import RemoteProtocolError
from cometmq.protocol import properties as names
from cometmq.protocol.bodies.topic import MULTI_TAG, TopicConfig
from cometmq.protocol.codes import VERSION_3_4_9, RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import BadHeader, SendMessageHeader
from cometmq.protocol.limits import PROPERTIES_SIZE_MAX
from cometmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, UNIT_FLAG, UNIT_SUB_FLAG
from cometmq.protocol.properties import decode_properties, join_properties
from cometmq.protocol.record_cy import split_batch
from cometmq.protocol.sys_flag import MULTI_TAGS, TRANSACTION_MASK
from cometmq.store.model import BatchItem, PutResult, PutStatus, StoreBatch, StoreMessage

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker
    from cometmq.net.connection import Connection
    from cometmq.net.server import Handler

log = logging.getLogger(__name__)

FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
RECORD_SLACK_SIZE = 65536  # bytes that a record may have beyond maxMessageSize


class Refusal(NamedTuple):
    code: ResponseCode
    remark: str


class Send(NamedTuple):
    """A request that passed the checks."""

    connection: Connection
    command: RemotingCommand
    header: SendMessageHeader
    topic: TopicConfig
    queue_id: int
    began_ns: int


def handlers(broker: Broker) -> dict[int, Handler]:
    def send(connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        return send_message(broker, connection, command)

    return {
        RequestCode.SEND_MESSAGE: send,
        RequestCode.SEND_MESSAGE_V2: send,
        RequestCode.SEND_BATCH_MESSAGE: send,
    }


def send_message(broker: Broker, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
    """Check, store, answer; None when the answer follows later (sync flush, replication)."""
    began_ns = time.monotonic_ns()
    busy = broker.flow_control.refusal()
    if busy is not None:
        broker.flow_control.refused += 1
        return answer(broker, command, Refusal(ResponseCode.SYSTEM_BUSY, busy))
    try:
        header = SendMessageHeader.decode_any(command)
    except BadHeader as error:
        return answer(broker, command, refuse_header(error))
    checked = check(broker, header, connection.peer)
    if isinstance(checked, Refusal):
        return answer(broker, command, checked)
    queue_id = choose_queue(header.queue_id, checked)
    send = Send(connection, command, header, checked, queue_id, began_ns)
    return _send_batch(broker, send) if header.batch else _send_single(broker, send)


# -- checks before the message is looked at ------------------------------------------------------------------


def check(broker: Broker, header: SendMessageHeader, peer: str) -> Refusal | TopicConfig:
    """Steps 1 to 5: the topic's settings, or why not."""
    config = broker.config
    topic = header.topic
    now = broker.now_ms()
    if now < config.start_accept_send_request_time_stamp:
        return Refusal(ResponseCode.SYSTEM_ERROR, _not_yet(config.start_accept_send_request_time_stamp))
    found = broker.topics.find(topic)
    if not config.writable and found is not None and found.order:
        return Refusal(
            ResponseCode.NO_PERMISSION, f"the broker[{config.broker_ip1}] sending message is forbidden"
        )
    problem = name_problem(topic)
    if problem:
        return Refusal(ResponseCode.SYSTEM_ERROR, problem)
    if topic in NO_SEND_TOPICS:
        return Refusal(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
    found = found or create_topic(broker, header)
    if found is None:
        return Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!{FAQ}")
    return refuse_queue(header.queue_id, found, peer) or found


def _not_yet(timestamp_ms: int) -> str:
    until = datetime.fromtimestamp(timestamp_ms / 1000)
    return f"broker unable to service, until {until:%Y-%m-%d %H:%M:%S},{timestamp_ms % 1000:03d}"


def refuse_header(error: BadHeader) -> Refusal:
    """A request without a topic is one with a blank topic, as far as clients can tell."""
    blank = error.field in ("topic", "b") and error.value is None
    return Refusal(ResponseCode.SYSTEM_ERROR, (name_problem(None) if blank else None) or str(error))


def create_topic(broker: Broker, header: SendMessageHeader) -> TopicConfig | None:
    """Automatic creation: after the template the client names, or a retry topic."""
    retry = header.topic.startswith(RETRY_PREFIX)
    sys_flag = 0
    if header.unit_mode:
        sys_flag = UNIT_SUB_FLAG if retry else UNIT_FLAG
    created = broker.topics.create_by_send(
        header.topic,
        template=header.default_topic,
        queue_nums=header.default_topic_queue_nums,
        sys_flag=sys_flag,
    )
    if created is None and retry:
        created = broker.topics.find_or_create(header.topic, queue_nums=1, sys_flag=sys_flag)
    return created


def refuse_queue(queue_id: int, topic: TopicConfig, peer: str) -> Refusal | None:
    if queue_id < max(topic.write_queue_nums, topic.read_queue_nums):
        return None
    return Refusal(
        ResponseCode.SYSTEM_ERROR,
        f"request queueId[{queue_id}] is illegal, {describe(topic)} Producer: {peer}",
    )


def choose_queue(queue_id: int, topic: TopicConfig) -> int:
    """The queue asked for; any writable one when the client leaves it open."""
    if queue_id >= 0:
        return queue_id
    return random.randrange(max(topic.write_queue_nums, 1))


# -- one message ---------------------------------------------------------------------------------------------


def _send_single(broker: Broker, send: Send) -> RemotingCommand | None:
    command, header, topic = send.command, send.header, send.topic
    properties = decode_properties(header.properties or "")
    target = retry_target(broker, header, command.version, properties)
    if isinstance(target, Refusal):
        return answer(broker, command, target)
    properties[names.PROPERTY_CLUSTER] = broker.config.broker_cluster_name
    message = StoreMessage(
        topic=target or header.topic,
        queue_id=0 if target else send.queue_id,
        body=command.body,
        properties=stored_properties(properties),
        flag=header.flag,
        sys_flag=sys_flag_of(header.sys_flag, topic),
        born_timestamp_ms=header.born_timestamp,
        born_host=send.connection.born_host,
        store_host=broker.store_host,
        reconsume_times=header.reconsume_times or 0,
        wait_store_ok=wait_store_ok(properties),
    )
    refusal = divert(broker, message, properties) or refuse_size(broker, message)
    if refusal is not None:
        return answer(broker, command, refusal)
    result = broker.store.put(message)
    if result.ok and broker.plain_sends is not None and message.topic == topic.topic_name:
        broker.plain_sends.admit(topic)
    return _answer_put(broker, send, result, message.topic, message.wait_store_ok)


def retry_target(
    broker: Broker, header: SendMessageHeader, version: int, properties: dict[str, str]
) -> Refusal | str | None:
    """For a retry topic: the dead letter topic when the tries are used up. None: store where asked."""
    if not header.topic.startswith(RETRY_PREFIX):
        return None
    group = header.topic[len(RETRY_PREFIX) :]
    config = broker.groups.find(group)
    if config is None:
        return Refusal(
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group} {FAQ}"
        )
    tries_max = config.retry_max_times
    if version >= VERSION_3_4_9 and header.max_reconsume_times is not None:
        tries_max = header.max_reconsume_times
    if (header.reconsume_times or 0) < tries_max:
        return None
    for name in (names.PROPERTY_DELAY, *TIMER_NAMES):
        properties.pop(name, None)
    return broker.topics.find_or_create(DLQ_PREFIX + group, queue_nums=1).topic_name


def stored_properties(properties: dict[str, str]) -> bytes:
    """What a plain message keeps: all but WAIT, which only says how long to wait for the answer."""
    kept = {name: value for name, value in properties.items() if name != names.PROPERTY_WAIT}
    return join_properties(kept).encode("utf-8", "surrogatepass")


def wait_store_ok(properties: dict[str, str]) -> bool:
    wait = properties.get(names.PROPERTY_WAIT)
    return wait is None or wait.lower() == "true"


def sys_flag_of(sys_flag: int, topic: TopicConfig) -> int:
    return sys_flag | MULTI_TAGS if topic.topic_filter_type == MULTI_TAG else sys_flag


def divert(broker: Broker, message: StoreMessage, properties: dict[str, str]) -> Refusal | None:
    """Prepared messages go to the half topic, those that wait to the schedule or timer topic (all keep WAIT)."""
    problem = broker.timers.problem(properties)
    if problem:
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, problem)
    if properties.get(names.PROPERTY_TRANSACTION_PREPARED, "").lower() == "true":
        if broker.config.reject_transaction_message:
            return Refusal(
                ResponseCode.NO_PERMISSION,
                f"the broker[{broker.config.broker_ip1}] sending transaction message is forbidden",
            )
        broker.transactions.prepare(message, properties)
    elif not broker.delay.divert(message, properties):
        broker.timers.divert(message, properties)
    return None


def refuse_size(broker: Broker, message: StoreMessage) -> Refusal | None:
    body_size_max = broker.config.max_message_size
    if (
        len(message.body) > body_size_max
        or len(message.properties) > PROPERTIES_SIZE_MAX
        or len(message.topic) > TOPIC_LENGTH_MAX
    ):
        return illegal(body_size_max)
    return None


# -- a batch -------------------------------------------------------------------------------------------------


def _send_batch(broker: Broker, send: Send) -> RemotingCommand | None:
    command, header = send.command, send.header
    properties = decode_properties(header.properties or "")
    items = batch_items(command.body)
    shared = {**properties, names.PROPERTY_CLUSTER: broker.config.broker_cluster_name}
    shared_text = join_properties(shared).encode("utf-8", "surrogatepass")
    refusal = refuse_batch(broker, header, properties, items, len(command.body), len(shared_text))
    if refusal is not None:
        return answer(broker, command, refusal)
    batch = StoreBatch(
        topic=header.topic,
        queue_id=send.queue_id,
        items=items or [],
        properties=shared_text,
        sys_flag=sys_flag_of(header.sys_flag, send.topic),
        born_timestamp_ms=header.born_timestamp,
        born_host=send.connection.born_host,
        store_host=broker.store_host,
        reconsume_times=header.reconsume_times or 0,
        wait_store_ok=wait_store_ok(properties),
    )
    result = broker.store.put_batch(batch)
    if result.ok and broker.plain_sends is not None:
        broker.plain_sends.admit(send.topic)
    return _answer_put(broker, send, result, header.topic, batch.wait_store_ok)


def batch_items(body: bytes | bytearray | memoryview) -> list[BatchItem] | None:
    """The messages of a batch body; None when it cannot be read."""
    try:
        return [
            BatchItem(body=item.body, properties=item.properties, flag=item.flag)
            for item in split_batch(body)
        ]
    except RemoteProtocolError:
        return None


def refuse_batch(
    broker: Broker,
    header: SendMessageHeader,
    properties: dict[str, str],
    items: list[BatchItem] | None,
    body_size: int,
    shared_size: int,
) -> Refusal | None:
    if len(header.topic) > TOPIC_LENGTH_MAX:
        return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(header.topic)}")
    delayed = properties.get(names.PROPERTY_DELAY, "0") != "0" or any(
        name in properties for name in TIMER_NAMES
    )
    too_long = any(len(item.properties) + 1 + shared_size > PROPERTIES_SIZE_MAX for item in items or ())
    size_max = broker.config.max_message_size
    if not items or header.sys_flag & TRANSACTION_MASK or delayed or too_long or body_size > size_max:
        return illegal(size_max)
    return None


# -- answers -------------------------------------------------------------------------------------------------


def _answer_put(
    broker: Broker, send: Send, result: PutResult, topic: str, wait: bool
) -> RemotingCommand | None:
    command = send.command
    broker.flow_control.took(time.monotonic_ns() - send.began_ns)
    if not result.ok:
        broker.counters.puts_failed += 1
        return answer(broker, command, refusal_of(broker, result.status))
    count_put(broker, send, result, topic)
    response = command.response()
    response.ext_fields = answer_fields(broker, result, send.queue_id)
    if not broker.durability.must_wait(result, wait):
        broker.count_put_time((time.monotonic_ns() - send.began_ns) // 1_000)
        return response

    def settled(status: PutStatus) -> None:
        broker.count_put_time((time.monotonic_ns() - send.began_ns) // 1_000)
        response.code = int(STORED_CODES[status])
        if not command.is_oneway:
            send.connection.send(response)

    broker.durability.when_settled(result, settled)
    return None


def count_put(broker: Broker, send: Send, result: PutResult, topic: str) -> None:
    messages = max(len(result.offsets), 1)
    broker.counters.puts += messages
    broker.counters.put_bytes += result.size
    broker.stats.count_put(topic, send.queue_id, messages, result.size)


def answer(broker: Broker, command: RemotingCommand, refusal: Refusal) -> RemotingCommand:
    response = command.response(refusal.code, refusal.remark)
    response.ext_fields = region_fields(broker)
    if broker.group is not None and refusal.code is ResponseCode.SERVICE_NOT_AVAILABLE:
        response.ext_fields |= broker.group.hint()
    return response


def region_fields(broker: Broker) -> dict[str, str]:
    """What every answer to a send carries, errors too."""
    return {
        names.PROPERTY_TRACE_ON: "true" if broker.config.trace_on else "false",
        names.PROPERTY_MSG_REGION: broker.config.region_id,
    }


def answer_fields(broker: Broker, result: PutResult, queue_id: int) -> dict[str, str]:
    return {
        "queueId": str(queue_id),
        **region_fields(broker),
        "msgId": message_ids(broker.store_host, result),
        "queueOffset": str(result.queue_offset),
    }


def message_ids(store_host: bytes, result: PutResult) -> str:
    """Offset message ids: store host and physical offset in hex; those of a batch joined by commas."""
    host = store_host.hex().upper()
    return ",".join(f"{host}{offset:016X}" for offset in result.offsets or (result.physical_offset,))


STORED_CODES = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}

SYSTEM_ERROR_REMARKS = {
    PutStatus.CREATE_MAPPED_FILE_FAILED: "create mapped file failed, server is busy or broken.",
    PutStatus.OS_PAGECACHE_BUSY: "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
    PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: (
        "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]broker config enableLmq and enableMultiDispatch, lmq consumeQueue num "
        "exceed maxLmqConsumeQueueNum config num, default limit 2w."
    ),
}


def refusal_of(broker: Broker, status: PutStatus) -> Refusal:
    """The answer to a put that stored nothing."""
    if status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED):
        return illegal(broker.config.max_message_size)
    if status is PutStatus.SERVICE_NOT_AVAILABLE:
        return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, not_available(broker))
    return Refusal(ResponseCode.SYSTEM_ERROR, SYSTEM_ERROR_REMARKS.get(status, "UNKNOWN_ERROR"))


def illegal(body_size_max: int) -> Refusal:
    return Refusal(
        ResponseCode.MESSAGE_ILLEGAL,
        "the message is illegal, maybe msg body or properties length not matched. "
        f"msg body length limit {body_size_max}B, msg properties length limit 32KB.",
    )


def not_available(broker: Broker) -> str:
    log_ratio, queue_ratio, index_ratio = broker.disk_ratios()
    return (
        "service not available now. It may be caused by one of the following reasons: the broker's disk is full "
        f"[CL: {log_ratio:5.2f} CQ: {queue_ratio:5.2f} INDEX: {index_ratio:5.2f}], messages are put to the slave, "
        "message store has been shut down, etc."
    )
