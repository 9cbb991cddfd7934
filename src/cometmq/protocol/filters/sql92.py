"""SQL92 filters on message properties: one expression in, one Python function out.

An expression is parsed once per subscription and turned into the source of a small Python function, which
CPython compiles; evaluating it then costs about as much as writing the condition by hand.

Theory of operation. Properties are text, or missing. Every operand has a *kind* that is known while parsing (a
property, a literal of some type, a truth value), so all conversions are chosen at compile time: a property beside an
integer literal is read as that integer type, beside a float as a float, beside TRUE or FALSE as a truth value; two
properties are compared as text by ``=`` and as floats by ``<``. A property that cannot be read that way ends the
evaluation: the message does not match. Logic is three-valued (True, False, None), and only True matches.

The grammar and its corners (NOT binds tighter than a comparison; what follows a complete expression is ignored) are
those of RocketMQ 4.9; what does not compile is an error here, never "match all".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cometmq.errors import CometMQError

EXPRESSION_LENGTH_MAX = 65_536  # characters
NESTING_MAX = 40  # parentheses and prefix operators inside each other
TERMS_MAX = 2_000  # operands of one expression
CACHED_EXPRESSIONS = 100

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308
DOUBLE_MIN = 5e-324  # the smallest positive one

Filter = Callable[[Mapping[str, str]], "bool | None"]


class Sql92Error(CometMQError):
    """An expression that does not compile; the text says where and why."""


def compile(expression: str) -> Filter:
    """The function ``properties -> True | False | None`` of an expression; raises Sql92Error.

    >>> wanted = compile("a > 3 AND color IN ('red', 'blue')")
    >>> wanted({"a": "5", "color": "red"}), wanted({"color": "red"}), wanted({"a": "1"})
    (True, None, False)
    """
    if len(expression) > EXPRESSION_LENGTH_MAX:
        raise Sql92Error(
            f"The expression has {len(expression)} characters; {EXPRESSION_LENGTH_MAX} is the limit."
        )
    return _compiled(expression)


@lru_cache(CACHED_EXPRESSIONS)
def _compiled(expression: str) -> Filter:
    code = _Parser(expression).parse()
    source = (
        "def matches(properties):\n"
        " get = properties.get\n"
        " try:\n"
        f"  return {code}\n"
        " except ValueError:\n"
        "  return None\n"
    )
    scope: dict[str, Any] = {"int32": _int32, "int64": _int64, "double": _double, "never": _never}
    exec(source, scope)  # the source holds only our own templates, numbers and repr() of names and strings
    matches: Filter = scope["matches"]
    return matches


# -- conversions at run time ------------------------------------------------------------------------------------

_double_text = re.compile(r"\s*[+-]?(NaN|Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?)\s*", re.ASCII)


def _integer(text: str) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(text)
    return int(text)


def _int32(text: str) -> int:
    value = _integer(text)
    if not INT_MIN <= value <= INT_MAX:
        raise ValueError(text)
    return value


def _int64(text: str) -> int:
    value = _integer(text)
    if not LONG_MIN <= value <= LONG_MAX:
        raise ValueError(text)
    return value


def _double(text: str) -> float:
    if not _double_text.fullmatch(text):
        raise ValueError(text)
    return float(text.strip().rstrip("fFdD"))


def _never() -> None:
    """A comparison that the original answers with an exception."""
    raise ValueError


# -- the parts of an expression ---------------------------------------------------------------------------------

PROPERTY, STRING, INT, LONG, DOUBLE, TRUTH, NULL, NOTHING = (
    "property", "string", "int", "long", "double", "truth", "null", "nothing",
)  # fmt: skip
NUMBERS = (INT, LONG, DOUBLE)
CONVERT = {INT: "int32", LONG: "int64", DOUBLE: "double"}
# Most integers are short: read them without a call of ours.
SHORT_INT = "(int({0}) if {0}.isdigit() and len({0}) < 10 else int32({0}))"


@dataclass(slots=True)
class Operand:
    """``code`` computes it; ``value`` is there for a literal, ``name`` for a property."""

    kind: str
    code: str
    value: int | float | str | bool | None = None
    name: str = ""
    literal: bool = False


def _converted(variable: str, convert: str) -> str:
    return (
        SHORT_INT.format(variable)
        if convert == CONVERT[INT] and variable.isidentifier()
        else f"{convert}({variable})"
    )


def _describe(operand: Operand) -> str:
    if operand.kind == PROPERTY:
        return f"the property {operand.name}"
    return f"the constant {operand.code}" if operand.literal else f"a {operand.kind}"


# -- text to tokens ---------------------------------------------------------------------------------------------

_tokens = re.compile(
    r"""
    (?P<blank>  [ \t\n\r\f]+ | --[^\n\r]*(?:\n|\r\n?) | /\*.*?\*/ )
  | (?P<float>  \d+\.\d*(?:[eE][+-]?\d+)? | \.\d+(?:[eE][+-]?\d+)? | \d+[eE][+-]?\d+ )
  | (?P<int>    (?:0|[1-9]\d*)[lL]? )
  | (?P<string> '(?:[^']|'')*' )
  | (?P<word>   [A-Za-z_$][A-Za-z0-9_$]* )
  | (?P<sign>   <> | <= | >= | [=<>(),+\-] )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
