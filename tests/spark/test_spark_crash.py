"""Exactly once over SIGKILL: drivers and workers die at random moments, and the data proves that nothing is lost and
nothing doubled.

COMETMQ_SPARK_KILLS sets the number of kills of each test (3); COMETMQ_SEED the moments.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from crash_lives import Executioner, Feeder
from spark_kit import BROKER, RunningBroker

from cometmq.protocol.record_cy import decode_records

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.crash, pytest.mark.timeout(3600)]

KILLS = int(os.environ.get("COMETMQ_SPARK_KILLS", "3"))
SEED = int(os.environ.get("COMETMQ_SEED", "1"))
QUEUES = 4
COLUMNS = ["queueId", "queueOffset", "body"]


def crash_and_finish(
    broker: RunningBroker, topic: str, arguments: list[str], commits: Path, errors: Path
) -> int:
    """The number of messages that were sent to the source while the pipeline died again and again."""
    began = time.monotonic()
    feeder = Feeder(broker, topic, QUEUES)
    with closing(Executioner(arguments, commits, errors, SEED)) as executioner:
        try:
            executioner.kill_often(KILLS)
        finally:
            sent = feeder.stop()
        executioner.finish()
        print(
            f"{arguments[0]}: {executioner.kills.total()} kills {dict(executioner.kills)} in {executioner.lives} "
            f"lives, {sent} messages, seed {SEED}, {time.monotonic() - began:.0f} s"
        )
        assert executioner.kills.total() >= KILLS
    return sent


def messages_of(broker: RunningBroker, topic: str) -> list[Any]:
    return [
        message
        for piece in broker.pieces(topic)
        for message in decode_records(piece.body)
        if piece.start <= message.queue_offset < piece.end
    ]


def test_archive_is_exactly_once(broker: RunningBroker, topic: str, tmp_path: Path) -> None:
    import pyarrow.dataset

    root = tmp_path / "lake"
    sent = crash_archive("archive", broker, topic, root)
    files = [str(path) for path in root.glob("topic=*/date=*/*.parquet")]
    check_table(pyarrow.dataset.dataset(files).to_table(columns=COLUMNS), broker, topic, sent)


def test_delta_table_is_exactly_once(broker: RunningBroker, topic: str, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="pip install 'cometmq[delta]'")
    root = tmp_path / "table"
    sent = crash_archive("delta", broker, topic, root)
    check_table(deltalake.DeltaTable(str(root)).to_pyarrow_table(columns=COLUMNS), broker, topic, sent)


def crash_archive(what: str, broker: RunningBroker, topic: str, root: Path) -> int:
    """The number of messages that were sent; the names of the files have no gap and no overlap."""
    from cometmq.spark.pipes import verify_archive

    arguments = [what, broker.name_server, topic, str(root), ""]
    commits = root / "_checkpoint" / "commits"
    sent = crash_and_finish(broker, topic, arguments, commits, root.parent / "errors")
    assert verify_archive(root) == []
    return sent


def check_table(table: Any, broker: RunningBroker, topic: str, sent: int) -> None:
    """Every message of the topic is there once, and none else."""
    places = Counter(zip(table["queueId"].to_pylist(), table["queueOffset"].to_pylist(), strict=True))
    stored = {
        (message.queue_id, message.queue_offset): message.body for message in messages_of(broker, topic)
    }
    assert places == Counter(dict.fromkeys(stored, 1))
    assert Counter(table["body"].to_pylist()) == Counter(b"body-%d" % number for number in range(sent))


def test_sink_is_exactly_once(broker: RunningBroker, topic: str, tmp_path: Path) -> None:
    target = f"{topic}-copy"
    broker.create_topic(target, QUEUES)
    checkpoint = tmp_path / "checkpoint"
    arguments = ["sink", broker.name_server, topic, target, str(checkpoint)]
    sent = crash_and_finish(broker, topic, arguments, checkpoint / "commits", tmp_path / "errors")
    copies = messages_of(broker, target)
    origins = Counter(
        f"{topic}:{BROKER}:{message.queue_id}:{message.queue_offset}"
        for message in messages_of(broker, topic)
    )
    assert Counter(message.properties["UNIQ_KEY"] for message in copies) == origins
    assert Counter(message.body for message in copies) == Counter(b"body-%d" % n for n in range(sent))
