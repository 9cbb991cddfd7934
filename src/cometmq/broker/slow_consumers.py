"""disableConsumeIfConsumerReadSlowly: groups that read too far behind would push fresh messages out of memory.

Off by default. Every three minutes the online groups are looked at; who is further behind than
consumerFallbehindThreshold bytes may not read any more until an administrator says so. Event loop only.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker

log = logging.getLogger(__name__)

SLOW_CONSUMERS_CHECK_MS = 180_000


def stop_slow_consumers(broker: Broker) -> list[str]:
    """Stop the groups that are too far behind; which."""
    if not broker.config.disable_consume_if_consumer_read_slowly:
        return []
    threshold = broker.config.consumer_fallbehind_threshold
    slow = [group.name for group in broker.consumers if bytes_behind(broker, group.name) > threshold]
    for group in slow:
        log.warning(
            "consumer group is stopped for reading more than %d bytes behind group=%s", threshold, group
        )
        broker.groups.disable_consume(group)
    return slow


def bytes_behind(broker: Broker, group: str) -> int:
    """How far the slowest queue of a group is behind the end of the log."""
    end = broker.store.max_physical_offset
    return max((end - physical for physical in _positions(broker, group)), default=0)


def _positions(broker: Broker, group: str) -> list[int]:
    found = []
    for topic in broker.offsets.topics_of(group):
        for queue_id, queue_offset in broker.offsets.queues(group, topic).items():
            entries = broker.store.queue_entries(topic, queue_id, queue_offset, 1)
            found += [entry.physical_offset for entry in entries or ()]
    return found
