"""The pipelines, run on a local Spark against a running broker."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from spark_kit import BROKER, RunningBroker

from cometmq.errors import ClientError, ConfigError, TopicNotFound

pytestmark = pytest.mark.spark


def archived(spark: Any, root: Path) -> list[Any]:
    return spark.read.option("basePath", str(root)).parquet(f"{root}/topic=*").collect()


def forget_last_commit(checkpoint: Path) -> None:
    """As if the driver had died before Spark noted the last batch as done."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


def test_archive_runs_continue_and_nothing_is_missing(
    broker: RunningBroker, topic: str, spark: Any, tmp_path: Path
) -> None:
    from cometmq.spark.pipes import archive, verify_archive

    root = tmp_path / "lake"
    broker.fill(topic, 100)
    first = archive(spark, broker.name_server, [topic], root, options={"maxOffsetsPerTrigger": "40"})
    assert first.rows == 100
    assert first.batches == 3
    broker.fill(topic, 10, first=100)
    assert archive(spark, broker.name_server, [topic], root).rows == 10
    rows = archived(spark, root)
    assert sorted(bytes(row.body) for row in rows) == sorted(b"body-%d" % n for n in range(110))
    assert {row.topic for row in rows} == {topic}
    assert verify_archive(root) == []
    names = sorted(path.name for path in root.glob("topic=*/date=*/*.parquet"))
    assert names[0].startswith(f"{BROKER}-0-0-10-0")


def test_archived_batch_that_comes_again_is_skipped(
    broker: RunningBroker, topic: str, spark: Any, tmp_path: Path
) -> None:
    from cometmq.spark.pipes import archive, verify_archive

    root = tmp_path / "lake"
    broker.fill(topic, 20)
    archive(spark, broker.name_server, [topic], root)
    forget_last_commit(root / "_checkpoint")
    again = archive(spark, broker.name_server, [topic], root)
    assert (again.rows, again.skipped_batches) == (0, 1)
    # And once more, dead between moving the files and the manifest.
    forget_last_commit(root / "_checkpoint")
    (root / "_batches" / "0.json").unlink()
    assert archive(spark, broker.name_server, [topic], root).rows == 20
    assert len(archived(spark, root)) == 20
    assert verify_archive(root) == []
    shutil.rmtree(root / "_checkpoint")
    with pytest.raises(Exception, match="batch 0 of another query: its checkpoint was removed"):
        archive(spark, broker.name_server, [topic], root)


def test_missing_and_strange_files_are_found(
    broker: RunningBroker, topic: str, spark: Any, tmp_path: Path
) -> None:
    from cometmq.spark.pipes import archive, verify_archive

    root = tmp_path / "lake"
    broker.fill(topic, 90)
    archive(spark, broker.name_server, [topic], root, options={"maxOffsetsPerTrigger": "30"})
    victim = next(root.glob("topic=*/date=*/*-1.parquet"))
    victim.rename(victim.with_name("broker-a-9-0-1-7.parquet"))
    problems = verify_archive(root)
    assert any("is missing" in problem for problem in problems)
    assert any("is in no manifest" in problem for problem in problems)
    assert any("are missing" in problem for problem in problems)


def test_archive_of_json_has_typed_values(
    broker: RunningBroker, topic: str, spark: Any, tmp_path: Path
) -> None:
    from cometmq.spark.pipes import archive

    root = tmp_path / "lake"
    broker.send(topic, b'{"id": 7, "name": "x"}')
    with pytest.raises(ConfigError, match="needs a schema"):
        archive(spark, broker.name_server, [topic], root, decode="json")
    archive(spark, broker.name_server, [topic], root, decode="json", schema="id bigint, name string")
    assert archived(spark, root)[0].value.id == 7


def test_replay_of_an_archive_keeps_order_and_origin(
    broker: RunningBroker, topic: str, spark: Any, read: Any, tmp_path: Path
) -> None:
    from cometmq.spark.pipes import archive, replay

    root, target = tmp_path / "lake", f"{topic}-again"
    broker.fill(topic, 80)
    broker.create_topic(target, 4)
    archive(spark, broker.name_server, [topic], root)
    plan = replay(spark, broker.name_server, target, from_archive=root, dry_run=True)
    assert plan["messages"] == 80
    assert read(subscribe=target).count() == 0
    replay(spark, broker.name_server, target, from_archive=root, where="tags <> 't0'")
    rows = read(subscribe=target).orderBy("queueId", "queueOffset").collect()
    assert len(rows) == 53
    for queue_id in range(4):
        origins = [int(row.properties["ORIGIN_QUEUE_OFFSET"]) for row in rows if row.queueId == queue_id]
        assert origins == sorted(origins)
    row = next(row for row in rows if row.keys == "k7")
    assert (row.tags, row.properties["ORIGIN_TOPIC"], row.msgId) == ("t1", topic, f"{topic}:{BROKER}:3:1")


def test_replay_of_a_topic_by_key(broker: RunningBroker, topic: str, spark: Any, read: Any) -> None:
    from cometmq.spark.pipes import replay

    target = f"{topic}-again"
    broker.fill(topic, 20)
    broker.create_topic(target, 4)
    replay(spark, broker.name_server, target, from_topic=topic, key="k11")
    assert [bytes(row.body) for row in read(subscribe=target).collect()] == [b"body-11"]
    with pytest.raises(ConfigError, match="an archive or a topic"):
        replay(spark, broker.name_server, target)


