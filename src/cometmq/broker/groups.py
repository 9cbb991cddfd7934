"""Settings of consumer groups, kept in subscriptionGroup.json.

A group comes into being by the first request that names it (autoCreateSubscriptionGroup), or by an
administrator. Pure table, loop thread only: ``on_change`` is called after every change, for saving.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from cometmq.clock import Clock, now_ms
from cometmq.protocol import json_java
from cometmq.protocol.bodies.group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from cometmq.protocol.bodies.topic import DataVersion
from cometmq.protocol.names import BUILT_IN_GROUPS, SYSTEM_GROUP_PREFIX

log = logging.getLogger(__name__)

GROUPS_FILE = "subscriptionGroup.json"


def _nothing() -> None:
    pass


class SubscriptionGroups:
    def __init__(
        self,
        *,
        auto_create: Callable[[], bool] = lambda: True,
        is_light: Callable[[str], bool] = lambda group: False,
        on_change: Callable[[], None] = _nothing,
        now_ms: Clock = now_ms,
    ) -> None:
        self._auto_create = auto_create
        self._is_light = is_light
        self._now_ms = now_ms
        self._table: dict[str, SubscriptionGroupConfig] = {}
        self._texts: dict[str, str] = {}  # of each group in the file: a save joins them
        self.epoch = 0  # grows with every change of a group's settings
        self.on_change = on_change
        self.data_version = DataVersion(timestamp=now_ms(), counter=0)
        for name in BUILT_IN_GROUPS:
            self._set(SubscriptionGroupConfig(group_name=name))

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        return self._table.get(group)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The settings of a group, made with defaults when groups may come into being by being named."""
        found = self._table.get(group)
        if found is None and self._is_light(group):  # readers of light queues are many; nobody keeps them
            return SubscriptionGroupConfig(group_name=group)
        if found is None and (self._auto_create() or group.startswith(SYSTEM_GROUP_PREFIX)):
            found = self._set(SubscriptionGroupConfig(group_name=group))
            log.info("consumer group created group=%s", group)
            self._changed()
        return found

    def put(self, config: SubscriptionGroupConfig) -> None:
        """Create a group or replace its settings."""
        self._set(config)
        self._changed()

    def delete(self, group: str) -> bool:
        if self._table.pop(group, None) is None:
            return False
        del self._texts[group]
        self.epoch += 1
        self._changed()
        return True

    def disable_consume(self, group: str) -> None:
        """Stop a group that reads too far behind; in memory only, so a restart or an update lets it read
        again.
        """
        found = self._table.get(group)
        if found is not None:
            found.consume_enable = False

    def replace_all(self, wrapper: SubscriptionGroupWrapper) -> None:
        """Take over the groups of a master."""
        self._table, self._texts = {}, {}
        self.epoch += 1
        for config in wrapper.subscription_group_table.values():
            self._set(config)
        self.data_version = wrapper.data_version
        self.on_change()

    def __iter__(self) -> Iterator[SubscriptionGroupConfig]:
        return iter(self._table.values())

    def __len__(self) -> int:
        return len(self._table)

    def __contains__(self, group: object) -> bool:
        return group in self._table

    def _set(self, config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        self._table[config.group_name] = config
        self.epoch += 1
        self._texts[config.group_name] = json_java.dumps_pretty({config.group_name: config})[2:-2]
        return config

    def _changed(self) -> None:
        self.data_version = DataVersion(timestamp=self._now_ms(), counter=self.data_version.counter + 1)
        self.on_change()

    # --- the file and the answer to GET_ALL_SUBSCRIPTIONGROUP_CONFIG ---

    def snapshot(self) -> SubscriptionGroupWrapper:
        return SubscriptionGroupWrapper(
            subscription_group_table=dict(self._table), data_version=self.data_version
        )

    def file_text(self) -> str:
        """The layout of the original: one member a line, indented by tabs."""
        version = json_java.dumps_pretty(self.data_version).replace("\n", "\n\t")
        groups = ",".join("\n\t\t" + text.lstrip().replace("\n", "\n\t") for text in self._texts.values())
        table = f"{{{groups}\n\t}}" if groups else "{}"
        return f'{{\n\t"dataVersion":{version},\n\t"subscriptionGroupTable":{table}\n}}'

    def load_text(self, data: str | bytes) -> None:
        """Overlay what the file holds over the built-in groups."""
        wrapper = SubscriptionGroupWrapper.from_json(json_java.loads(data))
        for config in wrapper.subscription_group_table.values():
            self._set(config)
        self.data_version = wrapper.data_version
