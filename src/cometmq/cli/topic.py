"""Topics: list, create, show, delete."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from cometmq.cli.connect import add_verb, confirm, run_verb, verbs_of
from cometmq.cli.render import Done, Facts, Listing, Output, Report, moment
from cometmq.errors import ClientError, TopicNotFound

if TYPE_CHECKING:
    from cometmq.client.client import Client

run = run_verb

PERMISSIONS = {"rw": 6, "r": 4, "w": 2}
PERMISSION_TEXTS = {6: "read, write", 4: "read", 2: "write", 7: "read, write, inherit"}


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = verbs_of(parser)
    listing = add_verb(verbs, "list", list_topics, "names of topics")
    listing.add_argument("--system", action="store_true", help="also retry, dead-letter and internal topics")
    listing.add_argument("--cluster", help="of this cluster only")

    create = add_verb(verbs, "create", create_topic, "create a topic, or change its settings")
    create.add_argument("topic")
    create.add_argument("-q", "--queues", type=int, default=8, help="queues on each broker (8)")
    create.add_argument("--cluster", help="on the brokers of this cluster only")
    create.add_argument("--broker", metavar="NAME", help="on this broker only")
    create.add_argument("--perm", choices=PERMISSIONS, default="rw", help="what is allowed (rw)")
    create.add_argument("--order", action="store_true", help="mark as ordered")

    show = add_verb(verbs, "show", show_topic, "settings, queues and readers of a topic")
    show.add_argument("topic")

    delete = add_verb(verbs, "delete", delete_topic, "delete a topic with its messages")
    delete.add_argument("topic")
    delete.add_argument("--cluster", help="at the brokers of this cluster only")
    delete.add_argument("-y", "--yes", action="store_true", help="do not ask")


async def list_topics(client: Client, args: argparse.Namespace) -> Output:
    if args.cluster is not None:
        await client.admin.masters(
            args.cluster
        )  # a cluster that does not exist is an error, not an empty one
    names = await client.admin.topics(args.cluster, system=args.system)
    return Listing(
        [{"topic": name} for name in names],
        empty="no topics; create one with: cometmq topic create NAME",
    )


async def create_topic(client: Client, args: argparse.Namespace) -> Output:
    settings = await client.admin.create_topic(
        args.topic,
        queues=args.queues,
        cluster=args.cluster,
        broker=args.broker,
        perm=PERMISSIONS[args.perm],
        order=args.order,
    )
    brokers = [one.broker_name for one in settings]
    return Done(
        f"topic {args.topic} has {args.queues} queues on {', '.join(brokers)}",
        {"topic": args.topic, "queues": args.queues, "brokers": brokers},
    )


async def show_topic(client: Client, args: argparse.Namespace) -> Output:
    admin = client.admin
    settings = await admin.topic_settings(args.topic)
    stats = await admin.topic_stats(args.topic)
    rows: list[dict[str, Any]] = [
        {
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "first": offsets.min_offset,
            "next": offsets.max_offset,
            "messages": offsets.max_offset - offsets.min_offset,
            "last message": moment(offsets.last_update_timestamp),
        }
        for queue, offsets in stats.items()
    ]
    facts = {
        "topic": args.topic,
        "queues": sum(one.read_queues for one in settings),
        "permission": sorted({PERMISSION_TEXTS.get(one.perm, str(one.perm)) for one in settings}),
        "messages": sum(row["messages"] for row in rows),
        "groups": await admin.topic_groups(args.topic),
    }
    return Report({"topic": Facts(facts), "queues": Listing(rows)})


async def delete_topic(client: Client, args: argparse.Namespace) -> Output:
    try:
        await client.admin.topic_route(args.topic)
    except TopicNotFound as error:  # an error, not a success; and to create it is no remedy here
        raise ClientError(f"there is no topic {args.topic!r}; cometmq topic list shows all") from error
    confirm(f"Topic {args.topic} and all its messages will be deleted.", args)
    await client.admin.delete_topic(args.topic, args.cluster)
    return Done(f"topic {args.topic} is deleted", {"topic": args.topic})
