"""A broker with TLS, and the trace topic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from acl_kit import Signer, access_key, guarded_broker, secret_key
from live_broker import LiveBroker, live_broker
from message_kit import fields_of, props
from test_acl_table import send_v2

from cometmq.errors import ConnectionLost
from cometmq.net import self_signed
from cometmq.net.client import RemotingClient
from cometmq.net.tls import TlsConfig
from cometmq.protocol.acl_signature import sign
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import QueryMessageHeader
from cometmq.protocol.record_cy import decode_records

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls")
    for name in ("server", "client"):
        self_signed.write_with_openssl(directory / f"{name}.key", directory / f"{name}.pem")
    return directory


def request(topic: str = "TopicTls") -> RemotingCommand:
    code, fields, body = send_v2(topic)
    return RemotingCommand(code=int(code), ext_fields=dict(fields), body=body)  # type: ignore[arg-type]


async def send(live: LiveBroker, client: RemotingClient, address: str | None = None) -> int:
    return (await client.invoke(address or live.address, request(), 5_000)).code


def test_plain_and_tls_clients_share_both_ports_in_permissive_mode(run: Any, tmp_path: Path) -> None:
    """Sends through the handlers and through the compiled path."""

    async def main() -> None:
        async with live_broker(tmp_path) as live:
            plain, secure = RemotingClient(), RemotingClient(tls=TlsConfig(enable=True))
            for client in (plain, secure, plain, secure):
                for address in (live.address, live.fast_address):
                    assert await send(live, client, address) == 0
            assert live.broker.net_metrics.tls_connections == 2
            await plain.close()
            await secure.close()

    run(main())


def test_plain_connections_are_closed_in_enforcing_mode(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, system_properties={"tls.server.mode": "enforcing"}) as live:
            plain, secure = RemotingClient(), RemotingClient(tls=TlsConfig(enable=True))
            assert await send(live, secure) == 0
            with pytest.raises(ConnectionLost):
                await send(live, plain)
            assert live.broker.store.max_offset("TopicTls", 0) == 1
            await plain.close()
            await secure.close()

    run(main())


def test_own_certificates_of_both_sides_and_accounts_together(
    run: Any, tmp_path: Path, certificates: Path
) -> None:
    """The server shows its certificate, wants one of the client, and still asks for a signature."""

    async def main() -> None:
        properties = {
            "tls.test.mode.enable": "false",
            "tls.server.mode": "enforcing",
            "tls.server.keyPath": str(certificates / "server.key"),
            "tls.server.certPath": str(certificates / "server.pem"),
            "tls.server.need.client.auth": "require",
            "tls.server.authClient": "true",
            "tls.server.trustCertPath": str(certificates / "client.pem"),
        }
        async with guarded_broker(tmp_path, system_properties=properties) as live:
            known = RemotingClient(
                tls=TlsConfig(
                    enable=True,
                    client_key_path=str(certificates / "client.key"),
                    client_cert_path=str(certificates / "client.pem"),
                )
            )
            unsigned = await known.invoke(live.address, request("TopicA"), 5_000)
            assert "No accessKey is configured" in (unsigned.remark or "")
            signed = request("TopicA")
            sign(signed, access_key("app"), secret_key("app"))
            assert (await known.invoke(live.address, signed, 5_000)).code == 0
            stranger = RemotingClient(tls=TlsConfig(enable=True))
            with pytest.raises((ConnectionLost, OSError)):
                await stranger.invoke(live.address, request("TopicA"), 5_000)
            await known.close()
            await stranger.close()

    run(main())


def test_trace_records_are_found_by_the_ids_they_name(run: Any, tmp_path: Path) -> None:
    """What queryMsgTraceById asks for."""

    async def main() -> None:
        async with live_broker(tmp_path, trace_topic_enable=True) as live:
            client = live.client()
            topic = live.broker.topics.find(TRACE_TOPIC)
            assert topic is not None
            assert topic.read_queue_nums == 1
            record = "\x01".join(["Pub", "1", "DefaultRegion", "PG", "TopicA", "MSG1", "", "k"]) + "\x02"
            fields_of(await client.send(TRACE_TOPIC, 0, record.encode(), properties=props(KEYS="MSG1 k")))
            header = QueryMessageHeader(
                topic=TRACE_TOPIC, key="MSG1", max_num=64, begin_timestamp=0, end_timestamp=2**62
            )
            response = await client.call(RequestCode.QUERY_MESSAGE, header)
            assert decode_records(response.body)[0].body == record.encode()

    run(main())


def test_trace_topic_exists_only_when_enabled(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, auto_create_topic_enable=False) as live:
            assert (await live.client().send(TRACE_TOPIC)).code == 17

    run(main())


def test_every_account_may_leave_traces(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_broker(tmp_path, trace_topic_enable=True) as live:
            signer = Signer(live, "nobody")
            assert (await signer.call(*send_v2(TRACE_TOPIC))).code == 0
            await signer.close()

    run(main())
