"""For tests of access control: a broker with accounts, and clients that sign as one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from live_broker import LiveBroker, live_broker

from cometmq.net.client import RemotingClient
from cometmq.protocol.acl_signature import sign
from cometmq.protocol.command import RemotingCommand

DENIED = "AclException"
SECRET_MARK = "s3cret"  # part of every secret of these tests, and of nothing else

ACCOUNTS: dict[str, dict[str, Any]] = {
    "admin": {"admin": True},
    "bound": {"admin": True, "topicPerms": ["TopicA=PUB|SUB"]},
    "app": {
        "topicPerms": ["TopicA=PUB|SUB", "TopicPub=PUB", "TopicSub=SUB", "TopicNo=DENY"],
        "groupPerms": ["GroupA=SUB", "GroupNo=DENY"],
    },
    "open": {
        "defaultTopicPerm": "PUB|SUB",
        "defaultGroupPerm": "SUB",
        "topicPerms": ["TopicNo=DENY"],
        "groupPerms": ["GroupNo=DENY"],
    },
    "nobody": {},
    "local": {"whiteRemoteAddress": "127.0.0.*"},
}


def access_key(account: str) -> str:
    return f"{account}-access-key"


def secret_key(account: str) -> str:
    return f"{SECRET_MARK}-of-{account}"


def write_accounts(home: Path, accounts: Mapping[str, Mapping[str, Any]] = ACCOUNTS, **more: Any) -> Path:
    """<home>/conf/plain_acl.yml with these accounts."""
    items = [
        {"accessKey": access_key(name), "secretKey": secret_key(name), **settings}
        for name, settings in accounts.items()
    ]
    path = home / "conf" / "plain_acl.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"accounts": items, **more}))
    return path


@asynccontextmanager
async def guarded_broker(
    directory: Path, accounts: Mapping[str, Mapping[str, Any]] = ACCOUNTS, **settings: Any
) -> AsyncIterator[LiveBroker]:
    home = directory / "home"
    if not (home / "conf/plain_acl.yml").exists():
        write_accounts(home, accounts)
    async with live_broker(directory, acl_enable=True, rocketmq_home=str(home), **settings) as live:
        yield live


class Signer:
    """Requests under the name of an account. No account: nothing is signed."""

    def __init__(self, live: LiveBroker, account: str | None, *, secret: str | None = None) -> None:
        self._live = live
        self._account = account
        self._secret = secret
        self.remoting = RemotingClient()

    async def call(
        self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        request = self.request(code, fields, body)
        return await self.remoting.invoke(self._live.address, request, 10_000)

    async def oneway(self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"") -> None:
        request = self.request(code, fields, body)
        request.flag |= 2
        await self.remoting.invoke_oneway(self._live.address, request)

    def request(self, code: int, fields: Mapping[str, object] | None, body: bytes = b"") -> RemotingCommand:
        ext_fields = {name: str(value) for name, value in (fields or {}).items()}
        request = RemotingCommand(code=int(code), ext_fields=ext_fields, body=body)
        if self._account is not None:
            sign(request, access_key(self._account), self._secret or secret_key(self._account))
        return request

    async def close(self) -> None:
        await self.remoting.close()


def is_denied(response: RemotingCommand) -> bool:
    return response.code == 1 and DENIED in (response.remark or "")
