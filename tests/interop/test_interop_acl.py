"""Access control with the Java client's ACL hook: who may send, consume and administrate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rig.clients import Admin, JavaClients
from rig.peer import JavaError, JavaPeer
from rig.servers import Cluster, Foundry
from rig.waiting import wait_for

ADMIN = ["adminAccess", "adminSecret"]
SENDER = ["senderAccess", "senderSecret"]
READER = ["readerAccess", "readerSecret"]
LATER = ["laterAccess", "laterSecret"]
ACCOUNTS = """\
globalWhiteRemoteAddresses: []
accounts:
  - accessKey: adminAccess
    secretKey: adminSecret
    admin: true
  - accessKey: senderAccess
    secretKey: senderSecret
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms: ["AclTopic=PUB", "AclOther=DENY"]
  - accessKey: readerAccess
    secretKey: readerSecret
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms: ["AclTopic=SUB"]
    groupPerms: ["AclReaders=SUB"]
"""
LATER_ACCOUNT = """\
  - accessKey: laterAccess
    secretKey: laterSecret
    admin: false
    defaultTopicPerm: PUB|SUB
    defaultGroupPerm: SUB
"""


def start_guarded(foundry: Foundry, kind: str) -> Cluster:
    cluster = foundry.cluster(kind, aclEnable="true")
    accounts_file(cluster).write_text(ACCOUNTS)
    return cluster.start()


def accounts_file(cluster: Cluster) -> Path:
    return cluster.broker.directory / "conf" / "plain_acl.yml"


@pytest.fixture(scope="module")
def guarded_clusters(session_foundry: Foundry) -> Iterator[dict[str, Cluster]]:
    found: dict[str, Cluster] = {}
    yield found
    for cluster in found.values():
        cluster.close()


@pytest.fixture
def guarded(
    kind: str, session_foundry: Foundry, guarded_clusters: dict[str, Cluster], java: JavaClients
) -> Cluster:
    if kind not in guarded_clusters:
        cluster = guarded_clusters[kind] = start_guarded(session_foundry, kind)
        admin = java.admin(cluster.namesrv, acl=ADMIN)
        admin.create_topic("AclTopic")
        admin.create_topic("AclOther")
    return guarded_clusters[kind]


def refusal(failure: pytest.ExceptionInfo[JavaError]) -> str:
    error: JavaError | None = failure.value
    text = ""
    while error is not None:
        text += error.message
        error = error.cause
    return text


def test_account_with_the_right_sends_and_the_other_reads(java: JavaClients, guarded: Cluster) -> None:
    sent = java.producer(guarded.namesrv, "PG_sender", acl=SENDER).send("AclTopic", "for you")
    assert sent["status"] == "SEND_OK"
    consumer = java.push(guarded.namesrv, "AclReaders", {"AclTopic": "*"}, acl=READER)
    consumer.wait_bodies(["for you"])


@pytest.mark.parametrize(
    ("account", "topic", "text"),
    [
        (None, "AclTopic", "No accessKey is configured"),
        (["nobodyAccess", "nobodySecret"], "AclTopic", "No acl config for nobodyAccess"),
        (["senderAccess", "wrongSecret"], "AclTopic", "Check signature failed for accessKey=senderAccess"),
        (SENDER, "AclOther", "No default permission for"),
        (READER, "AclTopic", "No default permission for"),
    ],
)
def test_send_is_refused(
    java: JavaClients, guarded: Cluster, account: list[str] | None, topic: str, text: str
) -> None:
    producer = java.producer(guarded.namesrv, "PG_refused", acl=account)
    with pytest.raises(JavaError) as failure:
        producer.send(topic, "no")
    assert text in refusal(failure)
    assert "wrongSecret" not in refusal(failure)
    assert "senderSecret" not in refusal(failure)


@pytest.mark.parametrize("account", [None, SENDER, READER])
def test_pull_by_the_wrong_account_or_group_is_refused(
    java: JavaClients, guarded: Cluster, account: list[str] | None
) -> None:
    consumer = java.pull(guarded.namesrv, "AclStrangers", acl=account)
    with pytest.raises(JavaError) as failure:
        consumer.pull({"topic": "AclTopic", "broker": "broker-a", "queue": 0}, 0)
    assert "AclException" in refusal(failure)


@pytest.mark.parametrize("account", [None, SENDER])
def test_only_admins_create_topics(java: JavaClients, guarded: Cluster, account: list[str] | None) -> None:
    with pytest.raises(JavaError) as failure:
        java.admin(guarded.namesrv, acl=account).call("createTopic", topic="AclMine", queues=1)
    assert "No accessKey" in refusal(failure) or "Need admin permission for request code=17" in refusal(
        failure
    )


def test_batch_to_a_forbidden_topic_is_refused_by_ours(java: JavaClients, foundry: Foundry) -> None:
    """The Java broker forgets to look at the topic of a batch."""
    cluster = start_guarded(foundry, "comet")
    java.admin(cluster.namesrv, acl=ADMIN).create_topic("AclOther")
    java.admin(cluster.namesrv, acl=ADMIN).create_topic("AclTopic")
    producer = java.producer(cluster.namesrv, "PG_batches", acl=SENDER)
    assert producer.send_batch({"topic": "AclTopic", "body": f"{i}"} for i in range(3))["status"] == "SEND_OK"
    with pytest.raises(JavaError) as failure:
        producer.send_batch({"topic": "AclOther", "body": f"{i}"} for i in range(3))
    assert "AclOther" in refusal(failure)


def test_changed_file_is_taken_up_while_running(java: JavaClients, kind: str, foundry: Foundry) -> None:
    cluster = start_guarded(foundry, kind)
    java.admin(cluster.namesrv, acl=ADMIN).create_topic("AclTopic")
    producer = java.producer(cluster.namesrv, "PG_later", acl=LATER)
    assert "error" in producer.send_many([{"topic": "AclTopic", "body": "too early"}])[0]
    accounts_file(cluster).write_text(ACCOUNTS + LATER_ACCOUNT)

    def accepted() -> bool:
        (result,) = producer.send_many([{"topic": "AclTopic", "body": "now"}])
        return "error" not in result

    wait_for(accepted, "the new account to be known", 15)


def test_white_address_needs_no_account(java: JavaClients, kind: str, foundry: Foundry) -> None:
    cluster = foundry.cluster(kind, aclEnable="true")
    accounts_file(cluster).write_text(ACCOUNTS.replace("Addresses: []", 'Addresses: ["127.0.0.*"]'))
    cluster.start()
    topic = java.admin(cluster.namesrv).create_topic("AclWhite")
    assert java.producer(cluster.namesrv).send(topic, "from home")["status"] == "SEND_OK"


@pytest.fixture
def acl_tool(java_peer: JavaPeer) -> Iterator[None]:
    """mqadmin signs with the account of conf/tools.yml."""
    file = java_peer.directory / "conf" / "tools.yml"
    file.write_text(f"accessKey: {ADMIN[0]}\nsecretKey: {ADMIN[1]}\n")
    yield
    file.unlink()


@pytest.mark.usefixtures("acl_tool")
def test_mqadmin_manages_accounts(java: JavaClients, kind: str, foundry: Foundry) -> None:
    cluster = start_guarded(foundry, kind)
    tool: Admin = java.admin(cluster.namesrv, acl=ADMIN)
    tool.create_topic("AclTopic")
    broker = cluster.broker.address
    account = ("-a", "toolAccess", "-s", "toolSecret")
    printed = tool.mqadmin("updateAclConfig", "-b", broker, *account, "-t", "AclTopic=PUB", "-u", "SUB")
    assert f"create or update plain access config to {broker} success" in printed
    producer = java.producer(cluster.namesrv, "PG_tool", acl=["toolAccess", "toolSecret"])
    wait_for(
        lambda: "error" not in producer.send_many([{"topic": "AclTopic", "body": "x"}])[0], "the account", 15
    )
    assert "toolAccess" in tool.mqadmin("getAclConfig", "-c", cluster.name)
    assert "broker-a" in tool.mqadmin("clusterAclConfigVersion", "-c", cluster.name)
    printed = tool.mqadmin("updateGlobalWhiteAddr", "-b", broker, "-g", "10.10.103.*,192.168.0.*")
    assert f"update global white remote addresses to {broker} success" in printed
    assert "10.10.103.*" in accounts_file(cluster).read_text()
    printed = tool.mqadmin("deleteAclConfig", "-b", broker, "-a", "toolAccess")
    assert f"delete plain access config account from {broker} success" in printed
    wait_for(
        lambda: "error" in producer.send_many([{"topic": "AclTopic", "body": "x"}])[0],
        "the account to go",
        15,
    )
