"""``async with`` for everything that is started and closed."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Lifetime:
    """Starts at the begin of the block and closes at its end, whatever happened in it."""

    async def start(self) -> None:
        raise NotImplementedError

    async def aclose(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
