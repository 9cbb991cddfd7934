"""The client needs no uvloop, no compiled module of ours, and nothing that only Linux has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BLOCK = """
import sys, importlib.abc

class Blocked(importlib.abc.MetaPathFinder):
    NAMES = {"uvloop", "fcntl", "resource", "pwd", "grp", "termios", "lz4", "zstandard", "zlib_ng", "isal", "yaml",
             "prometheus_client", "cryptography", "Cython", "cython"}
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.NAMES:
            raise ModuleNotFoundError(f"{name} is blocked in this test")
        return None

import select, selectors, subprocess, multiprocessing  # the standard library may use what it likes
sys.meta_path.insert(0, Blocked())
"""

USE = """
import asyncio
from cometmq import Client, Message, StartFrom
import cometmq.protocol.record_cy as record
assert record.__file__.endswith(".py"), record.__file__

async def main(servers):
    async with Client(servers) as mq:
        await mq.admin.create_topic("t", queues=2)
        producer = mq.producer("p")
        for n in range(10):
            await producer.send(Message("t", b"%d" % n * 5000, tag="a"))
        got = 0
        async with mq.consumer("g", "t", start=StartFrom.FIRST) as consumer:
            async for message in consumer:
                async with message.process():
                    got += 1
                if got == 10:
                    break
        assert got == 10

from cometmq.sync import Client as SyncClient
asyncio.run(main(sys.argv[1]))
with SyncClient(sys.argv[1]) as mq:
    assert mq.producer("p").send(Message("t", b"x")).ok
print("fine")
"""


def test_the_client_runs_without_uvloop_and_compiled_modules(cometmq_servers: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BLOCK + USE, cometmq_servers],
        env={**os.environ, "COMETMQ_PURE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "fine"


def test_the_client_imports_neither_store_nor_broker() -> None:
    code = (
        "import sys, cometmq; from cometmq import Client, Consumer, Stream, TransactionalProducer, Admin\n"
        "import cometmq.sync\n"
        "bad = [m for m in sys.modules if m.startswith(('cometmq.store', 'cometmq.broker', 'cometmq.nameserver'))]\n"
        "assert not bad, bad"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_whole_suite_passes_on_the_uncompiled_twins() -> None:
    here = Path(__file__).parent
    files = ["test_producer.py", "test_consumer.py", "test_stream.py", "test_transactions.py"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            *(str(here / name) for name in files),
        ],
        env={**os.environ, "COMETMQ_PURE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
