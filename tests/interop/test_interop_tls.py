"""TLS of the Java client: permissive, enforcing, disabled, own certificates."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig.build import JavaKit
from rig.clients import JavaClients
from rig.peer import JavaError, JavaPeer
from rig.servers import Cluster, Foundry

TLS = {"useTLS": True}


def send_and_receive(
    java: JavaClients, namesrv: str, topic: str, group: str, options: dict[str, object]
) -> None:
    consumer = java.push(namesrv, group, {topic: "*"}, options=options)
    assert java.producer(namesrv, f"P{group}", options=options).send(topic, group)["status"] == "SEND_OK"
    consumer.wait_bodies([group])


def test_plain_and_tls_clients_share_a_port(
    java: JavaClients, cluster: Cluster, topic: str, group: str
) -> None:
    send_and_receive(java, cluster.namesrv, topic, f"{group}plain", {})
    send_and_receive(java, cluster.namesrv, topic, f"{group}tls", TLS)


def test_enforcing_broker_refuses_plain_clients(
    java: JavaClients, kind: str, foundry: Foundry, group: str
) -> None:
    cluster = foundry.cluster(kind, **{"tls.server.mode": "enforcing"}).start()
    topic = java.admin(cluster.namesrv, tls=True).create_topic("Sealed")
    send_and_receive(java, cluster.namesrv, topic, group, TLS)
    plain = java.producer(cluster.namesrv, options={"sendMsgTimeout": 1500})
    with pytest.raises(JavaError):
        plain.send(topic, "in the open")
    consumer = java.pull(cluster.namesrv, f"{group}reader", options=TLS)
    stored = [m["body"] for queue in consumer.queues(topic) for m in consumer.pull_all(queue)]
    # the Java broker closes the connection too, but stores what it read from it before
    assert stored == [group] if kind == "comet" else group in stored


def test_disabled_tls_refuses_tls_clients(java: JavaClients, kind: str, foundry: Foundry, group: str) -> None:
    cluster = foundry.cluster(kind, **{"tls.server.mode": "disabled"}).start()
    topic = java.admin(cluster.namesrv).create_topic("Plain")
    send_and_receive(java, cluster.namesrv, topic, group, {})
    with pytest.raises(JavaError):
        java.producer(cluster.namesrv, options={**TLS, "sendMsgTimeout": 1500}).send(topic, "sealed")


class Authority:
    """A certificate authority made with openssl, and certificates signed by it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self.certificate = directory / "ca.pem"
        self._openssl(
            "req", "-x509", *self._new_key("ca"), "-subj", "/CN=Test CA", "-days", "2", "-out", "ca.pem"
        )

    def sign(self, name: str) -> tuple[Path, Path]:
        """(certificate, key) for 127.0.0.1."""
        self._openssl("req", *self._new_key(name), "-subj", f"/CN={name}", "-out", f"{name}.csr")
        (self.directory / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        ca = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names")
        self._openssl("x509", "-req", "-in", f"{name}.csr", *ca, "-days", "2", "-out", f"{name}.pem")
        return self.directory / f"{name}.pem", self.directory / f"{name}.key"

    def _new_key(self, name: str) -> tuple[str, ...]:
        return ("-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.directory, check=True, capture_output=True)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    return Authority(tmp_path / "ca")


@pytest.fixture
def strict_java(java_kit: JavaKit, tmp_path: Path, authority: Authority) -> Iterator[JavaClients]:
    """A Java client that trusts the authority alone and shows a certificate itself."""
    certificate, key = authority.sign("client")
    properties = {
        "tls.test.mode.enable": "false",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(authority.certificate),
        "tls.client.certPath": str(certificate),
        "tls.client.keyPath": str(key),
    }
    peer = JavaPeer(java_kit, tmp_path / "strict-peer", properties)
    clients = JavaClients(peer)
    yield clients
    clients.close()
    peer.close()


def test_own_certificates_are_verified_on_both_sides(
    java: JavaClients, strict_java: JavaClients, kind: str, foundry: Foundry, group: str, authority: Authority
) -> None:
    certificate, key = authority.sign("server")
    settings = {
        "tls.server.mode": "enforcing",
        "tls.test.mode.enable": "false",
        "tls.server.certPath": str(certificate),
        "tls.server.keyPath": str(key),
        "tls.server.trustCertPath": str(authority.certificate),
        "tls.server.authClient": "true",
        "tls.server.need.client.auth": "require",
    }
    as_client = {
        "tls.client.certPath": str(certificate),
        "tls.client.keyPath": str(key),
        "tls.client.trustCertPath": str(authority.certificate),
        "tls.client.authServer": "true",
    }
    nameserver = foundry.nameserver(kind, **{**settings, "tls.server.mode": "permissive"})
    broker = foundry.broker(kind, nameserver.address, **settings, **as_client)
    cluster = Cluster(kind, [nameserver], [broker]).start()
    topic = strict_java.admin(cluster.namesrv, tls=True).create_topic("Certified")
    send_and_receive(strict_java, cluster.namesrv, topic, group, TLS)
    # a client without a certificate of the authority is not let in
    with pytest.raises(JavaError):
        java.producer(cluster.namesrv, options={**TLS, "sendMsgTimeout": 1500}).send(topic, "no certificate")
