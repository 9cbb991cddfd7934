"""Found by Spark, which imports every module named pyspark_*: the format ``rocketmq``."""

from cometmq.spark.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
