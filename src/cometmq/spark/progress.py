"""Group progress from the user's process: a listener that reports each batch's end to the broker, the last one too.

The source itself can report a batch only when Spark plans the next one, and so never the last (see stream_reader).
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from cometmq.errors import CometMQError
from cometmq.spark.cluster import Cluster
from cometmq.spark.offsets import from_json
from cometmq.spark.options import ClusterOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener

log = logging.getLogger(__name__)


def attach_progress(
    spark: SparkSession, *, name_server: str, group: str = "SPARK_SOURCE", **options: str
) -> StreamingQueryListener:
    """Report the progress of all queries of this session that read from the cluster. Remove with
    ``spark.streams.removeListener``. ``options`` are accessKey, secretKey, securityToken, tls.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    cluster = Cluster(ClusterOptions.parse({"nameServer": name_server, **options}), group=group)

    class Reporter(StreamingQueryListener):  # type: ignore[misc]
        def onQueryStarted(self, event: Any) -> None:
            pass

        def onQueryProgress(self, event: Any) -> None:
            for source in event.progress.sources:
                report(cluster, group, source.endOffset)

        def onQueryIdle(self, event: Any) -> None:
            pass

        def onQueryTerminated(self, event: Any) -> None:
            pass

    listener = Reporter()
    spark.streams.addListener(listener)
    return listener


def report(cluster: Cluster, group: str, end_offset: str | None) -> None:
    """Report one batch's end, if it is an offset of ours. Never raises: progress is for people."""
    try:
        offsets = from_json(json.loads(end_offset or "{}"))
    except (ValueError, AttributeError, TypeError):
        return  # another source's offset
    try:
        cluster.report_progress(group, offsets.items())
    except CometMQError as error:
        log.warning("progress of group=%s not reported: %s", group, error)
