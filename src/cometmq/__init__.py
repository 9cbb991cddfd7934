"""CometMQ: a message broker of the RocketMQ 4.9 design, and its client.

The public names are loaded when first used, so that a server does not import the client and ``import
cometmq`` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from cometmq import _cython as _cython  # honours COMETMQ_PURE before any compiled module is imported
from cometmq._version import __version__

if TYPE_CHECKING:
    from cometmq.admin import Admin
    from cometmq.client.client import Client
    from cometmq.client.consumer.options import StartFrom
    from cometmq.client.consumer.push import Consumer
    from cometmq.client.consumer.stream import Stream
    from cometmq.client.message import ReceivedMessage
    from cometmq.client.producer import Producer
    from cometmq.client.queue import Queue
    from cometmq.client.results import Reject, Retry, SendResult, SendStatus, TransactionState
    from cometmq.client.settings import Settings
    from cometmq.client.subscription import SqlFilter, TagFilter
    from cometmq.client.transactions import TransactionalProducer
    from cometmq.errors import (
        BrokerError,
        ClientClosed,
        ClientError,
        ClientForked,
        CometMQError,
        ConnectionLost,
        MessageInvalid,
        RequestTimeout,
        SendFailed,
        Timeout,
        TopicNotFound,
    )
    from cometmq.protocol.message import Message

# Public name -> module that has it.
_PLACES = {
    "Admin": "admin",
    "BrokerError": "errors",
    "Client": "client.client",
    "ClientClosed": "errors",
    "ClientError": "errors",
    "ClientForked": "errors",
    "CometMQError": "errors",
    "ConnectionLost": "errors",
    "Consumer": "client.consumer.push",
    "Message": "protocol.message",
    "MessageInvalid": "errors",
    "Producer": "client.producer",
    "Queue": "client.queue",
    "ReceivedMessage": "client.message",
    "Reject": "client.results",
    "RequestTimeout": "errors",
    "Retry": "client.results",
    "SendFailed": "errors",
    "SendResult": "client.results",
    "SendStatus": "client.results",
    "Settings": "client.settings",
    "SqlFilter": "client.subscription",
    "StartFrom": "client.consumer.options",
    "Stream": "client.consumer.stream",
    "TagFilter": "client.subscription",
    "Timeout": "errors",
    "TopicNotFound": "errors",
    "TransactionState": "client.results",
    "TransactionalProducer": "client.transactions",
}

__all__ = [
    "Admin",
    "BrokerError",
    "Client",
    "ClientClosed",
    "ClientError",
    "ClientForked",
    "CometMQError",
    "ConnectionLost",
    "Consumer",
    "Message",
    "MessageInvalid",
    "Producer",
    "Queue",
    "ReceivedMessage",
    "Reject",
    "RequestTimeout",
    "Retry",
    "SendFailed",
    "SendResult",
    "SendStatus",
    "Settings",
    "SqlFilter",
    "StartFrom",
    "Stream",
    "TagFilter",
    "Timeout",
    "TopicNotFound",
    "TransactionState",
    "TransactionalProducer",
    "__version__",
]


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'cometmq' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"cometmq.{place}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
