"""Fork guard: sockets and loops do not survive fork(), so a child must not use its parent's client.

A counter goes up in every child; a client remembers the value it was started with. Nothing else happens at fork.
"""

from __future__ import annotations

import os

from cometmq.errors import ClientForked

_generation = 0


def _forked() -> None:
    global _generation
    _generation += 1


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_forked)


def generation() -> int:
    return _generation


def check(started_in: int) -> None:
    """Raise if this process is a child of the one where the client was started."""
    if started_in != _generation:
        raise ClientForked(
            "this client was started before fork() and cannot be used in the child process; "
            "make and start a Client after the fork (for example in a worker's start-up hook)"
        )
