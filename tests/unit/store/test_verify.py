"""Verify finds what is damaged, names it, and is quiet about sound stores."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from cometmq.store.config import StoreConfig
from cometmq.store.model import StoreMessage
from cometmq.store.store import MessageStore
from cometmq.store.verify import Severity, VerifyReport, verify

GoldenStore = Callable[[str], Path]


def errors(report: VerifyReport) -> list[str]:
    return [str(finding) for finding in report.findings if finding.severity is Severity.ERROR]


def notes(report: VerifyReport) -> list[str]:
    return [str(finding) for finding in report.findings if finding.severity is Severity.NOTE]


def patch(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def log_file(root: Path, number: int) -> Path:
    return root / "commitlog" / f"{number * 262144:020d}"


@pytest.mark.parametrize(
    ("name", "records", "entries", "keys"),
    [("clean", 827, 827, 1632), ("crash", 1547, 1547, 3072), ("features", 53, 62, 100)],
)
def test_stores_of_java_are_sound(
    golden_store: GoldenStore, name: str, records: int, entries: int, keys: int
) -> None:
    report = verify(golden_store(name))
    assert report.findings == []
    assert (report.record_count, report.entry_count, report.key_count) == (records, entries, keys)
    assert report.sound


def test_torn_tail_after_a_crash_is_a_note_without_abort_file_an_error(golden_store: GoldenStore) -> None:
    root = golden_store("torn")
    report = verify(root)
    assert report.sound
    assert len(notes(report)) == 5
    assert "00001572864 at 1659135" in notes(report)[0]
    assert "the next start cuts the log here" in notes(report)[0]
    (root / "abort").unlink()
    report = verify(root)
    assert not report.sound
    assert report.error_count == 4


def test_queues_behind_the_log_are_a_note_after_a_crash(golden_store: GoldenStore) -> None:
    report = verify(golden_store("cqbehind"))
    assert report.sound
    assert any("no queue for its records in the log, 719 entries" in note for note in notes(report))
    assert any("1438 keys of records" in note for note in notes(report))


def test_flipped_bit_in_a_body_is_found_and_what_follows_is_still_checked(golden_store: GoldenStore) -> None:
    root = golden_store("clean")
    data = log_file(root, 4).read_bytes()
    patch(log_file(root, 4), 1078326 - 1048576, bytes([data[1078326 - 1048576] ^ 0xFF]))
    report = verify(root)
    found = errors(report)
    assert f"{log_file(root, 4)} at 1078238" in found[0]
    assert "the CRC of the body is wrong" in found[0]
    assert "good records go on at" in found[0]
    assert report.record_count == 826
    # Its entry and its keys stand alone now.
    assert len(found) == 4


def test_foreign_magic_and_zeroed_middle_are_found(golden_store: GoldenStore) -> None:
    root = golden_store("clean")
    patch(log_file(root, 0), 4, b"JUNK")
    patch(log_file(root, 2), 100_000, bytes(5000))
    found = "\n".join(errors(verify(root)))
    assert f"{log_file(root, 0)} at 0" in found
    assert "the magic number is wrong" in found
    assert f"{log_file(root, 2)} at " in found


def test_entry_that_points_elsewhere_is_named_with_file_and_position(golden_store: GoldenStore) -> None:
    root = golden_store("clean")
    path = root / "consumequeue" / "TopicFill" / "1" / f"{2000:020d}"
    patch(path, 40, struct.pack(">q", 5))
    (found,) = errors(verify(root))
    assert found.startswith(f"{path} at 40: the entry of queue offset 102 points to 5")


def test_wrong_tags_code_is_found_but_delivery_times_may_differ(golden_store: GoldenStore) -> None:
    root = golden_store("clean")
    patch(root / "consumequeue" / "TopicA" / "0" / f"{0:020d}", 12, struct.pack(">q", 77))
    patch(root / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "17" / f"{0:020d}", 12, struct.pack(">q", 77))
    (found,) = errors(verify(root))
    assert "TopicA/0" in found
    assert "has the tags code 77" in found


def test_missing_extension_unit_is_found(golden_store: GoldenStore) -> None:
    root = golden_store("features")
    (root / "consumequeue_ext" / "TopicSql" / "1" / f"{0:020d}").unlink()
    found = errors(verify(root))
    assert len(found) == 15
    assert all("points to an extension unit that is not there" in text for text in found)


def test_stale_entries_behind_the_end_of_a_queue_are_found(golden_store: GoldenStore) -> None:
    root = golden_store("clean")
    path = root / "consumequeue" / "TopicA" / "2" / f"{0:020d}"
    patch(path, 200, struct.pack(">qiq", 2202, 248, 0))
    (found,) = errors(verify(root))
    assert "TopicA/2: 1 entry from queue offset 10 on without a record of this queue" in found


def test_cut_queue_is_an_error_after_an_orderly_stop(golden_store: GoldenStore) -> None:
    root = golden_store("clean")
    patch(root / "consumequeue" / "TopicFill" / "2" / f"{4000:020d}", 0, bytes(2000))
    (found,) = errors(verify(root))
    assert "TopicFill/2: 33 entries missing from queue offset 200 on" in found


def test_index_entry_without_its_record_and_missing_keys_are_found(golden_store: GoldenStore) -> None:
    root = golden_store("clean")
    path = root / "index" / "20261115213540913"
    patch(path, 40 + 400 + 20 * 7 + 4, struct.pack(">q", 1_170_001))
    found = "\n".join(errors(verify(root)))
    assert f"{path} at 1170001: entry 7 points to this physical offset" in found
    assert "1 key of the record at this physical offset missing" in found


def test_broken_chain_in_the_index_is_found(golden_store: GoldenStore) -> None:
    root = golden_store("clean")
    path = root / "index" / "20261115213540913"
    slots = path.read_bytes()[40:440]
    used = next(at for at in range(0, 400, 4) if slots[at : at + 4] != bytes(4))
    patch(path, 40 + used, bytes(4))
    (found,) = errors(verify(root))
    assert "slots and chains do not fit the entries" in found


def test_small_files_and_odd_files_are_checked_too(golden_store: GoldenStore) -> None:
    root = golden_store("clean")
    os.truncate(root / "checkpoint", 100)
    (root / "config" / "topics.json").write_text("{")
    (root / "config" / "topics.json.bak").write_text("{")
    (root / "config" / "delayOffset.json").write_text("{")  # its .bak is good
    os.truncate(root / "index" / "20261115213407803", 1000)
    (root / "commitlog" / "x").touch()
    found = "\n".join(errors(verify(root)))
    assert "checkpoint has 100 bytes" in found
    assert "topics.json.bak cannot be understood" in found
    assert "delayOffset" not in found
    assert "20261115213407803: has 1000 bytes, the others 8440" in found
    assert "does not belong here" in found


def test_progress_goes_to_the_end(golden_store: GoldenStore) -> None:
    steps: list[tuple[int, int]] = []
    verify(golden_store("clean"), progress=lambda done, total: steps.append((done, total)))
    assert steps == sorted(steps)
    assert steps[-1] == (5 * 262144, 5 * 262144)


def test_store_of_a_running_broker_can_be_verified(tmp_path: Path) -> None:
    config = StoreConfig(
        store_path_root_dir=tmp_path / "store",
        mapped_file_size_commit_log=65536,
        mapped_file_size_consume_queue=2000,
        max_hash_slot_num=100,
        max_index_num=500,
    )
    store = MessageStore(config)
    store.open()
    try:
        for number in range(700):
            properties = b"UNIQ_KEY\x01ID%d\x02KEYS\x01a b%d" % (number, number)
            store.put(StoreMessage(f"T{number % 3}", number % 2, b"x" * 100, properties))
        report = verify(tmp_path / "store")
        assert report.findings == []
        assert (report.record_count, report.entry_count, report.key_count) == (700, 700, 2100)
    finally:
        store.close()
    report = verify(tmp_path / "store")
    assert report.findings == []
    assert report.key_count == 2100
