"""Accounts of a broker with access control, and who needs none."""

from __future__ import annotations

from collections.abc import Sequence

from cometmq.admin.base import AdminBase
from cometmq.protocol.bodies.access import AclConfig
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.headers import (
    AclInfoResponseHeader,
    CreateAccessConfigHeader,
    DeleteAccessConfigHeader,
    UpdateGlobalWhiteAddrsHeader,
)


class AccountAdmin(AdminBase):
    """Operations on the accounts of one broker (``host:port``); each broker has a file of its own."""

    async def accounts(self, address: str) -> AclConfig:
        """All accounts and the addresses that need none; brokers tell secrets only to admins, in part or not at all."""
        response = await self._call(address, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
        return AclConfig.decode(response.body)

    async def account_version(self, address: str) -> AclInfoResponseHeader:
        """Counts and times the changes."""
        response = await self._call(address, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
        return AclInfoResponseHeader.decode(response.ext_fields)

    async def set_account(
        self,
        address: str,
        access_key: str,
        *,
        secret_key: str | None = None,
        admin: bool | None = None,
        topic_perms: str | None = None,
        group_perms: str | None = None,
        default_topic_perm: str | None = None,
        default_group_perm: str | None = None,
        white_remote_address: str | None = None,
    ) -> None:
        """Create an account or change what is given of it; permissions as ``topicA=PUB|SUB,topicB=DENY``."""
        header = CreateAccessConfigHeader(
            access_key=access_key,
            secret_key=secret_key,
            admin=admin,
            topic_perms=topic_perms,
            group_perms=group_perms,
            default_topic_perm=default_topic_perm,
            default_group_perm=default_group_perm,
            white_remote_address=white_remote_address,
        )
        await self._call(address, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header)

    async def delete_account(self, address: str, access_key: str) -> None:
        """Delete an account at a broker."""
        await self._call(
            address, RequestCode.DELETE_ACL_CONFIG, DeleteAccessConfigHeader(access_key=access_key)
        )

    async def set_white_addresses(self, address: str, addresses: Sequence[str]) -> None:
        """Whoever comes from these needs no account."""
        header = UpdateGlobalWhiteAddrsHeader(global_white_addrs=",".join(addresses))
        await self._call(address, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header)
