"""Found by Spark, which imports every module named pyspark_*: the format ``rocketmq-store``."""

from cometmq.spark.store_source import StoreSource as DefaultSource

__all__ = ["DefaultSource"]
