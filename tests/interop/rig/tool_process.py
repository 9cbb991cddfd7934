"""An mqadmin command that never ends, in a Java process of its own: what it has printed so far, and its end."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .build import JavaKit

TOOL_HEAP_MB = 128


class ToolProcess:
    def __init__(self, kit: JavaKit, argv: tuple[str, ...], namesrv: str, directory: Path) -> None:
        self.output = directory / f"{argv[0]}.out"
        command = kit.command(
            "org.apache.rocketmq.tools.command.MQAdminStartup",
            *(argv[0], "-n", namesrv, *argv[1:]),
            heap_mb=TOOL_HEAP_MB,
            properties={
                "rocketmq.home.dir": str(kit.home),
                "user.home": str(directory),
                "log.file": f"{directory}/tool.log",
            },
        )
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=directory
            )

    @property
    def printed(self) -> str:
        return self.output.read_text(errors="replace")

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
