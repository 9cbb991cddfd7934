"""The keys of a controller, and what is refused."""

from __future__ import annotations

import pytest

from cometmq.controller.config import ControllerConfig, SessionTimes, parse_id, parse_peers
from cometmq.controller.raft.core import RaftTimes
from cometmq.errors import ConfigError

PEERS = "1-10.0.0.1:9870;2-10.0.0.2:9870; 3-[::1]:9870"


def config(**properties: str) -> ControllerConfig:
    return ControllerConfig.from_properties(
        {"controllerPeers": PEERS, "controllerSelfId": "2", **properties}, directory="store"
    )


def test_defaults() -> None:
    found = config()
    assert found.peers == {1: "10.0.0.1:9870", 2: "10.0.0.2:9870", 3: "[::1]:9870"}
    assert (found.self_id, found.port, found.directory, found.metadata) == (2, 9870, "store", "raft")
    assert found.raft_times == RaftTimes(500, 1_000, 100)
    assert found.session_times == SessionTimes(200, 1_000, 1_500, 200)
    assert not found.elect_unclean


def test_fast_profile() -> None:
    found = config(
        controllerElectionTimeoutMs="200..400",
        controllerHeartbeatMs="40",
        haSessionHeartbeatMs="50",
        haLeaseMs="300",
        haSessionTimeoutMs="450",
        haDisconnectGraceMs="50",
        enableElectUncleanMaster="true",
        controllerStorePath="elsewhere",
    )
    assert found.raft_times == RaftTimes(200, 400, 40)
    assert found.session_times == SessionTimes(50, 300, 450, 50)
    assert found.elect_unclean
    assert found.directory == "elsewhere"


def test_keys_of_dledger_count_from_zero() -> None:
    assert parse_peers("n0-a:40911;n1-b:40912") == {1: "a:40911", 2: "b:40912"}
    assert (parse_id("n1"), parse_id("2"), parse_id("")) == (2, 2, 0)


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"haSessionTimeoutMs": "1400"}, "1.5 times"),
        ({"controllerElectionTimeoutMs": "90..100"}, "controllerHeartbeatMs"),
        ({"controllerElectionTimeoutMs": "soon"}, "milliseconds"),
        ({"haLeaseMs": "0"}, "haLeaseMs"),
        ({"controllerSelfId": "7"}, "not among"),
        ({"controllerSelfId": "x"}, "number of a voter"),
        ({"controllerPeers": "1-a:1;1-b:2"}, "not its own"),
        ({"controllerPeers": "a:1"}, "id-host:port"),
        ({"controllerMetadata": "zookeeper"}, "none of"),
        ({"controllerMetadata": "etcd"}, "controllerEtcdEndpoints"),
    ],
)
def test_what_cannot_work_is_refused(properties: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        config(**properties)
