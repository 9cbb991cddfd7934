"""Dispatch, answers, limits and lifetimes of a remoting server, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from typing import Any

import pytest
from raw_peer import ECHO, LARGE, ManualClock, eventually, peer_of, request, serving

from cometmq.errors import BrokerError, ConfigError, ConnectionLost, Timeout
from cometmq.net import endpoint
from cometmq.net import server as server_module
from cometmq.net.config import NetConfig
from cometmq.net.metrics import CloseReason
from cometmq.net.pump_cy import BULK_SIZE
from cometmq.net.server import Connection, Lane, RemotingServer
from cometmq.protocol.codes import SerializeType
from cometmq.protocol.command import RemotingCommand

SLOW = 910
BULKY = 912
SMALL = 913
FAILING = 911
FAST_SCAN = NetConfig(scan_interval_ms=5)


def test_requests_in_one_packet_are_answered_by_opaque(run: Any) -> None:
    async def main() -> None:
        async with serving() as server, peer_of(server) as peer:
            peer.send(*(request(opaque=n, body=b"%d" % n) for n in range(200)))
            answers = [await peer.frame() for _ in range(200)]
            assert {a.opaque: bytes(a.body) for a in answers} == {n: b"%d" % n for n in range(200)}
            assert all(a.is_response and a.version == 407 for a in answers)
            assert server.metrics.requests[ECHO] == 200

    run(main())


def test_answers_of_one_read_event_leave_in_one_write(run: Any) -> None:
    async def main() -> None:
        async with serving() as server, peer_of(server) as peer:
            await peer.call(request())
            (connection,) = server.connections
            writes: list[int] = []
            flush = Connection._flush
            try:
                Connection._flush = lambda self: (writes.append(len(self._out)), flush(self))[1]  # type: ignore
                peer.send(*(request(opaque=n) for n in range(50)))
                for _ in range(50):
                    await peer.frame()
            finally:
                Connection._flush = flush  # type: ignore[method-assign]
            assert sum(writes) == 50
            assert len(writes) <= 5
            assert connection.in_flight == 0

    run(main())


def test_a_peer_with_much_to_do_leaves_turns_to_others(run: Any) -> None:
    """A timer set while its first request is handled does not wait for the last one; nothing is lost or reordered."""

    async def main() -> None:
        handled, handled_at_timer = 0, list[int]()

        def busy(_connection: Any, command: RemotingCommand) -> RemotingCommand:
            nonlocal handled
            if handled == 0:
                asyncio.get_running_loop().call_later(0, lambda: handled_at_timer.append(handled))
            handled += 1
            time.sleep(0.001)
            return command.response(0, body=command.body)

        async with serving({SLOW: busy}) as server, peer_of(server) as peer:
            peer.send(*(request(SLOW, opaque=n, body=bytes(1_000)) for n in range(500)))
            assert [(await peer.frame()).opaque for n in range(500)] == list(range(500))
            assert handled_at_timer[0] < 250

    run(main())


def test_a_small_request_does_not_wait_for_many_bulky_answers(run: Any) -> None:
    """Neither if it was ready with them, nor if it comes while they are being served."""
    if server_module.Pump is None:
        pytest.skip("the transports of the loop serve whoever comes first")
    served = list[str]()

    async def main() -> None:
        late = socket.socket()

        def bulky(_connection: Any, command: RemotingCommand) -> RemotingCommand:
            served.append("bulky")
            if served == ["early", "bulky"]:
                late.sendall(request(SMALL).encode())
            return command.response(0, body=bytes(BULK_SIZE))

        def small(_connection: Any, command: RemotingCommand) -> RemotingCommand:
            served.append("early" if "early" not in served else "late")
            return command.response(0)

        async with contextlib.AsyncExitStack() as stack:
            server = await stack.enter_async_context(serving({BULKY: bulky, SMALL: small}))
            readers = [await stack.enter_async_context(peer_of(server)) for _ in range(5)]
            early = await stack.enter_async_context(peer_of(server))
            stack.enter_context(late)
            late.connect(("127.0.0.1", server.port))
            late.sendall(request().encode())
            await early.call(request())
            for reader in readers:
                await reader.call(request(BULKY))
            served.clear()
            for reader in readers:
                reader.send(request(BULKY))
            early.send(request(SMALL))
            for peer in (*readers, early):
                await peer.frame()

    run(main())
    # In each round one bulky one, as there are few others
    assert served == ["early", "bulky", "late", "bulky", "bulky", "bulky", "bulky"]


def test_answers_to_many_small_requests_do_not_put_their_sender_behind_bulky_ones(run: Any) -> None:
    """A producer whose sends had to wait once gets many answers at a time; it must not wait longer for that."""
    if server_module.Pump is None:
        pytest.skip("the transports of the loop serve whoever comes first")
    served = list[str]()

    async def main() -> None:
        def bulky(_connection: Any, command: RemotingCommand) -> RemotingCommand:
            served.append("bulky")
            return command.response(0, body=bytes(BULK_SIZE))

        def small(_connection: Any, command: RemotingCommand) -> RemotingCommand:
            served.append("small")
            return command.response(0, body=bytes(2000))

        async with contextlib.AsyncExitStack() as stack:
            server = await stack.enter_async_context(serving({BULKY: bulky, SMALL: small}))
            readers = [await stack.enter_async_context(peer_of(server)) for _ in range(3)]
            sender = await stack.enter_async_context(peer_of(server))
            for reader in readers:
                await reader.call(request(BULKY))
            sender.send(*(request(SMALL, opaque=n, body=bytes(4000)) for n in range(60)))
            for _ in range(60):
                await sender.frame()
            served.clear()
            for reader in readers:
                reader.send(request(BULKY))
            sender.send(request(SMALL))
            for peer in (*readers, sender):
                await peer.frame()

    run(main())
    assert served == ["small", "bulky", "bulky", "bulky"]


def test_one_who_asks_again_at_once_leaves_bulky_answers_to_others(run: Any) -> None:
    served = list[bytes]()

    async def main() -> None:
        greedy = socket.socket()

        def bulky(_connection: Any, command: RemotingCommand) -> RemotingCommand:
            served.append(bytes(command.body))
            if command.body == b"greedy" and len(served) < 30:
                greedy.sendall(request(BULKY, body=b"greedy").encode())
            return command.response(0, body=bytes(BULK_SIZE))

        async with contextlib.AsyncExitStack() as stack:
            server = await stack.enter_async_context(serving({BULKY: bulky}))
            others = [await stack.enter_async_context(peer_of(server)) for _ in range(3)]
            stack.enter_context(greedy)
            greedy.connect(("127.0.0.1", server.port))
            for other in others:
                await other.call(request(BULKY, body=b"first"))
            greedy.sendall(request(BULKY, body=b"first").encode())
            await eventually(lambda: len(served) == 4)
            served.clear()
            greedy.sendall(request(BULKY, body=b"greedy").encode())
            for other in others:
                other.send(request(BULKY, body=b"other"))
            for other in others:
                await other.frame()

    run(main())
    assert served[:8].count(b"other") == 3


def test_whoever_is_alone_and_whoever_comes_and_goes_is_served(run: Any) -> None:
    """The loop watches the socket of a connection that is alone, and the set of all sockets otherwise."""

    async def main() -> None:
        large = [request(LARGE, opaque=n) for n in range(20)]  # 20 MB: too much for a socket at once
        async with serving() as server:
            for _ in range(3):
                async with peer_of(server) as first:
                    await first.call(request())
                    async with peer_of(server) as second:
                        for peer in (first, second, first):
                            await peer.call(request())
                    await eventually(lambda: len(server.connections) == 1)
                    await first.call(request())
                    first.send(*large)
                    for n in range(len(large)):
                        assert (await first.frame()).opaque == n
                    await first.call(request())
                await eventually(lambda: not server.connections)
            async with peer_of(server) as last:
                await last.call(request())

    run(main())


def test_both_serializations_are_answered_in_kind_on_one_connection(run: Any) -> None:
    async def main() -> None:
        async with serving() as server, peer_of(server) as peer:
            for kind in (SerializeType.JSON, SerializeType.ROCKETMQ, SerializeType.JSON):
                command = request(body=b"x")
                command.serialize_type = kind
                command.ext_fields = {"a": "b"}
                answer = await peer.call(command)
                assert (answer.serialize_type, answer.code, answer.body) == (kind, 0, b"x")

    run(main())


def test_unknown_code_answers_not_supported_with_leading_blank(run: Any) -> None:
    async def main() -> None:
        async with serving() as server, peer_of(server) as peer:
            answer = await peer.call(request(code=777, opaque=5))
            assert (answer.code, answer.opaque) == (3, 5)
            assert answer.remark == " request type 777 not supported"
            assert server.metrics.unknown_codes == 1

    run(main())


def test_fallback_gets_unknown_codes(run: Any) -> None:
    async def main() -> None:
        async with (
            serving(fallback=lambda _c, command: command.response(0, "fallback")) as server,
            peer_of(server) as peer,
        ):
            assert (await peer.call(request(code=777))).remark == "fallback"

    run(main())


def test_oneway_is_never_answered_not_even_on_error(run: Any) -> None:
    async def fails_later(_connection: Connection, _command: RemotingCommand) -> RemotingCommand:
        raise ValueError("later")

    def fails(_connection: Connection, _command: RemotingCommand) -> RemotingCommand:
        raise ValueError("now")

    async def main() -> None:
        async with serving({FAILING: fails, SLOW: fails_later}) as server, peer_of(server) as peer:
            for code in (ECHO, FAILING, SLOW, 12345):
                peer.send(request(code=code, opaque=99, oneway=True))
            answer = await peer.call(request(opaque=7))
            assert answer.opaque == 7
            await eventually(lambda: sum(server.metrics.handler_errors.values()) == 2)
            assert (await peer.call(request(opaque=8))).opaque == 8

    run(main())


@pytest.mark.parametrize("later", [False, True])
def test_exception_in_a_handler_is_code_1_with_name_and_message(
    run: Any, later: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(_connection: Connection, _command: RemotingCommand) -> RemotingCommand:
        raise KeyError("queue 7")

    async def fails_later(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return fails(connection, command)

    async def main() -> None:
        async with serving({FAILING: fails_later if later else fails}) as server, peer_of(server) as peer:
            answer = await peer.call(request(code=FAILING))
            assert (answer.code, answer.remark) == (1, "KeyError: 'queue 7'")
            assert server.metrics.handler_errors == {FAILING: 1}
            assert (await peer.call(request())).code == 0  # the connection goes on

    with caplog.at_level(logging.WARNING):
        run(main())
    assert "queue 7" in caplog.text


def test_broker_error_in_a_handler_is_its_code_and_remark(run: Any) -> None:
    def refuses(_connection: Connection, _command: RemotingCommand) -> RemotingCommand:
        raise BrokerError(17, "topic [x] not exist")

    async def main() -> None:
        async with serving({FAILING: refuses}) as server, peer_of(server) as peer:
            answer = await peer.call(request(code=FAILING))
            assert (answer.code, answer.remark) == (17, "topic [x] not exist")
            assert not server.metrics.handler_errors

    run(main())


def test_handler_that_returns_none_answers_later_through_the_connection(run: Any) -> None:
    held: list[tuple[Connection, RemotingCommand]] = []

    async def main() -> None:
        def hold(connection: Connection, command: RemotingCommand) -> None:
            held.append((connection, command))

        async with serving({SLOW: hold}) as server, peer_of(server) as peer:
            peer.send(request(code=SLOW, opaque=3))
            await eventually(lambda: held)
            assert (await peer.call(request(opaque=4))).opaque == 4
            connection, command = held[0]
            connection.send(command.response(19, "nothing"))
            assert (await peer.frame()).opaque == 3

    run(main())


def test_answer_too_large_for_a_frame_becomes_code_1(run: Any) -> None:
    def huge(_connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return command.response(0, body=bytes(17 * 1024 * 1024))

    async def main() -> None:
        async with serving({LARGE: huge}) as server, peer_of(server) as peer:
            answer = await peer.call(request(code=LARGE))
            assert answer.code == 1
            assert (answer.remark or "").startswith("LocalProtocolError: ")

    run(main())


class Gate:
    """A handler that waits until it is opened."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.entered = 0

    async def __call__(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        self.entered += 1
        await self.open.wait()
        return command.response(0)


@pytest.mark.parametrize("limit", ["connection", "server", "lane"])
def test_requests_above_the_limit_are_answered_system_busy(run: Any, limit: str) -> None:
    """The words are those that clients match on."""

    async def main() -> None:
        gate = Gate()
        lane = Lane("send", in_flight_max=3 if limit == "lane" else 1000)
        config = NetConfig(
            in_flight_per_connection_max=3 if limit == "connection" else 1000,
            in_flight_max=3 if limit == "server" else 1000,
        )
        async with (
            serving({SLOW: gate}, config=config, lanes={SLOW: lane}) as server,
            peer_of(server) as peer,
        ):
            peer.send(*(request(code=SLOW, opaque=n) for n in range(3)))
            await eventually(lambda: gate.entered == 3)
            answer = await peer.call(request(code=SLOW, opaque=3))
            assert (answer.code, answer.opaque) == (2, 3)
            assert answer.remark == "[OVERLOAD]system busy, start flow control for a while"
            assert server.metrics.busy_answers == 1
            assert lane.rejected == 1
            assert (await peer.call(request(opaque=4))).code == 0  # other requests are served
            gate.open.set()
            assert {(await peer.frame()).opaque for _ in range(3)} == {0, 1, 2}
            assert (server.in_flight, lane.in_flight) == (0, 0)

    run(main())


def test_oneway_requests_above_the_limit_are_dropped_and_counted(run: Any) -> None:
    async def main() -> None:
        gate = Gate()
        config = NetConfig(in_flight_per_connection_max=2)
        async with serving({SLOW: gate}, config=config) as server, peer_of(server) as peer:
            peer.send(*(request(code=SLOW, opaque=n, oneway=True) for n in range(2)))
            await eventually(lambda: gate.entered == 2)
            peer.send(*(request(code=SLOW, opaque=n, oneway=True) for n in range(3)))
            assert (await peer.call(request(opaque=9))).opaque == 9
            assert server.metrics.oneway_dropped == 3
            gate.open.set()
            await eventually(lambda: server.in_flight == 0)

    run(main())


def test_server_asks_its_client_and_matches_the_answer(run: Any) -> None:
    async def main() -> None:
        async with serving() as server, peer_of(server) as peer:
            await peer.call(request())
            (connection,) = server.connections
            asked = asyncio.ensure_future(connection.request(RemotingCommand.request(307, body=b"who"), 2000))
            question = await peer.frame()
            assert (question.code, question.body, question.is_response) == (307, b"who", False)
            peer.send(question.response(0, body=b"me"))
            assert (await asked).body == b"me"
            assert connection.requests_pending == 0

    run(main())


def test_request_to_a_client_that_never_answers_times_out_and_leaves_nothing(run: Any) -> None:
    async def main() -> None:
        async with serving() as server, peer_of(server) as peer:
            await peer.call(request())
            (connection,) = server.connections
            with pytest.raises(Timeout):
                await connection.request(RemotingCommand.request(307), 20)
            task = asyncio.ensure_future(connection.request(RemotingCommand.request(307), 5000))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0)
            assert connection.requests_pending == 0
            late = await peer.frame()
            peer.send(late.response(0))
            await eventually(lambda: server.metrics.responses_unmatched == 1)

    run(main())


