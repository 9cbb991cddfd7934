"""Less work between two tasks of a Python worker."""

from __future__ import annotations

import gc
import os

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
