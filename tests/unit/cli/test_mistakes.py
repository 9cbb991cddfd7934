"""Mistakes on the command line and in configuration files: one sentence with the remedy, and a sensible exit code."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cometmq.broker.config import BrokerConfig
from cometmq.cli.main import main
from cometmq.errors import ConfigError
from cometmq.testing import LocalBroker

Fails = Callable[..., str]


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker() as running:
        yield running


@pytest.fixture
def fails(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Fails]:
    """``fails("topic", "lst")`` gives the one sentence that a command failed with."""
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")  # nobody listens there
    root = logging.getLogger()
    before = root.handlers[:], root.level  # commands that run servers set up the logs of the process

    def run_it(*arguments: str, code: int = 2) -> str:
        try:
            got = main(list(arguments))
        except SystemExit as end:
            got = int(end.code or 0)
        sentence = [line for line in capsys.readouterr().err.splitlines() if " INFO " not in line]
        assert (got, len(sentence)) == (code, 1), sentence
        return sentence[0]

    yield run_it
    root.handlers[:], root.level = before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("topik list", "did you mean 'topic'?"),
        ("topic lst", "did you mean 'list'?"),
        ("topic", "say what to do: list, create, show, delete"),
        ("topic create t --quees 3", "did you mean '--queues'?"),
        ("topic --json list", "--json belongs behind the verb"),
        ("topic list more", "'more' is one argument too many; cometmq topic list --help"),
        ("topic create t --perm x", "it is one of rw, r, w"),
        ("message send t x --count 0", "it cannot be 0; give at least 1"),
        ("message tail t --count many", "'many' is no whole number; give at least 1"),
        ("standalone --port 99999", "it cannot be 99999; give 0 to 65535"),
        ("mqadmin topicLst", "did you mean 'topicList'?"),
        ("mqadmin topicList --nope", "unknown option '--nope'"),
    ],
)
def test_a_wrong_word_is_answered_with_the_nearest_right_one(
    fails: Fails, arguments: str, sentence: str
) -> None:
    assert sentence in fails(*arguments.split())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("topic list", "127.0.0.1:1: Connection refused); check the address, or start one"),
        ("topic list -n nonsense", "write host:port"),
        ("message send t --file /no/such/file", "No such file or directory: /no/such/file"),
        ("broker -c /no/such.conf", "/no/such.conf cannot be read: No such file or directory; without -c"),
        (
            "nameserver -c /no/such.conf",
            "/no/such.conf cannot be read: No such file or directory; without -c",
        ),
        (
            "nameserver --port 0 -o kvConfigPath=/dev/null/kv",
            "(Not a directory): choose another kvConfigPath",
        ),
        ("standalone --store /dev/null", "/dev/null is no directory; choose another --store"),
        ("broker -o listenPort=70000", "listenPort is 70000; it must be 1 to 65535, or 0"),
        ("nameserver -o listenPort=70000", "listenPort is 70000; it must be 1 to 65535, or 0"),
        ("broker -o listenPort", "'listenPort' is not of the form key=value"),
        ("broker -n nonsense", "namesrvAddr: Address 'nonsense' is not host:port"),
        ("broker -o brokerIP1=myhost", "brokerIP1 is 'myhost'; write a numeric address"),
        ("broker -o flushDiskType=NEVER", "it must be one of ASYNC_FLUSH, SYNC_FLUSH"),
        ("standalone -o listenPort=0", "takes listenPort from --port"),
    ],
)
def test_what_cannot_work_ends_in_one_sentence(fails: Fails, arguments: str, sentence: str) -> None:
    assert sentence in fails(*arguments.split(), code=1)


def test_a_metrics_port_in_use_names_the_option(fails: Fails, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        options = ["--metrics-host", "127.0.0.1", "--metrics-port", port]
        kv = f"kvConfigPath={tmp_path / 'kv.json'}"
        sentence = fails("nameserver", "--host", "127.0.0.1", "--port", "0", "-o", kv, *options, code=1)
    assert "choose another --metrics-port" in sentence


def test_settings_that_a_running_broker_ignores_are_errors(fails: Fails, broker: LocalBroker) -> None:
    def config(*arguments: str) -> str:
        return fails("broker", "config", "-n", broker.name_servers, *arguments, code=1)

    assert "no setting 'fileReservdTime'; did you mean 'fileReservedTime'?" in config(
        "--set", "fileReservdTime=3"
    )
    assert "did not take 'soon' for fileReservedTime; it is '72'" in config("--set", "fileReservedTime=soon")
    assert "no setting has 'zzz' in its name" in config("--get", "zzz")


def test_what_is_not_there_is_named(fails: Fails, broker: LocalBroker) -> None:
    at = ("-n", broker.name_servers)
    assert "there are: DefaultCluster" in fails("topic", "list", "--cluster", "nope", *at, code=1)
    assert "cometmq topic list shows all" in fails("topic", "delete", "nope", "--yes", *at, code=1)
    assert "cometmq group list shows all" in fails("group", "delete", "nope", "--yes", *at, code=1)
    assert "does not elect its master" in fails("ha", "switch", "broker-a", *at, code=1)


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ("updateTopic -c DefaultCluster -t T -r few", "readQueueNums"),
        ("queryMsgByOffset -t T -b broker-a -i few -o 0", "queueId"),
        ("updateSubGroup -c DefaultCluster -g g -r few", "retryMaxTimes"),
    ],
)
def test_numbers_of_mqadmin_that_are_none_are_named(
    fails: Fails, broker: LocalBroker, arguments: str, option: str
) -> None:
    sentence = fails("mqadmin", *arguments.split(), "-n", broker.name_servers, code=1)
    assert f"--{option} is 'few'; write a whole number" in sentence


def test_keys_that_stand_twice_and_words_that_are_no_boolean_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fails: Fails
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=1\n# again\nfileReservedTime = 2\nautoCreateTopicEnable=yes\n")
    assert main(["broker", "-c", str(conf), "-n", "", "-m"]) == 0
    out, err = capsys.readouterr()
    assert "fileReservedTime=2\n" in out
    assert "setting fileReservedTime stands there 2 times; the last one counts" in err
    assert "autoCreateTopicEnable is 'yes', which means false; write true or false" in err


def test_a_share_of_the_disk_that_is_no_number_is_refused() -> None:
    key = "rocketmq.broker.diskSpaceWarningLevelRatio"
    with pytest.raises(ConfigError, match=f"{key} is 'much'; write a share of the disk such as 0.90"):
        BrokerConfig.from_properties({key: "much"}).resolve().store_config()
