"""Offsets of a group: in the broker for clustering, in a local file for broadcast.

Both keep a table in memory that the consumer updates, and write it from time to time. Loop thread only; the
file is written in a thread. The file is RocketMQ's own, so a Java broadcast consumer may
continue from it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Protocol

from cometmq.client.broker_calls import NO_OFFSET
from cometmq.client.instance import Instance
from cometmq.client.queue import Queue
from cometmq.errors import CometMQError
from cometmq.protocol.bodies.offsets import ResetOffsetBody

log = logging.getLogger(__name__)


class OffsetStore(Protocol):
    """Where a group stands."""

    def get(self, queue: Queue) -> int: ...
    def update(self, queue: Queue, offset: int, *, increase_only: bool) -> None: ...
    def forget(self, queue: Queue) -> None: ...
    async def load(self) -> None: ...
    async def read(self, queue: Queue) -> int: ...
    async def persist(self, queues: Iterable[Queue], *, confirmed: bool = False) -> None: ...


class _Table:
    """The part in memory."""

    def __init__(self) -> None:
        self._offsets: dict[Queue, int] = {}

    def get(self, queue: Queue) -> int:
        return self._offsets.get(queue, NO_OFFSET)

    def update(self, queue: Queue, offset: int, *, increase_only: bool) -> None:
        if not increase_only or offset > self._offsets.get(queue, NO_OFFSET):
            self._offsets[queue] = offset

    def forget(self, queue: Queue) -> None:
        self._offsets.pop(queue, None)


class RemoteOffsets(_Table):
    """Kept by the brokers."""

    def __init__(self, instance: Instance, group: str) -> None:
        super().__init__()
        self._instance = instance
        self._group = group

    async def load(self) -> None:
        """Nothing to do: offsets are asked for when a queue is assigned."""

    async def read(self, queue: Queue) -> int:
        """The stored offset, NO_OFFSET if the group has none. Raises if the broker cannot be asked."""
        address, _ = await self._instance.routes.reader_of(queue.broker_name, queue.topic)
        return await self._instance.brokers.query_offset(address, self._group, queue)

    async def persist(self, queues: Iterable[Queue], *, confirmed: bool = False) -> None:
        """Send what is known of these queues; a failure is logged, the next time repairs it."""
        writes = [self._write(queue, confirmed) for queue in queues if queue in self._offsets]
        if writes:
            await asyncio.gather(*writes)

    async def _write(self, queue: Queue, confirmed: bool) -> None:
        try:
            await self.commit(queue, self._offsets[queue], confirmed=confirmed)
        except (CometMQError, KeyError) as error:
            log.warning("group=%s offset of %s was not stored: %s", self._group, queue, error)

    async def commit(self, queue: Queue, offset: int, *, confirmed: bool) -> None:
        address, _ = await self._instance.routes.reader_of(queue.broker_name, queue.topic)
        await self._instance.brokers.update_offset(address, self._group, queue, offset, confirmed=confirmed)


class LocalOffsets(_Table):
    """Kept in ``<directory>/<client id>/<group>/offsets.json``."""

    def __init__(self, directory: Path, client_id: str, group: str) -> None:
        super().__init__()
        self._path = directory / client_id / group / "offsets.json"
        self._stored: dict[Queue, int] = {}

    @property
    def path(self) -> Path:
        return self._path

    async def load(self) -> None:
        self._stored = await asyncio.to_thread(_read_files, self._path)

    async def read(self, queue: Queue) -> int:
        return self._stored.get(queue, NO_OFFSET)

    async def persist(self, queues: Iterable[Queue], *, confirmed: bool = False) -> None:
        held: Collection[Queue] = set(queues)
        table = {queue: offset for queue, offset in self._offsets.items() if queue in held}
        if not table:
            return
        self._stored.update(table)
        try:
            await asyncio.to_thread(_write_file, self._path, ResetOffsetBody(offset_table=table).encode())
        except OSError as error:
            log.warning("offsets were not written to %s: %s", self._path, error)


def _read_files(path: Path) -> dict[Queue, int]:
    for candidate in (path, path.with_name(path.name + ".bak")):
        try:
            data = candidate.read_bytes()
            return ResetOffsetBody.decode(data).offset_table
        except FileNotFoundError:
            continue
        except (OSError, CometMQError) as error:
            log.warning("offset file %s cannot be read, the backup is tried: %s", candidate, error)
    return {}


def _write_file(path: Path, data: bytes) -> None:
    """New content beside the old one, then swapped: a crash leaves one of the two whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".tmp")
    fresh.write_bytes(data)
    if path.exists():
        os.replace(path, path.with_name(path.name + ".bak"))
    os.replace(fresh, path)
