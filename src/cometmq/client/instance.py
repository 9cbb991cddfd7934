"""What the producers, consumers and the admin of one client share: connections, routes, heartbeats, identity.

RocketMQ calls this a client instance. It starts with the first use, knows its members by group, and ends with the
client. Loop thread only.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from cometmq.client import forks, identity
from cometmq.client.background import Background, Wake
from cometmq.client.broker_calls import BrokerCalls
from cometmq.client.name_servers import NameServers
from cometmq.client.namespace import unwrap, wrap
from cometmq.client.replies import Replies
from cometmq.client.routes import Routes
from cometmq.client.send_pipe import SendPipe, fast_path, silent_since
from cometmq.client.settings import Settings, milliseconds, seconds
from cometmq.clock import Clock
from cometmq.clock import now_ms as wall_clock
from cometmq.errors import ClientClosed, ClientError, CometMQError, Timeout
from cometmq.net.client import RemotingClient
from cometmq.net.config import NetConfig
from cometmq.net.connection import Connection
from cometmq.net.endpoint import Handler
from cometmq.net.metrics import CloseReason
from cometmq.net.tls import TlsConfig
from cometmq.protocol.acl_signature import sign
from cometmq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import UnregisterClientHeader
from cometmq.protocol.message_id import UniqueIds

if TYPE_CHECKING:
    from cometmq.client.loop_thread import LoopThread
    from cometmq.client.transactions import TransactionalProducer

log = logging.getLogger(__name__)

# Every client of every language lists this group: the producer that resends messages which could not be sent back.
INNER_PRODUCER = "CLIENT_INNER_PRODUCER"
DISCOVERY_INTERVAL_S = 120.0
VIP_PORT_DISTANCE = 2
# With vip_channel these still go to the ordinary port: brokers know clients by it, and pulls are not served
# on the other.
NOT_VIP = frozenset(
    {
        RequestCode.PULL_MESSAGE,
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.END_TRANSACTION,
        RequestCode.GET_BROKER_CONFIG,
    }
)


class ConsumerMember(Protocol):
    """A consumer as the instance sees it."""

    @property
    def group(self) -> str: ...
    def heartbeat_data(self) -> ConsumerData: ...
    def topics(self) -> list[str]: ...
    def wake(self) -> None: ...


class Instance:
    """The shared part of a client."""

    def __init__(self, settings: Settings, *, now_ms: Clock = wall_clock) -> None:
        self.settings = settings
        self.now_ms = now_ms
        self.namespace = settings.namespace
        instance = settings.instance_name or identity.unique_instance()
        self.client_id = identity.client_id(instance, settings.unit_name, settings.client_ip or None)
        self.handlers: dict[int, Handler] = {}
        self.remoting = RemotingClient(
            self.handlers,
            config=NetConfig(
                connect_timeout_millis=milliseconds(settings.connect_timeout),
                client_close_socket_if_timeout=False,  # only silent connections are closed, see _call
            ),
            tls=TlsConfig(enable=bool(settings.tls)),
        )
        self.remoting.handlers = self.handlers
        self.remoting._ssl_context = settings.ssl_context()
        self.remoting.fast_path = fast_path
        self.name_servers = NameServers(settings, self._call)
        self.routes = Routes(self.name_servers, milliseconds(settings.request_timeout))
        self.brokers = BrokerCalls(self.invoke, self.invoke_oneway)
        self.unique_ids = UniqueIds(identity.local_ip(), os.getpid(), random.getrandbits(32), now_ms)
        self.background = Background()
        self.producer_groups: dict[str, int] = {INNER_PRODUCER: 1}
        self.consumers: dict[str, ConsumerMember] = {}
        self.broker_versions: dict[str, int] = {}  # of those that took a heartbeat
        self.replies = Replies()
        self.checkers: dict[str, TransactionalProducer] = {}
        self.loop: asyncio.AbstractEventLoop | None = None
        self.thread: LoopThread | None = None  # of an isolated client: where all of this runs
        self._heartbeat_wake = Wake()
        self._generation = forks.generation()
        self._closed = False
        self._pipes: dict[str, SendPipe] = {}
        self._refresh_soon: set[str] = set()
        self._heartbeat_task: asyncio.Task[None] | None = None  # the one under way
        self._next_heartbeat: asyncio.Task[None] | None = None  # the one after it

    # --- life ---

    async def start(self) -> None:
        """Bind to the running loop and begin the periodic work. Nothing is sent yet."""
        if self.loop is not None:
            self.check_usable()
            return
        self.loop = asyncio.get_running_loop()
        self._generation = forks.generation()
        settings = self.settings
        self.routes.brokers_changed.append(self._heartbeat_wake.set)
        self.routes.changed.append(self._route_changed)
        from cometmq.client import server_requests  # here, because it knows producers and consumers

        server_requests.install(self)
        self.background.spawn(self._heartbeats(), "heartbeats")
        self.background.every(seconds(settings.route_interval), self.refresh_routes, "routes")
        if self.name_servers.discovers:
            self.background.every(DISCOVERY_INTERVAL_S, self.name_servers.discover, "discovery")

    @property
    def started(self) -> bool:
        return self.loop is not None and not self._closed

    def check_usable(self) -> None:
        """Raise unless started, open, and in the process that started it."""
        forks.check(self._generation)
        if self._closed:
            raise ClientClosed("this client is closed; make a new one")
        if self.loop is None:
            raise ClientClosed(
                "this client is not started; use 'async with Client(...)' or await client.start()"
            )

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self.background.close()
        if self.loop is not None:
            await self._unregister_producers([INNER_PRODUCER])
        await self.remoting.close()

    # --- names ---

    def wire(self, name: str) -> str:
        return wrap(self.namespace, name)

    def plain(self, name: str) -> str:
        return unwrap(self.namespace, name)

    # --- calls ---

    def _address(self, address: str) -> str:
        if not self.settings.vip_channel:
            return address
        host, _, port = address.rpartition(":")
        return f"{host}:{int(port) - VIP_PORT_DISTANCE}"

    def signed(self, command: RemotingCommand) -> RemotingCommand:
        """With credentials: the access key and the signature added."""
        settings = self.settings
        if settings.access_key:
            sign(command, settings.access_key, settings.secret_key, settings.security_token or None)
        return command

    async def invoke(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        self.check_usable()
        if self.settings.vip_channel and command.code not in NOT_VIP:
            address = self._address(address)
        return await self._call(address, self.signed(command), timeout_ms)

    async def _call(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """A request over the shared connection. If it times out and nothing at all came back meanwhile, the
        connection is dead (a firewall forgot it) and is closed, so that the next request opens another.
        """
        began = time.monotonic()
        try:
            return await self.remoting.invoke(address, command, timeout_ms)
        except Timeout:
            connection = self.remoting.open_connections().get(address)
            if connection is not None and silent_since(connection, began):
                connection.close(CloseReason.REQUEST_TIMEOUT)
            raise

    async def invoke_oneway(self, address: str, command: RemotingCommand) -> None:
        self.check_usable()
        await self.remoting.invoke_oneway(address, self.signed(command))

    def open_pipe(self, address: str) -> SendPipe | None:
        """The short way to a broker if there is a connection."""
        pipe = self._pipes.get(address)
        return pipe if pipe is not None and not pipe.closed else None

    async def send_pipe(self, address: str, timeout_ms: int) -> SendPipe:
        """The short way to a broker, connected."""
        pipe = self._pipes.get(address)
        if pipe is not None and not pipe.closed:
            return pipe
        assert self.loop is not None
        connection = await self.remoting.connection(self._address(address), timeout_ms)
        pipe = self._pipes[address] = SendPipe.of(connection, address, self.loop)
        return pipe

    # --- members ---

    def add_producer(self, group: str) -> None:
        self.producer_groups[group] = self.producer_groups.get(group, 0) + 1
        self._heartbeat_wake.set()

    async def remove_producer(self, group: str) -> None:
        left = self.producer_groups.get(group, 0) - 1
        if left > 0:
            self.producer_groups[group] = left
        elif self.producer_groups.pop(group, None) is not None and not self._closed:
            await self._unregister_producers([group])

    def add_consumer(self, consumer: ConsumerMember) -> None:
        if consumer.group in self.consumers:
            raise ClientError(
                f"this client already has a consumer of group {consumer.group!r}; raise its concurrency, or use "
                "another Client for a second member of the group"
            )
        self.consumers[consumer.group] = consumer

    async def remove_consumer(self, consumer: ConsumerMember) -> None:
        if self.consumers.get(consumer.group) is not consumer:
            return
        del self.consumers[consumer.group]
        await self._everywhere(
            lambda address: self.brokers.unregister(address, self.client_id, consumer=consumer.group)
        )

    async def _unregister_producers(self, groups: list[str]) -> None:
        """Tell brokers that we are connected to; best effort, brokers notice a closed connection anyway."""
        for group in groups:
            command = _unregister_command(self.client_id, group)
            for connection in self.remoting.open_connections().values():
                if connection.peer not in self.name_servers.addresses:
                    connection.send(self.signed(command))

    async def _everywhere(self, call: Callable[[str], Any]) -> None:
        addresses = self.routes.addresses(masters_only=False)
        connected = self.remoting.open_connections()
        results = await asyncio.gather(
            *(call(address) for address in addresses if address in connected), return_exceptions=True
        )
        for result in results:
            if isinstance(result, CometMQError):
                log.info("a broker was not told: %s", result)
            elif isinstance(result, BaseException):
                raise result

    # --- routes and heartbeats ---

    @property
    def introduced(self) -> set[str]:
        """Addresses of brokers that know us over the connection that is open now."""
        connected = self.remoting.open_connections()
        return {address for address in self.broker_versions if address in connected}

    def address_of(self, connection: Connection) -> str:
        for address, known in self.remoting.open_connections().items():
            if known is connection:
                return address
        return connection.peer

    async def refresh_routes(self) -> None:
        wanted = set(self.routes.topics())
        for consumer in self.consumers.values():
            wanted.update(consumer.topics())
        await self.routes.refresh_all(sorted(wanted))

    def refresh_soon(self, topic: str, delay_s: float = 0.0) -> None:
        """Ask for a route in the background; further wishes for the topic meanwhile are one."""
        if topic not in self._refresh_soon:
            self._refresh_soon.add(topic)
            self.background.spawn(self._refresh_later(topic, delay_s), f"route of {topic}")

    async def _refresh_later(self, topic: str, delay_s: float) -> None:
        try:
            await asyncio.sleep(delay_s)
            await self.routes.refresh_all([topic])
        finally:
            self._refresh_soon.discard(topic)

    def _route_changed(self, topic: str) -> None:
        for consumer in self.consumers.values():
            if topic in consumer.topics():
                consumer.wake()

    async def _heartbeats(self) -> None:
        interval_s = seconds(self.settings.heartbeat_interval)
        while True:
            await self._heartbeat_wake.wait(interval_s)
            self.routes.drop_vanished_brokers()
            await self.heartbeat()

    async def heartbeat(self) -> None:
        """Tell every known broker who we are; returns when all have answered or failed.

        Wishes that come while one is under way share the next one.
        """
        waiting = self._next_heartbeat
        if waiting is None:
            waiting = asyncio.ensure_future(self._heartbeat_after(self._heartbeat_task))
            self._next_heartbeat = waiting
        await asyncio.shield(waiting)

    async def _heartbeat_after(self, running: asyncio.Task[None] | None) -> None:
        if running is not None and not running.done():
            await asyncio.wait([running])
        self._heartbeat_task, self._next_heartbeat = self._next_heartbeat, None
        await self._heartbeat_everywhere()

    async def _heartbeat_everywhere(self) -> None:
        body = self.heartbeat_data().encode()
        addresses = self.routes.addresses(masters_only=not self.consumers)
        await asyncio.gather(*(self._heartbeat_to(address, body) for address in addresses))

    async def _heartbeat_to(self, address: str, body: bytes) -> None:
        try:
            self.broker_versions[address] = await self.brokers.heartbeat(address, body)
        except CometMQError as error:
            if not self._closed:  # closing cuts off what is under way
                log.warning("heartbeat to %s failed: %s", address, error)

    def heartbeat_data(self) -> HeartbeatData:
        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group_name=group) for group in self.producer_groups],
            consumer_data_set=[consumer.heartbeat_data() for consumer in self.consumers.values()],
        )


def _unregister_command(client_id: str, group: str) -> RemotingCommand:
    header = UnregisterClientHeader(client_id=client_id, producer_group=group)
    return RemotingCommand.request(RequestCode.UNREGISTER_CLIENT, header, oneway=True)
