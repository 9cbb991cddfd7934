"""Real voters over real connections: leaders that go, voters that lose their disk, voters that come and leave."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from controller.controller_kit import Controllers, wait_for

from cometmq.controller.commands import Register, SetConfig
from cometmq.controller.metadata import NotLeader, Outcome
from cometmq.controller.raft.codec import Hello
from cometmq.controller.replicas import ReplicaAddress
from cometmq.controller.voter.files import DiskFailed
from cometmq.controller.voter.formation import Formation
from cometmq.errors import Timeout


@pytest.fixture
def controllers(tmp_path: Path) -> Iterator[Controllers]:
    made = Controllers(tmp_path, compact_after=20)
    yield made
    made.close()


def decide(controllers: Controllers, number: int) -> Outcome:
    """Something that can be seen in the state: a preferred master of this number."""

    def attempt() -> Outcome | None:
        leader = controllers.running[controllers.leader()]
        try:
            return leader.call(leader.metadata.propose("g", SetConfig(preferred_master=number)))
        except (NotLeader, Timeout):
            return None  # it was just replaced

    found = wait_for(attempt, "a decision")
    assert isinstance(found, Outcome)
    return found


def decided(controllers: Controllers, number: int) -> int:
    record = controllers.raft(number).record("g")
    return record.preferred_master if record is not None else 0


def wait_until_all_know(controllers: Controllers, number: int) -> None:
    wait_for(
        lambda: all(decided(controllers, voter) == number for voter in controllers.running),
        f"everybody knowing {number}",
    )


def test_a_new_leader_knows_everything(controllers: Controllers) -> None:
    leader = controllers.running[controllers.leader()]
    register = Register(0, "store", "host:1", "host:2", ("ha2",))
    assert leader.call(leader.metadata.propose("g", register)).replica_id == 1
    for number in range(1, 31):  # more than fit before a snapshot
        assert decide(controllers, number).accepted
    wait_until_all_know(controllers, 30)
    gone = controllers.leader()
    controllers.stop(gone)
    assert decide(controllers, 31).accepted
    assert decided(controllers, controllers.leader()) == 31
    controllers.start(gone)
    wait_until_all_know(controllers, 31)
    record = controllers.raft(gone).record("g")
    assert record is not None
    assert record.state.stores == {1: "store"}
    assert record.addresses == {1: ReplicaAddress("host:1", "host:2", ("ha2",))}
    assert not controllers.failures


def test_a_voter_that_hears_of_the_group_from_its_leader_can_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Formation._found
    late = 3

    def find_late(self: Formation, answers: dict[int, Hello]) -> None:
        """The leader's first message is there before this voter has asked who belongs to the group."""
        if self._node.me.id != late or any(hello.leader for hello in answers.values()):
            found(self, answers)

    monkeypatch.setattr(Formation, "_found", find_late)
    controllers = Controllers(tmp_path)
    try:
        decide(controllers, 1)
        wait_until_all_know(controllers, 1)
        lead(controllers, late)
        assert decide(controllers, 2).accepted
    finally:
        controllers.close()


def test_asking_for_a_leader_who_is_away_again_and_again_stops_nothing(controllers: Controllers) -> None:
    leader = controllers.leader()
    away = next(number for number in controllers.running if number != leader)
    controllers.stop(away)
    decide(controllers, 1)

    async def transfer() -> bool:
        return controllers.raft(leader).transfer(away)

    def asked_and_decided() -> bool:
        controllers.running[leader].call(transfer())
        try:
            decided = controllers.running[leader].call(
                controllers.raft(leader).propose("g", SetConfig(preferred_master=2))
            )
        except NotLeader:
            return False
        return decided.accepted

    assert not asked_and_decided()
    wait_for(asked_and_decided, "a decision between two attempts")


def lead(controllers: Controllers, number: int) -> None:
    async def transfer(leader: int) -> bool:
        return controllers.raft(leader).transfer(number)

    def leads() -> bool:
        leader = controllers.leader()
        if leader != number:
            with contextlib.suppress(NotLeader):
                controllers.running[leader].call(transfer(leader))
        return leader == number

    wait_for(leads, f"voter {number} leading")


