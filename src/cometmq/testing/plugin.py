"""The pytest plugin: fixtures with a real broker, and async tests that use them run without another plugin.

``cometmq_broker``   a LocalBroker, empty for each test
``cometmq_client``   a Client of it for async tests, started and closed around the test
``cometmq_sync``     a blocking client of it

``--cometmq-servers=host:9876`` gives tests written against ``cometmq_servers`` a real cluster instead.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cometmq.client.client import Client
    from cometmq.testing.local_broker import LocalBroker

TEST_LIMIT_S = 60.0  # of a coroutine test, unless it is marked with timeout(seconds)
ASYNC_PLUGINS = ("asyncio", "anyio", "trio")
FIXTURES = frozenset({"cometmq_broker", "cometmq_client", "cometmq_servers"})


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cometmq")
    group.addoption(
        "--cometmq-servers",
        metavar="HOST:PORT",
        default="",
        help="NameServers of a running cluster for tests that use the fixture cometmq_servers",
    )


@pytest.fixture
def cometmq_broker() -> Iterator[LocalBroker]:
    """A real broker in this process, empty for each test."""
    from cometmq.testing.local_broker import LocalBroker

    with LocalBroker() as broker:
        yield broker


@pytest.fixture
def cometmq_servers(request: pytest.FixtureRequest) -> str:
    """NameServer addresses: of the cluster named on the command line, else of a broker made for this test."""
    given: str = request.config.getoption("--cometmq-servers")
    if given:
        return given
    broker: LocalBroker = request.getfixturevalue("cometmq_broker")
    return broker.name_servers


@pytest.fixture
def cometmq_client(cometmq_servers: str) -> Client:
    """A client for an async test; it is started before the test and closed after it."""
    from cometmq.client.client import Client

    return Client(cometmq_servers)


@pytest.fixture
def cometmq_sync(cometmq_servers: str) -> Iterator[Any]:
    """A blocking client."""
    from cometmq.sync import Client as SyncClient

    with SyncClient(cometmq_servers) as client:
        yield client


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test that uses our fixtures, unless an async plugin is in charge of it."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj) or not _uses_us(pyfuncitem):
        return None
    if any(pyfuncitem.get_closest_marker(name) for name in ASYNC_PLUGINS):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    asyncio.run(_run(pyfuncitem.obj, arguments, _limit_s(pyfuncitem)))
    return True


def _limit_s(item: pytest.Function) -> float:
    """What the mark of pytest-timeout says, whether that plugin is there or not."""
    mark = item.get_closest_marker("timeout")
    given = None if mark is None else (mark.args[0] if mark.args else mark.kwargs.get("timeout"))
    return TEST_LIMIT_S if given is None else float(given)


def _uses_us(item: pytest.Function) -> bool:
    """By the name of a fixture, or because some fixture gives an object of this package."""
    if FIXTURES & set(item.fixturenames):
        return True
    return any(type(value).__module__.startswith("cometmq.") for value in item.funcargs.values())


async def _run(test: Any, arguments: dict[str, Any], limit_s: float) -> None:
    from cometmq.client.client import Client

    async with AsyncExitStack() as stack:
        for value in arguments.values():
            if isinstance(value, Client):
                await stack.enter_async_context(value)
        await asyncio.wait_for(test(**arguments), limit_s)
