"""The broker: composition root. It builds the parts, joins them, starts and stops them in order.

The parts know each other only through the ``Broker`` they are given, and they are plain objects of the loop thread.
What every part may have, and what this file then does with it:

* ``file_text() -> str`` and ``load_text(data)``: the part is kept in a JSON file of the store's ``config`` directory
  (see ``FILES``); ``broker.save(name)`` has it written soon, in a thread.
* handlers live in ``broker/handlers``: one ``handlers(broker)`` per file answers the request codes it serves.

Start order: lock and recover the store, load the files, listen, begin periodic work, register.
Stop order: stop listening, stop periodic work, unregister, save the files, close the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import logging
from typing import TYPE_CHECKING, Any

from cometmq.broker.clients import Consumers, Producers
from cometmq.broker.config import FAST_PORT_DISTANCE, HA_PORT_DISTANCE, BrokerConfig
from cometmq.broker.filter_data import FilterData
from cometmq.broker.groups import SubscriptionGroups
from cometmq.broker.held_pulls import HeldPulls
from cometmq.broker.locks import QueueLocks
from cometmq.broker.offsets import ConsumerOffsets
from cometmq.broker.periodic import Periodic
from cometmq.broker.registration import Registration
from cometmq.broker.stats import BrokerStats
from cometmq.broker.topics import Topics
from cometmq.clock import Clock, now_ms
from cometmq.net.client import RemotingClient
from cometmq.net.server import Handler, RemotingServer
from cometmq.protocol.codes import RequestCode
from cometmq.store.model import host_port
from cometmq.store.store import MessageStore

if TYPE_CHECKING:
    from collections.abc import Iterable

log = logging.getLogger(__name__)

HANDLER_FILES = (
    "send",
    "pull",
    "query",
    "clients",
    "offsets",
    "locks",
    "admin_topics",
    "admin_groups",
    "admin_consumers",
    "admin_broker",
    "transaction",
    "send_back",
    "reply",
    "acl",
)

# File in the config directory -> attribute of the broker that holds its content
FILES = {
    "topics.json": "topics",
    "subscriptionGroup.json": "groups",
    "consumerOffset.json": "offsets",
    "consumerFilter.json": "filter_data",
    "delayOffset.json": "delay",
}

NOT_ON_FAST_PORT = (RequestCode.PULL_MESSAGE,)
PORT_ATTEMPTS_MAX = 20  # tries to find three free neighbouring ports when listenPort is 0
STORE_TICK_MS = 5_000


class Broker:
    """One broker. ``await start()`` answers when it serves; ``await stop()`` when everything is on disk."""

    def __init__(self, config: BrokerConfig, *, now_ms: Clock = now_ms) -> None:
        self.config = config.resolve()
        self.now_ms = now_ms
        self.periodic = Periodic()
        self.store = MessageStore(config.store_config(), now_ms=now_ms)
        self.stats = BrokerStats(self)
        self.topics = Topics(config, now_ms=now_ms)
        self.groups = SubscriptionGroups(self)
        self.offsets = ConsumerOffsets(self)
        self.filter_data = FilterData(self)
        self.producers = Producers(self)
        self.consumers = Consumers(self)
        self.locks = QueueLocks(self)
        self.held_pulls = HeldPulls(self)
        self.client = RemotingClient()  # to NameServers and masters
        self.registration = Registration(self)
        # Absent until their files exist: see the seams in handlers/send.py
        self.delay: Any = None
        self.transactions: Any = None
        self.acl: Any = None
        self.store_host = b""  # brokerIP1:listenPort as records carry it
        self.savers: dict[str, Any] = {}
        self.boot_timestamp_ms = 0
        self.server: RemotingServer | None = None
        self.fast_server: RemotingServer | None = None

    @property
    def address(self) -> str:
        return f"{self.config.broker_ip1}:{self.config.listen_port}"

    @property
    def ha_address(self) -> str:
        return f"{self.config.broker_ip2}:{self.config.ha_listen_port}"

    def save(self, name: str) -> None:
        """Have a file of FILES written soon; many calls make one write."""
        saver = self.savers.get(name)
        if saver is not None:
            saver.mark_dirty()
