"""mqadmin 4.9.7: every subcommand prints against ours what it prints against the Java servers.

ACL and HA commands are not here. The cases build on each other (a topic is made, looked at, deleted) and run in order.
"""

from __future__ import annotations

import contextlib
import json
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
from rig.tool_process import ToolProcess
from rig.waiting import wait_for

KINDS = ("java", "comet")
ALIKE_SECONDS_MAX = 40
LOOK_AGAIN_SECONDS = 0.2
ENDLESS_ATTEMPTS_MAX = 3
ACL_COMMANDS = {
    "updateAclConfig",
    "deleteAclConfig",
    "clusterAclConfigVersion",
    "updateGlobalWhiteAddr",
    "getAclConfig",
}


@dataclass
class Side:
    """One cluster with the prepared content."""

    cluster: Cluster
    admin: Admin
    values: dict[str, str]

    def run(self, case: Case) -> str:
        argv = [part.format(**self.values) for part in case.argv]
        printed = self.admin.mqadmin(*argv) + "\n"
        if case.file:
            printed += _readable(Path(self.values["dir"], case.file).read_text())
        return normal(printed, self.values)

    def has_begun(self, case: Case, tool: ToolProcess) -> bool:
        """An endless command shows that it works by what it prints, or by the group that it brings.

        One that has ended has failed: then what it printed tells.
        """
        if not tool.running:
            return True
        shown = self.admin.mqadmin("consumerConnection", "-g", case.group) if case.group else tool.printed
        return case.awaited in shown


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
    java, comet = case.views(**printed)
    if java != comet:
        table.add(case.command, DIFFERS, f"`{case.line}`")
    else:
        table.add(case.command, BY_NATURE if case.by_nature else SAME, case.by_nature)
    assert comet == java


def printed_by(case: Case, sides: dict[str, Side]) -> dict[str, str]:
    """What each side prints. What depends on the moment is looked at again until it is alike, or the time is up."""
    deadline = time.monotonic() + ALIKE_SECONDS_MAX
    while True:
        printed = {kind: side.run(case) for kind, side in sides.items()}
        java, comet = case.views(**printed)
        if java == comet or not case.only_reads or time.monotonic() > deadline:
            return printed
        time.sleep(LOOK_AGAIN_SECONDS)


@pytest.mark.parametrize("case", CASES, ids=[f"{number:03}-{case.line}" for number, case in enumerate(CASES)])
def test_prints_the_same(case: Case, sides: dict[str, Side], table: Table) -> None:
    compare(case, printed_by(case, sides), table)


def test_log_lines_of_the_java_process_are_no_part_of_a_text() -> None:
    text = (
        "10:02:03.456 [NettyClientSelector_1] INFO  RocketmqRemoting - closeChannel: close the connection\n"
        "#Topic  #Broker\n"
        "RocketMQLog:WARN Please initialize the logger system properly.\n"
        "10:02:03.456 is no log line\n"
        "10:02:03.457 [NettyClient[1]_1] WARN  RocketmqRemoting - last"
    )
    assert normal(text, {}) == "#Topic  #Broker\n10:02:03.456 is no log line\n"


def first_words(case: Case, java_kit: JavaKit, sides: dict[str, Side]) -> dict[str, str]:
    """What an endless command has printed on each side when it works."""
    tools = {
        kind: ToolProcess(java_kit, case.argv, side.cluster.namesrv, Path(side.values["dir"]))
        for kind, side in sides.items()
    }
    try:
        for kind, side in sides.items():
            wait_for(lambda at=side, of=tools[kind]: at.has_begun(case, of), f"{case.line} on {kind}", 60)
        return {kind: normal(tool.printed, sides[kind].values) for kind, tool in tools.items()}
    finally:
        for tool in tools.values():
            tool.end()


@pytest.mark.parametrize("case", ENDLESS, ids=[case.command for case in ENDLESS])
def test_endless_command_begins_the_same(
    case: Case, java_kit: JavaKit, sides: dict[str, Side], table: Table
) -> None:
    for _ in range(ENDLESS_ATTEMPTS_MAX):
        printed = first_words(case, java_kit, sides)
        if not any("RemotingTimeoutException" in text for text in printed.values()):
            break  # else: the tool gives a request 3 s, too little on a busy machine
    assert "Exception" not in printed["comet"]
    compare(case, printed, table)


def test_every_subcommand_is_covered(java_peer: JavaPeer) -> None:
    printed = java_peer.call("mqadmin", argv=[])["out"]
    known = {line.split()[0] for line in printed.splitlines() if line.startswith("   ")}
    covered = {case.command for case in [*CASES, *ENDLESS]}
    assert covered == known - ACL_COMMANDS
