"""One Spark session and one broker for all tests with Spark; a test has topics of its own."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from spark_kit import RunningBroker, read_frame, running_broker

HAS_SPARK = (
    importlib.util.find_spec("pyspark") is not None and importlib.util.find_spec("pyarrow") is not None
)
WHY_SKIPPED = "pyspark or pyarrow is not installed: pip install 'cometmq[spark]'"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark"):
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))
            if not HAS_SPARK:
                item.add_marker(pytest.mark.skip(reason=WHY_SKIPPED))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from cometmq.spark import session

    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.python.authenticate.socketTimeout": "90s",  # a busy machine starts workers slowly
    }
    found = session("cometmq-tests", master="local[2]", settings=settings)
    found.sparkContext.setLogLevel("ERROR")
    yield found
    found.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("spark") / "store") as running:
        yield running


_numbers = itertools.count()


@pytest.fixture
def topic(broker: RunningBroker) -> str:
    name = f"topic-{next(_numbers)}"
    broker.create_topic(name, 4)
    return name


@pytest.fixture
def read(spark: Any, broker: RunningBroker) -> Callable[..., Any]:
    """A batch read of the broker: read(subscribe=...)."""

    return lambda schema=None, **options: read_frame(spark, broker, schema, **options)
