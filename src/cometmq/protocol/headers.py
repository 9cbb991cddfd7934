"""The ext fields of every request and response, one class each; a wire name stands beside its field.

:data:`REQUEST_HEADERS` and :data:`RESPONSE_HEADERS` say which class belongs to which request code. How they are read
and written: :mod:`cometmq.protocol.header`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import field as wire

from cometmq.protocol.codes import RequestCode
from cometmq.protocol.header import BadHeader as BadHeader
from cometmq.protocol.header import Header as Header
from cometmq.protocol.header import Int32, Int64

if TYPE_CHECKING:
    from cometmq.protocol.command import RemotingCommand

# sending ------------------------------------------------------------------------------------------


class SendMessageHeader(Header, kw_only=True):
    """SEND_MESSAGE 10 and SEND_REPLY_MESSAGE 324 (long names); see SendMessageV2Header for the others."""

    producer_group: str = wire(name="producerGroup")
    topic: str = wire(name="topic")
    default_topic: str = wire(name="defaultTopic")
    default_topic_queue_nums: Int32 = wire(name="defaultTopicQueueNums")
    queue_id: Int32 = wire(name="queueId")
    sys_flag: Int32 = wire(name="sysFlag")
    born_timestamp: Int64 = wire(name="bornTimestamp")
    flag: Int32 = wire(name="flag")
    properties: str | None = wire(name="properties", default=None)
    reconsume_times: Int32 | None = wire(name="reconsumeTimes", default=None)
    unit_mode: bool | None = wire(name="unitMode", default=None)
    max_reconsume_times: Int32 | None = wire(name="maxReconsumeTimes", default=None)
    batch: bool | None = wire(name="batch", default=None)
    broker_name: str | None = wire(name="bname", default=None)

    @staticmethod
    def decode_any(command: RemotingCommand) -> SendMessageHeader:
        """Read long or short names, as the request code says."""
        kind = SendMessageV2Header if command.code in V2_SEND_CODES else SendMessageHeader
        return kind.decode(command.ext_fields)

    def encode_v2(self) -> dict[str, str]:
        """The ext fields with one-letter names."""
        return {V2_NAMES.get(name, name): value for name, value in self.encode().items()}


class SendMessageV2Header(SendMessageHeader, kw_only=True):
    """The same header with one-letter names: SEND_MESSAGE_V2 310, SEND_BATCH_MESSAGE 320, reply 325."""

    producer_group: str = wire(name="a")
    topic: str = wire(name="b")
    default_topic: str = wire(name="c")
    default_topic_queue_nums: Int32 = wire(name="d")
    queue_id: Int32 = wire(name="e")
    sys_flag: Int32 = wire(name="f")
    born_timestamp: Int64 = wire(name="g")
    flag: Int32 = wire(name="h")
    properties: str | None = wire(name="i", default=None)
    reconsume_times: Int32 | None = wire(name="j", default=None)
    unit_mode: bool | None = wire(name="k", default=None)
    max_reconsume_times: Int32 | None = wire(name="l", default=None)
    batch: bool | None = wire(name="m", default=None)
    broker_name: str | None = wire(name="n", default=None)


V2_SEND_CODES = frozenset(
    (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
)
V2_NAMES = {
    long.encode_name: short.encode_name
    for long, short in zip(
        msgspec.structs.fields(SendMessageHeader), msgspec.structs.fields(SendMessageV2Header), strict=True
    )
}


class SendMessageResponseHeader(Header, kw_only=True):
    """Answer to all sends. Errors carry only the region and the trace switch."""

    msg_id: str | None = wire(name="msgId", default=None)
    queue_id: Int32 | None = wire(name="queueId", default=None)
    queue_offset: Int64 | None = wire(name="queueOffset", default=None)
    transaction_id: str | None = wire(name="transactionId", default=None)
    msg_region: str | None = wire(name="MSG_REGION", default=None)
    trace_on: bool | None = wire(name="TRACE_ON", default=None)


class ConsumerSendMsgBackHeader(Header, kw_only=True):
    """CONSUMER_SEND_MSG_BACK 36. ``offset`` is the physical offset of the message."""

    offset: Int64 = wire(name="offset")
    group: str = wire(name="group")
    delay_level: Int32 = wire(name="delayLevel")
    origin_msg_id: str | None = wire(name="originMsgId", default=None)
    origin_topic: str | None = wire(name="originTopic", default=None)
    unit_mode: bool | None = wire(name="unitMode", default=None)
    max_reconsume_times: Int32 | None = wire(name="maxReconsumeTimes", default=None)
    broker_name: str | None = wire(name="bname", default=None)


class EndTransactionHeader(Header, kw_only=True):
    """END_TRANSACTION 37."""

    producer_group: str = wire(name="producerGroup")
    tran_state_table_offset: Int64 = wire(name="tranStateTableOffset")
    commit_log_offset: Int64 = wire(name="commitLogOffset")
    commit_or_rollback: Int32 = wire(name="commitOrRollback")
    from_transaction_check: bool | None = wire(name="fromTransactionCheck", default=None)
    msg_id: str = wire(name="msgId")
    transaction_id: str | None = wire(name="transactionId", default=None)
    broker_name: str | None = wire(name="bname", default=None)


class CheckTransactionStateHeader(Header, kw_only=True):
    """CHECK_TRANSACTION_STATE 39, broker to producer."""

    tran_state_table_offset: Int64 = wire(name="tranStateTableOffset")
    commit_log_offset: Int64 = wire(name="commitLogOffset")
    msg_id: str | None = wire(name="msgId", default=None)
    transaction_id: str | None = wire(name="transactionId", default=None)
    offset_msg_id: str | None = wire(name="offsetMsgId", default=None)


class ResumeCheckHalfMessageHeader(Header, kw_only=True):
    """RESUME_CHECK_HALF_MESSAGE 323."""

    msg_id: str | None = wire(name="msgId", default=None)


class ReplyMessageHeader(Header, kw_only=True):
    """PUSH_REPLY_MESSAGE_TO_CLIENT 326, broker to requester."""

    producer_group: str = wire(name="producerGroup")
    topic: str = wire(name="topic")
    default_topic: str = wire(name="defaultTopic")
    default_topic_queue_nums: Int32 = wire(name="defaultTopicQueueNums")
    queue_id: Int32 = wire(name="queueId")
    sys_flag: Int32 = wire(name="sysFlag")
    born_timestamp: Int64 = wire(name="bornTimestamp")
    flag: Int32 = wire(name="flag")
    properties: str | None = wire(name="properties", default=None)
    reconsume_times: Int32 | None = wire(name="reconsumeTimes", default=None)
    unit_mode: bool | None = wire(name="unitMode", default=None)
    born_host: str = wire(name="bornHost")
    store_host: str = wire(name="storeHost")
    store_timestamp: Int64 = wire(name="storeTimestamp")


# reading ------------------------------------------------------------------------------------------


class PullMessageHeader(Header, kw_only=True):
    """PULL_MESSAGE 11."""

    consumer_group: str = wire(name="consumerGroup")
    topic: str = wire(name="topic")
    queue_id: Int32 = wire(name="queueId")
    queue_offset: Int64 = wire(name="queueOffset")
    max_msg_nums: Int32 = wire(name="maxMsgNums")
    sys_flag: Int32 = wire(name="sysFlag")
    commit_offset: Int64 = wire(name="commitOffset")
    suspend_timeout_millis: Int64 = wire(name="suspendTimeoutMillis")
    subscription: str | None = wire(name="subscription", default=None)
    sub_version: Int64 = wire(name="subVersion")
    expression_type: str | None = wire(name="expressionType", default=None)
    broker_name: str | None = wire(name="bname", default=None)


class PullMessageResponseHeader(Header, kw_only=True):
    """Answer to PULL_MESSAGE that is no error."""

    suggest_which_broker_id: Int64 = wire(name="suggestWhichBrokerId")
    next_begin_offset: Int64 = wire(name="nextBeginOffset")
    min_offset: Int64 = wire(name="minOffset")
    max_offset: Int64 = wire(name="maxOffset")


class QueryMessageHeader(Header, kw_only=True):
    """QUERY_MESSAGE 12."""

    topic: str = wire(name="topic")
    key: str = wire(name="key")
    max_num: Int32 = wire(name="maxNum")
    begin_timestamp: Int64 = wire(name="beginTimestamp")
    end_timestamp: Int64 = wire(name="endTimestamp")
    unique_key_query: bool | None = wire(name="_UNIQUE_KEY_QUERY", default=None)


class QueryMessageResponseHeader(Header, kw_only=True):
    """Answer to QUERY_MESSAGE."""

    index_last_update_timestamp: Int64 = wire(name="indexLastUpdateTimestamp")
    index_last_update_phyoffset: Int64 = wire(name="indexLastUpdatePhyoffset")


class ViewMessageHeader(Header, kw_only=True):
    """VIEW_MESSAGE_BY_ID 33. ``offset`` is a physical offset."""

    offset: Int64 = wire(name="offset")


class QueueHeader(Header, kw_only=True):
    """GET_MAX_OFFSET 30, GET_MIN_OFFSET 31, GET_EARLIEST_MSG_STORETIME 32."""

    topic: str = wire(name="topic")
    queue_id: Int32 = wire(name="queueId")
    broker_name: str | None = wire(name="bname", default=None)


class SearchOffsetHeader(Header, kw_only=True):
    """SEARCH_OFFSET_BY_TIMESTAMP 29."""

    topic: str = wire(name="topic")
    queue_id: Int32 = wire(name="queueId")
    timestamp: Int64 = wire(name="timestamp")
    broker_name: str | None = wire(name="bname", default=None)


class OffsetResponseHeader(Header, kw_only=True):
    """Answer to 14, 29, 30, 31: a queue offset."""

    offset: Int64 | None = wire(name="offset", default=None)


class TimestampResponseHeader(Header, kw_only=True):
    """Answer to GET_EARLIEST_MSG_STORETIME."""

    timestamp: Int64 = wire(name="timestamp")


class QueryConsumeQueueHeader(Header, kw_only=True):
    """QUERY_CONSUME_QUEUE 321."""

    topic: str = wire(name="topic")
    queue_id: Int32 = wire(name="queueId")
    index: Int64 = wire(name="index")
    count: Int32 = wire(name="count")
    consumer_group: str | None = wire(name="consumerGroup", default=None)


# consumer offsets, clients ------------------------------------------------------------------------


class QueryConsumerOffsetHeader(Header, kw_only=True):
    """QUERY_CONSUMER_OFFSET 14."""

    consumer_group: str = wire(name="consumerGroup")
    topic: str = wire(name="topic")
    queue_id: Int32 = wire(name="queueId")
    broker_name: str | None = wire(name="bname", default=None)


class UpdateConsumerOffsetHeader(Header, kw_only=True):
    """UPDATE_CONSUMER_OFFSET 15."""

    consumer_group: str = wire(name="consumerGroup")
    topic: str = wire(name="topic")
    queue_id: Int32 = wire(name="queueId")
    commit_offset: Int64 = wire(name="commitOffset")
    broker_name: str | None = wire(name="bname", default=None)


class UnregisterClientHeader(Header, kw_only=True):
    """UNREGISTER_CLIENT 35."""

    client_id: str = wire(name="clientID")
    producer_group: str | None = wire(name="producerGroup", default=None)
    consumer_group: str | None = wire(name="consumerGroup", default=None)


class ConsumerGroupHeader(Header, kw_only=True):
    """GET_CONSUMER_LIST_BY_GROUP 38, NOTIFY_CONSUMER_IDS_CHANGED 40, GET_CONSUMER_CONNECTION_LIST 203."""

    consumer_group: str = wire(name="consumerGroup")


class ProducerGroupHeader(Header, kw_only=True):
    """GET_PRODUCER_CONNECTION_LIST 204."""

    producer_group: str = wire(name="producerGroup")


class ResetOffsetHeader(Header, kw_only=True):
    """RESET_CONSUMER_CLIENT_OFFSET 220 and INVOKE_BROKER_TO_RESET_OFFSET 222."""

    topic: str = wire(name="topic")
    group: str = wire(name="group")
    timestamp: Int64 = wire(name="timestamp")
    is_force: bool = wire(name="isForce", default=False)


class ConsumerStatusHeader(Header, kw_only=True):
    """GET_CONSUMER_STATUS_FROM_CLIENT 221 and INVOKE_BROKER_TO_GET_CONSUMER_STATUS 223."""

    topic: str = wire(name="topic")
    group: str = wire(name="group")
    client_addr: str | None = wire(name="clientAddr", default=None)


class ConsumerRunningInfoHeader(Header, kw_only=True):
    """GET_CONSUMER_RUNNING_INFO 307."""

    consumer_group: str = wire(name="consumerGroup")
    client_id: str = wire(name="clientId")
    jstack_enable: bool | None = wire(name="jstackEnable", default=None)


class ConsumeMessageDirectlyHeader(Header, kw_only=True):
    """CONSUME_MESSAGE_DIRECTLY 309."""

    consumer_group: str = wire(name="consumerGroup")
    client_id: str | None = wire(name="clientId", default=None)
    msg_id: str | None = wire(name="msgId", default=None)
    broker_name: str | None = wire(name="brokerName", default=None)


class CloneGroupOffsetHeader(Header, kw_only=True):
    """CLONE_GROUP_OFFSET 314."""

    src_group: str = wire(name="srcGroup")
    dest_group: str = wire(name="destGroup")
    topic: str | None = wire(name="topic", default=None)
    offline: bool | None = wire(name="offline", default=None)


class QueryCorrectionOffsetHeader(Header, kw_only=True):
    """QUERY_CORRECTION_OFFSET 308."""

    filter_groups: str | None = wire(name="filterGroups", default=None)
    compare_group: str = wire(name="compareGroup")
    topic: str = wire(name="topic")


# topics and groups --------------------------------------------------------------------------------


class TopicHeader(Header, kw_only=True):
    """GET_TOPIC_STATS_INFO 202, DELETE_TOPIC_IN_BROKER 215, QUERY_TOPIC_CONSUME_BY_WHO 300."""

    topic: str = wire(name="topic")


class TopicGroupHeader(Header, kw_only=True):
    """QUERY_CONSUME_TIME_SPAN 303."""

    topic: str = wire(name="topic")
    group: str = wire(name="group")


class CreateTopicHeader(Header, kw_only=True):
    """UPDATE_AND_CREATE_TOPIC 17."""

    topic: str = wire(name="topic")
    default_topic: str = wire(name="defaultTopic")
    read_queue_nums: Int32 = wire(name="readQueueNums")
    write_queue_nums: Int32 = wire(name="writeQueueNums")
    perm: Int32 = wire(name="perm")
    topic_filter_type: str = wire(name="topicFilterType")
    topic_sys_flag: Int32 | None = wire(name="topicSysFlag", default=None)
    order: bool = wire(name="order", default=False)


class DeleteTopicInNamesrvHeader(Header, kw_only=True):
    """DELETE_TOPIC_IN_NAMESRV 216."""

    topic: str = wire(name="topic")
    cluster_name: str | None = wire(name="clusterName", default=None)


class DeleteSubscriptionGroupHeader(Header, kw_only=True):
    """DELETE_SUBSCRIPTIONGROUP 207."""

    group_name: str = wire(name="groupName")
    remove_offset: bool | None = wire(name="removeOffset", default=None)


class GetConsumeStatsHeader(Header, kw_only=True):
    """GET_CONSUME_STATS 208."""

    consumer_group: str = wire(name="consumerGroup")
    topic: str | None = wire(name="topic", default=None)


class ViewBrokerStatsHeader(Header, kw_only=True):
    """VIEW_BROKER_STATS_DATA 315."""

    stats_name: str = wire(name="statsName")
    stats_key: str = wire(name="statsKey")


class GetBrokerConsumeStatsHeader(Header, kw_only=True):
    """GET_BROKER_CONSUME_STATS 317."""

    is_order: bool = wire(name="isOrder")


class GetBrokerConfigResponseHeader(Header, kw_only=True):
    """Answer to GET_BROKER_CONFIG: the DataVersion as JSON text."""

    version: str = wire(name="version")


# access control -----------------------------------------------------------------------------------


class CreateAccessConfigHeader(Header, kw_only=True):
    """UPDATE_AND_CREATE_ACL_CONFIG 50."""

    access_key: str = wire(name="accessKey")
    secret_key: str | None = wire(name="secretKey", default=None)
    white_remote_address: str | None = wire(name="whiteRemoteAddress", default=None)
    admin: bool | None = wire(name="admin", default=None)
    default_topic_perm: str | None = wire(name="defaultTopicPerm", default=None)
    default_group_perm: str | None = wire(name="defaultGroupPerm", default=None)
    topic_perms: str | None = wire(name="topicPerms", default=None)
    group_perms: str | None = wire(name="groupPerms", default=None)


class DeleteAccessConfigHeader(Header, kw_only=True):
    """DELETE_ACL_CONFIG 51."""

    access_key: str = wire(name="accessKey")


class UpdateGlobalWhiteAddrsHeader(Header, kw_only=True):
    """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG 53."""

    global_white_addrs: str = wire(name="globalWhiteAddrs")
    acl_file_full_path: str | None = wire(name="aclFileFullPath", default=None)


class AclInfoResponseHeader(Header, kw_only=True):
    """Answer to GET_BROKER_CLUSTER_ACL_INFO 52."""

    version: str = wire(name="version")
    all_acl_file_version: str | None = wire(name="allAclFileVersion", default=None)
    broker_name: str = wire(name="brokerName")
    broker_addr: str = wire(name="brokerAddr")
    cluster_name: str = wire(name="clusterName")


# NameServer ---------------------------------------------------------------------------------------


class PutKVConfigHeader(Header, kw_only=True):
    """PUT_KV_CONFIG 100."""

    namespace: str = wire(name="namespace")
    key: str = wire(name="key")
    value: str = wire(name="value")


class KVConfigHeader(Header, kw_only=True):
    """GET_KV_CONFIG 101, DELETE_KV_CONFIG 102."""

    namespace: str = wire(name="namespace")
    key: str = wire(name="key")


class KVConfigResponseHeader(Header, kw_only=True):
    """Answer to GET_KV_CONFIG."""

    value: str | None = wire(name="value", default=None)


class NamespaceHeader(Header, kw_only=True):
    """GET_KVLIST_BY_NAMESPACE 219."""

    namespace: str = wire(name="namespace")


class RegisterBrokerHeader(Header, kw_only=True):
    """REGISTER_BROKER 103."""

    broker_name: str = wire(name="brokerName")
    broker_addr: str = wire(name="brokerAddr")
    cluster_name: str = wire(name="clusterName")
    ha_server_addr: str = wire(name="haServerAddr")
    broker_id: Int64 = wire(name="brokerId")
    compressed: bool | None = wire(name="compressed", default=None)
    body_crc32: Int32 | None = wire(name="bodyCrc32", default=None)


class RegisterBrokerResponseHeader(Header, kw_only=True):
    """Answer to REGISTER_BROKER."""

    ha_server_addr: str | None = wire(name="haServerAddr", default=None)
    master_addr: str | None = wire(name="masterAddr", default=None)


class BrokerHeader(Header, kw_only=True):
    """UNREGISTER_BROKER 104, QUERY_DATA_VERSION 322."""

    broker_name: str = wire(name="brokerName")
    broker_addr: str = wire(name="brokerAddr")
    cluster_name: str = wire(name="clusterName")
    broker_id: Int64 = wire(name="brokerId")


class QueryDataVersionResponseHeader(Header, kw_only=True):
    """Answer to QUERY_DATA_VERSION."""

    changed: bool = wire(name="changed")


class GetRouteInfoHeader(Header, kw_only=True):
    """GET_ROUTEINFO_BY_TOPIC 105."""

    topic: str = wire(name="topic")
    accept_standard_json_only: bool | None = wire(name="acceptStandardJsonOnly", default=None)


class BrokerNameHeader(Header, kw_only=True):
    """WIPE_WRITE_PERM_OF_BROKER 205, ADD_WRITE_PERM_OF_BROKER 327."""

    broker_name: str = wire(name="brokerName")


class WipeWritePermResponseHeader(Header, kw_only=True):
    """Answer to WIPE_WRITE_PERM_OF_BROKER."""

    wipe_topic_count: Int32 = wire(name="wipeTopicCount")


class AddWritePermResponseHeader(Header, kw_only=True):
    """Answer to ADD_WRITE_PERM_OF_BROKER."""

    add_topic_count: Int32 = wire(name="addTopicCount")


class ClusterHeader(Header, kw_only=True):
    """GET_TOPICS_BY_CLUSTER 224."""

    cluster: str = wire(name="cluster")


class EmptyHeader(Header, kw_only=True):
    """No fields, yet a header: encodes to ``extFields:{}`` where Java does so."""


REQUEST_HEADERS: dict[int, type[Header]] = {
    RequestCode.SEND_MESSAGE: SendMessageHeader,
    RequestCode.PULL_MESSAGE: PullMessageHeader,
    RequestCode.QUERY_MESSAGE: QueryMessageHeader,
    RequestCode.QUERY_CONSUMER_OFFSET: QueryConsumerOffsetHeader,
    RequestCode.UPDATE_CONSUMER_OFFSET: UpdateConsumerOffsetHeader,
    RequestCode.UPDATE_AND_CREATE_TOPIC: CreateTopicHeader,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: SearchOffsetHeader,
    RequestCode.GET_MAX_OFFSET: QueueHeader,
    RequestCode.GET_MIN_OFFSET: QueueHeader,
    RequestCode.GET_EARLIEST_MSG_STORETIME: QueueHeader,
    RequestCode.VIEW_MESSAGE_BY_ID: ViewMessageHeader,
    RequestCode.UNREGISTER_CLIENT: UnregisterClientHeader,
    RequestCode.CONSUMER_SEND_MSG_BACK: ConsumerSendMsgBackHeader,
    RequestCode.END_TRANSACTION: EndTransactionHeader,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: ConsumerGroupHeader,
    RequestCode.CHECK_TRANSACTION_STATE: CheckTransactionStateHeader,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: ConsumerGroupHeader,
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: CreateAccessConfigHeader,
    RequestCode.DELETE_ACL_CONFIG: DeleteAccessConfigHeader,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: UpdateGlobalWhiteAddrsHeader,
    RequestCode.PUT_KV_CONFIG: PutKVConfigHeader,
    RequestCode.GET_KV_CONFIG: KVConfigHeader,
    RequestCode.DELETE_KV_CONFIG: KVConfigHeader,
    RequestCode.REGISTER_BROKER: RegisterBrokerHeader,
    RequestCode.UNREGISTER_BROKER: BrokerHeader,
    RequestCode.GET_ROUTEINFO_BY_TOPIC: GetRouteInfoHeader,
    RequestCode.GET_TOPIC_STATS_INFO: TopicHeader,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: ConsumerGroupHeader,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: ProducerGroupHeader,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: BrokerNameHeader,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: DeleteSubscriptionGroupHeader,
    RequestCode.GET_CONSUME_STATS: GetConsumeStatsHeader,
    RequestCode.DELETE_TOPIC_IN_BROKER: TopicHeader,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: DeleteTopicInNamesrvHeader,
    RequestCode.GET_KVLIST_BY_NAMESPACE: NamespaceHeader,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: ResetOffsetHeader,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: ConsumerStatusHeader,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: ResetOffsetHeader,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: ConsumerStatusHeader,
    RequestCode.GET_TOPICS_BY_CLUSTER: ClusterHeader,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: TopicHeader,
    RequestCode.QUERY_CONSUME_TIME_SPAN: TopicGroupHeader,
    RequestCode.GET_CONSUMER_RUNNING_INFO: ConsumerRunningInfoHeader,
    RequestCode.QUERY_CORRECTION_OFFSET: QueryCorrectionOffsetHeader,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: ConsumeMessageDirectlyHeader,
    RequestCode.SEND_MESSAGE_V2: SendMessageV2Header,
    RequestCode.CLONE_GROUP_OFFSET: CloneGroupOffsetHeader,
    RequestCode.VIEW_BROKER_STATS_DATA: ViewBrokerStatsHeader,
    RequestCode.GET_BROKER_CONSUME_STATS: GetBrokerConsumeStatsHeader,
    RequestCode.SEND_BATCH_MESSAGE: SendMessageV2Header,
    RequestCode.QUERY_CONSUME_QUEUE: QueryConsumeQueueHeader,
    RequestCode.QUERY_DATA_VERSION: BrokerHeader,
    RequestCode.RESUME_CHECK_HALF_MESSAGE: ResumeCheckHalfMessageHeader,
    RequestCode.SEND_REPLY_MESSAGE: SendMessageHeader,
    RequestCode.SEND_REPLY_MESSAGE_V2: SendMessageV2Header,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: ReplyMessageHeader,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: BrokerNameHeader,
}

RESPONSE_HEADERS: dict[int, type[Header]] = {
    RequestCode.SEND_MESSAGE: SendMessageResponseHeader,
    RequestCode.SEND_MESSAGE_V2: SendMessageResponseHeader,
    RequestCode.SEND_BATCH_MESSAGE: SendMessageResponseHeader,
    RequestCode.SEND_REPLY_MESSAGE: SendMessageResponseHeader,
    RequestCode.SEND_REPLY_MESSAGE_V2: SendMessageResponseHeader,
    RequestCode.PULL_MESSAGE: PullMessageResponseHeader,
    RequestCode.QUERY_MESSAGE: QueryMessageResponseHeader,
    RequestCode.QUERY_CONSUMER_OFFSET: OffsetResponseHeader,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: OffsetResponseHeader,
    RequestCode.GET_MAX_OFFSET: OffsetResponseHeader,
    RequestCode.GET_MIN_OFFSET: OffsetResponseHeader,
    RequestCode.GET_EARLIEST_MSG_STORETIME: TimestampResponseHeader,
    RequestCode.GET_BROKER_CONFIG: GetBrokerConfigResponseHeader,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: AclInfoResponseHeader,
    RequestCode.GET_KV_CONFIG: KVConfigResponseHeader,
    RequestCode.REGISTER_BROKER: RegisterBrokerResponseHeader,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: WipeWritePermResponseHeader,
    RequestCode.QUERY_DATA_VERSION: QueryDataVersionResponseHeader,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: AddWritePermResponseHeader,
}
