"""Who a replica is: its group, its number in it, and the id of its store. Kept in ``ha/identity`` of the store.

A store gets its id when it first becomes a member. A wiped disk therefore comes back as somebody new.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

from cometmq.broker.ha.durable_file import DamagedFile, read_json, write_json
from cometmq.errors import ConfigError

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Identity:
    group: str
    replica_id: int
    store_id: str

    @classmethod
    def load_or_create(cls, path: Path, group: str, replica_id: int) -> Identity:
        """Raises DamagedFile, or ConfigError if the store is another replica's."""
        fields = read_json(path)
        if fields is None:
            created = cls(group, replica_id, uuid.uuid4().hex)
            created.save(path)
            return created
        try:
            found = cls(str(fields["group"]), int(fields["replicaId"]), str(fields["storeId"]))
        except (KeyError, ValueError) as error:
            raise DamagedFile(f"The file {path} lacks {error}.") from error
        if (found.group, found.replica_id) != (group, replica_id):
            raise ConfigError(
                f"The store belongs to replica {found.replica_id} of the group {found.group}, but the settings say "
                f"replica {replica_id} of {group}: use another storePathRootDir or set brokerName and brokerId back."
            )
        return found

    def save(self, path: Path) -> None:
        write_json(
            path,
            {"format": FORMAT, "group": self.group, "replicaId": self.replica_id, "storeId": self.store_id},
        )
