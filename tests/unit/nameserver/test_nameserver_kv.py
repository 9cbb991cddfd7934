"""KV configuration and its file."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cometmq.errors import ConfigError
from cometmq.nameserver.kv import KvConfig


def loaded(path: Path) -> KvConfig:
    kv = KvConfig(str(path))
    kv.load()
    return kv


def test_values_survive_in_javas_file_layout(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "new" / "kv.json"

    async def main() -> None:
        kv = loaded(path)
        await kv.put("ORDER_TOPIC_CONFIG", "T", "broker-a:4")
        await kv.put("ns", "key", "Größe")
        await kv.delete("ns", "key")
        await kv.delete("ns", "key")

    run(main())
    assert json.loads(path.read_text()) == {
        "configTable": {"ORDER_TOPIC_CONFIG": {"T": "broker-a:4"}, "ns": {}}
    }
    again = loaded(path)
    assert again.get("ORDER_TOPIC_CONFIG", "T") == "broker-a:4"
    assert again.namespace("ns") == {}
    assert again.namespace("other") is None
    assert again.get("other", "x") is None


def test_old_file_stays_as_backup_and_serves_when_the_file_is_damaged(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "kv.json"

    async def main() -> None:
        kv = loaded(path)
        await kv.put("ns", "k", "1")
        await kv.put("ns", "k", "2")

    run(main())
    assert json.loads((tmp_path / "kv.json.bak").read_text()) == {"configTable": {"ns": {"k": "1"}}}
    path.write_text("{half")
    assert loaded(path).get("ns", "k") == "1"
    path.write_text("")  # a crash of the file system can leave this
    assert loaded(path).get("ns", "k") == "1"
    path.unlink()
    assert loaded(path).get("ns", "k") == "1"


@pytest.mark.parametrize("content", ["{half", "[]", '{"configTable":[]}', '{"configTable":{"ns":3}}'])
def test_damaged_file_without_a_backup_stops_the_start(tmp_path: Path, content: str) -> None:
    path = tmp_path / "kv.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"kv\.json.*damaged"):
        loaded(path)


def test_file_written_by_java_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    path.write_text('{"configTable":{"NSX":{},"ORDER_TOPIC_CONFIG":{"OrderTopic":"broker-a:2"}}}')
    assert loaded(path).namespace("ORDER_TOPIC_CONFIG") == {"OrderTopic": "broker-a:2"}


def test_many_changes_at_once_are_all_in_the_file(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "kv.json"

    async def main() -> None:
        kv = loaded(path)
        await asyncio.gather(*(kv.put("ns", str(n), "x") for n in range(50)))
        assert len(json.loads(path.read_text())["configTable"]["ns"]) == 50

    run(main())
