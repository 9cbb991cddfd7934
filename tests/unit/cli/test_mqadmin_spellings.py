"""``cometmq mqadmin``: the rest of the 4.9 spellings against one broker with messages, groups and accounts."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cometmq import Client, Message, StartFrom
from cometmq.cli import mqadmin
from cometmq.cli.main import main
from cometmq.cli.mqadmin_base import COMMANDS, REFUSED
from cometmq.sync import Client as SyncClient
from cometmq.testing import LocalBroker

Run = Callable[..., str]
# Those of 4.9.7, as its mqadmin lists them.
SPELLINGS = [
    "addWritePerm", "allocateMQ", "brokerConsumeStats", "brokerStatus", "checkMsgSendRT", "cleanExpiredCQ",
    "cleanUnusedTopic", "cloneGroupOffset", "clusterAclConfigVersion", "clusterList", "clusterRT",
    "consumeMessage", "consumerConnection", "consumerProgress", "consumerStatus", "deleteAccessConfig",
    "deleteExpiredCommitLog", "deleteKvConfig", "deleteSubGroup", "deleteTopic", "exportConfigs",
    "exportMetadata", "exportMetrics", "getAccessConfigSubCommand", "getBrokerConfig", "getConsumerConfig",
    "getNamesrvConfig", "printMsg", "printMsgByQueue", "producer", "producerConnection", "queryCq",
    "queryMsgById", "queryMsgByKey", "queryMsgByOffset", "queryMsgByUniqueKey", "queryMsgTraceById",
    "resetOffsetByTime", "sendMessage", "sendMsgStatus", "skipAccumulatedMessage", "startMonitoring",
    "statsAll", "topicClusterList", "topicList", "topicRoute", "topicStatus", "updateAclConfig",
    "updateBrokerConfig", "updateGlobalWhiteAddr", "updateKvConfig", "updateNamesrvConfig",
    "updateOrderConf", "updateSubGroup", "updateTopic", "updateTopicPerm", "wipeWritePerm",
]  # fmt: skip


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker({"traceTopicEnable": "true"}) as running:
        asyncio.run(fill(running))
        yield running


async def fill(broker: LocalBroker) -> None:
    async with broker.client(trace=True) as mq:
        await mq.admin.create_topic("orders", queues=1)
        await mq.admin.create_group("readers")
        for number in range(6):
            tag = "even" if number % 2 == 0 else "odd"
            await mq.producer("writers").send(Message("orders", b"body %d" % number, tag=tag, keys=["key"]))
        await read(mq)


async def read(mq: Client) -> None:
    async with mq.consumer("readers", "orders", start=StartFrom.FIRST) as consumer:
        for _ in range(6):
            async with (await asyncio.wait_for(anext(consumer), 20)).process():
                pass


@pytest.fixture
def run(broker: LocalBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("NAMESRV_ADDR", broker.name_servers)

    def run_it(line: str, code: int = 0) -> str:
        capsys.readouterr()
        words = line.format(broker=broker.broker_address).split()
        got = main(["mqadmin", *words])
        out, err = capsys.readouterr()
        assert got == code, err
        return out if code == 0 else err

    return run_it


def test_every_spelling_works_or_says_why_not() -> None:
    assert mqadmin.MODULES
    assert sorted({*COMMANDS, *REFUSED} & set(SPELLINGS)) == sorted(SPELLINGS)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("statsAll -t orders", "readers"),
        ("statsAll -a", "#OutMsg24Hour"),
        ("getConsumerConfig -g readers", "retryMaxTimes                           =  16"),
        ("brokerConsumeStats -b {broker}", "Diff Total: 0"),
        ("printMsg -t orders -d true", "BODY: body 5"),
        ("printMsg -t orders -d true -s odd", "BODY: body 3"),
        ("printMsgByQueue -t orders -a broker-a -i 0 -p true -d true", "BODY: body 0"),
        (
            "printMsgByQueue -t orders -a broker-a -i 0 -f true",
            "Tag: even                           Count: 3",
        ),
        ("consumeMessage -t orders -b broker-a -i 0 -o 1 -c 2", "BODY: body 2"),
        ("queryCq -t orders -q 0 -i 0 -c 3 -b {broker}", "max: 6, min: 0"),
        ("queryCq -t orders -q 0 -i 0 -c 3 -b {broker} -g readers", "idx: 2"),
        ("checkMsgSendRT -t checked -a 3 -s 64", "Avg RT: "),
        ("sendMsgStatus -b broker-a -s 64 -c 3", "SendResult=SEND_OK"),
        ("clusterRT -c DefaultCluster -a 2", "broker-a"),
        ("updateOrderConf -t orders -m put -v broker-a:2", "orderConf=[broker-a:2]"),
        ("updateTopicPerm -b {broker} -t checked -p 4", "update topic perm from 6 to 4"),
        ("updateTopicPerm -c DefaultCluster -t checked -p 6", "success"),
    ],
)
def test_output_of_a_command(run: Run, line: str, text: str) -> None:
    if "checked" in line:
        run("updateTopic -c DefaultCluster -t checked -r 1 -w 1 -p 6")
    assert text in run(line)


def test_only_the_tag_asked_for_is_printed(run: Run) -> None:
    printed = run("printMsg -t orders -s odd")
    assert "body 3" in printed
    assert "body 2" not in printed


def test_order_conf_is_put_read_and_deleted(run: Run) -> None:
    run("updateOrderConf -t ordered -m put -v broker-a:4")
    assert "orderConf=[broker-a:4]" in run("updateOrderConf -t ordered -m get")
    assert "success" in run("updateOrderConf -t ordered -m delete")
    assert "no order conf" in run("updateOrderConf -t ordered -m get", code=1)


def test_settings_are_exported_to_files(run: Run, tmp_path: Path) -> None:
    run(f"exportMetadata -c DefaultCluster -f {tmp_path}")
    found = json.loads((tmp_path / "metadata.json").read_text())
    assert found["topicConfigTable"]["orders"]["writeQueueNums"] == 1
    assert "readers" in found["subscriptionGroupTable"]
    run(f"exportMetadata -b {{broker}} -t -f {tmp_path}")
    assert "TBW102" not in (tmp_path / "topic.json").read_text()
    run(f"exportConfigs -c DefaultCluster -f {tmp_path}")
    found = json.loads((tmp_path / "configs.json").read_text())
    assert found["clusterScale"] == {"masterBrokerSize": 1, "namesrvSize": 1, "slaveBrokerSize": 0}


def test_the_trace_of_a_message_is_shown(run: Run, broker: LocalBroker) -> None:
    traced = broker.messages("orders")[0].msg_id
    printed = run(f"queryMsgTraceById -i {traced}")
    assert ["Pub", "writers"] in [line.split()[:2] for line in printed.splitlines() if line]
    assert ["Sub", "readers"] in [line.split()[:2] for line in printed.splitlines() if line]


def test_running_clients_are_shown(run: Run, broker: LocalBroker) -> None:
    with online_clients(broker):
        assert "producer group (online-writers)" in run("producer -b {broker}")
        printed = run("consumerStatus -g online-readers")
        assert "Same subscription" in printed
        client_id = printed.splitlines()[1].split()[1]
        assert "Topic: orders" in run(f"consumerStatus -g online-readers -i {client_id}")
    assert "not online" in run("consumerStatus -g readers", code=1)


@contextlib.contextmanager
def online_clients(broker: LocalBroker) -> Iterator[None]:
    """A producer and a consumer that stay online inside the block."""
    with SyncClient(broker.name_servers) as mq:
        mq.producer("online-writers").send(Message("orders", b"x"))
        with mq.consumer("online-readers", "orders"):
            yield


def test_accounts_are_managed_and_secrets_are_not_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "conf" / "plain_acl.yml"
    file.parent.mkdir()
    file.write_text("globalWhiteRemoteAddresses: [127.0.0.1]\naccounts: []\n")
    with LocalBroker({"aclEnable": "true", "rocketmqHome": str(tmp_path)}) as broker:
        monkeypatch.setenv("NAMESRV_ADDR", broker.name_servers)
        target = ["-b", broker.broker_address]
        account = ["-a", "reporter", "-s", "very-secret-1", "-t", "orders=SUB", "-m", "false"]
        for words, text in (
            (["updateAclConfig", *account], "success"),
            (["getAccessConfigSubCommand"], "accessKey           : reporter"),
            (["clusterAclConfigVersion"], "broker-a"),
            (["updateGlobalWhiteAddr", "-g", "127.0.0.1,10.0.0.*"], "success"),
            (["getAccessConfigSubCommand"], "10.0.0.*"),
            (["deleteAccessConfig", "-a", "reporter"], "success"),
        ):
            assert main(["mqadmin", words[0], *target, *words[1:]]) == 0, capsys.readouterr().err
            printed = capsys.readouterr().out
            assert text in printed
            assert "very-secret-1" not in printed


def test_without_access_control_the_remedy_is_named(run: Run) -> None:
    assert "aclEnable" in run("getAccessConfigSubCommand -b {broker}", code=1)


def test_what_is_not_there_says_what_to_use_instead(run: Run) -> None:
    assert "group lag" in run("startMonitoring", code=2)
    assert "brokerStatus" in run("exportMetrics -c DefaultCluster", code=2)
