"""Namespaces: a prefix on topic and group names, put on before the wire and taken off before the application.

``dev`` turns topic ``orders`` into ``dev%orders``; for retry and dead-letter topics it goes behind their prefix.
Pure functions; an empty namespace changes nothing.
"""

from __future__ import annotations

from cometmq.protocol import names
from cometmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_GROUP_PREFIX, SYSTEM_TOPIC_PREFIX

SEPARATOR = "%"

SYSTEM_TOPICS = frozenset(
    {
        names.AUTO_CREATE_KEY_TOPIC,
        names.SCHEDULE_TOPIC,
        names.BENCHMARK_TOPIC,
        names.TRANS_HALF_TOPIC,
        names.TRACE_TOPIC,
        names.TRANS_OP_HALF_TOPIC,
        names.TRANS_CHECK_MAX_TIME_TOPIC,
        names.SELF_TEST_TOPIC,
        names.OFFSET_MOVED_EVENT,
    }
)


def is_system_topic(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def _split(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name


def wrap(namespace: str, name: str) -> str:
    """The name as the servers know it.

    >>> wrap("dev", "orders"), wrap("dev", "%RETRY%billing")
    ('dev%orders', '%RETRY%dev%billing')
    """
    if not namespace or not name or is_system_topic(name) or name.startswith(SYSTEM_GROUP_PREFIX):
        return name
    prefix, bare = _split(name)
    if bare.startswith(namespace + SEPARATOR):
        return name
    return f"{prefix}{namespace}{SEPARATOR}{bare}"


def unwrap(namespace: str, name: str) -> str:
    """The name as the application knows it: exactly this namespace is taken off.

    >>> unwrap("dev", "dev%orders"), unwrap("dev", "other%orders")
    ('orders', 'other%orders')
    """
    if not namespace:
        return name
    prefix, bare = _split(name)
    return prefix + bare.removeprefix(namespace + SEPARATOR)


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    return DLQ_PREFIX + group
