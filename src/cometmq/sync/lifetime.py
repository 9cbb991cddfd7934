"""``with`` for everything that is started and closed."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Lifetime:
    """Starts at the begin of the block and closes at its end, whatever happened in it."""

    def start(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
