"""Settings of a NameServer and the properties format."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cometmq.errors import ConfigError
from cometmq.nameserver.config import NameServerConfig
from cometmq.net.config import NetConfig
from cometmq.properties_file import BadProperties, format_properties, parse, parse_bytes

JAVA_KEYS = {  # golden: admin_getNamesrvConfig
    "serverSocketBacklog", "writeBufferHighWaterMark", "serverWorkerThreads", "serverSelectorThreads",
    "serverChannelMaxIdleTimeSeconds", "writeBufferLowWaterMark", "serverSocketRcvBufSize",
    "serverAsyncSemaphoreValue", "kvConfigPath", "configStorePath", "clusterTest", "orderMessageEnable",
    "serverSocketSndBufSize", "serverOnewaySemaphoreValue", "serverCallbackExecutorThreads", "listenPort",
    "rocketmqHome", "productEnvName", "useEpollNativeSelector", "serverPooledByteBufAllocatorEnable",
}  # fmt: skip


def test_existing_namesrv_conf_works_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text(
        "# comment\n! another\nlistenPort = 19876\nkvConfigPath:data/kv.json\n"
        "orderMessageEnable=TRUE\nserverChannelMaxIdleTimeSeconds=60\ntls.server.mode=enforcing\n"
    )
    config = NameServerConfig.from_file(file)
    assert (config.listen_port, config.kv_config_path, config.order_message_enable) == (
        19876,
        "data/kv.json",
        True,
    )
    assert config.config_store_path == str(file)
    assert config.extra == {"tls.server.mode": "enforcing"}
    assert NetConfig.from_settings(config).server_idle_ms == 60_000


def test_settings_show_under_javas_keys() -> None:
    assert set(NameServerConfig().as_properties()) == JAVA_KEYS


def test_unknown_key_warns_with_the_nearest_name() -> None:
    config = NameServerConfig()
    assert config.update({"listenport": "1"}) == [
        "unknown setting 'listenport' is ignored; did you mean 'listenPort'?"
    ]
    assert config.update({"orderMesageEnable": "true"})[0].endswith("did you mean 'orderMessageEnable'?")
    assert config.update({"qqq": ""}) == ["unknown setting 'qqq' is ignored"]
    assert config.listen_port == 9876


def test_unparsable_value_keeps_the_old_one() -> None:
    config = NameServerConfig()
    (warning,) = config.update({"listenPort": "many"})
    assert "listenPort" in warning
    assert "9876" in warning
    assert config.listen_port == 9876


def test_text_of_the_settings_is_read_back_as_the_same(tmp_path: Path) -> None:
    config = NameServerConfig(kv_config_path="a path/with blank:and=sign", rocketmq_home="ünï")
    config.update({"bindAddress": "127.0.0.1", "tls.server.mode": "disabled"})
    file = tmp_path / "ns.properties"
    file.write_text(config.as_text())
    again = NameServerConfig.from_file(file)
    again.config_store_path = config.config_store_path
    assert again == config


def test_missing_file_is_a_config_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.conf"):
        NameServerConfig.from_file(tmp_path / "absent.conf")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb = 2\n  c : 3 \nd 4\ne\n", {"a": "1", "b": "2", "c": "3 ", "d": "4", "e": ""}),
        ("# x\n  ! y\n\na=#1\n", {"a": "#1"}),
        ("list=one,\\\n   two,\\\n\tthree\n", {"list": "one,two,three"}),
        ("path=c:\\\\temp\\\\\nnext=1", {"path": "c:\\temp\\", "next": "1"}),
        ("a\\ b\\=c=d", {"a b=c": "d"}),
        ("u=\\u00e9\\ud83d\\ude00", {"u": "é😀"}),
        ("t=\\t|\\n|\\q", {"t": "\t|\n|q"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("url=jdbc:x://h?a=b", {"url": "jdbc:x://h?a=b"}),
        ("end=\\", {"end": ""}),
        ("=v", {"": "v"}),
    ],
)
def test_java_properties_format(text: str, expected: dict[str, str]) -> None:
    assert parse(text) == expected


def test_properties_bytes_in_utf8_and_latin1() -> None:
    assert parse_bytes("k=é".encode()) == {"k": "é"}
    assert parse_bytes("k=é".encode("iso-8859-1")) == {"k": "é"}
    assert parse_bytes(b"\xef\xbb\xbfk=v") == {"k": "v"}


def test_bad_escape_is_refused() -> None:
    with pytest.raises(BadProperties):
        parse("a=\\u12x4")


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(_TEXTS, _TEXTS, max_size=5))
def test_written_properties_are_read_back(properties: dict[str, str]) -> None:
    assert parse(format_properties(properties, "a comment\nof two lines")) == properties
