"""Write docs/client/reference.md from the docstrings of the public names.

python scripts/make_client_reference.py          write the file
python scripts/make_client_reference.py --check  fail if it is not up to date (a test does so)
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TARGET = Path(__file__).resolve().parent.parent / "docs" / "client" / "reference.md"
HEAD = """# Reference

Made from the docstrings by `scripts/make_client_reference.py`; do not edit.
"""


def sections() -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    import cometmq
    from cometmq import sync, testing
    from cometmq.client.consumer import allocation, options
    from cometmq.client.transactions import HalfMessage

    def of(names: str) -> list[tuple[str, Any]]:
        return [(name, getattr(cometmq, name)) for name in names.split()]

    yield "Client and settings", of("Client Settings")
    yield (
        "Producing",
        [
            *of("Producer TransactionalProducer"),
            ("HalfMessage", HalfMessage),
            *of("Message SendResult SendStatus"),
        ],
    )
    yield (
        "Consuming",
        [
            *of("Consumer Stream"),
            ("ConsumerOptions", options.ConsumerOptions),
            *of("ReceivedMessage StartFrom TagFilter SqlFilter Retry Reject TransactionState Queue"),
        ],
    )
    strategies = ["Average", "Circle", "ConsistentHash", "MachineRoom", "MachineRoomNearby", "Config"]
    yield "Allocation strategies", [(name, getattr(allocation, name)) for name in strategies]
    yield "Administration", of("Admin")
    errors = (
        "CometMQError ClientError BrokerError ConnectionLost Timeout RequestTimeout SendFailed TopicNotFound "
        "MessageInvalid ClientClosed ClientForked"
    )
    yield "Errors", of(errors)
    yield "cometmq.sync", [(name, getattr(sync, name)) for name in sync.__all__]
    yield "cometmq.testing", [(name, getattr(testing, name)) for name in testing.__all__]


def text() -> str:
    parts = [HEAD]
    for title, members in sections():
        parts.append(f"## {title}\n")
        parts += [describe(name, thing) for name, thing in members]
    return "\n".join(parts).rstrip() + "\n"


def describe(name: str, thing: Any) -> str:
    lines = [f"### `{name}`\n", doc(thing), ""]
    if inspect.isclass(thing):
        if dataclasses.is_dataclass(thing):
            lines += fields_table(thing)
        lines += members_of(thing)
    elif callable(thing):
        lines[0] = f"### `{name}{signature(thing)}`\n"
    return "\n".join(lines)


def doc(thing: Any) -> str:
    found = inspect.getdoc(thing) or ""
    if inspect.isclass(thing) and thing.__doc__ is None:
        return ""
    return found


def fields_table(cls: Any) -> list[str]:
    rows = ["| field | default |", "| --- | --- |"]
    for item in dataclasses.fields(cls):
        value = item.default if item.default is not dataclasses.MISSING else ""
        rows.append(f"| `{item.name}` | `{value!r}` |" if value != "" else f"| `{item.name}` | |")
    return [*rows, ""]


def members_of(cls: type) -> list[str]:
    lines = []
    for name, member in sorted(_public(cls)):
        if isinstance(member, property):
            lines.append(f"- `{name}` — {first_line(member.fget)}")
            continue
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        kind = "await " if inspect.iscoroutinefunction(function) else ""
        lines.append(f"- `{kind}{name}{signature(function)}` — {first_line(function)}")
    return [*(line.removesuffix(" — ") for line in lines), ""] if lines else []


def _public(cls: type) -> Iterator[tuple[str, Any]]:
    for name in dir(cls):
        if name.startswith("_"):
            continue
        member = inspect.getattr_static(cls, name)
        module = getattr(getattr(member, "__func__", member), "__module__", "") or ""
        wanted = isinstance(member, property) or (inspect.isroutine(member) and module.startswith("cometmq"))
        if wanted and not issubclass(cls, BaseException):
            yield name, member


def first_line(function: Any) -> str:
    return (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")


def signature(function: Any) -> str:
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return "()"
    parameters = [one for one in found.parameters.values() if one.name not in ("self", "cls")]
    return str(found.replace(parameters=parameters)).replace("'", "").replace(" -> None", "")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, say whether it is up to date")
    check = parser.parse_args().check
    if check:
        return 0 if TARGET.exists() and TARGET.read_text() == text() else 1
    TARGET.write_text(text())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
