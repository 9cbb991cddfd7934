"""TLS settings under RocketMQ's names, and the ssl contexts made from them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from cometmq.errors import ConfigError


class TlsMode(StrEnum):
    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


@dataclass(frozen=True, kw_only=True)
class TlsConfig:
    """One process's TLS, as server and as client (keys ``tls.*``; broker.md I.2)."""

    mode: TlsMode = TlsMode.DISABLED
    test_mode_enable: bool = True  # self-signed certificate, the server paths are not read
    server_need_client_auth: str = "none"  # none, optional, require
    server_key_path: str = ""
    server_key_password: str = ""
    server_cert_path: str = ""
    server_trust_cert_path: str = ""
    server_auth_client: bool = False
    enable: bool = False  # as client: use TLS
    client_key_path: str = ""
    client_key_password: str = ""
    client_cert_path: str = ""
    client_trust_cert_path: str = ""
    client_auth_server: bool = False


async def server_context(config: TlsConfig) -> ssl.SSLContext | None:
    return None


def client_context(config: TlsConfig) -> ssl.SSLContext | None:
    return None
