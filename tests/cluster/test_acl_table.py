"""Who may do what: account x operation x resource, every answer over the wire.

Among them every code that the original forgets: batches, replies, ends of transactions, offset queries, messages by
id, send-back of foreign messages, its own account administration, resets, clones, clean-ups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from acl_kit import ACCOUNTS, Signer, guarded_broker, is_denied
from live_broker import LiveBroker, consumer_data
from message_kit import props

from cometmq.protocol.bodies.heartbeat import CheckClientRequestBody, HeartbeatData, SubscriptionData
from cometmq.protocol.bodies.locks import LockBatchRequestBody, UnlockBatchRequestBody
from cometmq.protocol.codes import RequestCode as Code
from cometmq.protocol.headers import SendMessageHeader
from cometmq.protocol.message import MessageQueue

Request = tuple[int, Mapping[str, object], bytes]
TOPICS = ("TopicA", "TopicPub", "TopicSub", "TopicNo", "TopicElse")


def send_header(topic: str, **changes: Any) -> SendMessageHeader:
    values: dict[str, Any] = {
        "producer_group": "PG",
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_000,
        "flag": 0,
    }
    return SendMessageHeader(topic=topic, **{**values, **changes})


def send_v1(topic: str, **changes: Any) -> Request:
    return Code.SEND_MESSAGE, send_header(topic, **changes).encode(), b"x"


def send_v2(topic: str, **changes: Any) -> Request:
    return Code.SEND_MESSAGE_V2, send_header(topic, **changes).encode_v2(), b"x"


def batch(topic: str) -> Request:
    item = b"\0\0\0\x17" + bytes(12) + b"\0\0\0\1x" + b"\0\0"
    return Code.SEND_BATCH_MESSAGE, send_header(topic, batch=True).encode_v2(), item


def batch_by_flag(topic: str) -> Request:
    return Code.SEND_MESSAGE_V2, *batch(topic)[1:]


def reply(topic: str) -> Request:
    return Code.SEND_REPLY_MESSAGE, send_header(topic).encode(), b"x"


def reply_v2(topic: str) -> Request:
    return Code.SEND_REPLY_MESSAGE_V2, send_header(topic).encode_v2(), b"x"


def pull(topic: str, group: str) -> Request:
    fields = {
        "consumerGroup": group, "topic": topic, "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 4,
        "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
    }  # fmt: skip
    return Code.PULL_MESSAGE, fields, b""


def query(topic: str) -> Request:
    fields = {"topic": topic, "key": "k", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 1}
    return Code.QUERY_MESSAGE, fields, b""


def heartbeat(group: str, *topics: str) -> Request:
    data = HeartbeatData(client_id="c", consumer_data_set=[consumer_data(group, *topics)])
    return Code.HEART_BEAT, {}, data.encode()


def check_client(group: str, topic: str) -> Request:
    data = SubscriptionData(topic=topic, sub_string="*", sub_version=1)
    body = CheckClientRequestBody(client_id="c", group=group, subscription_data=data)
    return Code.CHECK_CLIENT_CONFIG, {}, body.encode()


def lock(group: str) -> Request:
    queues = [MessageQueue("TopicA", "broker-a", 0)]
    body = LockBatchRequestBody(consumer_group=group, client_id="c", mq_set=queues)
    return Code.LOCK_BATCH_MQ, {}, body.encode()


def unlock(group: str) -> Request:
    queues = [MessageQueue("TopicA", "broker-a", 0)]
    body = UnlockBatchRequestBody(consumer_group=group, client_id="c", mq_set=queues)
    return Code.UNLOCK_BATCH_MQ, {}, body.encode()


def with_group(code: int, group: str, **more: object) -> Request:
    return code, {"consumerGroup": group, **more}, b""


def queue_of(code: int, topic: str, **more: object) -> Request:
    return code, {"topic": topic, "queueId": 0, **more}, b""


def offset_of(code: int, topic: str, group: str) -> Request:
    return queue_of(code, topic, consumerGroup=group, commitOffset=0)


class Places:
    """Where messages lie that some requests name."""

    def __init__(self) -> None:
        self.offsets: dict[str, int] = {}  # of a message of a topic, "half:topic", "delayed:topic"
        self.message_ids: dict[str, str] = {}

    def view(self, what: str) -> Request:
        return Code.VIEW_MESSAGE_BY_ID, {"offset": self.offsets[what]}, b""

    def send_back(self, group: str, what: str) -> Request:
        fields = {"offset": self.offsets[what], "group": group, "delayLevel": 0}
        return Code.CONSUMER_SEND_MSG_BACK, fields, b""

    def end_transaction(self, what: str) -> Request:
        fields = {
            "producerGroup": "PG", "tranStateTableOffset": 0, "commitLogOffset": self.offsets[what],
            "commitOrRollback": 12, "msgId": "U",
        }  # fmt: skip
        return Code.END_TRANSACTION, fields, b""

    def consume_directly(self, group: str, what: str) -> Request:
        return with_group(Code.CONSUME_MESSAGE_DIRECTLY, group, clientId="c", msgId=self.message_ids[what])


Row = tuple[str | None, Callable[[Places], Request], str | None]  # account, request, words of the refusal


def allowed(accounts: str, make: Callable[..., Request], *args: Any) -> list[Row]:
    return [(account, lambda places: make(*args), None) for account in accounts.split()]


def refused(words: str, accounts: str, make: Callable[..., Request], *args: Any) -> list[Row]:
    return [(account, lambda places: make(*args), words) for account in accounts.split()]


def topic(name: str) -> str:
    return f"No default permission for topic:{name}"


def group(name: str) -> str:
    return f"No default permission for group:{name}"


def need_admin(code: int) -> str:
    return f"Need admin permission for request code={code}, but accessKey="


SENDS: list[Row] = [
    row
    for make in (send_v1, send_v2, batch, batch_by_flag, reply, reply_v2)
    for row in (
        *allowed("admin bound app open local", make, "TopicA"),
        *allowed("admin app open", make, "TopicPub"),
        *refused(topic("TopicSub"), "app nobody", make, "TopicSub"),
        *refused(topic("TopicNo"), "app open bound nobody", make, "TopicNo"),
        *refused(topic("TopicElse"), "app bound nobody", make, "TopicElse"),
    )
]

RETRIES: list[Row] = [
    *allowed("admin app open", send_v2, "%RETRY%GroupA"),
    *refused(group("GroupNo"), "app open bound nobody", send_v2, "%RETRY%GroupNo"),
    *refused(group("GroupNo"), "app open", send_v1, "%RETRY%GroupNo"),
    *refused(group("GroupNo"), "app open", batch, "%RETRY%GroupNo"),
    *refused(topic("%DLQ%GroupA"), "app nobody", send_v2, "%DLQ%GroupA"),
    *refused(topic("%DLQ%GroupA"), "app", pull, "%DLQ%GroupA", "GroupA"),
]

TRACES: list[Row] = [
    *allowed("app nobody open bound", send_v1, "RMQ_SYS_TRACE_TOPIC"),
    *allowed("app nobody", send_v2, "RMQ_SYS_TRACE_TOPIC"),
    *allowed("app nobody", batch, "RMQ_SYS_TRACE_TOPIC"),
    *refused(topic("RMQ_SYS_TRACE_TOPIC"), "app nobody", pull, "RMQ_SYS_TRACE_TOPIC", "GroupA"),
]

READS: list[Row] = [
    *allowed("admin app open", pull, "TopicA", "GroupA"),
    *allowed("app", pull, "TopicSub", "GroupA"),
    *refused(topic("TopicPub"), "app nobody", pull, "TopicPub", "GroupA"),
    *refused(topic("TopicNo"), "app open bound", pull, "TopicNo", "GroupA"),
    *refused(group("GroupNo"), "app open bound", pull, "TopicA", "GroupNo"),
    *allowed("app open", pull, "%RETRY%GroupA", "GroupA"),
    *refused(group("GroupNo"), "app open", pull, "%RETRY%GroupNo", "GroupA"),
    *allowed("app open", query, "TopicA"),
    *refused(topic("TopicNo"), "app open nobody", query, "TopicNo"),
    # Other topics' messages wait in these; a default permission is not meant for them.
    *refused(topic("SCHEDULE_TOPIC_XXXX"), "app open", pull, "SCHEDULE_TOPIC_XXXX", "GroupA"),
    *refused(topic("RMQ_SYS_TRANS_HALF_TOPIC"), "open", pull, "RMQ_SYS_TRANS_HALF_TOPIC", "GroupA"),
    *refused(topic("SCHEDULE_TOPIC_XXXX"), "open", query, "SCHEDULE_TOPIC_XXXX"),
    *allowed("admin", pull, "SCHEDULE_TOPIC_XXXX", "GroupA"),
]

BY_PLACE: list[Row] = [
    *[(account, lambda p: p.view("TopicA"), None) for account in ("app", "open", "admin", "local")],
    *[(account, lambda p: p.view("TopicNo"), topic("TopicNo")) for account in ("app", "open", "nobody")],
    *[(account, lambda p: p.view("half:TopicNo"), topic("TopicNo")) for account in ("app", "open")],
    *[(account, lambda p: p.view("delayed:TopicNo"), topic("TopicNo")) for account in ("app", "open")],
    ("app", lambda p: p.view("delayed:TopicA"), None),
    ("app", lambda p: p.send_back("GroupA", "TopicA"), None),
    ("app", lambda p: p.send_back("GroupNo", "TopicA"), group("GroupNo")),
    ("app", lambda p: p.send_back("GroupA", "TopicNo"), topic("TopicNo")),
    ("open", lambda p: p.send_back("GroupA", "delayed:TopicNo"), topic("TopicNo")),
    ("nobody", lambda p: p.send_back("GroupA", "TopicA"), group("GroupA")),
    ("app", lambda p: p.end_transaction("half:TopicA"), None),
    ("open", lambda p: p.end_transaction("half:TopicNo"), topic("TopicNo")),
    ("app", lambda p: p.end_transaction("half:TopicNo"), topic("TopicNo")),
    ("nobody", lambda p: p.end_transaction("half:TopicA"), topic("TopicA")),
    ("app", lambda p: p.consume_directly("GroupA", "TopicA"), None),
    ("app", lambda p: p.consume_directly("GroupA", "TopicNo"), topic("TopicNo")),
    ("app", lambda p: p.consume_directly("GroupNo", "TopicA"), group("GroupNo")),
]

CONSUMERS: list[Row] = [
    *allowed("admin app open", heartbeat, "GroupA", "TopicA", "%RETRY%GroupA"),
    *refused(group("GroupNo"), "app open nobody", heartbeat, "GroupNo", "TopicA"),
    *refused(topic("TopicPub"), "app", heartbeat, "GroupA", "TopicA", "TopicPub"),
    *refused(topic("TopicNo"), "app open", heartbeat, "GroupA", "TopicNo"),
    *allowed("app", check_client, "GroupA", "TopicA"),
    *refused(topic("TopicNo"), "app open", check_client, "GroupA", "TopicNo"),
    *refused(group("GroupNo"), "app", check_client, "GroupNo", "TopicA"),
    *allowed("app open", lock, "GroupA"),
    *refused(group("GroupNo"), "app open nobody", lock, "GroupNo"),
    *allowed("app open", unlock, "GroupA"),
    *refused(group("GroupNo"), "app open nobody", unlock, "GroupNo"),
    *[
        row
        for code in (Code.GET_CONSUMER_LIST_BY_GROUP, Code.GET_CONSUMER_RUNNING_INFO)
        for row in (
            *allowed("app", lambda c=code: with_group(c, "GroupA", clientId="c", jstackEnable="false")),
            *refused(group("GroupNo"), "app open", lambda c=code: with_group(c, "GroupNo", clientId="c")),
        )
    ],
    *allowed("app", lambda: (Code.UNREGISTER_CLIENT, {"clientID": "c", "producerGroup": "PG"}, b"")),
    *refused(
        group("GroupNo"), "app open", lambda: with_group(Code.UNREGISTER_CLIENT, "GroupNo", clientID="c")
    ),
]

OFFSETS: list[Row] = [
    *[
        row
        for code in (Code.QUERY_CONSUMER_OFFSET, Code.UPDATE_CONSUMER_OFFSET)
        for row in (
            *allowed("app open", offset_of, code, "TopicA", "GroupA"),
            *refused(topic("TopicNo"), "app open", offset_of, code, "TopicNo", "GroupA"),
            *refused(group("GroupNo"), "app open nobody", offset_of, code, "TopicSub", "GroupNo")[:2],
        )
    ],
    *[
        row
        for code in (
            Code.SEARCH_OFFSET_BY_TIMESTAMP,
            Code.GET_MAX_OFFSET,
            Code.GET_MIN_OFFSET,
            Code.GET_EARLIEST_MSG_STORETIME,
        )
        for row in (
            *allowed("app open", lambda c=code: queue_of(c, "TopicSub", timestamp=0)),
            *refused(topic("TopicNo"), "app open nobody", lambda c=code: queue_of(c, "TopicNo", timestamp=0)),
        )
    ],
    *refused(
        topic("TopicNo"), "app", lambda: queue_of(Code.QUERY_CONSUME_QUEUE, "TopicNo", index=0, count=1)
    ),
]

ADMIN_ONLY: dict[int, Mapping[str, object]] = {
    Code.UPDATE_AND_CREATE_TOPIC: {
        "topic": "TopicA", "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "order": "false",
    },
    Code.UPDATE_BROKER_CONFIG: {},
    Code.DELETE_TOPIC_IN_BROKER: {"topic": "TopicGone"},
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {},
    Code.DELETE_SUBSCRIPTIONGROUP: {"groupName": "GroupGone"},
    # forgotten by the original
    Code.UPDATE_AND_CREATE_ACL_CONFIG: {"accessKey": "short", "secretKey": "short"},
    Code.DELETE_ACL_CONFIG: {"accessKey": "nobody knows it"},
    Code.GET_BROKER_CLUSTER_ACL_INFO: {},
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: {"globalWhiteAddrs": "not an address"},
    Code.GET_BROKER_CLUSTER_ACL_CONFIG: {},
    Code.INVOKE_BROKER_TO_RESET_OFFSET: {"topic": "TopicA", "group": "GroupA", "timestamp": 0, "isForce": "true"},
    Code.CLONE_GROUP_OFFSET: {"srcGroup": "GroupA", "destGroup": "GroupB", "topic": "TopicA", "offline": "true"},
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: {},
    Code.CLEAN_UNUSED_TOPIC: {},
    Code.DELETE_EXPIRED_COMMITLOG: {},
    Code.RESUME_CHECK_HALF_MESSAGE: {"msgId": "x"},
}  # fmt: skip

ADMINISTRATION: list[Row] = [
    row
    for code, fields in ADMIN_ONLY.items()
    for row in (
        *allowed("admin bound", lambda c=code, f=fields: (c, f, b"")),
        *refused(need_admin(code), "app open nobody", lambda c=code, f=fields: (c, f, b"")),
    )
]

FREE_READS: list[Row] = [  # a valid signature is enough, as in the original
    row
    for code in (
        Code.GET_ALL_TOPIC_CONFIG,
        Code.GET_BROKER_CONFIG,
        Code.GET_BROKER_RUNTIME_INFO,
        Code.GET_ALL_CONSUMER_OFFSET,
        Code.GET_ALL_DELAY_OFFSET,
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        Code.GET_ALL_PRODUCER_INFO,
    )
    for row in allowed("nobody", lambda c=code: (c, {}, b""))
]

ALL = {
    "sends": SENDS,
    "retries": RETRIES,
    "traces": TRACES,
    "reads": READS,
    "by place": BY_PLACE,
    "consumers": CONSUMERS,
    "offsets": OFFSETS,
    "administration": ADMINISTRATION,
    "free reads": FREE_READS,
}


async def prepare(live: LiveBroker) -> Places:
    """Topics, and messages that lie in them, wait for their delay or for their commit."""
    admin, places = Signer(live, "admin"), Places()
    for name in TOPICS:
        fields = {**ADMIN_ONLY[Code.UPDATE_AND_CREATE_TOPIC], "topic": name}
        assert (await admin.call(Code.UPDATE_AND_CREATE_TOPIC, fields)).code == 0
    for name in ("TopicA", "TopicNo"):
        half = props(TRAN_MSG="true", PGROUP="PG", UNIQ_KEY=name)
        for what, request in {
            name: send_v2(name),
            f"delayed:{name}": send_v2(name, properties=props(DELAY=18)),
            f"half:{name}": send_v2(name, properties=half, sys_flag=4),
        }.items():
            response = await admin.call(*request)
            assert response.code == 0, response
            places.message_ids[what] = (response.ext_fields or {})["msgId"]
            places.offsets[what] = int(places.message_ids[what][16:], 16)
    await admin.close()
    return places


def mismatch(row: Row, request: Request, response: Any) -> str | None:
    account, _, words = row
    shown = f"{account} code={int(request[0])} {dict(request[1])}: {response.code} {response.remark}"
    if words is None:
        return f"should be allowed: {shown}" if is_denied(response) else None
    expected = f"org.apache.rocketmq.acl.common.AclException: {words}"
    if is_denied(response) and str(response.remark).startswith(expected):
        return None
    return f"should be refused with {words!r}: {shown}"


def test_the_table_is_large_and_has_every_account() -> None:
    rows = [row for part in ALL.values() for row in part]
    assert len(rows) >= 250
    assert {account for account, _, _ in rows} == set(ACCOUNTS)


@pytest.mark.parametrize("part", ALL)
def test_every_row_gets_its_answer(run: Any, tmp_path: Path, part: str) -> None:
    async def main() -> None:
        async with guarded_broker(tmp_path) as live:
            places = await prepare(live)
            signers = {account: Signer(live, account) for account in ACCOUNTS}
            wrong = []
            for row in ALL[part]:
                request = row[1](places)
                response = await signers[str(row[0])].call(*request)
                wrong.append(mismatch(row, request, response))
            for signer in signers.values():
                await signer.close()
            assert [text for text in wrong if text] == []

    run(main(), timeout=60)


@pytest.mark.parametrize(
    "make",
    [send_v1, send_v2, batch, reply, lambda topic: pull(topic, "GroupA"), query],
)
def test_nothing_goes_without_a_valid_signature(
    run: Any, tmp_path: Path, make: Callable[[str], Request]
) -> None:
    async def main() -> None:
        async with guarded_broker(tmp_path) as live:
            code, fields, body = make("TopicA")
            cases = [
                (Signer(live, None), fields, "No accessKey is configured"),
                (Signer(live, "stranger"), fields, "No acl config for stranger-access-key"),
                (
                    Signer(live, "app", secret="guessed"),
                    fields,
                    "Check signature failed for accessKey=app-access-key",
                ),
            ]
            for signer, ext_fields, words in cases:
                response = await signer.call(code, ext_fields, body)
                assert response.code == 1
                assert f"AclException: {words}, " in (response.remark or "")
                await signer.close()
            assert live.broker.acl is not None
            assert live.broker.acl.denied == 3

    run(main())


def test_changed_requests_lose_their_signature(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_broker(tmp_path) as live:
            signer = Signer(live, "app")
            for change in ("field", "body", "added"):
                request = signer.request(*send_v2("TopicA"))
                assert request.ext_fields is not None
                if change == "field":
                    request.ext_fields["b"] = "TopicPub"
                elif change == "body":
                    request.body = b"other"
                else:
                    request.ext_fields["zz"] = "1"
                response = await signer.remoting.invoke(live.address, request, 5_000)
                assert "Check signature failed" in (response.remark or "")
            await signer.close()

    run(main())


def test_topic_of_the_other_spelling_does_not_count(run: Any, tmp_path: Path) -> None:
    """Long and short names in one request: the topic that is checked is the one that is used."""

    async def main() -> None:
        async with guarded_broker(tmp_path) as live:
            await prepare(live)
            signer = Signer(live, "app")
            code, fields, body = send_v1("TopicNo")
            assert is_denied(await signer.call(code, {**fields, "b": "TopicA"}, body))
            code, fields, body = send_v2("TopicNo")
            assert is_denied(await signer.call(code, {**fields, "topic": "TopicA"}, body))
            await signer.close()

    run(main())


def test_refused_oneway_request_does_nothing_and_gets_no_answer(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_broker(tmp_path) as live:
            signer = Signer(live, "nobody")
            await signer.oneway(*send_v2("TopicA"))
            assert is_denied(await signer.call(*send_v2("TopicA")))
            assert live.broker.store.max_physical_offset == 0
            await signer.close()

    run(main())


def test_compiled_send_path_is_closed(run: Any, tmp_path: Path) -> None:
    """A topic that took sends already must not open a way around the check."""

    async def main() -> None:
        async with guarded_broker(tmp_path) as live:
            signer, stranger = Signer(live, "app"), Signer(live, None)
            for _ in range(5):
                assert (await signer.call(*send_v2("TopicA"))).code == 0
            end = live.broker.store.max_physical_offset
            assert is_denied(await stranger.call(*send_v2("TopicA")))
            assert live.broker.store.max_physical_offset == end
            await signer.close()
            await stranger.close()

    run(main())


def test_additional_queues_need_permission_too(run: Any, tmp_path: Path) -> None:
    """INNER_MULTI_DISPATCH puts a message into other queues."""

    async def main() -> None:
        async with guarded_broker(tmp_path, enable_multi_dispatch=True, enable_lmq=True) as live:
            signer, free = Signer(live, "app"), Signer(live, "open")
            for queues, account, denied in (
                ("TopicNo", signer, True), ("TopicPub", signer, False), ("TopicPub,TopicNo", signer, True),
                ("%LMQ%q", signer, True), ("%LMQ%q", free, False), ("TopicNo", free, True),
            ):  # fmt: skip
                request = send_v2("TopicA", properties=props(INNER_MULTI_DISPATCH=queues))
                assert is_denied(await account.call(*request)) == denied, queues
            await signer.close()
            await free.close()

    run(main())


def test_fast_port_checks_as_well(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded_broker(tmp_path) as live:
            signer = Signer(live, "nobody")
            request = signer.request(*send_v2("TopicA"))
            assert is_denied(await signer.remoting.invoke(live.fast_address, request, 5_000))
            await signer.close()

    run(main())
