"""Where frames end in received bytes, and the ext fields of binary headers.

A frame begins with a length word L (int32, big-endian) that counts the bytes after it. A buffer usually
holds many frames and the beginning of one more; one call finds them all. Reads a buffer, touches nothing
else.
"""

# mypy: ignore-errors
# ruff: noqa: F821

from __future__ import annotations

import struct

from cometmq.errors import RemoteProtocolError
from cometmq.protocol.limits import EXT_FIELD_COUNT_MAX, FRAME_SIZE_MAX

try:
    import cython
except ModuleNotFoundError:
    from cometmq import _cython as cython

if cython.compiled:
    from cython.cimports.cometmq.big_endian import get_i32
    from cython.cimports.cpython.buffer import (
        Py_buffer,
        PyBUF_SIMPLE,
        PyBuffer_Release,
        PyObject_GetBuffer,
    )
    from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8

FRAME_SIZE_MIN = 8  # the two words

_LENGTH = struct.Struct(">i")
_KEY_SIZE = struct.Struct(">h")


def split_frames(
    buffer: bytes | bytearray | memoryview, start: int, end: int, frame_size_max: int = FRAME_SIZE_MAX
) -> tuple[list[int], int]:
    """Ends of the whole frames in buffer[start:end], and where the rest begins.

    A length that cannot be raises RemoteProtocolError, but only when it is the first: frames before it are
    given back first, so that they are answered, and the next call with the rest raises.
    """
    if not 0 <= start <= end <= len(buffer):
        raise ValueError(f"[{start}:{end}] is outside of a buffer of {len(buffer)} bytes")
    if cython.compiled:
        return _split_compiled(buffer, start, end, frame_size_max)
    return _split_python(buffer, start, end, frame_size_max)


def decode_ext_fields(buffer: bytes | bytearray | memoryview, start: int, end: int) -> dict[str, str]:
    """The fields in the ext block of a binary header.

    An entry is ``int16 K · key · int32 V · value``. An empty key or value is no field (Java reads null
    there), and the last of two equal keys wins.
    """
    if not 0 <= start <= end <= len(buffer):
        raise ValueError(f"[{start}:{end}] is outside of a buffer of {len(buffer)} bytes")
    if cython.compiled:
        return _fields_compiled(buffer, start, end)
    return _fields_python(memoryview(buffer), start, end)


def _bad_length(length: int, frame_size_max: int) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"A frame announces {length} bytes; between 4 and {frame_size_max - 4} are accepted."
    )


def _too_many_fields() -> RemoteProtocolError:
    return RemoteProtocolError(f"A header has more than {EXT_FIELD_COUNT_MAX} ext fields.")


def _cut_off() -> RemoteProtocolError:
    return RemoteProtocolError("An ext field of a binary header is longer than what is left of its block.")


def _split_python(buffer, start, end, frame_size_max):
    ends: list[int] = []
    position = start
    while position + 4 <= end:
        (length,) = _LENGTH.unpack_from(buffer, position)
        if not 4 <= length <= frame_size_max - 4:
            if not ends:
                raise _bad_length(length, frame_size_max)
            break
        if position + 4 + length > end:
            break
        position += 4 + length
        ends.append(position)
    return ends, position


def _fields_python(view, start, end):
    fields: dict[str, str] = {}
    position = start
    while position < end:
        key, position = _piece(view, position, end, _KEY_SIZE)
        value, position = _piece(view, position, end, _LENGTH)
        if key and value:
            fields[key] = value
            if len(fields) > EXT_FIELD_COUNT_MAX:
                raise _too_many_fields()
    return fields


def _piece(view, position, end, length_word):
    first = position + length_word.size
    if first > end:
        raise _cut_off()
    (size,) = length_word.unpack_from(view, position)
    if size < 0 or first + size > end:
        raise _cut_off()
    return str(view[first : first + size], "utf-8", "replace"), first + size


if cython.compiled:

    @cython.cfunc
    def _split_compiled(
        buffer: object, start: cython.Py_ssize_t, end: cython.Py_ssize_t, frame_size_max: cython.longlong
    ) -> tuple:
        view: Py_buffer
        ends: list = []
        position: cython.Py_ssize_t = start
        length: cython.longlong
        PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
        p: cython.p_uchar = cython.cast(cython.p_uchar, view.buf)
        try:
            while position + 4 <= end:
                length = get_i32(p + position)
                if length < 4 or length > frame_size_max - 4:
                    if not ends:
                        raise _bad_length(length, frame_size_max)
                    break
                if length > end - position - 4:
                    break
                position += 4 + length
                ends.append(position)
        finally:
            PyBuffer_Release(cython.address(view))
        return ends, position

    @cython.cfunc
    def _fields_compiled(buffer: object, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> dict:
        view: Py_buffer
        PyObject_GetBuffer(buffer, cython.address(view), PyBUF_SIMPLE)
        try:
            return _fields_of(cython.cast(cython.p_uchar, view.buf), start, end)
        finally:
            PyBuffer_Release(cython.address(view))

    @cython.cfunc
    def _fields_of(p: cython.p_uchar, position: cython.Py_ssize_t, end: cython.Py_ssize_t) -> dict:
        fields: dict = {}
        key_size: cython.Py_ssize_t
        value_size: cython.Py_ssize_t
        key_start: cython.Py_ssize_t
        while position < end:
            if end - position < 2:
                raise _cut_off()
            key_size = (p[position] << 8) | p[position + 1]
            key_start = position + 2
            if key_size > 32767 or end - key_start < key_size + 4:
                raise _cut_off()
            value_size = get_i32(p + key_start + key_size)
            position = key_start + key_size + 4
            if value_size < 0 or value_size > end - position:
                raise _cut_off()
            if key_size > 0 and value_size > 0:
                fields[_text(p + key_start, key_size)] = _text(p + position, value_size)
                if len(fields) > EXT_FIELD_COUNT_MAX:
                    raise _too_many_fields()
            position += value_size
        return fields

    @cython.cfunc
    @cython.inline
    def _text(p: cython.p_uchar, size: cython.Py_ssize_t) -> str:
        return PyUnicode_DecodeUTF8(cython.cast(cython.p_char, p), size, "replace")
