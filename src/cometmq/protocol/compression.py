"""Message bodies compressed by clients: ZLIB (a zlib stream), LZ4 (a frame), ZSTD (a frame).

The broker never looks into a body; this is for clients. lz4 and zstandard are optional packages and are
imported at first use. Growth is limited: a body that would become larger than DECOMPRESSED_SIZE_MAX is
refused while decompressing, not after.
"""

from __future__ import annotations

import importlib
import zlib
from typing import Any

from cometmq.errors import LocalProtocolError, RemoteProtocolError
from cometmq.protocol.limits import DECOMPRESSED_SIZE_MAX
from cometmq.protocol.sys_flag import COMPRESSION_MASK, CompressionType

LEVEL_DEFAULT = 5  # what the Java producer uses


def compress(body: bytes, kind: CompressionType = CompressionType.ZLIB, level: int = LEVEL_DEFAULT) -> bytes:
    """Compress a body as the Java producer does."""
    if kind == CompressionType.ZLIB:
        return zlib.compress(body, level)
    if kind == CompressionType.LZ4:
        return bytes(_package("lz4.frame").compress(body))
    return bytes(_package("zstandard").ZstdCompressor(level=level).compress(body))


def decompress(body: bytes, sys_flag: int, size_max: int = DECOMPRESSED_SIZE_MAX) -> bytes:
    """Decompress a stored body as the bits of its sysFlag say; no bits mean ZLIB."""
    kind = sys_flag & COMPRESSION_MASK or CompressionType.ZLIB
    if kind == CompressionType.ZLIB:
        return _limited("zlib", zlib.decompressobj(), zlib.error, body, size_max)
    if kind == CompressionType.LZ4:
        package = _package("lz4.frame")
        return _limited("lz4", package.LZ4FrameDecompressor(), RuntimeError, body, size_max)
    if kind == CompressionType.ZSTD:
        return _decompress_zstd(body, size_max)
    raise RemoteProtocolError(f"A body is compressed in a way that nobody knows (type bits {kind:#x}).")


def _limited(name: str, decompressor: Any, failure: type[Exception], body: bytes, size_max: int) -> bytes:
    """Decompress at most one byte more than allowed: that byte tells that there is too much."""
    try:
        plain: bytes = decompressor.decompress(body, size_max + 1)
    except (failure, EOFError) as error:
        raise RemoteProtocolError(f"A body does not decompress as {name}: {error}.") from error
    if len(plain) > size_max:
        raise RemoteProtocolError(f"A compressed body grows beyond the limit of {size_max} bytes.")
    if not decompressor.eof:
        raise RemoteProtocolError(f"A body compressed as {name} is cut off.")
    return plain


def _decompress_zstd(body: bytes, size_max: int) -> bytes:
    """Feed the frame in small pieces: this package can limit what it takes, but not what it gives."""
    zstandard = _package("zstandard")
    stream = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_SIZE_MAX).decompressobj()
    pieces: list[bytes] = []
    size = position = 0
    try:
        while not stream.eof and position < len(body):
            pieces.append(stream.decompress(body[position : position + _ZSTD_PIECE_SIZE]))
            position += _ZSTD_PIECE_SIZE
            size += len(pieces[-1])
            if size > size_max:
                raise RemoteProtocolError(f"A compressed body grows beyond the limit of {size_max} bytes.")
    except zstandard.ZstdError as error:
        raise RemoteProtocolError(f"A body does not decompress as zstd: {error}.") from error
    if not stream.eof:
        raise RemoteProtocolError("A body compressed as zstd is cut off.")
    return b"".join(pieces)


_ZSTD_WINDOW_SIZE_MAX = 128 * 1024 * 1024  # bytes
_ZSTD_PIECE_SIZE = 256  # bytes: 4 bytes can become a block of 128 KiB, so this much at most 8 MiB


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise LocalProtocolError(
            f"A body is compressed with {name.partition('.')[0]}, which is not installed; "
            "install cometmq[compression]."
        ) from error
