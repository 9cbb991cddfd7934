"""The decision for every request, and the accounts it rests on.

Files: ``<home>/conf/plain_acl.yml`` and every YAML file below ``<home>/conf/acl``; the first file that names an access
key wins. Changed files are read again within seconds; a file that became wrong keeps its last good content and says so
in the log. Loop thread only.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cometmq.broker.acl.accounts import (
    DENY,
    KEY_LENGTH_MIN,
    PERMISSIONS,
    AccessFile,
    Account,
    Stamp,
    load_file,
    stamp_of,
    understand,
    write_file,
)
from cometmq.broker.acl.addresses import address_pattern
from cometmq.broker.acl.resources import ADMIN_CODES, NEEDS
from cometmq.errors import CometMQError, ConfigError
from cometmq.protocol.acl_signature import ACCESS_KEY, is_signed
from cometmq.protocol.codes import ResponseCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.names import RETRY_PREFIX

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker
    from cometmq.net.connection import Connection
    from cometmq.net.server import Handler

log = logging.getLogger(__name__)

DEFAULT_FILE = "plain_acl.yml"
SKIPPED_FILE = "tools.yml"
PLAIN_FILE_PROPERTY = "rocketmq.acl.plain.file"
# Clients and people recognise a refusal by this class name.
REMARK = "org.apache.rocketmq.acl.common.AclException: {text}, cometmq.broker.acl"


class AccessDenied(CometMQError):
    """A request that its account may not make."""


class AccessControl:
    def __init__(self, broker: Broker, home: Path, *, default_file: str = "") -> None:
        self._broker = broker
        self._home = home
        self._default = home / (default_file or f"conf/{DEFAULT_FILE}")
        self._directory = home / "conf" / "acl"
        self._files: dict[Path, AccessFile] = {}
        self._wrong: dict[Path, Stamp] = {}  # contents that were complained about already
        self._accounts: dict[str, Account] = {}
        self._changing = asyncio.Lock()
        self.denied = 0
        self._load_all()

    # -- deciding -------------------------------------------------------------------------------------------------

    def guard(self, handler: Handler) -> Handler:
        """The handler behind the check."""

        def guarded(connection: Connection, command: RemotingCommand) -> Any:
            try:
                self.check(command, connection.peer_host)
            except AccessDenied as error:
                self.denied += 1
                log.info("refused code=%d peer=%s: %s", command.code, connection.peer, error)
                return command.response(ResponseCode.SYSTEM_ERROR, REMARK.format(text=error))
            return handler(connection, command)

        return guarded

    def check(self, command: RemotingCommand, peer_host: str) -> None:
        """Raises AccessDenied."""
        if any(matches(peer_host) for file in self._files.values() for matches in file.white_addresses):
            return
        fields = command.ext_fields or {}
        access_key = fields.get(ACCESS_KEY)
        if not access_key:
            raise AccessDenied("No accessKey is configured")
        account = self._accounts.get(access_key)
        if account is None:
            raise AccessDenied(f"No acl config for {access_key}")
        if account.white_address(peer_host):
            return
        if not is_signed(command, account.secret_key):
            raise AccessDenied(f"Check signature failed for accessKey={access_key}")
        self._check_permissions(account, command)

    def _check_permissions(self, account: Account, command: RemotingCommand) -> None:
        if command.code in ADMIN_CODES and not account.admin:
            raise AccessDenied(
                f"Need admin permission for request code={int(command.code)}, but accessKey={account.access_key} is not"
            )
        if account.admin and not account.resources:
            return
        needs = NEEDS.get(command.code)
        if needs is None:
            return
        for resource, wanted in needs(self._broker, command):
            given = account.permission_for(resource)
            if given & DENY or not given & wanted:
                raise AccessDenied(f"No default permission for {_describe(resource)}")

    # -- files ----------------------------------------------------------------------------------------------------

    def _paths(self) -> list[Path]:
        more = [
            path
            for pattern in ("*.yml", "*.yaml")
            for path in self._directory.rglob(pattern)
            if path.name != SKIPPED_FILE and path != self._default
        ]
        return [self._default, *sorted(more)]

    def _load_all(self) -> None:
        if not self._default.exists():
            self._default.parent.mkdir(parents=True, exist_ok=True)
            self._default.touch(0o600)
        self._use({path: load_file(path) for path in self._paths()})

    def reload_changed(self) -> None:
        """Called every few seconds: read what was changed, added or removed. What is wrong keeps its old content."""
        files: dict[Path, AccessFile] = {}
        for path in self._paths():
            read = self._read_again(path, self._files.get(path))
            if read is not None:
                files[path] = read
        if files != self._files:
            self._use(files)
            log.info("access files read again files=%d accounts=%d", len(files), len(self._accounts))

    def _read_again(self, path: Path, known: AccessFile | None) -> AccessFile | None:
        stamp = stamp_of(path)
        if stamp in (known.stamp if known is not None else None, self._wrong.get(path)):
            return known
        try:
            read = load_file(path)
        except ConfigError as error:
            log.error("access file not read again, what it said before counts: %s", error)
            self._wrong[path] = stamp
            return known
        self._wrong.pop(path, None)
        return read

    def _use(self, files: dict[Path, AccessFile]) -> None:
        """The default file comes first; the first file that names an account wins."""
        self._files = files
        self._accounts = {}
        for file in files.values():
            for account in file.accounts:
                self._accounts.setdefault(account.access_key, account)

    # -- administration -------------------------------------------------------------------------------------------

    def files(self) -> list[Path]:
        return list(self._files)

    def versions(self) -> dict[str, dict[str, int]]:
        """Data version by file, the default file first."""
        return {str(path): file.version for path, file in self._files.items()}

    @property
    def default_version(self) -> dict[str, int]:
        return self._files[self._default].version

    def contents(self) -> list[dict[str, Any]]:
        return [file.content for file in self._files.values()]

    async def update_account(self, changes: dict[str, Any]) -> None:
        """Create or change an account; what is not named stays. Raises ConfigError."""
        access_key = str(changes.get("accessKey") or "")
        async with self._changing:
            self.reload_changed()
            file = self._file_of(access_key)
            accounts = [dict(item) for item in file.content.get("accounts") or []]
            item = next((item for item in accounts if str(item.get("accessKey")) == access_key), None)
            if item is None:
                item = {}
                accounts.append(item)
            item.update({key: value for key, value in changes.items() if value is not None})
            _check_account(item)
            await self._save(file, accounts=accounts)

    async def delete_account(self, access_key: str) -> bool:
        async with self._changing:
            self.reload_changed()
            file = self._file_of(access_key)
            accounts = file.content.get("accounts") or []
            kept = [item for item in accounts if str(item.get("accessKey")) != access_key]
            if not access_key or len(kept) == len(accounts):
                return False
            await self._save(file, accounts=kept)
            return True

    async def replace_white_addresses(self, addresses: list[str], path: str | None) -> None:
        """Raises ConfigError for a wrong pattern or a file that is not ours."""
        for address in addresses:
            address_pattern(address)
        async with self._changing:
            self.reload_changed()
            file = self._files.get(Path(path) if path else self._default)
            if file is None:
                raise ConfigError(f"The file {path} is not one of this broker's access files.")
            await self._save(file, globalWhiteRemoteAddresses=addresses)

    def _file_of(self, access_key: str) -> AccessFile:
        holders = (f for f in self._files.values() if any(a.access_key == access_key for a in f.accounts))
        return next(holders, self._files[self._default])

    async def _save(self, file: AccessFile, **changes: Any) -> None:
        """Write the next version of a file, then use it."""
        version = {"counter": file.version["counter"] + 1, "timestamp": self._broker.now_ms()}
        content = {**file.content, **changes, "dataVersion": [version]}
        understand(file.path, content, file.stamp)
        try:
            stamp = await asyncio.to_thread(write_file, file.path, content)
        except OSError as error:
            raise ConfigError(f"The access file {file.path} cannot be written: {error.strerror}.") from error
        self._use({**self._files, file.path: understand(file.path, content, stamp)})


def _check_account(item: dict[str, Any]) -> None:
    access_key, secret_key = str(item.get("accessKey") or ""), str(item.get("secretKey") or "")
    if len(access_key) < KEY_LENGTH_MIN or len(secret_key) < KEY_LENGTH_MIN:
        raise ConfigError(
            f"The accessKey={access_key} and secretKey=*** cannot be null and length should longer than 6"
        )
    words = [item.get("defaultTopicPerm"), item.get("defaultGroupPerm")]
    words += [
        str(text).partition("=")[2] for key in ("topicPerms", "groupPerms") for text in item.get(key) or []
    ]
    for word in words:
        if word is not None and str(word).strip() not in PERMISSIONS:
            raise ConfigError(
                f"Parse resource permission error for {word}.\n"
                "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
            )
    address_pattern(str(item.get("whiteRemoteAddress") or ""))


def _describe(resource: str) -> str:
    if resource.startswith(RETRY_PREFIX):
        return f"group:{resource[len(RETRY_PREFIX) :]}"
    return f"topic:{resource}"
