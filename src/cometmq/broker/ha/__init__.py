"""Replication in a group of brokers: master and slave of RocketMQ 4.9, and groups that elect their master."""
