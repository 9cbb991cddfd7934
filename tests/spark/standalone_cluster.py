"""A standalone Spark cluster on loopback: a master and workers as processes of their own.

    python tests/spark/standalone_cluster.py [WORKERS]

starts one for trying things out and prints its address; it ends with Ctrl-C.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
START_S = 240
DAEMON_MEMORY = "256m"
EXECUTOR_MEMORY = "512m"
_ADDRESS = re.compile(r"Starting Spark master at (spark://\S+)")


@dataclass(frozen=True)
class StandaloneCluster:
    address: str
    directory: Path

    def executors(self) -> set[str]:
        """The workers that have run something: each has a directory for every executor."""
        return {path.parents[2].name for path in self.directory.glob("worker-*/app-*/*/stderr")}


def environment(directory: Path) -> dict[str, str]:
    from cometmq.spark.java import find_java

    return os.environ | {
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": HOST,
        "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "SPARK_LOCAL_DIRS": str(directory / "local"),
    }


def start(directory: Path, name: str, *words: str) -> subprocess.Popen[bytes]:
    import pyspark

    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    with (directory / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [str(spark_class), *words], env=environment(directory), stdout=log, stderr=log
        )


def wait_for_line(path: Path, pattern: re.Pattern[str], process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + START_S
    while True:
        text = path.read_text(errors="replace")
        found = pattern.search(text)
        if found:
            return found[found.lastindex or 0]
        assert process.poll() is None, f"{path.name} ended: {text[-2000:]}"
        assert time.monotonic() < deadline, f"{path.name} did not get ready: {text[-2000:]}"
        time.sleep(0.05)


@contextmanager
def standalone_cluster(directory: Path, workers: int = 2) -> Iterator[StandaloneCluster]:
    """One core for each worker."""
    directory.mkdir(parents=True, exist_ok=True)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        master_words = ("--host", HOST, "--port", "0", "--webui-port", "0")
        master = start(directory, "master", "org.apache.spark.deploy.master.Master", *master_words)
        processes.append(master)
        address = wait_for_line(directory / "master.log", _ADDRESS, master)
        for number in range(workers):
            words = ["--host", HOST, "--cores", "1", "--memory", EXECUTOR_MEMORY, "--webui-port", "0"]
            words += ["--work-dir", str(directory / f"worker-{number}"), address]
            worker = start(directory, f"worker{number}", "org.apache.spark.deploy.worker.Worker", *words)
            processes.append(worker)
        for number, worker in enumerate(processes[1:]):
            ready = re.compile(r"Successfully registered with master")
            wait_for_line(directory / f"worker{number}.log", ready, worker)
        yield StandaloneCluster(address, directory)
    finally:
        for process in reversed(processes):
            process.terminate()  # a worker ends its executors
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def main() -> None:
    workers = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    with (
        tempfile.TemporaryDirectory() as directory,
        standalone_cluster(Path(directory), workers) as cluster,
    ):
        print(cluster.address, flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    main()
