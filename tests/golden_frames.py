"""The recorded frames of tests/golden/wire, with requests and responses matched."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from cometmq.errors import RemoteProtocolError
from cometmq.protocol.command import RemotingCommand, decode_frame

PATH = Path(__file__).parent / "golden" / "wire" / "frames.jsonl.xz"
UNREADABLE_CASE = "probe_ns_bad_header_json"


class GoldenFrame(NamedTuple):
    file: str
    case: str
    direction: str
    conn: int
    data: bytes
    header: dict[str, Any] | None  # for binary headers: what the recorder made of it
    command: RemotingCommand
    request_code: int | None  # of the request, also for a response


@cache
def lines() -> list[dict[str, Any]]:
    """All recorded lines, also the one that cannot be read."""
    with lzma.open(PATH, "rt", encoding="utf-8") as text:
        return [json.loads(line) for line in text]


@cache
def frames() -> list[GoldenFrame]:
    """All frames that can be read."""
    codes: dict[tuple[str, int, str, int], int] = {}
    found = []
    for line in lines():
        data = bytes.fromhex(line["hex"])
        try:
            command = decode_frame(data)
        except RemoteProtocolError:
            continue
        sender, receiver = line["direction"].split("->")
        requester = receiver if command.is_response else sender
        key = (line["file"], line["conn"], requester, command.opaque)
        if not command.is_response:
            codes[key] = command.code
        found.append(
            GoldenFrame(
                line["file"],
                line["case"],
                line["direction"],
                line["conn"],
                data,
                line.get("header"),
                command,
                codes.get(key),
            )
        )
    return found
