"""The Java peer as the delay benchmark kills it, and ports that stay free while a broker is away."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import time
from pathlib import Path

from bench.macro.servers import Java

GONE_LIMIT_S = 10
PORTS = range(20_000, 30_000)  # below those that outgoing connections get


class KillableJava(Java):
    """Its stop script waits for the process number, for half a minute where nobody buries the dead."""

    def stop(self, *, kill: bool = False) -> None:
        if not kill:
            super().stop()
            return
        file = self.directory / "broker.pid"
        pid = int(file.read_text())  # not self.pid: a start that failed half way has left a new process
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + GONE_LIMIT_S
        while not ended(pid):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the Java peer {pid} does not end")
            time.sleep(0.005)
        file.unlink()


def ended(pid: int) -> bool:
    """Whether a process is gone, or dead and only listed."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in ("Z", "X")


def quiet_port() -> int:
    """A port that is free together with the neighbours that brokers use, and that no outgoing connection takes."""
    while True:
        port = random.choice(PORTS)
        if all(_free(near) for near in range(port - 2, port + 2)):
            return port


def _free(port: int) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
