"""RemotingCommand: one request or response, and its two encodings.

A frame is ``length word · header word · header · body``::

    0  4  L = number of bytes after this word
    4  4  W = serialize type << 24 | H
    8  H  header: JSON text, or the binary form below
    .. B  body, B = L - 4 - H

The binary (ROCKETMQ) header::

    2  code        4  opaque    4  R, remark length     4  E, length of the ext block
    1  language    4  flag      R  remark               E  entries: 2 K · key · 4 V · value
    2  version

Bytes in, objects out: no socket, no clock. Malformed bytes raise RemoteProtocolError; the receiver closes the
connection then, because nothing tells where the next frame starts.
"""

from __future__ import annotations

import struct
from typing import Any, Protocol

import msgspec

from cometmq.errors import LocalProtocolError, RemoteProtocolError
from cometmq.protocol import json_java
from cometmq.protocol.codes import VERSION, LanguageCode, SerializeType
from cometmq.protocol.frame_cy import decode_ext_fields
from cometmq.protocol.limits import (
    EXT_FIELD_COUNT_MAX,
    EXT_KEY_SIZE_MAX,
    FRAME_SIZE_MAX,
    HEADER_SIZE_MAX,
    HEADER_TOLERANT_SIZE_MAX,
    REMARK_SIZE_MAX,
)

__all__ = ["FLAG_ONEWAY", "FLAG_RESPONSE", "FRAME_SIZE_MAX", "Buffer", "RemotingCommand", "decode_frame"]

Buffer = bytes | bytearray | memoryview

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2

_WORDS = struct.Struct(">iI")
_FIXED = struct.Struct(">hbhiii")  # code, language, version, opaque, flag, remark length
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_LANGUAGES = {int(language): language for language in LanguageCode}
_LANGUAGE_NAMES = {language.name: language for language in LanguageCode}


class EncodesToFields(Protocol):
    """What a command takes as its header: see :class:`cometmq.protocol.headers.Header`."""

    def encode(self) -> dict[str, str]: ...


class RemotingCommand(msgspec.Struct):
    """One request or response."""

    code: int
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    ext_fields: dict[str, str] | None = None
    body: Buffer = b""
    language: LanguageCode = LanguageCode.PYTHON
    version: int = VERSION
    serialize_type: SerializeType = SerializeType.JSON

    @classmethod
    def request(
        cls, code: int, header: EncodesToFields | None = None, body: Buffer = b"", *, oneway: bool = False
    ) -> RemotingCommand:
        """A request; the sender fills in ``opaque``."""
        return cls(
            code=int(code),
            flag=FLAG_ONEWAY if oneway else 0,
            ext_fields=None if header is None else header.encode(),
            body=body,
        )

    def response(
        self,
        code: int = 0,
        remark: str | None = None,
        header: EncodesToFields | None = None,
        body: Buffer = b"",
    ) -> RemotingCommand:
        """The answer to this request, in the request's own encoding."""
        return RemotingCommand(
            code=int(code),
            opaque=self.opaque,
            flag=FLAG_RESPONSE,
            remark=remark,
            ext_fields=None if header is None else header.encode(),
            body=body,
            serialize_type=self.serialize_type,
        )

    @property
    def is_response(self) -> bool:
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        return self.flag & FLAG_ONEWAY != 0

    def encode(self) -> bytes:
        """The whole frame."""
        return self.encode_head(len(self.body)) + self.body

    def encode_head(self, body_size: int) -> bytes:
        """Length word, header word and header of a frame whose body of ``body_size`` bytes is sent apart."""
        if self.serialize_type == SerializeType.JSON:
            header = _encode_json_header(self)
        else:
            header = _encode_binary_header(self)
        size = 8 + len(header) + body_size
        if size > FRAME_SIZE_MAX:
            raise LocalProtocolError(
                f"A frame of {size} bytes is larger than the {FRAME_SIZE_MAX} that peers accept; "
                "send less at once."
            )
        return _WORDS.pack(size - 4, self.serialize_type << 24 | len(header)) + header


