"""Faults of the network between brokers; clients reach everybody all the time."""

from __future__ import annotations

import asyncio
import os
import random

from ha.faults import Trial
from ha.network import NetworkedGroup
from ha.workload import LOCK_GROUP, TOPIC

from cometmq.protocol.bodies.locks import LockBatchRequestBody
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import CreateTopicHeader
from cometmq.protocol.message import MessageQueue

LONG_S = 4.0  # longer than every timeout that could act
MOMENT_S = 0.3
ROTATION_S = 5.0
OUTAGE_S = float(os.environ.get("HA_OUTAGE_S", "60"))  # of the controllers, F-14
ROTATE_S = float(os.environ.get("HA_ROTATE_S", "30"))  # F-12 asks for 600


def _group(trial: Trial) -> NetworkedGroup:
    assert isinstance(trial.group, NetworkedGroup)
    return trial.group


async def _for_a_while(trial: Trial) -> None:
    """Sends go on at the other side while the cut lasts, and after it has healed."""
    await trial.recovered()
    await asyncio.sleep(LONG_S)
    _group(trial).network.heal()


async def isolate_master(trial: Trial) -> None:
    """F-08: nobody but clients hears it; what it takes it must not acknowledge."""
    group, master = _group(trial), await trial.master()
    trial.note("cut the master off")
    group.network.part([master], [number for number in group.everybody if number != master])
    await _for_a_while(trial)


async def isolate_master_from_brokers(trial: Trial) -> None:
    """F-11: it still reaches the NameServer, which must not take it for the master any more."""
    group, master = _group(trial), await trial.master()
    trial.note("cut the master off from the other brokers")
    group.network.part([master], [number for number in group.ids if number != master])
    await _for_a_while(trial)


async def isolate_follower(trial: Trial) -> None:
    group = _group(trial)
    follower = random.choice(await trial.followers())
    trial.note("cut a follower off")
    group.network.part([follower], [number for number in group.everybody if number != follower])
    await _for_a_while(trial)


async def mute_master(trial: Trial) -> None:
    """F-10: it hears the others, they do not hear it."""
    group, master = _group(trial), await trial.master()
    trial.note("cut what the master sends")
    for number in group.ids:
        if number != master:
            group.network.cut(master, number)
    await _for_a_while(trial)


async def deafen_master(trial: Trial) -> None:
    """F-10: the others hear it, it does not hear them."""
    group, master = _group(trial), await trial.master()
    trial.note("cut what is sent to the master")
    for number in group.ids:
        if number != master:
            group.network.cut(number, master)
    await _for_a_while(trial)


async def cut_one_link(trial: Trial) -> None:
    """F-10: one direction of one link."""
    group = _group(trial)
    sender, receiver = random.sample(group.ids, 2)
    trial.note("cut one direction of one link")
    group.network.cut(sender, receiver)
    await asyncio.sleep(LONG_S)
    await _for_a_while(trial)


async def cut_controllers(trial: Trial) -> None:
    """F-14: the controllers do not hear each other, streams of replicas are fine: sends at insync go on. Nothing is
    granted that needs a lease."""
    group, master = _group(trial), await trial.master()
    epoch = await _epoch(trial)
    trial.note("cut the controllers off from each other")
    for receiver in group.ids:
        for sender in group.ids:
            if sender != receiver:
                for voter in group.ids:
                    group.network.cut(sender, receiver, group.voters[voter])
    await asyncio.sleep(LONG_S)
    deadline = asyncio.get_running_loop().time() + OUTAGE_S
    while asyncio.get_running_loop().time() < deadline:
        await trial.recovered()
        for command in _grants(group.name):
            answer = await trial.load.ask(group.address(master), command)
            assert answer is not None
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE, "granted without a lease"
        await asyncio.sleep(1)
    assert await _epoch(trial) == epoch, "somebody was elected without controllers"
    group.network.heal()


def _grants(group: str) -> list[RemotingCommand]:
    """What only one broker may grant: a lock, and a change by an administrator."""
    queue = MessageQueue(TOPIC, group, 1)
    lock = LockBatchRequestBody(client_id="operator", consumer_group=LOCK_GROUP, mq_set=[queue])
    topic = CreateTopicHeader(
        topic="Later",
        default_topic="TBW102",
        read_queue_nums=1,
        write_queue_nums=1,
        perm=6,
        topic_filter_type="SINGLE_TAG",
    )
    return [
        RemotingCommand.request(RequestCode.LOCK_BATCH_MQ, body=lock.encode()),
        RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, topic),
    ]


async def isolate_minority_with_master(trial: Trial) -> None:
    """F-09: the master and one follower, cut off from the other voters, confirm nothing any more."""
    group, master = _group(trial), await trial.master()
    minority = [master, random.choice(await trial.followers())]
    rest = [number for number in group.ids if number not in minority]
    assert len(rest) > len(minority)
    trial.note(f"cut {minority} off from {rest}")
    group.network.part(minority, rest)
    await asyncio.sleep(MOMENT_S)  # what was on its way has arrived
    before = await _confirmed(trial, minority)
    await trial.control.master(among=rest)
    await trial.recovered()
    await asyncio.sleep(LONG_S)
    assert await _confirmed(trial, minority) == before, "a minority has confirmed something"
    group.network.heal()


async def _confirmed(trial: Trial, among: list[int]) -> int:
    return max(status["confirmOffset"] for status in (await trial.control.statuses(among)).values())


async def rotate(trial: Trial) -> None:
    """F-12: each few seconds another broker is cut off from the majority."""
    group = _group(trial)
    trial.note("majorities take turns")
    deadline = asyncio.get_running_loop().time() + ROTATE_S
    while asyncio.get_running_loop().time() < deadline:
        alone = random.choice(group.ids)
        group.network.heal()
        group.network.part([alone], [number for number in group.ids if number != alone])
        await asyncio.sleep(ROTATION_S)
    group.network.heal()
    await trial.recovered()


async def _epoch(trial: Trial) -> int:
    return max(status["epoch"] for status in (await trial.control.statuses()).values())
