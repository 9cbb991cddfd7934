"""Command lines of mqadmin 4.9.7 that run against both kinds of servers, in this order.

Every subcommand is here except the five for ACL; options that concern HA are left out. ``{name}`` stands for a value
of the prepared content (see mqadmin_content). ``by_nature`` says why the printed texts cannot be the same; then
``view`` picks what must be equal all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .mqadmin_views import (
    columns,
    keys,
    names_of_rows,
    no_failure,
    only_settings_of,
    running_info,
    settings,
    sorted_lines,
    sorted_without_rates,
    sorted_without_retries,
    unique_lines,
    whole,
    without_eval,
    without_rates,
)

View = Callable[[str], object]

# Commands that change nothing: what differs because of the moment is looked at again.
READING = {
    *(
        "topicList",
        "topicRoute",
        "topicStatus",
        "topicClusterList",
        "allocateMQ",
        "statsAll",
        "getConsumerConfig",
    ),
    *("consumerProgress", "consumerConnection", "consumerStatus", "producerConnection", "producer"),
    *("brokerConsumeStats", "brokerStatus", "clusterList", "getBrokerConfig", "getNamesrvConfig"),
    *(
        "queryMsgById",
        "queryMsgByKey",
        "queryMsgByUniqueKey",
        "queryMsgByOffset",
        "queryMsgTraceById",
        "queryCq",
    ),
    *("printMsg", "printMsgByQueue", "consumeMessage"),
    *("exportMetadata", "exportConfigs", "exportMetrics"),
}


@dataclass(frozen=True)
class Case:
    argv: tuple[str, ...]
    view: View = whole
    by_nature: str = ""  # empty: the normalised texts are the same
    file: str = ""  # a file that the command writes below {dir}; it belongs to the text
    awaited: str = ""  # what an endless command prints when it works
    group: str = ""  # where it prints nothing: awaited is looked for in the state of this group

    @property
    def command(self) -> str:
        return self.argv[0]

    @property
    def line(self) -> str:
        return " ".join(self.argv)

    def views(self, java: str, comet: str) -> tuple[object, object]:
        """What must be equal of the two texts."""
        if self.view is settings:
            comet = only_settings_of(java, comet)
        return self.view(java), self.view(comet)

    @property
    def only_reads(self) -> bool:
        return self.command in READING


def case(line: str, view: View = whole, by_nature: str = "", **extra: str) -> Case:
    return Case(tuple(line.split()), view, by_nature, **extra)


RATES = "rates depend on the moment of sampling"
LOAD = "rates, load, times and sizes of two programs"
OWN = "rates, times and object names of the Java consumer itself"
MEASURED = "measured times"
SETTINGS = "we have a few settings more"
EVALUATED = "eval: we evaluate the filter also where there is no consume queue extension"

TOPICS = [
    case("updateTopic -b {broker} -t AdmNew -r 4 -w 4"),
    case("updateTopic -c DefaultCluster -t AdmNew -r 6 -w 6 -p 6"),
    case("updateTopic -c DefaultCluster -t AdmOrdered -r 4 -w 4 -o true"),
    case("updateTopic -c DefaultCluster -t AdmUnit -u true -s true"),
    case("updateTopic -c DefaultCluster -t TBW102"),
    case("updateTopic -c DefaultCluster -t bad.name"),
    case("updateTopic -c NoSuchCluster -t AdmNew"),
    case("updateTopicPerm -b {broker} -t AdmNew -p 4"),
    case("updateTopicPerm -b {broker} -t AdmNew -p 4"),
    case("updateTopicPerm -c DefaultCluster -t AdmNew -p 6"),
    case("updateTopicPerm -b {broker} -t NoSuchTopic -p 4"),
    case("topicList", sorted_lines),
    case("topicList -c", sorted_lines),
    case("topicRoute -t AdmOrders"),
    case("topicRoute -t AdmOrders -l"),
    case("topicRoute -t AdmOrdered"),
    case("topicRoute -t NoSuchTopic"),
    case("topicStatus -t AdmOrders"),
    case("topicStatus -t AdmEmpty"),
    case("topicStatus -t NoSuchTopic"),
    case("topicClusterList -t AdmOrders"),
    case("updateOrderConf -t AdmOther -m put -v broker-a:2"),
    case("updateOrderConf -t AdmOther -m get"),
    case("updateOrderConf -t AdmOther -m delete"),
    case("updateOrderConf -t AdmOther -m get"),
    case("allocateMQ -t AdmOrders -i 10.0.0.1,10.0.0.2,10.0.0.3"),
    case("statsAll -t AdmOrders", names_of_rows, RATES),
    case("statsAll", names_of_rows, RATES),
    case("statsAll -a", columns, RATES),
]

GROUPS = [
    case("updateSubGroup -b {broker} -g AdmNewGroup -s true -m false -d false -q 2 -r 5"),
    case("updateSubGroup -c DefaultCluster -g AdmNewGroup -s true -r 16 -i 0 -w 1 -a true"),
    case("getConsumerConfig -g AdmNewGroup"),
    case("getConsumerConfig -g NoSuchGroup"),
    case("consumerProgress -g AdmConsumers", without_rates, RATES),
    case("consumerProgress -g AdmConsumers -s true", without_rates, RATES),
    case("consumerProgress -g AdmOffline", without_rates, RATES),
    case("consumerProgress -g NoSuchGroup"),
    case("consumerProgress", sorted_without_rates, RATES),
    case("consumerConnection -g AdmConsumers"),
    case("consumerConnection -g AdmConsumers -b {broker}"),
    case("consumerConnection -g AdmOffline"),
    case("producerConnection -g AdmProducers -t AdmOrders"),
    case("producerConnection -g NoSuchGroup -t AdmOrders"),
    case("producer -b {broker}", unique_lines),
    case("consumerStatus -g AdmConsumers"),
    case("consumerStatus -g AdmOffline"),
    case("consumerStatus -g AdmConsumers -i {client}", running_info, OWN),
    case("consumerStatus -g AdmConsumers -i {client} -s", running_info, OWN),
    case("queryMsgById -i {offset_id} -g AdmConsumers -d {client}"),
    case("queryMsgByUniqueKey -i {unique_key} -t AdmOrders -g AdmConsumers -d {client}"),
    case("queryMsgById -i {offset_id} -g AdmConsumers -d nobody"),
    case("brokerConsumeStats -b {broker}", sorted_without_retries),
    case("brokerConsumeStats -b {broker} -l 1000 -t 5000"),
    case("cloneGroupOffset -s AdmOffline -d AdmClone -t AdmOrders -o true"),
    case("consumerProgress -g AdmClone", without_rates, RATES),
    case("resetOffsetByTime -g AdmConsumers -t AdmOrders -s 0"),
    case("resetOffsetByTime -g AdmConsumers -t AdmOrders -s now"),
    case("resetOffsetByTime -g AdmOffline -t AdmOrders -s {begin}"),
    case("resetOffsetByTime -g AdmOffline -t AdmOrders -s -1"),
    case("resetOffsetByTime -g AdmOffline -t NoSuchTopic -s now"),
    case("skipAccumulatedMessage -g AdmOffline -t AdmOrders"),
    case("skipAccumulatedMessage -g AdmConsumers -t AdmOrders -f true"),
]

MESSAGES = [
    case("queryMsgById -i {offset_id}"),
    case("queryMsgById -i {missing_id}"),
    case("queryMsgByKey -t AdmOrders -k own3"),
    case("queryMsgByKey -t AdmOrders -k all"),
    case("queryMsgByKey -t AdmOrders -k NoSuchKey"),
    case("queryMsgByUniqueKey -i {unique_key} -t AdmOrders"),
    case("queryMsgByUniqueKey -i {unique_key} -t AdmOrders -a"),
    case("queryMsgByUniqueKey -i NoSuchKey -t AdmOrders"),
    case("queryMsgByOffset -t AdmOrders -b broker-a -i 1 -o 2"),
    case("queryMsgByOffset -t AdmOrders -b broker-a -i 1 -o 99"),
    case("queryMsgTraceById -i {traced}"),
    case("printMsg -t AdmOrders -d true", sorted_lines),
    case("printMsg -t AdmOrders -d true -s A", sorted_lines),
    case("printMsgByQueue -t AdmOrders -a broker-a -i 1 -p true -d true"),
    case("printMsgByQueue -t AdmOrders -a broker-a -i 1 -f true"),
    case("consumeMessage -t AdmOrders -b broker-a -i 1 -o 1 -c 10"),
    case("consumeMessage -t AdmOther", sorted_lines),
    case("queryCq -t AdmOrders -q 1 -i 0 -c 3 -b {broker}"),
    case("queryCq -t AdmOrders -q 1 -i 0 -c 3 -b {broker} -g AdmConsumers", without_eval, EVALUATED),
    case("queryCq -t AdmOrders -q 1 -i 99 -c 3 -b {broker}"),
    case("queryCq -t NoSuchTopic -q 1 -i 0 -c 3 -b {broker}"),
    case("sendMessage -t AdmOther -p text -k key -c tag -b broker-a -i 1"),
    case("sendMessage -t AdmOther -p text", columns, "the queue is chosen by chance"),
    case("checkMsgSendRT -t AdmOther -a 3 -s 64", columns, MEASURED),
    case("queryMsgById -i {offset_id} -s true", no_failure, "sends the message to a queue chosen by chance"),
]

BROKER = [
    case("brokerStatus -b {broker}", keys, LOAD),
    case("brokerStatus -c DefaultCluster", keys, LOAD),
    case("getBrokerConfig -b {broker}", settings, SETTINGS),
    case("getBrokerConfig -c DefaultCluster", settings, SETTINGS),
    case("updateBrokerConfig -b {broker} -k fileReservedTime -v 48"),
    case("updateBrokerConfig -c DefaultCluster -k fileReservedTime -v 72"),
    case("cleanExpiredCQ -b {broker}"),
    case("cleanExpiredCQ -c DefaultCluster"),
    case("cleanUnusedTopic -b {broker}"),
    case("cleanUnusedTopic -c DefaultCluster"),
    case("deleteExpiredCommitLog -b {broker}"),
    case("deleteExpiredCommitLog -c DefaultCluster"),
    case("sendMsgStatus -b broker-a -s 64 -c 3"),
    case("clusterList", names_of_rows, LOAD),
    case("clusterList -m", names_of_rows, LOAD),
]

NAMESERVER = [
    case("getNamesrvConfig", settings, SETTINGS),
    case("updateNamesrvConfig -k clusterTest -v false"),
    case("updateKvConfig -s AdmSpace -k AdmKey -v AdmValue"),
    case("deleteKvConfig -s AdmSpace -k AdmKey"),
    case("wipeWritePerm -b broker-a"),
    case("topicRoute -t AdmOrders -l"),
    case("addWritePerm -b broker-a"),
    case("topicRoute -t AdmOrders -l"),
    case("wipeWritePerm -b no-such-broker"),
    case("addWritePerm -b no-such-broker"),
]

EXPORTS = [
    case("exportMetadata -c DefaultCluster -f {dir}", file="metadata.json"),
    case("exportMetadata -c DefaultCluster -t -f {dir}", file="topic.json"),
    case("exportMetadata -b {broker} -g -f {dir}", file="subscriptionGroup.json"),
    case("exportConfigs -c DefaultCluster -f {dir}", file="configs.json"),
    case("exportMetrics -c DefaultCluster -f {dir}", keys, LOAD, file="metrics.json"),
]

ENDINGS = [
    case("deleteSubGroup -b {broker} -g AdmNewGroup -r true"),
    case("deleteSubGroup -c DefaultCluster -g AdmClone -r true"),
    case("consumerProgress -g AdmClone"),
    case("deleteTopic -c DefaultCluster -t AdmNew"),
    case("deleteTopic -c DefaultCluster -t AdmOrders"),
    case("topicRoute -t AdmOrders"),
    case("topicList", sorted_lines),
]

CASES = [*TOPICS, *GROUPS, *MESSAGES, *BROKER, *NAMESERVER, *EXPORTS, *ENDINGS]

# These never end by themselves: each runs in a process of its own, and only what it says first is compared.
ENDLESS = [
    case("clusterRT -c DefaultCluster -a 2 -i 1", columns, MEASURED, awaited="#failCount\n"),
    case(
        "startMonitoring", no_failure, "runs on without printing", awaited="JAVA", group="__MONITOR_CONSUMER"
    ),
]
