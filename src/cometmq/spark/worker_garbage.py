"""Less work between two tasks, and between two batches, of a Python worker."""

from __future__ import annotations

import ctypes
import gc
import os

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as in malloc.h
KEPT_SIZE_MAX = 64 << 20  # bytes of freed memory that a worker keeps for its next batch

_settled_pid = 0


def settle() -> None:
    """Leave what is loaded by now out of later collections: once in a process, after its imports.

    Spark's worker collects all garbage after every task. With pyspark, Arrow and us loaded that is 25 to 70 ms of CPU,
    a tenth and more of a small micro-batch, for modules that never become garbage.
    """
    global _settled_pid
    if _settled_pid != os.getpid():
        _settled_pid = os.getpid()
        gc.collect()
        gc.freeze()
        _keep_memory()


def _keep_memory() -> None:
    """The buffers of a batch are megabytes: given back and asked for anew, each page costs a fault and a wipe."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return
    mallopt(M_MMAP_THRESHOLD, KEPT_SIZE_MAX // 2)
    mallopt(M_TRIM_THRESHOLD, KEPT_SIZE_MAX)
