"""``cometmq store``: exit codes, tables that fit, JSON, and sentences on bad input. The real command, in process."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cometmq.cli.main import main
from cometmq.cli.store import ProgressBar, shorten, size_text, table

GoldenStore = Callable[[str], Path]
Output = pytest.CaptureFixture[str]


def test_inspect_fits_a_terminal_of_80_columns(
    golden_store: GoldenStore, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    root = golden_store("clean")
    assert main(["store", "inspect", str(root)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines[1:]) <= 80  # the first has the path
    text = "\n".join(lines)
    assert "stopped in order" in lines[0]
    assert "5 files of 256 KiB" in text
    assert "0 .. 1181650" in text
    topic = next(line for line in lines if line.startswith("TopicFill"))
    assert topic.split()[1:3] == ["3", "700"]
    assert any(line.startswith("LLLL") and "…" in line for line in lines)
    assert "20261115213407803" in text


def test_inspect_lists_queues_when_asked(golden_store: GoldenStore, capsys: Output) -> None:
    root = golden_store("features")
    assert main(["store", "inspect", str(root), "--queues"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["TopicSql", "1+ext", "0", "15", "1"] in [line[:5] for line in lines]
    assert ["%LMQ%alpha", "0", "0", "6", "1"] in [line[:5] for line in lines]


def test_inspect_as_json_has_everything(golden_store: GoldenStore, capsys: Output) -> None:
    assert main(["store", "inspect", str(golden_store("crash")), "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["aborted"] is True
    assert value["log"]["max_physical_offset"] == 1661070
    assert len(value["queues"]) == 34
    assert value["checkpoint"]["indexMsgTimestamp"] > 0


def test_verify_of_a_sound_store_exits_with_0(golden_store: GoldenStore, capsys: Output) -> None:
    assert main(["store", "verify", str(golden_store("clean"))]) == 0
    assert "is sound: 827 records" in capsys.readouterr().out


def test_verify_of_a_damaged_store_exits_with_1_and_names_file_and_offset(
    golden_store: GoldenStore, capsys: Output
) -> None:
    root = golden_store("clean")
    path = root / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[88 + 24 + 3] ^= 1  # in the body of the first record, whose hosts are IPv6
    path.write_bytes(data)
    assert main(["store", "verify", str(root)]) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"ERROR {path} at 0: the record at this physical offset is damaged (the CRC")
    assert "is NOT sound, " in out
    assert main(["store", "verify", str(root), "--json"]) == 1
    value = json.loads(capsys.readouterr().out)
    assert value["sound"] is False
    assert value["findings"][0]["path"] == str(path)
    assert value["findings"][0]["severity"] == "error"


def test_verify_tells_notes_apart(golden_store: GoldenStore, capsys: Output) -> None:
    assert main(["store", "verify", str(golden_store("torn"))]) == 0
    out = capsys.readouterr().out
    assert out.count("NOTE ") == 5
    assert "is sound, 5 notes: 1544 records" in out


def test_dump_prints_json_lines(golden_store: GoldenStore, capsys: Output) -> None:
    root = str(golden_store("clean"))
    assert main(["store", "dump", root]) == 0
    values = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(values) == 827
    assert (
        main(
            ["store", "dump", root, "--topic", "TopicA", "--queue", "1", "--from-offset", "4", "--limit", "3"]
        )
        == 0
    )
    values = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [value["queueOffset"] for value in values] == [4, 5, 6]
    assert all("body" in value for value in values)
    assert main(["store", "dump", root, "--limit", "1", "--body", "none"]) == 0
    assert json.loads(capsys.readouterr().out)["bodySize"] == 11


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["inspect", "nowhere"], "does not exist: give the storePathRootDir"),
        (["verify", "nowhere"], "does not exist"),
        (["dump", "nowhere"], "does not exist"),
        (["inspect", "."], "has no commit log"),
    ],
)
def test_bad_directories_end_in_one_sentence(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["store", *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err
    assert captured.err.count("\n") == 1


def test_dump_of_an_unknown_topic_suggests_one(golden_store: GoldenStore, capsys: Output) -> None:
    assert main(["store", "dump", str(golden_store("clean")), "--topic", "TopicFil"]) == 1
    assert "did you mean TopicFill?" in capsys.readouterr().err
    assert main(["store", "dump", "x", "--queue", "1"]) == 2


def test_output_into_a_closed_pipe_is_no_traceback(golden_store: GoldenStore) -> None:
    command = [sys.executable, "-m", "cometmq.cli.main", "store", "dump", str(golden_store("clean"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
        process.wait(20)
    assert errors == b""


def test_progress_is_drawn_on_one_line_and_wiped_at_the_end() -> None:
    out = io.StringIO()
    bar = ProgressBar(out)
    bar(0, 1000)
    bar(1000, 1000)
    text = out.getvalue()
    assert "\n" not in text
    assert "100% of 1000 bytes" in text
    assert text.endswith("\r\x1b[K")


def test_tables_shorten_the_first_column_only() -> None:
    rows = [("a" * 50, "1"), ("b", "22")]
    assert list(table(("NAME", "N"), rows, 20, "lr")) == [
        "NAME               N",
        "aaaaaaaa…aaaaaaa   1",
        "b                 22",
    ]
    assert list(table(("NAME", "N"), [], 20, "lr")) == ["Name: none"]
    assert shorten("abcdef", 6) == "abcdef"


def test_sizes_are_written_for_people() -> None:
    assert [size_text(size) for size in (0, 999, 262144, 1 << 30, 1500 << 20)] == [
        "0 bytes",
        "999 bytes",
        "256 KiB",
        "1 GiB",
        "1.5 GiB",
    ]


def test_the_store_is_not_touched(golden_store: GoldenStore, capsys: Output) -> None:
    root = golden_store("features")
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    for what in ("inspect", "verify", "dump"):
        assert main(["store", what, str(root)]) == 0
    capsys.readouterr()
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
    assert not os.path.exists(root / "abort")
