"""``cometmq ha status``: a group that elects its master, with a replica that does not answer."""

from __future__ import annotations

from typing import Any

from cometmq.cli.ha import _elected_group


def replica(number: int, role: str, **changes: Any) -> dict[str, Any]:
    return {
        "replicaId": number, "role": role, "standing": "SERVING" if role == "MASTER" else None,
        "address": f"host{number}:10911", "epoch": 3, "setVersion": 9, "syncSet": [1, 2], "maxOffset": 500,
        "confirmOffset": 400, "lease": role == "MASTER", "followers": {}, **changes,
    }  # fmt: skip


def test_roles_epochs_and_lags_are_shown() -> None:
    followers = {
        "2": {"lagBytes": 100, "lagMs": 0, "silenceMs": 80},
        "3": {"lagBytes": 500, "lagMs": 0, "silenceMs": 2500},
    }
    rows = _elected_group("G", [replica(1, "MASTER", followers=followers), replica(2, "FOLLOWER")])
    assert [
        (row["id"], row["role"], row["in sync"], row["behind bytes"], row["behind s"]) for row in rows
    ] == [
        (1, "master", True, None, None),
        (2, "follower", True, 100, 0.0),
        (3, None, False, 500, 2.5),
    ]
    assert rows[2]["address"] == "no answer"
    assert rows[0]["lease"] is True


def test_the_view_of_the_highest_epoch_counts() -> None:
    old = replica(1, "MASTER", epoch=3, standing="FENCED", lease=False, syncSet=[1, 2])
    new = replica(2, "MASTER", epoch=4, syncSet=[2, 3], setVersion=11)
    rows = _elected_group("G", [old, new])
    assert [row["role"] for row in rows] == ["master (fenced)", "master", None]
    assert [row["in sync"] for row in rows] == [False, True, True]
