"""The cluster: its brokers and what they do."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from cometmq.cli.connect import add_verb, run_verb, verbs_of
from cometmq.cli.render import Listing, Output
from cometmq.errors import CometMQError

if TYPE_CHECKING:
    from cometmq.client.client import Client

run = run_verb


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = verbs_of(parser)
    add_verb(verbs, "show", show_cluster, "brokers with their rates and disks")


async def show_cluster(client: Client, args: argparse.Namespace) -> Output:
    info = await client.admin.cluster_info()
    rows = []
    for cluster, names in sorted(info.cluster_addr_table.items()):
        for name in sorted(names):
            for number, address in sorted(info.broker_addr_table[name].broker_addrs.items()):
                rows.append(await _row(client, cluster, name, number, address))
    return Listing(
        rows, empty="no broker is registered; start one with: cometmq broker -n " + (args.servers or "")
    )


async def _row(client: Client, cluster: str, name: str, number: int, address: str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "cluster": cluster,
        "broker": name,
        "id": number,
        "address": address,
        "version": None,
        "in/s": None,
        "out/s": None,
        "disk %": None,
        "today in": None,
    }
    try:
        facts = await client.admin.runtime_info(address)
    except CometMQError as error:
        row["version"] = f"no answer: {error}"
        return row
    row |= {
        "version": facts.get("brokerVersionDesc"),
        "in/s": first_number(facts.get("putTps")),
        "out/s": first_number(facts.get("getTransferedTps")),
        "disk %": round(float(facts.get("commitLogDiskRatio") or 0) * 100, 1),
        "today in": number_of(facts, "msgPutTotalTodayNow") - number_of(facts, "msgPutTotalTodayMorning"),
    }
    return row


def first_number(text: str | None) -> float:
    """Rates come as three numbers: ten seconds, a minute, ten minutes."""
    parts = (text or "0").split()
    return round(float(parts[0]), 1) if parts else 0.0


def number_of(facts: dict[str, str], name: str) -> int:
    try:
        return int(facts.get(name, "0"))
    except ValueError:
        return 0
