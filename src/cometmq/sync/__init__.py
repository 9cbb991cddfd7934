"""The blocking twin of the client: the same names without ``await``.

One private loop thread does the network, so heartbeats go on whatever the calling threads do. Every object may be
used from several threads at once. It is a thin layer: the asyncio client is the implementation.

    from cometmq.sync import Client

    with Client("127.0.0.1:9876") as mq, mq.producer("p") as producer:
        producer.send(Message("orders", b"hello"))
"""

from __future__ import annotations

from cometmq.sync.admin import Admin
from cometmq.sync.client import Client
from cometmq.sync.consumer import Consumer, SyncMessage
from cometmq.sync.producer import Producer, TransactionalProducer
from cometmq.sync.stream import Stream

__all__ = ["Admin", "Client", "Consumer", "Producer", "Stream", "SyncMessage", "TransactionalProducer"]
