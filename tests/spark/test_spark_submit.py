"""The program of docs/spark/clusters.md under spark-submit, on a standalone cluster."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from spark_kit import RunningBroker
from standalone_cluster import standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

PAGE = Path(__file__).parents[2] / "docs" / "spark" / "clusters.md"
SUBMIT_S = 500
SETTINGS = {
    "spark.pyspark.python": sys.executable,
    "spark.pyspark.driver.python": sys.executable,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
}


def test_archive_is_submitted_to_a_standalone_cluster(
    broker: RunningBroker, topic: str, tmp_path: Path
) -> None:
    import pyspark

    from cometmq.spark.java import find_java
    from cometmq.spark.pipes import verify_archive
    from cometmq.spark.pipes.archive_files import live_files

    program = re.search(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert program is not None
    (tmp_path / "pipe.py").write_text(program[1], "utf-8")
    broker.fill(topic, 500)
    lake = tmp_path / "lake"
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    settings = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    words = ["archive", topic, "-n", broker.name_server, "--to", str(lake), "--verify"]
    # As an administrator's shell has it, not as the tests' session has left it.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment |= {"JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1"}
    with standalone_cluster(tmp_path / "cluster") as cluster:
        done = subprocess.run(
            [str(submit), "--master", cluster.address, *settings, str(tmp_path / "pipe.py"), *words],
            capture_output=True,
            text=True,
            timeout=SUBMIT_S,
            env=environment,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
        assert cluster.executors()
    assert "archived 500 messages in 4 files" in done.stdout
    assert "is whole" in done.stdout
    assert sum(file.rows for file in live_files(lake).values()) == 500
    assert verify_archive(lake) == []
