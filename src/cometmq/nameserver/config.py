"""NameServer settings: every key of a RocketMQ 4.9 ``namesrv.conf`` with its type and default.

The object is live: UPDATE_NAMESRV_CONFIG changes it. Keys marked "no effect" exist so that an existing file
works as it is and shows again in GET_NAMESRV_CONFIG.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cometmq.controller.config import CONTROLLER_KEYS, ControllerConfig
from cometmq.errors import ConfigError
from cometmq.net.settings import ServerSettings
from cometmq.properties_file import (
    SYSTEM_PROPERTY_PREFIXES,
    BadProperties,
    apply_properties,
    as_properties,
    format_properties,
    parse_bytes,
    repeated_keys,
)

log = logging.getLogger(__name__)

LISTEN_PORT_DEFAULT = 9876
FIXED_KEYS = ("kvConfigPath", "configStorePath")  # cannot be changed while the server runs


@dataclass(kw_only=True)
class NameServerConfig(ServerSettings):
    listen_port: int = LISTEN_PORT_DEFAULT
    kv_config_path: str = ""  # $HOME/namesrv/kvConfig.json when empty
    config_store_path: str = ""  # $HOME/namesrv/namesrv.properties when empty, or the file given with -c
    order_message_enable: bool = False  # routes carry the order configuration of a topic
    rocketmq_home: str = ""
    product_env_name: str = "center"  # no effect
    cluster_test: bool = False  # no effect: routes are never asked from another environment

    bind_address: str = field(default="", metadata={"key": None})  # ours; every address when empty
    # tls.* and other system properties of the file, the keys of a controller, and bindAddress
    extra: dict[str, str] = field(default_factory=dict, metadata={"key": None})

    def __post_init__(self) -> None:
        home = os.path.join(os.path.expanduser("~"), "namesrv")
        self.kv_config_path = self.kv_config_path or os.path.join(home, "kvConfig.json")
        self.config_store_path = self.config_store_path or os.path.join(home, "namesrv.properties")
        self.rocketmq_home = self.rocketmq_home or os.environ.get("ROCKETMQ_HOME", "")

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Read a properties file; it becomes ``configStorePath``, the file that updates rewrite."""
        try:
            data = Path(path).read_bytes()
            properties = parse_bytes(data)
        except (OSError, BadProperties) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(
                f"The configuration {os.fspath(path)} cannot be read: {reason}; without -c the defaults count."
            ) from error
        config = cls()
        for warning in repeated_keys(data) + config.update(properties):
            log.warning("%s: %s", os.fspath(path), warning)
        config.config_store_path = os.path.abspath(path)
        return config

    def update(self, properties: Mapping[str, str]) -> list[str]:
        """Lay properties over the settings; returns a sentence for each key that had no effect."""
        known: dict[str, str] = {}
        for key, text in properties.items():
            if key.startswith(SYSTEM_PROPERTY_PREFIXES) or key in CONTROLLER_KEYS:
                self.extra[key] = text
            elif key == "bindAddress":
                self.bind_address = self.extra[key] = text.strip()
            else:
                known[key] = text
        return apply_properties(self, known)

    def controller(self) -> ControllerConfig | None:
        """Settings of the voter in this process (the third vote of a pair), None when there is none."""
        if not self.extra.get("controllerSelfId", "").strip():
            return None
        directory = os.path.join(os.path.dirname(self.kv_config_path), "controller")
        return ControllerConfig.from_properties(
            self.extra, directory=directory, bind_address=self.bind_address
        )

    def as_properties(self) -> dict[str, str]:
        """Every key with its value, as GET_NAMESRV_CONFIG shows them."""
        return {**as_properties(self), **self.extra}

    def as_text(self) -> str:
        return format_properties(self.as_properties())
