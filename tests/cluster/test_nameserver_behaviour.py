"""A running NameServer, asked over real connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from cometmq.errors import ConfigError
from cometmq.nameserver.config import NameServerConfig
from cometmq.nameserver.server import NameServer
from cometmq.net.client import RemotingClient
from cometmq.net.metrics import CloseReason
from cometmq.protocol.bodies.route import TopicRouteData
from cometmq.protocol.bodies.topic import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
)
from cometmq.protocol.codes import RequestCode, SerializeType
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import BrokerHeader, EmptyHeader, Header, RegisterBrokerHeader

ORDER = "ORDER_TOPIC_CONFIG"


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


def config_in(directory: Path, **settings: Any) -> NameServerConfig:
    return NameServerConfig(
        bind_address="127.0.0.1",
        listen_port=0,
        kv_config_path=str(directory / "kv.json"),
        config_store_path=str(directory / "namesrv.properties"),
        **settings,
    )


@contextlib.asynccontextmanager
async def running(directory: Path, clock: Clock | None = None, **settings: Any) -> AsyncIterator[NameServer]:
    server = NameServer(config_in(directory, **settings), now_ms=clock or Clock(), scan_seconds=0.01)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


class Asker:
    """One client of a NameServer, or a broker that registers."""

    def __init__(self, server: NameServer, name: str = "broker-a", broker_id: int = 0) -> None:
        self.address = server.address
        self.remoting = RemotingClient()
        self.name = name
        self.broker_id = broker_id
        self.broker_addr = f"10.0.0.{broker_id}:10911" if name == "broker-a" else f"10.1.0.{broker_id}:10911"

    async def __aenter__(self) -> Asker:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.remoting.close()

    async def ask(self, code: int, body: bytes = b"", version: int = 407, **fields: str) -> RemotingCommand:
        command = RemotingCommand(code=int(code), ext_fields=fields or None, body=body, version=version)
        return await self.remoting.invoke(self.address, command)

    async def register(
        self, *topics: str, counter: int = 0, perm: int = 6, full: bool = True, **options: Any
    ) -> RemotingCommand:
        names = (*topics, self.name, "TBW102") if full else topics
        wrapper = TopicConfigSerializeWrapper(
            data_version=DataVersion(counter=counter, timestamp=5),
            topic_config_table={t: TopicConfig(topic_name=t, perm=perm, read_queue_nums=8) for t in names},
        )
        compressed = bool(options.pop("compressed", False))
        body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode(compressed=compressed)
        header = RegisterBrokerHeader(
            broker_name=self.name,
            broker_addr=self.broker_addr,
            cluster_name="C1",
            ha_server_addr=self.broker_addr.replace("10911", "10912"),
            broker_id=self.broker_id,
            compressed=compressed,
            body_crc32=options.pop("crc", zlib.crc32(body) & 0x7FFFFFFF),
        )
        return await self._send(RequestCode.REGISTER_BROKER, header, body)

    async def _send(self, code: int, header: Header, body: bytes = b"") -> RemotingCommand:
        return await self.remoting.invoke(self.address, RemotingCommand.request(code, header, body))

    async def unregister(self) -> RemotingCommand:
        return await self._send(RequestCode.UNREGISTER_BROKER, self.broker_header())

    def broker_header(self) -> BrokerHeader:
        return BrokerHeader(
            broker_name=self.name, broker_addr=self.broker_addr, cluster_name="C1", broker_id=self.broker_id
        )

    async def route(self, topic: str) -> TopicRouteData | None:
        answer = await self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
        if answer.code == 17:
            return None
        assert answer.code == 0
        return TopicRouteData.decode(answer.body)

    async def perm(self, topic: str) -> int:
        route = await self.route(topic)
        assert route is not None
        return route.queue_datas[0].perm


async def until(condition: Callable[[], Any], seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        await asyncio.sleep(0.005)


def test_registered_broker_is_in_routes_at_once(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as server, Asker(server) as broker, Asker(server) as client:
            assert await client.route("TBW102") is None
            answer = await broker.register()
            assert (answer.code, answer.ext_fields, answer.body) == (0, {}, b"")
            route = await client.route("TBW102")
            assert route is not None
            assert route.broker_datas[0].broker_addrs == {0: "10.0.0.0:10911"}
            assert route.queue_datas[0].read_queue_nums == 8

    run(main())


def test_killed_broker_is_gone_from_routes_within_a_second(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as server, Asker(server) as client:
            async with Asker(server) as broker:
                await broker.register("T")
                assert await client.route("T")
            began = time.monotonic()
            while await client.route("T"):
                assert time.monotonic() - began < 1

    run(main())


def test_silent_broker_is_gone_after_120_seconds_and_its_connection_closed(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        clock = Clock()
        async with running(tmp_path, clock) as server, Asker(server) as broker, Asker(server) as client:
            await broker.register("T")
            clock.now += 119_000
            await client.route("T")
            clock.now += 1_000
            await asyncio.sleep(0.05)
            assert await client.route("T")
            clock.now += 10_000
            await until(lambda: not server.routes.live_brokers)
            assert await client.route("T") is None
            await until(lambda: not broker.remoting.open_connections())
            closed = server.net.metrics.connections_closed
            assert closed[CloseReason.EXPIRED] + closed[CloseReason.IDLE] == 1

    run(main())


def test_unregistered_broker_is_gone_at_once(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as server, Asker(server) as broker:
            await broker.register("T")
            assert (await broker.unregister()).code == 0
            assert await broker.route("T") is None
            assert (await broker.unregister()).code == 0

    run(main())


def test_all_topics_return_after_a_restart_followed_by_an_updated_topic(run: Any, tmp_path: Path) -> None:
    """The original fails here."""

    async def main() -> None:
        async with running(tmp_path) as server, Asker(server) as broker:
            await broker.register("T", "U", counter=1)
        async with running(tmp_path) as server, Asker(server) as broker:
            await broker.register("U", counter=2, full=False)  # updateTopic
            assert await broker.route("T") is None
            asked = await broker._send(
                RequestCode.QUERY_DATA_VERSION,
                broker.broker_header(),
                DataVersion(counter=2, timestamp=5).encode(),
            )
            assert asked.ext_fields == {"changed": "true"}
            await broker.register("T", "U", counter=2)  # the periodic one
            assert await broker.route("T")

    run(main())


def test_two_nameservers_know_the_same_without_knowing_each_other(run: Any, tmp_path: Path) -> None:
    """One of them stops and comes back, the other goes on."""

    async def main() -> None:
        async with running(tmp_path / "1") as first, Asker(first) as to_first:
            async with running(tmp_path / "2") as second, Asker(second) as to_second:
                for broker in (to_first, to_second):
                    await broker.register("T")
                assert await to_first.route("T") == await to_second.route("T")
            assert await to_first.route("T")
            async with running(tmp_path / "2") as second, Asker(second) as to_second:
                assert await to_second.route("T") is None
                await to_second.register("T")
                assert await to_first.route("T") == await to_second.route("T")

    run(main())


def test_route_keys_are_bare_for_old_versions_and_quoted_for_new_ones(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as server, Asker(server) as broker:
            await broker.register("T")
            for version, options, quoted in (
                (300, {}, False),
                (400, {}, False),
                (401, {}, True),
                (407, {}, True),
                (300, {"acceptStandardJsonOnly": "true"}, True),
            ):
                answer = await broker.ask(105, version=version, topic="T", **options)
                text = bytes(answer.body).decode()
                assert ('{"0":"10.0.0.0:10911"}' in text) is quoted
                assert ('{0:"10.0.0.0:10911"}' in text) is not quoted
                if quoted:
                    json.loads(text)
            cluster = bytes((await broker.ask(106)).body).decode()
            assert '{0:"10.0.0.0:10911"}' in cluster

    run(main())


def test_kv_values_survive_a_restart(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as server, Asker(server) as client:
            assert (await client.ask(100, namespace="ns", key="k", value="v")).code == 0
            assert (await client.ask(100, namespace="ns", key="gone", value="v")).code == 0
            assert (await client.ask(102, namespace="ns", key="gone")).code == 0
        async with running(tmp_path) as server, Asker(server) as client:
            assert (await client.ask(101, namespace="ns", key="k")).ext_fields == {"value": "v"}
            missing = await client.ask(101, namespace="ns", key="gone")
            assert (missing.code, missing.remark) == (22, "No config item, Namespace: ns Key: gone")
            assert missing.ext_fields == {}
            assert json.loads(bytes((await client.ask(219, namespace="ns")).body)) == {"table": {"k": "v"}}
            missing = await client.ask(219, namespace="none")
            assert (missing.code, missing.remark) == (22, "No config item, Namespace: none")
            missing = await client.ask(100, key="k", value="v")
            assert (missing.code, missing.remark) == (1, "namespace or key is null")

    run(main())


@pytest.mark.parametrize("enabled", [False, True])
def test_order_configuration_is_in_the_route_only_when_enabled(
    run: Any, tmp_path: Path, enabled: bool
) -> None:
    """The broker is told it in any case."""

    async def main() -> None:
        async with running(tmp_path, order_message_enable=enabled) as server, Asker(server) as broker:
            await broker.register("T")
            await broker.route("T")  # what was encoded before the change must not be shown after it
            await broker.ask(100, namespace=ORDER, key="T", value="broker-a:8")
            route = await broker.route("T")
            assert route is not None
            assert route.order_topic_conf == ("broker-a:8" if enabled else None)
            answer = await broker.register("T")
            assert json.loads(bytes(answer.body)) == {"table": {"T": "broker-a:8"}}
            await broker.ask(102, namespace=ORDER, key="T")
            route = await broker.route("T")
            assert route is not None
            assert route.order_topic_conf is None
            assert bytes((await broker.register("T")).body) == b'{"table":{}}'

    run(main())


def test_wiped_and_added_write_permission(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as server, Asker(server) as broker:
            await broker.register("T")
            assert (await broker.ask(205, brokerName="broker-a")).ext_fields == {"wipeTopicCount": "3"}
            assert await broker.perm("T") == 4
            await broker.register("T")
            assert await broker.perm("T") == 4
            assert (await broker.ask(327, brokerName="broker-a")).ext_fields == {"addTopicCount": "3"}
            assert await broker.perm("T") == 6
            assert (await broker.ask(205, brokerName="other")).ext_fields == {"wipeTopicCount": "0"}

    run(main())


def test_replica_is_told_its_master(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            running(tmp_path) as server,
            Asker(server) as master,
            Asker(server, broker_id=1) as replica,
        ):
            assert (await replica.register("T")).ext_fields == {}
            await master.register("T")
            told = (await replica.register("T", compressed=True)).ext_fields
            assert told == {"masterAddr": "10.0.0.0:10911", "haServerAddr": "10.0.0.0:10912"}
            route = await replica.route("T")
            assert route is not None
            assert route.broker_datas[0].broker_addrs == {0: "10.0.0.0:10911", 1: "10.0.0.1:10911"}

    run(main())


def test_damaged_registrations_are_refused_and_change_nothing(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as server, Asker(server) as broker:
            answer = await broker.register("T", crc=12345)
            assert (answer.code, answer.remark) == (1, "crc32 not match")
            assert (await broker.ask(103)).code == 1
            header = RegisterBrokerHeader(
                broker_name="b", broker_addr="x:1", cluster_name="c", ha_server_addr="", broker_id=0
            )
            for body in (b"{", b"[1]", b"\xff\xfe"):
                assert (await broker._send(103, header, body)).code == 1
            header.compressed = True
            for body in (b"not zlib", zlib.compress(b"\xff" * 8), zlib.compress(bytes(3))):
                assert (await broker._send(103, header, body)).code == 1
            assert not server.routes.live_brokers
            header.compressed = False
            assert (await broker._send(103, header)).code == 0  # without a body: no topics, version (0, 0)
            (live,) = server.routes.live_brokers
            assert live.data_version == DataVersion()

    run(main())


def test_registration_of_a_very_old_broker_is_the_topic_table_alone(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as server, Asker(server) as broker:
            wrapper = TopicConfigSerializeWrapper(topic_config_table={"T": TopicConfig(topic_name="T")})
            fields = {
                "brokerName": "b",
                "brokerAddr": "x:1",
                "clusterName": "c",
                "haServerAddr": "",
                "brokerId": "0",
            }
            assert (await broker.ask(103, wrapper.encode(), version=36, **fields)).code == 0
            assert await broker.route("T")

    run(main())


def test_lists_of_topics(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as server, Asker(server) as broker:
            await broker.register("T")

            async def topics(code: int, **fields: str) -> list[str]:
                return sorted(TopicList.decode((await broker.ask(code, **fields)).body).topic_list)

            assert await topics(206) == ["T", "TBW102", "broker-a"]
            assert await topics(224, cluster="C1") == ["T", "TBW102", "broker-a"]
            assert await topics(224, cluster="nowhere") == []
            assert await topics(304) == ["C1", "broker-a"]
            for code in (311, 312, 313):
                assert await topics(code) == []
            assert (await broker.ask(216, topic="T", clusterName="C1")).code == 0
            assert await broker.route("T") is None

    run(main())


def test_namespaced_topic_is_an_ordinary_name(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as server, Asker(server) as broker:
            await broker.register("ns%topic", "Größe")
            assert await broker.route("ns%topic")
            assert await broker.route("Größe")

    run(main())


def test_binary_request_is_answered_in_binary(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as server, Asker(server) as broker:
            await broker.register("T")
            command = RemotingCommand(105, ext_fields={"topic": "T"}, serialize_type=SerializeType.ROCKETMQ)
            answer = await broker.remoting.invoke(broker.address, command)
            assert (answer.serialize_type, answer.code) == (SerializeType.ROCKETMQ, 0)

    run(main())


def test_unknown_code_is_answered(run: Any, tmp_path: Path) -> None:
    """The original never answers."""

    async def main() -> None:
        async with running(tmp_path) as server, Asker(server) as client:
            answer = await client.ask(9999)
            assert (answer.code, answer.remark) == (3, " request type 9999 not supported")
            assert (await client.ask(10)).code == 3

    run(main())


def test_oneway_registration_counts_and_is_not_answered(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as server, Asker(server) as broker:
            fields = {
                "brokerName": "b",
                "brokerAddr": "x:1",
                "clusterName": "c",
                "haServerAddr": "",
                "brokerId": "0",
            }
            await broker.remoting.invoke_oneway(
                broker.address, RemotingCommand(103, flag=2, ext_fields=fields)
            )
            await until(lambda: server.routes.live_brokers)
            assert (await broker.ask(106)).code == 0
            assert broker.remoting.metrics.responses_unmatched == 0

    run(main())


def test_settings_are_shown_changed_and_written_back(
    run: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with running(tmp_path) as server, Asker(server) as client:
            shown = bytes((await client.ask(319)).body).decode().splitlines()
            assert "orderMessageEnable=false" in shown
            body = b"orderMessageEnable=true\nserverChannelMaxIdleTimeSeconds=7\norderMesageEnable=false\n"
            assert (await client.ask(318, body)).code == 0
            assert "orderMessageEnable=true" in bytes((await client.ask(319)).body).decode().splitlines()
            assert server.net.config.server_idle_ms == 7000
            for key in ("kvConfigPath", "configStorePath"):
                refused = await client.ask(318, f"{key}=x".encode())
                assert (refused.code, refused.remark) == (16, "Can not update config path")
            refused = await client.ask(318, b"a=\\uzzzz")
            assert (refused.code, refused.remark) == (1, "string2Properties error")
            assert (await client.ask(318)).code == 0
        again = NameServerConfig.from_file(tmp_path / "namesrv.properties")
        assert again.order_message_enable

    with caplog.at_level(logging.WARNING):
        run(main())
    assert "did you mean 'orderMessageEnable'?" in caplog.text


def test_port_in_use_is_one_clear_sentence_and_nothing_is_left(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as server:
            config = config_in(tmp_path)
            config.listen_port = server.port
            with pytest.raises(ConfigError, match=str(server.port)):
                await NameServer(config).start()

    run(main())


def test_hundred_brokers_with_a_hundred_topics_register_quickly(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as server, Asker(server) as client:
            brokers = [Asker(server, name=f"b{n}") for n in range(100)]
            for n, broker in enumerate(brokers):
                broker.broker_addr = f"10.2.0.{n}:10911"
            topics = [f"T{n}" for n in range(100)]
            await asyncio.gather(*(broker.register(*topics) for broker in brokers))
            route = await client.route("T7")
            assert route is not None
            assert len(route.queue_datas) == len(route.broker_datas) == 100
            for broker in brokers:
                await broker.remoting.close()
            await until(lambda: not server.routes.live_brokers)
            assert server.routes.topics() == []

    run(main())


def test_empty_header_is_no_crash(run: Any, tmp_path: Path) -> None:
    """Every request without its fields is answered, never with silence."""

    async def main() -> None:
        async with running(tmp_path) as server, Asker(server) as client:
            for code in server.net.handlers:
                answer = await client.remoting.invoke(
                    client.address, RemotingCommand.request(code, EmptyHeader())
                )
                assert answer.code in (0, 1, 16, 17, 22), code
            assert (await client.ask(206)).code == 0

    run(main())
