"""Everything that Java brokers, clients and tools asked the Java NameServer in the recordings, asked of ours.

The frames are replayed in the order of recording over as many connections; every answer must have the recorded code,
remark, ext fields and body, apart from the values that differ by nature (settings) and from mistakes of the original
that are not repeated.
"""

from __future__ import annotations

import asyncio
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from cometmq.nameserver.config import NameServerConfig
from cometmq.nameserver.server import NameServer
from cometmq.protocol import json_java
from cometmq.protocol.bodies.topic import RegisterBrokerBody
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import RemotingCommand, decode_frame

UNKNOWN_CODE_CASES = ("probe_ns_unknown_code",)  # Java stays silent, we answer 3
BAD_HEADER_CASE = "probe_ns_bad_header_json"

# The Java server handled this question before a one-way registration that had arrived earlier.
RACE = ("push_consumer_start_concurrent", {"topic": "%RETRY%CG_push"})

Row = dict[str, Any]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """The frames to and from the NameServer, by time."""
    path = Path(__file__).parents[1] / "golden" / "wire" / "frames.jsonl.xz"
    with lzma.open(path, "rt") as lines:
        found = [json.loads(line) for line in lines]
    return sorted((row for row in found if "n" in row["direction"]), key=lambda row: row["seq"])


class Replay:
    """One NameServer and the connections of the recording."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self.last_seq = {row["conn"]: row["seq"] for row in rows}
        self.answers = self._answers()
        self.registered: set[tuple[str, bytes]] = set()
        self.peers: dict[int, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}

    def _answers(self) -> dict[tuple[int, int], list[RemotingCommand]]:
        answers: dict[tuple[int, int], list[RemotingCommand]] = {}
        for row in self.rows:
            if row["direction"].startswith("n->"):
                answer = decode_frame(bytes.fromhex(row["hex"]))
                answers.setdefault((row["conn"], answer.opaque), []).append(answer)
        return answers

    async def run(self, port: int) -> list[str]:
        """What differs."""
        differences: list[str] = []
        for row in self.rows:
            if row["direction"].endswith("->n"):
                differences += await self.ask(port, row)
            if self.last_seq[row["conn"]] == row["seq"]:
                await self.hang_up(row["conn"])
        return differences

    async def close(self) -> None:
        for conn in list(self.peers):
            await self.hang_up(conn)

    async def ask(self, port: int, row: Row) -> list[str]:
        conn = row["conn"]
        if conn not in self.peers:
            self.peers[conn] = await asyncio.open_connection("127.0.0.1", port)
        reader, writer = self.peers[conn]
        writer.write(bytes.fromhex(row["hex"]))
        if row["case"] == BAD_HEADER_CASE:
            return [] if await reader.read(1) == b"" else [f"{row['case']}: answered"]
        request = decode_frame(bytes.fromhex(row["hex"]))
        if request.code == RequestCode.REGISTER_BROKER:
            self.registered.add((broker_of(request), data_version_of(request)))
        if (row["case"], request.ext_fields) == RACE:
            return await self.answer_unseen(reader)
        if request.is_oneway:
            return []
        actual = await answer(reader)
        if row["case"] in UNKNOWN_CODE_CASES:
            return [] if actual.code == 3 else [f"{row['case']}: {actual}"]
        recorded = self.answers.get((conn, request.opaque))
        if not recorded:
            return []  # the client hung up before its answer was sent
        expected = recorded.pop(0)
        if request.code == RequestCode.QUERY_DATA_VERSION and not self.knows(request, expected):
            return []  # that registration is one of the frames the recording left out
        if comparable(request, actual) == comparable(request, expected):
            return []
        return [f"{row['case']} {request.code} {request.ext_fields}\n  want {expected}\n  have {actual}"]

    def knows(self, question: RemotingCommand, expected: RemotingCommand) -> bool:
        return (broker_of(question), bytes(expected.body)) in self.registered

    async def answer_unseen(self, reader: asyncio.StreamReader) -> list[str]:
        await answer(reader)
        return []

    async def hang_up(self, conn: int) -> None:
        if conn in self.peers:
            _, writer = self.peers.pop(conn)
            writer.close()
            await writer.wait_closed()


async def answer(reader: asyncio.StreamReader) -> RemotingCommand:
    length = await asyncio.wait_for(reader.readexactly(4), 5)
    return decode_frame(length + await reader.readexactly(int.from_bytes(length, "big")))


def broker_of(request: RemotingCommand) -> str:
    return (request.ext_fields or {})["brokerAddr"]


def data_version_of(request: RemotingCommand) -> bytes:
    compressed = (request.ext_fields or {}).get("compressed") == "true"
    body = RegisterBrokerBody.decode(request.body, compressed=compressed)
    return body.topic_config_serialize_wrapper.data_version.encode()


def comparable(request: RemotingCommand, answer: RemotingCommand) -> object:
    body: object = bytes(answer.body)
    if request.code == RequestCode.GET_NAMESRV_CONFIG:
        body = {line.partition("=")[0] for line in bytes(answer.body).decode().splitlines()}
    elif answer.body:
        body = unordered(json_java.loads(answer.body))
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:  # the flavour shows in the text only
            body = (body, b'{"0":' in bytes(answer.body), b"{0:" in bytes(answer.body))
    return (
        answer.opaque,
        answer.code,
        answer.remark,
        answer.ext_fields,
        answer.serialize_type,
        answer.version,
        body,
    )


def unordered(value: Any) -> Any:
    if isinstance(value, list):
        return sorted((unordered(item) for item in value), key=repr)
    if isinstance(value, dict):
        return {key: unordered(item) for key, item in sorted(value.items())}
    return value


def test_every_recorded_question_gets_the_recorded_answer(run: Any, rows: list[Row], tmp_path: Path) -> None:
    async def main() -> None:
        config = NameServerConfig(
            bind_address="127.0.0.1",
            listen_port=0,
            kv_config_path=str(tmp_path / "kv.json"),
            config_store_path=str(tmp_path / "ns.properties"),
        )
        server = NameServer(config)
        await server.start()
        replay = Replay(rows)
        try:
            differences = await replay.run(server.port)
        finally:
            await replay.close()
            await server.stop()
        assert not differences, "\n".join(differences[:20])

    run(main(), 60)


def test_the_recording_covers_every_request_of_a_nameserver(rows: list[Row]) -> None:
    asked = set()
    for row in rows:
        if row["direction"].endswith("->n") and row["case"] != BAD_HEADER_CASE:
            asked.add(decode_frame(bytes.fromhex(row["hex"])).code)
    assert asked >= {
        100,
        101,
        102,
        103,
        104,
        105,
        106,
        205,
        206,
        216,
        219,
        224,
        304,
        311,
        312,
        313,
        318,
        319,
        322,
        327,
    }
