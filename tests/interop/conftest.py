"""Fixtures of the interop tests: the Java client process, and clusters of both kinds.

A test that takes ``cluster`` runs twice: against the Java servers, which shows that the test itself is right,
and against ours.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig.build import JavaKit, Unavailable, build_java
from rig.clients import Admin, JavaClients
from rig.peer import JavaPeer
from rig.servers import Cluster, Foundry

HERE = Path(__file__).parent
SHARED = {
    "tls.server.mode": "permissive",
    # levels 2 and 3 are 5 s and 10 s by default: level 3 is the first redelivery
    "messageDelayLevel": "1s 2s 3s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
    # a killed member of an ordered group holds its queues that long, by default a minute; clients renew more often
    "rocketmq.broker.rebalance.lockMaxLiveTime": "10000",
}
_numbers = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--reference", action="store_true", help="run all interop tests on the Java servers, too"
    )
    parser.addoption("--mqadmin-table", action="store_true", help="write tests/interop/mqadmin_table.md")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.interop)


@pytest.fixture(scope="session")
def java_kit() -> JavaKit:
    try:
        return build_java()
    except Unavailable as reason:
        pytest.skip(f"interop needs Java 11+ and Maven: {reason}")


@pytest.fixture(scope="session")
def java_peer(java_kit: JavaKit, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaPeer]:
    peer = JavaPeer(java_kit, tmp_path_factory.mktemp("java-peer"))
    yield peer
    peer.close()


@pytest.fixture
def java(java_peer: JavaPeer) -> Iterator[JavaClients]:
    """Java clients of this test."""
    clients = JavaClients(java_peer)
    yield clients
    clients.close()


@pytest.fixture(scope="session")
def session_foundry(java_kit: JavaKit, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Foundry]:
    foundry = Foundry(java_kit, tmp_path_factory.mktemp("servers"))
    yield foundry
    foundry.close()


@pytest.fixture
def foundry(java_kit: JavaKit, tmp_path: Path) -> Iterator[Foundry]:
    """Servers of this test alone, to be killed and restarted at will."""
    foundry = Foundry(java_kit, tmp_path)
    yield foundry
    foundry.close()


@pytest.fixture(scope="session")
def java_cluster(session_foundry: Foundry) -> Cluster:
    return session_foundry.cluster("java", **SHARED).start()


@pytest.fixture(scope="session")
def comet_cluster(session_foundry: Foundry) -> Cluster:
    return session_foundry.cluster("comet", **SHARED).start()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``kind`` is which servers a test runs on.

    On the shared clusters every test runs on both. Where the Java side, on which a test of Java clients only proves
    itself, takes many seconds (servers of its own, or marked ``slow_reference``), it is left to ``--reference``.
    """
    if "kind" in metafunc.fixturenames:
        slow = metafunc.definition.get_closest_marker("slow_reference")
        both = ("cluster" in metafunc.fixturenames and not slow) or metafunc.config.getoption("--reference")
        metafunc.parametrize("kind", ["java", "comet"] if both else ["comet"])


@pytest.fixture
def cluster(kind: str, request: pytest.FixtureRequest) -> Cluster:
    """The shared cluster of each kind: one NameServer, one broker."""
    found: Cluster = request.getfixturevalue(f"{kind}_cluster")
    return found


@pytest.fixture
def admin(java: JavaClients, cluster: Cluster) -> Admin:
    return java.admin(cluster.namesrv)


@pytest.fixture
def topic(admin: Admin) -> str:
    """A fresh topic with four queues."""
    return admin.create_topic(f"T{next(_numbers)}")


@pytest.fixture
def group() -> str:
    return f"G{next(_numbers)}"
