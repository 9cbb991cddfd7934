"""The sink ``rocketmq`` for batch and streaming. ``write`` runs in Spark's workers, the rest beside the driver.

Spark makes the writer anew for every micro-batch, so it keeps nothing; what a task did stands in its commit message.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from cometmq.errors import ConfigError
from cometmq.spark.fence import Attempt, Fence, fence_directory
from cometmq.spark.options import WriteOptions
from cometmq.spark.sending import Pace, Sender
from cometmq.spark.sink_rows import RowReader, check_schema
from cometmq.spark.worker_garbage import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

BATCH_ID_PROPERTY = "streaming.sql.batchId"
QUERY_ID_PROPERTY = "sql.streaming.queryId"
RUN_PROPERTY = "spark.jobGroup.id"  # a streaming query sets it to the id of its run


@dataclass
class SentMessages(WriterCommitMessage):
    """What one task sent and what it left out because it was there."""

    partition: int
    sent: int
    skipped: int


def write_rows(iterator: Iterator[pa.RecordBatch], options: WriteOptions) -> SentMessages:
    """Send all rows of one task."""
    settle()
    context = TaskContext.get()
    partition = context.partitionId() if context else 0
    batch_id = context.getLocalProperty(BATCH_ID_PROPERTY) if context else None
    query_id = context.getLocalProperty(QUERY_ID_PROPERTY) if context else None
    run = query_id or f"stage{context.stageId() if context else 0}"
    reader = RowReader(options, f"{run}-{batch_id or 0}-{partition}")
    fence = None
    if options.delivery == "exactlyOnce" and context is not None and batch_id is not None:
        fence = Fence(options, int(batch_id), _attempt(context))
    sender = Sender(options, stored_ids=None if fence is None else fence.ids)
    pace = Pace(options.rate and options.rate / options.rate_tasks)
    skipped = 0
    for batch in iterator:
        for message in reader.messages(batch):
            if fence is not None:
                if not fence.knows(message.topic):
                    sender.flush()  # the fence asks over the same connections
                if fence.has(message.topic, message.message_id):
                    skipped += 1
                    continue
            pace.wait()
            sender.send(message)
    sender.flush()
    return SentMessages(partition, sender.sent_count, skipped)


def _attempt(context: TaskContext) -> Attempt:
    run = context.getLocalProperty(RUN_PROPERTY)
    is_first = bool(run) and context.attemptNumber() == 0
    return Attempt(run or "", is_first)


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        self.options = options
        check_schema(schema, options)
        if options.delivery == "exactlyOnce":
            raise ConfigError(
                "delivery=exactlyOnce is for streaming: a batch job has no batch number to go by."
            )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentMessages:
        return write_rows(iterator, self.options)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _log_sum("batch", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        log.warning("the job failed; what was sent stays sent")


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        self.options = options
        check_schema(schema, options)
        if options.delivery == "exactlyOnce":
            fence_directory(options.checkpoint_location)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentMessages:
        return write_rows(iterator, self.options)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _log_sum(f"batch {batchId}", messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log.warning("batch %d failed; what was sent stays sent", batchId)


def _log_sum(what: str, messages: list[WriterCommitMessage | None]) -> None:
    done = [message for message in messages if isinstance(message, SentMessages)]
    log.info(
        "%s: sent=%d skipped=%d",
        what,
        sum(message.sent for message in done),
        sum(message.skipped for message in done),
    )
