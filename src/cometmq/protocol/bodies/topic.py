"""Topic settings as brokers and NameServers exchange them: 21, 103, 206, 322 and relatives."""

from __future__ import annotations

import struct
import zlib
from typing import Annotated, Self

import msgspec
from msgspec import field

from cometmq.errors import RemoteProtocolError
from cometmq.protocol import json_java
from cometmq.protocol.bodies.body import Body, one_of
from cometmq.protocol.command import Buffer
from cometmq.protocol.limits import DECOMPRESSED_SIZE_MAX

SINGLE_TAG = "SINGLE_TAG"
MULTI_TAG = "MULTI_TAG"
TopicFilterType = Annotated[str, one_of(SINGLE_TAG, MULTI_TAG)]

REGISTERED_TOPIC_COUNT_MAX = 1_000_000  # topics in one compressed registration


class DataVersion(Body, kw_only=True):
    """Version of a table: time of the last change and number of changes. Equal if both are equal."""

    counter: int = 0
    timestamp: int = 0

    def next(self, now_ms: int) -> DataVersion:
        """The version after one more change."""
        return DataVersion(counter=self.counter + 1, timestamp=now_ms)


class TopicConfig(Body, kw_only=True):
    """Settings of one topic. perm: 4 read, 2 write, 1 inherit."""

    order: bool = False
    perm: int = 6
    read_queue_nums: int = 16
    topic_filter_type: TopicFilterType = SINGLE_TAG
    topic_name: str = ""
    topic_sys_flag: int = 0
    write_queue_nums: int = 16


class TopicConfigSerializeWrapper(Body, kw_only=True):
    """All topics of a broker and the version of that table."""

    data_version: DataVersion = field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)

    def encode(self) -> bytes:
        # Tables have thousands of topics; this class has no member that only our own writer could write.
        return msgspec.json.encode(self)


class TopicList(Body, kw_only=True):
    """A list of topic names; for 304 also the address of a broker that knows the rest."""

    broker_addr: str | None = None
    topic_list: list[str] = field(default_factory=list)


class RegisterBrokerBody(Body, kw_only=True):
    """Body of REGISTER_BROKER, as JSON or in the compressed form of ``compressedRegister=true``."""

    filter_server_list: list[str] = field(default_factory=list)
    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = field(
        default_factory=TopicConfigSerializeWrapper
    )

    def encode(self, *, compressed: bool = False) -> bytes:
        return self._encode_compressed() if compressed else msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: Buffer | str, *, compressed: bool = False) -> Self:
        if not compressed:
            return super().decode(data)
        assert not isinstance(data, str)
        return cls._decode_compressed(data)

    def _encode_compressed(self) -> bytes:
        """A zlib stream: DataVersion · number of topics · topics · filter servers, each with its length."""
        wrapper = self.topic_config_serialize_wrapper
        texts = [_topic_line(config) for config in wrapper.topic_config_table.values()]
        pieces = [_sized(wrapper.data_version.encode()), _INT.pack(len(texts))]
        pieces += [_sized(text.encode()) for text in texts]
        pieces.append(_sized(json_java.dumps(self.filter_server_list).encode()))
        return zlib.compress(b"".join(pieces), 9)

    @classmethod
    def _decode_compressed(cls, data: Buffer) -> Self:
        reader = _SizedReader(_inflate(data))
        version = DataVersion.decode(reader.piece())
        count = reader.number()
        if not 0 <= count <= REGISTERED_TOPIC_COUNT_MAX:
            raise RemoteProtocolError(f"A broker registration announces {count} topics.")
        topics = [_parse_topic_line(str(reader.piece(), "utf-8", "replace")) for _ in range(count)]
        servers = json_java.loads(reader.piece())
        return cls(
            filter_server_list=servers if isinstance(servers, list) else [],
            topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
                data_version=version, topic_config_table={config.topic_name: config for config in topics}
            ),
        )


_INT = struct.Struct(">i")


def _sized(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _inflate(data: Buffer) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(data, DECOMPRESSED_SIZE_MAX)
    except zlib.error as error:
        raise RemoteProtocolError(f"A compressed broker registration cannot be read: {error}.") from error
    if not stream.eof:
        raise RemoteProtocolError("A compressed broker registration is cut off or too large.")
    return plain


class _SizedReader:
    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self._position = 0

    def number(self) -> int:
        start = self._position
        if start + 4 > len(self._data):
            raise RemoteProtocolError("A compressed broker registration ends too early.")
        self._position = start + 4
        value: int = _INT.unpack_from(self._data, start)[0]
        return value

    def piece(self) -> memoryview:
        size = self.number()
        start = self._position
        if size < 0 or start + size > len(self._data):
            raise RemoteProtocolError(f"A compressed broker registration has a piece of {size} bytes.")
        self._position = start + size
        return self._data[start : start + size]


def _topic_line(config: TopicConfig) -> str:
    """The order flag and the sys flag have no place in this form."""
    return (
        f"{config.topic_name} {config.read_queue_nums} {config.write_queue_nums} {config.perm} "
        f"{config.topic_filter_type}"
    )


def _parse_topic_line(line: str) -> TopicConfig:
    parts = line.split(" ")
    try:
        name, read_queue_nums, write_queue_nums, perm, filter_type = parts
        return TopicConfig(
            topic_name=name,
            read_queue_nums=int(read_queue_nums),
            write_queue_nums=int(write_queue_nums),
            perm=int(perm),
            topic_filter_type=filter_type,
        )
    except ValueError as error:
        raise RemoteProtocolError(f"A registered topic is not readable: {line[:200]!r}.") from error
