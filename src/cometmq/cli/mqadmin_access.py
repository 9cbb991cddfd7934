"""mqadmin commands for accounts. Secrets are sent, never printed."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cometmq.cli.mqadmin_base import BROKER, CLUSTER, Lines, Option, cells, command, targets_of, time_text
from cometmq.protocol import json_java

if TYPE_CHECKING:
    from cometmq.client.client import Client

ACCESS_KEY = Option("a", "accessKey", "set accessKey in acl config file", True)


@command(
    "updateAclConfig",
    "Update acl config yaml file in broker",
    BROKER,
    CLUSTER,
    ACCESS_KEY,
    Option("s", "secretKey", "set secretKey in acl config file"),
    Option("t", "topicPerms", "set topicPerms list, eg: topicA=DENY,topicD=SUB"),
    Option("g", "groupPerms", "set groupPerms list, eg: groupD=DENY,groupD=SUB"),
    Option("i", "defaultTopicPerm", "set default topicPerm"),
    Option("u", "defaultGroupPerm", "set default groupPerm"),
    Option("w", "whiteRemoteAddress", "set white ip Address for account"),
    Option("m", "admin", "set admin flag"),
)
async def update_acl_config(client: Client, args: argparse.Namespace) -> Lines:
    lines = []
    for address in await targets_of(client, args):
        await client.admin.set_account(
            address,
            args.accessKey,
            secret_key=args.secretKey,
            admin=None if args.admin is None else args.admin.lower() == "true",
            topic_perms=args.topicPerms,
            group_perms=args.groupPerms,
            default_topic_perm=args.defaultTopicPerm,
            default_group_perm=args.defaultGroupPerm,
            white_remote_address=args.whiteRemoteAddress,
        )
        lines.append(f"create or update plain access config to {address} success.")
    return lines


@command("deleteAccessConfig", "Delete Acl Config Account in broker.", BROKER, CLUSTER, ACCESS_KEY)
async def delete_access_config(client: Client, args: argparse.Namespace) -> Lines:
    lines = []
    for address in await targets_of(client, args):
        await client.admin.delete_account(address, args.accessKey)
        lines.append(f"delete plain access config account from {address} success.")
    return [*lines, f"account's accesskey is:{args.accessKey}"]


@command(
    "updateGlobalWhiteAddr",
    "Update global white address for acl Config File in broker",
    BROKER,
    CLUSTER,
    Option(
        "g",
        "globalWhiteRemoteAddresses",
        "set globalWhiteRemoteAddress list, eg: 10.10.103.*,192.168.0.*",
        True,
    ),
    Option("p", "aclFileFullPath", "specify the acl file; the broker has one"),
)
async def update_global_white_addr(client: Client, args: argparse.Namespace) -> Lines:
    lines = []
    for address in await targets_of(client, args):
        await client.admin.set_white_addresses(address, args.globalWhiteRemoteAddresses.split(","))
        lines.append(f"update global white remote addresses to {address} success.")
    return lines


@command("clusterAclConfigVersion", "List all of acl config version information in cluster", BROKER, CLUSTER)
async def cluster_acl_config_version(client: Client, args: argparse.Namespace) -> Lines:
    widths = (16, 22, 22, 20, 22)
    head = ("#Cluster Name", "#Broker Name", "#Broker Addr", "#AclConfigVersionNum", "#AclLastUpdateTime")
    lines = [cells(widths, head)]
    for address in await targets_of(client, args):
        found = await client.admin.account_version(address)
        version = json_java.loads(found.version)
        updated = time_text(int(version["timestamp"]))
        row = (found.cluster_name, found.broker_name, found.broker_addr, version["counter"], updated)
        lines.append(cells(widths, row))
    return [*lines, "get cluster's plain access config version success."]


@command("getAccessConfigSubCommand", "List all of acl config information in cluster", BROKER, CLUSTER)
async def get_access_config(client: Client, args: argparse.Namespace) -> Lines:
    lines = []
    for address in await targets_of(client, args):
        found = await client.admin.accounts(address)
        lines += ["", f"globalWhiteRemoteAddresses: {','.join(found.global_white_addrs)}", "accounts: "]
        for one in found.plain_access_configs:
            lines += [
                f"accessKey           : {one.access_key}",
                f"whiteRemoteAddress  : {one.white_remote_address or ''}",
                f"admin               : {str(one.admin).lower()}",
                f"defaultTopicPerm    : {one.default_topic_perm or ''}",
                f"defaultGroupPerm    : {one.default_group_perm or ''}",
                f"topicPerms          : {', '.join(one.topic_perms or ())}",
                f"groupPerms          : {', '.join(one.group_perms or ())}",
                "",
            ]
    return lines
