"""Groups that elect their master: state of replicas, planned switch, removal, forced election."""

from __future__ import annotations

from typing import Any

import msgspec

from cometmq.admin.base import AdminBase
from cometmq.controller.wire import (
    LEADER_FIELD,
    Body,
    ControllerCode,
    ForceElectBody,
    RemoveReplicaBody,
    ResignBody,
)
from cometmq.errors import BrokerError, ClientError, CometMQError
from cometmq.protocol.codes import ResponseCode

SWITCH_TIMEOUT_MS = 15_000


class ReplicaAdmin(AdminBase):
    async def ha_status(self, address: str) -> dict[str, Any] | None:
        """What a replica says about itself and its group; None if the broker's group does not elect its master."""
        try:
            response = await self._call(address, ControllerCode.HA_STATUS)
        except BrokerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return None
            raise
        status: dict[str, Any] = msgspec.json.decode(response.body)
        return status

    async def ha_checksum(self, address: str, begin: int, end: int) -> str:
        """SHA-256 of a part of a replica's log, in hexadecimal."""
        from cometmq.protocol.command import RemotingCommand

        await self._instance.start()
        command = RemotingCommand.request(ControllerCode.HA_CHECKSUM)
        command.ext_fields = {"from": str(begin), "to": str(end)}
        response = await self._instance.invoke(address, command, SWITCH_TIMEOUT_MS)
        if response.code != ResponseCode.SUCCESS:
            raise BrokerError(response.code, response.remark, address)
        return str(msgspec.json.decode(response.body)["sha256"])

    async def switch_master(self, broker: str, to: int = 0) -> dict[str, Any]:
        """Hand the mastership of a group over, to a replica or to whom the controllers choose."""
        (address,) = (await self.masters(broker=broker)).values()
        body = ResignBody(broker, 0, 0, to).encode()
        response = await self._call(address, ControllerCode.RESIGN, body=body, timeout_ms=SWITCH_TIMEOUT_MS)
        status: dict[str, Any] = msgspec.json.decode(response.body)
        return status

    async def remove_replica(self, broker: str, replica_id: int) -> None:
        """Forget a replica for ever; its number is not used again."""
        await self._controller(broker, ControllerCode.REMOVE_REPLICA, RemoveReplicaBody(broker, replica_id))

    async def force_master(self, broker: str, replica_id: int) -> None:
        """Make a replica master that may lack confirmed messages. Refused while a better one is alive."""
        body = ForceElectBody(broker, replica_id, broker)
        await self._controller(broker, ControllerCode.FORCE_ELECT, body)

    async def _controller(self, broker: str, code: ControllerCode, body: Body) -> None:
        """Ask the controllers of a group, the leader first."""
        candidates = await self._controllers(broker)
        asked: set[str] = set()
        last = "none is known"
        while candidates:
            address = candidates.pop(0)
            if not address or address in asked:
                continue
            asked.add(address)
            try:
                response = await self._call(address, code, body=body.encode(), accept=tuple(ControllerCode))
            except CometMQError as error:
                last = str(error)
                continue
            if response.code == ResponseCode.SUCCESS:
                return
            last = response.remark or f"code {response.code}"
            if response.code != ControllerCode.NOT_LEADER:
                raise ClientError(f"The controllers refuse: {last}")
            candidates.insert(0, (response.ext_fields or {}).get(LEADER_FIELD, ""))
        raise ClientError(f"No controller of the group {broker!r} decides at the moment: {last}")

    async def _controllers(self, broker: str) -> list[str]:
        info = await self.cluster_info()
        if broker not in info.broker_addr_table:
            raise ClientError(
                f"no broker {broker!r}; there are: {', '.join(info.broker_addr_table) or 'none'}"
            )
        for address in info.broker_addr_table[broker].broker_addrs.values():
            try:
                status = await self.ha_status(address)
            except CometMQError:
                continue
            if status is not None:
                return [status["controllerLeader"], *status["controllers"]]
        raise ClientError(f"No broker of the group {broker!r} answers, or it does not elect its master.")
