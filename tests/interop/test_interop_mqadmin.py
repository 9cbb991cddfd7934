"""mqadmin 4.9.7: every subcommand prints against ours what it prints against the Java servers.

ACL and HA commands are not here. The cases build on each other (a topic is made, looked at, deleted) and run in order.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rig.build import JavaKit
from rig.clients import Admin, JavaClients
from rig.mqadmin_cases import CASES, ENDLESS, Case
from rig.mqadmin_content import prepare
from rig.mqadmin_table import BY_NATURE, DIFFERS, SAME, Table
from rig.normal import normal
from rig.peer import JavaPeer
from rig.servers import Cluster, Foundry
from rig.waiting import wait_for

KINDS = ("java", "comet")
ENDLESS_SECONDS = 6
ACL_COMMANDS = {
    "updateAclConfig",
    "deleteAclConfig",
    "clusterAclConfigVersion",
    "updateGlobalWhiteAddr",
    "getAclConfig",
}

# Texts of two clusters depend on the moment; run alone: pytest -m slow tests/interop/test_interop_mqadmin.py
pytestmark = [pytest.mark.interop, pytest.mark.slow]


@dataclass
class Side:
    """One cluster with the prepared content."""

    cluster: Cluster
    admin: Admin
    values: dict[str, str]

    def run(self, case: Case) -> str:
        argv = [part.format(**self.values) for part in case.argv]
        printed = wait_for(lambda: self._print_if(argv, case.awaited), f"{case.awaited!r} in {case.line}")
        if case.file:
            printed += _readable(Path(self.values["dir"], case.file).read_text())
        return normal(printed, self.values)

    def _print_if(self, argv: list[str], awaited: str) -> str:
        printed = self.admin.mqadmin(*argv)
        return printed + "\n" if awaited in printed else ""


def _readable(text: str) -> str:
    """Exported files by lines, and in an order of their own: the tool writes them from hash tables."""
    return json.dumps(json.loads(text), indent=1, sort_keys=True)


@pytest.fixture(scope="module")
def sides(
    java_peer: JavaPeer, session_foundry: Foundry, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict]:
    java = JavaClients(java_peer)
    found = {}
    for kind in KINDS:
        cluster = session_foundry.cluster(kind).start()
        values = prepare(java, cluster, tmp_path_factory.mktemp(f"export-{kind}"))
        found[kind] = Side(cluster, java.admin(cluster.namesrv), values)
    yield found
    # A Java consumer that was told to reset its offsets keeps quiet for 10 s, also when it is to stop.
    threading.Thread(target=_close_quietly, args=(java,), daemon=True).start()
    for side in found.values():
        side.cluster.close()


def _close_quietly(java: JavaClients) -> None:
    with contextlib.suppress(Exception):
        java.close()


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    table = Table()
    yield table
    if request.config.getoption("--mqadmin-table"):
        table.write(Path(__file__).with_name("mqadmin_table.md"))


def compare(case: Case, printed: dict[str, str], table: Table) -> None:
    views = {kind: case.view(text) for kind, text in printed.items()}
    if views["java"] != views["comet"]:
        table.add(case.command, DIFFERS, f"`{case.line}`")
    else:
        table.add(case.command, BY_NATURE if case.by_nature else SAME, case.by_nature)
    assert views["comet"] == views["java"]


@pytest.mark.parametrize("case", CASES, ids=[f"{number:03}-{case.line}" for number, case in enumerate(CASES)])
def test_prints_the_same(case: Case, sides: dict[str, Side], table: Table) -> None:
    compare(case, {kind: side.run(case) for kind, side in sides.items()}, table)


def test_endless_commands_begin_the_same(java_kit: JavaKit, sides: dict[str, Side], table: Table) -> None:
    running = {
        (case, kind): subprocess.Popen(
            java_kit.command(
                "org.apache.rocketmq.tools.command.MQAdminStartup",
                *(case.command, "-n", side.cluster.namesrv, *case.argv[1:]),
                heap_mb=128,
                properties={
                    "rocketmq.home.dir": str(java_kit.home),
                    "log.file": f"{side.values['dir']}/tool.log",
                },
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for case in ENDLESS
        for kind, side in sides.items()
    }
    deadline = time.monotonic() + ENDLESS_SECONDS
    texts = {name: _first_words(process, deadline) for name, process in running.items()}
    for case in ENDLESS:
        printed = {kind: normal(texts[case, kind], sides[kind].values) for kind in KINDS}
        assert "Exception" not in printed["comet"]
        compare(case, printed, table)


def _first_words(process: subprocess.Popen[str], deadline: float) -> str:
    try:
        return process.communicate(timeout=max(0.1, deadline - time.monotonic()))[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0]


def test_every_subcommand_is_covered(java_peer: JavaPeer) -> None:
    printed = java_peer.call("mqadmin", argv=[])["out"]
    known = {line.split()[0] for line in printed.splitlines() if line.startswith("   ")}
    covered = {case.command for case in [*CASES, *ENDLESS]}
    assert covered == known - ACL_COMMANDS
