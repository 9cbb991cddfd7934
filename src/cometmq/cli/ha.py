"""Replication: who is master and who follows, how far behind; planned switch, replicas in and out, and a demo."""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cometmq.cli.connect import add_verb, confirm, run_verb, verbs_of
from cometmq.cli.render import Done, Listing, Output
from cometmq.errors import BrokerError, ClientError, CometMQError
from cometmq.protocol.bodies.route import MASTER_ID
from cometmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from cometmq.client.client import Client

# What a new replica has from the others; the last ones only where they are not the defaults.
NEW_REPLICA_KEYS = (
    "brokerClusterName",
    "brokerName",
    "namesrvAddr",
    "controllerPeers",
    "brokerRole",
    "flushDiskType",
    "mappedFileSizeCommitLog",
)
SHARED_PREFIXES = ("ha", "controller", "minInSync", "acl")
OWN_KEYS = ("haListenPort", "haMasterAddress", "haBootId", "controllerSelfId", "controllerStorePath")


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = verbs_of(parser)
    status = add_verb(
        verbs, "status", show_status, "masters and replicas, epochs, who is in sync, how far behind"
    )
    status.add_argument("broker", nargs="?", help="name of one group (default: all)")
    switch = add_verb(
        verbs, "switch", switch_master, "hand the mastership over, without an error for clients"
    )
    switch.add_argument("broker", help="name of the group")
    switch.add_argument(
        "--to", type=int, default=0, metavar="ID", help="replica to be master (default: any in sync)"
    )
    add = add_verb(verbs, "add", add_replica, "write the settings of a new replica of a group")
    add.add_argument("broker", help="name of the group")
    add.add_argument("--id", type=int, required=True, help="its number, never used before in the group")
    add.add_argument(
        "--store", required=True, type=os.path.abspath, metavar="DIR", help="an empty directory for its store"
    )
    add.add_argument("--port", type=int, required=True, help="its listenPort")
    add.add_argument(
        "--output", metavar="FILE", help="where to write them (default: broker.conf in the store)"
    )
    remove = add_verb(verbs, "remove", remove_replica, "forget a replica for ever; stop it afterwards")
    remove.add_argument("broker", help="name of the group")
    remove.add_argument("id", type=int, help="number of the replica")
    remove.add_argument("--yes", action="store_true", help="do not ask")
    force = add_verb(
        verbs, "force", force_master, "make a replica master although confirmed messages may be lost"
    )
    force.add_argument("broker", help="name of the group")
    force.add_argument("id", type=int, help="number of the replica")
    force.add_argument("--accept-loss", action="store_true", help="you know that messages may be lost")
    demo = verbs.add_parser(
        "demo",
        help="start three brokers, kill the master before your eyes and show how long sends stood still",
    )
    demo.add_argument("--rounds", type=int, default=3, help="how many masters to kill (default 3)")
    demo.add_argument("--fast", action="store_true", help="short timeouts (for quiet machines)")
    demo.add_argument("--json", action="store_true", help="print JSON")
    demo.set_defaults(function=None)


def run(args: argparse.Namespace) -> int:
    if args.verb != "demo":
        return run_verb(args)
    from cometmq.cli.ha_demo import run_demo

    return asyncio.run(run_demo(args))


# -- status -----------------------------------------------------------------------------------------------------------


async def show_status(client: Client, args: argparse.Namespace) -> Output:
    """Works with brokers of RocketMQ 4.9 as well: for those it needs nothing but their runtime figures."""
    info = await client.admin.cluster_info()
    if args.broker:
        _check_known(info.broker_addr_table, args.broker)
    rows: list[dict[str, Any]] = []
    for name, broker in sorted(info.broker_addr_table.items()):
        if args.broker in (None, name):
            rows += await _group(client, name, dict(broker.broker_addrs))
    return Listing(rows, empty="no broker is registered")


def _check_known(table: Mapping[str, object], broker: str) -> None:
    if broker not in table:
        raise ClientError(f"no broker {broker!r}; there are: {', '.join(table) or 'none'}")


async def _group(client: Client, name: str, addresses: dict[int, str]) -> list[dict[str, Any]]:
    replicas = await asyncio.gather(*(_status(client, address) for address in addresses.values()))
    known = [found for found in replicas if found is not None]
    if known:
        return _elected_group(name, known)
    return await _classic_group(client, name, addresses)


async def _status(client: Client, address: str) -> dict[str, Any] | None:
    try:
        return await client.admin.ha_status(address)
    except CometMQError:
        return None


