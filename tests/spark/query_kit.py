"""Streaming queries of tests: run after run over one checkpoint, or one that goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spark_kit import RunningBroker

RUN_S = 120


class Query:
    """One streaming query with its checkpoint; each run reads what is there (availableNow)."""

    def __init__(self, spark: Any, broker: RunningBroker, directory: Path) -> None:
        self._spark = spark
        self._broker = broker
        self._directory = directory
        self.batches: list[list[Any]] = []

    def start(self, *, once: bool, **options: Any) -> Any:
        """Begin a run; its rows come into ``batches``."""
        self.batches = []

        def keep(frame: Any, _number: int) -> None:
            self.batches.append(frame.collect())

        reader = self._spark.readStream.format("rocketmq").option("nameServer", self._broker.name_server)
        given = {name: str(value) for name, value in options.items()}
        reader = reader.options(**{"startingOffsets": "earliest", **given})
        writer = reader.load().writeStream.foreachBatch(keep)
        writer = writer.option("checkpointLocation", str(self._directory))
        return (writer.trigger(availableNow=True) if once else writer).start()

    def run(self, **options: Any) -> list[bytes]:
        """Bodies of one run, sorted."""
        assert self.start(once=True, **options).awaitTermination(RUN_S)
        return self.bodies()

    def bodies(self) -> list[bytes]:
        return sorted(bytes(row.body) for batch in self.batches for row in batch)

    def last_offset(self) -> dict[str, Any]:
        newest = max((self._directory / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        return json.loads(newest.read_text().splitlines()[-1])
