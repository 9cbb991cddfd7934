"""What pipelines do without Spark: intervals, sentences of failures, schemas, the report, the command's own checks."""

from __future__ import annotations

import argparse
import doctest
import importlib
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark", reason="pip install 'cometmq[spark]'")

from cometmq.cli.main import main
from cometmq.cli.pipe import configure
from cometmq.cli.pipe_progress import progress_text
from cometmq.errors import ClientError, ConfigError
from cometmq.spark.pipes.archive_decode import check_decode, read_schema
from cometmq.spark.pipes.audit import Audit, GroupAudit
from cometmq.spark.pipes.audit_report import lag_svg, report_html
from cometmq.spark.pipes.failures import plain_failures, sentence_of
from cometmq.spark.pipes.intervals import again_and_again, seconds_of


@pytest.mark.parametrize("name", ["failures", "intervals", "audit_report"])
def test_examples_of_pipes_hold(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"cometmq.spark.pipes.{name}"))
    assert tried
    assert not failed


@pytest.mark.parametrize("text", ["", "0", "soon", "5 parsecs", "-3"])
def test_strange_intervals_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no interval: write seconds"):
        seconds_of(text)


def test_rounds_begin_apart_and_failures_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    slept: list[float] = []
    costs = iter([2.0, 30.0, 1.0])

    def work() -> int:
        nonlocal now
        now += next(costs)
        if len(slept) == 1:
            raise ClientError("The broker is away.")
        if len(slept) == 2:
            raise KeyboardInterrupt
        return 0

    with pytest.raises(KeyboardInterrupt):
        again_and_again(10, work, sleep=slept.append, clock=lambda: now)
    assert slept == [8.0, 0.0]
    assert "The broker is away. The next try comes in 10 s." in capsys.readouterr().err
    assert again_and_again(None, lambda: 7) == 7


def test_own_error_inside_spark_pages_is_found() -> None:
    page = (
        "[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_DATA_SOURCE_ERROR] Failed when\n"
        'Traceback (most recent call last):\n  File "x.py", line 1, in read\n    raise\n'
        "cometmq.errors.ClientError: Topic orders is unknown; create it.\n SQLSTATE: 38000\n\tat org.apache.spark"
    )
    assert sentence_of(page) == "Topic orders is unknown; create it."


def test_query_is_not_named_by_its_numbers() -> None:
    page = "[STREAM_FAILED] Query [id = 9, runId = f8] terminated with exception: It broke. SQLSTATE: XXKST\n=== S"
    assert sentence_of(page) == "It broke. (Spark: STREAM_FAILED)"


def test_errors_of_ours_pass_and_those_of_spark_become_ours() -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(ConfigError, match="as it is"), plain_failures("never shown"):
        raise ConfigError("as it is")
    with pytest.raises(ClientError, match="no such thing") as caught, plain_failures("Do that."):
        raise AnalysisException("no such thing\n  at org.apache")
    assert str(caught.value).endswith("Do that.")


def test_decoding_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs a schema"):
        check_decode("json", None, "parquet", tmp_path)
    with pytest.raises(ConfigError, match="goes with decode=json"):
        check_decode("raw", "id int", "parquet", tmp_path)
    with pytest.raises(ConfigError, match="writes no variants"):
        check_decode("variant", None, "delta", tmp_path)
    with pytest.raises(ConfigError, match="raw, json, variant"):
        check_decode("xml", None, "parquet", tmp_path)
    (tmp_path / "_schema.json").write_text("{}")
    check_decode("json", None, "parquet", tmp_path)


def test_schema_may_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "schema").write_text("id int\n")
    assert read_schema(f"@{tmp_path / 'schema'}") == "id int"
    assert read_schema("id int") == "id int"
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_schema(f"@{tmp_path / 'none'}")


def test_report_says_what_is_wrong_and_escapes_names() -> None:
    group = GroupAudit("<g>", 1, 3, 2, 4, [1.0, 2.0, 30_000.0], [(1_700_000_000, 2), (1_700_000_005, 0)])
    found = Audit("<t>", 5, 0, 4, 1, 0, [1.0, 2.0, 3.0], ["ID<1>"], [group])
    text = report_html(found, made=datetime(2026, 1, 1, tzinfo=UTC))
    assert "<g>" not in text
    assert "<t>" not in text
    assert "1 messages were sent with success and are not stored, for example ID&lt;1&gt;" in text
    assert "30.0 s" in text
    assert "22:13:20" in text
    whole = report_html(Audit("t", 5, 0, 5, 0, 0, []))
    assert "Every message that was sent with success is stored" in whole


def test_plot_of_nothing_and_of_one_moment() -> None:
    assert "<svg" not in lag_svg([])
    assert "<svg" in lag_svg([(5, 0)])


def test_command_line_knows_when_to_repeat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    configure(parser)
    assert parser.parse_args(["archive", "t", "--to", "x", "--every", "30"]).every == "30"
    with pytest.raises(SystemExit):
        parser.parse_args(["audit", "t", "--once", "--every", "30"])
    assert main(["pipe", "dlq", "redrive", "g", "--every", "30"]) == 1
    assert "Only analyse can be repeated" in capsys.readouterr().err
    assert main(["pipe", "archive", "--to", str(tmp_path)]) == 1
    assert "Say which topics to archive" in capsys.readouterr().err
    assert main(["pipe", "archive", "t", "--to", str(tmp_path), "--every", "often"]) == 1
    assert "is no interval" in capsys.readouterr().err


class Tracker:
    """As Spark's StatusTracker answers; stage 1 is already forgotten."""

    def __init__(self, *stage_ids: int) -> None:
        self._stage_ids = stage_ids

    def getActiveStageIds(self) -> list[int]:
        return list(self._stage_ids)

    def getStageInfo(self, stage_id: int) -> SimpleNamespace | None:
        return None if stage_id == 1 else SimpleNamespace(numCompletedTasks=stage_id, numTasks=8)


def test_progress_tells_tasks() -> None:
    assert progress_text(Tracker(1, 3)) == "3 of 8 tasks"
    assert progress_text(Tracker(1)) == "planning"
