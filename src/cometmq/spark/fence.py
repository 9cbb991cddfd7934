"""Exactly-once delivery: what of a batch is already in the target queues.

Before a micro-batch sends its first message to a topic, the ends of the topic's queues are written into a small file
beside the checkpoint: the fence. Whoever tries the batch again reads the queues from the fence on and leaves out the
ids that are there. The fence of batch N stays until batch N + 1 begins: only then it is certain that Spark has noted N
as done (a fence removed in ``commit`` would be missing if the driver died between that and Spark's own note).

A dead attempt may have left requests on the wire. So when there was one, the queues are read only after the broker has
answered something and a moment has gone by: a broker reads what a closed connection holds, and refuses what waited
longer than a fraction of a second for its turn.

The directory must be seen by all workers: a local path for local mode, a shared one for a cluster.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlparse

from cometmq.errors import ConfigError
from cometmq.protocol.message import MessageQueue
from cometmq.spark.cluster import Cluster
from cometmq.spark.offsets import QueueOffsets, ranges_between
from cometmq.spark.options import ReadOptions, WriteOptions
from cometmq.spark.pulls import RangeReader

FENCE_DIRECTORY = "cometmq-fences"
SETTLE_MS = 1000  # what a dead attempt had on the wire is stored or refused by then


def fence_directory(checkpoint: str | None) -> Path:
    if checkpoint is None:
        raise ConfigError(
            "delivery=exactlyOnce needs the option checkpointLocation on the query itself: the fences stand there."
        )
    parsed = urlparse(checkpoint)
    if parsed.scheme not in ("", "file"):
        raise ConfigError(
            f"delivery=exactlyOnce needs a checkpoint in a file system that is mounted, not {parsed.scheme}:."
        )
    return Path(parsed.path) / FENCE_DIRECTORY


@dataclass(frozen=True, slots=True)
class Attempt:
    """Who tries a batch: the run of the query, and whether this task was tried before in it."""

    run: str
    is_first: bool


class Fence:
    """The fences of one micro-batch, one a topic."""

    def __init__(self, options: WriteOptions, batch_id: int, attempt: Attempt) -> None:
        self._options = options
        self._batch_id = batch_id
        self._attempt = attempt
        self._directory = fence_directory(options.checkpoint_location)
        self._cluster = Cluster(options, retries=options.retries)
        self._stored: dict[str, frozenset[str]] = {}

    def knows(self, topic: str) -> bool:
        """Whether ``has`` answers for this topic without asking the brokers."""
        return topic in self._stored

    def has(self, topic: str, message_id: str) -> bool:
        """Whether an earlier attempt brought this message to the topic. The first call for a topic sets its fence."""
        if topic not in self._stored:
            self._remove_older()
            self._stored[topic] = self._ids_at_start(topic)
        return message_id in self._stored[topic]

    def ids(self, topic: str) -> frozenset[str]:
        """The ids that are behind the fence now, after a request of this very task failed."""
        return self._ids_behind(topic, self._read(topic)[1], settle=True)

    def _path(self, topic: str) -> Path:
        return self._directory / f"{self._batch_id}.{quote(topic, safe='')}.json"

    def _ids_at_start(self, topic: str) -> frozenset[str]:
        if not self._path(topic).exists():
            bounds = self._cluster.bounds(topic, self._cluster.route(topic))
            ends = [[queue.broker_name, queue.queue_id, found.max_offset] for queue, found in bounds.items()]
            if _create(self._path(topic), json.dumps({"run": self._attempt.run, "ends": ends})):
                return frozenset()
        run, ends_before = self._read(topic)
        only_siblings = run == self._attempt.run and self._attempt.is_first
        return self._ids_behind(topic, ends_before, settle=not only_siblings)

    def _read(self, topic: str) -> tuple[str, QueueOffsets]:
        """Who set the fence, and where the queues ended then."""
        found = json.loads(self._path(topic).read_text("utf-8"))
        return found["run"], {
            MessageQueue(topic, broker, number): end for broker, number, end in found["ends"]
        }

    def _ids_behind(self, topic: str, fence: QueueOffsets, *, settle: bool) -> frozenset[str]:
        route = self._cluster.route(topic)
        bounds = self._cluster.bounds(topic, route)
        if settle:
            time.sleep(SETTLE_MS / 1000)
            bounds = self._cluster.bounds(topic, route)
        starts = {queue: fence.get(queue, found.min_offset) for queue, found in bounds.items()}
        ranges = ranges_between(starts, {queue: found.max_offset for queue, found in bounds.items()})
        return frozenset(ids_in(RangeReader(self._read_options(topic), route.addresses, ranges)))

    def _read_options(self, topic: str) -> ReadOptions:
        options = self._options
        return ReadOptions(
            name_server=options.name_server,
            access_key=options.access_key,
            secret_key=options.secret_key,
            security_token=options.security_token,
            tls=options.tls,
            subscribe=(topic,),
            retries=options.retries,
            group=options.group,
        )

    def _remove_older(self) -> None:
        if not self._directory.is_dir():
            return
        for path in self._directory.iterdir():
            found = re.match(r"(\d+)\.", path.name)
            if found and int(found[1]) < self._batch_id:
                path.unlink(missing_ok=True)


def ids_in(reader: RangeReader) -> set[str]:
    """The ids of all messages of some ranges; nothing else of them is decoded."""
    from cometmq.spark.arrow_columns import MSG_ID
    from cometmq.spark.arrow_cy import decode_columns

    found: set[str] = set()
    for piece in reader.pieces():
        rows, columns = decode_columns([(piece.body, piece.start, piece.end)], [MSG_ID])
        _, _, offsets, data = columns[0]
        ends = memoryview(offsets).cast("i")
        found.update(data[ends[row] : ends[row + 1]].decode() for row in range(rows))
    return found


def _create(path: Path, text: str) -> bool:
    """Write a file that did not exist, whole or not at all; False if somebody else did."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(fresh, path)
    except FileExistsError:
        return False
    finally:
        fresh.unlink()
    return True
