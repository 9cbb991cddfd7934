"""Access control settings as tools read them: answer to GET_BROKER_CLUSTER_ACL_CONFIG (54)."""

from __future__ import annotations

from msgspec import field

from cometmq.protocol.bodies.body import Body


class PlainAccessConfig(Body, kw_only=True):
    """One account."""

    access_key: str = ""
    admin: bool = False
    default_group_perm: str | None = None
    default_topic_perm: str | None = None
    group_perms: list[str] | None = None
    secret_key: str | None = None
    topic_perms: list[str] | None = None
    white_remote_address: str | None = None


class AclConfig(Body, kw_only=True):
    """All accounts and the addresses that need none."""

    global_white_addrs: list[str] = field(default_factory=list)
    plain_access_configs: list[PlainAccessConfig] = field(default_factory=list)
