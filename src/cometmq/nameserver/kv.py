"""The KV configuration: namespace -> key -> value, the one thing a NameServer keeps over a restart.

Changes happen on the loop thread; the text is made there and written in a thread, one write at a time.
Writes that pile up while one is under way become one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from cometmq.errors import ConfigError, ProtocolError
from cometmq.nameserver.files import read_with_backup, write_with_backup
from cometmq.protocol import json_java

log = logging.getLogger(__name__)

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"  # namespace: topic -> "broker-a:4;broker-b:4"


class KvConfig:
    def __init__(self, path: str) -> None:
        self._path = path
        self._table: dict[str, dict[str, str]] = {}
        self._revision = 0
        self._written_revision = 0
        self._writing = asyncio.Lock()

    def load(self) -> None:
        """Read the file, or its backup when the file is damaged. Blocking, before the server starts."""
        try:
            found = read_with_backup(self._path)
        except OSError as error:
            raise ConfigError(
                f"The KV configuration {self._path} cannot be read ({error.strerror}): choose another kvConfigPath, "
                "or give the user of the NameServer the right to read there."
            ) from error
        for name, content in found:
            try:
                self._table = _decode(content)
            except (ProtocolError, ValueError) as error:
                log.warning("KV configuration %s cannot be read: %s", name, error)
                continue
            return
        if found:
            raise ConfigError(
                f"The KV configuration {self._path} and its .bak are damaged; repair or remove them to start."
            )

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        return self._table.get(namespace)

    async def put(self, namespace: str, key: str, value: str) -> None:
        self._table.setdefault(namespace, {})[key] = value
        await self._persist()

    async def delete(self, namespace: str, key: str) -> None:
        """An emptied namespace stays, as in Java."""
        if self._table.get(namespace, {}).pop(key, None) is not None:
            await self._persist()

    async def _persist(self) -> None:
        self._revision += 1
        mine = self._revision
        async with self._writing:
            if self._written_revision >= mine:
                return  # a write that began after this change has taken it along
            revision, text = self._revision, json_java.dumps({"configTable": self._table})
            await asyncio.to_thread(write_with_backup, self._path, text)
            self._written_revision = revision


def _decode(content: bytes) -> dict[str, dict[str, str]]:
    table = json_java.loads(content)
    namespaces = table.get("configTable") if isinstance(table, dict) else None
    if not isinstance(namespaces, dict):
        raise ValueError("there is no configTable in it")
    decoded: dict[str, dict[str, str]] = {}
    for namespace, items in namespaces.items():
        if not isinstance(items, dict):
            raise ValueError(f"the namespace {namespace} is not a table")
        decoded[namespace] = {key: json_java.text_of(value) for key, value in items.items()}
    return decoded
