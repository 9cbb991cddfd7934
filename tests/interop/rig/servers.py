"""NameServers and brokers of both kinds as processes, and clusters of them.

``java`` is the reference: the real 4.9.7 from Maven Central. ``comet`` is ours, by its command line.
Both get the same configuration files.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .build import JavaKit
from .ports import HOST, free_broker_port, free_port
from .process import ServerProcess
from .raw import is_registered
from .waiting import wait_for

CLUSTER_NAME = "DefaultCluster"
BROKER_HEAP_MB = 384
NAMESERVER_HEAP_MB = 64

SYSTEM_PREFIXES = ("tls.", "rocketmq.")

BROKER_DEFAULTS = {
    "brokerClusterName": CLUSTER_NAME,
    "brokerId": "0",
    "brokerRole": "ASYNC_MASTER",
    "brokerIP1": HOST,
    "brokerIP2": HOST,
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "5000",
    "maxIndexNum": "20000",
    "maxTransferCountOnMessageInMemory": "32",  # ours takes what the client asks for, unless told
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
    # a shared two-core machine: a pause is no reason to refuse a send
    "waitTimeMillsInSendQueue": "10000",
    "osPageCacheBusyTimeOutMills": "10000",
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1500",
}


class Kind:
    """How one kind of server is started. ``kit`` is needed for Java's only."""

    def __init__(self, name: str, kit: JavaKit) -> None:
        self.name = name
        self.kit = kit

    def nameserver_command(self, conf: Path, system: Mapping[str, str]) -> list[str]:
        if self.name == "comet":
            return [*comet_command(conf.parent), "nameserver", "-c", str(conf)]
        return self._java(conf, system, NAMESERVER_HEAP_MB, "org.apache.rocketmq.namesrv.NamesrvStartup")

    def broker_command(self, conf: Path, system: Mapping[str, str]) -> list[str]:
        if self.name == "comet":
            return [*comet_command(conf.parent), "broker", "-c", str(conf)]
        return self._java(conf, system, BROKER_HEAP_MB, "org.apache.rocketmq.broker.BrokerStartup")

    def _java(self, conf: Path, system: Mapping[str, str], heap_mb: int, main: str) -> list[str]:
        home = str(conf.parent)
        properties = {"rocketmq.home.dir": home, "user.home": home, "log.file": f"{home}/java.log", **system}
        return self.kit.command(main, "-c", str(conf), heap_mb=heap_mb, properties=properties)


def comet_command(home: Path) -> list[str]:
    """Our command line; ``COMETMQ_INTEROP_SOURCE`` names the ``src`` of another checkout to run instead."""
    source = os.environ.get("COMETMQ_INTEROP_SOURCE")
    environment = [f"ROCKETMQ_HOME={home}", *([f"PYTHONPATH={source}"] if source else [])]
    start = "import sys; from cometmq.cli.main import main; sys.exit(main())"
    return ["env", *environment, sys.executable, "-c", start]


def system_part(settings: Mapping[str, str]) -> dict[str, str]:
    """The Java servers take these as system properties, ours from the configuration file.

    Without a word about TLS a Java server does without: making a key costs it more than the rest of its start.
    """
    found = {name: value for name, value in settings.items() if name.startswith(SYSTEM_PREFIXES)}
    return (
        found if any(name.startswith("tls.") for name in found) else {"tls.server.mode": "disabled", **found}
    )


@dataclass
class Cluster:
    """NameServers and brokers that belong together; ``namesrv`` is what clients are given."""

    kind: str
    nameservers: list[ServerProcess] = field(default_factory=list)
    brokers: list[ServerProcess] = field(default_factory=list)

    name = CLUSTER_NAME

    @property
    def namesrv(self) -> str:
        return ";".join(server.address for server in self.nameservers)

    @property
    def broker(self) -> ServerProcess:
        return self.brokers[0]

    def start(self) -> Cluster:
        _start_together(self.nameservers)
        self.start_brokers()
        return self

    def start_brokers(self) -> None:
        _start_together(self.brokers)
        self.wait_registered()

    def wait_registered(self) -> None:
        """A broker listens before it has registered everywhere."""
        for nameserver in self.nameservers:
            for broker in self.brokers:
                wait_for(
                    lambda at=nameserver.address, who=broker.address: is_registered(at, who),
                    f"{broker.name} at {nameserver.address}",
                )

    def close(self) -> None:
        for server in [*self.brokers, *self.nameservers]:
            server.kill()


def _start_together(servers: list[ServerProcess]) -> None:
    for server in servers:
        server.start()
    for server in servers:
        server.wait_ready()


class Foundry:
    """Makes servers below one directory."""

    def __init__(self, kit: JavaKit, directory: Path) -> None:
        self.kinds = {name: Kind(name, kit) for name in ("java", "comet")}
        self.directory = directory
        self.made: list[ServerProcess] = []

    def nameserver(self, kind: str, **settings: str) -> ServerProcess:
        port = free_port()
        directory = self.directory / f"namesrv-{kind}-{port}"
        kv_path = directory / "kvConfig.json"
        conf = _conf(
            directory / "namesrv.conf", {"listenPort": str(port), "kvConfigPath": str(kv_path), **settings}
        )
        self._prepare_home(directory)
        return self._made(
            "namesrv", self.kinds[kind].nameserver_command(conf, system_part(settings)), port, directory
        )

    def broker(
        self, kind: str, namesrv: str, name: str = "broker-a", store: Path | None = None, **settings: str
    ) -> ServerProcess:
        port = int(settings.pop("listenPort", 0)) or free_broker_port()
        directory = self.directory / f"{name}-{kind}-{port}"
        store = store or directory / "store"
        wanted = {
            **BROKER_DEFAULTS,
            "brokerName": name,
            "listenPort": str(port),
            "namesrvAddr": namesrv,
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            **settings,
        }
        self._prepare_home(directory)
        conf = _conf(directory / "broker.conf", wanted)
        return self._made(name, self.kinds[kind].broker_command(conf, system_part(settings)), port, directory)

    def cluster(self, kind: str, *, nameservers: int = 1, brokers: int = 1, **settings: str) -> Cluster:
        """A cluster of one kind, not yet started: brokers broker-a, broker-b, ..."""
        sealed = {"tls.server.mode": "permissive"} if "tls.server.mode" in settings else {}
        cluster = Cluster(kind, [self.nameserver(kind, **sealed) for _ in range(nameservers)])
        for number in range(brokers):
            name = f"broker-{chr(ord('a') + number)}"
            cluster.brokers.append(self.broker(kind, cluster.namesrv, name, **settings))
        return cluster

    def close(self) -> None:
        for server in reversed(self.made):
            server.kill()

    def _made(self, name: str, command: list[str], port: int, directory: Path) -> ServerProcess:
        server = ServerProcess(name, command, port, directory)
        self.made.append(server)
        return server

    def _prepare_home(self, directory: Path) -> None:
        conf = directory / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        for file in (self.kinds["java"].kit.home / "conf").glob("logback_*.xml"):
            (conf / file.name).write_bytes(file.read_bytes())


def _conf(path: Path, settings: Mapping[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path
