"""Administration of accounts: 50 to 54. Event loop only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from cometmq.errors import ConfigError
from cometmq.protocol import json_java
from cometmq.protocol.bodies.access import AclConfig, PlainAccessConfig
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import (
    AclInfoResponseHeader,
    CreateAccessConfigHeader,
    DeleteAccessConfigHeader,
    UpdateGlobalWhiteAddrsHeader,
)

if TYPE_CHECKING:
    from cometmq.broker.acl import AccessControl
    from cometmq.broker.broker import Broker
    from cometmq.net.connection import Connection
    from cometmq.net.server import Handler

Serve = Callable[["Broker", RemotingCommand], Awaitable[RemotingCommand]]

NOT_ENABLED = "acl is not enabled; set aclEnable=true and restart the broker"


def handlers(broker: Broker) -> dict[int, Handler]:
    table = {
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: (
            update_account,
            ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
        ),
        RequestCode.DELETE_ACL_CONFIG: (delete_account, ResponseCode.DELETE_ACL_CONFIG_FAILED),
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO: (get_versions, ResponseCode.SYSTEM_ERROR),
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: (
            update_white_addresses,
            ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED,
        ),
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: (get_config, ResponseCode.SYSTEM_ERROR),
    }
    return {code: partial(_answer, broker, *entry) for code, entry in table.items()}


def _accounts(broker: Broker) -> AccessControl:
    if broker.acl is None:
        raise ConfigError(NOT_ENABLED)
    return broker.acl


async def _answer(
    broker: Broker, serve: Serve, failure: ResponseCode, connection: Connection, command: RemotingCommand
) -> RemotingCommand:
    try:
        response = await serve(broker, command)
    except ConfigError as error:
        return command.response(failure, str(error))
    return response


async def update_account(broker: Broker, command: RemotingCommand) -> RemotingCommand:
    header = CreateAccessConfigHeader.decode(command.ext_fields)
    await _accounts(broker).update_account(
        {
            "accessKey": header.access_key,
            "secretKey": header.secret_key,
            "whiteRemoteAddress": header.white_remote_address,
            "admin": header.admin,
            "defaultTopicPerm": header.default_topic_perm,
            "defaultGroupPerm": header.default_group_perm,
            "topicPerms": _items(header.topic_perms),
            "groupPerms": _items(header.group_perms),
        }
    )
    return command.response()


async def delete_account(broker: Broker, command: RemotingCommand) -> RemotingCommand:
    access_key = DeleteAccessConfigHeader.decode(command.ext_fields).access_key
    if not await _accounts(broker).delete_account(access_key):
        raise ConfigError(
            f"The accesskey[{access_key}] corresponding to accessConfig has been deleted failed."
        )
    return command.response()


async def update_white_addresses(broker: Broker, command: RemotingCommand) -> RemotingCommand:
    header = UpdateGlobalWhiteAddrsHeader.decode(command.ext_fields)
    await _accounts(broker).replace_white_addresses(
        _items(header.global_white_addrs) or [], header.acl_file_full_path
    )
    return command.response()


async def get_versions(broker: Broker, command: RemotingCommand) -> RemotingCommand:
    return command.response(
        header=AclInfoResponseHeader(
            version=json_java.dumps(_accounts(broker).default_version),
            all_acl_file_version=json_java.dumps(_accounts(broker).versions()),
            broker_name=broker.config.broker_name,
            broker_addr=broker.address,
            cluster_name=broker.config.broker_cluster_name,
        )
    )


async def get_config(broker: Broker, command: RemotingCommand) -> RemotingCommand:
    white: list[str] = []
    accounts: list[PlainAccessConfig] = []
    for content in _accounts(broker).contents():
        white += [str(text) for text in content.get("globalWhiteRemoteAddresses") or []]
        accounts += [_plain_access(item) for item in content.get("accounts") or []]
    return command.response(body=AclConfig(global_white_addrs=white, plain_access_configs=accounts).encode())


def _plain_access(item: dict[str, Any]) -> PlainAccessConfig:
    def text(key: str) -> str | None:
        return None if item.get(key) is None else str(item[key])

    return PlainAccessConfig(
        access_key=text("accessKey") or "",
        secret_key=text("secretKey"),
        white_remote_address=text("whiteRemoteAddress"),
        admin=str(item.get("admin", "")).lower() == "true",
        default_topic_perm=text("defaultTopicPerm"),
        default_group_perm=text("defaultGroupPerm"),
        topic_perms=item.get("topicPerms"),
        group_perms=item.get("groupPerms"),
    )


def _items(text: str | None) -> list[str] | None:
    return None if text is None else [item.strip() for item in text.split(",") if item.strip()]
