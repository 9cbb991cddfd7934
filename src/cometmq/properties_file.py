"""Java ``.properties`` text: reading, writing, and laying its keys over a dataclass of settings.

Pure functions over text; who reads and writes the file decides about threads.

    key = value        also ``key:value`` and ``key value``; blanks around key and separator do not count
    # or ! ...         a comment line
    a backslash        at the end of a line continues it; \\t \\n \\r \\f \\uXXXX are escapes, \\x is x
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from cometmq.errors import ConfigError

BLANKS = " \t\f"
SEPARATORS = "=:"
# Java system properties: accepted in the file of a server and kept as text
SYSTEM_PROPERTY_PREFIXES = ("tls.", "rocketmq.", "com.rocketmq.")
PORT_MAX = 65535
NEAREST_CUTOFF = 0.6  # similarity from which a known key is suggested for an unknown one
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}


class BadProperties(ValueError):
    """Text that is not a properties file."""


def parse(text: str) -> dict[str, str]:
    """The keys and values of properties text; of two equal keys the last wins."""
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        properties[_unescape(key)] = _unescape(value)
    return properties


def parse_bytes(data: bytes) -> dict[str, str]:
    """Properties as a file or a request body holds them: UTF-8, else the ISO-8859-1 of the Java format."""
    return parse(_text(data))


def repeated_keys(data: bytes) -> list[str]:
    """A sentence for each key that a file sets more than once: of such values only one can be meant."""
    counts = Counter(_unescape(_split(line)[0]) for line in _logical_lines(_text(data)))
    return [
        f"setting {key} stands there {count} times; the last one counts, remove the others"
        for key, count in counts.items()
        if count > 1
    ]


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("iso-8859-1")


def format_properties(properties: Mapping[str, str], comment: str = "") -> str:
    """Properties text that :func:`parse` and Java read back as the same keys and values."""
    lines = [f"# {line}" for line in comment.splitlines()]
    lines += [f"{_escape(key, is_key=True)}={_escape(value)}" for key, value in properties.items()]
    return "\n".join(lines) + "\n"


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank lines, continuation lines joined."""
    collected = ""
    for raw in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = raw.lstrip(BLANKS)
        if not collected and (not line or line[0] in "#!"):
            continue
        if _ends_with_backslash(line):
            collected += line[:-1]
            continue
        yield collected + line
        collected = ""
    if collected:
        yield collected


def _ends_with_backslash(line: str) -> bool:
    """An odd number of backslashes continues the line, an even number is text."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str) -> tuple[str, str]:
    position = _key_end(line)
    rest = line[position:].lstrip(BLANKS)
    if rest[:1] and rest[0] in SEPARATORS:
        rest = rest[1:].lstrip(BLANKS)
    return line[:position], rest


def _key_end(line: str) -> int:
    escaped = False
    for position, character in enumerate(line):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character in SEPARATORS or character in BLANKS:
            return position
    return len(line)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    characters = iter(text)
    for character in characters:
        if character != "\\":
            out.append(character)
            continue
        escape = next(characters, "")
        out.append(_unicode(characters) if escape == "u" else _ESCAPES.get(escape, escape))
    joined = "".join(out)
    # Java writes characters beyond the 16-bit plane as two escapes.
    return joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unicode(characters: Iterator[str]) -> str:
    digits = "".join(next(characters, "") for _ in range(4))
    try:
        return chr(int(digits, 16))
    except ValueError:
        raise BadProperties(f"\\u{digits} is not an escape of four hexadecimal digits.") from None


def _escape(text: str, *, is_key: bool = False) -> str:
    out: list[str] = []
    for position, character in enumerate(text):
        if character in _WRITTEN:
            out.append(_WRITTEN[character])
        elif character == " " and (is_key or position == 0):
            out.append("\\ ")
        elif is_key and character in "=:#!":
            out.append("\\" + character)
        elif " " <= character <= "~":
            out.append(character)
        else:
            units = character.encode("utf-16-be", "surrogatepass").hex()
            out += [f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4)]
    return "".join(out)


# --- properties and dataclasses ---


def camel_case(name: str) -> str:
    """``listen_port`` -> ``listenPort``: the Java key of a field."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def named(key: str, default: Any) -> Any:
    """A field whose Java key is not simply the camel-case form of its name."""
    return field(default=default, metadata={"key": key})


@dataclass(frozen=True)
class Setting:
    """One field that can be set by a key."""

    key: str
    name: str
    kind: str  # "bool", "int", "float" or "str"


def settings_of(settings_type: type) -> dict[str, Setting]:
    """Key -> field of a dataclass; a field's ``metadata["key"]`` names an odd key, None hides the field."""
    found = {}
    for f in fields(settings_type):
        key = f.metadata.get("key", camel_case(f.name))
        if key is not None:
            found[key] = Setting(key, f.name, str(f.type))
    return found


def parse_value(kind: str, text: str) -> bool | int | float | str:
    """Text to a value, the way Java's setters do it; ValueError when it is no number."""
    text = text.strip()
    if kind == "bool":
        return text.lower() == "true"
    if kind == "int":
        return int(text)
    if kind == "float":
        return float(text)
    return text


def odd_value(kind: str, key: str, text: str) -> str | None:
    """A sentence about text that Java's setters take without a word, and that cannot be what was meant."""
    if kind == "bool" and text.strip().lower() not in ("true", "false"):
        return f"setting {key} is {text!r}, which means false; write true or false"
    return None


def check_port(key: str, port: int) -> None:
    """Sockets take a larger number, and use its last 16 bits."""
    if not 0 <= port <= PORT_MAX:
        raise ConfigError(f"{key} is {port}; it must be 1 to {PORT_MAX}, or 0 for any free port.")


def format_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def apply_properties(target: Any, properties: Mapping[str, str]) -> list[str]:
    """Set the fields of a dataclass object; returns one warning for each key that had no effect."""
    known = settings_of(type(target))
    warnings: list[str] = []
    for key, text in properties.items():
        setting = known.get(key)
        if setting is None:
            warnings.append(f"unknown setting {key!r} is ignored{nearest(key, known)}")
            continue
        try:
            setattr(target, setting.name, parse_value(setting.kind, text))
        except ValueError:
            kept = getattr(target, setting.name)
            warnings.append(f"setting {key} cannot be {text!r} (want {setting.kind}); {kept!r} stays")
    return warnings


def as_properties(target: Any) -> dict[str, str]:
    """Every key with its value as text."""
    known = settings_of(type(target))
    return {key: format_value(getattr(target, setting.name)) for key, setting in known.items()}


def nearest(key: str, known: Mapping[str, object]) -> str:
    """``; did you mean 'listenPort'?`` or nothing."""
    folded = {name.lower(): name for name in known}
    close = difflib.get_close_matches(key.lower(), folded, n=1, cutoff=NEAREST_CUTOFF)
    return f"; did you mean {folded[close[0]]!r}?" if close else ""
