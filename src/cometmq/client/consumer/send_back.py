"""Failed messages: back to the broker for a later delivery, or into the dead-letter topic.

The broker makes the copy itself (CONSUMER_SEND_MSG_BACK). If it refuses or cannot be reached, the message is
sent to the retry topic as a new message by the client's inner producer. Loop thread only.
"""

from __future__ import annotations

import logging

from cometmq.client.consumer.options import RETRIES_DEFAULT, UNLIMITED
from cometmq.client.instance import INNER_PRODUCER, Instance
from cometmq.client.message import ReceivedMessage
from cometmq.client.namespace import retry_topic
from cometmq.client.outgoing import Outbox
from cometmq.client.results import Reject, Retry
from cometmq.client.sender import Sender
from cometmq.errors import CometMQError
from cometmq.protocol.headers import ConsumerSendMsgBackHeader
from cometmq.protocol.message import Message
from cometmq.protocol.properties import (
    PROPERTY_DELAY,
    PROPERTY_MAX_RECONSUME_TIMES,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RECONSUME_TIME,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQ_KEY,
)

log = logging.getLogger(__name__)

DELAY_LEVEL_OFFSET = 3  # the first retry waits as level 3 says (10 s), each further one a level longer
DEAD_LETTER_LEVEL = -1
RESEND_TIMEOUT_S = 5.0


def delay_level_of(reason: BaseException) -> int:
    """What an exception says about the delay: 0 the broker decides, -1 dead letter."""
    if isinstance(reason, Reject):
        return DEAD_LETTER_LEVEL
    return reason.delay_level if isinstance(reason, Retry) else 0


class SendBack:
    """Sends failed messages of one group back. ``group`` is the wire name."""

    def __init__(self, instance: Instance, group: str, retries: int) -> None:
        self._instance = instance
        self._group = group
        self._retries = retries
        self._sender = Sender(instance, INNER_PRODUCER)
        self._outbox = Outbox(instance.settings, instance.unique_ids)

    async def __call__(self, message: ReceivedMessage, delay_level: int) -> None:
        """Raises if neither way worked."""
        record = message.record
        header = ConsumerSendMsgBackHeader(
            offset=record.physical_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.msg_id,
            origin_topic=self._instance.wire(message.topic),
            unit_mode=self._instance.settings.unit_mode,
            max_reconsume_times=RETRIES_DEFAULT if self._retries == UNLIMITED else self._retries,
            broker_name=record.broker_name,
        )
        try:
            address = await self._instance.routes.master_of(record.broker_name, record.topic)
            await self._instance.brokers.send_back(address, header)
        except CometMQError as error:
            log.warning("group=%s %s is sent again as a new message: %s", self._group, message, error)
            times = message.reconsume_times
            await self.resend(message, times + 1, delay_level)

    async def resend(self, message: ReceivedMessage, times: int, delay_level: int = 0) -> None:
        """Send a copy to the retry topic as a new message; above the limit the broker makes it a dead letter."""
        limit = RETRIES_DEFAULT if self._retries == UNLIMITED else self._retries
        if delay_level == DEAD_LETTER_LEVEL:
            times = limit
        properties = dict(message.properties)
        properties.pop(PROPERTY_TRANSACTION_PREPARED, None)
        properties.setdefault(PROPERTY_RETRY_TOPIC, self._instance.wire(message.topic))
        properties.setdefault(PROPERTY_ORIGIN_MESSAGE_ID, message.offset_msg_id)
        properties[PROPERTY_RECONSUME_TIME] = str(times)
        properties[PROPERTY_MAX_RECONSUME_TIMES] = str(limit)
        properties[PROPERTY_DELAY] = str(delay_level if delay_level > 0 else DELAY_LEVEL_OFFSET + times)
        properties.setdefault(PROPERTY_UNIQ_KEY, message.msg_id)
        copy = Message(retry_topic(self._group), message.body, flag=message.flag)
        copy.properties = properties
        out = self._outbox.prepare(copy, copy.topic, self._instance.now_ms())
        route = await self._instance.routes.for_sending(copy.topic)
        await self._sender.once(route.turn.next(route.write_queues), out, RESEND_TIMEOUT_S)
