"""Group commit behind a loop: the thread that follows the log, compiled and as its specification says."""

from __future__ import annotations

import asyncio
import errno
import importlib.machinery
import importlib.util
import mmap
import os
import threading
import time
from pathlib import Path
from types import ModuleType

import pytest
from store_kit import bodies, message, opened, small_config

from cometmq.store import flush, log_sync_cy
from cometmq.store.commit_cy import LogEnd
from cometmq.store.config import FlushDiskType, StoreConfig
from cometmq.store.store import MessageStore

SENDERS, SENDS_EACH = 16, 40
BODY = b"x" * 1000  # 640 of them fill two files and begin a third one


def source_twin() -> ModuleType:
    path = log_sync_cy.__file__.split(".cpython")[0].removesuffix(".py") + ".py"
    loader = importlib.machinery.SourceFileLoader("log_sync_cy_source", path)
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(params=["installed", "source"])
def log_sync(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as it is installed (compiled, if there is a compiler), and as it reads."""
    module = log_sync_cy if request.param == "installed" else source_twin()
    monkeypatch.setattr(flush, "LogSync", module.LogSync)
    return module


def sync_config(root: Path) -> StoreConfig:
    return small_config(root, flush_disk_type=FlushDiskType.SYNC_FLUSH)


async def flushed(store: MessageStore, end_offset: int) -> bool:
    answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    store.flush_waiter(end_offset, answer.set_result)
    return await asyncio.wait_for(answer, 10)


async def send_and_wait(store: MessageStore, name: str) -> None:
    for number in range(SENDS_EACH):
        result = store.put(message(f"{name}-{number} ".encode() + BODY))
        assert await flushed(store, result.end_offset)
        assert store.flushed_offset >= result.end_offset


async def send_from_many(store: MessageStore) -> None:
    store.attach(asyncio.get_running_loop())
    await asyncio.gather(*(send_and_wait(store, f"s{sender}") for sender in range(SENDERS)))


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_each_sender_is_answered_when_its_bytes_are_on_disk(tmp_path: Path, log_sync: ModuleType) -> None:
    async def run() -> None:
        with opened(sync_config(tmp_path)) as store:
            await send_from_many(store)
            assert len(store.commit_log.files) >= 3, "the senders should have crossed from file to file"
            assert len(bodies(store)) == SENDERS * SENDS_EACH

    before = open_descriptors()
    asyncio.run(run())
    assert open_descriptors() == before


def test_flushes_by_others_do_not_stop_the_senders(tmp_path: Path, log_sync: ModuleType) -> None:
    done = threading.Event()

    def flush_again_and_again(store: MessageStore) -> None:
        while not done.is_set():
            assert store._flusher.flush()
            time.sleep(0.001)

    async def run() -> None:
        with opened(sync_config(tmp_path)) as store:
            other = asyncio.get_running_loop().run_in_executor(None, flush_again_and_again, store)
            try:
                await send_from_many(store)
            finally:
                done.set()
                await other

    asyncio.run(run())


def test_what_nobody_waits_for_is_flushed_after_the_last_sender_left(
    tmp_path: Path, log_sync: ModuleType
) -> None:
    async def run() -> None:
        with opened(sync_config(tmp_path)) as store:
            await send_from_many(store)
            end_offset = store.put(message(b"nobody waits")).end_offset
            for _ in range(500):
                if store.flushed_offset >= end_offset:
                    return
                await asyncio.sleep(0.01)
            pytest.fail("a message that nobody waits for stayed in memory")

    asyncio.run(run())


def test_stop_answers_everybody_and_does_not_wait(tmp_path: Path, log_sync: ModuleType) -> None:
    async def run() -> None:
        answers: list[bool] = []
        with opened(sync_config(tmp_path)) as store:
            await send_from_many(store)
            ends = [store.put(message(BODY)).end_offset for _ in range(20)]
            for end_offset in ends:
                store.flush_waiter(end_offset, answers.append)
            began_s = time.monotonic()
        assert time.monotonic() - began_s < 5
        assert len(answers) == 20

    asyncio.run(run())


def test_failed_sync_is_an_error_with_the_name_the_system_has_for_it(log_sync: ModuleType) -> None:
    """An address in the middle of a page is one that no file system takes."""
    with mmap.mmap(-1, 16 * mmap.PAGESIZE) as mapped:
        line = log_sync.LogSync(LogEnd())
        line.open()
        try:
            line.want(5000)

            def sync(start: int, end: int) -> None:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

            with memoryview(mapped) as whole, whole[8:] as view, pytest.raises(OSError) as raised:
                line.follow(view, 0, sync, lambda: None, slowly=False)
            assert raised.value.errno == errno.EINVAL
            assert line.synced == 0
        finally:
            line.close()


def test_thread_stays_out_until_it_may_follow_again(log_sync: ModuleType) -> None:
    with mmap.mmap(-1, 16 * mmap.PAGESIZE) as mapped, memoryview(mapped) as view:
        line = log_sync.LogSync(LogEnd())
        line.open()
        try:
            line.want(5000)
            line.let_go()
            line.follow(view, 0, lambda start, end: None, lambda: None, slowly=False)
            assert line.synced == 0
            line.may_follow()
            line.follow(view, 0, lambda start, end: None, lambda: None, slowly=False)
            assert line.synced == 5000
        finally:
            line.close()


def test_what_is_wanted_of_the_next_file_ends_the_stay_in_this_one(log_sync: ModuleType) -> None:
    with mmap.mmap(-1, 2 * mmap.PAGESIZE) as mapped, memoryview(mapped) as view:
        line = log_sync.LogSync(LogEnd())
        line.open()
        try:
            line.want(2 * mmap.PAGESIZE + 1)
            line.follow(view, 0, lambda start, end: None, lambda: None, slowly=False)
            assert line.synced == 0
        finally:
            line.close()
