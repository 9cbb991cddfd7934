"""Replication between the brokers of one group: the master/slave protocol of RocketMQ 4.9."""
