"""A writer process is killed with SIGKILL at random moments, again and again on the same store.

No acknowledged message may be lost, changed or doubled. With SYNC_FLUSH a copy of the store also loses everything
that was never synced, as a power cut would have it: pages of the log behind the last sync and queue entries that
are younger than the checkpoint (except some at random, since the kernel may have written any page at any time).

COMETMQ_CRASH_KILLS=200 runs the full number (the sum of both kinds); COMETMQ_CRASH_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from crash_writer import COMMIT_LOG_FILE_SIZE, body_for, config_for

from cometmq.store.model import GetStatus
from cometmq.store.scan_cy import scan_records
from cometmq.store.store import MessageStore

KILLS = int(os.environ.get("COMETMQ_CRASH_KILLS", "16"))
SEED = int(os.environ.get("COMETMQ_CRASH_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
KILLS_PER_STORE = 10
LIFE_MAX_S = 0.12  # of a writer after it has become ready
PAGE_SIZE = 4096
NUMBERS_PER_RUN = 1_000_000

pytestmark = pytest.mark.crash


class Ledger:
    """What the writers acknowledged on one store."""

    def __init__(self) -> None:
        self.messages: dict[
            int, tuple[str, int, int, int]
        ] = {}  # number -> topic, queue id, offset, physical
        self.synced = 0
        self.runs = 0

    def take(self, line: str) -> None:
        words = line.split()
        if words[0] == "synced":
            self.synced = max(self.synced, int(words[1]))
        elif words[0] != "ready":
            number, topic, queue_id, queue_offset, physical = words
            self.messages[int(number)] = (topic, int(queue_id), int(queue_offset), int(physical))

    def next_number(self) -> int:
        """Numbers of a run of its own: what is stored without having been acknowledged is not used again."""
        self.runs += 1
        return self.runs * NUMBERS_PER_RUN


def run_and_kill(root: Path, flush: str, ledger: Ledger, generator: random.Random) -> None:
    command = [
        sys.executable, str(Path(__file__).with_name("crash_writer.py")), str(root), flush,
        str(ledger.next_number()), str(generator.randrange(1 << 30)),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        try:
            assert writer.stdout.readline() == "ready\n"
            threading.Timer(generator.uniform(0, LIFE_MAX_S), writer.kill).start()
            for line in writer.stdout:
                if line.endswith("\n"):
                    ledger.take(line)
        finally:
            writer.kill()
    assert writer.returncode == -signal.SIGKILL


def check(root: Path, flush: str, ledger: Ledger) -> None:
    """Open the store as the next broker would and compare it with the ledger."""
    store = MessageStore(config_for(root, flush))
    store.open()
    try:
        numbers = check_queues(store)
        for number, (topic, queue_id, queue_offset, physical) in ledger.messages.items():
            assert numbers.get(number) == (topic, queue_id, queue_offset), f"message {number} lost or moved"
            record = store.read_record(physical)
            assert record is not None
            assert body_in(record) == body_for(number), f"message {number} changed"
        for number in list(ledger.messages)[-5:]:
            topic, _, _, physical = ledger.messages[number]
            assert store.query(topic, f"key{number}", 10, 0, 1 << 62).offsets == [physical]
    finally:
        store.close()


def check_queues(store: MessageStore) -> dict[int, tuple[str, int, int]]:
    """Read every queue; every message must be whole and occur once. Where each number stands."""
    found: dict[int, tuple[str, int, int]] = {}
    for topic in store.topics_on_disk():
        for queue_id in store.queue_ids(topic):
            offset = 0
            while (result := store.get(topic, queue_id, offset, 32)).status is GetStatus.FOUND:
                for part in result.slices:
                    for record in records_in(part):
                        number = int(body_in(record).partition(b":")[0])
                        assert body_in(record) == body_for(number)
                        assert number not in found, f"message {number} doubled"
                        found[number] = (topic, queue_id, offset)
                        assert int.from_bytes(record[20:28], "big") == offset
                        offset += 1
                assert offset == result.next_offset
            assert result.status in (GetStatus.OFFSET_OVERFLOW_ONE, GetStatus.NO_MESSAGE_IN_QUEUE)
    return found


def records_in(part: memoryview) -> list[memoryview]:
    records, position = [], 0
    while position < len(part):
        size = int.from_bytes(part[position : position + 4], "big")
        records.append(part[position : position + size])
        position += size
    return records


def body_in(record: memoryview) -> bytes:
    return bytes(record[88 : 88 + int.from_bytes(record[84:88], "big")])


def power_cut_copy(root: Path, target: Path, synced: int, generator: random.Random) -> None:
    """What may be on disk after a power cut: of the log behind the last sync only some pages have arrived."""
    shutil.copytree(root, target)
    checkpoint = target / "checkpoint"
    trusted_ms = int.from_bytes(checkpoint.read_bytes()[8:16], "big") if checkpoint.exists() else 0
    for path in sorted((target / "consumequeue").glob("*/*/*")):
        data = bytearray(path.read_bytes())
        lose_entries(data, root / "commitlog", trusted_ms, generator)
        path.write_bytes(data)
    for path in sorted((target / "commitlog").iterdir()):
        start = int(path.name)
        if start + COMMIT_LOG_FILE_SIZE <= synced:
            continue
        with path.open("r+b") as file:
            data = bytearray(file.read())
            lose_pages(data, max(synced - start, 0), generator)
            file.seek(0)
            file.write(data)


def lose_entries(data: bytearray, log: Path, trusted_ms: int, generator: random.Random) -> None:
    """Entries younger than the checkpoint may be on disk or not, page by page."""
    lost_from: dict[int, bool] = {}
    for at in range(0, len(data) - 19, 20):
        physical, size = (
            int.from_bytes(data[at : at + 8], "big"),
            int.from_bytes(data[at + 8 : at + 12], "big"),
        )
        if size == 0:
            return
        page = at // PAGE_SIZE
        if store_time(log, physical) > trusted_ms:
            lost_from[page] = lost_from.get(page, False) or generator.random() < 0.3
            if lost_from[page]:
                data[at : at + 20] = bytes(20)


def store_time(log: Path, physical: int) -> int:
    with (log / f"{physical - physical % COMMIT_LOG_FILE_SIZE:020d}").open("rb") as file:
        file.seek(physical % COMMIT_LOG_FILE_SIZE + 56)
        return int.from_bytes(file.read(8), "big")


def lose_pages(data: bytearray, synced: int, generator: random.Random) -> None:
    # The page with the last synced byte was on disk as it was then; its rest is gone or there, by chance.
    end = -(-synced // PAGE_SIZE) * PAGE_SIZE
    if generator.random() < 0.5:
        data[synced:end] = bytes(end - synced)
    chance = generator.choice((0.0, 0.5, 1.0))
    for page in range(end, len(data), PAGE_SIZE):
        if generator.random() >= chance:
            data[page : page + PAGE_SIZE] = bytes(PAGE_SIZE)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_killed_writer_loses_changes_and_doubles_nothing(tmp_path: Path, flush: str) -> None:
    print(f"COMETMQ_CRASH_SEED={SEED}")
    generator = random.Random(f"{SEED} {flush}")
    kills = KILLS // 2
    for number in range(kills):
        store_number = number // KILLS_PER_STORE
        root = tmp_path / f"store{store_number}"
        if number % KILLS_PER_STORE == 0:
            ledger = Ledger()
            if store_number:
                shutil.rmtree(tmp_path / f"store{store_number - 1}")
        run_and_kill(root, flush, ledger, generator)
        if flush == "SYNC_FLUSH":
            copy = tmp_path / "power-cut"
            power_cut_copy(root, copy, ledger.synced, generator)
            check(copy, flush, ledger)
            shutil.rmtree(copy)
        check(root, flush, ledger)
    print(f"{len(ledger.messages)} messages acknowledged on the last store")
    assert ledger.messages, "the writers never got to write"


def test_checker_notices_a_lost_message(tmp_path: Path) -> None:
    """The test of the test: a record behind the last sync that was acknowledged too early."""
    generator = random.Random(1)
    ledger = Ledger()
    while len(ledger.messages) < 20:
        run_and_kill(tmp_path / "store", "ASYNC_FLUSH", ledger, generator)
    last = max(physical for _, _, _, physical in ledger.messages.values())
    power_cut_copy(tmp_path / "store", tmp_path / "copy", last, random.Random(3))
    path = tmp_path / "copy" / "commitlog" / f"{last - last % COMMIT_LOG_FILE_SIZE:020d}"
    with path.open("r+b") as file:
        file.seek(last % COMMIT_LOG_FILE_SIZE)
        file.write(bytes(8))
    assert scan_records(path.read_bytes(), 0, 8, 0, False).end == 0
    with pytest.raises(AssertionError, match="lost or moved"):
        check(tmp_path / "copy", "ASYNC_FLUSH", ledger)
