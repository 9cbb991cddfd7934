"""TLS settings under RocketMQ's names, the ssl contexts made from them, and their reload when files change.

Two things differ from the Java server: a client certificate that is asked for is always verified (so
``require`` without ``authClient`` is refused), and nothing below TLS 1.2 is spoken. As in Java,
``authServer`` verifies the chain and not the host name: clients reach brokers by the address in the route.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from cometmq.errors import ConfigError
from cometmq.net.self_signed import load_self_signed
from cometmq.properties_file import BadProperties, parse_bytes

log = logging.getLogger(__name__)


class TlsMode(StrEnum):
    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


TLS_FILE_DEFAULT = "/etc/rocketmq/tls.properties"  # Java's default
CLIENT_AUTH_MODES = ("none", "optional", "require")


def _key(name: str, default: Any) -> Any:
    return field(default=default, metadata={"key": name}, repr="assword" not in name)


_MODE = _key("tls.server.mode", TlsMode.PERMISSIVE)


@dataclass(frozen=True, kw_only=True)
class TlsConfig:
    """One process's TLS, as server and as client."""

    mode: TlsMode = _MODE
    test_mode_enable: bool = _key("tls.test.mode.enable", True)  # self-signed; the server paths are not read
    server_need_client_auth: str = _key("tls.server.need.client.auth", "none")
    server_auth_client: bool = _key("tls.server.authClient", False)
    server_key_path: str = _key("tls.server.keyPath", "")
    server_key_password: str = _key("tls.server.keyPassword", "")
    server_cert_path: str = _key("tls.server.certPath", "")
    server_trust_cert_path: str = _key("tls.server.trustCertPath", "")
    enable: bool = _key("tls.enable", False)  # as client: use TLS
    client_auth_server: bool = _key("tls.client.authServer", False)
    client_key_path: str = _key("tls.client.keyPath", "")
    client_key_password: str = _key("tls.client.keyPassword", "")
    client_cert_path: str = _key("tls.client.certPath", "")
    client_trust_cert_path: str = _key("tls.client.trustCertPath", "")

    @classmethod
    def load(cls, properties: Mapping[str, str]) -> Self:
        """The ``tls.*`` keys of the settings, and over them those of the file ``tls.config.file``."""
        path = properties.get("tls.config.file", "").strip() or TLS_FILE_DEFAULT
        try:
            found = parse_bytes(Path(path).read_bytes())
        except FileNotFoundError as error:
            if path != TLS_FILE_DEFAULT:
                raise ConfigError(f"tls.config.file {path} does not exist.") from error
            found = {}
        except (OSError, BadProperties) as error:
            raise ConfigError(f"tls.config.file {path} cannot be read: {error}.") from error
        return cls.from_properties({**properties, **found})

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Take the ``tls.*`` keys; others are left alone."""
        known = {f.metadata["key"]: f for f in fields(cls)}
        found: dict[str, Any] = {}
        for key in known.keys() & properties.keys():
            text = properties[key].strip()
            found[known[key].name] = text.lower() == "true" if known[key].type == "bool" else text
        if "mode" in found:
            found["mode"] = _mode(found["mode"])
            # A broker that accepts TLS only also speaks TLS to its NameServers, unless told otherwise.
            found.setdefault("enable", found["mode"] is TlsMode.ENFORCING)
        return cls(**found)


def _mode(text: str) -> TlsMode:
    try:
        return TlsMode(text.lower())
    except ValueError:
        raise ConfigError(
            f"tls.server.mode is {text!r}; it must be disabled, permissive or enforcing."
        ) from None


def server_context(config: TlsConfig) -> ssl.SSLContext:
    """The server side. Blocking (reads files, may make a certificate): call it in a thread."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if config.test_mode_enable:
        if config.server_cert_path:
            log.warning(
                "tls.server.certPath is not used: tls.test.mode.enable is true (its default), set it to false"
            )
        load_self_signed(context)
        return context
    _load_own(context, "server", config.server_cert_path, config.server_key_path, config.server_key_password)
    _ask_client(context, config)
    return context


def _ask_client(context: ssl.SSLContext, config: TlsConfig) -> None:
    wish = config.server_need_client_auth.lower()
    if wish not in CLIENT_AUTH_MODES:
        raise ConfigError(f"tls.server.need.client.auth is {wish!r}; it must be none, optional or require.")
    if wish == "none" or (wish == "optional" and not config.server_auth_client):
        return
    if not config.server_auth_client or not config.server_trust_cert_path:
        raise ConfigError(
            f"tls.server.need.client.auth={wish} needs tls.server.authClient=true "
            "and tls.server.trustCertPath."
        )
    _load_trusted(context, "server", config.server_trust_cert_path)
    context.verify_mode = ssl.CERT_REQUIRED if wish == "require" else ssl.CERT_OPTIONAL


def client_context(config: TlsConfig) -> ssl.SSLContext:
    """The client side: verifies the server only when asked to. Blocking (reads files)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    if not config.client_auth_server:
        context.verify_mode = ssl.CERT_NONE
    elif config.client_trust_cert_path:
        _load_trusted(context, "client", config.client_trust_cert_path)
    else:
        context.load_default_certs()
    if config.client_cert_path:
        _load_own(
            context, "client", config.client_cert_path, config.client_key_path, config.client_key_password
        )
    return context


def _load_own(context: ssl.SSLContext, side: str, certificate: str, key: str, password: str) -> None:
    if not certificate:
        raise ConfigError(f"TLS is on and tls.{side}.certPath is not set; name a PEM certificate there.")
    try:
        context.load_cert_chain(certificate, key or None, password=lambda: password)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise ConfigError(
            f"tls.{side}.certPath {certificate} with tls.{side}.keyPath {key or certificate} "
            f"cannot be loaded: {error}."
        ) from error


def _load_trusted(context: ssl.SSLContext, side: str, path: str) -> None:
    try:
        context.load_verify_locations(path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"tls.{side}.trustCertPath {path} cannot be loaded: {error}.") from error


class CertificateWatch:
    """Tells when the server's files were replaced: key *and* certificate, or the trusted certificates."""

    def __init__(self, config: TlsConfig, stamp: Callable[[str], int] | None = None) -> None:
        self._paths = (config.server_key_path, config.server_cert_path, config.server_trust_cert_path)
        self._stamp = stamp or _modified_ns
        self._seen = self._stamps()

    def _stamps(self) -> tuple[int, ...]:
        return tuple(self._stamp(path) if path else 0 for path in self._paths)

    def changed(self) -> bool:
        """True once per replacement. A new key without its certificate (or the reverse) has to wait."""
        stamps = self._stamps()
        key, certificate, _ = (new != old for new, old in zip(stamps, self._seen, strict=True))
        half = key != certificate and self._paths[0] != ""
        if half or stamps == self._seen:
            return False
        self._seen = stamps
        return True


def _modified_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0  # being replaced just now
