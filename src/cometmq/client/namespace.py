"""Namespaces: a prefix on topic and group names, put on before the wire and taken off before the application.

``dev`` turns topic ``orders`` into ``dev%orders``; for retry and dead-letter topics it goes behind their prefix.
Pure functions; an empty namespace changes nothing.
"""

from __future__ import annotations

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
SEPARATOR = "%"

SYSTEM_TOPICS = frozenset(
    {
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"


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
