"""HEART_BEAT 34, UNREGISTER_CLIENT 35, GET_CONSUMER_LIST_BY_GROUP 38, CHECK_CLIENT_CONFIG 46.

Thousands of clients send the same heartbeat every thirty seconds. A connection remembers its last one with
what it led to; when the bytes are equal and nobody changed those entries since, only the time is noted.
Event loop only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cometmq.broker.clients import ClientInfo, ConsumerGroup
from cometmq.broker.filter_data import ExpressionError, compile_expression
from cometmq.errors import BrokerError
from cometmq.protocol.bodies.group import ConsumerIdList, SubscriptionGroupConfig
from cometmq.protocol.bodies.heartbeat import CheckClientRequestBody, ConsumerData, HeartbeatData
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.filters.tag import is_tag_type
from cometmq.protocol.headers import ConsumerGroupHeader, EmptyHeader, UnregisterClientHeader
from cometmq.protocol.names import RETRY_PREFIX, UNIT_SUB_FLAG

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker
    from cometmq.net.connection import Connection
    from cometmq.net.server import Handler

HEARTBEAT = "heartbeat"  # key of a connection's attachments


@dataclass(slots=True)
class LastHeartbeat:
    """What the last heartbeat of a connection said, and the entries it led to."""

    body: bytes
    info: ClientInfo
    producer_groups: list[str]
    consumer_groups: list[tuple[ConsumerGroup, int, SubscriptionGroupConfig | None]]  # with the group's epoch

    def is_repeated_by(self, broker: Broker, request: RemotingCommand) -> bool:
        """The same again, and nothing that it would put right has changed meanwhile."""
        info = self.info
        return (
            request.body == self.body
            and (request.version, request.language) == (info.version, info.language)
            and all(broker.producers.has(group, info) for group in self.producer_groups)
            and all(self._stands(broker, *entry) for entry in self.consumer_groups)
        )

    def _stands(
        self, broker: Broker, group: ConsumerGroup, epoch: int, config: SubscriptionGroupConfig | None
    ) -> bool:
        return (
            broker.consumers.find(group.name) is group
            and group.epoch == epoch
            and group.members.get(self.info.connection) is self.info
            and broker.groups.find(group.name) is config
            and (config is None or broker.topics.find(RETRY_PREFIX + group.name) is not None)
        )


def handlers(broker: Broker) -> dict[int, Handler]:
    return {
        RequestCode.HEART_BEAT: partial(heart_beat, broker),
        RequestCode.UNREGISTER_CLIENT: partial(unregister_client, broker),
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: partial(get_consumer_list_by_group, broker),
        RequestCode.CHECK_CLIENT_CONFIG: partial(check_client_config, broker),
    }


def heart_beat(broker: Broker, connection: Connection, request: RemotingCommand) -> RemotingCommand:
    last: LastHeartbeat | None = connection.attachments.get(HEARTBEAT)
    if last is not None and last.is_repeated_by(broker, request):
        last.info.last_update_ms = broker.now_ms()
        return request.response()
    data = HeartbeatData.decode(request.body)
    info = _client_info(broker, connection, request, data.client_id, last)
    consumer_groups = [_register_consumer(broker, info, consumer) for consumer in data.consumer_data_set]
    producer_groups = [producer.group_name for producer in data.producer_data_set]
    for group in producer_groups:
        broker.producers.register(group, info)
    problem = _bad_expression(broker, data.consumer_data_set)
    connection.attachments[HEARTBEAT] = LastHeartbeat(
        b"" if problem else bytes(request.body), info, producer_groups, consumer_groups
    )
    if problem:  # the client is known now, but the pulls of that subscription will fail
        return request.response(ResponseCode.SUBSCRIPTION_PARSE_FAILED, problem)
    return request.response()


def _bad_expression(broker: Broker, consumers: Iterable[ConsumerData]) -> str | None:
    """Why an expression of a heartbeat does not compile; None when all do, or when expressions are not served."""
    if not broker.config.enable_property_filter:
        return None
    for consumer in consumers:
        for data in consumer.subscription_data_set:
            if not is_tag_type(data.expression_type) and not data.class_filter_mode:
                try:
                    compile_expression(data.expression_type, data.sub_string or "")
                except ExpressionError as error:
                    return f"group {consumer.group_name}, topic {data.topic}: {error}"
    return None


def _client_info(
    broker: Broker,
    connection: Connection,
    request: RemotingCommand,
    client_id: str,
    last: LastHeartbeat | None,
) -> ClientInfo:
    """The entry of this connection: one for all its groups, made at the first heartbeat."""
    if last is None:
        connection.on_close.append(partial(_connection_closed, broker))
    elif last.info.client_id == client_id:
        last.info.language, last.info.version = request.language, request.version
        last.info.last_update_ms = broker.now_ms()
        return last.info
    return ClientInfo(connection, client_id, request.language, request.version, broker.now_ms())


def _register_consumer(
    broker: Broker, info: ClientInfo, data: ConsumerData
) -> tuple[ConsumerGroup, int, SubscriptionGroupConfig | None]:
    config = broker.groups.find(data.group_name)
    if config is not None:
        broker.topics.find_or_create(
            RETRY_PREFIX + data.group_name,
            queue_nums=config.retry_queue_nums,
            sys_flag=UNIT_SUB_FLAG if data.unit_mode else 0,
        )
    # A group that does not exist and may not be created is registered all the same; its pulls say what is wrong.
    notify = config is None or config.notify_consumer_ids_changed_enable
    broker.consumers.register(info, data, notify=notify)
    broker.filter_data.register(data.group_name, data.subscription_data_set)
    group = broker.consumers.find(data.group_name)
    assert group is not None
    return group, group.epoch, config


def _connection_closed(broker: Broker, connection: Connection) -> None:
    broker.producers.connection_closed(connection)
    broker.consumers.connection_closed(connection)


def drop_expired_clients(broker: Broker) -> None:
    """Every ten seconds: clients without heartbeats are forgotten and their connections closed."""
    for connection in {*broker.producers.drop_expired(), *broker.consumers.drop_expired()}:
        connection.close()


def unregister_client(broker: Broker, connection: Connection, request: RemotingCommand) -> RemotingCommand:
    header = UnregisterClientHeader.decode(request.ext_fields)
    if header.producer_group is not None:
        broker.producers.unregister(header.producer_group, connection)
    if header.consumer_group is not None:
        config = broker.groups.get(header.consumer_group)
        notify = config is None or config.notify_consumer_ids_changed_enable
        broker.consumers.unregister(header.consumer_group, connection, notify=notify)
    return request.response(header=EmptyHeader())


def get_consumer_list_by_group(
    broker: Broker, connection: Connection, request: RemotingCommand
) -> RemotingCommand:
    header = ConsumerGroupHeader.decode(request.ext_fields)
    group = broker.consumers.find(header.consumer_group)
    if group is None:
        remark = f"no consumer for this group, {header.consumer_group}"
        return request.response(ResponseCode.SYSTEM_ERROR, remark, EmptyHeader())
    body = ConsumerIdList(consumer_id_list=group.client_ids()).encode()
    return request.response(header=EmptyHeader(), body=body)


def check_client_config(broker: Broker, connection: Connection, request: RemotingCommand) -> RemotingCommand:
    subscription = CheckClientRequestBody.decode(request.body).subscription_data
    kind = subscription.expression_type
    if is_tag_type(kind):
        return request.response()
    if not broker.config.enable_property_filter:
        raise BrokerError(
            ResponseCode.SYSTEM_ERROR, f"The broker does not support consumer to filter message by {kind}"
        )
    try:
        compile_expression(kind, subscription.sub_string or "")
    except ExpressionError as error:
        raise BrokerError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
    return request.response()
