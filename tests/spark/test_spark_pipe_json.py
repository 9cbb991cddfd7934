"""``cometmq pipe ... --json``: the result is one JSON object on stdout, everything else goes to stderr."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spark_kit import RunningBroker

from cometmq.cli.main import main

pytestmark = pytest.mark.spark

Pipe = Callable[..., Any]


@pytest.fixture
def pipe(broker: RunningBroker, spark: Any, capsys: pytest.CaptureFixture[str]) -> Pipe:
    """Run a command, which must end well; its result, and that people were told on stderr."""

    def run(*words: str, told: str) -> Any:
        assert main(["pipe", *words, "-n", broker.name_server, "--json"]) == 0
        out, err = capsys.readouterr()
        assert told in err
        assert out.count("\n") == 1
        return json.loads(out)

    return run


def test_archive_and_replay_tell_counts(
    broker: RunningBroker, topic: str, pipe: Pipe, tmp_path: Path
) -> None:
    root, target = str(tmp_path / "lake"), f"{topic}-again"
    broker.fill(topic, 20)
    broker.create_topic(target, 4)
    done = pipe("archive", topic, "--to", root, "--verify", told="archived 20 messages")
    assert (done["messages"], done["files"], done["problems"]) == (20, 4, [])
    assert pipe("archive", topic, "--to", root, told="archived 0 messages")["messages"] == 0
    tidy = pipe("archive", "--to", root, "--compact", told="compacted")
    assert tidy["compacted"] == {"merged": 0, "replaced": 0, "rows": 0}
    plan = pipe("replay", target, "--archive", root, "--dry-run", told="20 messages would be sent")
    assert (plan["messages"], plan["sent"], len(plan["queues"])) == (20, False, 4)
    sent = pipe(
        "replay", target, "--archive", root, "--since", "2020-01-01", "--key", "k7", told="1 messages sent"
    )
    assert (sent["to"], sent["messages"], sent["sent"]) == (target, 1, True)


def test_dlq_tells_kinds_and_what_went_where(
    broker: RunningBroker, topic: str, pipe: Pipe, tmp_path: Path
) -> None:
    group = f"G-{topic}"
    assert pipe("dlq", "analyse", group, told="0 dead letters")["kinds"] == []
    broker.create_topic(f"%DLQ%{group}", 1)
    for number in range(3):
        broker.send(f"%DLQ%{group}", b"dead", 0, {"RETRY_TOPIC": topic, "KEYS": f"k{number}"})
    found = pipe("dlq", "analyse", group, told="3 dead letters")
    assert [(kind["originTopic"], kind["messages"]) for kind in found["kinds"]] == [(topic, 3)]
    assert "T" in found["kinds"][0]["last"]
    exported = pipe("dlq", "export", group, "--to", str(tmp_path / "dead"), told="3 dead letters exported")
    assert exported["messages"] == 3
    driven = pipe("dlq", "redrive", group, "--where", "keys = 'k1'", told="1 dead letters sent back")
    assert [entry["topic"] for entry in driven["delivered"]] == [topic]


def test_funnel_tells_windows(broker: RunningBroker, topic: str, pipe: Pipe) -> None:
    for step, users in (("register", 3), ("sms", 2)):
        for user in range(users):
            broker.send(topic, b"x", 0, {"TAGS": step, "KEYS": f"user{user}"})
    found = pipe("funnel", topic, "register", "sms", "--window", "1 day", told="register")
    assert [window["counts"] for window in found["windows"]] == [{"register": 3, "sms": 2}]


def test_audit_tells_what_its_report_shows(
    broker: RunningBroker, topic: str, pipe: Pipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cometmq.spark import pipes

    trace = f"{topic}-trace"  # the broker's own trace topic belongs to all tests
    monkeypatch.setattr(pipes, "audit", functools.partial(pipes.audit, trace_topic=trace))
    broker.create_topic(trace, 1)
    broker.send(topic, b"x", 0, {"UNIQ_KEY": "ID0"})
    fields = ["Pub", "1700000000000", "R", "PG", topic, "ID0", "", "", "h", "1", "3", "0", "off", "true"]
    broker.send(trace, ("\x01".join(fields) + "\x02").encode())
    report = str(tmp_path / "audit.html")
    found = pipe("audit", topic, "--report", report, told="sent 1, stored 1, lost 0")
    assert (found["sent"], found["stored"], found["lost"], found["groups"]) == (1, 1, 0, [])
    assert found["report"] == report
    assert Path(report).exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["replay", "t", "--topic", "u", "--since", "yesterday"], "The time since is 'yesterday'"),
        (["replay", "t", "--archive", "nowhere"], "nowhere is no archive"),
        (["funnel", "t", "a", "-o", "tagz=x"], "did you mean 'tags'"),
        (["audit", "t", "-o", "tags"], "has no value: write NAME=VALUE"),
    ],
)
def test_mistakes_are_told_before_spark_starts(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cometmq.spark.sessions.session", lambda *_, **__: pytest.fail("Spark was started"))
    assert main(["pipe", *words, "--json"]) == 1
    out, err = capsys.readouterr()
    assert sentence in err
    assert out == ""
