"""Frames from templates say exactly what an ordinary command says."""

from __future__ import annotations

import asyncio
import json

import pytest

from cometmq import Client, Message, Queue
from cometmq.client.outgoing import Outbox
from cometmq.client.send_frames import SendTemplate, properties_text
from cometmq.client.sender import Sender
from cometmq.protocol.command import decode_frame
from cometmq.protocol.properties import decode_properties

MESSAGES = [
    Message("T", b"x"),
    Message("T", b"x" * 2000, tag="a", keys=["k 1", "k2"], flag=7, delay_level=3),
    Message(
        "T", b"x", properties={"quote": 'say "hi" \\ there', "uni": "grün 中文 \U0001f600", "%d": "%s %b"}
    ),
    Message("T", b"x", wait_store_ok=False),
]


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("group", ["p", "100%d", 'odd"group'])
def test_a_frame_from_a_template_equals_the_encoded_command(message: Message, group: str) -> None:
    async def main() -> None:
        instance = Client("127.0.0.1:1").instance
        out = Outbox(instance.settings, instance.unique_ids).prepare(message, "T", 1_700_000_000_123)
        queue = Queue("T", "broker-a", 3)
        sender = Sender(instance, group)
        command = sender.command(queue, out)
        command.opaque = 42
        frame = sender.template(queue, batch=False, oneway=False).frame(
            queue.queue_id, out.sys_flag, out.born_ms, out.flag, out.properties, 42, out.body
        )
        assert decode_frame(frame) == decode_frame(command.encode())
        assert json.loads(frame[8 : -len(message.body)]) == json.loads(
            command.encode()[8 : -len(message.body)]
        )

    asyncio.run(main())


@pytest.mark.parametrize("message", MESSAGES)
def test_properties_carry_id_and_wait_switch(message: Message) -> None:
    found = decode_properties(properties_text(message, "ID"))
    assert found == {"WAIT": "true", **message.properties, "UNIQ_KEY": "ID"}


def test_the_head_of_a_template_ends_where_the_time_begins() -> None:
    template = SendTemplate("p", "T", "b")
    frame = template.frame(3, 0, 99, 0, "", 1, b"x")
    assert frame[8:].startswith(template.head_of(3) + b"99")


@pytest.mark.parametrize("message", MESSAGES)
async def test_the_plain_way_and_the_ordinary_way_store_the_same(
    cometmq_client: Client, topic: str, message: Message
) -> None:
    await cometmq_client.admin.create_topic(topic, queues=1)
    producer = cometmq_client.producer("p")
    message = message.copy()
    message.topic = topic
    message.delay_level = 0
    queue = (await producer.queues(topic))[0]
    await producer.send(message)  # ordinary: nothing is prepared yet
    assert producer.plain is not None
    assert topic in producer.plain._ready
    await producer.send(message)  # plain
    await producer.send(message, queue=queue)  # ordinary
    found = []
    while len(found) < 3:
        found, _ = await cometmq_client.admin.read(queue, 0)

    def comparable(one: object) -> object:
        record = one.record  # type: ignore[attr-defined]
        properties = {name: value for name, value in record.properties.items() if name != "UNIQ_KEY"}
        return properties, record.body, record.flag, record.sys_flag, record.topic, record.queue_id

    assert comparable(found[0]) == comparable(found[1]) == comparable(found[2])
    assert len({one.msg_id for one in found}) == 3