KEYWORDS = frozenset(["NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"])
END = ("end", "")


class _Parser:
    """Recursive descent; one method per rule of the grammar, each answers the operand it read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._depth = 0
        self._terms = 0
        self._temporaries = 0
        self._token = END
        self._advance()

    def parse(self) -> str:
        """The Python expression of the whole; what follows a complete expression is ignored, as in the original."""
        return self._truth(self._or())

    # tokens

    def _advance(self) -> None:
        while True:
            self._start = self._position
            if self._position >= len(self._text):
                self._token = END
                return
            match = _tokens.match(self._text, self._position)
            if match is None:
                raise self._error(f"{self._text[self._position]!r} is not part of the language")
            self._position = match.end()
            kind = match.lastgroup or ""
            if kind != "blank":
                word = match.group()
                if kind == "word" and word.upper() in KEYWORDS:
                    kind, word = "keyword", word.upper()
                self._token = (kind, word)
                return

    def _take(self, *words: str) -> str:
        """The current sign or keyword if it is one of these, else an empty text."""
        kind, word = self._token
        if kind in ("sign", "keyword") and word in words:
            self._advance()
            return word
        return ""

    def _need(self, word: str) -> None:
        if not self._take(word):
            raise self._error(f"{word} is missing before {self._token[1] or 'the end'!r}")

    def _error(self, reason: str) -> Sql92Error:
        return Sql92Error(
            f"The expression {self._text[:200]!r} does not compile: {reason} (column {self._start + 1})."
        )

    def _temporary(self) -> str:
        self._temporaries += 1
        return f"t{self._temporaries}"

    # rules

    def _or(self) -> Operand:
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise self._error(f"it is nested deeper than {NESTING_MAX}")
        operand = self._chain("OR", self._and, self._either)
        self._depth -= 1
        return operand

    def _and(self) -> Operand:
        return self._chain("AND", self._equality, self._both)

    def _chain(self, word: str, part: Callable[[], Operand], join: Callable[[str, str], str]) -> Operand:
        """A run of AND or OR as a balanced tree: same order of evaluation, but little depth."""
        operands = [part()]
        while self._take(word):
            operands.append(part())
        if len(operands) == 1:
            return operands[0]
        codes = [self._truth(operand) for operand in operands]
        while len(codes) > 1:
            pairs = [
                join(*codes[i : i + 2]) if i + 1 < len(codes) else codes[i] for i in range(0, len(codes), 2)
            ]
            codes = pairs
        return Operand(TRUTH, codes[0])

    def _both(self, left: str, right: str) -> str:
        x, y = self._temporary(), self._temporary()
        return f"(False if ({x} := {left}) is False else {y} if ({y} := {right}) is not True else {x})"

    def _either(self, left: str, right: str) -> str:
        x, y = self._temporary(), self._temporary()
        return f"(True if ({x} := {left}) is True else {x} if ({y} := {right}) is False else {y})"

    def _equality(self) -> Operand:
        left = self._comparison()
        while True:
            sign = self._take("=", "<>", "IS")
            if not sign:
                return left
            if sign == "IS":
                negative = bool(self._take("NOT"))
                self._need("NULL")
                left = Operand(TRUTH, f"(({left.code}) is {'not ' if negative else ''}None)")
            else:
                left = self._equal(left, self._comparison(), negative=sign == "<>")

    def _comparison(self) -> Operand:
        left = self._unary()
        while True:
            sign = self._take(">", ">=", "<", "<=", "BETWEEN", "IN", "NOT")
            if not sign:
                return left
            negative = sign == "NOT"
            if negative:
                sign = self._take("BETWEEN", "IN")
                if not sign:
                    raise self._error("NOT is followed by neither BETWEEN nor IN")
            if sign == "BETWEEN":
                left = self._between(left, negative)
            elif sign == "IN":
                left = self._in(left, negative)
            else:
                left = self._less(left, sign, self._unary())

    def _unary(self) -> Operand:
        sign = self._take("+", "-", "NOT")
        if not sign:
            return self._primary()
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise self._error(f"it is nested deeper than {NESTING_MAX}")
        operand = self._unary()
        self._depth -= 1
        if sign == "+":
            return operand
        if sign == "-":
            return self._negate(operand)
        x = self._temporary()
        return Operand(TRUTH, f"(None if ({x} := {self._truth(operand)}) is None else not {x})")

    def _primary(self) -> Operand:
        self._terms += 1
        if self._terms > TERMS_MAX:
            raise self._error(f"it has more than {TERMS_MAX} operands")
        kind, word = self._token
        if self._take("("):
            operand = self._or()
            self._need(")")
            return operand
        if kind == "keyword" and word not in ("TRUE", "FALSE", "NULL"):
            raise self._error(f"{word} stands where a value is expected")
        if kind in ("sign", "end"):
            raise self._error(f"{word or 'the end'!r} stands where a value is expected")
        operand = self._literal(kind, word)
        self._advance()
        return operand

    def _literal(self, kind: str, word: str) -> Operand:
        if kind == "word":
            return Operand(PROPERTY, f"get({word!r})", name=word)
        if kind == "string":
            text = word[1:-1].replace("''", "'")
            return Operand(STRING, repr(text), text, literal=True)
        if kind == "keyword":
            value = {"TRUE": True, "FALSE": False, "NULL": None}[word]
            return Operand(NULL if value is None else TRUTH, repr(value), value, literal=True)
        if kind == "float":
            number = float(word)
            if not DOUBLE_MIN <= number <= DOUBLE_MAX:
                raise self._error(f"the number {word} is out of the range of a double")
            return Operand(DOUBLE, repr(number), number, literal=True)
        integer = int(word.rstrip("lL"))
        if integer > LONG_MAX:
            raise self._error(f"the number {word} does not fit into 64 bits")
        return Operand(INT if integer <= INT_MAX else LONG, repr(integer), integer, literal=True)

    # operators

    def _negate(self, operand: Operand) -> Operand:
        if operand.kind in NUMBERS and isinstance(operand.value, int | float):
            return Operand(operand.kind, f"(-{operand.code})", -operand.value)
        return Operand(NOTHING, "None")  # a negative text is nothing

    def _truth(self, operand: Operand) -> str:
        """As a truth value: a lone property is never true."""
        if operand.kind in (TRUTH, NULL):
            return operand.code
        if operand.kind == PROPERTY:
            return f"(None if {operand.code} is None else False)"
        raise self._error(f"{_describe(operand)} is not a condition")

    def _equal(self, left: Operand, right: Operand, *, negative: bool) -> Operand:
        if NULL in (left.kind, right.kind):
            raise self._error("NULL is compared by IS NULL or IS NOT NULL")
        sign = "!=" if negative else "=="
        texts = (PROPERTY, STRING)
        if NOTHING in (left.kind, right.kind):
            return Operand(TRUTH, "None")
        if left.kind in texts and right.kind in texts:
            return self._compare(left, sign, right, "")
        if left.kind in texts and right.kind in NUMBERS:
            return self._compare(left, sign, right, CONVERT[right.kind])
        if left.kind in NUMBERS and right.kind in texts:
            return self._compare(left, sign, right, CONVERT[left.kind])
        if left.kind in texts and right.kind == TRUTH:
            x, y = self._temporary(), self._temporary()
            return Operand(
                TRUTH,
                f"(None if ({x} := {left.code}) is None or ({y} := {right.code}) is None"
                f" else ({x}.lower() == 'true') {sign} {y})",
            )
        if left.kind == right.kind or (left.kind in NUMBERS and right.kind in NUMBERS):
            return self._compare(left, sign, right, "")
        return Operand(TRUTH, "never()")  # a truth value against text or a number

    def _less(self, left: Operand, sign: str, right: Operand) -> Operand:
        for operand in (left, right):
            if operand.kind in (STRING, TRUTH, NULL):
                raise self._error(f"{_describe(operand)} cannot be compared by {sign}")
        if NOTHING in (left.kind, right.kind):
            return Operand(TRUTH, "None")
        numbers = [operand.kind for operand in (left, right) if operand.kind in NUMBERS]
        return self._compare(left, sign, right, CONVERT[numbers[0]] if numbers else CONVERT[DOUBLE])

    def _compare(self, left: Operand, sign: str, right: Operand, convert: str) -> Operand:
        """Null if a side is null; texts go through the conversion."""
        tests, sides = [], []
        for operand in (left, right):
            code = operand.code
            if operand.kind in (PROPERTY, TRUTH) and not operand.literal:
                x = self._temporary()
                tests.append(f"({x} := {code}) is None")
                code = x
            sides.append(
                _converted(code, convert) if convert and operand.kind in (PROPERTY, STRING) else code
            )
        compared = f"{sides[0]} {sign} {sides[1]}"
        return Operand(TRUTH, f"(None if {' or '.join(tests)} else {compared})" if tests else f"({compared})")

    def _between(self, left: Operand, negative: bool) -> Operand:
        low = self._unary()
        self._need("AND")
        high = self._unary()
        if low.literal and high.literal and low.kind in NUMBERS and high.kind in NUMBERS:
            assert isinstance(low.value, int | float)
            assert isinstance(high.value, int | float)
            if low.value > high.value:
                raise self._error(
                    f"BETWEEN {low.value} AND {high.value} is empty: the low bound stands first"
                )
        if negative:
            below, above = self._less(left, "<", low), self._less(left, ">", high)
            return Operand(TRUTH, self._either(below.code, above.code))
        if left.kind == PROPERTY and low.kind == high.kind and low.kind in NUMBERS:
            x = self._temporary()
            value = _converted(x, CONVERT[low.kind])
            return Operand(
                TRUTH, f"(None if ({x} := {left.code}) is None else {low.code} <= {value} <= {high.code})"
            )
        reached, within = self._less(left, ">=", low), self._less(left, "<=", high)
        return Operand(TRUTH, self._both(reached.code, within.code))

    def _in(self, left: Operand, negative: bool) -> Operand:
        if left.kind != PROPERTY:
            raise self._error("IN needs a property name on its left")
        self._need("(")
        values = [self._string()]
        while self._take(","):
            values.append(self._string())
        self._need(")")
        x = self._temporary()
        found = f"{x} {'not in' if negative else 'in'} {set(values)!r}"
        return Operand(TRUTH, f"(None if ({x} := {left.code}) is None else {found})")

    def _string(self) -> str:
        kind, word = self._token
        if kind != "string":
            raise self._error(f"IN lists texts in single quotes, not {word or 'the end'!r}")
        self._advance()
        return word[1:-1].replace("''", "'")
