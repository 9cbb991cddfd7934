"""The metrics of a controller, whichever process it lives in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cometmq.metrics.exposition import Family

if TYPE_CHECKING:
    from cometmq.controller.controller import Controller

# Name in the status, name of the metric, what it is.
FIGURES = (
    ("term", "cometmq_controller_term", "Term of the metadata group"),
    ("appliedIndex", "cometmq_controller_applied_index", "Last decision that was applied"),
    ("revision", "cometmq_controller_etcd_revision", "Revision of etcd last seen"),
    ("tickLatenessMs", "cometmq_controller_tick_lateness_ms", "How late the last tick of the voter was"),
    ("tickLatenessWorstMs", "cometmq_controller_tick_lateness_worst_ms", "The latest tick since the start"),
)


def controller_families(controller: Controller | None) -> Iterator[Family]:
    """Plain reads of numbers that the thread of the controller writes; nothing waits for it."""
    if controller is None:
        return
    status = controller.metadata.status()
    role = str(status["role"])
    yield Family("cometmq_controller_leader", "1 if this controller leads").add(float(role == "LEADER"))
    yield Family("cometmq_controller_failed", "1 if this controller had to stop").add(float(role == "FAILED"))
    for key, name, text in FIGURES:
        value = status.get(key)
        if isinstance(value, int | float):
            yield Family(name, text).add(value)
