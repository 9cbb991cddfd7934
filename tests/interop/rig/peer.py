"""The Java client process: commands as JSON lines to its stdin, answers and events from its stdout."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from .build import JavaKit

CALL_SECONDS_MAX = 40
PEER_HEAP_MB = 512

Event = dict[str, Any]


class JavaError(Exception):
    """An exception of the Java client: its class name, response code (None if it has none) and text."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['type']}: {error['message']}")
        self.type: str = error["type"]
        self.message: str = error["message"]
        self.cause = JavaError(error["cause"]) if error.get("cause") else None
        code = error.get("code")
        self.code: int | None = self.cause.code if code in (None, -1) and self.cause else code


class JavaPeer:
    """One process for a whole test session. Any thread may call."""

    def __init__(self, kit: JavaKit, directory: Path, properties: dict[str, str] | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._ids = itertools.count(1)
        self._calls: dict[int, Future[Any]] = {}
        self._events: dict[str, list[Event]] = defaultdict(list)
        self._changed = threading.Condition()
        self._write_lock = threading.Lock()
        with (directory / "peer.err").open("ab") as err:
            self._process = subprocess.Popen(
                self._command(kit, properties or {}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
                cwd=directory,  # some tools write into the directory they run in
            )
        self._reader = threading.Thread(target=self._read, name="java-peer", daemon=True)
        self._reader.start()
        self.wait_events("peer", lambda events: bool(events), "the Java client process to start")

    def _command(self, kit: JavaKit, properties: dict[str, str]) -> list[str]:
        home = str(self.directory)
        shutil.copytree(kit.home / "conf", self.directory / "conf", dirs_exist_ok=True)
        own = {
            "rocketmq.home.dir": home,
            "user.home": home,
            "log.file": f"{home}/tools.log",
            # from the start: without it logback writes to stdout, between the words of the first mqadmin commands
            "logback.configurationFile": f"{home}/conf/logback_tools.xml",
            "rocketmq.client.logRoot": home,
            "rocketmq.client.localOffsetStoreDir": f"{home}/offsets",
            # the locks of the shared brokers live 10 s
            "rocketmq.client.rebalance.lockInterval": "2000",
            "rocketmq.client.rebalance.lockMaxLiveTime": "8000",
            **properties,
        }
        return kit.command("cometmq.interop.Peer", heap_mb=PEER_HEAP_MB, properties=own)

    def call(self, do: str, *, timeout: float = CALL_SECONDS_MAX, **arguments: Any) -> Any:
        number = next(self._ids)
        future: Future[Any] = Future()
        self._calls[number] = future
        line = json.dumps({"id": number, "do": do, **arguments}) + "\n"
        assert self._process.stdin is not None
        with self._write_lock:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        answer = future.result(timeout)
        if "error" in answer:
            raise JavaError(answer["error"])
        return answer["ok"]

    def events(self, source: str) -> list[Event]:
        with self._changed:
            return list(self._events[source])

    def wait_events(
        self, source: str, enough: Callable[[list[Event]], bool], what: str, timeout: float = CALL_SECONDS_MAX
    ) -> list[Event]:
        with self._changed:
            if not self._changed.wait_for(lambda: enough(self._events[source]), timeout):
                got = [event.get("body") for event in self._events[source]]
                raise AssertionError(f"waited {timeout} s for {what}; got {len(got)}: {got[:50]}")
            return list(self._events[source])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()  # the process ends at the end of its input
        self._process.wait(10)
        self._reader.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if "event" in message:
                with self._changed:
                    self._events[message["source"]].append(message)
                    self._changed.notify_all()
            else:
                self._calls.pop(message["id"]).set_result(message)
        for future in self._calls.values():
            future.set_exception(
                RuntimeError(f"the Java client process ended, see {self.directory}/peer.err")
            )
