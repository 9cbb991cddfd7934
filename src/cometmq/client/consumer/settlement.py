"""What happens when a message is done or has failed, in each kind of consumption.

=============  =====================================  =========================================================
kind           done                                   failed
=============  =====================================  =========================================================
concurrent     offset moves as far as it can          sent back for later, or into the dead-letter topic
ordered        offset moves, next of the queue goes   its queue pauses, then the same message again
broadcast      offset moves as far as it can          logged, and done
=============  =====================================  =========================================================

Loop thread only.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cometmq.client.consumer.delivery import ConcurrentDelivery
from cometmq.client.consumer.options import UNLIMITED, clamp_suspend
from cometmq.client.consumer.process_queue import ProcessQueue
from cometmq.client.consumer.send_back import delay_level_of
from cometmq.client.message import ReceivedMessage
from cometmq.client.results import Reject, Retry
from cometmq.errors import CometMQError

if TYPE_CHECKING:
    from cometmq.client.consumer.push import Consumer

log = logging.getLogger(__name__)

SEND_BACK_AGAIN_S = 5.0


class Settlement(ABC):
    """Messages given together come from one queue."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def success(self, messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            if not message.finished:
                self._consumer.finish(message)

    @abstractmethod
    async def failure(self, messages: Sequence[ReceivedMessage], reason: BaseException) -> None: ...


class ConcurrentSettlement(Settlement):
    async def failure(self, messages: Sequence[ReceivedMessage], reason: BaseException) -> None:
        delay_level = delay_level_of(reason)
        for message in messages:
            held = message.process_queue
            if message.finished or held is None or held.dropped:
                continue  # given up meanwhile: whoever has the queue now delivers it
            try:
                await self._consumer.send_back(message, delay_level)
            except CometMQError as error:
                self._later(message, error)
                continue
            self._consumer.finish(message)

    def _later(self, message: ReceivedMessage, error: CometMQError) -> None:
        """No broker took it back: it stays here and is offered again."""
        log.warning("%s could not be sent back, it is delivered again here: %s", message, error)
        message.record.reconsume_times += 1
        delivery = self._consumer.delivery
        assert isinstance(delivery, ConcurrentDelivery)
        asyncio.get_running_loop().call_later(SEND_BACK_AGAIN_S, delivery.again, message)


class BroadcastSettlement(Settlement):
    async def failure(self, messages: Sequence[ReceivedMessage], reason: BaseException) -> None:
        for message in messages:
            log.warning("%s failed; broadcast consumers do not retry: %s", message, reason)
        self.success(messages)


class OrderlySettlement(Settlement):
    def success(self, messages: Sequence[ReceivedMessage]) -> None:
        super().success(messages)
        held = messages[0].process_queue
        if held is not None:
            self._consumer.delivery.settled(held)

    async def failure(self, messages: Sequence[ReceivedMessage], reason: BaseException) -> None:
        held = messages[0].process_queue
        if held is None:
            return
        if held.dropped:
            self._release(held)
            return
        left = [message for message in messages if not await self._gave_up(message, reason)]
        if not left:
            self._consumer.delivery.settled(held)
            return
        for message in left:
            message.record.reconsume_times += 1
        pause_s = self._consumer.options.suspend_s
        if isinstance(reason, Retry) and reason.seconds is not None:
            pause_s = clamp_suspend(reason.seconds)
        asyncio.get_running_loop().call_later(pause_s, self._release, held)

    def _release(self, held: ProcessQueue) -> None:
        self._consumer.delivery.settled(held)

    async def _gave_up(self, message: ReceivedMessage, reason: BaseException) -> bool:
        """Too many failures, or rejected: it leaves the queue for the dead-letter topic."""
        if self._consumer.options.broadcast:
            return False
        retries = self._consumer.options.retries
        rejected = isinstance(reason, Reject)
        if not rejected and (retries == UNLIMITED or message.reconsume_times < retries):
            return False
        try:
            if rejected:
                await self._consumer.send_back(message, delay_level_of(reason))
            else:
                await self._consumer.send_back.resend(message, message.reconsume_times)
        except CometMQError as error:
            log.warning("%s could not be given up, its queue waits: %s", message, error)
            return False
        self._consumer.finish(message)
        return True
