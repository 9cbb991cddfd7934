"""Settings of a controller: the keys that a broker or a NameServer hands to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from cometmq.controller.raft.core import RaftTimes
from cometmq.errors import ConfigError

_PEER = re.compile(r"\s*n?(\d+)\s*-\s*(\S+:\d+)\s*")
_RANGE = re.compile(r"\s*(\d+)\s*(?:\.\.|-)\s*(\d+)\s*")
# What a NameServer takes from its file beside its own keys; a broker knows them all anyway.
CONTROLLER_KEYS = frozenset(
    (
        "controllerPeers",
        "controllerSelfId",
        "controllerStorePath",
        "controllerElectionTimeoutMs",
        "controllerHeartbeatMs",
        "controllerMetadata",
        "controllerEtcdEndpoints",
        "controllerEtcdPrefix",
        "haSessionHeartbeatMs",
        "haLeaseMs",
        "haSessionTimeoutMs",
        "haDisconnectGraceMs",
        "enableElectUncleanMaster",
    )
)
METADATA_KINDS = ("raft", "etcd")


@dataclass(frozen=True, slots=True)
class SessionTimes:
    """Milliseconds; what they are for: docs/ha/controllers.md."""

    heartbeat: int = 200
    lease: int = 1_000
    timeout: int = 1_500
    disconnect_grace: int = 200

    def __post_init__(self) -> None:
        if self.timeout * 2 < self.lease * 3:
            raise ConfigError(
                f"haSessionTimeoutMs={self.timeout} is less than 1.5 times haLeaseMs={self.lease}; "
                "a master could be replaced while it still trusts its lease."
            )


@dataclass(frozen=True, kw_only=True)
class ControllerConfig:
    peers: dict[int, str] = field(default_factory=dict)  # id -> host:port of every voter
    self_id: int = 0  # 0: not a voter
    directory: str = ""
    bind_address: str = ""
    raft_times: RaftTimes = field(default_factory=RaftTimes)
    session_times: SessionTimes = field(default_factory=SessionTimes)
    elect_unclean: bool = False  # enableElectUncleanMaster
    metadata: str = "raft"
    etcd_endpoints: tuple[str, ...] = ()
    etcd_prefix: str = "/cometmq/"

    def __post_init__(self) -> None:
        if self.metadata not in METADATA_KINDS:
            raise ConfigError(f"controllerMetadata={self.metadata} is none of {', '.join(METADATA_KINDS)}.")
        if self.self_id and self.self_id not in self.peers:
            raise ConfigError(f"controllerSelfId={self.self_id} is not among controllerPeers.")
        if self.metadata == "etcd" and not self.etcd_endpoints:
            raise ConfigError("controllerMetadata=etcd needs controllerEtcdEndpoints.")

    @property
    def port(self) -> int:
        return int(self.peers[self.self_id].rpartition(":")[2])

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], *, directory: str, bind_address: str = ""
    ) -> Self:
        """The settings among the properties of a broker or a NameServer; others are not looked at."""
        endpoints = properties.get("controllerEtcdEndpoints", "")
        return cls(
            peers=parse_peers(properties.get("controllerPeers", "")),
            self_id=parse_id(properties.get("controllerSelfId", "")),
            directory=properties.get("controllerStorePath", "") or directory,
            bind_address=bind_address,
            raft_times=_raft_times(properties),
            session_times=session_times(properties),
            elect_unclean=properties.get("enableElectUncleanMaster", "").strip().lower() == "true",
            metadata=properties.get("controllerMetadata", "raft").strip(),
            etcd_endpoints=tuple(part.strip() for part in re.split("[;,]", endpoints) if part.strip()),
            etcd_prefix=properties.get("controllerEtcdPrefix", "/cometmq/"),
        )


def parse_peers(text: str) -> dict[int, str]:
    """``1-host:port;2-host:port``; DLedger's ``n0-host:port`` has ids from 0, which become ids from 1."""
    peers: dict[int, str] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        match = _PEER.fullmatch(part)
        if match is None:
            raise ConfigError(f"controllerPeers: {part!r} is not id-host:port.")
        number = int(match[1]) + part.startswith("n")
        if number < 1 or number in peers:
            raise ConfigError(f"controllerPeers: the id of {part!r} is below 1 or not its own.")
        peers[number] = match[2]
    return peers


def parse_id(text: str) -> int:
    """``2``, or DLedger's ``n1``; 0 when empty."""
    text = text.strip()
    if not text:
        return 0
    number = text.removeprefix("n")
    if not number.isdigit():
        raise ConfigError(f"controllerSelfId={text} is not the number of a voter.")
    return int(number) + text.startswith("n")


def session_times(properties: Mapping[str, str]) -> SessionTimes:
    plain = SessionTimes()
    return SessionTimes(
        heartbeat=_millis(properties, "haSessionHeartbeatMs", plain.heartbeat),
        lease=_millis(properties, "haLeaseMs", plain.lease),
        timeout=_millis(properties, "haSessionTimeoutMs", plain.timeout),
        disconnect_grace=_millis(properties, "haDisconnectGraceMs", plain.disconnect_grace),
    )


def _raft_times(properties: Mapping[str, str]) -> RaftTimes:
    plain = RaftTimes()
    heartbeat = _millis(properties, "controllerHeartbeatMs", plain.heartbeat)
    text = properties.get("controllerElectionTimeoutMs", "").strip()
    if not text:
        return RaftTimes(plain.election_min, plain.election_max, heartbeat)
    match = _RANGE.fullmatch(text)
    low, high = (
        (int(match[1]), int(match[2])) if match else (_number("controllerElectionTimeoutMs", text),) * 2
    )
    if match is None:
        high = 2 * low
    if not heartbeat < low <= high:
        raise ConfigError(
            f"controllerElectionTimeoutMs={text} must be a range above controllerHeartbeatMs={heartbeat}."
        )
    return RaftTimes(low, high, heartbeat)


def _millis(properties: Mapping[str, str], key: str, plain: int) -> int:
    text = properties.get(key, "").strip()
    return _number(key, text) if text else plain


def _number(key: str, text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ConfigError(f"{key}={text} is not a number of milliseconds.")
    return int(text)
