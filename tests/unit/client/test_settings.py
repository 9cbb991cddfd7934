"""Settings, namespaces, filters, identity."""

from __future__ import annotations

import doctest
import importlib

import pytest

from cometmq.client.name_servers import discovery_url
from cometmq.client.namespace import unwrap, wrap
from cometmq.client.settings import Settings
from cometmq.client.subscription import SqlFilter, TagFilter, as_subscriptions
from cometmq.errors import ClientError


def test_arguments_win_over_environment_over_defaults() -> None:
    environment = {
        "NAMESRV_ADDR": "env:1",
        "COMETMQ_NAMESPACE": "env",
        "COMETMQ_REQUEST_TIMEOUT": "7.5",
        "COMETMQ_TRACE": "true",
    }
    settings = Settings.load("arg:1;arg:2", environment, namespace="arg")
    assert settings.name_servers == ("arg:1", "arg:2")
    assert (settings.namespace, settings.request_timeout, settings.trace) == ("arg", 7.5, True)
    assert Settings.load(None, environment).name_servers == ("env:1",)


def test_an_instance_endpoint_carries_its_namespace() -> None:
    settings = Settings.load("http://MQ_INST_12_ab.cn.example:80", {})
    assert settings.namespace == "MQ_INST_12_ab"
    assert settings.name_servers == ("MQ_INST_12_ab.cn.example:80",)


@pytest.mark.parametrize(
    "given", [{"access_key": "only"}, {"secret_key": "only"}, {"name_servers": "no-port"}]
)
def test_settings_that_cannot_work_are_refused(given: dict[str, str]) -> None:
    servers = given.pop("name_servers", None)
    with pytest.raises(ClientError):
        Settings.load(servers, {}, **given)


def test_a_number_that_is_none_names_its_variable() -> None:
    with pytest.raises(ClientError, match="COMETMQ_REQUEST_TIMEOUT"):
        Settings.load("a:1", {"COMETMQ_REQUEST_TIMEOUT": "soon"})


def test_discovery_address_as_rocketmq_builds_it() -> None:
    assert discovery_url(Settings()) == "http://jmenv.tbsite.net:8080/rocketmq/nsaddr"


@pytest.mark.parametrize(
    ("name", "wire"),
    [
        ("T3", "NSX%T3"),
        ("%RETRY%NCG", "%RETRY%NSX%NCG"),
        ("%DLQ%NCG", "%DLQ%NSX%NCG"),
        ("NSX%T3", "NSX%T3"),
        ("TBW102", "TBW102"),
        ("rmq_sys_x", "rmq_sys_x"),
        ("", ""),
    ],
)
def test_namespace_goes_on_once_and_not_on_system_names(name: str, wire: str) -> None:
    assert wrap("NSX", name) == wire
    assert unwrap("NSX", wire) == name.replace("NSX%", "")


def test_tag_filter_keeps_the_text_as_typed() -> None:
    typed = TagFilter.parse(" TagA || TagB||")
    assert typed.tags == {"TagA", "TagB"}
    assert typed.expression == " TagA || TagB||"
    assert TagFilter().expression == TagFilter.parse("*").expression == "*"
    assert TagFilter.parse("").tags == frozenset()


def test_subscriptions_take_names_texts_and_filters() -> None:
    assert as_subscriptions("orders") == {"orders": TagFilter()}
    assert as_subscriptions({"a": "x || y", "b": SqlFilter("n > 1"), "c": None}) == {
        "a": TagFilter.parse("x || y"),
        "b": SqlFilter("n > 1"),
        "c": TagFilter(),
    }


def test_an_empty_sql_filter_is_refused() -> None:
    with pytest.raises(ClientError, match="expression"):
        SqlFilter("  ")


@pytest.mark.parametrize(
    "name",
    ["queue", "queue_selection", "namespace", "settings", "subscription", "identity", "name_servers"],
)
def test_examples_in_docstrings_run(name: str) -> None:
    module = importlib.import_module(f"cometmq.client.{name}")
    assert doctest.testmod(module).failed == 0
