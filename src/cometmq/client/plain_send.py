"""The plain send: what nearly every send is, prepared as far as possible and done in one step.

A send is plain when its topic was sent to before over a connection that is still open, nothing chooses a
queue, the body is not to be compressed, and neither signing, tracing nor a namespace is in play. Then all
that is left per message is one bytes interpolation and one future. Everything else, and everything that goes
wrong, is left to the ordinary way in ``producer.py``, where every rule is written down.
tests/unit/client/test_send_frames.py holds the two ways equal.

Loop thread only.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from cometmq.client.instance import Instance
from cometmq.client.outgoing import Outgoing
from cometmq.client.queue import Queue
from cometmq.client.routes import Route
from cometmq.client.send_frames import SendTemplate, json_text, properties_text
from cometmq.client.send_pipe import SendFuture, SendPipe
from cometmq.protocol.message import Message
from cometmq.protocol.names import RETRY_PREFIX

_pack = struct.Struct(">ii").pack
_NO_PROPERTIES = b'"UNIQ_KEY\\u0001%b\\u0002WAIT\\u0001true"'


class Target(NamedTuple):
    """One queue, ready to be sent to."""

    queue: Queue
    pipe: SendPipe
    address: str
    head: bytes  # the frame's header up to the born time
    middle: bytes  # from behind the properties to the opaque
    tail: bytes  # from behind the opaque


class Started(NamedTuple):
    """A request that is on its way."""

    future: SendFuture
    target: Target
    unique_id: str
    born_ms: int


class PlainSends:
    """The prepared topics of one producer."""

    __slots__ = ("_body_max", "_group", "_instance", "_ready", "_unit_mode")

    def __init__(self, instance: Instance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._unit_mode = instance.settings.unit_mode
        self._body_max = min(instance.settings.compress_over_bytes - 1, instance.settings.message_bytes_max)
        self._ready: dict[str, tuple[Route, list[Target]]] = {}

    def learn(self, route: Route) -> None:
        """A send by this route succeeded: prepare its queues, if all their brokers are connected."""
        if route.provisional or route.topic.startswith(RETRY_PREFIX):
            return
        known = self._ready.get(route.topic)
        if known is not None and known[0] is route and not any(one.pipe.closed for one in known[1]):
            return
        targets = [self._target(queue) for queue in route.write_queues]
        if None not in targets:
            self._ready[route.topic] = (route, [one for one in targets if one is not None])

    def _target(self, queue: Queue) -> Target | None:
        address = self._instance.routes.master(queue.broker_name)
        pipe = self._instance.open_pipe(address) if address is not None else None
        if address is None or pipe is None:
            return None
        template = SendTemplate(self._group, queue.topic, queue.broker_name, unit_mode=self._unit_mode)
        return Target(queue, pipe, address, template.head_of(queue.queue_id), template.middle, template.tail)

    def begin(self, message: Message, timeout_s: float) -> Started | None:
        """Send it if this send is plain, else None and nothing has happened."""
        target = self.pick(message)
        if target is None:
            return None
        instance = self._instance
        born_ms = instance.now_ms()
        unique_id = message.unique_id or instance.unique_ids.next()
        pipe = target.pipe
        opaque = pipe.next_opaque()
        pipe.write(self.frame(target, message, unique_id, born_ms, opaque))
        return Started(pipe.expect(opaque, timeout_s), target, unique_id, born_ms)

    def pick(self, message: Message) -> Target | None:
        """The queue whose turn it is, if this send is plain. Reads only: any thread."""
        ready = self._ready.get(message.topic)
        if ready is None:
            return None
        route, targets = ready
        body = message.body
        if type(body) is not bytes or not 0 < len(body) <= self._body_max:
            return None
        target = targets[route.turn.step() % len(targets)]
        if target.pipe.closed or self._instance.routes.known(message.topic) is not route:
            return None
        return target

    @staticmethod
    def frame(target: Target, message: Message, unique_id: str, born_ms: int, opaque: int) -> bytes:
        if message.properties:
            properties = json_text(properties_text(message, unique_id))
        else:
            properties = _NO_PROPERTIES % unique_id.encode()
        header = b'%b%d","h":"%d","i":%b%b%d%b' % (
            target.head,
            born_ms,
            message.flag,
            properties,
            target.middle,
            opaque,
            target.tail,
        )
        size = len(header)
        body = message.body
        return b"".join((_pack(4 + size + len(body), size), header, body))

    @staticmethod
    def outgoing(message: Message, unique_id: str, born_ms: int) -> Outgoing:
        """The same message for the ordinary way, when the plain one failed: same id, same time."""
        return Outgoing(
            message.topic,
            unique_id,
            properties_text(message, unique_id),
            message.body,
            message.flag,
            born_ms,
        )
