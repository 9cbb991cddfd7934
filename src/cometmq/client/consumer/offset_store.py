"""Offsets of a group: in the broker for clustering, in a local file for broadcast.

Both keep a table in memory that the consumer updates, and write it from time to time. Loop thread only; the
file is written in a thread. The file is RocketMQ's own, so a Java broadcast consumer may
continue from it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection, Iterable, Mapping
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
        self._seen_kept: set[tuple[str, str]] = set()  # (topic, broker)

    async def load(self) -> None:
        """Nothing to do: offsets are asked for when a queue is assigned."""

    async def read(self, queue: Queue) -> int:
        """The stored offset, NO_OFFSET if the group has none. Raises if the broker cannot be asked."""
        address, _ = await self._instance.routes.reader_of(queue.broker_name, queue.topic)
        return await self._instance.brokers.query_offset(address, self._group, queue)

    async def persist(self, queues: Iterable[Queue], *, confirmed: bool = False) -> None:
        """Send what is known of these queues; a failure is logged, the next time repairs it."""
        known = {queue: self._offsets[queue] for queue in queues if queue in self._offsets}
        failed = await (self._commit(known) if confirmed else self._send(known, confirmed=False))
        for queue, error in failed.items():
            log.warning("group=%s offset of %s was not stored: %s", self._group, queue, error)

    async def commit(self, offsets: Mapping[Queue, int]) -> None:
        """Store these; returns when the brokers have confirmed. Raises the first failure, after all were tried."""
        for error in (await self._commit(offsets)).values():
            raise error

    async def _commit(self, offsets: Mapping[Queue, int]) -> dict[Queue, CometMQError]:
        """Java's broker may confirm the first offsets of a group in a topic and keep only one of those that came
        at once (each makes the table, the last table stays). So the first ones are looked at again. Of a young
        queue a broker says 0 when it has none."""
        failed = await self._send(offsets, confirmed=True)
        fresh = [
            queue
            for queue in offsets
            if queue not in failed and (queue.topic, queue.broker_name) not in self._seen_kept
        ]
        if fresh:
            found = await asyncio.gather(*map(self.read, fresh), return_exceptions=True)
            lost = {
                queue: offsets[queue]
                for queue, kept in zip(fresh, found, strict=True)
                if isinstance(kept, BaseException) or (kept <= 0 and kept != offsets[queue])
            }
            failed |= await self._send(lost, confirmed=True)
            self._seen_kept.update((queue.topic, queue.broker_name) for queue in fresh if queue not in failed)
        return failed

    async def _send(self, offsets: Mapping[Queue, int], *, confirmed: bool) -> dict[Queue, CometMQError]:
        """Returns what could not be stored, and why."""
        failed: dict[Queue, CometMQError] = {}

        async def send(queue: Queue, offset: int) -> None:
            try:
                address, _ = await self._instance.routes.reader_of(queue.broker_name, queue.topic)
                await self._instance.brokers.update_offset(
                    address, self._group, queue, offset, confirmed=confirmed
                )
            except CometMQError as error:
                failed[queue] = error

        await asyncio.gather(*(send(queue, offset) for queue, offset in offsets.items()))
        return failed


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
