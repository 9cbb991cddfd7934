"""One attempt to send to one queue: over the short way where it fits, over the ordinary way where it does not.

The ordinary way is needed when the request must be signed or carries header fields that templates do not know. Loop
thread only.
"""

from __future__ import annotations

from cometmq.client.instance import Instance
from cometmq.client.outgoing import Outgoing
from cometmq.client.queue import Queue
from cometmq.client.results import SEND_STATUSES, SendResult
from cometmq.client.send_frames import DEFAULT_TOPIC, DEFAULT_TOPIC_QUEUE_COUNT, SendTemplate
from cometmq.client.send_pipe import SendAnswer, SendFields, answer_of
from cometmq.errors import BrokerError
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import SendMessageV2Header


class Sender:
    """Sends for one producer group."""

    def __init__(self, instance: Instance, group: str) -> None:
        self._instance = instance
        self.group = group
        self._signed = bool(instance.settings.access_key)
        self._templates: dict[tuple[str, str, bool, bool], SendTemplate] = {}

    async def once(self, queue: Queue, out: Outgoing, timeout_s: float, code: int = 0) -> SendResult:
        """One request, one answer. Raises BrokerError, Timeout or ConnectionLost."""
        address = self._instance.routes.master(queue.broker_name)
        if address is None:
            address = await self._instance.routes.master_of(queue.broker_name, queue.topic)
        if self._signed or out.reconsume_times is not None or code:
            answer = await self._ordinary(address, queue, out, timeout_s, code)
        else:
            pipe = await self._instance.send_pipe(address, int(timeout_s * 1000))
            opaque = pipe.next_opaque()
            template = self.template(queue, out.batch, oneway=False)
            pipe.write(
                template.frame(
                    queue.queue_id, out.sys_flag, out.born_ms, out.flag, out.properties, opaque, out.body
                )
            )
            answer = await pipe.expect(opaque, timeout_s)
        return self._result(queue, out, answer, address)

    async def oneway(self, queue: Queue, out: Outgoing, timeout_s: float) -> None:
        """Write the request; no answer will come."""
        address = await self._instance.routes.master_of(queue.broker_name, queue.topic)
        if self._signed or out.reconsume_times is not None:
            await self._instance.invoke_oneway(address, self.command(queue, out, oneway=True))
            return
        pipe = await self._instance.send_pipe(address, int(timeout_s * 1000))
        template = self.template(queue, out.batch, oneway=True)
        pipe.write(
            template.frame(
                queue.queue_id,
                out.sys_flag,
                out.born_ms,
                out.flag,
                out.properties,
                pipe.next_opaque(),
                out.body,
            )
        )

    def template(self, queue: Queue, batch: bool, oneway: bool) -> SendTemplate:
        key = (queue.topic, queue.broker_name, batch, oneway)
        template = self._templates.get(key)
        if template is None:
            template = self._templates[key] = SendTemplate(
                self.group,
                queue.topic,
                queue.broker_name,
                code=RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2,
                batch=batch,
                unit_mode=self._instance.settings.unit_mode,
                oneway=oneway,
            )
        return template

    def command(self, queue: Queue, out: Outgoing, *, oneway: bool = False, code: int = 0) -> RemotingCommand:
        """The same request as an ordinary command."""
        header = SendMessageV2Header(
            producer_group=self.group,
            topic=queue.topic,
            default_topic=DEFAULT_TOPIC,
            default_topic_queue_nums=DEFAULT_TOPIC_QUEUE_COUNT,
            queue_id=queue.queue_id,
            sys_flag=out.sys_flag,
            born_timestamp=out.born_ms,
            flag=out.flag,
            properties=out.properties,
            reconsume_times=out.reconsume_times or 0,
            unit_mode=self._instance.settings.unit_mode,
            max_reconsume_times=out.max_reconsume_times,
            batch=out.batch,
            broker_name=queue.broker_name,
        )
        code = code or (RequestCode.SEND_BATCH_MESSAGE if out.batch else RequestCode.SEND_MESSAGE_V2)
        return RemotingCommand.request(code, header, bytes(out.body), oneway=oneway)

    async def _ordinary(
        self, address: str, queue: Queue, out: Outgoing, timeout_s: float, code: int
    ) -> SendAnswer:
        command = self.command(queue, out, code=code)
        return answer_of(await self._instance.invoke(address, command, int(timeout_s * 1000)))

    def _result(self, queue: Queue, out: Outgoing, answer: SendAnswer, address: str) -> SendResult:
        if answer.extFields is not None and answer.extFields.masterAddr:
            self._instance.routes.know_master(queue.broker_name, answer.extFields.masterAddr)
        if self._instance.namespace:
            queue = Queue(self._instance.plain(queue.topic), queue.broker_name, queue.queue_id)
        return result_of(answer, queue, out.unique_id, address)


def result_of(answer: SendAnswer, queue: Queue, unique_id: str, address: str) -> SendResult:
    """What the application gets for an answer; BrokerError if the message was not stored."""
    status = SEND_STATUSES.get(answer.code)
    if status is None:
        raise BrokerError(answer.code, answer.remark, address)
    fields = answer.extFields or SendFields()
    if fields.queueId != queue.queue_id:
        queue = Queue(queue.topic, queue.broker_name, fields.queueId)
    return SendResult(
        unique_id,
        queue,
        fields.queueOffset,
        status,
        fields.msgId,
        fields.MSG_REGION,
        fields.TRACE_ON != "false",
    )
