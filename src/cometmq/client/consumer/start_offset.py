"""Where to begin in a queue that was just assigned."""

from __future__ import annotations

from cometmq.client.consumer.offset_store import OffsetStore
from cometmq.client.consumer.options import StartFrom
from cometmq.client.instance import Instance
from cometmq.client.queue import Queue
from cometmq.protocol.names import RETRY_PREFIX


async def start_offset(instance: Instance, offsets: OffsetStore, queue: Queue, start: StartFrom) -> int:
    """The stored offset, else what the policy says. Raises if a broker cannot be asked: the queue waits then."""
    stored = await offsets.read(queue)
    if stored >= 0:
        return stored
    address, _ = await instance.routes.reader_of(queue.broker_name, queue.topic)
    retry = queue.topic.startswith(RETRY_PREFIX)
    if start == StartFrom.LAST:
        return 0 if retry else await instance.brokers.max_offset(address, queue)
    if start == StartFrom.FIRST:
        # Java begins at 0 and pays with a pause of ten seconds when 0 was deleted long ago.
        return max(0, await instance.brokers.min_offset(address, queue))
    if retry:
        return await instance.brokers.max_offset(address, queue)
    return await instance.brokers.search_offset(address, queue, start.timestamp_ms)
