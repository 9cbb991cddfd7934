"""The exception tree. Every message is one sentence that names the thing and, where there is one, the remedy."""

from __future__ import annotations


class CometMQError(Exception):
    """Base of everything this package raises on purpose."""


class ConfigError(CometMQError):
    """A configuration value that cannot be used."""


class ProtocolError(CometMQError):
    """Bytes that break the remoting protocol."""


class LocalProtocolError(ProtocolError):
    """We were asked to send something that the protocol cannot carry."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something that the protocol does not allow."""


class StoreError(CometMQError):
    """The store directory cannot be used, or a file in it is damaged."""


class ConnectionLost(CometMQError, ConnectionError):
    """The peer closed the connection, or it could not be opened."""


class NoMaster(ConnectionLost):
    """A group of brokers has no master at the moment; nothing was sent."""


class Timeout(CometMQError, TimeoutError):
    """No answer within the time limit. Also a built-in ``TimeoutError``."""


class BrokerError(CometMQError):
    """The peer answered with an error code."""

    def __init__(self, code: int, remark: str | None, address: str | None = None) -> None:
        self.code = int(code)
        self.remark = remark or ""
        self.address = address
        where = f" from {address}" if address else ""
        super().__init__(f"code {self.code}{where}: {self.remark}")


class ClientError(CometMQError):
    """The client cannot do what was asked: wrong argument, no route, no NameServer, closed."""


class TopicNotFound(ClientError):
    """No NameServer knows a route for the topic."""


class MessageInvalid(ClientError):
    """A message that no broker would take: empty, too large, bad topic or property name."""


class ClientClosed(ClientError):
    """The client, producer or consumer was closed, or not yet started."""


class ClientForked(ClientError):
    """A client that was started before fork() is used in the child process."""


class SendFailed(ClientError):
    """Every attempt to send failed; the last cause is chained as ``__cause__``. The outcome may be unknown."""

    def __init__(self, text: str, attempts: int, code: int | None = None) -> None:
        super().__init__(text)
        self.attempts = attempts
        self.code = code


class RequestTimeout(ClientError, Timeout):
    """The request was sent and no reply came in time."""
