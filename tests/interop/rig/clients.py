"""Java producers, consumers and admin as Python objects; each test has its own set, closed at its end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from .peer import Event, JavaPeer
from .waiting import wait_for

Json = dict[str, Any]
_numbers = itertools.count(1)

FIRST = "CONSUME_FROM_FIRST_OFFSET"


class Facade:
    """One started client object of the Java process."""

    kind = ""

    def __init__(self, peer: JavaPeer, namesrv: str, group: str, **settings: Any) -> None:
        self.peer = peer
        self.group = group
        self.name = f"{self.kind}-{next(_numbers)}"
        self.client_id: str = self.call("start", namesrv=namesrv, group=group, **settings)
        self.running = True

    def call(self, verb: str, **arguments: Any) -> Any:
        return self.peer.call(f"{self.kind}.{verb}", name=self.name, **arguments)

    def stop(self) -> None:
        if self.running:
            self.running = False
            self.call("stop")


class Producer(Facade):
    kind = "producer"

    def send(self, topic: str, body: str = "", *, queue: Json | None = None, **message: Any) -> Json:
        extra = {} if queue is None else {"queue": queue}
        result: Json = self.call("send", message={"topic": topic, "body": body, **message}, **extra)
        return result

    def send_many(self, messages: Iterable[Json]) -> list[Json]:
        """In order, going on after failures: each item is a result or ``{"error": ...}``."""
        results: list[Json] = self.call("sendMany", messages=list(messages))
        return results

    def send_async(self, messages: Iterable[Json]) -> list[Json]:
        results: list[Json] = self.call("sendAsync", messages=list(messages))
        return results

    def send_oneway(self, messages: Iterable[Json]) -> None:
        self.call("sendOneway", messages=list(messages))

    def send_batch(self, messages: Iterable[Json]) -> Json:
        result: Json = self.call("sendBatch", messages=list(messages))
        return result

    def send_in_transaction(self, topic: str, body: str, local: str, **message: Any) -> Json:
        whole = {"topic": topic, "body": body, **message}
        result: Json = self.call("sendInTransaction", message=whole, local=local)
        return result

    def request(self, topic: str, body: str, timeout_ms: int = 10_000, **message: Any) -> Json:
        whole = {"topic": topic, "body": body, **message}
        reply: Json = self.call("request", message=whole, timeoutMs=timeout_ms)
        return reply

    def queues(self, topic: str) -> list[Json]:
        found: list[Json] = self.call("queues", topic=topic)
        return found

    @property
    def checks(self) -> list[Event]:
        return [event for event in self.peer.events(self.name) if event["event"] == "check"]


class PushConsumer(Facade):
    kind = "push"

    @property
    def messages(self) -> list[Event]:
        return [event for event in self.peer.events(self.name) if event["event"] == "message"]

    @property
    def bodies(self) -> list[str]:
        return [event["body"] for event in self.messages]

    def wait_count(self, count: int, timeout: float = 30) -> list[Event]:
        return self.wait(lambda events: len(events) >= count, f"{count} messages", timeout)

    def wait_bodies(self, bodies: Iterable[str], timeout: float = 30) -> list[Event]:
        wanted = set(bodies)
        return self.wait(
            lambda got: wanted <= {e.get("body") for e in got}, f"bodies {sorted(wanted)[:20]}", timeout
        )

    def wait_consumed(self, count: int, timeout: float = 30) -> None:
        """Until the client's own offsets say so: it counts a message only after the listener has seen it."""
        wait_for(lambda: self.call("consumed") >= count, f"{count} consumed at {self.name}", timeout)

    def wait(self, enough: Callable[[list[Event]], bool], what: str, timeout: float = 30) -> list[Event]:
        return self.peer.wait_events(self.name, enough, f"{what} at {self.name}", timeout)

    def queues(self) -> list[tuple[str, int]]:
        return [(queue["broker"], queue["queue"]) for queue in self.call("queues")]

    def wait_queues(self, count: int, timeout: float = 30) -> list[tuple[str, int]]:
        wait_for(lambda: len(self.queues()) == count, f"{self.name} to hold {count} queues", timeout)
        return self.queues()


class LitePull(Facade):
    kind = "lite"

    def poll(self, timeout_ms: int = 1000) -> list[Json]:
        messages: list[Json] = self.call("poll", timeoutMs=timeout_ms)
        return messages

    def poll_until(self, count: int, timeout: float = 30) -> list[Json]:
        messages: list[Json] = []

        def enough() -> bool:
            messages.extend(self.poll(500))
            return len(messages) >= count

        wait_for(enough, f"{count} polled messages", timeout)
        return messages

    def assignment(self) -> list[Json]:
        queues: list[Json] = self.call("assignment")
        return queues


