"""What a NameServer answers: one function per request code, one table at the end.

Loop thread only. Functions that write a file are coroutines, all others answer at once.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from cometmq.nameserver.config import FIXED_KEYS
from cometmq.nameserver.files import write_with_backup
from cometmq.nameserver.kv import ORDER_TOPIC_CONFIG
from cometmq.nameserver.routes import (
    OldEpoch,
    Registration,
    has_unit_subscription,
    has_unit_subscription_only,
    is_unit,
)
from cometmq.net.connection import Connection
from cometmq.net.server import Handler
from cometmq.properties_file import BadProperties, parse_bytes
from cometmq.protocol.bodies.route import ClusterInfo, QueueData, TopicRouteData
from cometmq.protocol.bodies.stats import KVTable
from cometmq.protocol.bodies.topic import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
)
from cometmq.protocol.codes import VERSION_3_0_11, VERSION_4_9_4, RequestCode, ResponseCode
from cometmq.protocol.command import RemotingCommand
from cometmq.protocol.headers import (
    AddWritePermResponseHeader,
    BrokerHeader,
    BrokerNameHeader,
    ClusterHeader,
    DeleteTopicInNamesrvHeader,
    GetRouteInfoHeader,
    KVConfigHeader,
    KVConfigResponseHeader,
    NamespaceHeader,
    PutKVConfigHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerHeader,
    RegisterBrokerResponseHeader,
    WipeWritePermResponseHeader,
)

if TYPE_CHECKING:
    from cometmq.nameserver.server import NameServer

log = logging.getLogger(__name__)

FAQ = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
CRC_MASK = 0x7FFFFFFF
MASTER_EPOCH_FIELD = "masterEpoch"
ROUTE_CACHE_COUNT_MAX = 10_000  # encoded routes kept until the next change


class Handlers:
    def __init__(self, server: NameServer) -> None:
        self._server = server
        self._routes = server.routes
        self._kv = server.kv
        self._encoded: dict[tuple[str, bool], bytes] = {}
        self._encoded_revision = -1

    # --- brokers ---

    def register_broker(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = RegisterBrokerHeader.decode(command.ext_fields)
        if header.body_crc32 and header.body_crc32 != zlib.crc32(command.body) & CRC_MASK:
            return command.response(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        registration = _registration(header, command)
        try:
            master = self._routes.register(registration, connection, self._server.now_ms())
        except OldEpoch as error:
            log.warning("registration refused: %s", error)
            return command.response(ResponseCode.SYSTEM_ERROR, str(error))
        self._server.watch(connection)
        order = self._kv.namespace(ORDER_TOPIC_CONFIG)
        return command.response(
            header=RegisterBrokerResponseHeader(
                ha_server_addr=master.ha_server_addr if master else None,
                master_addr=master.address if master else None,
            ),
            body=b"" if order is None else KVTable(table=dict(order)).encode(),
        )

    def unregister_broker(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = BrokerHeader.decode(command.ext_fields)
        self._routes.unregister(
            broker_name=header.broker_name, broker_id=header.broker_id, address=header.broker_addr
        )
        log.info(
            "broker=%s id=%s address=%s unregistered",
            header.broker_name,
            header.broker_id,
            header.broker_addr,
        )
        return command.response()

    def query_data_version(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = BrokerHeader.decode(command.ext_fields)
        changed, known = self._routes.query_data_version(
            header.broker_addr, DataVersion.decode(command.body), self._server.now_ms()
        )
        return command.response(
            header=QueryDataVersionResponseHeader(changed=changed),
            body=b"" if known is None else known.encode(),
        )

    # --- routes ---

    def get_route(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        fields = command.ext_fields or {}
        topic = fields.get("topic")
        if topic is not None:
            header = GetRouteInfoHeader.decode(fields)
            strict = command.version >= VERSION_4_9_4 or bool(header.accept_standard_json_only)
            body = self._encoded_route(topic, strict)
            if body is not None:
                return command.response(body=body)
        remark = (
            f"No topic route info in name server for the topic: {'null' if topic is None else topic}{FAQ}"
        )
        return command.response(ResponseCode.TOPIC_NOT_EXIST, remark)

    def _encoded_route(self, topic: str, strict: bool) -> bytes | None:
        """Thousands of clients ask for the same few routes every 30 s: encode each once per change."""
        revision = self._routes.revision
        if revision != self._encoded_revision or len(self._encoded) >= ROUTE_CACHE_COUNT_MAX:
            self._encoded.clear()
            self._encoded_revision = revision
        body = self._encoded.get((topic, strict))
        if body is None:
            route = self._routes.route(topic)
            if route is None:
                return None
            data = TopicRouteData(
                broker_datas=route.brokers,
                filter_server_table=route.filter_servers,
                order_topic_conf=self._order_conf(topic),
                queue_datas=route.queues,
            )
            body = self._encoded[topic, strict] = data.encode(strict=strict)
        return body

    def _order_conf(self, topic: str) -> str | None:
        return self._kv.get(ORDER_TOPIC_CONFIG, topic) if self._server.config.order_message_enable else None

    def get_cluster_info(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        clusters = {cluster: sorted(names) for cluster, names in self._routes.clusters.items()}
        info = ClusterInfo(broker_addr_table=self._routes.groups, cluster_addr_table=clusters)
        return command.response(body=info.encode())

    def get_all_topics(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return command.response(body=TopicList(topic_list=self._routes.topics()).encode())

    def get_topics_by_cluster(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = ClusterHeader.decode(command.ext_fields)
        return command.response(
            body=TopicList(topic_list=self._routes.topics_of_cluster(header.cluster)).encode()
        )

    def get_system_topics(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        names, address = self._routes.system_topics()
        return command.response(body=TopicList(topic_list=names, broker_addr=address).encode())

    def unit_topics(self, matches: Callable[[int], bool]) -> Handler:
        def get_unit_topics(_connection: Connection, command: RemotingCommand) -> RemotingCommand:
            return command.response(body=TopicList(topic_list=self._routes.topics_where(matches)).encode())

        return get_unit_topics

    def delete_topic(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = DeleteTopicInNamesrvHeader.decode(command.ext_fields)
        self._routes.delete_topic(header.topic, header.cluster_name)
        log.info("topic=%s cluster=%s deleted from routes", header.topic, header.cluster_name)
        return command.response()

    def wipe_write_perm(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = BrokerNameHeader.decode(command.ext_fields)
        count = self._routes.wipe_write_perm(header.broker_name)
        log.info("broker=%s write permission wiped topics=%s", header.broker_name, count)
        return command.response(header=WipeWritePermResponseHeader(wipe_topic_count=count))

    def add_write_perm(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = BrokerNameHeader.decode(command.ext_fields)
        count = self._routes.add_write_perm(header.broker_name)
        log.info("broker=%s write permission added topics=%s", header.broker_name, count)
        return command.response(header=AddWritePermResponseHeader(add_topic_count=count))

    # --- KV configuration ---

    async def put_kv(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        fields = command.ext_fields or {}
        if "namespace" not in fields or "key" not in fields:
            return command.response(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        header = PutKVConfigHeader.decode(fields)
        await self._kv.put(header.namespace, header.key, header.value)
        self._forget_encoded()
        return command.response()

    def get_kv(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = KVConfigHeader.decode(command.ext_fields)
        value = self._kv.get(header.namespace, header.key)
        answer = KVConfigResponseHeader(value=value)
        if value is not None:
            return command.response(header=answer)
        remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
        return command.response(ResponseCode.QUERY_NOT_FOUND, remark, header=answer)

    async def delete_kv(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = KVConfigHeader.decode(command.ext_fields)
        await self._kv.delete(header.namespace, header.key)
        self._forget_encoded()
        return command.response()

    def get_kv_namespace(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        header = NamespaceHeader.decode(command.ext_fields)
        table = self._kv.namespace(header.namespace)
        if table is None:
            remark = f"No config item, Namespace: {header.namespace}"
            return command.response(ResponseCode.QUERY_NOT_FOUND, remark)
        return command.response(body=KVTable(table=dict(table)).encode())

    def _forget_encoded(self) -> None:
        """Routes may carry KV values."""
        self._encoded_revision = -1

    # --- settings ---

    async def update_config(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        try:
            properties = parse_bytes(bytes(command.body))
        except BadProperties:
            return command.response(ResponseCode.SYSTEM_ERROR, "string2Properties error")
        if any(key in properties for key in FIXED_KEYS):
            return command.response(ResponseCode.NO_PERMISSION, "Can not update config path")
        if properties:
            for warning in self._server.update_config(properties):
                log.warning("UPDATE_NAMESRV_CONFIG: %s", warning)
            self._forget_encoded()
            config = self._server.config
            await asyncio.to_thread(write_with_backup, config.config_store_path, config.as_text())
        return command.response()

    def get_config(self, _connection: Connection, command: RemotingCommand) -> RemotingCommand:
        lines = (f"{key}={value}\n" for key, value in self._server.config.as_properties().items())
        return command.response(body="".join(lines).encode())

    def table(self) -> dict[int, Handler]:
        return {
            RequestCode.PUT_KV_CONFIG: self.put_kv,
            RequestCode.GET_KV_CONFIG: self.get_kv,
            RequestCode.DELETE_KV_CONFIG: self.delete_kv,
            RequestCode.REGISTER_BROKER: self.register_broker,
            RequestCode.UNREGISTER_BROKER: self.unregister_broker,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.get_route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.get_cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_perm,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.get_all_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.get_kv_namespace,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.get_topics_by_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.get_system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self.unit_topics(is_unit),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self.unit_topics(has_unit_subscription),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.unit_topics(has_unit_subscription_only),
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update_config,
            RequestCode.GET_NAMESRV_CONFIG: self.get_config,
            RequestCode.QUERY_DATA_VERSION: self.query_data_version,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_perm,
        }


def _registration(header: RegisterBrokerHeader, command: RemotingCommand) -> Registration:
    body = _registration_body(header, command)
    wrapper = body.topic_config_serialize_wrapper
    return Registration(
        cluster=header.cluster_name,
        broker_name=header.broker_name,
        broker_id=header.broker_id,
        address=header.broker_addr,
        ha_server_addr=header.ha_server_addr,
        data_version=wrapper.data_version,
        topics={
            topic: _queues(header.broker_name, config) for topic, config in wrapper.topic_config_table.items()
        },
        filter_servers=body.filter_server_list,
        master_epoch=_master_epoch(command),
    )


def _master_epoch(command: RemotingCommand) -> int:
    """Beside the header of 4.9: a master that was elected says in which epoch."""
    text = (command.ext_fields or {}).get(MASTER_EPOCH_FIELD, "")
    return int(text) if text.isdecimal() else 0


def _registration_body(header: RegisterBrokerHeader, command: RemotingCommand) -> RegisterBrokerBody:
    if not command.body:
        return RegisterBrokerBody()  # data version (0, 0), no topics
    if command.version < VERSION_3_0_11:
        wrapper = TopicConfigSerializeWrapper.decode(command.body)
        return RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)
    return RegisterBrokerBody.decode(command.body, compressed=bool(header.compressed))


def _queues(broker_name: str, config: TopicConfig) -> QueueData:
    return QueueData(
        broker_name=broker_name,
        perm=config.perm,
        read_queue_nums=config.read_queue_nums,
        topic_sys_flag=config.topic_sys_flag,
        write_queue_nums=config.write_queue_nums,
    )
