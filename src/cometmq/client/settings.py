"""Settings of a client: arguments win over the environment, the environment over the defaults.

Environment: ``NAMESRV_ADDR`` (RocketMQ's own) and ``COMETMQ_<FIELD>`` for every field here, for example
``COMETMQ_ACCESS_KEY``. Durations of the public API are seconds (float or timedelta).
"""

from __future__ import annotations

import datetime as dt
import os
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

from cometmq.errors import ClientError

Duration = float | dt.timedelta

NAME_SERVER_VARIABLE = "NAMESRV_ADDR"
VARIABLE_PREFIX = "COMETMQ_"
# An endpoint such as MQ_INST_123_abc.host:port carries the namespace in its name.
_INSTANCE_ENDPOINT = re.compile(r"^(\w+://|)(MQ_INST_\w+_\w+)\..*")


def seconds(value: Duration) -> float:
    """
    >>> seconds(dt.timedelta(minutes=1)), seconds(2)
    (60.0, 2.0)
    """
    return value.total_seconds() if isinstance(value, dt.timedelta) else float(value)


def milliseconds(value: Duration) -> int:
    return round(seconds(value) * 1000)


def parse_name_servers(value: str | Iterable[str] | None) -> tuple[str, ...]:
    """``"a:9876;b:9876"`` or a list of such texts.

    >>> parse_name_servers("10.0.0.1:9876; http://10.0.0.2:9876")
    ('10.0.0.1:9876', '10.0.0.2:9876')
    """
    if value is None:
        return ()
    texts = [value] if isinstance(value, str) else list(value)
    found = [item.strip() for text in texts for item in re.split("[;,]", text) if item.strip()]
    for item in found:
        if ":" not in item.rsplit("/", 1)[-1]:
            raise ClientError(f"{item!r} is not a NameServer address; write host:port, several joined by ';'")
    return tuple(dict.fromkeys(item.rsplit("/", 1)[-1] for item in found))


def namespace_of_endpoint(addresses: str | Iterable[str] | None) -> str:
    """The namespace inside an instance endpoint, else nothing."""
    text = addresses if isinstance(addresses, str) else ";".join(addresses or ())
    found = _INSTANCE_ENDPOINT.match(text)
    return found.group(2) if found else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything a client may be told. Frozen: make another one with ``dataclasses.replace``."""

    name_servers: tuple[str, ...] = ()
    discovery_domain: str = "jmenv.tbsite.net"
    discovery_group: str = "nsaddr"
    access_key: str = ""
    secret_key: str = ""
    security_token: str = ""
    namespace: str = ""
    instance_name: str = ""
    unit_name: str = ""
    unit_mode: bool = False
    client_ip: str = ""
    tls: bool | ssl.SSLContext = False
    tls_verify: bool = False
    vip_channel: bool = False
    isolate: bool = False
    trace: bool = False
    trace_topic: str = "RMQ_SYS_TRACE_TOPIC"
    connect_timeout: Duration = 3.0
    request_timeout: Duration = 3.0
    route_interval: Duration = 30.0
    heartbeat_interval: Duration = 30.0
    offset_interval: Duration = 5.0
    rebalance_interval: Duration = 20.0
    drain_timeout: Duration = 10.0
    offset_directory: str = "~/.rocketmq_offsets"
    compress_over_bytes: int = 4096
    compression: str = "zlib"
    compression_level: int = 5
    message_bytes_max: int = 4 * 1024 * 1024

    def __post_init__(self) -> None:
        if bool(self.access_key) != bool(self.secret_key):
            raise ClientError("access_key and secret_key belong together; give both or neither")

    @classmethod
    def load(
        cls,
        name_servers: str | Iterable[str] | None = None,
        environment: Mapping[str, str] | None = None,
        **given: Any,
    ) -> Self:
        """Defaults, then the environment, then what was given."""
        environment = os.environ if environment is None else environment
        values = _from_environment(cls, environment)
        servers = name_servers or environment.get(NAME_SERVER_VARIABLE) or values.pop("name_servers", None)
        values.update(given)
        values["name_servers"] = parse_name_servers(servers)
        if not values.get("namespace"):
            values["namespace"] = namespace_of_endpoint(servers)
        return cls(**values)

    def changed(self, **changes: Any) -> Self:
        """A copy with some settings changed."""
        return replace(self, **changes)

    @property
    def offset_path(self) -> Path:
        """Where offsets of broadcast groups are kept."""
        return Path(self.offset_directory).expanduser()

    def ssl_context(self) -> ssl.SSLContext | None:
        """None without TLS. As in RocketMQ, ``tls=True`` encrypts but checks no certificate unless ``tls_verify``."""
        if isinstance(self.tls, ssl.SSLContext):
            return self.tls
        if not self.tls:
            return None
        context = ssl.create_default_context()
        if not self.tls_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


def _from_environment(cls: type[Settings], environment: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for item in fields(cls):
        text = environment.get(VARIABLE_PREFIX + item.name.upper())
        if text is not None:
            values[item.name] = _parsed(item.name, text, item.default)
    return values


def _parsed(name: str, text: str, default: object) -> object:
    if isinstance(default, bool):
        return text.strip().lower() in ("1", "true", "yes", "on")
    try:
        return type(default)(text) if isinstance(default, int | float) else text
    except ValueError:
        raise ClientError(f"{VARIABLE_PREFIX}{name.upper()} must be a number, not {text!r}") from None
