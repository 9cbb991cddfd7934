"""Frames of send requests from prepared templates.

A SEND_MESSAGE_V2 header of one topic, group and broker differs between messages only in queue id, flags, times,
properties and opaque. The rest is written once per route; a message then costs one string interpolation. The text is
what ``RemotingCommand.encode`` would give (tests/unit/client/test_send_frames.py compares them).

Pure: bytes out, no socket, no clock.
"""

from __future__ import annotations

import struct

import msgspec

from cometmq.protocol.codes import VERSION, RequestCode
from cometmq.protocol.message import Message
from cometmq.protocol.properties import PROPERTY_UNIQ_KEY, PROPERTY_WAIT, encode_properties

DEFAULT_TOPIC = "TBW102"
DEFAULT_TOPIC_QUEUE_COUNT = 4

_WORDS = struct.Struct(">ii")
_pack = _WORDS.pack
_json = msgspec.json.Encoder().encode


class SendTemplate:
    """Everything of a send header that does not depend on the message."""

    __slots__ = ("_head", "middle", "tail")

    def __init__(
        self,
        group: str,
        topic: str,
        broker_name: str,
        *,
        code: int = RequestCode.SEND_MESSAGE_V2,
        batch: bool = False,
        unit_mode: bool = False,
        default_topic: str = DEFAULT_TOPIC,
        queue_count: int = DEFAULT_TOPIC_QUEUE_COUNT,
        oneway: bool = False,
    ) -> None:
        fields = f'"a":{_text(group)},"b":{_text(topic)},"c":{_text(default_topic)},"d":"{queue_count}"'
        self._head = f'{{"code":{int(code)},"extFields":{{{fields},"e":"'.encode()
        self.middle = (
            f',"j":"0","k":"{_bool(unit_mode)}","m":"{_bool(batch)}","n":{_text(broker_name)}}},'
            f'"flag":{2 if oneway else 0},"language":"PYTHON","opaque":'
        ).encode()
        self.tail = f',"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}'.encode()

    def head_of(self, queue_id: int, sys_flag: int = 0) -> bytes:
        """The header up to where the born time begins."""
        return b'%b%d","f":"%d","g":"' % (self._head, queue_id, sys_flag)

    def frame(
        self,
        queue_id: int,
        sys_flag: int,
        born_ms: int,
        flag: int,
        properties: str,
        opaque: int,
        body: bytes | bytearray | memoryview,
    ) -> bytes:
        """The whole frame of one request."""
        header = b'%b%d","h":"%d","i":%b%b%d%b' % (
            self.head_of(queue_id, sys_flag),
            born_ms,
            flag,
            json_text(properties),
            self.middle,
            opaque,
            self.tail,
        )
        size = len(header)
        return b"".join((_pack(4 + size + len(body), size), header, body))


def json_text(value: str) -> bytes:
    """A text as it stands in JSON, with its quotes."""
    return _json(value)


def _text(value: str) -> str:
    return _json(value).decode()


def _bool(value: bool) -> str:
    return "true" if value else "false"


def properties_text(message: Message, unique_id: str) -> str:
    """The properties string as a producer sends it: the message's own, its unique id and the wait switch."""
    own = message.properties
    if not own:
        return f"{PROPERTY_UNIQ_KEY}\x01{unique_id}\x02{PROPERTY_WAIT}\x01true"
    full = {**own, PROPERTY_UNIQ_KEY: unique_id}
    full.setdefault(PROPERTY_WAIT, "true")
    return encode_properties(full)
