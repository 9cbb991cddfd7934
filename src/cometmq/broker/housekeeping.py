"""How the tables of clients, groups, offsets, locks, filters and statistics are joined and kept in order.

``join`` connects their events, ``schedule`` begins their periodic work; the composition root calls both, and the
two ``save`` functions when it stops. Event loop only.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cometmq.broker.filter_data import FILTER_FILE, FilterData
from cometmq.broker.groups import GROUPS_FILE
from cometmq.broker.handlers.clients import drop_expired_clients
from cometmq.broker.notifications import Notifications
from cometmq.broker.rates import Totals
from cometmq.broker.slow_consumers import SLOW_CONSUMERS_CHECK_MS, stop_slow_consumers
from cometmq.broker.stats import MINUTE_SAMPLE_MS
from cometmq.protocol.record_cy import decode_record

if TYPE_CHECKING:
    from cometmq.broker.broker import Broker

SCAN_MS = 10_000  # clients without heartbeats, expired locks
OFFSETS_FIRST_SAVE_MS = 10_000
FILTERS_SAVE_MS = 10_000
RATES_SAMPLE_MS = 1_000


def join(broker: Broker) -> None:
    """What happens in one table because of another."""
    notifications = Notifications(
        broker.consumers, enabled=lambda: broker.config.notify_consumer_ids_changed_enable
    )
    broker.consumers.on_change = notifications.group_changed
    broker.consumers.on_end = broker.filter_data.unregister
    broker.groups.on_change = partial(broker.save, GROUPS_FILE)
    if broker.config.enable_calc_filter_bit_map:
        broker.store.table.filter_bit_map = partial(filter_bit_map, broker.filter_data)


def filter_bit_map(filter_data: FilterData, topic: str, record: memoryview) -> bytes | None:
    """Which groups want a message that was just appended; for the extension of its ConsumeQueue."""
    message = decode_record(record)
    return filter_data.bit_map(topic, message.properties)


def schedule(broker: Broker) -> None:
    """Begin the periodic work. What reads the settings reads them anew each time."""
    every = broker.periodic.every
    every(SCAN_MS, partial(drop_expired_clients, broker))
    every(SCAN_MS, broker.locks.drop_expired)
    every(
        lambda: broker.config.flush_consumer_offset_interval,
        partial(save_offsets, broker),
        first_ms=min(OFFSETS_FIRST_SAVE_MS, broker.config.flush_consumer_offset_interval),
    )
    every(FILTERS_SAVE_MS, partial(save_filters, broker))
    every(RATES_SAMPLE_MS, partial(sample_rates, broker), first_ms=0)
    every(MINUTE_SAMPLE_MS, broker.stats.sample)
    every(SLOW_CONSUMERS_CHECK_MS, partial(stop_slow_consumers, broker))


def save_offsets(broker: Broker) -> None:
    if broker.offsets.unsaved:
        broker.offsets.unsaved = False
        broker.save(broker.offsets.file_name)


def save_filters(broker: Broker) -> None:
    broker.filter_data.drop_dead()
    if broker.filter_data.unsaved:
        broker.filter_data.unsaved = False
        broker.save(FILTER_FILE)


def sample_rates(broker: Broker) -> None:
    """Every second."""
    counters = broker.counters
    broker.stats.rates.puts_failed = counters.puts_failed
    broker.stats.rates.sample(
        Totals(
            puts=counters.puts,
            put_bytes=counters.put_bytes,
            gets_found=counters.gets_found,
            gets_missed=counters.gets_missed,
            messages_out=counters.messages_out,
        )
    )
