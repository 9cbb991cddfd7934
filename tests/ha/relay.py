"""A slow and unreliable link: a TCP relay that delays, with jitter, and resets connections (ha.md 12.3, F-13).

A process of its own, so that the clients of a test do not wait for it:
python -m ha.relay LISTEN TARGET DELAY_MS JITTER RESETS_PER_S   (with tests/ on the path)
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import sys
from pathlib import Path

from cometmq.testing.group_processes import GroupProcesses, free_block

CHUNK_SIZE = 64 * 1024
JITTER = 0.2
RESETS_PER_S = 0.1  # of each connection: about 1 % of the times that something is looked at each 100 ms
HA_PORT_STEP = 1  # the replication port is the one behind the main port


class Relay:
    def __init__(self, target: str, delay_s: float, jitter: float, resets_per_s: float) -> None:
        self._target, self._delay_s, self._jitter, self._resets_per_s = target, delay_s, jitter, resets_per_s

    async def serve(self, listen: str) -> None:
        host, _, port = listen.rpartition(":")
        server = await asyncio.start_server(self._connect, host, int(port))
        print("ready", flush=True)
        await server.serve_forever()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._target.rpartition(":")
        try:
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            return
        pumps = [
            asyncio.create_task(work)
            for work in (
                self._pump(reader, far_writer),
                self._pump(far_reader, writer),
                self._wait_for_reset(),
            )
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        for end in (writer, far_writer):
            end.transport.abort()

    async def _wait_for_reset(self) -> None:
        await asyncio.sleep(random.expovariate(self._resets_per_s) if self._resets_per_s else 1e9)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Each piece is delayed by itself; the order stays."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=1_000)

        async def deliver() -> None:
            due_before = 0.0
            while True:
                due, data = await waiting.get()
                due_before = max(due, due_before)
                await asyncio.sleep(due_before - loop.time())
                if not data:
                    return
                writer.write(data)
                await writer.drain()

        delivering = asyncio.create_task(deliver())
        try:
            with contextlib.suppress(OSError):
                while not delivering.done():
                    data = await reader.read(CHUNK_SIZE)
                    late = self._delay_s * random.uniform(1 - self._jitter, 1 + self._jitter)
                    await waiting.put((loop.time() + late, data))
                    if not data:
                        await delivering
        finally:
            delivering.cancel()


class RelayedGroup(GroupProcesses):
    """Brokers that replicate through relays: each announces an address where its relay listens."""

    def __init__(self, directory: Path, delay_ms: int, brokers: int = 3) -> None:
        super().__init__(directory, brokers=brokers)
        self._relays: list[subprocess.Popen[bytes]] = []
        self._net = free_block(1) % 250 + 1  # of the addresses 127.1.x.y
        try:
            for number in self.ids:
                self._relays.append(self._start_relay(number, delay_ms))
        except BaseException:
            self.close()
            raise

    def _start_relay(self, number: int, delay_ms: int) -> subprocess.Popen[bytes]:
        host, _, port = self.address(number).rpartition(":")
        ha_port = int(port) + HA_PORT_STEP
        listen, target = f"{self._relay_host(number)}:{ha_port}", f"{host}:{ha_port}"
        command = [
            sys.executable,
            "-m",
            "ha.relay",
            listen,
            target,
            str(delay_ms),
            str(JITTER),
            str(RESETS_PER_S),
        ]
        tests = str(Path(__file__).parent.parent)
        relay = subprocess.Popen(
            command, env={**os.environ, "PYTHONPATH": tests}, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        assert relay.stdout is not None
        with relay.stdout:
            assert relay.stdout.readline() == b"ready\n"
        return relay

    def _relay_host(self, number: int) -> str:
        return f"127.1.{self._net}.{number}"

    def settings_of(self, number: int) -> dict[str, str]:
        return {**super().settings_of(number), "brokerIP2": self._relay_host(number)}

    def close(self) -> None:
        super().close()
        for relay in self._relays:
            relay.kill()
            relay.wait()


def main(listen: str, target: str, delay_ms: str, jitter: str, resets_per_s: str) -> None:
    asyncio.run(Relay(target, float(delay_ms) / 1000, float(jitter), float(resets_per_s)).serve(listen))


if __name__ == "__main__":
    main(*sys.argv[1:])
