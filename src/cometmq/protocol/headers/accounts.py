"""Ext fields of access control."""

from __future__ import annotations

from msgspec import field as wire

from cometmq.protocol.header import Header


class CreateAccessConfigHeader(Header, kw_only=True):
    """UPDATE_AND_CREATE_ACL_CONFIG 50."""

    access_key: str = wire(name="accessKey")
    secret_key: str | None = wire(name="secretKey", default=None)
    white_remote_address: str | None = wire(name="whiteRemoteAddress", default=None)
    admin: bool | None = wire(name="admin", default=None)
    default_topic_perm: str | None = wire(name="defaultTopicPerm", default=None)
    default_group_perm: str | None = wire(name="defaultGroupPerm", default=None)
    topic_perms: str | None = wire(name="topicPerms", default=None)
    group_perms: str | None = wire(name="groupPerms", default=None)


class DeleteAccessConfigHeader(Header, kw_only=True):
    """DELETE_ACL_CONFIG 51."""

    access_key: str = wire(name="accessKey")


class UpdateGlobalWhiteAddrsHeader(Header, kw_only=True):
    """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG 53."""

    global_white_addrs: str = wire(name="globalWhiteAddrs")
    acl_file_full_path: str | None = wire(name="aclFileFullPath", default=None)


class AclInfoResponseHeader(Header, kw_only=True):
    """Answer to GET_BROKER_CLUSTER_ACL_INFO 52."""

    version: str = wire(name="version")
    all_acl_file_version: str | None = wire(name="allAclFileVersion", default=None)
    broker_name: str = wire(name="brokerName")
    broker_addr: str = wire(name="brokerAddr")
    cluster_name: str = wire(name="clusterName")
