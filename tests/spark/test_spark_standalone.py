"""A real Spark cluster (master and two workers as processes) reads, streams and writes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from spark_kit import RunningBroker
from standalone_cluster import environment, standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

DRIVER = Path(__file__).with_name("cluster_driver.py")
COUNT = 1000
DRIVER_S = 800


def test_standalone_cluster_reads_streams_and_writes(
    broker: RunningBroker, topic: str, tmp_path: Path
) -> None:
    target = f"{topic}-copy"
    broker.create_topic(target, 4)
    broker.fill(topic, COUNT)
    with standalone_cluster(tmp_path / "cluster") as cluster:
        words = [cluster.address, broker.name_server, topic, target, str(tmp_path / "checkpoint")]
        done = subprocess.run(
            [sys.executable, str(DRIVER), *words],
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=DRIVER_S,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert cluster.executors() == {"worker-0", "worker-1"}
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["master"] == cluster.address
    assert len(found["daemons"]) == 2, "tasks ran in one executor only"
    assert found["read"] == found["load"] == {"rows": COUNT, "bodies": COUNT}
    assert found["stream"]["batches"] >= 2
    assert Counter(broker.bodies(target)) == Counter(b"body-%d" % number for number in range(COUNT))
