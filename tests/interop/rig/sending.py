"""A Java producer that goes on sending in the background while servers come and go."""

from __future__ import annotations

import threading
from typing import Self

from .clients import Json, Producer
from .waiting import wait_for

PAUSE_S = 0.005

Place = tuple[int, int]  # queue and offset


class SteadySender:
    """Numbered messages, ``at_once`` with a call, until told to end; their bodies are longer by ``padding``."""

    def __init__(self, producer: Producer, topic: str, *, at_once: int = 1, padding: str = "") -> None:
        self.producer = producer
        self.topic = topic
        self.results: list[Json] = []  # of every message, by its number
        self._at_once = at_once
        self._padding = padding
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(60)

    def wait_more(self, count: int, timeout: float = 30) -> None:
        """Until so many more messages have been acknowledged than now."""
        target = len(self.places) + count
        wait_for(
            lambda: len(self.places) >= target, f"{count} more sends; failed: {self.failed[-3:]}", timeout
        )

    @property
    def places(self) -> dict[int, Place]:
        """Where each message is that was acknowledged, by its number."""
        found = enumerate(list(self.results))
        return {number: (one["queue"], one["queueOffset"]) for number, one in found if "error" not in one}

    @property
    def acknowledged(self) -> list[str]:
        """The bodies of these."""
        return [self._body(number) for number in self.places]

    @property
    def failed(self) -> list[Json]:
        return [result["error"] for result in list(self.results) if "error" in result]

    def _run(self) -> None:
        while not self._end.wait(PAUSE_S):
            numbers = range(len(self.results), len(self.results) + self._at_once)
            messages = [{"topic": self.topic, "body": self._body(number)} for number in numbers]
            self.results += self.producer.send_many(messages)

    def _body(self, number: int) -> str:
        return f"{number}-{self._padding}"


def number_of(message: Json) -> int:
    return int(message["body"].partition("-")[0])
