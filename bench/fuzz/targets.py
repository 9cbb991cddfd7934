"""The decoders under test, each with its seed inputs. A target takes a view and may raise ProtocolError only.

Modules that other parts own are imported when a run begins; one that does not exist is left out with a note.
"""

from __future__ import annotations

import importlib
import json
import lzma
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
MAGIC = bytes.fromhex("DAA320A7")
INPUT_SIZE_MAX = 64 * 1024

sys.path.insert(0, str(ROOT / "tests"))


class Target(NamedTuple):
    name: str
    decode: Callable[[memoryview], Any]
    seeds: list[bytes]
    share: int  # of all mutations, relative to the others
    compared: bool = True  # whether the twins must give the same result


def golden_frames() -> list[bytes]:
    path = ROOT / "tests" / "golden" / "wire" / "frames.jsonl.xz"
    with lzma.open(path, "rt", encoding="utf-8") as text:
        frames = {bytes.fromhex(json.loads(line)["hex"]) for line in text}
    return sorted(frame for frame in frames if len(frame) < INPUT_SIZE_MAX // 4)


def body_of(frame: bytes) -> bytes:
    return frame[8 + int.from_bytes(frame[5:8], "big") :]


def spread(items: list[bytes], count: int) -> list[bytes]:
    """A few of many, evenly taken."""
    return items[:: max(1, len(items) // count)]


def targets(twin: str) -> list[Target]:
    """All targets that exist, with the modules of one twin (``py`` or ``c``)."""
    frames = golden_frames()
    bodies = sorted({body_of(frame) for frame in frames})
    records = [body for body in bodies if body[4:8] == MAGIC]
    texts = [body for body in bodies if body[:1] in b"{[" and body]
    found = [
        _split_target(twin, spread(frames, 40)),
        *_frame_targets(frames),
        _ext_target(twin, [frame for frame in frames if frame[4] == 1]),
        *_record_targets(
            twin, records, [body_of(f) for f in frames if b'"code":320' in f[:60] and len(f) > 300]
        ),
        _json_target(spread(texts, 60)),
        _body_target(spread(texts, 60)),
    ]
    for make in (_scan_target, _plain_send_target):
        try:
            found.append(make(twin, records, frames))
        except ImportError as error:
            print(f"left out: {error}")
    return found


def load(name: str, twin: str) -> Any:
    """A compiled module or its source, see tests/twins.py."""
    module = importlib.import_module(name)
    is_source = str(module.__file__).endswith(".py")
    if is_source == (twin == "py"):
        return module
    from twins import compiled_path, load_twin

    if twin == "c" and compiled_path(name) is None:
        raise SystemExit(f"{name} is not compiled, or its source is newer; run: make ext")
    return load_twin(name, twin)


def _split_target(twin: str, frames: list[bytes]) -> Target:
    split_frames = load("cometmq.protocol.frame_cy", twin).split_frames
    streams = [b"".join(frames[n : n + 4]) for n in range(0, len(frames), 4)]

    def decode(view: memoryview) -> Any:
        return split_frames(view, 0, len(view), 100_000)

    tiny = [
        b"".join((4 + size).to_bytes(4, "big") + bytes(4 + size) for size in range(n)) for n in range(1, 9)
    ]
    return Target(
        "split", decode, tiny + [stream for stream in streams if len(stream) < INPUT_SIZE_MAX // 4], 10
    )


def _frame_targets(frames: list[bytes]) -> list[Target]:
    """Whole frames: the way of a received frame up to its typed header."""
    from cometmq.protocol.command import decode_frame
    from cometmq.protocol.headers import REQUEST_HEADERS
    from cometmq.protocol.pull_frames import begins_pull, decode_pull

    def decode(view: memoryview) -> Any:
        command = decode_frame(view)
        kind = REQUEST_HEADERS.get(command.code)
        if kind is not None:
            kind.decode(command.ext_fields)
        return None

    def decode_short(view: memoryview) -> Any:
        pull = decode_pull(view, 0, len(view))
        return None if pull is None else (pull.size, pull.opaque, pull.header)

    binary = [frame for frame in frames if frame[4] == 1]
    text = spread([frame for frame in frames if frame[4] == 0], 200)
    pulls = spread([frame for frame in frames if begins_pull(memoryview(frame), 0)], 60)
    return [
        Target("binary-frame", decode, binary, 12),
        Target("json-frame", decode, text, 6),
        Target("pull-frame", decode_short, pulls, 4),
    ]


def _ext_target(twin: str, frames: list[bytes]) -> Target:
    decode_ext_fields = load("cometmq.protocol.frame_cy", twin).decode_ext_fields
    blocks = []
    for frame in frames:
        (remark_size,) = struct.unpack_from(">i", frame, 8 + 13)
        start = 8 + 17 + remark_size
        (size,) = struct.unpack_from(">i", frame, start)
        blocks.append(frame[start + 4 : start + 4 + size])

    def decode(view: memoryview) -> Any:
        return decode_ext_fields(view, 0, len(view))

    return Target("ext-fields", decode, [block for block in blocks if block], 10)


def _record_targets(twin: str, records: list[bytes], batches: list[bytes]) -> list[Target]:
    module = load("cometmq.protocol.record_cy", twin)
    decode_records = module.decode_records

    def decode(view: memoryview) -> Any:
        return decode_records(view)

    def read(view: memoryview) -> Any:
        for message in decode_records(view):
            _ = message.body, message.properties, message.msg_id, message.born_host, message.keys
            _ = message.delay_level

    return [
        Target("records", decode, records, 30),
        Target("messages", read, records, 4),
        Target("batch", module.split_batch, batches, 10),
    ]


def _json_target(texts: list[bytes]) -> Target:
    from cometmq.protocol import json_java

    return Target("json", json_java.loads, [text for text in texts if len(text) < 2000], 1)


def _body_target(texts: list[bytes]) -> Target:
    from cometmq.protocol.bodies.heartbeat import HeartbeatData
    from cometmq.protocol.bodies.registry import RESPONSE_BODIES

    kinds = [HeartbeatData, *RESPONSE_BODIES.values()]

    def decode(view: memoryview) -> Any:
        kinds[len(view) % len(kinds)].decode(view)
        return None

    return Target("body", decode, [text for text in texts if len(text) < 2000], 1)


def _scan_target(twin: str, records: list[bytes], _frames: list[bytes]) -> Target:
    """The store's judge of records; it reports what is wrong instead of raising."""
    scan_records = load("cometmq.store.scan_cy", twin).scan_records

    def decode(view: memoryview) -> Any:
        base = int.from_bytes(view[28:36], "big", signed=True) if len(view) >= 36 else 0
        return scan_records(view, 0, len(view), base & 0x7FFFFFFFFFFFFFFF, len(view) % 2 == 0)

    return Target("scan", decode, records, 10)


def _plain_send_target(twin: str, _records: list[bytes], frames: list[bytes]) -> Target:
    """The broker's fast path: frames to log records."""
    from bench.fuzz.guarded import GuardedMemory

    module = load("cometmq.broker.plain_send_cy", twin)
    sends = [frame for frame in frames if b'"code":310' in frame[:20] or b'"code":10,' in frame[:20]]
    log_memory = GuardedMemory(INPUT_SIZE_MAX)
    plain = module.PlainSends(
        cluster="C1",
        region="DefaultRegion",
        trace_on=True,
        store_host=bytes.fromhex("7f00000100002a9f"),
        body_size_max=4 * 1024 * 1024,
        frame_size_max=16 * 1024 * 1024,
    )
    for topic in (b"TopicA", b"OrderTopic", b"ReqTopic"):
        plain.admit(topic, 4, memoryview(bytearray(8 * 4)).cast("q"))
    log = log_memory.place(bytes(8192))
    born_host = bytes.fromhex("7f00000100001234")

    def decode(view: memoryview) -> Any:
        plain.open(log, 0, len(log), 0)
        return plain.consume(view, 0, len(view), born_host, 1_794_779_059_021)

    # The twins may differ in what they leave to the handlers, so they are not compared here.
    return Target("plain-send", decode, [frame for frame in sends if len(frame) < 4096], 8, compared=False)
