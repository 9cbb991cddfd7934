"""Is a piece of a mapped file in memory? And: read it in, for a thread. Linux `mincore` through ctypes."""

from __future__ import annotations

import ctypes
import mmap

PAGE_SIZE = mmap.PAGESIZE

_libc = ctypes.CDLL(None, use_errno=True)


def is_resident(part: memoryview) -> bool:
    """True if all pages of a (writable) view are in memory; also if the system does not tell."""
    if len(part) == 0:
        return True
    anchor = ctypes.c_char.from_buffer(part)
    address = ctypes.addressof(anchor)
    first = address - address % PAGE_SIZE
    page_count = (address + len(part) - first + PAGE_SIZE - 1) // PAGE_SIZE
    pages = ctypes.create_string_buffer(page_count)
    failed = _libc.mincore(ctypes.c_void_p(first), ctypes.c_size_t(address + len(part) - first), pages)
    del anchor
    return bool(failed) or b"\0" not in pages.raw


def read_in(part: memoryview) -> None:
    """Touch every page by copying it, in a thread: bytes() holds the interpreter lock, so advise first."""
    anchor = ctypes.c_char.from_buffer(part)
    address = ctypes.addressof(anchor)
    first = address - address % PAGE_SIZE
    # MADV_POPULATE_READ reads the pages now, without the interpreter lock; older kernels at least read ahead.
    for advice in (MADV_POPULATE_READ, mmap.MADV_WILLNEED):
        size = ctypes.c_size_t(address + len(part) - first)
        if _libc.madvise(ctypes.c_void_p(first), size, advice) == 0:
            break
    del anchor


MADV_POPULATE_READ = 22  # Linux 5.14
