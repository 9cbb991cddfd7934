"""Ordered consumers, delayed messages and transactions while masters are killed. ``make test-ha``."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from ha import applications, faults
from ha.trials import run_trial

TIMES = int(os.environ.get("HA_TIMES", "1"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def test_ordered_consumers(tmp_path: Path) -> None:
    """F-34."""
    kills = [faults.kill_master] * 2 * TIMES
    told = asyncio.run(run_trial(tmp_path, kills, application=applications.OrderedConsumers))
    print("F-34", 2 * TIMES, told)


def test_delayed_and_transaction_messages(tmp_path: Path) -> None:
    """F-35: all 18 levels, shortened to 1 to 18 s."""
    kills = [faults.kill_master] * 2 * TIMES
    application = applications.DelayedAndTransactions
    told = asyncio.run(run_trial(tmp_path, kills, applications.SETTINGS, application=application))
    print("F-35", 2 * TIMES, told)
