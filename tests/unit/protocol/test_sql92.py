"""SQL92 filters: the compile-time and run-time rules of RocketMQ 4.9, and a check against SQLite."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cometmq.protocol.filters import bloom, sql92

ROW = {"a": "5", "b": "x", "f": "5.5", "t": "TRUE", "x": "2", "y": "1.5", "big": "99999999999", "KEYS": "k1"}

# expression, result on ROW
TRUTH = [
    ("a > 3", True),
    ("a >= 5 AND a <= 5", True),
    ("a < 5", False),
    ("3 < a", True),
    ("a = 5", True),
    ("5 = a", True),
    ("a <> 5", False),
    ("a = '5'", True),
    ("b = 'x'", True),
    ("b = 'X'", False),
    ("B = 'x'", None),  # names are case-sensitive
    ("a > 3 and b = 'x'", True),  # keywords are not
    ("missing > 3", None),
    ("missing <> 5", None),
    ("missing IS NULL", True),
    ("a IS NULL", False),
    ("a IS NOT NULL", True),
    ("f > 3", None),  # "5.5" is no integer
    ("f > 3.0", True),
    ("a > 3.5", True),
    ("a = 5.", True),
    ("a > .5", True),
    ("a < 1e3", True),
    ("x > y", True),  # two properties by < > as doubles
    ("x = y", False),
    ("a = x", False),
    ("b > 3.0", None),
    ("big > 3", None),  # does not fit into 32 bits
    ("big > 99999999998", True),
    ("a > 5L", False),
    ("t = TRUE", True),
    ("t <> FALSE", True),
    ("b = TRUE", False),
    ("TRUE = t", None),  # constant first: an exception in the original
    ("-a > 3", None),
    ("a > -3", True),
    ("a", False),
    ("missing", None),
    ("NOT (b = 'x')", False),
    ("NOT (missing = 'x')", None),
    ("NOT b = 'x'", None),
    ("a BETWEEN 1 AND 5", True),
    ("a NOT BETWEEN 1 AND 5", False),
    ("a BETWEEN 6 AND 9", False),
    ("a BETWEEN 1 AND 5.5", True),
    ("missing BETWEEN 1 AND 5", None),
    ("a BETWEEN x AND 9", True),
    ("b IN ('x', 'y')", True),
    ("b NOT IN ('x', 'y')", False),
    ("missing IN ('x')", None),
    ("missing NOT IN ('x')", None),
    ("b = 'it''s'", False),
    ("a = 6 AND missing = 1", False),
    ("missing = 1 AND a = 6", False),
    ("a = 5 AND missing = 1", None),
    ("a = 5 OR missing = 1", True),
    ("missing = 1 OR a = 5", True),
    ("a = 6 OR missing = 1", None),
    ("a = 6 OR a = 5 AND b = 'y'", False),
    ("(a = 5 OR a = 6) AND b = 'x'", True),
    ("TRUE", True),
    ("FALSE", False),
    ("NULL", None),
    ("a > 3 garbage", True),  # what follows a complete expression is ignored
    ("a > 3 )", True),
    ("b LIKE 'a%'", False),
    ("a > /* why */ 3 -- because\n", True),
    ("KEYS = 'k1'", True),
    ("1 = 1.0", True),
    ("(a > 3) = TRUE", True),
]

REFUSED = [
    "", "a >", "AND", "a = NULL", "a <> NULL", "a > 'x'", "a > TRUE", "a > NULL", "a BETWEEN 5 AND 1",
    "a BETWEEN 'x' AND 'y'", "NOT a > 3", "(a > 3) > 2", "a IN (1)", "a IN ()", "5 IN ('a')", "a > 0.0", "5",
    "'x'", "-a",     "a != 5", "a == 5", "a > 3 && b", "(a > 3", "a > 99999999999999999999",
    "a NOT 5", "a IS 5", "a > 1e999",
]  # fmt: skip


@pytest.mark.parametrize(("expression", "expected"), TRUTH)
def test_expression_gives_its_three_valued_result(expression: str, expected: bool | None) -> None:
    assert sql92.compile(expression)(ROW) is expected


@pytest.mark.parametrize("expression", REFUSED)
def test_expression_that_does_not_compile_is_an_error_in_one_sentence(expression: str) -> None:
    with pytest.raises(sql92.Sql92Error, match=r"does not compile: .* \(column"):
        sql92.compile(expression)


@pytest.mark.parametrize(
    "expression",
    ["(" * 5000 + "a" + ")" * 5000, "NOT " * 5000 + "a", "a=1 OR " * 9000 + "a=1", "- " * 9000 + "1 < a"],
)
def test_hostile_expression_meets_a_limit(expression: str) -> None:
    with pytest.raises(sql92.Sql92Error):
        sql92.compile(expression)


def test_long_chains_compile() -> None:
    wanted = sql92.compile(" OR ".join(f"a = {i}" for i in range(900)))
    assert wanted({"a": "899"}) is True
    assert wanted({"a": "900"}) is False


names = st.sampled_from(["a", "b", "c"])
numbers = st.integers(-20, 20)
texts = st.sampled_from(["x", "y", "it's", ""])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _joined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(parts, st.sampled_from(["AND", "OR"]), parts).map(lambda p: f"({p[0]}) {p[1]} ({p[2]})"),
        parts.map(lambda part: f"NOT ({part})"),
    )


number_conditions = st.one_of(
    st.tuples(names, st.sampled_from([">", ">=", "<", "<=", "=", "<>"]), numbers).map(
        lambda p: f"{p[0]} {p[1]} {p[2]}"
    ),
    st.tuples(names, st.sampled_from(["", "NOT "]), numbers, numbers).map(
        lambda p: f"{p[0]} {p[1]}BETWEEN {min(p[2:])} AND {max(p[2:])}"
    ),
    st.tuples(names, st.sampled_from(["IS NULL", "IS NOT NULL"])).map(" ".join),
)
text_conditions = st.one_of(
    st.tuples(st.just("s"), st.sampled_from(["=", "<>"]), texts).map(
        lambda p: f"{p[0]} {p[1]} {_quoted(p[2])}"
    ),
    st.tuples(st.sampled_from(["", "NOT "]), st.lists(texts, min_size=1, max_size=3)).map(
        lambda p: f"s {p[0]}IN ({', '.join(map(_quoted, p[1]))})"
    ),
)
expressions = st.recursive(st.one_of(number_conditions, text_conditions), _joined, max_leaves=8)


@settings(max_examples=400, deadline=None)
@given(expressions, st.dictionaries(names, numbers), st.one_of(st.none(), texts))
def test_result_agrees_with_sqlite(expression: str, row: dict[str, int], text: str | None) -> None:
    properties = {name: str(value) for name, value in row.items()} | ({} if text is None else {"s": text})
    values = (*(row.get(name) for name in "abc"), text)
    (expected,) = (
        sqlite3.connect(":memory:")
        .execute(f"WITH row(a, b, c, s) AS (SELECT ?, ?, ?, ?) SELECT {expression} FROM row", values)
        .fetchone()
    )
    assert sql92.compile(expression)(properties) is (None if expected is None else bool(expected))


def test_bloom_positions_are_those_of_the_original() -> None:
    parameters = bloom.BloomFilter.of(20, 32)
    assert (parameters.bits_per_key, parameters.bit_count) == (3, 112)
    assert parameters.positions("CG_sql0", "TopicSql") == (92, 98, 7)
    assert parameters.positions("CG_sql1", "TopicSql") == (79, 87, 1)
    bits = parameters.bit_map([(92, 98, 7)])
    assert bloom.is_hit((92, 98, 7), bits)
    assert not bloom.is_hit((79, 87, 1), bits)
