"""Consumer groups: list, show, lag, reset, create, delete."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from cometmq.cli.connect import add_verb, confirm, parse_moment, run_verb, verbs_of
from cometmq.cli.render import Done, Facts, Listing, Output, Report, moment
from cometmq.errors import ClientError
from cometmq.protocol.names import BUILT_IN_GROUPS, SYSTEM_GROUP_PREFIX

if TYPE_CHECKING:
    from cometmq.client.client import Client

run = run_verb


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = verbs_of(parser)
    listing = add_verb(verbs, "list", list_groups, "groups with members and lag")
    listing.add_argument("--names", action="store_true", help="only the names (one request instead of many)")
    listing.add_argument("--system", action="store_true", help="also the groups that every broker has")

    show = add_verb(verbs, "show", show_group, "settings, members and subscriptions of a group")
    show.add_argument("group")

    lag = add_verb(verbs, "lag", show_lag, "how far a group is behind, by queue")
    lag.add_argument("group")
    lag.add_argument("--topic", help="in this topic only")

    reset = add_verb(verbs, "reset", reset_group, "move a group to another place in a topic")
    reset.add_argument("group")
    reset.add_argument("topic")
    reset.add_argument(
        "--to", required=True, help="begin, end, or a time: -2h, 2026-11-16T10:00, milliseconds"
    )
    reset.add_argument("--dry-run", action="store_true", help="only show what would change")
    reset.add_argument("-y", "--yes", action="store_true", help="do not ask")

    create = add_verb(verbs, "create", create_group, "create a group, or change its settings")
    create.add_argument("group")
    create.add_argument("--max-retries", type=int, default=16)
    create.add_argument("--no-broadcast", action="store_true", help="refuse members that broadcast")
    create.add_argument("--disabled", action="store_true", help="nobody may consume")

    delete = add_verb(verbs, "delete", delete_group, "delete a group with its retry and dead-letter topics")
    delete.add_argument("group")
    delete.add_argument("--offsets", action="store_true", help="also forget its offsets")
    delete.add_argument("-y", "--yes", action="store_true", help="do not ask")


async def list_groups(client: Client, args: argparse.Namespace) -> Output:
    names = [name for name in await client.admin.groups() if args.system or not _is_system(name)]
    if args.names:
        return Listing([{"group": name} for name in names])
    rows = []
    for name in names:
        members = await client.admin.members(name)
        lag = await client.admin.lag(name)
        rows.append(
            {
                "group": name,
                "members": 0 if members is None else len(members.connection_set),
                "topics": sorted({queue.topic for queue in lag}),
                "lag": sum(lag.values()),
            }
        )
    return Listing(rows, empty="no groups yet; a group appears with its first member")


def _is_system(group: str) -> bool:
    return group in BUILT_IN_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


async def show_group(client: Client, args: argparse.Namespace) -> Output:
    admin = client.admin
    settings = await admin.group_settings(args.group)
    members = await admin.members(args.group)
    facts: dict[str, Any] = {
        "group": args.group,
        "enabled": settings.consume_enable,
        "broadcast allowed": settings.consume_broadcast_enable,
        "max retries": settings.retry_max_times,
        "members": 0 if members is None else len(members.connection_set),
        "lag": sum((await admin.lag(args.group)).values()),
    }
    if members is not None:
        facts |= {"kind": members.consume_type, "model": members.message_model}
    connections = [] if members is None else members.connection_set
    subscriptions = {} if members is None else members.subscription_table
    return Report(
        {
            "group": Facts(facts),
            "members": Listing(
                [
                    {
                        "client": c.client_id,
                        "address": c.client_addr,
                        "language": c.language,
                        "version": c.version,
                    }
                    for c in connections
                ],
                empty="nobody is online",
            ),
            "subscriptions": Listing(
                [
                    {"topic": topic, "filter": one.sub_string, "type": one.expression_type}
                    for topic, one in sorted(subscriptions.items())
                ],
                empty="none",
            ),
        }
    )


async def show_lag(client: Client, args: argparse.Namespace) -> Output:
    progress = await client.admin.progress(args.group, args.topic)
    rows = [
        {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "next": one.broker_offset,
            "consumed": one.consumer_offset,
            "lag": one.broker_offset - one.consumer_offset,
            "last consumed": moment(one.last_timestamp),
        }
        for queue, one in progress.items()
    ]
    return Listing(rows, empty=f"group {args.group} has consumed nothing yet")


async def reset_group(client: Client, args: argparse.Namespace) -> Output:
    admin = client.admin
    to: str | float = args.to if args.to in ("begin", "end") else parse_moment(args.to)
    rows = []
    for queue in await admin.queues(args.topic):
        now = await admin.committed(args.group, queue)
        if to == "begin":
            then = await admin.min_offset(queue)
        elif to == "end":
            then = await admin.max_offset(queue)
        else:
            assert not isinstance(to, str)
            then = await admin.offset_at(queue, to)
        moved = None if now is None else then - now
        rows.append(
            {"broker": queue.broker_name, "queue": queue.queue_id, "from": now, "to": then, "change": moved}
        )
    if args.dry_run:
        return Listing(rows, title=f"group {args.group} in topic {args.topic} would move:")
    confirm(f"Group {args.group} will be moved in {len(rows)} queues of topic {args.topic}.", args)
    await admin.reset_offsets(args.group, args.topic, to)
    return Listing(rows, title=f"group {args.group} in topic {args.topic} was moved:")


async def create_group(client: Client, args: argparse.Namespace) -> Output:
    await client.admin.create_group(
        args.group,
        retry_max_times=args.max_retries,
        consume_broadcast_enable=not args.no_broadcast,
        consume_enable=not args.disabled,
    )
    return Done(f"group {args.group} is set up", {"group": args.group})


async def delete_group(client: Client, args: argparse.Namespace) -> Output:
    if args.group not in await client.admin.groups():
        raise ClientError(f"no broker knows group {args.group!r}; cometmq group list shows all")
    confirm(f"Group {args.group} with its retry and dead-letter topics will be deleted.", args)
    await client.admin.delete_group(args.group, remove_offsets=args.offsets)
    return Done(f"group {args.group} is deleted", {"group": args.group})
