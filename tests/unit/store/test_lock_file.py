"""One process at a time: the lock is the record lock that Java takes too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cometmq.errors import StoreError
from cometmq.store.lock_file import LockFile, lock_holder

# What FileChannel.lock(0, 1, false) of the Java broker comes down to.
HOLD_AND_WAIT = """
import fcntl, sys
file = open(sys.argv[1], "a+b")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


def test_lock_file_has_the_text_of_java_and_names_its_holder(tmp_path: Path) -> None:
    lock = LockFile(tmp_path / "lock")
    lock.acquire()
    assert lock.path.read_bytes() == b"lock"
    lock.release()


def test_second_opening_in_the_same_process_is_refused_and_the_lock_stays(tmp_path: Path) -> None:
    lock = LockFile(tmp_path / "lock")
    lock.acquire()
    with pytest.raises(StoreError, match="this process"):
        LockFile(tmp_path / "lock").acquire()
    assert lock_holder(lock.path) == os.getpid()
    lock.release()
    assert lock_holder(lock.path) is None
    again = LockFile(tmp_path / "lock")
    again.acquire()
    again.release()
    again.release()


def test_lock_of_another_process_is_respected_and_its_pid_named(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLD_AND_WAIT, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StoreError) as caught:
            LockFile(path).acquire()
        assert lock_holder(path) == holder.pid
        assert f"in use by process {holder.pid}" in str(caught.value)
        assert str(path) in str(caught.value)
        assert "stop that broker first" in str(caught.value)
        holder.communicate(timeout=10)
    lock = LockFile(path)
    lock.acquire()
    lock.release()


def test_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="Not a directory"):
        LockFile(tmp_path / "file" / "lock").acquire()
