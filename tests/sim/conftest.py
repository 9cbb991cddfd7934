"""Seeds of the simulator: COMETMQ_SIM_SEEDS=N runs seeds 0 to N-1 of every simulation."""

from __future__ import annotations

import os

import pytest


@pytest.fixture
def seeds() -> range:
    return range(int(os.environ.get("COMETMQ_SIM_SEEDS", "25")))
