"""What mqadmin commands are made of: options as mqadmin spells them, the table of commands, columns of text."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cometmq.errors import ClientError

if TYPE_CHECKING:
    from cometmq.client.client import Client

Lines = list[str]
Function = Callable[["Client", argparse.Namespace], Awaitable[Lines]]


@dataclass(frozen=True, slots=True)
class Option:
    short: str
    long: str
    help: str
    required: bool = False
    flag: bool = False  # without a value


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    help: str
    options: Sequence[Option]
    function: Function


COMMANDS: dict[str, Command] = {}

TOPIC = Option("t", "topic", "topic name", True)
GROUP = Option("g", "consumerGroup", "consumer group name", True)
CLUSTER = Option("c", "clusterName", "which cluster")
BROKER = Option("b", "brokerAddr", "which broker")


def command(name: str, help: str, *options: Option) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        COMMANDS[name] = Command(name, help, options, function)
        return function

    return register


async def targets_of(client: Client, args: argparse.Namespace) -> list[str]:
    """-b names a broker, -c a cluster; one of them is needed."""
    if args.brokerAddr:
        return [args.brokerAddr]
    if not getattr(args, "clusterName", None):
        raise ClientError("give -b host:port for one broker or -c name for a cluster")
    return list((await client.admin.masters(args.clusterName)).values())


async def broker_name(client: Client, address: str) -> str:
    for name, known in (await client.admin.masters()).items():
        if known == address:
            return name
    raise ClientError(f"no master is registered at {address}; check -b")


def time_text(timestamp_ms: int) -> str:
    if timestamp_ms <= 0:
        return "-"
    return datetime.fromtimestamp(timestamp_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")


def cells(widths: Sequence[int], cells: Sequence[Any]) -> str:
    return "  ".join(f"{cell!s:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def is_true(text: str | None, *, otherwise: bool = False) -> bool:
    return otherwise if text is None else text.lower() == "true"


def whole(args: argparse.Namespace, name: str, otherwise: int | None = None) -> int:
    """The number that an option gives; ``otherwise`` if it was not given."""
    text = getattr(args, name)
    if not text and otherwise is not None:
        return otherwise
    try:
        return int(text)
    except ValueError:
        raise ClientError(f"--{name} is {text!r}; write a whole number") from None


def parse_time(text: str) -> float:
    if text.isdigit():
        return int(text) / 1000
    for form in ("%Y-%m-%d#%H:%M:%S:%f", "%Y-%m-%d#%H:%M:%S"):
        try:
            return datetime.strptime(text, form).timestamp()
        except ValueError:
            continue
    raise ClientError(f"{text!r} is no time; write milliseconds or yyyy-MM-dd#HH:mm:ss:SSS")


REFUSED: dict[str, str] = {
    "startMonitoring": (
        "it is an endless monitor inside the tool; watch lag with `cometmq group lag GROUP --watch 10`, "
        "or let Prometheus read the metrics of the broker"
    ),
    "exportMetrics": (
        "its report is a rough copy of counters; read the metrics of the broker, `cometmq broker show` or "
        "`cometmq mqadmin brokerStatus`"
    ),
}