def test_dead_letters_are_analysed_and_sent_back(
    broker: RunningBroker, topic: str, spark: Any, read: Any, tmp_path: Path
) -> None:
    from cometmq.spark.pipes import analyse_dlq, export_dlq, redrive_dlq

    group = f"G-{topic}"
    broker.create_topic(f"%DLQ%{group}", 1)
    for number in range(6):
        properties = {"RETRY_TOPIC": topic, "TAGS": f"t{number % 2}", "KEYS": f"k{number}"}
        broker.send(f"%DLQ%{group}", b"dead %d" % number, 0, properties)
    found = analyse_dlq(spark, broker.name_server, group)
    assert [(row["originTopic"], row["tags"], row["messages"]) for row in found] == [
        (topic, "t0", 3),
        (topic, "t1", 3),
    ]
    assert export_dlq(spark, broker.name_server, group, tmp_path / "out", where="tags = 't1'") == 3
    result = redrive_dlq(spark, broker.name_server, group, where="tags = 't0'")
    assert len(result.delivered) == 3
    assert sorted(bytes(row.body) for row in read(subscribe=topic).collect()) == [
        b"dead 0",
        b"dead 2",
        b"dead 4",
    ]
    broker.send(f"%DLQ%{group}", b"homeless")
    with pytest.raises(ClientError, match="1 of 7 dead letters do not say"):
        redrive_dlq(spark, broker.name_server, group)


def test_funnel_counts_users_per_step(broker: RunningBroker, topic: str, read: Any) -> None:
    from cometmq.spark.pipes import funnel

    for step, users in (("register", 5), ("sms", 4), ("coupon", 2)):
        for user in range(users):
            broker.send(topic, b"", 0, {"TAGS": step, "KEYS": f"user{user}"})
    rows = funnel(read(subscribe=topic), ["register", "sms", "coupon"], window="1 day").collect()
    assert [(row.register, row.sms, row.coupon) for row in rows] == [(5, 4, 2)]


def test_audit_compares_trace_and_store(broker: RunningBroker, topic: str, spark: Any) -> None:
    from cometmq.spark.pipes import audit, report_html

    trace = f"{topic}-trace"
    broker.create_topic(trace, 1)
    born = 1_700_000_000_000

    def pub(message_id: str, ok: str = "true") -> str:
        fields = ["Pub", str(born), "R", "PG", topic, message_id, "", "", "h", "1", "3", "0", "off", ok]
        return "\x01".join(fields) + "\x02"

    def sub(message_id: str, ok: str, end: int) -> str:
        return "\x01".join(["SubAfter", "r", message_id, "1", ok, "null", "0", str(end), "G1"]) + "\x02"

    for number in (0, 1, 1, 2):
        broker.send(topic, b"x", 0, {"UNIQ_KEY": f"ID{number}"})
    records = pub("ID0") + pub("ID1") + pub("ID2") + pub("ID3") + pub("ID4", "false")
    records += sub("ID0", "false", born + 5) + sub("ID0", "true", born + 10) + sub("ID1", "true", born + 30)
    broker.send(trace, records.encode())
    found = audit(spark, broker.name_server, topic, trace_topic=trace)
    assert (found.sent, found.failed_sends, found.stored, found.lost, found.duplicates) == (4, 1, 4, 1, 1)
    assert found.lost_examples == ["ID3"]
    group = found.groups[0]
    assert (group.group, group.consumed, group.deliveries, group.failed_deliveries) == ("G1", 2, 3, 1)
    assert group.unconsumed == 1
    assert group.latency_ms == [10.0, 30.0, 30.0]
    assert "<svg" in report_html(found)


def test_doctor_finds_everything(
    broker: RunningBroker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from cometmq.cli.main import main

    assert main(["pipe", "doctor", "-n", broker.name_server, "-o", f"subscribe={topic}"]) == 0
    out = capsys.readouterr().out
    assert "ok   Java" in out
    assert "ok   NameServer" in out
    assert "pullInFlight" in out
    assert main(["pipe", "doctor", "-n", "127.0.0.1:1"]) == 1
    assert main(["pipe", "doctor", "-n", broker.name_server, "-o", "subscrib=x"]) == 1
    assert "did you mean 'subscribe'" in capsys.readouterr().out


def test_doctor_in_json_says_what_is_bad(capsys: pytest.CaptureFixture[str]) -> None:
    from cometmq.cli.main import main

    assert main(["pipe", "doctor", "-n", "127.0.0.1:1", "--json"]) == 1
    findings = {finding["what"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert findings["Python"]["good"]
    assert not findings["NameServer"]["good"]
    assert "127.0.0.1:1" in findings["NameServer"]["text"]


def test_missing_topics_are_told_with_the_remedy_before_spark_works(
    broker: RunningBroker, spark: Any
) -> None:
    from cometmq.spark.pipes import analyse_dlq, audit, export_dlq, replay

    assert analyse_dlq(spark, broker.name_server, "nobody") == []
    with pytest.raises(TopicNotFound, match="group nobody has no dead letters"):
        export_dlq(spark, broker.name_server, "nobody", "unused")
    with pytest.raises(TopicNotFound, match="cometmq topic create nowhere"):
        replay(spark, broker.name_server, "nowhere", from_topic="unused")
    with pytest.raises(TopicNotFound, match="No client has sent trace records"):
        audit(spark, broker.name_server, "unused", trace_topic="no-trace")
