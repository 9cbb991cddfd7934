"""A broker and its NameServers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from wire_client import WireClient, running_broker, until

from cometmq.broker import registration
from cometmq.nameserver.config import NameServerConfig
from cometmq.nameserver.server import NameServer
from cometmq.protocol.bodies.route import TopicRouteData
from cometmq.protocol.codes import RequestCode


@asynccontextmanager
async def running_nameserver(directory: Path, port: int = 0) -> AsyncIterator[tuple[NameServer, str]]:
    config = NameServerConfig(
        listen_port=port,
        bind_address="127.0.0.1",
        kv_config_path=str(directory / "kv.json"),
        config_store_path=str(directory / "namesrv.properties"),
    )
    nameserver = NameServer(config)
    address = await nameserver.start()
    try:
        yield nameserver, address
    finally:
        await nameserver.stop()


async def route(client: WireClient, address: str, topic: str) -> TopicRouteData | None:
    response = await client.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, address=address)
    return TopicRouteData.decode(response.body) if response.code == 0 else None


def knows(nameserver: NameServer, topic: str) -> bool:
    return nameserver.routes.route(topic) is not None


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "RETRY_MS_MIN", 20)
    monkeypatch.setattr(registration, "RETRY_MS_MAX", 50)
    monkeypatch.setattr(registration, "FULL_AFTER_CHANGE_MS", 50)


def test_broker_is_routable_as_soon_as_it_is_started(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            running_nameserver(tmp_path) as (_, address),
            running_broker(tmp_path / "store", namesrv_addr=address) as (broker, client),
        ):
            found = await route(client, address, "TBW102")
            assert found is not None
            assert found.broker_datas[0].broker_addrs == {0: broker.address}
            queue = found.queue_datas[0]
            assert (queue.read_queue_nums, queue.write_queue_nums, queue.perm) == (8, 8, 7)

    run(main())


def test_clean_stop_unregisters_at_once(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_nameserver(tmp_path) as (nameserver, address):
            async with running_broker(tmp_path / "store", namesrv_addr=address):
                assert knows(nameserver, "TBW102")
            assert nameserver.routes.topics() == []

    run(main())


def test_created_topic_is_known_to_every_nameserver(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            running_nameserver(tmp_path / "1") as (first, address1),
            running_nameserver(tmp_path / "2") as (second, address2),
            running_broker(tmp_path / "store", namesrv_addr=f"{address1};{address2}") as (_, client),
        ):
            await client.send("New")
            await until(lambda: knows(first, "New") and knows(second, "New"))

    run(main())


def test_one_dead_nameserver_delays_nothing(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            running_nameserver(tmp_path) as (nameserver, address),
            running_broker(tmp_path / "store", namesrv_addr=f"127.0.0.1:1;{address}") as (broker, client),
        ):
            assert knows(nameserver, "TBW102")
            await client.send("New")
            await until(lambda: knows(nameserver, "New"))
            assert broker.registration.failures > 0

    run(main())


def test_restarted_nameserver_gets_all_topics_also_when_one_is_changed_at_once(
    run: Any, tmp_path: Path
) -> None:
    """The original loses the routes of all other topics here."""

    async def main() -> None:
        async with running_nameserver(tmp_path) as (nameserver, address):
            port = nameserver.port
            broker_context = running_broker(tmp_path / "store", namesrv_addr=address)
            broker, client = await broker_context.__aenter__()
            try:
                await client.send("Old")
                await until(lambda: knows(nameserver, "Old"))
                await nameserver.stop()
                async with running_nameserver(tmp_path, port) as (again, _):
                    broker.topics.find_or_create("Changed", queue_nums=4)
                    await broker.registration.register_topics(["Changed"])
                    await until(lambda: all(knows(again, name) for name in ("Changed", "Old", "TBW102")))
            finally:
                await broker_context.__aexit__(None, None, None)

    run(main())


def test_nameserver_that_forgot_us_gets_a_full_registration_instead_of_one_topic(
    run: Any, tmp_path: Path
) -> None:
    """An incremental registration must not be the first thing a NameServer hears."""

    async def main() -> None:
        async with (
            running_nameserver(tmp_path) as (nameserver, address),
            running_broker(tmp_path / "store", namesrv_addr=address) as (broker, _),
        ):
            nameserver.routes.unregister(broker_name="broker-a", broker_id=0, address=broker.address)
            assert not knows(nameserver, "TBW102")
            await broker.registration.register_topics(["BenchmarkTest"])
            assert knows(nameserver, "TBW102")

    run(main())


def test_order_table_of_the_nameserver_sets_the_order_flags(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            running_nameserver(tmp_path) as (_, address),
            running_broker(tmp_path / "store", namesrv_addr=address) as (broker, client),
        ):
            await client.send("Ordered")
            pair = {"namespace": "ORDER_TOPIC_CONFIG", "key": "Ordered", "value": "broker-a:4"}
            await client.call(RequestCode.PUT_KV_CONFIG, pair, address=address)
            await broker.registration.register_all()
            assert broker.topics.table["Ordered"].order

    run(main())


def test_permission_of_the_broker_shows_in_routes_only(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            running_nameserver(tmp_path) as (_, address),
            running_broker(tmp_path / "store", namesrv_addr=address) as (broker, client),
        ):
            await client.send("TopicA")
            broker.config.broker_permission = 4
            broker.topics.bump()

            async def perm() -> int:
                found = await route(client, address, "TopicA")
                return found.queue_datas[0].perm if found is not None else -1

            while await perm() != 4:
                await asyncio.sleep(0.01)
            assert broker.topics.table["TopicA"].perm == 6

    run(main())


def test_unchanged_data_version_is_asked_for_instead_of_registering(run: Any, tmp_path: Path) -> None:
    """With forceRegister=false."""

    async def main() -> None:
        async with (
            running_nameserver(tmp_path) as (nameserver, address),
            running_broker(tmp_path / "store", namesrv_addr=address, force_register=False) as (broker, _),
        ):
            await until(lambda: not broker.registration.pending)
            registrations = broker.registration.registrations
            broker.registration._tick()
            await until(lambda: nameserver.net.metrics.requests[RequestCode.QUERY_DATA_VERSION] > 0)
            assert broker.registration.registrations == registrations
            broker.topics.data_version = broker.topics.data_version.next(1)
            broker.registration._tick()
            await until(lambda: broker.registration.registrations > registrations)

    run(main())


def test_compressed_registration_is_understood(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            running_nameserver(tmp_path) as (nameserver, address),
            running_broker(tmp_path / "store", namesrv_addr=address, compressed_register=True),
        ):
            assert knows(nameserver, "TBW102")

    run(main())


def test_a_thousand_new_topics_take_few_registrations(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            running_nameserver(tmp_path) as (nameserver, address),
            running_broker(tmp_path / "store", namesrv_addr=address) as (broker, _),
        ):
            before = broker.registration.registrations
            for number in range(1_000):
                broker.topics.create_by_send(f"T{number}", template="TBW102", queue_nums=4)
            await until(lambda: knows(nameserver, "T0") and knows(nameserver, "T999"))
            assert broker.registration.registrations - before < 10

    run(main())


def test_topics_created_one_after_the_other_are_told_one_by_one(run: Any, tmp_path: Path) -> None:
    """Not the whole table with each: that would take a time that grows with the number of topics."""

    async def main() -> None:
        async with (
            running_nameserver(tmp_path) as (nameserver, address),
            running_broker(tmp_path / "store", namesrv_addr=address) as (broker, client),
        ):
            await until(lambda: not broker.registration.pending)
            before = nameserver.net.metrics.bytes_in
            for number in range(50):
                fields = {
                    "topic": f"T{number}", "defaultTopic": "TBW102", "readQueueNums": "8", "writeQueueNums": "8",
                    "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false",
                }  # fmt: skip
                assert (await client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)).code == 0
                assert knows(nameserver, f"T{number}")
            await until(lambda: not broker.registration.pending)
            # on a slow machine the whole table may be told in between, but not each time
            assert nameserver.net.metrics.bytes_in - before < 50 * 2_500

    run(main())


def test_broker_works_without_a_nameserver(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with running_broker(tmp_path, namesrv_addr="") as (_, client):
            assert (await client.send("TopicA")).code == 0

    run(main())
