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


class ConnectionLost(CometMQError):
    """The peer closed the connection, or it could not be opened."""


class Timeout(CometMQError):
    """No answer within the time limit."""


class BrokerError(CometMQError):
    """The peer answered with an error code."""

    def __init__(self, code: int, remark: str | None, address: str | None = None) -> None:
        self.code = int(code)
        self.remark = remark or ""
        self.address = address
        where = f" from {address}" if address else ""
        super().__init__(f"code {self.code}{where}: {self.remark}")
