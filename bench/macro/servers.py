"""The two brokers under test: ours (this checkout) and the Java peer (``../shared/bench/java-peer``)."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

STOP_SECONDS = 40


def free_port() -> int:
    """A free port below those that the system gives to clients; brokers also use port - 2 and port + 1."""
    while True:
        port = random.randrange(20_000, 30_000)
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) != 0:
                return port


class Broker:
    """Common: an address, a process id, a directory that can be wiped."""

    name = ""
    nameserver_port = 0  # ours finds a free one then; with the Java broker there is none

    def __init__(self, directory: Path, options: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.options = options or {}
        self.port = free_port()
        self.pid = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def wipe(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)


class Comet(Broker):
    name = "comet"
    pure = False  # run the source of the compiled modules
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        options = [part for key, value in self.options.items() for part in ("-o", f"{key}={value}")]
        self.log = open(self.directory / "log", "ab")  # noqa: SIM115 - closed in stop()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cometmq", "standalone", "--port", str(self.port),
             "--nameserver-port", str(self.nameserver_port), "--store", str(self.directory / "store"),
             "--log-level", "warning", *options],
            stdout=self.log, stderr=self.log, env=os.environ | ({"COMETMQ_PURE": "1"} if self.pure else {}),
        )  # fmt: skip
        self.pid = self.process.pid

    def stop(self, *, kill: bool = False) -> None:
        """Also one that has not started, or has been stopped."""
        if self.process is None:
            return
        (self.process.kill if kill else self.process.terminate)()
        self.process.wait(STOP_SECONDS)
        self.log.close()


class Java(Broker):
    name = "java"

    def __init__(self, directory: Path, scripts: Path, options: dict[str, str] | None = None) -> None:
        super().__init__(directory, options)
        self.scripts = scripts
        self.environment = os.environ | {
            "PEER_LIB": os.environ.get("PEER_LIB", str(directory.parent / "java-lib"))
        }

    def start(self) -> None:
        options = [part for key, value in self.options.items() for part in ("-o", f"{key}={value}")]
        self.directory.mkdir(parents=True, exist_ok=True)
        lib = Path(self.environment["PEER_LIB"])
        if not list(lib.glob("rocketmq-broker-*.jar")):
            fetch = ["mvn", "-q", "-B", "-f", str(self.scripts / "pom.xml"), "dependency:copy-dependencies"]
            subprocess.run([*fetch, f"-DoutputDirectory={lib}"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(
            [str(self.scripts / "start.sh"), "-d", str(self.directory), "-n", str(self.nameserver_port),
             "-b", str(self.port), *options],
            check=True, env=self.environment, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        self.pid = int((self.directory / "broker.pid").read_text())

    def stop(self, *, kill: bool = False) -> None:
        """Also one that has not started, or has been stopped."""
        subprocess.run(
            [str(self.scripts / "stop.sh"), "-d", str(self.directory), *(["-9"] if kill else [])], check=True
        )


def drop_pages(directory: Path) -> None:
    """Write back and forget the page cache of a store, so that the next read comes from disk."""
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def wait_for_port(port: int, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