def test_request_to_a_client_that_goes_away_fails_at_once(run: Any) -> None:
    async def main() -> None:
        async with serving() as server:
            async with peer_of(server) as peer:
                await peer.call(request())
                (connection,) = server.connections
                asked = asyncio.ensure_future(connection.request(RemotingCommand.request(307), 5000))
                await peer.frame()
            with pytest.raises(ConnectionLost):
                await asked
            assert connection.closed
            with pytest.raises(ConnectionLost):
                await connection.request(RemotingCommand.request(307), 5000)

    run(main())


def test_close_callbacks_run_once_and_a_failing_one_does_not_stop_the_others(run: Any) -> None:
    async def main() -> None:
        called: list[str] = []

        def fails(_connection: Connection) -> None:
            raise ValueError("callback")

        async with serving() as server:
            async with peer_of(server) as peer:
                await peer.call(request())
                (connection,) = server.connections
                connection.on_close += [lambda c: called.append(c.peer), fails, lambda c: called.append("b")]
            await eventually(lambda: len(called) == 2)
            assert called == [connection.peer, "b"]
            assert server.metrics.background_errors == 1
            assert server.metrics.connections_closed == {CloseReason.PEER_CLOSED: 1}
            assert server.metrics.connections_open == 0

    run(main())


def test_connection_knows_its_peer_in_text_and_in_wire_form(run: Any) -> None:
    async def main() -> None:
        async with serving() as server, peer_of(server) as peer:
            await peer.call(request())
            (connection,) = server.connections
            host, port = peer.writer.get_extra_info("sockname")
            assert (connection.peer_host, connection.peer_port) == (host, port)
            assert connection.peer == f"{host}:{port}"
            assert connection.born_host == b"\x7f\x00\x00\x01" + port.to_bytes(4, "big")

    run(main())


