"""Flow control: how much of a queue may be held unfinished before pulling stops. Plain numbers, loop thread only."""

from __future__ import annotations

from cometmq.client.consumer.options import ConsumerOptions
from cometmq.client.consumer.process_queue import ProcessQueue


class Limits:
    """The limits of each queue; limits per topic are divided by the number of queues held."""

    __slots__ = ("_options", "bytes_max", "messages_max", "span_max")

    def __init__(self, options: ConsumerOptions) -> None:
        self._options = options
        self.span_max = options.span_max
        self.messages_max = options.queue_messages_max
        self.bytes_max = options.queue_bytes_max

    def share(self, queue_count: int) -> None:
        """The number of queues held has changed (of all topics, as Java counts)."""
        options = self._options
        if options.topic_messages_max is not None:
            self.messages_max = max(1, options.topic_messages_max // max(1, queue_count))
        if options.topic_bytes_max is not None:
            self.bytes_max = max(1, options.topic_bytes_max // max(1, queue_count))

    def full(self, process_queue: ProcessQueue) -> bool:
        if process_queue.count > self.messages_max or process_queue.size_bytes > self.bytes_max:
            return True
        return not self._options.ordered and process_queue.span > self.span_max
