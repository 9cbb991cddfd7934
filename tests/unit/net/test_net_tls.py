"""TLS and plain on one port."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from raw_peer import eventually, peer_of, request, serving

from cometmq.errors import ConfigError, ConnectionLost
from cometmq.net import self_signed
from cometmq.net.client import RemotingClient
from cometmq.net.config import NetConfig
from cometmq.net.metrics import CloseReason
from cometmq.net.server import RemotingServer
from cometmq.net.tls import CertificateWatch, TlsConfig, TlsMode, client_context, server_context

TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(32)
ENFORCING = TlsConfig(mode=TlsMode.ENFORCING)
CLIENT = TlsConfig(enable=True)


def address_of(server: RemotingServer) -> str:
    return f"127.0.0.1:{server.port}"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a trusted certificate, and another pair signed by nobody."""
    directory = tmp_path_factory.mktemp("tls")
    for name in ("server", "client", "stranger"):
        self_signed.write_with_openssl(directory / f"{name}.key", directory / f"{name}.pem")
    return directory


def test_plain_and_tls_clients_on_one_port_in_permissive_mode(run: Any) -> None:
    async def main() -> None:
        plain, secure = RemotingClient(), RemotingClient(tls=CLIENT)
        async with serving() as server:
            assert (await plain.invoke(address_of(server), request(body=b"plain"))).body == b"plain"
            assert (await secure.invoke(address_of(server), request(body=b"tls"))).body == b"tls"
            big = os.urandom(3_000_000)
            assert (await secure.invoke(address_of(server), request(body=big))).body == big
            assert server.metrics.tls_connections == 1
            assert sorted(c.tls for c in server.connections) == [False, True]
            await plain.close()
            await secure.close()

    run(main())


def test_plain_is_closed_and_tls_served_in_enforcing_mode(run: Any) -> None:
    async def main() -> None:
        secure = RemotingClient(tls=CLIENT)
        async with serving(tls=ENFORCING) as server, peer_of(server) as peer:
            peer.send(request())
            assert await peer.ended()
            assert server.metrics.connections_closed == {CloseReason.PLAIN_REFUSED: 1}
            assert (await secure.invoke(address_of(server), request())).code == 0
            await secure.close()

    run(main())


def test_tls_hello_on_a_port_with_tls_disabled_is_closed_and_counted(run: Any) -> None:
    async def main() -> None:
        async with serving(tls=TlsConfig(mode=TlsMode.DISABLED)) as server, peer_of(server) as peer:
            peer.writer.write(TLS_HELLO)
            assert await peer.ended()
            await eventually(lambda: server.metrics.connections_closed[CloseReason.TLS_REFUSED] == 1)
            secure = RemotingClient(tls=CLIENT)
            with pytest.raises(ConnectionLost):
                await secure.invoke(address_of(server), request())
            await secure.close()
            async with peer_of(server) as plain:
                assert (await plain.call(request())).code == 0

    run(main())


def test_broken_handshake_is_closed_and_counted(run: Any) -> None:
    async def main() -> None:
        async with serving(tls=ENFORCING) as server, peer_of(server) as peer:
            peer.writer.write(b"\x16" + b"nonsense" * 20)
            while await peer.reader.read(1000):
                pass  # an alert may come before the end
            await eventually(lambda: server.metrics.connections_closed[CloseReason.TLS_FAILED] == 1)
            secure = RemotingClient(tls=CLIENT)
            assert (await secure.invoke(address_of(server), request())).code == 0
            await secure.close()

    run(main())


def test_client_verifies_the_server_when_asked_to(run: Any, authority: Path) -> None:
    async def main() -> None:
        tls = TlsConfig(
            mode=TlsMode.ENFORCING,
            test_mode_enable=False,
            server_cert_path=str(authority / "server.pem"),
            server_key_path=str(authority / "server.key"),
        )
        good = TlsConfig(
            enable=True, client_auth_server=True, client_trust_cert_path=str(authority / "server.pem")
        )
        bad = TlsConfig(
            enable=True, client_auth_server=True, client_trust_cert_path=str(authority / "stranger.pem")
        )
        async with serving(tls=tls) as server:
            trusting, doubting = RemotingClient(tls=good), RemotingClient(tls=bad)
            assert (await trusting.invoke(address_of(server), request())).code == 0
            with pytest.raises(ConnectionLost, match="certificate"):
                await doubting.invoke(address_of(server), request())
            await trusting.close()
            await doubting.close()

    run(main())


def test_client_certificates_are_required_when_configured(run: Any, authority: Path) -> None:
    async def main() -> None:
        tls = TlsConfig(
            mode=TlsMode.ENFORCING,
            test_mode_enable=False,
            server_cert_path=str(authority / "server.pem"),
            server_key_path=str(authority / "server.key"),
            server_need_client_auth="require",
            server_auth_client=True,
            server_trust_cert_path=str(authority / "client.pem"),
        )
        known = TlsConfig(
            enable=True,
            client_cert_path=str(authority / "client.pem"),
            client_key_path=str(authority / "client.key"),
        )
        async with serving(tls=tls) as server:
            good, without = RemotingClient(tls=known), RemotingClient(tls=CLIENT)
            assert (await good.invoke(address_of(server), request())).code == 0
            with pytest.raises(ConnectionLost):
                await without.invoke(address_of(server), request())
            await good.close()
            await without.close()

    run(main())