def test_ipv6_peer_has_a_born_host_of_20_bytes(run: Any) -> None:
    async def main() -> None:
        server = RemotingServer({ECHO: lambda _c, command: command.response(0)})
        try:
            await server.start("::1", 0)
        except ConfigError:
            pytest.skip("this machine has no IPv6 loopback")
        reader, writer = await asyncio.open_connection("::1", server.port)
        writer.write(request().encode())
        await reader.readexactly(4)
        (connection,) = server.connections
        assert connection.peer == f"[::1]:{connection.peer_port}"
        assert connection.born_host == bytes(15) + b"\x01" + connection.peer_port.to_bytes(4, "big")
        writer.close()
        await server.stop()

    run(main())


def test_idle_connections_are_closed_after_120_seconds(run: Any) -> None:
    """Nothing in either direction for 120 s."""

    async def main() -> None:
        clock = ManualClock()
        async with (
            serving(config=FAST_SCAN, now_ms=clock) as server,
            peer_of(server) as idle,
            peer_of(server) as active,
            peer_of(server) as silent,
        ):
            await idle.call(request())
            await active.call(request())
            clock.now += 60_000
            await active.call(request())
            clock.now += 59_999
            assert (await active.call(request())).code == 0
            assert len(server.connections) == 2
            clock.now += 1
            assert await idle.ended()
            assert await silent.ended()  # connected and never said a word
            assert (await active.call(request())).code == 0
            await eventually(lambda: server.metrics.connections_closed[CloseReason.IDLE] == 2)

    run(main())


