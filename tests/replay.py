"""Plays recorded client frames against a broker and compares its answers with those of the Java broker.

``exchanges()`` gives the recorded requests with their answers in the order of recording. A ``Replay`` sends
the very bytes, each on a connection of its own recorded connection number, answers what the broker asks the
clients with what the recorded clients answered, and returns what came back. ``differences`` compares two
answers: code, remark, names of ext fields, and the structure of the body (member names and kinds of values;
keys that are data are not compared).

Nothing here uses our own protocol code except the reader of fastjson text: a mistake in both would go unseen.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from golden_frames import lines

from cometmq.protocol import json_java

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2
ANSWER_TIMEOUT_S = 5.0
FAST_PORT_CONNECTIONS = {125, 209}  # recorded on listenPort - 2


class Answer(NamedTuple):
    code: int
    remark: str | None
    fields: dict[str, str] | None
    body: bytes


class Exchange(NamedTuple):
    """A request of a recorded client to the broker, and what it got."""

    file: str
    case: str
    seq: int
    conn: int
    code: int
    frame: bytes
    fields: dict[str, str]
    oneway: bool
    answer: Answer | None


class Parsed(NamedTuple):
    flag: int
    opaque: int
    answer: Answer


def parse(frame: bytes, recorded_header: dict[str, Any] | None = None) -> Parsed:
    """Take a frame apart. Binary headers need what the recorder made of them, or ``_binary_header``."""
    (word,) = struct.unpack_from(">I", frame, 4)
    size = word & 0xFFFFFF
    text = frame[8 : 8 + size]
    header = recorded_header or (json.loads(text) if word >> 24 == 0 else _binary_header(text))
    answer = Answer(header["code"], header.get("remark"), header.get("extFields"), frame[8 + size :])
    return Parsed(header.get("flag", 0), header.get("opaque", 0), answer)


def _binary_header(data: bytes) -> dict[str, Any]:
    code, _, _, opaque, flag, size = struct.unpack_from(">hbhiii", data)
    at = 17
    remark = data[at : at + size].decode() or None
    at += size + 4
    fields: dict[str, str] = {}
    while at < len(data):
        (key_size,) = struct.unpack_from(">h", data, at)
        key = data[at + 2 : at + 2 + key_size].decode()
        at += 2 + key_size
        (value_size,) = struct.unpack_from(">i", data, at)
        fields[key] = data[at + 4 : at + 4 + value_size].decode()
        at += 4 + value_size
    return {"code": code, "opaque": opaque, "flag": flag, "remark": remark, "extFields": fields}


@dataclass
class Recording:
    exchanges: list[Exchange] = field(default_factory=list)
    # What clients answered to the broker: (recorded connection, request code) -> answer
    client_answers: dict[tuple[int, int], Answer] = field(default_factory=dict)


def recording(files: Iterable[str], *, last_seq: int | None = None) -> Recording:
    """The traffic between clients and the broker in these files, in the order of recording."""
    wanted = set(files)
    found = Recording()
    open_requests: dict[tuple[int, str, int], tuple[dict[str, Any], Parsed]] = {}
    answers: dict[int, Answer] = {}
    requests: list[tuple[dict[str, Any], Parsed]] = []
    for line in sorted(lines(), key=lambda line: line["seq"]):
        if line["file"] not in wanted or line["direction"] not in ("c->b", "b->c"):
            continue
        if last_seq is not None and line["seq"] > last_seq:
            break
        parsed = parse(bytes.fromhex(line["hex"]), line.get("header"))
        sender, receiver = line["direction"].split("->")
        if not parsed.flag & FLAG_RESPONSE:
            open_requests[line["conn"], sender, parsed.opaque] = (line, parsed)
            if sender == "c":
                requests.append((line, parsed))
            continue
        request = open_requests.pop((line["conn"], receiver, parsed.opaque), None)
        if request is not None and receiver == "c":
            answers[request[0]["seq"]] = parsed.answer
        elif request is not None:
            found.client_answers[line["conn"], request[1].answer.code] = parsed.answer
    for line, parsed in requests:
        found.exchanges.append(
            Exchange(
                line["file"],
                line["case"],
                line["seq"],
                line["conn"],
                parsed.answer.code,
                bytes.fromhex(line["hex"]),
                parsed.answer.fields or {},
                bool(parsed.flag & FLAG_ONEWAY),
                answers.get(line["seq"]),
            )
        )
    return found


class RecordedClient:
    """One connection of a recorded client."""

    def __init__(self, answers: Callable[[int], Answer | None]) -> None:
        self._answers = answers
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._reading: asyncio.Task[None] | None = None
        self.asked: list[tuple[int, Answer]] = []  # what the broker sent on its own: request code and content

    async def open(self, host: str, port: int) -> None:
        self._reader, self._writer = await asyncio.open_connection(host, port)
        self._reading = asyncio.create_task(self._read())

    def send(self, frame: bytes) -> asyncio.Future[Answer]:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[parse(frame).opaque] = future
        self._writer.write(frame)
        return future

    async def _read(self) -> None:
        while True:
            head = await self._reader.readexactly(4)
            frame = head + await self._reader.readexactly(struct.unpack(">i", head)[0])
            parsed = parse(frame)
            if parsed.flag & FLAG_RESPONSE:
                future = self._waiting.pop(parsed.opaque, None)
                if future is not None and not future.done():
                    future.set_result(parsed.answer)
                continue
            self.asked.append((parsed.answer.code, parsed.answer))
            answer = self._answers(parsed.answer.code)
            if answer is not None and not parsed.flag & FLAG_ONEWAY:
                self._writer.write(make_frame(answer.code, parsed.opaque, FLAG_RESPONSE, answer))

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        self._writer.close()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)


def make_frame(code: int, opaque: int, flag: int, content: Answer) -> bytes:
    header: dict[str, Any] = {
        "code": code,
        "opaque": opaque,
        "flag": flag,
        "language": "JAVA",
        "version": 407,
    }
    if content.remark is not None:
        header["remark"] = content.remark
    if content.fields is not None:
        header["extFields"] = content.fields
    text = json.dumps(header).encode()
    return struct.pack(">ii", 4 + len(text) + len(content.body), len(text)) + text + content.body


class Replay:
    """Recorded clients against a broker: ``async with Replay(recording, port) as replay: await
    replay.play(e)``.
    """

    def __init__(self, recorded: Recording, port: int, *, host: str = "127.0.0.1") -> None:
        self._recorded = recorded
        self._host, self._port = host, port
        self.clients: dict[int, RecordedClient] = {}

    async def __aenter__(self) -> Replay:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(client.close() for client in self.clients.values()))

    async def client(self, exchange: Exchange) -> RecordedClient:
        conn = exchange.conn
        if conn not in self.clients:
            client = self.clients[conn] = RecordedClient(
                lambda code: self._recorded.client_answers.get((conn, code))
            )
            fast = conn in FAST_PORT_CONNECTIONS
            await client.open(self._host, self._port - 2 if fast else self._port)
        return self.clients[conn]

    async def play(self, exchange: Exchange, *, wait: bool = True) -> Answer | None:
        """Send a recorded request; its answer, or None when nobody waited for one."""
        client = await self.client(exchange)
        future = client.send(exchange.frame)
        if exchange.oneway or exchange.answer is None or not wait:
            return None
        return await asyncio.wait_for(future, ANSWER_TIMEOUT_S)


# --- comparing ---

# Members whose keys are data (topics, groups, queues), not names: only the values are compared, all as one kind.
KEYED_BY_DATA = {
    "offsetTable", "topicConfigTable", "subscriptionGroupTable", "subscriptionTable", "data", "consumerTable",
    "messageQueueTable", "correctionOffsets", "mqTable", "statusTable", "properties", "consumeStatsList", "table",
}  # fmt: skip


def differences(expected: Answer, actual: Answer, *, remark: bool = True) -> list[str]:
    """How an answer differs from the recorded one; empty when it does not in what counts."""
    found = []
    if actual.code != expected.code:
        found.append(f"code {actual.code} instead of {expected.code} ({actual.remark})")
    if remark and actual.remark != expected.remark:
        found.append(f"remark {actual.remark!r} instead of {expected.remark!r}")
    if (actual.fields is None) != (expected.fields is None) or set(actual.fields or ()) != set(
        expected.fields or ()
    ):
        found.append(f"ext fields {actual.fields} instead of {expected.fields}")
    if bool(actual.body) != bool(expected.body):
        found.append(f"body of {len(actual.body)} bytes instead of {len(expected.body)}")
    elif expected.body[:1] == b"{":
        found += shape_differences(shape(json_java.loads(expected.body)), shape(json_java.loads(actual.body)))
    return found


def shape(value: Any, *, keyed_by_data: bool = False) -> Any:
    """The structure of a JSON value: names and kinds, with values of data-keyed maps and lists merged."""
    if isinstance(value, dict):
        if keyed_by_data:
            return {"*": merge(shape(item, keyed_by_data=False) for item in value.values())}
        return {name: shape(item, keyed_by_data=name in KEYED_BY_DATA) for name, item in value.items()}
    if isinstance(value, list):
        return [merge(shape(item, keyed_by_data=keyed_by_data) for item in value)]
    return type(value).__name__


def merge(shapes: Iterable[Any]) -> Any:
    """One structure of many; None of none."""
    merged: Any = None
    for each in shapes:
        if isinstance(each, dict) and isinstance(merged, dict):
            merged = {name: merge(s[name] for s in (merged, each) if name in s) for name in merged | each}
        elif isinstance(each, list) and isinstance(merged, list):
            merged = [merge(item for item in (merged[0], each[0]) if item is not None)]
        elif merged is None:
            merged = each
    return merged


def shape_differences(expected: Any, actual: Any, path: str = "body") -> list[str]:
    if expected is None or actual is None:  # an empty list or map on one side says nothing
        return []
    if isinstance(expected, dict) and isinstance(actual, dict):
        found = [f"{path} lacks {name}" for name in expected.keys() - actual.keys()]
        found += [f"{path} has {name} too much" for name in actual.keys() - expected.keys()]
        for name in expected.keys() & actual.keys():
            found += shape_differences(expected[name], actual[name], f"{path}.{name}")
        return found
    if isinstance(expected, list) and isinstance(actual, list):
        return shape_differences(expected[0], actual[0], f"{path}[]")
    return [] if expected == actual else [f"{path} is {actual} instead of {expected}"]
