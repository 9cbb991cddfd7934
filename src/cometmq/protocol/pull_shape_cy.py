"""The shape of a pull: its request without the numbers that change from one pull to the next.

A consumer that keeps up pulls once a message, and its pulls of one queue differ in three numbers: what it asks for,
what it commits, and the number of the request. ``PullShape.read`` takes these three out of a frame; what is left, the
``shape``, is the same every time, and a broker that has decoded and checked it once need not do so again.

This decodes nothing: a name in quotes with a colon behind it is a member wherever it stands in JSON, since quotes within
text are escaped. Whether the rest is a pull, and JSON at all, is for the decoder to say, once for each shape. Pure.
The branch for uncompiled use is the specification and reads the same.
"""

# mypy: ignore-errors

from __future__ import annotations

import re
import struct

try:
    import cython
except ModuleNotFoundError:
    from cometmq import _cython as cython

if cython.compiled:
    from cython.cimports.cometmq.big_endian import get_u32
    from cython.cimports.cometmq.json_text import number_end, read_number
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
    from cython.cimports.libc.string import memchr, memcmp, memcpy

WORDS_SIZE = cython.declare(cython.Py_ssize_t, 8)  # length word and header word
SHAPE_SIZE_MAX = cython.declare(cython.Py_ssize_t, 1024)  # of a header; longer ones are decoded each time
PREFIX: bytes = b'{"code":11,'

_NUMBER = rb"(-?(?:0|[1-9][0-9]{0,17}))"
NUMBERS = re.compile(
    rb'("queueOffset":")%b(?=")|("commitOffset":")%b(?=")|("opaque":)%b(?![-0-9])'
    % (_NUMBER, _NUMBER, _NUMBER)
)


@cython.final
@cython.cclass
class PullShape:
    """What ``read`` found in the last frame."""

    size = cython.declare(cython.Py_ssize_t, visibility="readonly")  # of the frame, in bytes
    opaque = cython.declare(cython.longlong, visibility="readonly")
    queue_offset = cython.declare(cython.longlong, visibility="readonly")
    commit_offset = cython.declare(cython.longlong, visibility="readonly")
    shape = cython.declare(bytes, visibility="readonly")
    _text: cython.uchar[1024]
    _text_size: cython.Py_ssize_t
    _found: cython.int  # bits: which of the three numbers

    def __init__(self) -> None:
        self.size = 0
        self.opaque = 0
        self.queue_offset = 0
        self.commit_offset = 0
        self.shape = b""

    def read(
        self, view: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> bool:
        """Is a whole frame at ``start`` that may be a pull, with each of the three numbers once?"""
        if cython.compiled:
            return self._read(view, start, end)
        if end - start < WORDS_SIZE + len(PREFIX):
            return False
        length, word = struct.unpack_from(">II", view, start)
        if (
            word != length - 4 or length + 4 > end - start or word > SHAPE_SIZE_MAX
        ):  # with a body, cut, or no JSON
            return False
        text = bytes(view[start + WORDS_SIZE : start + 4 + length])
        found = {}
        for match in NUMBERS.finditer(text):
            name, number = filter(None, match.groups())
            if name in found:
                return False
            found[name] = int(number)
        if not text.startswith(PREFIX) or len(found) != 3:
            return False
        self.size = length + 4
        self.shape = NUMBERS.sub(rb"\1\3\5", text)
        self.opaque = found[b'"opaque":']
        self.queue_offset = found[b'"queueOffset":"']
        self.commit_offset = found[b'"commitOffset":"']
        return -(2**31) <= self.opaque < 2**31

    if cython.compiled:

        @cython.cfunc
        def _read(
            self, view: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, end: cython.Py_ssize_t
        ) -> cython.bint:
            if end - start < WORDS_SIZE + 11:
                return False
            p: cython.pointer(cython.const[cython.uchar]) = cython.address(view[0]) + start
            length: cython.Py_ssize_t = get_u32(p)
            size: cython.Py_ssize_t = get_u32(p + 4)
            if size != length - 4 or length + 4 > end - start or size > SHAPE_SIZE_MAX:
                return False
            p += WORDS_SIZE
            if size < 11 or memcmp(p, b'{"code":11,', 11) != 0 or not self._cut(p, size):
                return False
            self.size = length + 4
            self.shape = PyBytes_FromStringAndSize(cython.cast(cython.p_char, self._text), self._text_size)
            return -2147483648 <= self.opaque <= 2147483647

        @cython.cfunc
        def _cut(self, p: cython.pointer(cython.const[cython.uchar]), size: cython.Py_ssize_t) -> cython.bint:
            """Copy the header without the three numbers; False unless each is there once."""
            quote: cython.pointer(cython.const[cython.uchar])
            i: cython.Py_ssize_t = 0
            at: cython.Py_ssize_t
            copied: cython.Py_ssize_t = 0
            begin: cython.Py_ssize_t
            stop: cython.Py_ssize_t
            bit: cython.int
            number: cython.longlong = 0
            self._text_size = 0
            self._found = 0
            while i < size:
                quote = cython.cast(cython.pointer(cython.const[cython.uchar]), memchr(p + i, 0x22, size - i))
                if quote == cython.NULL:
                    break
                at = quote - p
                i = at + 1
                if size - at > 15 and memcmp(quote, b'"queueOffset":"', 15) == 0:
                    bit = 1
                    begin = at + 15
                elif size - at > 16 and memcmp(quote, b'"commitOffset":"', 16) == 0:
                    bit = 2
                    begin = at + 16
                elif size - at > 9 and memcmp(quote, b'"opaque":', 9) == 0:
                    bit = 4
                    begin = at + 9
                else:
                    continue
                stop = number_end(p, begin, size)
                if bit != 4 and (stop == size or p[stop] != 0x22):
                    continue
                if not _is_number(p + begin, stop - begin, cython.address(number)):
                    continue
                if self._found & bit:
                    return False
                self._found |= bit
                if bit == 1:
                    self.queue_offset = number
                elif bit == 2:
                    self.commit_offset = number
                else:
                    self.opaque = number
                memcpy(self._text + self._text_size, p + copied, begin - copied)
                self._text_size += begin - copied
                copied = i = stop
            memcpy(self._text + self._text_size, p + copied, size - copied)
            self._text_size += size - copied
            return self._found == 7


if cython.compiled:

    @cython.cfunc
    @cython.inline
    def _is_number(
        p: cython.pointer(cython.const[cython.uchar]),
        size: cython.Py_ssize_t,
        out: cython.pointer(cython.longlong),
    ) -> cython.bint:
        """As JSON has it: no zeros in front."""
        first: cython.Py_ssize_t = 1 if size > 0 and p[0] == 0x2D else 0
        if size > first + 1 and p[first] == 0x30:
            return False
        return read_number(p, size, out)