def test_of_many_connections_each_scan_looks_at_some(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(endpoint, "SCAN_COUNT_MIN", 2)
        looked_at: list[int] = []
        clock = ManualClock()
        async with serving(config=FAST_SCAN, now_ms=clock) as server, contextlib.AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(peer_of(server)) for _ in range(7)]
            for peer in peers:
                await peer.call(request())
            server.scan_extra = lambda: looked_at.append(len(server.connections))  # type: ignore[method-assign]
            clock.now += 120_000
            for peer in peers:
                assert await peer.ended()
            assert server.metrics.connections_closed[CloseReason.IDLE] == 7
            assert len(set(looked_at)) >= 3  # two or a tenth at a time, not all at once

    run(main())


def test_connection_with_a_request_being_handled_is_not_idle(run: Any) -> None:
    async def main() -> None:
        clock, gate = ManualClock(), Gate()
        async with serving({SLOW: gate}, config=FAST_SCAN, now_ms=clock) as server, peer_of(server) as peer:
            peer.send(request(code=SLOW))
            await eventually(lambda: gate.entered)
            clock.now += 500_000
            await asyncio.sleep(0.03)
            gate.open.set()
            assert (await peer.frame()).code == 0

    run(main())


def test_stop_lets_running_requests_answer_and_closes_the_port(run: Any) -> None:
    async def main() -> None:
        gate = Gate()
        async with serving({SLOW: gate}) as server, peer_of(server) as peer:
            peer.send(request(code=SLOW, opaque=11))
            await eventually(lambda: gate.entered)
            stopping = asyncio.ensure_future(server.stop(grace_ms=2000))
            await asyncio.sleep(0)
            gate.open.set()
            assert (await peer.frame()).opaque == 11
            await stopping
            assert await peer.ended()
            with pytest.raises(OSError):
                await asyncio.open_connection("127.0.0.1", server.port)
            await server.stop()  # again: nothing happens

    run(main())


