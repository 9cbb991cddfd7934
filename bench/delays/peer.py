"""The Java peer as the delay benchmark kills it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from bench.macro.servers import Java

GONE_LIMIT_S = 10


class KillableJava(Java):
    """Its stop script waits for the process number, for half a minute where nobody buries the dead."""

    def stop(self, *, kill: bool = False) -> None:
        if not kill:
            super().stop()
            return
        os.kill(self.pid, signal.SIGKILL)
        deadline = time.monotonic() + GONE_LIMIT_S
        while not ended(self.pid):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the Java peer {self.pid} does not end")
            time.sleep(0.005)
        (self.directory / "broker.pid").unlink()


def ended(pid: int) -> bool:
    """Whether a process is gone, or dead and only listed."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in ("Z", "X")
