"""LogWriter: checks a message or a batch, writes its records into reserved space, commits them. Loop thread.

The plain sends of the broker go past this by MessageStore.reserve() and commit(); everything else goes through.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from cometmq.clock import Clock
from cometmq.protocol.limits import PROPERTIES_SIZE_MAX, TOPIC_SIZE_MAX
from cometmq.protocol.names import LMQ_PREFIX
from cometmq.protocol.sys_flag import TRANSACTION_COMMIT, TRANSACTION_MASK
from cometmq.store.append_cy import record_size, write_record
from cometmq.store.commit_log import CommitLog
from cometmq.store.config import MESSAGE_SIZE_SLACK, StoreConfig
from cometmq.store.dispatch_cy import properties_of_interest
from cometmq.store.model import AppendSpace, PutResult, PutStatus, StoreBatch, StoreMessage
from cometmq.store.next_offsets import NextOffsets
from cometmq.store.queue_table import MULTI_DISPATCH_SEPARATOR, QueueTable, has_other_queues, is_queue_name

PROPERTY_SEPARATOR = b"\x02"

_MULTI_DISPATCH = b"INNER_MULTI_DISPATCH"
_MULTI_QUEUE_OFFSET = b"INNER_MULTI_QUEUE_OFFSET"

Commit = Callable[[int], int]


class _Draft(NamedTuple):
    message: StoreMessage
    topic: bytes
    properties: bytes
    size: int


class LogWriter:
    def __init__(
        self, config: StoreConfig, commit_log: CommitLog, table: QueueTable, commit: Commit, now_ms: Clock
    ) -> None:
        self.config = config
        self._log = commit_log
        self._table = table
        self._commit = commit
        self._now_ms = now_ms
        self.next_offsets: NextOffsets | None = None  # where queues are behind the log (replicas)

    def put(self, message: StoreMessage) -> PutResult:
        draft = self._draft(message)
        if isinstance(draft, PutStatus):
            return PutResult(draft)
        space = self._log.reserve(draft.size)
        if space is None:
            return PutResult(PutStatus.CREATE_MAPPED_FILE_FAILED)
        result = self._write(draft, space, space.position, self._now_ms())
        result.end_offset = self._commit(space.position + draft.size)
        return result

    def put_all(self, messages: Sequence[StoreMessage]) -> list[PutResult]:
        """Messages of different queues, all or none, also when the process dies meanwhile."""
        timestamp_ms = self._now_ms()
        drafts: list[_Draft] = []
        for message in messages:
            draft = self._draft(message)
            if isinstance(draft, PutStatus):
                return [PutResult(draft) for _ in messages]
            drafts.append(draft)
        space = self._log.reserve(sum(draft.size for draft in drafts))
        if space is None:
            return [PutResult(PutStatus.CREATE_MAPPED_FILE_FAILED) for _ in messages]
        position = end = space.position + sum(draft.size for draft in drafts)
        results: list[PutResult] = []
        # The last record first: until the first one is complete, the log ends before all of them.
        for draft in reversed(drafts):
            position -= draft.size
            results.insert(0, self._write(draft, space, position, timestamp_ms))
        end_offset = self._commit(end)
        for result in results:
            result.end_offset = end_offset
        return results

    def _draft(self, message: StoreMessage) -> _Draft | PutStatus:
        """What will be written for a message, or why it cannot be."""
        topic = message.topic.encode()
        properties = message.properties
        multi = self._multi_dispatch(message)
        if multi:
            if not all(is_queue_name(name.encode()) for name in multi if name):
                return PutStatus.MESSAGE_ILLEGAL
            if not self._light_queues_allowed(multi):
                return PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
            properties = self._with_multi_offsets(properties, multi, message.queue_id)
        refusal = self._check(topic, message.queue_id, len(message.body), properties)
        if refusal is not None:
            return refusal
        size = record_size(
            message.born_host, message.store_host, len(message.body), len(topic), len(properties)
        )
        if size > min(self.config.max_message_size + MESSAGE_SIZE_SLACK, self.config.record_size_max):
            return PutStatus.MESSAGE_ILLEGAL
        return _Draft(message, topic, properties, size)

    def _write(self, draft: _Draft, space: AppendSpace, position: int, timestamp_ms: int) -> PutResult:
        message = draft.message
        physical_offset = space.physical_base + position
        queue_offset = self._next_offset(message.topic, message.queue_id, message.sys_flag)
        write_record(
            space.buffer, position, physical_offset, queue_offset, timestamp_ms, draft.topic, message.queue_id,
            message.body, draft.properties, message.flag, message.sys_flag, message.born_timestamp_ms,
            message.born_host, message.store_host, message.reconsume_times, message.prepared_transaction_offset,
        )  # fmt: skip
        if self.next_offsets is not None:
            self._count(draft, queue_offset)
        return PutResult(
            PutStatus.PUT_OK, physical_offset, draft.size, queue_offset, -1, timestamp_ms, [physical_offset]
        )

    def put_batch(self, batch: StoreBatch) -> PutResult:
        """All items or none, contiguous, with consecutive queue offsets and one store time."""
        topic = batch.topic.encode()
        strings = [_joined(item.properties, batch.properties) for item in batch.items]
        sizes = []
        for item, properties in zip(batch.items, strings, strict=True):
            if self.config.enable_multi_dispatch and _MULTI_QUEUE_OFFSET in properties:
                return PutResult(PutStatus.MESSAGE_ILLEGAL)  # only this class knows those offsets
            refusal = self._check(topic, batch.queue_id, len(item.body), properties)
            if refusal is not None:
                return PutResult(refusal)
            hosts = batch.born_host, batch.store_host
            sizes.append(record_size(*hosts, len(item.body), len(topic), len(properties)))
        if not sizes or batch.sys_flag & TRANSACTION_MASK or sum(sizes) > self.config.record_size_max:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        space = self._log.reserve(sum(sizes))
        if space is None:
            return PutResult(PutStatus.CREATE_MAPPED_FILE_FAILED)
        first = self._next_offset(batch.topic, batch.queue_id, batch.sys_flag)
        timestamp_ms = self._now_ms()
        position, offsets = space.position, []
        for number, item in enumerate(batch.items):
            offsets.append(space.physical_base + position)
            position = write_record(
                space.buffer, position, offsets[-1], first + number, timestamp_ms, topic, batch.queue_id,
                item.body, strings[number], item.flag, batch.sys_flag, batch.born_timestamp_ms,
                batch.born_host, batch.store_host, batch.reconsume_times, 0,
            )  # fmt: skip
        if self.next_offsets is not None:
            self.next_offsets.set(topic, batch.queue_id, first + len(batch.items))
        end_offset = self._commit(position)
        return PutResult(PutStatus.PUT_OK, offsets[0], sum(sizes), first, end_offset, timestamp_ms, offsets)

    def _check(self, topic: bytes, queue_id: int, body_size: int, properties: bytes) -> PutStatus | None:
        if not 0 < len(topic) <= TOPIC_SIZE_MAX or queue_id < 0 or body_size > self.config.max_message_size:
            return PutStatus.MESSAGE_ILLEGAL
        if len(properties) > PROPERTIES_SIZE_MAX:
            characters = len(properties.decode("utf-8", "replace"))
            illegal = characters > PROPERTIES_SIZE_MAX
            return PutStatus.MESSAGE_ILLEGAL if illegal else PutStatus.PROPERTIES_SIZE_EXCEEDED
        return None

    def _next_offset(self, topic: str, queue_id: int, sys_flag: int) -> int:
        if sys_flag & TRANSACTION_MASK not in (0, TRANSACTION_COMMIT):
            return 0  # prepared and rolled-back records stand in no queue
        return self._free_offset(topic, queue_id)

    def _free_offset(self, topic: str, queue_id: int) -> int:
        if self.next_offsets is not None:
            return self.next_offsets.get(topic.encode(), queue_id)
        queue = self._table.find(topic, queue_id)
        return queue.max_offset if queue is not None else 0

    def _count(self, draft: _Draft, queue_offset: int) -> None:
        """The offsets of a record that no queue has yet are taken."""
        assert self.next_offsets is not None
        message = draft.message
        if message.sys_flag & TRANSACTION_MASK in (0, TRANSACTION_COMMIT):
            self.next_offsets.set(draft.topic, message.queue_id, queue_offset + 1)
            for name in set(self._multi_dispatch(message)):
                queue_id = self._table.multi_queue_id(name, message.queue_id)
                if (name, queue_id) != (message.topic, message.queue_id):
                    self.next_offsets.set(name.encode(), queue_id, self._free_offset(name, queue_id) + 1)

    # Additional queues

    def _multi_dispatch(self, message: StoreMessage) -> list[str]:
        """Names of the additional queues that a message wants."""
        if not self.config.enable_multi_dispatch or _MULTI_DISPATCH not in message.properties:
            return []
        names = properties_of_interest(message.properties).get(_MULTI_DISPATCH, b"")
        if not names or not has_other_queues(message.topic):
            return []
        return names.decode("utf-8", "replace").split(MULTI_DISPATCH_SEPARATOR)

    def _light_queues_allowed(self, names: list[str]) -> bool:
        if not self.config.enable_lmq:
            return True
        new = sum(name.startswith(LMQ_PREFIX) and self._table.find(name, 0) is None for name in names)
        return not new or self._table.light_queue_count + new <= self.config.max_lmq_consume_queue_num

    def _with_multi_offsets(self, properties: bytes, names: list[str], queue_id: int) -> bytes:
        offsets = [str(self._free_offset(name, self._table.multi_queue_id(name, queue_id))) for name in names]
        text = MULTI_DISPATCH_SEPARATOR.join(offsets).encode()
        return _joined(properties, _MULTI_QUEUE_OFFSET + b"\x01" + text)


def _joined(first: bytes, second: bytes) -> bytes:
    """Two property strings as one."""
    if first and second and not first.endswith(PROPERTY_SEPARATOR):
        return first + PROPERTY_SEPARATOR + second
    return first + second
