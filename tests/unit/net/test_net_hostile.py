"""Hostile and broken peers: each is ended and counted, others are served, memory returns to its level."""

from __future__ import annotations

import asyncio
import random
import socket
from typing import Any

import pytest
from raw_peer import ECHO, LARGE, ManualClock, RawPeer, eventually, peer_of, request, serving

from cometmq.net.config import NetConfig
from cometmq.net.metrics import CloseReason
from cometmq.net.tls import TlsConfig, TlsMode
from cometmq.protocol.command import RemotingCommand

FAST_SCAN = NetConfig(scan_interval_ms=5)
MIB = 1024 * 1024


def closed(server: Any, reason: CloseReason) -> int:
    return int(server.metrics.connections_closed[reason])


async def serves_others(server: Any) -> None:
    async with peer_of(server) as peer:
        assert (await peer.call(request(body=b"still here"))).body == b"still here"


@pytest.mark.parametrize("length", [16 * MIB - 3, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_giant_length_closes_at_once_without_an_answer(run: Any, length: int) -> None:
    async def main() -> None:
        async with serving() as server, peer_of(server) as peer:
            peer.writer.write(length.to_bytes(4, "big"))
            assert await peer.ended()
            await eventually(lambda: closed(server, CloseReason.FRAME_TOO_LARGE) == 1)
            assert server.shared_buffer.held_bytes == 0
            await serves_others(server)

    run(main())


def test_the_largest_allowed_frame_is_served(run: Any) -> None:
    async def main() -> None:
        def size(_connection: object, command: RemotingCommand) -> RemotingCommand:
            return command.response(0, str(len(command.body)))

        async with serving({ECHO: size}) as server, peer_of(server) as peer:
            head = len(request(body=b"").encode())
            body = bytes(16 * MIB - head)
            answer = await peer.call(request(body=body))
            assert answer.remark == str(len(body))
            assert server.shared_buffer.held_bytes == 0

    run(main())


@pytest.mark.parametrize(
    "frame",
    [
        b"\x00\x00\x00\x00",  # no header word
        b"\x00\x00\x00\x03abc",
        b"\x00\x00\x00\x09\x00\x00\x00\xff{nope",  # header longer than the frame
        b"\x00\x00\x00\x09\x00\x00\x00\x05{nope",  # bad JSON
        b"\x00\x00\x00\x09\x07\x00\x00\x05{}   ",  # unknown serialize type
        b"\x00\x00\x00\x09\x01\x00\x00\x05short",  # cut binary header
        b"\x00\x00\x00\x06\x00\x00\x00\x02[]",  # JSON, not an object
    ],
)
def test_frame_that_cannot_be_decoded_closes_without_an_answer(run: Any, frame: bytes) -> None:
    async def main() -> None:
        async with serving() as server, peer_of(server) as peer:
            peer.writer.write(frame + request().encode())
            assert await peer.ended()
            await eventually(lambda: closed(server, CloseReason.BAD_FRAME) == 1)
            await serves_others(server)

    run(main())


def test_good_frames_before_a_bad_one_are_answered(run: Any) -> None:
    async def main() -> None:
        async with serving() as server, peer_of(server) as peer:
            peer.writer.write(request(opaque=1).encode() + request(opaque=2).encode() + b"\xff" * 8)
            assert [(await peer.frame()).opaque for _ in range(2)] == [1, 2]
            assert await peer.ended()

    run(main())


def test_half_frame_expires_and_a_slow_but_steady_writer_does_not(run: Any) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with (
            serving(config=FAST_SCAN, now_ms=clock) as server,
            peer_of(server) as half,
            peer_of(server) as steady,
        ):
            half.writer.write(request(body=b"x" * 100).encode()[:-50])
            whole = request(body=bytes(2 * MIB)).encode()
            steady.writer.write(whole[: MIB + 1000])
            await eventually(lambda: server.shared_buffer.held_bytes > MIB)
            clock.now += 30_100
            assert await half.ended()
            assert closed(server, CloseReason.HALF_FRAME) == 1
            clock.now += 30_000  # a MiB earns a minute more
            await asyncio.sleep(0.02)
            steady.writer.write(whole[MIB + 1000 :])
            assert len((await steady.frame()).body) == 2 * MIB
            assert server.shared_buffer.held_bytes == 0
            await serves_others(server)

    run(main())


@pytest.mark.parametrize("size", [200, 100_000])
def test_peer_that_trickles_single_bytes_expires(run: Any, size: int) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with serving(config=FAST_SCAN, now_ms=clock) as server, peer_of(server) as peer:
            await peer.call(request())
            frame = request(body=bytes(size)).encode()
            for position in range(40):
                if not server.connections:
                    break
                before = server.metrics.bytes_in
                peer.writer.write(frame[position : position + 1])
                await eventually(
                    lambda before=before: server.metrics.bytes_in > before or not server.connections
                )
                clock.now += 1_000
            assert await peer.ended()
            assert closed(server, CloseReason.HALF_FRAME) == 1
            assert server.shared_buffer.held_bytes == 0

    run(main())


def test_incomplete_frames_of_all_peers_together_are_limited(run: Any) -> None:
    async def main() -> None:
        config = NetConfig(receive_bytes_max=4 * MIB)
        async with serving(config=config) as server:
            peers = [await RawPeer.connect(server.port) for _ in range(8)]
            frame = request(body=bytes(8 * MIB)).encode()
            for peer in peers:
                peer.writer.write(frame[: 2 * MIB])
            await eventually(lambda: closed(server, CloseReason.RECEIVE_MEMORY) > 0)
            await eventually(lambda: server.shared_buffer.held_bytes <= 4 * MIB)
            await serves_others(server)
            for peer in peers:
                await peer.close()
            await eventually(lambda: server.shared_buffer.held_bytes == 0)

    run(main())


def test_random_bytes_end_the_connection_and_nothing_else(run: Any) -> None:
    async def main() -> None:
        rng = random.Random(20)
        count = 100
        async with serving(tls=TlsConfig(mode=TlsMode.DISABLED)) as server, peer_of(server) as bystander:
            await bystander.call(request())
            for _ in range(count):
                peer = await RawPeer.connect(server.port)
                peer.writer.write(rng.randbytes(rng.randint(1, 3000)))
                peer.writer.write_eof()
                await peer.ended()
                await peer.close()
            assert (await bystander.call(request())).code == 0
            reasons = server.metrics.connections_closed
            await eventually(lambda: sum(reasons.values()) == count)
            assert reasons[CloseReason.FRAME_TOO_LARGE] > count // 2
            assert server.shared_buffer.held_bytes == 0
            assert len(server.connections) == 1

    run(main())


def test_random_bytes_in_good_frames_end_the_connection_and_nothing_else(run: Any) -> None:
    async def main() -> None:
        rng = random.Random(21)
        async with serving() as server, peer_of(server) as bystander:
            for _ in range(100):
                peer = await RawPeer.connect(server.port)
                content = rng.randbytes(rng.randint(4, 300))
                if rng.random() < 0.7:  # a header length that fits, so that the header is looked at
                    header = len(content) - 4
                    content = rng.choice([b"\x00", b"\x01"]) + header.to_bytes(3, "big") + content[4:]
                peer.writer.write(len(content).to_bytes(4, "big") + content)
                peer.writer.write_eof()
                while await peer.reader.read(1000):
                    pass
                await peer.close()
            assert (await bystander.call(request())).code == 0
            assert closed(server, CloseReason.BAD_FRAME) > 80
            assert closed(server, CloseReason.INTERNAL_ERROR) == 0

    run(main())


async def _open_and_drop(port: int, count: int, rng: random.Random) -> None:
    for _ in range(count):
        sock = socket.socket()
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        if rng.random() < 0.5:
            sock.send(request().encode()[: rng.randint(1, 60)])
        if rng.random() < 0.5:  # a reset instead of an orderly end
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        sock.close()


def test_thousands_of_connections_opened_and_dropped_leave_nothing(run: Any) -> None:
    _open_drop(run, 2_000)


@pytest.mark.slow
def test_ten_thousand_connections_opened_and_dropped_leave_nothing(run: Any) -> None:
    _open_drop(run, 10_000)


def _open_drop(run: Any, count: int) -> None:
    async def main() -> None:
        rng = random.Random(22)
        async with serving() as server, peer_of(server) as bystander:
            await bystander.call(request())
            await asyncio.gather(*(_open_and_drop(server.port, count // 4, rng) for _ in range(4)))
            reasons = server.metrics.connections_closed
            # A reset that arrives before accept() may take the connection out of the queue unseen.
            await eventually(lambda: sum(reasons.values()) >= count * 0.99)
            await eventually(lambda: len(server.connections) == 1)
            assert set(reasons) <= {CloseReason.PEER_CLOSED, CloseReason.RESET}
            assert server._listener is not None
            assert server._listener.silent_count == 0
            assert server.shared_buffer.held_bytes == 0
            assert (await bystander.call(request())).code == 0

    run(main(), 90)


def test_client_that_never_reads_is_not_read_and_then_closed(run: Any) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with serving(config=FAST_SCAN, now_ms=clock) as server:
            peer = await RawPeer.connect(server.port)
            peer.writer.transport.pause_reading()
            for n in range(200):  # answers of 200 MB, all asked for at once
                peer.send(request(code=LARGE, opaque=n))
            await eventually(lambda: server.metrics.reading_paused >= 1)
            (connection,) = server.connections
            asked = server.metrics.requests[LARGE]
            assert asked < 200, "requests wait in the socket while their answers would"
            assert connection.unsent_bytes < server.config.output_bytes_max
            await serves_others(server)
            began = clock.now
            while not connection.closed:  # the sockets may take some more bytes before they are full
                clock.now += 1_000
                await asyncio.sleep(0.006)
                assert clock.now - began < 200_000
            assert clock.now - began >= 60_000
            await eventually(lambda: closed(server, CloseReason.SLOW_READER) == 1)
            assert connection not in server.connections
            await serves_others(server)
            await peer.close()

    run(main())


def test_slow_reader_that_goes_on_gets_every_answer(run: Any) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with serving(config=FAST_SCAN, now_ms=clock) as server, peer_of(server) as peer:
            peer.send(*(request(code=LARGE, opaque=n) for n in range(50)))
            got = []
            for _ in range(50):
                clock.now += 5_000
                got.append(await peer.frame())
            assert [a.opaque for a in got] == list(range(50))
            assert {len(a.body) for a in got} == {1_000_000}
            assert server.metrics.reading_paused > 0
            assert not server.metrics.connections_closed

    run(main())


def test_output_above_the_limit_in_bytes_closes_at_once(run: Any) -> None:
    async def main() -> None:
        async with serving(config=NetConfig(output_bytes_max=8 * MIB)) as server:
            peer = await RawPeer.connect(server.port)
            peer.writer.transport.pause_reading()
            peer.send(request())
            await eventually(lambda: server.connections and server.metrics.bytes_out)
            (connection,) = server.connections
            for _ in range(30):  # what a broker pushes to a client on its own
                connection.write([bytes(MIB)])
            assert connection.closed
            await eventually(lambda: closed(server, CloseReason.OUTPUT_FULL) == 1)
            await peer.close()

    run(main())


def test_connections_above_the_limit_are_refused(run: Any) -> None:
    async def main() -> None:
        async with serving(config=NetConfig(connections_max=2)) as server:
            peers = [await RawPeer.connect(server.port) for _ in range(2)]
            for peer in peers:
                await peer.call(request())
            async with peer_of(server) as third:
                third.send(request())
                assert await third.ended()
            assert closed(server, CloseReason.TOO_MANY) == 1
            await peers[0].close()
            await eventually(lambda: len(server.connections) == 1)
            await serves_others(server)
            await peers[1].close()

    run(main())


def test_closed_connection_with_unsent_bytes_lingers_only_so_long(run: Any) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with serving(config=FAST_SCAN, now_ms=clock) as server:
            peer = await RawPeer.connect(server.port)
            peer.writer.transport.pause_reading()
            peer.send(request())
            await eventually(lambda: server.connections)
            (connection,) = server.connections
            connection.write([bytes(12 * MIB)])
            connection.close(CloseReason.EXPIRED)
            clock.now += 4_000
            await asyncio.sleep(0.03)
            assert connection in server.connections
            clock.now += 2_000
            await eventually(lambda: closed(server, CloseReason.EXPIRED) == 1)
            await peer.close()

    run(main())
