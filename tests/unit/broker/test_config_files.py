"""The files of a broker and the journal of its topics."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from cometmq.broker.config import BrokerConfig
from cometmq.broker.files import ConfigFiles
from cometmq.broker.topics import TOPICS_FILE, Topics
from cometmq.protocol.bodies.topic import TopicConfig


def open_topics(directory: Path) -> tuple[ConfigFiles, Topics]:
    topics = Topics(BrokerConfig(broker_name="broker-a"))
    files = ConfigFiles(directory)
    topics.on_change = lambda names: files.changed(TOPICS_FILE, names)
    files.keep_with_journal(TOPICS_FILE, topics)
    return files, topics


def test_killed_process_forgets_no_topic(tmp_path: Path) -> None:
    async def main() -> None:
        _, topics = open_topics(tmp_path)
        for number in range(5):
            topics.put(TopicConfig(topic_name=f"T{number}", read_queue_nums=number))
        topics.delete("T1")
        # Nothing is closed: this is how a killed process leaves its files.
        files, again = open_topics(tmp_path)
        assert again.table == topics.table
        assert again.data_version == topics.data_version
        files.close()
        assert "T4" in (tmp_path / TOPICS_FILE).read_text()

    asyncio.run(main())


def test_orderly_stop_leaves_the_file_and_no_journal(tmp_path: Path) -> None:
    async def main() -> None:
        files, topics = open_topics(tmp_path)
        topics.put(TopicConfig(topic_name="T"))
        topics.put(TopicConfig(topic_name="U"))
        files.close()
        assert sorted(os.listdir(tmp_path)) in ([TOPICS_FILE], [TOPICS_FILE, f"{TOPICS_FILE}.bak"])
        _, again = open_topics(tmp_path)
        assert again.table == topics.table

    asyncio.run(main())


def test_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    async def main() -> None:
        files, topics = open_topics(tmp_path)
        topics.put(TopicConfig(topic_name="T"))
        files.close()
        line = topics.journal_line("T").replace('"T"', '"U"')
        (tmp_path / f"{TOPICS_FILE}.journal.7").write_text(f"{line}\nnonsense\n{line[:20]}")
        files, again = open_topics(tmp_path)
        assert {"T", "U"} <= again.table.keys()
        files.close()

    asyncio.run(main())


def test_journal_goes_on_in_a_new_file_after_each_save(tmp_path: Path) -> None:
    async def main() -> None:
        files, topics = open_topics(tmp_path)
        for number in range(30):
            topics.put(TopicConfig(topic_name=f"T{number}"))
            await asyncio.sleep(0.02)
        journals = [name for name in os.listdir(tmp_path) if ".journal." in name]
        assert 1 <= len(journals) <= 3
        _, again = open_topics(tmp_path)
        assert again.table == topics.table
        files.close()

    asyncio.run(main())
