"""The client suite runs against a broker in the process, or against any cluster: --cometmq-servers=host:9876."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from cometmq.testing import LocalBroker


@pytest.fixture
def name() -> Callable[[str], str]:
    """Names that no other test has: ``name("topic")``; equal within a test."""
    suffix = uuid.uuid4().hex[:10]
    return lambda prefix: f"{prefix}-{suffix}"


@pytest.fixture
def topic(name: Callable[[str], str]) -> str:
    return name("topic")


@pytest.fixture
def group(name: Callable[[str], str]) -> str:
    return name("group")


@pytest.fixture
def local_broker(request: pytest.FixtureRequest) -> LocalBroker:
    """The broker in the process, for tests that turn its clock or break it; skipped against other clusters."""
    if request.config.getoption("--cometmq-servers"):
        pytest.skip("needs the broker in the process")
    broker: LocalBroker = request.getfixturevalue("cometmq_broker")
    return broker
