"""GET_BROKER_RUNTIME_INFO: the figures that ``mqadmin brokerStatus`` and ``clusterList`` print. Event loop only.

Names and forms are the original's; tools take the text apart. Where we have no such thing (thread pools, a
lock on the page cache) the figure is that of an idle one.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from cometmq.protocol.codes import VERSION, version_name

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker

NO_TRANSIENT_POOL = 2_147_483_647  # buffers left in a pool that is switched off
BINARY_PREFIXES = "KMGTPE"


def runtime_info(broker: Broker) -> dict[str, str]:
    config = broker.config
    info = {"dispatchMaxBuffer": "0"}
    info |= broker.stats.rates.runtime_info(broker.boot_timestamp_ms)
    info |= _store_info(broker)
    info |= {
        "brokerVersionDesc": version_name(VERSION),
        "brokerVersion": str(VERSION),
        "sendThreadPoolQueueSize": str(broker.flow_control.waiting),
        "sendThreadPoolQueueCapacity": str(config.send_thread_pool_queue_capacity),
        "pullThreadPoolQueueSize": "0",
        "pullThreadPoolQueueCapacity": str(config.pull_thread_pool_queue_capacity),
        "queryThreadPoolQueueSize": "0",
        "queryThreadPoolQueueCapacity": str(config.query_thread_pool_queue_capacity),
        "EndTransactionQueueSize": "0",
        "EndTransactionThreadPoolQueueCapacity": str(config.end_transaction_pool_queue_capacity),
        "sendThreadPoolQueueHeadWaitTimeMills": "0",
        "pullThreadPoolQueueHeadWaitTimeMills": "0",
        "queryThreadPoolQueueHeadWaitTimeMills": "0",
        "pageCacheLockTimeMills": "0",
        "startAcceptSendRequestTimeStamp": str(config.start_accept_send_request_time_stamp),
        "remainTransientStoreBufferNumbs": str(NO_TRANSIENT_POOL),
    }
    return info | broker.delay.runtime_info()


def _store_info(broker: Broker) -> dict[str, str]:
    """The figures of the store under the original's names; tools print whatever they get, so no others."""
    store, config = broker.store, broker.config
    log_ratio, queue_ratio, _ = broker.disk_ratios()
    usage = shutil.disk_usage(config.store_path_root_dir)
    info = {
        "commitLogDiskRatio": f"{log_ratio:.2f}",
        f"commitLogDiskRatio_{config.store_path_commit_log}": f"{log_ratio:.2f}",
        "consumeQueueDiskRatio": f"{queue_ratio:.2f}",
        "commitLogMinOffset": str(store.min_physical_offset),
        "commitLogMaxOffset": str(store.max_physical_offset),
        "dispatchBehindBytes": "0",  # a message is in its queue when its append returns
        "earliestMessageTimeStamp": "-1",
        "remainHowManyDataToFlush": byte_count_text(store.max_physical_offset - store.flushed_offset),
        "commitLogDirCapacity": (
            f"Total : {byte_count_text(usage.total)}, Free : {byte_count_text(usage.free)}."
        ),
    }
    return info | {key: value for key, value in store.runtime_info().items() if key in info}


def byte_count_text(count: int) -> str:
    """``0 B``, ``1.5 KiB``, ``252.0 GiB``."""
    power = min((count.bit_length() - 1) // 10, len(BINARY_PREFIXES)) if count >= 1024 else 0
    return f"{count / 1024**power:.1f} {BINARY_PREFIXES[power - 1]}iB" if power else f"{count} B"
