"""fastjson text, in and out."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from cometmq.errors import RemoteProtocolError
from cometmq.protocol import json_java
from cometmq.protocol.bodies.route import BrokerData
from cometmq.protocol.bodies.topic import DataVersion, TopicConfig
from cometmq.protocol.limits import JSON_DEPTH_MAX
from cometmq.protocol.message import MessageQueue

QUEUE = MessageQueue("T", "b", 0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{0:5,1:6}", {"0": 5, "1": 6}),
        ('{"a":{-1:"x"}, "b" : { 12 : [] }}', {"a": {"-1": "x"}, "b": {"12": []}}),
        ('{{"k":1}:2}', {'{"k":1}': 2}),
        ('{{"k":"a\\"b}:{"}:{"v":[{{"n":0}:1}]}}', {'{"k":"a\\"b}:{"}': {"v": [{'{"n":0}': 1}]}}),
        ('{"t":{{"k":1}:2 , {"k":2} : 3}}', {"t": {'{"k":1}': 2, '{"k":2}': 3}}),
        ('{"{\\"k\\":1}":2}', {'{"k":1}': 2}),
        ('{{"k":{0:1}}:2}', {'{"k":{"0":1}}': 2}),
        ("[{1:true,2:null,3:1.5e3}]", [{"1": True, "2": None, "3": 1500.0}]),
        ("{}", {}),
        ('"x"', "x"),
        ('{0:"tab\there"}', {"0": "tab\there"}),
    ],
)
def test_bare_and_object_keys_are_read_as_text(text: str, value: Any) -> None:
    assert json_java.loads(text) == value
    assert json_java.loads(text.encode()) == value
    assert json_java.loads(memoryview(text.encode())) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "{0",
        "{0:",
        "{0:1",
        "{0:1]",
        "}",
        '{"a" 1}',
        '{0:"unfinished',
        "{0:1}}",
        "{0:1} x",
        "{x:1}",
        "{0:nul}",
        "{[1]:2}",
        '{{"k":1}}',
        "{{{1:2}:3}:4}",
        '{0:"\\x"}',
        '{0:"\\ud8"}',
        "{:1}",
        "{0:1,}",
        "{0::1}",
        b"\xff\xfe",
    ],
)
def test_text_without_a_meaning_is_refused(text: str | bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        json_java.loads(text)


def test_nesting_is_limited() -> None:
    inside = "{0:" * (JSON_DEPTH_MAX - 1) + "{}" + "}" * (JSON_DEPTH_MAX - 1)
    assert json_java.loads(inside)
    with pytest.raises(RemoteProtocolError, match="deeper"):
        json_java.loads("{0:" * 100_000)
    with pytest.raises(RemoteProtocolError):
        json_java.loads("[" * 1_000_000)


def test_size_is_limited() -> None:
    with pytest.raises(RemoteProtocolError, match="larger than"):
        json_java.loads('"' + "x" * 17_000_000 + '"')
    with pytest.raises(RemoteProtocolError, match="not strict JSON"):
        json_java.loads('{0:"' + "x" * 1000 + '"}', 1000)


def test_hostile_text_takes_linear_time() -> None:
    begin = time.perf_counter()
    for text in (
        '{"a":' + '\\"' * 100_000,
        "{0:" + " " * 200_000,
        "{" * 60 + '"' * 200_001,
        "{{" + '"a":1,' * 50_000,
    ):
        with pytest.raises(RemoteProtocolError):
            json_java.loads(text)
    assert time.perf_counter() - begin < 5


def test_java_writes_keys_bare_and_as_objects() -> None:
    value = {"offsetTable": {QUEUE: {0: 5, 1: 6}}}
    text = '{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{0:5,1:6}}}'
    assert json_java.dumps(value) == text
    key = '{"brokerName":"b","queueId":0,"topic":"T"}'
    assert json_java.loads(text) == {"offsetTable": {key: {"0": 5, "1": 6}}}


def test_the_strict_form_is_ascii_json() -> None:
    broker = BrokerData(broker_addrs={0: "h:1"}, broker_name="代理\U0001f600", cluster="C")
    text = json_java.dumps_strict(broker)
    assert text == '{"brokerAddrs":{"0":"h:1"},"brokerName":"\\u4EE3\\u7406\\uD83D\\uDE00","cluster":"C"}'
    assert json.loads(text)["brokerName"] == "代理\U0001f600"
    assert json.loads(json_java.dumps_strict({QUEUE: 1})) == {json_java.dumps(QUEUE): 1}


def test_the_layout_of_config_files() -> None:
    topics = {
        "dataVersion": DataVersion(counter=15, timestamp=1794778538738),
        "topicConfigTable": {
            "TopicBatch": TopicConfig(topic_name="TopicBatch", read_queue_nums=4, write_queue_nums=4)
        },
    }
    assert json_java.dumps_pretty(topics) == (
        '{\n\t"dataVersion":{\n\t\t"counter":15,\n\t\t"timestamp":1794778538738\n\t},\n'
        '\t"topicConfigTable":{\n\t\t"TopicBatch":{\n\t\t\t"order":false,\n\t\t\t"perm":6,\n'
        '\t\t\t"readQueueNums":4,\n\t\t\t"topicFilterType":"SINGLE_TAG",\n\t\t\t"topicName":"TopicBatch",\n'
        '\t\t\t"topicSysFlag":0,\n\t\t\t"writeQueueNums":4\n\t\t}\n\t}\n}'
    )
    offsets = {"offsetTable": {"A@g": {0: 10, 1: 7}, "B@g": {0: 1}}}
    assert json_java.dumps_pretty(offsets) == (
        '{\n\t"offsetTable":{\n\t\t"A@g":{0:10,1:7\n\t\t},\n\t\t"B@g":{0:1\n\t\t}\n\t}\n}'
    )
    assert json_java.dumps_pretty({"offsetTable": {1: 1, 2: 1}}) == '{\n\t"offsetTable":{1:1,2:1\n\t}\n}'
    assert json_java.dumps_pretty({"filterDataByTopic": {}}) == '{\n\t"filterDataByTopic":{}\n}'


def test_strings_are_escaped_as_fastjson_does() -> None:
    assert json_java.dumps('"\\/\b\f\n\r\t\x01\x1f\x7f\u2028é中😀') == (
        '"\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001F\\u007F\\u2028é中😀"'
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (0.25833333333333336, "0.25833333333333336"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (1234567.0, "1234567.0"),
        (9999999.5, "9999999.5"),
        (12345678.0, "1.2345678E7"),
        (1e300, "1.0E300"),
        (-1.5e-9, "-1.5E-9"),
        (float("nan"), "null"),
        (float("inf"), "null"),
    ],
)
def test_doubles_are_written_as_java_does(value: float, text: str) -> None:
    assert json_java.java_double(value) == text
    assert json_java.dumps([value]) == f"[{text}]"


def test_scalars_and_lists() -> None:
    assert json_java.dumps([None, True, False, 1, -5, "x", [], {}]) == '[null,true,false,1,-5,"x",[],{}]'
    assert json_java.text_of("x") == "x"
    assert json_java.text_of(True) == "true"
    with pytest.raises(TypeError, match="no JSON form"):
        json_java.dumps(object())


def test_references_are_resolved() -> None:
    text = '{"a":[{"s":[{"t":"x"}]},{"s":[{"$ref":"$.a[0].s[0]"}]}]}'
    assert json_java.resolve_references(json_java.loads(text))["a"][1]["s"] == [{"t": "x"}]
    assert json_java.resolve_references([1, "x"]) == [1, "x"]
    assert json_java.resolve_references(5) == 5


@pytest.mark.parametrize(
    "text",
    [
        '{"a":{"$ref":"$.b"}}',
        '{"a":{"$ref":"$"}}',
        '{"a":{"$ref":"@"}}',
        '{"a":[{"$ref":"$.a[9]"}]}',
        '{"a":5,"b":{"$ref":"$.a"}}',
        '{"a":[{"$ref":"$.b"}],"b":[{"$ref":"$.c"}],"c":[]}',
        '{"c":[1],"a":[' + ",".join(['{"$ref":"$.c"}'] * 65) + "]}",
    ],
)
def test_references_that_lead_nowhere_or_to_references_are_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        json_java.resolve_references(json_java.loads(text))
