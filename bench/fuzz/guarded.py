"""Memory that ends at a page nobody may touch, so that reading past the end of an input ends the process."""

from __future__ import annotations

import ctypes
import mmap
import sys

PAGE_SIZE = mmap.PAGESIZE
_PROT_NONE = 0


class GuardedMemory:
    """Room for one input at a time, always at the very end of the usable pages."""

    def __init__(self, size_max: int) -> None:
        self._size = (size_max + PAGE_SIZE - 1) // PAGE_SIZE * PAGE_SIZE
        self._map = mmap.mmap(-1, self._size + PAGE_SIZE)
        self._view = memoryview(self._map)
        self.guarded = sys.platform.startswith("linux") and self._protect()

    def _protect(self) -> bool:
        libc = ctypes.CDLL(None, use_errno=True)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        return bool(libc.mprotect(start + self._size, PAGE_SIZE, _PROT_NONE) == 0)

    def place(self, data: bytes) -> memoryview:
        """Copy an input to the end; the view has exactly its bytes and may be changed."""
        view = self._view[self._size - len(data) : self._size]
        view[:] = data
        return view
