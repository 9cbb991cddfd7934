"""Machines on one machine: a network namespace for each broker and one for the NameServer, joined by a bridge.

Packets are dropped by iptables inside the namespaces, so that nothing else on this machine notices. Clients live
outside and reach everybody, unless a test says otherwise. Needs root, ``ip`` and ``iptables``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from functools import cache

from cometmq.testing.group_processes import NAME_SERVER, GroupProcesses

CLIENTS = 254  # number of the outside in addresses


@cache
def unavailable() -> str:
    """Why there can be no such network here; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "iptables"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    probe = f"cqprobe{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False)
    if made.returncode != 0:
        return f"no network namespaces: {made.stderr.decode().strip()}"
    works = subprocess.run(
        ["ip", "netns", "exec", probe, "iptables", "-L", "-n"], capture_output=True, check=False
    )
    subprocess.run(["ip", "netns", "del", probe], check=True)
    return "" if works.returncode == 0 else "iptables does not work in a network namespace"


class Network:
    """Nodes are numbered as the brokers are; 0 is the NameServer."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self.nodes = list(nodes)
        self._name = f"cq{os.getpid() % 100_000}"
        self._subnet = f"10.{70 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
        self._hub = f"{self._name}hub"

    def __enter__(self) -> Network:
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _build(self) -> None:
        _run("ip", "netns", "add", self._hub)
        self._inside(self._hub, "ip", "link", "add", "bridge", "type", "bridge")
        self._inside(self._hub, "ip", "link", "set", "bridge", "up")
        for node in self.nodes:
            _run("ip", "netns", "add", self.namespace(node))
            self._inside(self.namespace(node), "ip", "link", "set", "lo", "up")
            self._cable(f"n{node}", self.namespace(node), node)
        self._cable("out", "", CLIENTS)

    def _cable(self, port: str, namespace: str, number: int) -> None:
        """From a port of the bridge into a namespace, or to the outside."""
        end = f"{self._name}o" if not namespace else "eth0"
        _run("ip", "-n", self._hub, "link", "add", port, "type", "veth", "peer", "name", end)
        where = ("netns", namespace) if namespace else ("netns", "1")
        _run("ip", "-n", self._hub, "link", "set", end, *where)
        _run("ip", "-n", self._hub, "link", "set", port, "master", "bridge", "up")
        into = ("-n", namespace) if namespace else ()
        _run("ip", *into, "addr", "add", f"{self.ip(number)}/24", "dev", end)
        _run("ip", *into, "link", "set", end, "up")

    def close(self) -> None:
        for namespace in (*map(self.namespace, self.nodes), self._hub):
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)

    def ip(self, node: int) -> str:
        return f"{self._subnet}.{node + 1 if node != CLIENTS else CLIENTS}"

    def namespace(self, node: int) -> str:
        return f"{self._name}n{node}"

    # -- faults ---------------------------------------------------------------------------------------------------

    def cut(self, sender: int, receiver: int, port: int = 0) -> None:
        """Nothing of the sender arrives at the receiver any more; only to and from this port, if one is given."""
        rule = ["INPUT", "-s", self.ip(sender)]
        if not port:
            self._rule(receiver, *rule)
            return
        self._rule(receiver, *rule, "-p", "tcp", "--dport", str(port))
        self._rule(receiver, *rule, "-p", "tcp", "--sport", str(port))

    def part(self, some: Iterable[int], others: Iterable[int]) -> None:
        """Neither side hears the other."""
        for one in some:
            for other in others:
                self.cut(one, other)
                self.cut(other, one)

    def heal(self) -> None:
        for node in self.nodes:
            self._inside(self.namespace(node), "iptables", "-F")

    def _rule(self, node: int, *rule: str) -> None:
        self._inside(self.namespace(node), "iptables", "-A", *rule, "-j", "DROP")

    @staticmethod
    def _inside(namespace: str, *command: str) -> None:
        _run("ip", "netns", "exec", namespace, *command)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.decode().strip()}")


class NetworkedGroup(GroupProcesses):
    """Brokers and a NameServer that live in namespaces of a ``Network``."""

    def __init__(self, network: Network, *args: object, **options: object) -> None:
        self.network = network
        super().__init__(*args, **options)  # type: ignore[arg-type]

    def host_of(self, number: int) -> str:
        return self.network.ip(number)

    def command_of(self, number: int) -> list[str]:
        return ["ip", "netns", "exec", self.network.namespace(number), *super().command_of(number)]

    @property
    def everybody(self) -> list[int]:
        return [NAME_SERVER, *self.ids]
