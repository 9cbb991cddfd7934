"""What the network offers first: plain sends and pulls at the front of a receive buffer, without the handler table.

Both say how many bytes they took. What they leave, whatever the reason, goes to the handlers one frame at a time, so
every rule is written down there. Loop thread only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cometmq.broker.handlers.pull import Pulls
from cometmq.broker.plain_sends import PlainSendPath
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.pull_frames import begins_pull

if TYPE_CHECKING:
    from cometmq.net.connection import Connection
    from cometmq.net.metrics import NetMetrics


class FastPath:
    def __init__(self, sends: PlainSendPath, pulls: Pulls, metrics: NetMetrics) -> None:
        self._sends = sends
        self._pulls = pulls
        self._requests = metrics.requests

    def serve(self, connection: Connection, view: memoryview, start: int, end: int) -> int:
        """Take what can be taken at the front of ``view[start:end]`` and answer it; how many bytes."""
        taken = self.take(connection, view, start, end)
        self._sends.finish()
        return taken

    def finish(self) -> None:
        self._sends.finish()

    def take(self, connection: Connection, view: memoryview, start: int, end: int) -> int:
        at = start
        while at < end:
            if begins_pull(view, at):
                taken = self._pulls.serve_frame(connection, view, at, end)
                self._requests[RequestCode.PULL_MESSAGE] += taken > 0
            else:
                taken = self._sends.take(connection, view, at, end)
            at += taken
            if not taken or not begins_pull(view, at):
                break
        return at - start
