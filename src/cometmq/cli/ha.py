"""Replication: which broker of a group is where, and how far its slaves are behind."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from cometmq.cli.connect import add_verb, run_verb, verbs_of
from cometmq.cli.render import Listing, Output
from cometmq.errors import CometMQError

if TYPE_CHECKING:
    from cometmq.client.client import Client

MASTER_ID = 0

run = run_verb


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = verbs_of(parser)
    status = add_verb(
        verbs, "status", show_status, "masters and slaves, and how many bytes slaves are behind"
    )
    status.add_argument("broker", nargs="?", help="name of one group (default: all)")


async def show_status(client: Client, args: argparse.Namespace) -> Output:
    """Works with brokers of RocketMQ 4.9 as well: it needs nothing but their runtime figures."""
    info = await client.admin.cluster_info()
    rows: list[dict[str, Any]] = []
    for name, broker in sorted(info.broker_addr_table.items()):
        if args.broker in (None, name):
            rows += await _group(client, name, dict(broker.broker_addrs))
    return Listing(rows, empty="no such broker is registered" if args.broker else "no broker is registered")


async def _group(client: Client, name: str, addresses: dict[int, str]) -> list[dict[str, Any]]:
    """The slaves are asked first: a lag is never shown smaller than it was."""
    ends = {number: await _range(client, addresses[number]) for number in sorted(addresses, reverse=True)}
    master = ends.get(MASTER_ID)
    rows = []
    for number, address in sorted(addresses.items()):
        found = ends[number]
        is_slave = number != MASTER_ID
        behind = master[1] - found[1] if is_slave and master is not None and found is not None else None
        rows.append(
            {
                "group": name,
                "id": number,
                "role": "slave" if is_slave else "master",
                "address": address,
                "log from": found[0] if found is not None else "no answer",
                "log to": found[1] if found is not None else None,
                "behind bytes": behind,
            }
        )
    return rows


async def _range(client: Client, address: str) -> tuple[int, int] | None:
    """First and end physical offset of a broker's log, None if it does not answer."""
    try:
        facts = await client.admin.runtime_info(address)
        return int(facts["commitLogMinOffset"]), int(facts["commitLogMaxOffset"])
    except (CometMQError, KeyError):
        return None
