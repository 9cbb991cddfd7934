"""The commands for people, run as a user runs them, against a real broker in the process."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable, Iterator

import pytest

from cometmq import StartFrom
from cometmq.cli.main import main
from cometmq.testing import LocalBroker

Run = Callable[..., str]


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as running:
        yield running


@pytest.fixture
def run(broker: LocalBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """``run("topic", "list")`` gives what was printed; a failing command is an AssertionError."""
    monkeypatch.setenv("NAMESRV_ADDR", broker.name_servers)

    def run_it(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        got = main(list(arguments))
        out, err = capsys.readouterr()
        assert got == code, err
        return out if code == 0 else err

    return run_it


def as_json(text: str) -> object:
    return json.loads(text)


def consume(broker: LocalBroker, group: str, topic: str, count: int) -> None:
    async def work() -> None:
        async with broker.client() as mq, mq.consumer(group, topic, start=StartFrom.FIRST) as consumer:
            for _ in range(count):
                async with (await anext(consumer)).process():
                    pass

    asyncio.run(asyncio.wait_for(work(), 20))


def test_topics_are_created_listed_shown_and_deleted(run: Run) -> None:
    assert "orders has 3 queues on broker-a" in run("topic", "create", "orders", "--queues", "3")
    assert "orders" in run("topic", "list").split()
    shown = as_json(run("topic", "show", "orders", "--json"))
    assert isinstance(shown, dict)
    assert shown["topic"]["queues"] == 3
    assert [row["queue"] for row in shown["queues"]] == [0, 1, 2]
    assert "PERMISSION" not in run("topic", "show", "orders")
    assert "Add --yes" in run("topic", "delete", "orders", code=1)
    assert "is deleted" in run("topic", "delete", "orders", "--yes")
    assert "orders" not in run("topic", "list").split()


def test_an_unknown_topic_names_the_remedy(run: Run) -> None:
    assert "cometmq topic create nowhere" in run("topic", "show", "nowhere", code=1)


def test_messages_are_sent_found_and_printed(run: Run) -> None:
    run("topic", "create", "mail", "--queues", "2")
    sent = as_json(
        run(
            "message", "send", "mail", "letter {n}", "--count", "3", "--tag", "a", "--key", "k1",
            "--property", "p=1", "--json",
        )
    )  # fmt: skip
    assert isinstance(sent, list)
    assert len(sent) == 3
    got = as_json(run("message", "get", sent[0]["id"], "--topic", "mail", "--json"))
    assert isinstance(got, dict)
    assert got["message"]["body"] == "letter 0"
    assert got["properties"]["p"] == "1"
    found = run("message", "query", "mail", "k1")
    assert all(f"letter {n}" in found for n in range(3))
    lines = run("message", "tail", "mail", "--from", "begin", "--count", "3", "--bodies").splitlines()
    assert sorted(lines) == ["letter 0", "letter 1", "letter 2"]
    lines = run("message", "tail", "mail", "--from", "begin", "--no-wait", "--json").splitlines()
    assert {json.loads(line)["tag"] for line in lines} == {"a"}


def test_lines_of_standard_input_become_messages(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(b"one\ntwo\n\n")

        @staticmethod
        def isatty() -> bool:
            return False

    monkeypatch.setattr("sys.stdin", Stdin())
    assert len(as_json(run("message", "send", "piped", "-", "--json"))) == 2  # type: ignore[arg-type]


def test_groups_show_lag_and_are_reset(run: Run, broker: LocalBroker) -> None:
    run("topic", "create", "work", "--queues", "1")
    run("message", "send", "work", "job {n}", "--count", "5")
    consume(broker, "workers", "work", 5)
    run("message", "send", "work", "more")
    lag = as_json(run("group", "lag", "workers", "--topic", "work", "--json"))
    assert isinstance(lag, list)
    assert [(row["consumed"], row["lag"]) for row in lag] == [(5, 1)]
    rows = {row["group"]: row for row in as_json(run("group", "list", "--json"))}  # type: ignore[attr-defined]
    assert (rows["workers"]["lag"], rows["workers"]["members"]) == (1, 0)
    assert "would move" in run("group", "reset", "workers", "work", "--to", "begin", "--dry-run")
    assert "Add --yes" in run("group", "reset", "workers", "work", "--to", "begin", code=1)
    assert "was moved" in run("group", "reset", "workers", "work", "--to", "begin", "--yes")
    lag = as_json(run("group", "lag", "workers", "--topic", "work", "--json"))
    assert isinstance(lag, list)
    assert lag[0]["lag"] == 6
    assert "nobody is online" in run("group", "show", "workers")
    run("group", "create", "fresh", "--max-retries", "3")
    shown = as_json(run("group", "show", "fresh", "--json"))
    assert isinstance(shown, dict)
    assert shown["group"]["max retries"] == 3
    run("group", "delete", "fresh", "--yes")
    assert "cometmq group create fresh" in run("group", "show", "fresh", code=1)


def test_cluster_and_broker_are_shown_and_configured(run: Run, broker: LocalBroker) -> None:
    rows = as_json(run("cluster", "show", "--json"))
    assert isinstance(rows, list)
    assert rows[0]["broker"] == "broker-a"
    assert rows[0]["address"] == broker.broker_address
    assert "bootTimestamp" in run("broker", "show")
    assert "brokerName" in run("broker", "config", "--get", "brokername")
    run("broker", "config", "broker-a", "--set", "defaultTopicQueueNums=5")
    assert as_json(run("broker", "config", "--get", "defaultTopicQueueNums", "--json")) == {
        "defaultTopicQueueNums": "5"
    }


def test_bench_measures_sends_and_reads(run: Run) -> None:
    sent = as_json(run("bench", "send", "--count", "300", "--size", "100", "--tasks", "16", "--json"))
    assert isinstance(sent, dict)
    assert sent["messages"] == 300
    assert sent["messages/s"] > 0
    assert sent["p99 ms"] >= sent["p50 ms"]
    read = as_json(run("bench", "consume", "--count", "300", "--json"))
    assert isinstance(read, dict)
    assert read["messages"] == 300


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (["topicList"], "TBW102"),
        (["clusterList"], "#Cluster Name"),
        (["topicRoute", "-t", "TBW102"], '"brokerDatas"'),
        (["topicStatus", "-t", "TBW102"], "#Broker Name"),
        (["brokerStatus", "-c", "DefaultCluster"], "bootTimestamp"),
        (["getBrokerConfig", "-c", "DefaultCluster"], "brokerName"),
        (["consumerProgress"], "#Group"),
        (["getNamesrvConfig"], "listenPort"),
        (["updateKvConfig", "-s", "ns", "-k", "k", "-v", "v"], "success"),
        (["deleteKvConfig", "-s", "ns", "-k", "k"], "success"),
        (["updateTopic", "-t", "mq", "-c", "DefaultCluster", "-r", "2", "-w", "2"], "writeQueueNums=2"),
        (["updateSubGroup", "-g", "mqg", "-c", "DefaultCluster"], "success"),
        (["sendMessage", "-t", "mq", "-p", "hello", "-k", "key1"], "SEND_OK"),
        (["queryMsgByKey", "-t", "mq", "-k", "key1"], "#Message ID"),
        (["allocateMQ", "-t", "mq", "-i", "a,b"], '"result"'),
        (["topicClusterList", "-t", "mq"], "DefaultCluster"),
        (["wipeWritePerm", "-b", "broker-a"], "OK"),
        (["addWritePerm", "-b", "broker-a"], "OK"),
        (["cleanUnusedTopic", "-c", "DefaultCluster"], "success"),
        (["deleteSubGroup", "-g", "mqg", "-c", "DefaultCluster"], "success"),
        (["deleteTopic", "-t", "mq", "-c", "DefaultCluster"], "success"),
    ],
)
def test_mqadmin_spelling_works(run: Run, command: list[str], text: str) -> None:
    if command[0] in ("queryMsgByKey", "allocateMQ", "topicClusterList", "deleteTopic"):
        run("mqadmin", "updateTopic", "-t", "mq", "-c", "DefaultCluster", "-r", "2", "-w", "2")
    assert text in run("mqadmin", *command)


def test_mqadmin_lists_its_commands_and_guesses_wrong_ones(run: Run) -> None:
    assert "updateTopic" in run("mqadmin")
    assert "topicList" in run("mqadmin", "topiclist", code=2)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_verbs_and_options(run: Run, shell: str) -> None:
    text = run("completion", shell)
    for word in ("topic", "create", "reset", "dry-run", "mqadmin"):
        assert word in text


def test_watch_shows_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = 0

    async def tick(_seconds: float) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("cometmq.cli.connect.asyncio.sleep", tick)
    run("topic", "list", "--watch", "1", code=130)


def test_a_server_that_is_not_there_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "127.0.0.1:1" in run("topic", "list", "--servers", "127.0.0.1:1", code=1)