def test_stop_cancels_requests_that_do_not_end(run: Any) -> None:
    async def main() -> None:
        gate = Gate()
        async with serving({SLOW: gate}) as server, peer_of(server) as peer:
            peer.send(request(code=SLOW))
            await eventually(lambda: gate.entered)
            await server.stop(grace_ms=20)
            assert server.in_flight == 0
            assert await peer.ended()

    run(main())


def test_loop_that_cannot_watch_sockets_serves_plain(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop of Windows has no add_reader."""

    async def main() -> None:
        def refuses(*_arguments: object) -> None:
            raise NotImplementedError

        monkeypatch.setattr("cometmq.net.listener.Listener.__init__", lambda *_a, **_o: refuses())
        async with serving() as server, peer_of(server) as peer:
            assert (await peer.call(request(body=b"plain"))).body == b"plain"

    run(main())


def test_port_in_use_says_so(run: Any) -> None:
    async def main() -> None:
        async with serving() as server:
            other = RemotingServer({})
            with pytest.raises(ConfigError, match=f"127.0.0.1:{server.port}"):
                await other.start("127.0.0.1", server.port)

    run(main())


def test_fast_path_takes_what_it_wants_and_the_table_gets_the_rest(run: Any) -> None:
    async def main() -> None:
        seen: list[int] = []

        def fast_path(connection: Connection, view: memoryview, start: int, end: int) -> int:
            """Consumes whole frames of code 300, as the broker's compiled path does with plain sends."""
            position = start
            while end - position >= 4:
                size = 4 + int.from_bytes(view[position : position + 4], "big")
                if position + size > end or b'"code":300,' not in bytes(view[position : position + size]):
                    break
                seen.append(size)
                connection.write([request(code=0, opaque=-1).response().encode()])
                position += size
            return position - start

        async with serving() as server, peer_of(server) as peer:
            server.fast_path = fast_path
            codes = [300, 300, ECHO, 300, ECHO, ECHO, 300, 300, 300]
            data = b"".join(request(code=code, opaque=n).encode() for n, code in enumerate(codes))
            for piece in (data[:150], data[150:400], data[400:]):
                peer.writer.write(piece)
                await asyncio.sleep(0.01)
            answers = [await peer.frame() for _ in codes]
            assert len(seen) == 6
            assert sorted(a.opaque for a in answers if a.opaque >= 0) == [2, 4, 5]

    run(main())
