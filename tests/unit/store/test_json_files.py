"""Config files: the .bak fallback, saving without a moment of neither, coalesced saving."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cometmq.errors import StoreError
from cometmq.protocol import json_java
from cometmq.store.json_files import DirtySaver, EntryTexts, JsonFile, strict_json

parse = json_java.loads


def test_missing_files_mean_defaults(tmp_path: Path) -> None:
    assert JsonFile(tmp_path / "topics.json").load(parse) is None


@pytest.mark.parametrize("content", [None, b"", b"  \n", b'{"a":', b"\xff\xfe"])
def test_damaged_file_falls_back_to_bak(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "topics.json"
    if content is not None:
        path.write_bytes(content)
    (tmp_path / "topics.json.bak").write_text('{"a":1}')
    file = JsonFile(path)
    assert file.load(parse) == {"a": 1}
    # The damaged file must not become the .bak: until the new one is in place .bak is all there is.
    file.save('{"a":2}')
    assert parse((tmp_path / "topics.json.bak").read_bytes()) == {"a": 1}
    assert parse(path.read_bytes()) == {"a": 2}
    file.save('{"a":3}')
    assert parse((tmp_path / "topics.json.bak").read_bytes()) == {"a": 2}


def test_damaged_file_and_damaged_bak_are_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "topics.json").write_text('{"a":')
    (tmp_path / "topics.json.bak").write_text("{{")
    with pytest.raises(
        StoreError, match=r"topics\.json\.bak cannot be understood .*: repair it, or remove topics\.json and"
    ):
        JsonFile(tmp_path / "topics.json").load(parse)


def test_saving_keeps_the_previous_content_and_leaves_no_other_files(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "config" / "topics.json")
    file.save("1")
    file.save("2")
    file.save("3")
    assert file.path.read_text() == "3"
    assert file.backup_path.read_text() == "2"
    assert sorted(path.name for path in file.path.parent.iterdir()) == ["topics.json", "topics.json.bak"]


def test_a_reader_finds_a_whole_file_at_every_moment(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "topics.json")
    text = json.dumps(list(range(2000)))
    file.save(text)
    file.save(text)
    stop = threading.Event()

    def save() -> None:
        while not stop.is_set():
            file.save(text)

    thread = threading.Thread(target=save)
    thread.start()
    for _ in range(300):
        assert file.path.read_text() == text
        assert file.backup_path.read_text() == text
    stop.set()
    thread.join()


def with_numbers_as_keys(value: object) -> object:
    if not isinstance(value, dict):
        return value
    return {int(k) if k.isdigit() else k: with_numbers_as_keys(v) for k, v in value.items()}


def test_golden_config_files_load_and_print_to_the_same_bytes(golden_store: Callable[[str], Path]) -> None:
    paths = sorted((golden_store("clean") / "config").glob("*.json"))
    assert len(paths) == 5
    for path in paths:
        value = JsonFile(path).load(parse)
        assert json_java.dumps_pretty(with_numbers_as_keys(value)) == path.read_text()


def test_bare_integer_keys_are_quoted_and_strings_left_alone() -> None:
    text = b'{"a":{0:10, -1 :7,\n 22:{3:[1,2]}},"{5:":"x\\",6:y","n":-1,"e":{}}'
    assert json.loads(strict_json(text)) == {
        "a": {"0": 10, "-1": 7, "22": {"3": [1, 2]}},
        "{5:": 'x",6:y',
        "n": -1,
        "e": {},
    }
    plain = b'{"a":[1,2,3]}'
    assert strict_json(plain) is plain


def test_offsets_of_ten_thousand_topics_load_quickly(tmp_path: Path) -> None:
    queues = ",".join(f"{number}:{number * 12345}" for number in range(8))
    entries = ",".join(f'"Topic{number}@group":{{{queues}}}' for number in range(10_000))
    path = tmp_path / "consumerOffset.json"
    path.write_text(f'{{"offsetTable":{{{entries}}}}}')
    started_s = time.process_time()
    loaded = JsonFile(path).load(parse)
    assert time.process_time() - started_s < 1
    assert loaded["offsetTable"]["Topic9999@group"]["7"] == 86415


def test_unwritable_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("a file, not a directory")
    with pytest.raises(
        StoreError, match=r"topics\.json cannot be written .*the previous content is still there"
    ):
        JsonFile(tmp_path / "config" / "topics.json").save("{}")


class Table:
    def __init__(self, path: Path, submit: Callable[[Callable[[], None]], object], interval_ms: int) -> None:
        self.now_ms = 1_000_000
        self.value = 0
        self.renders = 0
        self.saver = DirtySaver(
            JsonFile(path), self.render, submit=submit, interval_ms=interval_ms, now_ms=lambda: self.now_ms
        )

    def render(self) -> str:
        self.renders += 1
        return str(self.value)

    def change(self) -> None:
        self.value += 1
        self.saver.mark()


def test_many_changes_are_saved_together(tmp_path: Path) -> None:
    table = Table(tmp_path / "x.json", lambda job: job(), 200)
    for _ in range(1000):
        table.change()
    assert table.renders == 1  # the first at once, the others wait
    assert table.saver.dirty
    table.now_ms += 199
    table.saver.tick()
    assert table.renders == 1
    table.now_ms += 1
    table.saver.tick()
    assert (tmp_path / "x.json").read_text() == "1000"
    assert table.renders == 2
    table.now_ms += 1000
    table.saver.tick()
    assert table.renders == 2


def test_close_writes_the_last_change_and_waits_for_a_running_save(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        table = Table(tmp_path / "x.json", pool.submit, 60_000)
        for _ in range(100):
            table.change()
        table.saver.close()
        assert (tmp_path / "x.json").read_text() == "100"
        assert not table.saver.dirty


def test_failed_save_is_counted_and_tried_again(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("in the way")
    table = Table(tmp_path / "config" / "x.json", lambda job: job(), 100)
    table.change()
    assert table.saver.error_count == 1
    assert table.saver.dirty
    (tmp_path / "config").unlink()
    table.now_ms += 100
    table.saver.tick()
    assert (tmp_path / "config" / "x.json").read_text() == "1"


def test_entry_texts_renders_only_what_changed() -> None:
    rendered: list[str] = []

    def render(key: str, value: tuple[int, ...]) -> str:
        rendered.append(key)
        return f"{key}:{value[0]}"

    texts = EntryTexts(render)
    table = {"a": (1,), "b": (2,)}
    assert texts.texts(table.items()) == ["a:1", "b:2"]
    table["b"] = (3,)
    table["c"] = (4,)
    assert texts.texts(table.items()) == ["a:1", "b:3", "c:4"]
    del table["a"]
    assert texts.texts(table.items()) == ["b:3", "c:4"]
    assert rendered == ["a", "b", "b", "c"]
