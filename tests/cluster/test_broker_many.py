"""Many connections at once: their sends are committed together, and each gets the answers to its own."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from twins import load_twin
from wire_client import SUBSCRIPTION, WireClient, pull_header, running_broker, send_header

from cometmq.broker.topics import OFFSET_MOVED_EVENT
from cometmq.net import server
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand, decode_frame
from cometmq.protocol.message import MessageExt
from cometmq.protocol.record_cy import decode_records

CONNECTIONS = 40  # more than share a commit
FRAMES = 60
QUEUES = 4


def plain_send(opaque: int, queue_id: int, body: bytes) -> bytes:
    header = send_header("TopicA", queue_id=queue_id, properties="WAIT\x01true\x02")
    command = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, body=body)
    command.opaque = opaque
    return command.encode()


def other_request(opaque: int) -> bytes:
    command = RemotingCommand.request(RequestCode.GET_MAX_OFFSET)
    command.ext_fields = {"topic": "TopicA", "queueId": "0"}
    command.opaque = opaque
    return command.encode()


def illegal_pull(opaque: int) -> bytes:
    """The broker leaves a message about it: something is appended between the sends of others."""
    header = pull_header("TopicA", 1_000_000, sys_flag=SUBSCRIPTION)
    command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
    command.opaque = opaque
    return command.encode()


async def talk(address: str, number: int) -> list[RemotingCommand]:
    """Send frames of both kinds, cut anywhere; the answers."""
    chance = random.Random(number)
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    data = b"".join(
        chance.choice((other_request, illegal_pull))(opaque)
        if chance.random() < 0.1
        else plain_send(opaque, chance.randrange(QUEUES), f"{number}/{opaque}".encode())
        for opaque in range(FRAMES)
    )
    while data:
        size = chance.randrange(1, 3000)
        writer.write(data[:size])
        data = data[size:]
        await asyncio.sleep(0)
    answers = []
    for _ in range(FRAMES):
        length = await reader.readexactly(4)
        answers.append(decode_frame(length + await reader.readexactly(int.from_bytes(length, "big"))))
    writer.close()
    await writer.wait_closed()
    return answers


@pytest.mark.parametrize("kind", ["pump", "source", "loop"])
def test_everyone_is_answered_and_everything_is_stored_once(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind != "pump":
        twin = load_twin("cometmq.net.pump_cy", "py").Pump if kind == "source" else None
        monkeypatch.setattr(server, "Pump", twin)

    async def main() -> None:
        async with running_broker(tmp_path) as (broker, client):
            await client.send("TopicA", b"first")  # makes the topic known
            talks = [talk(client.address, number) for number in range(CONNECTIONS)]
            everything = await asyncio.wait_for(asyncio.gather(*talks), 60)
            stored = []
            for answers in everything:
                assert sorted(answer.opaque for answer in answers) == list(range(FRAMES))
                assert {answer.code for answer in answers} <= {0, ResponseCode.PULL_OFFSET_MOVED}
                stored += [a.ext_fields["msgId"] for a in answers if a.ext_fields and "msgId" in a.ext_fields]
            assert len(set(stored)) == len(stored)
            assert sorted(stored) == sorted(await message_ids(client))
            moved = [a for answers in everything for a in answers if a.code == ResponseCode.PULL_OFFSET_MOVED]
            assert broker.store.max_offset(OFFSET_MOVED_EVENT, 0) == len(moved) > 0

    run(main())


async def available(client: WireClient, queue_id: int, offset: int) -> list[MessageExt]:
    response = await client.pull("TopicA", offset, queue_id=queue_id, sys_flag=SUBSCRIPTION)
    return decode_records(response.body) if response.code == 0 else []


async def message_ids(client: WireClient) -> list[str]:
    """Of all messages but the first."""
    found = []
    for queue_id in range(QUEUES):
        offset = 0
        while messages := await available(client, queue_id, offset):
            found += [message.offset_msg_id for message in messages if bytes(message.body) != b"first"]
            offset = messages[-1].queue_offset + 1
    return found
