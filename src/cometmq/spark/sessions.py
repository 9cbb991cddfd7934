"""A Spark session that works at once: Java found, the right interpreter for workers, loopback, our formats known."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cometmq.errors import ConfigError
from cometmq.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
LOCAL_SETTINGS = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    # Between Java and its Python workers: half the system time of TCP, and no open port.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "cometmq.spark.worker_daemon",
    # Without Arrow's checks of every access, a tenth of the time of Java's part of a scan (what comes is of our own
    # making), and with the collector that costs a scan least (docs/spark has the figures).
    "spark.driver.extraJavaOptions": "-Darrow.enable_unsafe_memory_access=true -XX:+UseParallelGC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
SETTINGS = {
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
}


def session(
    name: str = "cometmq", *, master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session, new or the running one. ``master`` is local[*] unless given or set by spark-submit."""
    prepare_environment(local=master is None or master.startswith("local"))
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigError("Spark is not installed: install cometmq[spark].") from error
    builder = SparkSession.builder.appName(name)
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master is not None or not is_submitted:
        builder = builder.master(master or "local[*]")
    is_local = not is_submitted and (master is None or master.startswith("local"))
    for key, value in {**(LOCAL_SETTINGS if is_local else {}), **SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def prepare_environment(*, local: bool = True) -> None:
    """Set what Spark reads from the environment, where it is not set. Changes os.environ; before the first session."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        os.environ["JAVA_HOME"] = str(find_java().home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)


def register(spark: SparkSession) -> None:
    """Make the formats known to a session, where Spark has not found them by itself (modules pyspark_rocketmq...).

    It looks for them once, in a Python process that must start within ten seconds: a busy machine may miss that, and
    then they would be unknown for good.
    """
    from cometmq.spark.source import RocketMQSource
    from cometmq.spark.store_source import StoreSource

    for source in (RocketMQSource, StoreSource):
        if not _is_known(spark, source.name()):
            spark.dataSource.register(source)


def _is_known(spark: SparkSession, name: str) -> bool:
    """Registering a known format works, too, but Spark warns. There is no public way to ask."""
    from py4j.protocol import Py4JError

    try:
        return bool(spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(name))
    except (AttributeError, Py4JError):
        return False
