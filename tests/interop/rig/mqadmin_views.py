"""What of a printed text must be equal on both sides: all of it, or a part where values differ by nature."""

from __future__ import annotations

import re

NUMBER = re.compile(r"-?\d+(\.\d+)?(E-?\d+)?")


def whole(text: str) -> object:
    return text.splitlines()


def sorted_lines(text: str) -> object:
    """The lines, where their order comes from a hash table."""
    return sorted(text.splitlines())


def sorted_without_retries(text: str) -> object:
    """The lines; the offset of a retry queue is stored only after the first held pull."""
    return sorted(line for line in text.splitlines() if not line.startswith("%RETRY%"))


def unique_lines(text: str) -> object:
    """The different lines; admin clients of the tests show up in their own time."""
    return sorted({line for line in text.splitlines() if "@admin" not in line})


def without_rates(text: str) -> object:
    """All but the rate of consumption, and the retry queue: its offset is stored after the first held pull."""
    lines = re.sub(r"(?m)^Consume TPS: .*$", "Consume TPS: N", text).splitlines()
    return [line for line in lines if not line.startswith("%RETRY%")]


def sorted_without_rates(text: str) -> object:
    """Rows of groups: name, members, version, type, model and lag without the rate."""
    rows = [re.sub(r"\s+", " ", line) for line in text.splitlines()]
    return sorted(re.sub(r"(CLUSTERING|BROADCASTING) \d+", r"\1 N", row) for row in rows)


def without_eval(text: str) -> object:
    return re.sub(r"eval=(true|false)", "eval=X", text).splitlines()


def names_of_rows(text: str) -> object:
    """Heading, and the words of the rows; every number is a rate, a load or a time."""
    heading, *rows = [line for line in text.splitlines() if line.strip()]
    words = [tuple(word for word in row.split() if not NUMBER.match(word)) for row in rows]
    return [heading.split(), *sorted(words)]


def columns(text: str) -> object:
    """The heading alone; a failure shows as a missing one."""
    return [line.split() for line in text.splitlines() if line.startswith("#")]


def keys(text: str) -> object:
    """The names of ``name : value`` lines; a value may be empty."""
    separator = re.compile(r"\s*[:=](?:\s|$)|\":")
    return sorted(separator.split(line)[0].strip() for line in text.splitlines() if separator.search(line))


def settings(text: str) -> object:
    """``name=value`` of each setting."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and "====" not in line)
    found = {name.strip(): value.strip() for name, _, value in pairs}
    return [f"{name}={value}" for name, value in sorted(found.items())]


def only_settings_of(reference: str, text: str) -> str:
    """Without the settings that the reference does not have: more of ours are no difference to a reader."""
    known = {line.partition("=")[0].strip() for line in reference.splitlines()}
    return "\n".join(line for line in text.splitlines() if line.partition("=")[0].strip() in known)


def running_info(text: str) -> object:
    """Names of the settings and subscriptions of a consumer; its rates, times and threads are its own."""
    before_threads = text.split("#Consumer jstack#")[0]
    return [line.split()[0] for line in before_threads.splitlines() if line.strip()]


def no_failure(text: str) -> object:
    return "Exception" not in text
