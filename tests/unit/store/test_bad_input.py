"""Whatever is wrong with a store directory: one sentence that names the file and the remedy, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cometmq.errors import StoreError
from cometmq.store.config import StoreConfig
from cometmq.store.store import MessageStore

GoldenStore = Callable[[str], Path]


def config_for(root: Path, **options: object) -> StoreConfig:
    """The sizes of the golden stores."""
    return StoreConfig(
        store_path_root_dir=root,
        mapped_file_size_commit_log=262144,
        mapped_file_size_consume_queue=2000,
        mapped_file_size_consume_queue_ext=4096,
        max_hash_slot_num=100,
        max_index_num=400,
        **options,  # type: ignore[arg-type]
    )


def log_file(root: Path, number: int) -> Path:
    return root / "commitlog" / f"{number * 262144:020d}"


def replace_by_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("")


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


# what is done to a clean store -> what the sentence names, the remedy
CASES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "commit log file of a wrong length": (
        lambda root: os.truncate(log_file(root, 1), 1000),
        "00000000000000262144 has 1000 bytes instead of 262144",
        "set mappedFileSizeCommitLog",
    ),
    "stray file in the commit log": (
        lambda root: (root / "commitlog" / "notes.txt").write_text("x"),
        "commitlog/notes.txt is not a commit log file",
        "move it out of the directory",
    ),
    "stray file in a queue": (
        lambda root: (root / "consumequeue" / "TopicA" / "0" / "x").write_text("x"),
        "consumequeue/TopicA/0/x is not a ConsumeQueue file",
        "move it out of the directory",
    ),
    "queue files of a wrong length, all of them": (
        lambda root: [
            os.truncate(path, 1000) for path in (root / "consumequeue").rglob("*") if path.is_file()
        ],
        "00000000000000000000 has 1000 bytes instead of 2000",
        "restore the file from a copy",
    ),
    "foreign magic": (
        lambda root: overwrite(log_file(root, 4), 4, b"JUNK"),
        "00000000000001048576 does not begin with a record of its own (the magic number is wrong)",
        "restore it from a copy, or move it",
    ),
    "zero-length record": (
        lambda root: overwrite(log_file(root, 4), 0, bytes(4)),
        "00000000000001048576 does not begin with a record of its own (the length is impossible)",
        "restore it from a copy, or move it",
    ),
    "file of another place in the log": (
        lambda root: shutil.copyfile(log_file(root, 0), log_file(root, 4)),
        "00000000000001048576 does not begin with a record of its own (the physical offset",
        "restore it from a copy, or move it",
    ),
    "gap between commit log files": (
        lambda root: log_file(root, 3).unlink(),
        "00000000000000786432 is missing",
        "restore it, or move",
    ),
    "commit log file with an odd name": (
        lambda root: log_file(root, 0).rename(root / "commitlog" / f"{77:020d}"),
        "00000000000000000077 does not begin at a multiple of mappedFileSizeCommitLog",
        "set the option to what the store was made with",
    ),
    "commit log is a file": (
        lambda root: replace_by_file(root / "commitlog"),
        "commitlog is a file",
        "move it away",
    ),
    "queues are a file": (
        lambda root: replace_by_file(root / "consumequeue"),
        "consumequeue is a file",
        "move it away",
    ),
    "index is a file": (
        lambda root: replace_by_file(root / "index"),
        "index is not a directory",
        "move it away",
    ),
    "index file truncated": (
        lambda root: os.truncate(root / "index" / "20261115213407803", 1000),
        "index/20261115213407803 has 1000 bytes instead of 8440",
        "delete it",
    ),
    "checkpoint short": (
        lambda root: os.truncate(root / "checkpoint", 17),
        "checkpoint has 17 bytes instead of 4096",
        "delete it",
    ),
    "lock is a directory": (
        lambda root: ((root / "lock").unlink(), (root / "lock").mkdir()),
        "lock cannot be opened (Is a directory)",
        "must be able to write",
    ),
}


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def one_sentence(error: StoreError) -> str:
    text = str(error)
    assert "\n" not in text
    assert text.endswith(".")
    assert len(text) < 500
    return text


@pytest.mark.parametrize("case", CASES)
def test_opening_is_refused_with_name_and_remedy_and_leaves_everything_as_it_is(
    golden_store: GoldenStore, case: str
) -> None:
    damage, named, remedy = CASES[case]
    root = golden_store("clean")
    damage(root)
    before = content(root)
    with pytest.raises(StoreError) as caught:
        MessageStore(config_for(root)).open()
    text = one_sentence(caught.value)
    assert str(root) in text
    assert named in text
    assert remedy in text.split(":", 1)[1]
    assert content(root) == before
    # The lock is free again: a second try says the same and not that the store is in use.
    with pytest.raises(StoreError) as again:
        MessageStore(config_for(root)).open()
    assert str(again.value) == text


def test_extension_file_of_a_wrong_length_is_named(golden_store: GoldenStore) -> None:
    root = golden_store("features")
    os.truncate(root / "consumequeue_ext" / "TopicSql" / "0" / f"{0:020d}", 100)
    with pytest.raises(StoreError) as caught:
        MessageStore(config_for(root, enable_consume_queue_ext=True)).open()
    assert "set mappedFileSizeConsumeQueueExt" in one_sentence(caught.value)


def test_wrong_size_option_is_named_instead_of_reading_garbage(golden_store: GoldenStore) -> None:
    root = golden_store("clean")
    with pytest.raises(StoreError, match="set mappedFileSizeCommitLog"):
        MessageStore(StoreConfig(store_path_root_dir=root)).open()


def test_root_that_is_a_file_is_named(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.write_text("")
    with pytest.raises(StoreError) as caught:
        MessageStore(config_for(root)).open()
    assert f"{root} cannot be made (File exists): choose another storePathRootDir" in one_sentence(
        caught.value
    )


def test_broker_does_not_start_with_unreadable_topics(golden_store: GoldenStore) -> None:
    root = golden_store("clean")
    for name in ("topics.json", "topics.json.bak"):
        (root / "config" / name).write_text('{"topicConfigTable":{')
    sizes = {"CommitLog": 262144, "ConsumeQueue": 2000}
    settings = [f"mappedFileSize{name}={size}" for name, size in sizes.items()]
    settings += [f"storePathRootDir={root}", "listenPort=0", "maxHashSlotNum=100", "maxIndexNum=400"]
    options = [word for setting in settings for word in ("-o", setting)]
    command = [sys.executable, "-m", "cometmq.cli.main", "broker", *options]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert found.returncode == 1
    last = found.stderr.splitlines()[-1]
    assert last.startswith(
        f"cometmq broker: The config file {root}/config/topics.json.bak cannot be understood"
    )
    assert last.endswith("repair it, or remove topics.json and topics.json.bak to start from defaults.")
    assert "Traceback" not in found.stderr


HOLD = """
import sys
from pathlib import Path
from cometmq.store.config import StoreConfig
from cometmq.store.store import MessageStore
store = MessageStore(StoreConfig(store_path_root_dir=Path(sys.argv[1]), mapped_file_size_commit_log=262144))
store.open()
print("open", flush=True)
sys.stdin.read()
store.close()
"""


def test_store_of_a_running_broker_is_refused_with_its_pid(tmp_path: Path) -> None:
    root = tmp_path / "store"
    command = [sys.executable, "-c", HOLD, str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(StoreError) as caught:
            MessageStore(config_for(root)).open()
        text = one_sentence(caught.value)
        assert f"{root} is in use by process {holder.pid} (lock file {root}/lock): stop that broker" in text
        holder.communicate(timeout=20)
    store = MessageStore(config_for(root))
    store.open()
    with pytest.raises(StoreError, match="in use by this process"):
        MessageStore(config_for(root)).open()
    store.close()


@pytest.fixture
def public_directory() -> Iterator[Path]:
    """Below /tmp and open to everybody, unlike tmp_path: for tests that run as another user."""
    path = Path(tempfile.mkdtemp(prefix="cometmq-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


# Root may write anywhere, so the store is opened by nobody; everything is imported before.
OPEN = """
import os, sys
from pathlib import Path
from cometmq.errors import StoreError
from cometmq.store.config import StoreConfig
from cometmq.store.store import MessageStore
if os.getuid() == 0:
    os.setuid(65534)
try:
    MessageStore(StoreConfig(store_path_root_dir=Path(sys.argv[1]), mapped_file_size_commit_log=262144)).open()
except StoreError as error:
    print(error)
"""


@pytest.mark.parametrize("name", ["store", "store/below"])
def test_read_only_directory_is_named(public_directory: Path, name: str) -> None:
    (public_directory / "store").mkdir(mode=0o555)
    root = public_directory / name
    command = [sys.executable, "-c", OPEN, str(root)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    text = found.stdout.strip()
    assert text.count("\n") == 0
    assert str(root) in text
    assert "Permission denied" in text
    assert "write" in text.split(":", 1)[1]
