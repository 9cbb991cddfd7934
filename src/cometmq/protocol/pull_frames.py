"""PULL_MESSAGE frames the short way: one typed decode of a request, one template for the head of an answer.

Consumers that keep up pull once a message, so these frames are as frequent as sends. Only requests in the form that
clients write are read here; for all others ``decode_pull`` says None, and the general decoder decides. What both
read and write is the same, by test. Pure.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import msgspec

from cometmq.protocol.codes import LanguageCode
from cometmq.protocol.command import FLAG_RESPONSE, FRAME_SIZE_MAX, RemotingCommand
from cometmq.protocol.header import Int32
from cometmq.protocol.headers import PullMessageHeader

WORDS_SIZE = 8  # length word and header word
PULL_PREFIX = b'{"code":11,'
PULL_PREFIX_END = WORDS_SIZE + len(PULL_PREFIX)
PULL_CODE_AT = WORDS_SIZE + PULL_PREFIX.index(b"1")
PULL_CODE_BYTE = PULL_PREFIX[PULL_CODE_AT - WORDS_SIZE]

_WORDS = struct.Struct(">II")
_VERSION = RemotingCommand(0).version
_HEAD = (
    '{"code":%d,"extFields":{"suggestWhichBrokerId":"%d","nextBeginOffset":"%d","minOffset":"%d","maxOffset":"%d"},'
    f'"flag":{FLAG_RESPONSE},"language":"{LanguageCode.PYTHON.name}","opaque":%d,"remark":"%s","serializeTypeCurrentRPC":"JSON","version":{_VERSION}}}'
)


class _PullFrame(msgspec.Struct, gc=False):
    code: int
    extFields: PullMessageHeader
    opaque: Int32
    flag: int


class PullRequest(NamedTuple):
    size: int  # of the frame, in bytes
    opaque: int
    header: PullMessageHeader


_decoder = msgspec.json.Decoder(_PullFrame, strict=False)


def begins_pull(view: memoryview, start: int) -> bool:
    """Do these bytes look like a pull? Cheap, asked of every frame that is no plain send."""
    at = start + PULL_CODE_AT
    if at >= len(view) or view[at] != PULL_CODE_BYTE:  # most are sends: one look is enough
        return False
    return view[start + WORDS_SIZE : start + PULL_PREFIX_END] == PULL_PREFIX


def decode_pull(view: memoryview, start: int, end: int) -> PullRequest | None:
    """The pull that begins at ``start``, whole and in plain form; else None."""
    if end - start < PULL_PREFIX_END:
        return None
    length, word = _WORDS.unpack_from(view, start)
    size = length + 4
    if word != length - 4 or size > end - start or size > FRAME_SIZE_MAX:  # with a body, cut, or no JSON
        return None
    try:
        frame = _decoder.decode(view[start + WORDS_SIZE : start + size])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if frame.flag != 0:
        return None
    return PullRequest(size, frame.opaque, frame.extFields)


def encode_pull_head(
    code: int,
    remark: str,
    opaque: int,
    suggest: int,
    next_offset: int,
    min_offset: int,
    max_offset: int,
    body_size: int,
) -> bytes:
    """The frame of an answer up to its body; ``remark`` is a plain word."""
    header = (_HEAD % (code, suggest, next_offset, min_offset, max_offset, opaque, remark)).encode()
    return _WORDS.pack(4 + len(header) + body_size, len(header)) + header
