"""Metadata kept in etcd, for those who run one already. One key per group, one key with a lease for who leads.

Every change is one transaction: our leadership key is still the one we made, and the group is as we read it. So a
controller that was replaced without noticing can change nothing. etcd gives leases of two seconds at least, which is
how long the controllers are without a leader when it dies; masters are not affected by that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cometmq.controller.commands import (
    Command,
    GroupRecord,
    Outcome,
    apply,
    decode_record,
    encode_record,
)
from cometmq.controller.config import ControllerConfig
from cometmq.controller.etcd_client import Compare, EtcdClient
from cometmq.controller.metadata import NotLeader
from cometmq.errors import ConnectionLost, Timeout
from cometmq.net.endpoint import Handler

log = logging.getLogger(__name__)

LEADER_TTL_SECONDS = 2
LOOKS_PER_TTL = 8  # how often leadership is renewed, or asked for


@dataclass(slots=True)
class Leadership:
    lease: int
    revision: int  # of the key that says so
    until: float  # by our clock


class EtcdMetadata:
    """Implements ``Metadata``."""

    def __init__(self, config: ControllerConfig) -> None:
        self.on_change: Callable[[str], None] = lambda _group: None
        self.on_leadership: Callable[[bool], None] = lambda _leads: None
        self.on_failure: Callable[[BaseException], None] = lambda _error: None
        self._etcd = EtcdClient(config.etcd_endpoints)
        self._leader_key = config.etcd_prefix + "leader"
        self._groups_prefix = config.etcd_prefix + "groups/"
        self._address = ""
        self._known_leader = ""
        self._leads: Leadership | None = None
        self._records: dict[str, tuple[int, GroupRecord]] = {}  # with the revision of the group's key
        self._locks: dict[str, asyncio.Lock] = {}
        self._task: asyncio.Task[None] | None = None

    # -- life -------------------------------------------------------------------------------------------------------

    def handlers(self) -> Mapping[int, Handler]:
        return {}

    async def start(self, own_address: str) -> None:
        self._address = own_address
        self._task = asyncio.create_task(self._lead_forever(), name="etcd-leadership")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        lease = self._leads.lease if self._leads is not None else 0
        self._lose("it stops")
        if lease:
            with contextlib.suppress(ConnectionLost, Timeout):
                await self._etcd.revoke(lease)  # the next one need not wait
        self._etcd.close()

    # -- leadership -------------------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        return self._leads is not None and time.monotonic() < self._leads.until

    @property
    def leader_address(self) -> str:
        return self._address if self.is_leader else self._known_leader

    @property
    def revision(self) -> int:
        return self._etcd.revision

    async def _lead_forever(self) -> None:
        while True:
            try:
                await (self._renew() if self._leads is not None else self._campaign())
            except (ConnectionLost, Timeout) as error:
                log.warning("etcd: %s", error)
                if self._leads is not None and not self.is_leader:
                    self._lose("its lease could not be renewed")
            await asyncio.sleep(LEADER_TTL_SECONDS / LOOKS_PER_TTL)

    async def _renew(self) -> None:
        assert self._leads is not None
        sent = time.monotonic()
        if await self._etcd.keep_alive(self._leads.lease):
            self._leads.until = sent + LEADER_TTL_SECONDS
        else:
            self._lose("its lease has ended")

    async def _campaign(self) -> None:
        holder = await self._etcd.get(self._leader_key)
        if holder is not None:
            self._known_leader = holder.value.decode()
            return
        self._known_leader = ""
        sent = time.monotonic()
        lease, ttl = await self._etcd.grant(LEADER_TTL_SECONDS)
        won, revision = await self._etcd.put_if(
            [Compare(self._leader_key, "CREATE", 0)], self._leader_key, self._address.encode(), lease
        )
        if not won:
            await self._etcd.revoke(lease)
            return
        await self._read_groups()
        self._leads = Leadership(lease, revision, sent + min(ttl, LEADER_TTL_SECONDS))
        if self.is_leader:
            self.on_leadership(True)
        else:
            self._lose("reading the groups took too long")

    async def _read_groups(self) -> None:
        found = await self._etcd.get_prefix(self._groups_prefix)
        self._records = {
            item.key.removeprefix(self._groups_prefix): (item.mod_revision, decode_record(item.value))
            for item in found
        }

    def _lose(self, why: str) -> None:
        if self._leads is not None:
            self._leads = None
            log.warning("controller=%s leads no more: %s", self._address, why)
            self.on_leadership(False)

    # -- what controllers ask ---------------------------------------------------------------------------------------

    def record(self, group: str) -> GroupRecord | None:
        known = self._records.get(group)
        return known[1] if known is not None else None

    def groups(self) -> Iterable[str]:
        return self._records.keys()

    async def propose(self, group: str, command: Command) -> Outcome:
        async with self._locks.setdefault(group, asyncio.Lock()):
            leads = self._leading()
            before, record = self._records.get(group, (0, GroupRecord()))
            record = decode_record(encode_record(record))
            outcome = apply(record, command)
            if not outcome.accepted:
                return outcome
            key = self._groups_prefix + group
            compares = [Compare(self._leader_key, "CREATE", leads.revision), Compare(key, "MOD", before)]
            try:
                done, revision = await self._etcd.put_if(compares, key, encode_record(record))
            except (ConnectionLost, Timeout) as error:
                # Nobody knows whether it was written. Whoever leads next reads it again.
                await self._give_back("an answer of etcd is missing")
                raise Timeout(f"etcd did not decide: {error}") from error
            if not done:
                await self._give_back("its key is not the one it made")
                raise NotLeader(self.leader_address)
            self._records[group] = (revision, record)
            self.on_change(group)
            return outcome

    async def _give_back(self, why: str) -> None:
        leads = self._leads
        self._lose(why)
        if leads is not None:
            with contextlib.suppress(ConnectionLost, Timeout):
                await self._etcd.revoke(leads.lease)

    async def confirm_leadership(self) -> None:
        leads = self._leading()
        holder = await self._etcd.get(self._leader_key)
        if holder is None or holder.create_revision != leads.revision:
            self._lose("another one leads")
            raise NotLeader(holder.value.decode() if holder is not None else "")

    def _leading(self) -> Leadership:
        if self._leads is None or not self.is_leader:
            raise NotLeader(self._known_leader)
        return self._leads

    def status(self) -> Mapping[str, object]:
        return {
            "kind": "etcd",
            "role": "LEADER" if self.is_leader else "FOLLOWER",
            "leader": self.leader_address,
            "revision": self.revision,
        }
