"""Accounts and their permissions as the YAML files of RocketMQ say them; reading and writing those files.

Secrets stay in this module and in the signature check: ``repr`` of an account does not show them, no error names them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cometmq.broker.acl.addresses import Matches, address_pattern, never
from cometmq.errors import ConfigError
from cometmq.protocol.names import (
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)

KEY_LENGTH_MIN = 7  # characters of an access key and of a secret key

# Messages of all topics wait here, also of those that an account may not see: no default permission reaches them.
HELD_TOPICS = frozenset(
    (SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC)
)

DENY, PUB, SUB = 1, 2, 4
PERMISSIONS = {"DENY": DENY, "PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB}


def permission(text: object) -> int:
    """Missing or unknown words deny."""
    return PERMISSIONS.get(str(text).strip(), DENY) if text is not None else DENY


@dataclass(frozen=True, slots=True)
class Account:
    access_key: str
    secret_key: str = field(repr=False)
    white_address: Matches = field(default=never, repr=False)
    admin: bool = False
    default_topic: int = DENY
    default_group: int = DENY
    resources: Mapping[str, int] = field(default_factory=dict)  # topics, and groups as %RETRY%group

    def permission_for(self, resource: str) -> int:
        default = self.default_group if resource.startswith(RETRY_PREFIX) else self.default_topic
        if resource in HELD_TOPICS:
            default = DENY
        return self.resources.get(resource, default)


Stamp = tuple[int, int, int]  # modification time in ns, size, inode: what tells one content from another
MISSING: Stamp = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class AccessFile:
    """One YAML file: its content as read, and what it means."""

    path: Path
    content: dict[str, Any] = field(repr=False)
    accounts: list[Account]
    white_addresses: list[Matches]
    stamp: Stamp

    @property
    def version(self) -> dict[str, int]:
        versions = self.content.get("dataVersion") or [{}]
        latest = versions[0] if isinstance(versions, list) else versions
        return {"counter": int(latest.get("counter", 0)), "timestamp": int(latest.get("timestamp", 0))}


def stamp_of(path: Path) -> Stamp:
    try:
        stat = path.stat()
    except OSError:
        return MISSING
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def load_file(path: Path) -> AccessFile:
    """Raises ConfigError with the file's name, and nothing of its content."""
    import yaml  # loaded by brokers with access control only

    stamp = stamp_of(path)
    try:
        content = yaml.safe_load(path.read_text("utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = str(getattr(error, "strerror", None) or "it is not YAML")
        raise ConfigError(f"The access file {path} cannot be read: {reason}.") from None
    return understand(path, content, stamp)


def understand(path: Path, content: object, stamp: Stamp) -> AccessFile:
    """Raises ConfigError for a content that is not what an access file says."""
    if not isinstance(content, dict):
        raise ConfigError(f"The access file {path} must be a mapping with 'accounts'.")
    try:
        accounts = [account_of(item) for item in _list(content.get("accounts"))]
        white = [address_pattern(str(text)) for text in _list(content.get("globalWhiteRemoteAddresses"))]
    except ConfigError as error:
        raise ConfigError(f"The access file {path} cannot be used: {error}") from None
    return AccessFile(path, content, accounts, white, stamp)


def write_file(path: Path, content: Mapping[str, Any]) -> Stamp:
    """Replace a file, readable for its owner only. For a thread; raises OSError."""
    import yaml

    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        yaml.safe_dump(dict(content), stream, allow_unicode=True, sort_keys=False)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    return stamp_of(path)


def account_of(item: object) -> Account:
    if not isinstance(item, dict):
        raise ConfigError("an account is a mapping with accessKey and secretKey.")
    access_key, secret_key = _text(item.get("accessKey")), _text(item.get("secretKey"))
    if len(access_key) < KEY_LENGTH_MIN or len(secret_key) < KEY_LENGTH_MIN:
        raise ConfigError(
            f"accessKey and secretKey of account {access_key!r} need at least {KEY_LENGTH_MIN} characters."
        )
    resources = dict(_permissions(item.get("topicPerms")))
    resources |= {RETRY_PREFIX + name: bits for name, bits in _permissions(item.get("groupPerms"))}
    return Account(
        access_key=access_key,
        secret_key=secret_key,
        white_address=address_pattern(_text(item.get("whiteRemoteAddress"))),
        admin=str(item.get("admin", "")).lower() == "true",
        default_topic=permission(item.get("defaultTopicPerm")),
        default_group=permission(item.get("defaultGroupPerm")),
        resources=resources,
    )


def _permissions(items: object) -> Iterable[tuple[str, int]]:
    for item in _list(items):
        name, equals, word = str(item).partition("=")
        if not equals or word.strip() not in PERMISSIONS:
            raise ConfigError(f"the permission {item!r} is not of the form name=PUB|SUB.")
        yield name.strip(), permission(word)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    """YAML may make numbers of keys; they are used as their text."""
    return "" if value is None else str(value).strip()