def decode_frame(frame: Buffer) -> RemotingCommand:
    """Decode one whole frame, length word included. The body is copied, so the buffer may be used again."""
    view = memoryview(frame)
    size = len(view)
    if size < 8 or size > FRAME_SIZE_MAX:
        raise RemoteProtocolError(
            f"A frame of {size} bytes is not between 8 and {FRAME_SIZE_MAX} bytes long."
        )
    length, word = _WORDS.unpack_from(view)
    if length != size - 4:
        raise RemoteProtocolError(f"The length word of a frame says {length} bytes, but {size - 4} follow.")
    header_end = 8 + (word & HEADER_SIZE_MAX)
    if header_end > size:
        raise RemoteProtocolError(f"A frame of {size} bytes announces a header of {header_end - 8} bytes.")
    serialize_type = word >> 24
    if serialize_type == 0:
        command = _decode_json_header(view[8:header_end])
    elif serialize_type == 1:
        command = _decode_binary_header(view[8:header_end])
    else:
        raise RemoteProtocolError(f"Serialize type {serialize_type} is unknown; only 0 and 1 exist.")
    if header_end < size:
        command.body = bytes(view[header_end:])
    return command


# JSON ---------------------------------------------------------------------------------------------


class _JsonHeaderOut(msgspec.Struct, omit_defaults=True, gc=False):
    """The members in the order Java writes them; what is None is left out."""

    code: int
    extFields: dict[str, str] | None = None
    flag: int = msgspec.field(default_factory=int)  # a factory: written even if it is 0
    language: str = msgspec.field(default_factory=str)
    opaque: int = msgspec.field(default_factory=int)
    remark: str | None = None
    serializeTypeCurrentRPC: str = msgspec.field(default_factory=str)
    version: int = msgspec.field(default_factory=int)


class _JsonHeaderIn(msgspec.Struct, gc=False):
    code: int = 0
    extFields: dict[str, str] | None = None
    flag: int = 0
    language: str | None = "JAVA"
    opaque: int = 0
    remark: str | None = None
    version: int = 0


_json_encoder = msgspec.json.Encoder()
_json_decoder = msgspec.json.Decoder(_JsonHeaderIn)


def _encode_json_header(command: RemotingCommand) -> bytes:
    try:
        header = _json_encoder.encode(
            _JsonHeaderOut(
                int(command.code),
                command.ext_fields,
                command.flag,
                command.language.name,
                command.opaque,
                command.remark,
                "JSON",
                command.version,
            )
        )
    except (UnicodeEncodeError, TypeError) as error:
        raise LocalProtocolError(f"The header of a command cannot be written: {error}.") from error
    if len(header) > HEADER_SIZE_MAX:
        raise LocalProtocolError(f"A header of {len(header)} bytes is larger than {HEADER_SIZE_MAX} bytes.")
    return header


def _decode_json_header(text: memoryview) -> RemotingCommand:
    try:
        header = _json_decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        header = _decode_json_header_tolerantly(text)
    fields = header.extFields
    if fields is not None and len(fields) > EXT_FIELD_COUNT_MAX:
        raise RemoteProtocolError(
            f"A header has {len(fields)} ext fields; at most {EXT_FIELD_COUNT_MAX} are accepted."
        )
    return RemotingCommand(
        _int32(header.code),
        _int32(header.opaque),
        _int32(header.flag),
        header.remark,
        fields,
        b"",
        _LANGUAGE_NAMES.get(header.language or "", LanguageCode.OTHER),
        _int32(header.version),
        SerializeType.JSON,
    )


