"""The remoting client against real servers."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from raw_peer import ECHO, ManualClock, eventually, request, serving

from cometmq.errors import ConfigError, ConnectionLost, Timeout
from cometmq.net.addresses import format_address, host_bytes, parse_address, plain_host
from cometmq.net.client import RemotingClient
from cometmq.net.config import NetConfig
from cometmq.net.metrics import CloseReason
from cometmq.net.server import Connection, RemotingServer
from cometmq.protocol.command import RemotingCommand

SILENT = 920


def silent(_connection: Connection, _command: RemotingCommand) -> None:
    """Never answers."""


def address_of(server: RemotingServer) -> str:
    return f"127.0.0.1:{server.port}"


def test_requests_share_one_connection_and_get_their_own_answers(run: Any) -> None:
    async def main() -> None:
        client = RemotingClient()
        async with serving() as server:
            address = address_of(server)
            calls = [client.invoke(address, request(body=b"%d" % n)) for n in range(100)]
            answers = await asyncio.gather(*calls)
            assert [bytes(a.body) for a in answers] == [b"%d" % n for n in range(100)]
            assert server.metrics.connections_opened == 1
            await client.close()

    run(main())


def test_oneway_goes_out_and_nothing_waits(run: Any) -> None:
    async def main() -> None:
        client = RemotingClient()
        async with serving() as server:
            await client.invoke_oneway(address_of(server), request(oneway=True))
            await eventually(lambda: server.metrics.requests[ECHO] == 1)
            (connection,) = client.connections
            assert connection.requests_pending == 0
            await client.close()

    run(main())


def test_server_asks_and_the_clients_table_answers(run: Any) -> None:
    async def main() -> None:
        client = RemotingClient({307: lambda _c, command: command.response(0, body=b"running")})
        async with serving() as server:
            await client.invoke(address_of(server), request())
            (connection,) = server.connections
            answer = await connection.request(RemotingCommand.request(307), 2000)
            assert answer.body == b"running"
            answer = await connection.request(RemotingCommand.request(308), 2000)
            assert answer.code == 3
            await client.close()

    run(main())


def test_timeout_raises_and_closes_the_socket(run: Any) -> None:
    async def main() -> None:
        client = RemotingClient()
        async with serving({SILENT: silent}) as server:
            address = address_of(server)
            await client.invoke(address, request())
            with pytest.raises(Timeout, match=" ms"):
                await client.invoke(address, request(code=SILENT), timeout_ms=20)
            assert client.metrics.request_timeouts == 1
            await eventually(lambda: client.metrics.connections_closed[CloseReason.REQUEST_TIMEOUT] == 1)
            assert (await client.invoke(address, request())).code == 0  # on a new connection
            await client.close()

    run(main())


def test_timeout_may_keep_the_socket(run: Any) -> None:
    async def main() -> None:
        client = RemotingClient(config=NetConfig(client_close_socket_if_timeout=False))
        async with serving({SILENT: silent}) as server:
            address = address_of(server)
            with pytest.raises(Timeout):
                await client.invoke(address, request(code=SILENT), timeout_ms=20)
            assert (await client.invoke(address, request())).code == 0
            assert server.metrics.connections_opened == 1
            await client.close()

    run(main())


def test_cancelled_request_leaves_no_pending_entry(run: Any) -> None:
    async def main() -> None:
        client = RemotingClient()
        async with serving({SILENT: silent}) as server:
            task = asyncio.ensure_future(client.invoke(address_of(server), request(code=SILENT)))
            await eventually(lambda: server.metrics.requests[SILENT] == 1)
            (connection,) = client.connections
            assert connection.requests_pending == 1
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0)
            assert connection.requests_pending == 0
            assert not connection.closed
            await client.close()

    run(main())


def test_cancelling_one_of_two_who_wait_for_a_connection_leaves_the_other(run: Any) -> None:
    async def main() -> None:
        client = RemotingClient()
        async with serving() as server:
            address = address_of(server)
            first = asyncio.ensure_future(client.invoke(address, request(body=b"1")))
            second = asyncio.ensure_future(client.invoke(address, request(body=b"2")))
            await asyncio.sleep(0)
            first.cancel()
            assert (await second).body == b"2"
            assert server.metrics.connections_opened == 1
            await client.close()

    run(main())


def test_connection_is_opened_again_after_the_server_came_back(run: Any) -> None:
    async def main() -> None:
        client = RemotingClient()
        async with serving() as server:
            address, port = address_of(server), server.port
            await client.invoke(address, request())
        await eventually(lambda: not client.open_connections())
        with pytest.raises(ConnectionLost, match=address):
            await client.invoke(address, request())
        again = RemotingServer({ECHO: lambda _c, command: command.response(0)})
        await again.start("127.0.0.1", port)
        assert (await client.invoke(address, request())).code == 0
        await client.close()
        await again.stop()

    run(main())


def test_request_in_flight_fails_at_once_when_the_server_goes(run: Any) -> None:
    async def main() -> None:
        client = RemotingClient()
        async with serving({SILENT: silent}) as server:
            task = asyncio.ensure_future(client.invoke(address_of(server), request(code=SILENT), 20_000))
            await eventually(lambda: server.metrics.requests[SILENT] == 1)
            await server.stop()
            with pytest.raises(ConnectionLost):
                await task
        await client.close()

    run(main())


def test_connect_timeout_ends_an_attempt_that_hangs(run: Any) -> None:
    async def main() -> None:
        with socket.socket() as full:  # a listener whose queue is full answers no SYN
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            address = f"127.0.0.1:{full.getsockname()[1]}"
            fillers = [socket.socket() for _ in range(8)]
            for filler in fillers:
                filler.setblocking(False)
                filler.connect_ex(full.getsockname())
            client = RemotingClient(config=NetConfig(connect_timeout_millis=30))
            with pytest.raises((ConnectionLost, Timeout), match=address):
                await client.invoke(address, request(), timeout_ms=200)
            assert not client.connections
            await client.close()
            for filler in fillers:
                filler.close()

    run(main())


def test_closed_client_refuses_and_close_is_idempotent(run: Any) -> None:
    async def main() -> None:
        client = RemotingClient()
        async with serving() as server:
            await client.invoke(address_of(server), request())
            await client.close()
            await client.close()
            assert not client.connections
            with pytest.raises(ConnectionLost):
                await client.invoke(address_of(server), request())
        await RemotingClient().close()  # never used

    run(main())


def test_close_while_a_connection_is_being_opened(run: Any) -> None:
    async def main() -> None:
        client = RemotingClient()
        async with serving() as server:
            task = asyncio.ensure_future(client.invoke(address_of(server), request()))
            await asyncio.sleep(0)
            await client.close()
            with pytest.raises((ConnectionLost, asyncio.CancelledError)):
                await task
            await eventually(lambda: not server.connections)

    run(main())


def test_idle_connection_of_a_client_is_closed_and_opened_again_when_needed(run: Any) -> None:
    async def main() -> None:
        clock = ManualClock()
        client = RemotingClient(config=NetConfig(scan_interval_ms=5), now_ms=clock)
        async with serving() as server:
            await client.invoke(address_of(server), request())
            clock.now += 120_000
            await eventually(lambda: client.metrics.connections_closed[CloseReason.IDLE] == 1)
            await client.invoke(address_of(server), request())
            assert server.metrics.connections_opened == 2
            await client.close()

    run(main())


def test_host_names_and_ipv6_addresses_are_accepted(run: Any) -> None:
    async def main() -> None:
        client = RemotingClient()
        async with serving() as server:
            assert (await client.invoke(f"localhost:{server.port}", request())).code == 0
        six = RemotingServer({ECHO: lambda _c, command: command.response(0)})
        try:
            await six.start("::1", 0)
        except ConfigError:
            pytest.skip("this machine has no IPv6 loopback")
        assert (await client.invoke(f"[::1]:{six.port}", request())).code == 0
        await client.close()
        await six.stop()

    run(main())


@pytest.mark.parametrize("text", ["", "host", "host:", ":9876", "host:port", "host:70000", "host:-1"])
def test_bad_address_is_a_config_error_that_names_it(run: Any, text: str) -> None:
    async def main() -> None:
        client = RemotingClient()
        with pytest.raises(ConfigError, match="is not host:port"):
            await client.invoke(text, request())
        await client.close()

    run(main())


def test_addresses_in_text_and_bytes() -> None:
    assert parse_address(" broker-1.example:10911 ") == ("broker-1.example", 10911)
    assert parse_address("[fe80::1%eth0]:1") == ("fe80::1%eth0", 1)
    assert parse_address("0:0:0:0:0:0:0:1:9876") == ("0:0:0:0:0:0:0:1", 9876)
    assert format_address("::1", 5) == "[::1]:5"
    assert format_address("10.0.0.1", 5) == "10.0.0.1:5"
    assert plain_host("::ffff:10.1.2.3") == "10.1.2.3"
    assert plain_host("fe80::1%eth0") == "fe80::1"
    assert host_bytes("10.1.2.3", 258) == b"\x0a\x01\x02\x03\x00\x00\x01\x02"
    assert host_bytes("", 0) == bytes(8)
