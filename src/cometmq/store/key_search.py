"""Messages by key: the index names candidates, the records decide. Loop thread."""

from __future__ import annotations

from cometmq.store.commit_log import CommitLog
from cometmq.store.dispatch_cy import has_key
from cometmq.store.index import Index
from cometmq.store.model import QueryResult

PLACE = slice(28, 36)  # of the physical offset in a record


class KeySearch:
    def __init__(self, commit_log: CommitLog, index: Index | None) -> None:
        self._log = commit_log
        self._index = index

    def query(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> QueryResult:
        """The newest messages of a topic with a key; nothing where there is no index."""
        if self._index is None:
            return QueryResult([], [])
        records: dict[int, memoryview] = {}

        def accept(physical_offset: int) -> bool:
            record = self._log.read_record(physical_offset)
            if record is None or int.from_bytes(record[PLACE], "big") != physical_offset:
                return False  # its record has left the log, or the index is damaged
            try:
                if not has_key(record, topic, key, begin_ms, end_ms):
                    return False  # another key of the same hash
            except (ValueError, IndexError):
                return False
            records[physical_offset] = record
            return True

        found = self._index.query(topic, key, max_count, begin_ms, end_ms, accept)
        return QueryResult(
            found.offsets,
            [records[offset] for offset in found.offsets],
            found.last_update_timestamp_ms,
            found.last_update_physical_offset,
        )
