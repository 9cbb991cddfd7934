"""The bytes of voters: messages between them (body of request 9107), and what one log record holds. Pure."""

from __future__ import annotations

import msgspec

from cometmq.controller.raft.messages import (
    AppendReply,
    AppendRequest,
    ElectNow,
    Entry,
    EntryKind,
    HardState,
    Message,
    Snapshot,
    SnapshotRequest,
    Voter,
    VoteReply,
    VoteRequest,
)
from cometmq.errors import RemoteProtocolError

_KINDS: dict[int, type[Message]] = {
    1: VoteRequest,
    2: VoteReply,
    3: AppendRequest,
    4: AppendReply,
    5: SnapshotRequest,
    6: ElectNow,
}
_KIND_OF = {kind: number for number, kind in _KINDS.items()}
_MESSAGES = {number: msgspec.msgpack.Decoder(kind) for number, kind in _KINDS.items()}


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """``cluster`` names the group of voters since it was formed: voters of two groups never take each other's."""

    cluster: str
    kind: int
    message: msgspec.Raw


class Hello(msgspec.Struct, frozen=True):
    """What a voter says of itself, and what it is answered, outside of Raft: how a group is formed and joined."""

    voter: Voter
    address: str
    cluster: str = ""
    fresh: bool = False  # never was a member of any group
    first_voters: tuple[Voter, ...] = ()  # those that the group began with, while its log still begins there
    leader: str = ""  # address


_ENVELOPES = msgspec.msgpack.Decoder(Envelope)
_HELLOS = msgspec.msgpack.Decoder(Hello)
_VOTERS = msgspec.msgpack.Decoder(tuple[Voter, ...])
_HARD_STATES = msgspec.msgpack.Decoder(HardState)
_SNAPSHOTS = msgspec.msgpack.Decoder(Snapshot)


def encode_message(cluster: str, message: Message) -> bytes:
    raw = msgspec.Raw(msgspec.msgpack.encode(message))
    return msgspec.msgpack.encode(Envelope(cluster, _KIND_OF[type(message)], raw))


def decode_message(data: bytes | bytearray | memoryview) -> tuple[str, Message]:
    """The group it was sent in, and what was said."""
    try:
        envelope = _ENVELOPES.decode(data)
        decoder = _MESSAGES[envelope.kind]
        return envelope.cluster, decoder.decode(envelope.message)
    except (msgspec.MsgspecError, KeyError) as error:
        raise RemoteProtocolError(f"A message between voters cannot be read: {error}.") from error


def encode_hello(hello: Hello) -> bytes:
    return msgspec.msgpack.encode(hello)


def decode_hello(data: bytes | bytearray | memoryview) -> Hello:
    try:
        return _HELLOS.decode(data)
    except msgspec.MsgspecError as error:
        raise RemoteProtocolError(f"A greeting between voters cannot be read: {error}.") from error


def encode_payload(entry: Entry) -> bytes:
    """What a log record holds beside term and index."""
    data = msgspec.msgpack.encode(entry.voters) if entry.kind is EntryKind.VOTERS else entry.data
    return bytes((entry.kind,)) + data


def decode_payload(index: int, term: int, payload: bytes) -> Entry:
    """Raises ValueError when it is no entry."""
    kind = EntryKind(payload[0])
    if kind is EntryKind.VOTERS:
        return Entry(index, term, kind, b"", _VOTERS.decode(payload[1:]))
    return Entry(index, term, kind, payload[1:])


def encode_hard_state(state: HardState) -> bytes:
    return msgspec.msgpack.encode(state)


def decode_hard_state(data: bytes) -> HardState:
    return _HARD_STATES.decode(data)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    return msgspec.msgpack.encode(snapshot)


def decode_snapshot(data: bytes) -> Snapshot:
    return _SNAPSHOTS.decode(data)
