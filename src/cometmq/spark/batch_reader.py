"""Batch reads of the source ``rocketmq``. ``partitions`` runs in Spark's planner, ``read`` in its workers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from cometmq.protocol.message import MessageQueue
from cometmq.spark.cluster import Addresses
from cometmq.spark.columns import arrow_schema, chosen
from cometmq.spark.offsets import QueueOffsets, QueueRange, ranges_between
from cometmq.spark.options import ReadOptions
from cometmq.spark.planning import tasks_of
from cometmq.spark.pulls import DataLoss, RangeReader, loss_sentence
from cometmq.spark.subscription import Subscription
from cometmq.spark.worker_garbage import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

CLOCK_STEP_MS = 60_000  # pushed-down times are widened by this: a broker's clock may have been set back


class RangePartition(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: list[QueueRange], addresses: Addresses) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        self.addresses = addresses


def partitions_of(
    ranges: list[QueueRange], addresses: Addresses, options: ReadOptions
) -> list[RangePartition]:
    """The tasks of some ranges; a task gets the addresses of its own brokers only."""
    tasks = tasks_of(
        ranges,
        min_partitions=options.min_partitions,
        max_records=options.max_records_per_partition,
        min_records=options.min_records_per_task,
    )
    return [
        RangePartition(task, {name: addresses[name] for name in {item.queue.broker_name for item in task}})
        for task in tasks
    ]


def read_partition(
    partition: InputPartition, schema: StructType, options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """The messages of one task, as Arrow batches."""
    from cometmq.spark.batches import batches_of

    settle()
    assert isinstance(partition, RangePartition)
    reader = RangeReader(options, partition.addresses, partition.ranges)
    return batches_of(reader.pieces(), chosen(schema), arrow_schema(schema), options)


class BatchReader(DataSourceReader):
    """Everything between startingOffsets and endingOffsets."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self._schema = schema
        self._options = options
        chosen(schema)

    def partitions(self) -> list[InputPartition]:
        subscription = Subscription(self._options)
        ranges = ranges_between(*self._offsets(subscription))
        # A list of nothing makes Spark read once with no partition at all; an empty task is clearer.
        found = partitions_of(ranges, subscription.addresses, self._options)
        return list(found) or [RangePartition([], {})]

    def _offsets(self, subscription: Subscription) -> tuple[QueueOffsets, QueueOffsets]:
        ends = subscription.ending_offsets()
        starts = subscription.starting_offsets("earliest")
        self._check_loss(subscription, starts)
        return starts, ends

    def _check_loss(self, subscription: Subscription, starts: QueueOffsets) -> None:
        """Explicit starting offsets may lie outside of what is there."""
        for queue, bounds in subscription.bounds().items():
            start = starts[queue]
            if bounds.min_offset <= start <= bounds.max_offset:
                continue
            clamped = min(max(start, bounds.min_offset), bounds.max_offset)
            sentence = loss_sentence(
                queue, start, clamped, bounds.min_offset, bounds.max_offset, abs(clamped - start)
            )
            if self._options.fail_on_data_loss:
                raise DataLoss(f"{sentence} Set failOnDataLoss=false to go on without them.")
            log.warning("%s", sentence)
            starts[queue] = clamped

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._schema, self._options)


class FilteringBatchReader(BatchReader):
    """Uses filters to read less. Spark checks every row again, so a filter only has to be wide enough.

    A class of its own: a reader that has ``pushFilters`` fails every query while Spark's switch is off.
    """

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        super().__init__(schema, options)
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._filters = [entry for entry in filters if _column_of(entry) in _NARROWING]
        return filters

    def _offsets(self, subscription: Subscription) -> tuple[QueueOffsets, QueueOffsets]:
        starts, ends = super()._offsets(subscription)
        for queue in list(ends):
            if not all(_may_have(entry, queue) for entry in self._filters):
                ends[queue] = starts[queue]
                continue
            for entry in self._filters:
                low, high = self._limits(entry, queue, subscription)
                starts[queue] = max(starts[queue], starts[queue] if low is None else low)
                ends[queue] = min(ends[queue], ends[queue] if high is None else high)
        return starts, ends

    def _limits(
        self, entry: Filter, queue: MessageQueue, subscription: Subscription
    ) -> tuple[int | None, int | None]:
        value: Any = getattr(entry, "value", None)
        above = isinstance(entry, (datasource.GreaterThan, datasource.GreaterThanOrEqual, datasource.EqualTo))
        below = isinstance(entry, (datasource.LessThan, datasource.LessThanOrEqual, datasource.EqualTo))
        if _column_of(entry) == "queueOffset" and isinstance(value, int):
            return value if above else None, value + 1 if below else None
        if _column_of(entry) == "storeTimestamp" and isinstance(value, datetime):
            instant = round(value.timestamp() * 1000)
            low = subscription.offset_at(queue, instant - CLOCK_STEP_MS) if above else None
            return low, subscription.offset_at(queue, instant + CLOCK_STEP_MS) if below else None
        return None, None


_NARROWING = ("topic", "brokerName", "queueId", "queueOffset", "storeTimestamp")


def _column_of(entry: Filter) -> str:
    attribute: tuple[str, ...] = getattr(entry, "attribute", ())
    return attribute[0] if len(attribute) == 1 else ""


def _may_have(entry: Filter, queue: MessageQueue) -> bool:
    """Whether a queue can hold rows that pass a filter on its name."""
    names = {"topic": queue.topic, "brokerName": queue.broker_name, "queueId": queue.queue_id}
    if _column_of(entry) not in names:
        return True
    own: Any = names[_column_of(entry)]
    if isinstance(entry, datasource.EqualTo):
        return bool(own == entry.value)
    if isinstance(entry, datasource.In):
        return own in entry.value
    return True
