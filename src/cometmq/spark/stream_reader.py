"""Streaming reads of the source ``rocketmq``: offsets, admission control, availableNow, data loss, group progress.

One long-lived planning process serves all calls but ``read``, which runs in workers. Spark polls many times a second
while idle, so offsets are cached for ``offsetPollMs``. Spark's checkpoint is the truth about progress; what is reported
to the broker is for people and tools.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from cometmq.errors import CometMQError
from cometmq.protocol.message import MessageQueue
from cometmq.spark.batch_reader import partitions_of, read_partition
from cometmq.spark.cluster import Bounds
from cometmq.spark.columns import chosen
from cometmq.spark.offsets import QueueOffsets, from_json, ranges_between, to_json
from cometmq.spark.options import ReadOptions
from cometmq.spark.planning import admit
from cometmq.spark.pulls import DataLoss, loss_sentence
from cometmq.spark.subscription import Subscription, monotonic_ms

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

MESSAGE_SIZE_GUESS = 1024  # bytes, when there is nothing to look at


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A query's source. Connections are made at first use: the object is pickled before."""

    def __init__(
        self, schema: StructType, options: ReadOptions, now_ms: Callable[[], int] = monotonic_ms
    ) -> None:
        self._schema = schema
        self._options = options
        self._now_ms = now_ms
        self._made: Subscription | None = None
        self._frozen: dict[MessageQueue, Bounds] | None = None
        self._last_batch_ms: int | None = None
        self._warned: set[str] = set()
        chosen(schema)

    @property
    def _subscription(self) -> Subscription:
        if self._made is None:
            self._made = Subscription(self._options)
        return self._made

    def _bounds(self) -> dict[MessageQueue, Bounds]:
        return self._subscription.bounds() if self._frozen is None else self._frozen

    # -- offsets ---------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        return to_json(self._subscription.starting_offsets("latest"))

    def prepareForTriggerAvailableNow(self) -> None:
        self._frozen = dict(self._subscription.bounds(fresh=True))

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        bounds = self._bounds()
        starts = from_json(start)
        latest = self._checked(starts, bounds)
        begins = {queue: starts.get(queue, bounds[queue].min_offset) for queue in latest}
        lag = sum(max(latest[queue] - begins[queue], 0) for queue in latest)
        if self._should_wait(lag, limit):
            return start
        end = admit(begins, latest, self._row_limit(limit, begins))
        for queue in latest:  # a store that was reset: the only case in which an offset goes back
            end[queue] = min(end[queue], latest[queue])
        if self._frozen is not None:  # the set of queues does not change either, so the run comes to an end
            end |= {queue: offset for queue, offset in starts.items() if queue not in end}
        if end != starts:
            self._last_batch_ms = self._now_ms()
        return to_json(end)

    def reportLatestOffset(self) -> dict[str, Any]:
        return to_json({queue: bounds.max_offset for queue, bounds in self._bounds().items()})

    def _checked(self, starts: QueueOffsets, bounds: dict[MessageQueue, Bounds]) -> QueueOffsets:
        """Where the queues end now; queues that vanished or were set back are data loss."""
        latest = {queue: found.max_offset for queue, found in bounds.items()}
        for queue, start in sorted(starts.items()):
            found = bounds.get(queue)
            if found is None:
                self._lose(self._gone(queue, start))
            elif start > found.max_offset and not self._subscription.has_master(queue):
                latest[queue] = start  # a slave answered, which may lag
            elif start > found.max_offset:
                self._lose(
                    loss_sentence(
                        queue,
                        found.max_offset,
                        start,
                        found.min_offset,
                        found.max_offset,
                        start - found.max_offset,
                    )
                )
        return latest

    def _gone(self, queue: MessageQueue, start: int) -> str:
        if queue.broker_name in self._subscription.addresses:
            return f"The queue {queue} is gone; it was read up to offset {start}."
        return (
            f"The broker {queue.broker_name} is not registered, so {queue} cannot be read from offset {start} on. If "
            "it is only down, start it and run again."
        )

    def _lose(self, sentence: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{sentence} Set failOnDataLoss=false to go on without them.")
        if sentence not in self._warned:
            self._warned.add(sentence)
            log.warning("%s", sentence)

    def _should_wait(self, lag: int, limit: ReadLimit) -> bool:
        """minOffsetsPerTrigger: wait for more, but not longer than maxTriggerDelay."""
        wanted = self._options.min_offsets_per_trigger
        if self._frozen is not None or wanted is None or isinstance(limit, ReadAllAvailable):
            return False
        now = self._now_ms()
        if self._last_batch_ms is None:
            self._last_batch_ms = now
        return lag < wanted and now - self._last_batch_ms < self._options.max_trigger_delay_ms

    def _row_limit(self, limit: ReadLimit, begins: QueueOffsets) -> int | None:
        if isinstance(limit, ReadAllAvailable):
            return None
        limits = []
        if isinstance(limit, ReadMaxRows):
            limits.append(limit.max_rows)
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.max_bytes_per_trigger
        if size is not None:
            limits.append(max(size // self._mean_size(begins), 1))
        return min(limits) if limits else None

    def _mean_size(self, begins: QueueOffsets) -> int:
        bounds = self._bounds()
        lagging = [queue for queue, at in begins.items() if at < bounds[queue].max_offset]
        if not lagging:
            return MESSAGE_SIZE_GUESS
        queue = max(lagging, key=lambda queue: (bounds[queue].max_offset - begins[queue], queue))
        address = self._subscription.address(queue)
        return self._subscription.cluster.mean_size(address, queue, begins[queue]) or MESSAGE_SIZE_GUESS

    # -- reading ---------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        starts, ends = from_json(start), from_json(end)
        for queue in ends:
            if queue not in starts:  # new since the batch before
                starts[queue] = min(self._first_offset(queue), ends[queue])
        addresses = self._subscription.addresses
        ranges = ranges_between(starts, ends)
        for item in ranges:
            if item.queue.broker_name not in addresses:
                self._lose(self._gone(item.queue, item.start))
        reachable = [item for item in ranges if item.queue.broker_name in addresses]
        return list(partitions_of(reachable, addresses, self._options))

    def _first_offset(self, queue: MessageQueue) -> int:
        found = self._subscription.bounds().get(queue)
        return 0 if found is None else found.min_offset

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._schema, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Tell the broker how far the group is. A failure does not matter to the query."""
        if not self._options.commit_offsets:
            return
        try:
            self._subscription.cluster.report_progress(self._options.group, from_json(end).items())
        except CometMQError as error:
            log.warning("progress of group=%s not reported: %s", self._options.group, error)

    def stop(self) -> None:
        self._made = None