def test_followers_name_the_leader_and_decide_nothing(controllers: Controllers) -> None:
    leader = controllers.leader()
    follower = next(number for number in controllers.running if number != leader)
    wait_for(lambda: controllers.raft(follower).leader_address == controllers.peers[leader], "a known leader")
    other = controllers.running[follower]
    with pytest.raises(NotLeader) as refused:
        other.call(other.metadata.propose("g", Register(1, "s", "a", "h")))
    assert refused.value.leader_address == controllers.peers[leader]
    with pytest.raises(NotLeader):
        other.call(other.metadata.confirm_leadership())


def test_all_of_them_restart_from_their_files(controllers: Controllers) -> None:
    for number in range(1, 26):
        decide(controllers, number)
    wait_until_all_know(controllers, 25)
    voters = list(controllers.running)
    for voter in voters:
        controllers.stop(voter)
    log = controllers.path(voters[0]) / "log"
    os.truncate(log, max(0, log.stat().st_size - 3))  # as a crash may leave it
    for voter in voters:
        controllers.start(voter)
    wait_until_all_know(controllers, 25)
    assert not any(controllers.raft(voter).node.storage.broken for voter in voters)


def test_a_voter_with_bad_files_never_votes_again_under_its_name(controllers: Controllers) -> None:
    for number in range(1, 6):
        decide(controllers, number)
    leader = controllers.leader()
    victim = next(number for number in controllers.running if number != leader)
    before = controllers.raft(victim).node.me
    wait_until_all_know(controllers, 5)
    controllers.stop(victim)
    path = controllers.path(victim) / "log"
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    controllers.start(victim)
    assert "damaged" in controllers.raft(victim).node.storage.broken
    wait_until_all_know(controllers, 5)  # it was let in again, as somebody new
    raft = controllers.raft(controllers.leader()).node.raft
    assert raft is not None
    assert before not in raft.voters
    assert controllers.raft(victim).node.me in raft.voters


def test_a_wiped_voter_cannot_found_a_second_group(controllers: Controllers) -> None:
    """Alone with other voters that are away it waits; nobody elects anybody."""
    decide(controllers, 1)
    wait_until_all_know(controllers, 1)
    for voter in (1, 2, 3):
        controllers.stop(voter)
    shutil.rmtree(controllers.path(1))
    controllers.start(1)
    controllers.start(2)
    hello = controllers.raft(1).node.hello()
    assert (hello.fresh, hello.cluster) == (True, "")
    wait_for(lambda: controllers.raft(2).node.raft is not None)
    assert not controllers.raft(2).is_leader
    controllers.start(3)
    wait_until_all_know(controllers, 1)


def test_voters_come_and_leave(controllers: Controllers) -> None:
    decide(controllers, 1)
    controllers.add(4)
    leader = controllers.running[controllers.leader()]
    leader.call(controllers.raft(controllers.leader()).add_voter(4, controllers.peers[4]))
    wait_for(lambda: controllers.voters() == {1, 2, 3, 4}, "the fourth voter")
    decide(controllers, 2)
    wait_until_all_know(controllers, 2)
    gone = next(number for number in (1, 2, 3) if number != controllers.leader())

    def removed() -> bool:
        number = controllers.leader()
        try:
            return controllers.running[number].call(controllers.raft(number).remove_voter(gone))
        except (NotLeader, Timeout):
            return False

    wait_for(removed, "the removal")
    controllers.stop(gone)
    assert controllers.voters() == {1, 2, 3, 4} - {gone}
    assert decide(controllers, 3).accepted


def test_a_disk_error_ends_a_voter_for_good(
    controllers: Controllers, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide(controllers, 1)
    victim = controllers.leader()
    storage = controllers.raft(victim).node.storage

    def fail(_step: object) -> None:
        raise DiskFailed("no space")

    monkeypatch.setattr(storage, "write", fail)
    assert decide(controllers, 2).accepted
    wait_for(lambda: controllers.failures, "the failure")
    assert controllers.raft(victim).status()["role"] == "FAILED"
    assert controllers.leader() != victim
    assert decide(controllers, 3).accepted