class PullConsumer(Facade):
    kind = "pull"

    def pull(self, queue: Json, offset: int, count: int = 32, tags: str = "*", **extra: Any) -> Json:
        result: Json = self.call("pull", offset=offset, count=count, tags=tags, **queue, **extra)
        return result

    def pull_all(self, queue: Json, offset: int = 0) -> list[Json]:
        """Every message of a queue, by as many pulls as it takes."""
        messages: list[Json] = []
        while (result := self.pull(queue, offset))["status"] == "FOUND":
            messages += result["messages"]
            offset = result["next"]
        return messages

    def queues(self, topic: str) -> list[Json]:
        found: list[Json] = self.call("queues", topic=topic)
        return found

    def offset(self, queue: Json) -> int:
        stored: int = self.call("offset", **queue)
        return stored

    def set_offset(self, queue: Json, offset: int) -> None:
        """The client stores it one-way, and only logs a failure: asked again until the broker has it."""

        def stored() -> bool:
            self.call("setOffset", offset=offset, **queue)
            return self.offset(queue) == offset

        wait_for(stored, f"offset {offset} at the broker")


class Admin:
    """Administration of one cluster through Java's admin client, and the mqadmin tool."""

    def __init__(self, peer: JavaPeer, namesrv: str, **settings: Any) -> None:
        self.peer = peer
        self.namesrv = namesrv
        self.settings = settings

    def call(self, verb: str, **arguments: Any) -> Any:
        return self.peer.call(f"admin.{verb}", namesrv=self.namesrv, **self.settings, **arguments)

    def create_topic(self, topic: str, queues: int = 4, broker: str | None = None) -> str:
        """Create a topic and wait until every NameServer has its route."""
        self.call("createTopic", topic=topic, queues=queues, broker=broker)
        for address in self.namesrv.split(";"):
            wait_for(lambda at=address: self.peer_route(at, topic), f"the route of {topic} at {address}")
        return topic

    def peer_route(self, address: str, topic: str) -> Json | None:
        from .peer import JavaError

        try:
            route: Json = self.peer.call("admin.route", namesrv=address, topic=topic, **self.settings)
        except JavaError:
            return None
        return route

    def route(self, topic: str) -> Json | None:
        return self.peer_route(self.namesrv, topic)

    def mqadmin(self, *argv: str, timeout: float = 60) -> str:
        """Run mqadmin in the Java process; what it printed to stdout and stderr."""
        printed = self.peer.call("mqadmin", argv=[argv[0], "-n", self.namesrv, *argv[1:]], timeout=timeout)
        return str(printed["out"] + printed["err"])

    def max_offset(self, queue: Json) -> int:
        offset: int = self.call("maxOffset", **queue)
        return offset

    def progress(self, group: str, topic: str | None = None) -> dict[str, list[int]]:
        """``topic@broker@queue`` -> [broker offset, consumer offset]."""
        rows: dict[str, list[int]] = self.call("progress", group=group, topic=topic)
        return rows


class JavaClients:
    """What one test starts in the Java process."""

    def __init__(self, peer: JavaPeer) -> None:
        self.peer = peer
        self._started: list[Facade] = []

    def producer(self, namesrv: str, group: str = "PG_interop", **settings: Any) -> Producer:
        return self._keep(Producer(self.peer, namesrv, group, **settings))

    def push(
        self,
        namesrv: str,
        group: str,
        subscriptions: dict[str, Any],
        *,
        start_from: str = FIRST,
        **settings: Any,
    ) -> PushConsumer:
        whole = {"subscriptions": subscriptions, "from": start_from, **settings}
        return self._keep(PushConsumer(self.peer, namesrv, group, **whole))

    def known_group(self, namesrv: str, group: str, topic: str, *, queues: int = 0) -> str:
        """Make the broker know the group and its retry topic: later members find the route when they start.

        Otherwise the first member meets the retry topic only with its next rebalance, after 20 s. With the number
        of ``queues`` of the topic the group certainly has an offset in each; without, it depends on the moment.
        """
        member = self.push(namesrv, group, {topic: "*"})
        if queues:
            member.wait_queues(queues)
        member.stop()
        admin = self.admin(namesrv)
        wait_for(lambda: admin.route(f"%RETRY%{group}"), f"the retry topic of {group}")
        return group

    def lite(self, namesrv: str, group: str, *, start_from: str = FIRST, **settings: Any) -> LitePull:
        return self._keep(LitePull(self.peer, namesrv, group, **{"from": start_from, **settings}))

    def pull(self, namesrv: str, group: str = "CG_pull", **settings: Any) -> PullConsumer:
        return self._keep(PullConsumer(self.peer, namesrv, group, **settings))

    def admin(self, namesrv: str, **settings: Any) -> Admin:
        return Admin(self.peer, namesrv, **settings)

    def close(self) -> None:
        for facade in reversed(self._started):
            facade.stop()

    def _keep(self, facade: Any) -> Any:
        self._started.append(facade)
        return facade
