"""Accounts (ACL) and TLS."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq import BrokerError, ConnectionLost, Message, StartFrom
from cometmq.sync import Client as SyncClient
from cometmq.testing import LocalBroker

ACCOUNTS = """
globalWhiteRemoteAddresses: []
accounts:
- accessKey: writer-key
  secretKey: writer-secret
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - orders=PUB|SUB
- accessKey: admin-key
  secretKey: admin-secret
  admin: true
"""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[LocalBroker]:
    pytest.importorskip("yaml")
    conf = tmp_path / "home" / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(ACCOUNTS)
    with LocalBroker({"aclEnable": "true", "rocketmqHome": str(tmp_path / "home")}) as broker:
        yield broker


async def test_signed_requests_pass_and_others_are_refused(guarded: LocalBroker) -> None:
    async with guarded.client(access_key="admin-key", secret_key="admin-secret") as admin:
        await admin.admin.create_topic("orders", queues=1)
        await admin.admin.create_topic("secret", queues=1)
    async with guarded.client(access_key="writer-key", secret_key="writer-secret") as mq:
        producer = mq.producer("p")
        for n in range(5):
            assert (await producer.send(Message("orders", b"%d" % n, tag="a"))).ok
        assert (await producer.send_batch([Message("orders", b"5"), Message("orders", b"6")])).ok
        await producer.send_oneway(Message("orders", b"7"))
        got = []
        async with mq.consumer("readers", "orders", start=StartFrom.FIRST) as consumer:
            async for message in consumer:
                async with message.process():
                    got.append(message.body)
                if len(got) == 8:
                    break
        assert sorted(got) == [b"%d" % n for n in range(8)]
        with pytest.raises(BrokerError, match=r"No default permission|secret"):
            await mq.producer("p2", retries=0).send(Message("secret", b"x"), timeout=2)
    for keys in ({}, {"access_key": "writer-key", "secret_key": "wrong-secret"}):
        async with guarded.client(**keys) as stranger:
            with pytest.raises(BrokerError) as caught:
                await stranger.producer("p").send(
                    Message("orders", b"x"), queue=None, timeout=2, selector=_first
                )
            assert caught.value.code == 1


def _first(queues: object, _message: Message) -> object:
    return queues[0]  # type: ignore[index]


@pytest.fixture
def encrypted() -> Iterator[LocalBroker]:
    with LocalBroker({"tls.server.mode": "enforcing"}) as broker:
        yield broker


async def test_tls_is_used_when_asked_for(encrypted: LocalBroker) -> None:
    async with encrypted.client(tls=True) as mq:
        await mq.admin.create_topic("t", queues=1)
        producer = mq.producer("p")
        for n in range(5):
            assert (await producer.send(Message("t", b"%d" % n * 3000))).ok
        got = 0
        async with mq.consumer("g", "t", start=StartFrom.FIRST) as consumer:
            async for message in consumer:
                async with message.process():
                    got += 1
                if got == 5:
                    break


async def test_without_tls_an_enforcing_broker_cannot_be_reached(encrypted: LocalBroker) -> None:
    async with encrypted.client() as mq:
        with pytest.raises(ConnectionLost):
            await mq.admin.create_topic("t", queues=1)


async def test_a_certificate_that_is_not_trusted_is_refused_when_checking_is_on(
    encrypted: LocalBroker,
) -> None:
    async with encrypted.client(tls=True, tls_verify=True) as mq:
        with pytest.raises(ConnectionLost, match=r"(?i)certificate"):
            await mq.admin.create_topic("t", queues=1)


def test_the_blocking_client_takes_a_context_of_its_own(encrypted: LocalBroker) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with SyncClient(encrypted.name_servers, tls=context) as mq:
        assert mq.producer("p").send(Message("t", b"x")).ok
