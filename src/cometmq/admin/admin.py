"""``client.admin``: all operations in one object, one file per noun."""

from __future__ import annotations

from cometmq.admin.accounts import AccountAdmin
from cometmq.admin.brokers import BrokerAdmin
from cometmq.admin.groups import GroupAdmin
from cometmq.admin.messages import MessageAdmin
from cometmq.admin.offsets import OffsetAdmin
from cometmq.admin.replicas import ReplicaAdmin
from cometmq.admin.topics import TopicAdmin


class Admin(TopicAdmin, GroupAdmin, OffsetAdmin, MessageAdmin, BrokerAdmin, ReplicaAdmin, AccountAdmin):
    """Administration of the cluster a client is connected to. Names are without namespace."""