def test_new_certificate_is_used_without_a_restart(run: Any, authority: Path, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"

    def install(name: str) -> None:
        for suffix, target in ((".key", key), (".pem", certificate)):
            temporary = target.with_suffix(".tmp")
            temporary.write_bytes((authority / f"{name}{suffix}").read_bytes())
            os.replace(temporary, target)

    async def served(port: int) -> bytes:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client_context(CLIENT))
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return bytes(shown)

    async def main() -> None:
        install("server")
        tls = TlsConfig(
            mode=TlsMode.ENFORCING,
            test_mode_enable=False,
            server_cert_path=str(certificate),
            server_key_path=str(key),
        )
        async with serving(tls=tls, config=NetConfig(scan_interval_ms=5)) as server:
            first = await served(server.port)
            certificate.write_bytes(b"not a certificate")
            key.write_bytes(b"not a key")
            await asyncio.sleep(0.05)
            assert await served(server.port) == first
            install("stranger")
            for _ in range(200):
                second = await served(server.port)
                if second != first:
                    break
                await asyncio.sleep(0.01)
            assert second == ssl.PEM_cert_to_DER_cert((authority / "stranger.pem").read_text())

    run(main())


def test_half_replaced_pair_waits_and_a_new_trust_file_does_not() -> None:
    stamps = {"k": 1, "c": 1, "t": 1}
    config = TlsConfig(server_key_path="k", server_cert_path="c", server_trust_cert_path="t")
    watch = CertificateWatch(config, stamp=stamps.__getitem__)
    assert not watch.changed()
    stamps["k"] = 2
    assert not watch.changed()
    stamps["c"] = 2
    assert watch.changed()
    assert not watch.changed()
    stamps["t"] = 2
    assert watch.changed()


def test_settings_come_from_rocketmq_keys() -> None:
    config = TlsConfig.from_properties(
        {
            "tls.server.mode": "Enforcing",
            "tls.test.mode.enable": "FALSE",
            "tls.server.certPath": " /a.pem ",
            "tls.enable": "true",
            "listenPort": "1",
        }
    )
    assert config == TlsConfig(
        mode=TlsMode.ENFORCING, test_mode_enable=False, server_cert_path="/a.pem", enable=True
    )
    assert TlsConfig.from_properties({"tls.server.mode": "enforcing"}).enable
    assert not TlsConfig.from_properties({"tls.server.mode": "permissive"}).enable
    assert not TlsConfig.from_properties({"tls.server.mode": "enforcing", "tls.enable": "false"}).enable
    with pytest.raises(ConfigError, match="disabled, permissive or enforcing"):
        TlsConfig.from_properties({"tls.server.mode": "on"})


def test_settings_of_a_tls_file_win_over_the_others(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text("tls.test.mode.enable = false\ntls.server.certPath = server.pem\n")
    config = TlsConfig.load(
        {"tls.config.file": str(file), "tls.server.certPath": "x", "tls.server.mode": "disabled"}
    )
    assert config == TlsConfig(mode=TlsMode.DISABLED, test_mode_enable=False, server_cert_path="server.pem")
    with pytest.raises(ConfigError, match="absent"):
        TlsConfig.load({"tls.config.file": "absent"})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "tls.server.certPath is not set"),
        ({"server_cert_path": "missing.pem"}, "missing.pem"),
        ({"server_need_client_auth": "require"}, "tls.server.authClient=true"),
        ({"server_need_client_auth": "maybe"}, "none, optional or require"),
    ],
)
def test_unusable_settings_are_refused_in_one_sentence(
    settings: dict[str, str], words: str, authority: Path
) -> None:
    if "server_need_client_auth" in settings:
        pair = {"server_cert_path": authority / "server.pem", "server_key_path": authority / "server.key"}
        settings = {**settings, **{name: str(path) for name, path in pair.items()}}
    with pytest.raises(ConfigError, match=words):
        server_context(TlsConfig(test_mode_enable=False, **settings))  # type: ignore[arg-type]


def test_bad_certificate_is_found_when_the_server_starts(run: Any) -> None:
    async def main() -> None:
        server = RemotingServer({}, tls=TlsConfig(test_mode_enable=False, server_cert_path="missing.pem"))
        with pytest.raises(ConfigError):
            await server.start("127.0.0.1", 0)

    run(main())


def test_without_any_tool_to_make_a_certificate_the_sentence_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(*_args: object, **_options: object) -> None:
        raise FileNotFoundError("openssl")

    monkeypatch.setattr(subprocess, "run", fails)
    with pytest.raises(ConfigError, match="install cometmq\\[tls\\]"):
        self_signed.write_with_openssl(tmp_path / "k", tmp_path / "c")
