"""Tolerance of typed bodies, and the forms that the recordings do not show."""

from __future__ import annotations

import zlib
from datetime import datetime

import pytest

from cometmq.errors import RemoteProtocolError
from cometmq.protocol import json_java
from cometmq.protocol.bodies.connections import ProducerInfo
from cometmq.protocol.bodies.group import SubscriptionGroupConfig
from cometmq.protocol.bodies.heartbeat import HeartbeatData, SubscriptionData
from cometmq.protocol.bodies.offsets import (
    ConsumerOffsetTable,
    DelayOffsetTable,
    OffsetMovedEvent,
    ResetOffsetBody,
)
from cometmq.protocol.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from cometmq.protocol.bodies.running_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from cometmq.protocol.bodies.stats import (
    ConsumeStats,
    OffsetWrapper,
    QueueTimeSpan,
    TopicStatsTable,
    time_text,
)
from cometmq.protocol.bodies.topic import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from cometmq.protocol.message import MessageQueue

QUEUE = MessageQueue("T", "broker-a", 3)


def test_broker_addresses_are_read_with_bare_and_quoted_keys() -> None:
    for keys in ('{0:"h:1",1:"h:2"}', '{"0":"h:1","1":"h:2"}'):
        route = TopicRouteData.decode(
            f'{{"brokerDatas":[{{"brokerAddrs":{keys},"brokerName":"b","cluster":"C"}}]}}'
        )
        assert route.broker_datas[0].broker_addrs == {0: "h:1", 1: "h:2"}
        assert route.broker_datas[0].master_addr == "h:1"


def test_a_route_is_written_in_both_forms() -> None:
    route = TopicRouteData(
        broker_datas=[BrokerData(broker_addrs={0: "h:1"}, broker_name="b", cluster="C")],
        queue_datas=[QueueData(broker_name="b", perm=6, read_queue_nums=4, write_queue_nums=4)],
        order_topic_conf="b:4",
    )
    assert b'"brokerAddrs":{0:"h:1"}' in route.encode()
    assert b'"brokerAddrs":{"0":"h:1"}' in route.encode(strict=True)
    assert TopicRouteData.decode(route.encode()) == TopicRouteData.decode(route.encode(strict=True)) == route


def test_older_spellings_and_nulls_in_a_route_are_tolerated() -> None:
    queues = b'[{"brokerName":"b","topicSynFlag":1,"perm":"6"}]'
    text = b'{"orderTopicConf":null,"filterServerTable":null,"queueDatas":%s}' % queues
    (queue,) = TopicRouteData.decode(text).queue_datas
    assert (queue.perm, queue.topic_sys_flag) == (6, 0)


def test_object_keys_are_read_raw_and_quoted() -> None:
    key = '{"topic":"T","queueId":3,"brokerName":"broker-a"}'
    value = '{"maxOffset":2,"minOffset":0,"lastUpdateTimestamp":7}'
    for text in (
        f'{{"offsetTable":{{{key}:{value}}}}}',
        f'{{ "offsetTable" : {{ {key} : {value} }} }}',
        f'{{"offsetTable":{{{json_java.dumps(key)}:{value}}}}}',
    ):
        table = TopicStatsTable.decode(text).offset_table
        assert table[QUEUE].max_offset == 2


def test_reset_offsets_are_read_in_all_three_forms() -> None:
    body = ResetOffsetBody(offset_table={QUEUE: 5, MessageQueue("T", "broker-a", 1): 0})
    queues = [json_java.dumps(queue) for queue in body.offset_table]
    pairs = f'{{"offsetTable":[[{queues[0]},5],[{queues[1]},0]]}}'
    for text in (body.encode(), body.encode_for_cpp(), pairs):
        assert ResetOffsetBody.decode(text) == body
    for text in (
        b'{"offsetTable":[5]}',
        b'{"offsetTable":[[1,2,3]]}',
        b'{"offsetTable":[{"topic":"T"}]}',
        b"[]",
    ):
        with pytest.raises(RemoteProtocolError):
            ResetOffsetBody.decode(text)


def test_enumerations_may_be_ordinals() -> None:
    assert ConsumeMessageDirectlyResult.decode(b'{"consumeResult":1}').consume_result == "CR_LATER"
    assert ConsumeMessageDirectlyResult.decode(b'{"consumeResult":"CR_COMMIT"}').consume_result == "CR_COMMIT"
    heartbeat = HeartbeatData.decode(
        b'{"clientID":"c","consumerDataSet":[{"messageModel":1,"consumeType":0}]}'
    )
    assert heartbeat.consumer_data_set[0].message_model == "CLUSTERING"
    assert heartbeat.consumer_data_set[0].consume_type == "CONSUME_ACTIVELY"
    with pytest.raises(RemoteProtocolError):
        ConsumeMessageDirectlyResult.decode(b'{"consumeResult":99}')


def test_shared_subscriptions_of_fastjson_are_resolved() -> None:
    text = (
        b'{"clientID":"c","consumerDataSet":[{"groupName":"a","subscriptionDataSet":[{"topic":"T","subVersion":5}]},'
        b'{"groupName":"b","subscriptionDataSet":[{"$ref":"$.consumerDataSet[0].subscriptionDataSet[0]"}]}]}'
    )
    (_, second) = HeartbeatData.decode(text).consumer_data_set
    assert second.subscription_data_set == [SubscriptionData(topic="T", sub_version=5)]