def _elected_group(name: str, replicas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The view of the highest epoch counts; a replica that does not answer is shown as its master sees it."""
    best = max(replicas, key=lambda found: (found["epoch"], found["setVersion"], found["role"] == "MASTER"))
    by_id = {found["replicaId"]: found for found in replicas}
    followers = best["followers"]
    rows = []
    for number in sorted({*by_id, *map(int, followers), *best["syncSet"]}):
        found = by_id.get(number)
        lag = followers.get(str(number), {})
        rows.append(
            {
                "group": name,
                "id": number,
                "role": _role(found),
                "address": found["address"] if found else "no answer",
                "epoch": found["epoch"] if found else None,
                "in sync": number in best["syncSet"],
                "log to": found["maxOffset"] if found else None,
                "confirmed": found["confirmOffset"] if found else None,
                "behind bytes": lag.get("lagBytes"),
                "behind s": _behind_s(lag, answers=found is not None),
                "lease": bool(found["lease"]) if found and found["role"] == "MASTER" else None,
            }
        )
    return rows


def _behind_s(lag: dict[str, Any], *, answers: bool) -> float | None:
    """One that does not answer is behind since its master heard of it last, whatever it had then."""
    if not lag:
        return None
    behind_ms: int = max(lag["lagMs"], 0 if answers else lag.get("silenceMs", 0))
    return round(behind_ms / 1000, 1)


def _role(found: dict[str, Any] | None) -> str | None:
    if found is None:
        return None
    standing = found["standing"]
    if found.get("refusal"):
        return "removed"
    return str(found["role"]).lower() + (
        f" ({standing.lower()})" if standing not in (None, "SERVING") else ""
    )


async def _classic_group(client: Client, name: str, addresses: dict[int, str]) -> list[dict[str, Any]]:
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


# -- changes ----------------------------------------------------------------------------------------------------------


async def switch_master(client: Client, args: argparse.Namespace) -> Output:
    try:
        status = await client.admin.switch_master(args.broker, args.to)
    except BrokerError as error:
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise ClientError(
                f"The group {args.broker!r} does not elect its master; that takes enableControllerMode=true."
            ) from error
        raise
    master = f"replica {status['master']} at {status['masterAddress']}"
    return Done(
        f"{args.broker}: {master} is master in epoch {status['epoch']}",
        {"master": status["master"], "epoch": status["epoch"]},
    )


async def add_replica(client: Client, args: argparse.Namespace) -> Output:
    """A replica needs the group's name and its controllers; everything else it copies from the master."""
    info = await client.admin.cluster_info()
    _check_known(info.broker_addr_table, args.broker)
    address = next(iter(info.broker_addr_table[args.broker].broker_addrs.values()))
    status = await client.admin.ha_status(address)
    if status is None:
        raise ClientError(
            f"The group {args.broker!r} does not elect its master; a slave of it needs brokerRole=SLAVE."
        )
    if args.id in {int(status["replicaId"]), *map(int, status["followers"]), *status["syncSet"]}:
        raise ClientError(f"The number {args.id} is used by a replica of the group already.")
    theirs = await client.admin.broker_config(address)
    settings = _shared_settings(theirs) | {
        "enableControllerMode": "true",
        "brokerId": str(args.id),
        "listenPort": str(args.port),
        "storePathRootDir": args.store,
    }
    path = await asyncio.to_thread(_write_settings, args, settings)
    return Done(f"start it with: cometmq broker -c {path}", {"config": str(path), "settings": settings})


def _shared_settings(theirs: Mapping[str, str]) -> dict[str, str]:
    """Leases and timeouts must be the same in a whole group."""
    from cometmq.broker.config import BrokerConfig

    defaults = BrokerConfig().as_properties()
    changed = {
        key: value
        for key, value in theirs.items()
        if key.startswith(SHARED_PREFIXES) and key not in OWN_KEYS and value and value != defaults.get(key)
    }
    return changed | {key: theirs[key] for key in NEW_REPLICA_KEYS if theirs.get(key)}


def _write_settings(args: argparse.Namespace, settings: dict[str, str]) -> Path:
    path = Path(args.output or Path(args.store) / "broker.conf")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


async def remove_replica(client: Client, args: argparse.Namespace) -> Output:
    confirm(f"Forget replica {args.id} of {args.broker} for ever?", args)
    await client.admin.remove_replica(args.broker, args.id)
    return Done(f"{args.broker}: replica {args.id} is removed; stop it now", {"removed": args.id})


async def force_master(client: Client, args: argparse.Namespace) -> Output:
    if not args.accept_loss:
        raise ClientError(
            f"Replica {args.id} may lack messages that were confirmed, and they would be lost. Bring back a replica "
            "that was in sync if there is any; otherwise add --accept-loss."
        )
    await client.admin.force_master(args.broker, args.id)
    return Done(f"{args.broker}: replica {args.id} is master; messages may be lost", {"master": args.id})
