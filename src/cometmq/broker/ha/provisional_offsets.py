"""Offsets that consumers committed where nobody was master: kept until a master has them. Event loop only.

While a group has no master its replicas go on serving what is confirmed, and take offsets from the consumers that read
there. The next master hears of them on the stream that brings its log, and takes the larger value of each queue: a
consumer may have gone on at another replica meanwhile. Kept in memory only; what is lost with this process is
delivered again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cometmq.protocol.headers import UpdateConsumerOffsetHeader

if TYPE_CHECKING:
    from cometmq.broker.offsets import ConsumerOffsets
    from cometmq.protocol.command import RemotingCommand

PROVISIONAL_OFFSETS = "provisional-offsets"  # kind of the item that tells a master of them

Queue = tuple[str, str, int]  # consumer group, topic, queue id


class ProvisionalOffsets:
    def __init__(self) -> None:
        self._kept: dict[Queue, int] = {}
        self._sent: dict[Queue, int] = {}  # on their way to a master

    def __len__(self) -> int:
        return len(self._kept) + len(self._sent)

    def note(self, command: RemotingCommand, offsets: ConsumerOffsets) -> bool:
        """A commit that is served here although this is not the master; False if more is known to be consumed."""
        header = UpdateConsumerOffsetHeader.decode(command.ext_fields)
        queue = (header.consumer_group, header.topic, header.queue_id)
        if header.commit_offset <= offsets.query(*queue):
            return False
        self._kept[queue] = header.commit_offset
        return True

    def send(self) -> dict[str, Any] | None:
        """What a master is to be told, if anything; ``taken`` or ``lost`` follows."""
        if self._sent or not self._kept:
            return None
        self._sent, self._kept = self._kept, {}
        table = [(*queue, offset) for queue, offset in self._sent.items()]
        return {"kind": PROVISIONAL_OFFSETS, "table": table}

    def taken(self) -> None:
        self._sent = {}

    def lost(self) -> None:
        """The stream ended before the master said that it has them."""
        self._kept = self._sent | self._kept
        self._sent = {}

    def merge_into(self, offsets: ConsumerOffsets) -> None:
        """This replica is the master now."""
        merge(offsets, [(*queue, offset) for queue, offset in (self._sent | self._kept).items()])
        self._kept, self._sent = {}, {}


def merge(offsets: ConsumerOffsets, table: list[Any]) -> None:
    """The larger value counts."""
    for group, topic, queue_id, offset in table:
        if offset > offsets.query(group, topic, queue_id):
            offsets.commit(group, topic, queue_id, offset)