def test_missing_members_take_their_defaults() -> None:
    group = SubscriptionGroupConfig.decode(b'{"groupName":"g","retryMaxTimes":null,"unknown":{"a":[1]}}')
    assert group == SubscriptionGroupConfig(group_name="g")
    assert group.retry_max_times == 16
    assert TopicConfig.decode(b"{}").read_queue_nums == 16


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"5", b"{", b'{"clientID":{}}', b'{"consumerDataSet":5}', b"\xff"]
)
def test_bodies_that_cannot_be_read_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        HeartbeatData.decode(data)


def test_offset_tables() -> None:
    offsets = ConsumerOffsetTable(offset_table={"T@g": {0: 11, 1: 9}, "%RETRY%g@g": {0: 2}})
    assert offsets.encode() == b'{"offsetTable":{"T@g":{0:11,1:9},"%RETRY%g@g":{0:2}}}'
    assert ConsumerOffsetTable.decode(offsets.encode()) == offsets
    assert DelayOffsetTable.decode(b'{"offsetTable":{1:2,"3":1}}').offset_table == {1: 2, 3: 1}
    event = OffsetMovedEvent(consumer_group="g", message_queue=QUEUE, offset_new=10, offset_request=1000)
    assert event.encode() == (
        b'{"consumerGroup":"g","messageQueue":{"brokerName":"broker-a","queueId":3,"topic":"T"},'
        b'"offsetNew":10,"offsetRequest":1000}'
    )


def test_statistics_are_written_as_java_does() -> None:
    stats = ConsumeStats(consume_tps=1e-5, offset_table={QUEUE: OffsetWrapper(broker_offset=2)})
    assert stats.encode() == (
        b'{"consumeTps":1.0E-5,"offsetTable":{{"brokerName":"broker-a","queueId":3,"topic":"T"}:'
        b'{"brokerOffset":2,"consumerOffset":0,"lastTimestamp":0}}}'
    )
    assert ConsumeStats.decode(stats.encode()) == stats


def test_members_with_odd_names() -> None:
    assert b'"remoteIP":"/h:1"' in ProducerInfo(remote_ip="/h:1").encode()
    info = ConsumerRunningInfo.decode(
        b'{"mqTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"droped":true}}}'
    )
    assert info.mq_table[MessageQueue("T", "b", 0)].dropped


def test_time_texts_are_local_time() -> None:
    moment = datetime(2026, 11, 15, 21, 43, 4, 364000)
    assert time_text(round(moment.timestamp() * 1000)) == "2026-11-15#21:43:04:364"
    span = QueueTimeSpan(message_queue=QUEUE).with_texts()
    assert span.max_time_stamp_str == time_text(-1)


def test_a_data_version_grows() -> None:
    version = DataVersion(counter=1, timestamp=5).next(9)
    assert version == DataVersion(counter=2, timestamp=9)
    assert version.encode() == b'{"counter":2,"timestamp":9}'


def registration() -> RegisterBrokerBody:
    table = {
        name: TopicConfig(topic_name=name, perm=7, topic_filter_type="MULTI_TAG")
        for name in ("A", "%RETRY%g")
    }
    wrapper = TopicConfigSerializeWrapper(
        data_version=DataVersion(counter=1, timestamp=2), topic_config_table=table
    )
    return RegisterBrokerBody(filter_server_list=["h:1"], topic_config_serialize_wrapper=wrapper)


def test_a_registration_is_the_same_compressed_and_plain() -> None:
    body = registration()
    assert RegisterBrokerBody.decode(body.encode()) == body
    assert RegisterBrokerBody.decode(body.encode(compressed=True), compressed=True) == body


def test_compressed_registrations_that_cannot_be_read_are_refused() -> None:
    good = registration().encode(compressed=True)
    plain = zlib.decompress(good)
    bad = [
        b"",
        b"{}",
        good[:-5],
        zlib.compress(plain[:-1]),
        zlib.compress(b"\xff\xff\xff\xff"),
        zlib.compress(b"\0"),
    ]
    size = int.from_bytes(plain[:4], "big")
    bad.append(zlib.compress(plain[: 4 + size] + b"\x7f\xff\xff\xff"))
    bad.append(zlib.compress(plain[: 4 + size] + b"\0\0\0\1\0\0\0\3A 4"))
    for data in bad:
        with pytest.raises(RemoteProtocolError):
            RegisterBrokerBody.decode(data, compressed=True)


def test_cluster_info_is_always_written_with_bare_keys() -> None:
    info = ClusterInfo(
        broker_addr_table={"b": BrokerData(broker_addrs={0: "h:1"}, broker_name="b", cluster="C")},
        cluster_addr_table={"C": ["b"]},
    )
    assert info.encode() == (
        b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"h:1"},"brokerName":"b","cluster":"C"}},'
        b'"clusterAddrTable":{"C":["b"]}}'
    )
    assert ClusterInfo.decode(info.encode()) == info
