"""Tables, progress, times: the pure parts of the commands."""

from __future__ import annotations

import doctest
import importlib
import io

import pytest

from cometmq.cli.connect import parse_moment, parse_pairs
from cometmq.cli.render import Done, Facts, Listing, Progress, Report, body_text, fit, lines, plain, table
from cometmq.errors import ClientError


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
def test_a_table_is_never_wider_than_the_terminal(width: int) -> None:
    rows = [{"name": "x" * 50, "count": 123456, "text": "y" * 70}, {"name": "a", "count": 1, "text": None}]
    made = table(["name", "count", "text"], rows, width)
    assert max(map(len, made)) <= max(width, 3 * 6 + 4)


def test_numbers_stand_right_and_nothing_is_cut_without_a_terminal() -> None:
    made = table(["name", "n"], [{"name": "long name", "n": 5}, {"name": "b", "n": 1234}], None)
    assert made == ["NAME          N", "long name     5", "b          1234"]


def test_the_widest_column_gives_first() -> None:
    assert fit([5, 50, 5], 40) == [5, 26, 5]
    assert fit([5, 5], 80) == [5, 5]


def test_every_output_has_lines_and_json() -> None:
    report = Report({"one": Facts({"a": 1, "b": None}), "many": Listing([{"x": True}])})
    assert plain(report) == {"one": {"a": 1, "b": None}, "many": [{"x": True}]}
    assert lines(report, None) == ["one", "a  1", "b  -", "", "many", "X", "yes"]
    assert lines(Listing([], empty="nothing"), 80) == ["nothing"]
    assert plain(Done("done", {"topic": "t"})) == {"result": "done", "topic": "t"}


def test_a_bar_is_drawn_on_terminals_only() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        progress = Progress("work", 10, stream)
        progress.advance(5)
        progress.close()
    assert "50%" in terminal.getvalue()
    assert pipe.getvalue() == ""


@pytest.mark.parametrize(
    ("text", "moment"), [("-1h", 3600.0), ("30m", 5400.0), ("1500", 1.5), ("1970-01-01T00:00:10+00:00", 10.0)]
)
def test_times_are_read_in_many_forms(text: str, moment: float) -> None:
    assert parse_moment(text, now_s=7200) == moment


def test_nonsense_is_refused_with_examples() -> None:
    with pytest.raises(ClientError, match="-2h"):
        parse_moment("yesterday")
    with pytest.raises(ClientError, match="name=value"):
        parse_pairs(["novalue"])


def test_bodies_are_text_or_hex() -> None:
    assert body_text("grün".encode()) == "grün"
    assert body_text(b"\xff\x00") == "0xff00"
    assert body_text(b"x" * 100, 10) == "x" * 9 + "…"


@pytest.mark.parametrize("name", ["render", "connect", "bench"])
def test_examples_in_docstrings_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(f"cometmq.cli.{name}")).failed == 0
