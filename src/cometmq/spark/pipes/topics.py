"""Is a topic there that a pipeline needs? Asked before Spark is: its answer comes late and says no remedy."""

from __future__ import annotations

from collections.abc import Mapping

from cometmq.errors import TopicNotFound
from cometmq.spark.cluster import Cluster
from cometmq.spark.options import ClusterOptions

ACCOUNT = ("accesskey", "secretkey", "securitytoken", "tls")


def account_of(options: Mapping[str, str]) -> dict[str, str]:
    """Of a reader's options only those that every request needs."""
    return {name: value for name, value in options.items() if name.lower() in ACCOUNT}


def need_topic(name_server: str, topic: str, options: Mapping[str, str] | None, remedy: str) -> None:
    """Raises TopicNotFound with the remedy."""
    cluster = Cluster(ClusterOptions.parse({"nameServer": name_server, **account_of(options or {})}))
    try:
        cluster.route(topic)
    except TopicNotFound as error:
        raise TopicNotFound(f"{error} {remedy}") from error