def _decode_json_header_tolerantly(text: memoryview) -> _JsonHeaderIn:
    """As the Java decoder: scalars where strings belong, numbers as text, null for missing."""
    members = json_java.loads(text, HEADER_TOLERANT_SIZE_MAX)
    if not isinstance(members, dict):
        raise RemoteProtocolError("The header of a frame is not a JSON object.")
    fields = members.get("extFields")
    if fields is not None and not isinstance(fields, dict):
        raise RemoteProtocolError("The extFields of a header are not a JSON object.")
    remark = members.get("remark")
    language = members.get("language", "JAVA")
    return _JsonHeaderIn(
        code=_number(members, "code"),
        extFields=None if fields is None else _texts(fields),
        flag=_number(members, "flag"),
        language=language if isinstance(language, str) else None,
        opaque=_number(members, "opaque"),
        remark=None if remark is None else json_java.text_of(remark),
        version=_number(members, "version"),
    )


def _texts(fields: dict[str, Any]) -> dict[str, str]:
    return {name: json_java.text_of(value) for name, value in fields.items() if value is not None}


def _number(members: dict[str, Any], name: str) -> int:
    value = members.get(name)
    if value is None:
        return 0
    try:
        return int(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise RemoteProtocolError(f"The member {name} of a header is not a number.") from error


def _int32(value: int) -> int:
    if -0x80000000 <= value <= 0x7FFFFFFF:
        return value
    raise RemoteProtocolError(f"The number {value} in a header does not fit into 32 bits.")


# binary -------------------------------------------------------------------------------------------


def _encode_binary_header(command: RemotingCommand) -> bytes:
    try:
        remark = b"" if command.remark is None else command.remark.encode()
        block = b"" if not command.ext_fields else _encode_ext_block(command.ext_fields)
        header = b"".join(
            (
                _FIXED.pack(
                    _int16(command.code),
                    command.language,
                    _int16(command.version),
                    command.opaque,
                    command.flag,
                    len(remark),
                ),
                remark,
                _INT.pack(len(block)),
                block,
            )
        )
    except (UnicodeEncodeError, struct.error) as error:
        raise LocalProtocolError(f"The header of a command cannot be written: {error}.") from error
    if len(header) > HEADER_SIZE_MAX:
        raise LocalProtocolError(f"A header of {len(header)} bytes is larger than {HEADER_SIZE_MAX} bytes.")
    return header


def _int16(value: int) -> int:
    """Code and version are cut to 16 bits, as Java does."""
    return (value & 0xFFFF ^ 0x8000) - 0x8000


def _encode_ext_block(fields: dict[str, str]) -> bytes:
    parts: list[bytes] = []
    for name, value in fields.items():
        key, data = name.encode(), value.encode()
        if len(key) > EXT_KEY_SIZE_MAX:
            raise LocalProtocolError(
                f"The name of an ext field has {len(key)} bytes, more than {EXT_KEY_SIZE_MAX}."
            )
        parts += (_SHORT.pack(len(key)), key, _INT.pack(len(data)), data)
    return b"".join(parts)


def _decode_binary_header(header: memoryview) -> RemotingCommand:
    size = len(header)
    if size < _FIXED.size + 4:
        raise RemoteProtocolError(
            f"A binary header of {size} bytes is shorter than its fixed part of 21 bytes."
        )
    code, language, version, opaque, flag, remark_size = _FIXED.unpack_from(header)
    remark_end = _FIXED.size + remark_size
    if not 0 <= remark_size <= REMARK_SIZE_MAX or remark_end + 4 > size:
        raise RemoteProtocolError(
            f"A binary header of {size} bytes announces a remark of {remark_size} bytes."
        )
    (block_size,) = _INT.unpack_from(header, remark_end)
    block_start = remark_end + 4
    if block_size < 0 or block_start + block_size > size:
        raise RemoteProtocolError(
            f"A binary header of {size} bytes announces an ext block of {block_size} bytes."
        )
    return RemotingCommand(
        code,
        opaque,
        flag,
        _text(header[_FIXED.size : remark_end]) if remark_size else None,
        decode_ext_fields(header, block_start, block_start + block_size) if block_size else None,
        b"",
        _LANGUAGES.get(language, LanguageCode.OTHER),
        version,
        SerializeType.ROCKETMQ,
    )


def _text(data: memoryview) -> str:
    return str(data, "utf-8", "replace")
