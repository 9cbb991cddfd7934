"""Run a broker with the settings of a RocketMQ 4.9 broker.conf (properties file).

About a running one: ``cometmq broker show`` its figures, ``cometmq broker config`` its settings, and changes them.
"""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from cometmq.cli.server import add_server_options, add_setting_option, say, serve, settings_of
from cometmq.errors import ConfigError

if TYPE_CHECKING:
    from cometmq.broker.config import BrokerConfig

log = logging.getLogger(__name__)

# What -m of the original prints: the settings people look at first
IMPORTANT_KEYS = (
    "namesrvAddr",
    "brokerIP1",
    "brokerName",
    "brokerClusterName",
    "brokerId",
    "listenPort",
    "autoCreateTopicEnable",
    "autoCreateSubscriptionGroup",
    "brokerRole",
    "storePathRootDir",
    "deleteWhen",
    "fileReservedTime",
    "flushDiskType",
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--config", metavar="FILE", help="properties file (broker.conf)")
    parser.add_argument("-n", "--namesrv", metavar="LIST", help="NameServers, e.g. 'a:9876;b:9876'")
    add_setting_option(parser)
    parser.add_argument("-p", "--print-config", action="store_true", help="print every setting and exit")
    parser.add_argument(
        "-m", "--print-important", action="store_true", help="print the main settings and exit"
    )
    add_server_options(parser)


def run(args: argparse.Namespace) -> int:
    from cometmq.logging_setup import set_up_logging

    set_up_logging(args.log_level, as_json=args.log_json)
    config = read_config(args)
    if args.print_config or args.print_important:
        return _print(config, important_only=args.print_important)
    from cometmq.broker.broker import Broker
    from cometmq.metrics.service import BrokerMetrics

    broker = Broker(config)
    metrics = BrokerMetrics(broker, args.metrics_host, args.metrics_port)

    async def ready() -> None:
        await metrics.start()
        say(
            f"The broker[{config.broker_name}, {broker.address}] boot success. "
            f"serializeType=JSON and name server is {config.namesrv_addr or 'null'}"
        )
        say(f"ready broker={broker.address} pid={os.getpid()}{metrics.suffix}")

    return serve(broker, args, ready)


def read_config(args: argparse.Namespace) -> BrokerConfig:
    """File first, then -o, then -n."""
    from cometmq.broker.config import BrokerConfig
    from cometmq.properties_file import parse_bytes, repeated_keys

    properties: dict[str, str] = {}
    if args.config:
        try:
            data = Path(args.config).read_bytes()
            properties = parse_bytes(data)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(
                f"The configuration {args.config} cannot be read: {reason}; without -c the defaults count."
            ) from error
        for problem in repeated_keys(data):
            log.warning("%s: %s", args.config, problem)
    properties.update(settings_of(args.settings))
    if args.namesrv:
        properties["namesrvAddr"] = args.namesrv
    config_file = os.path.abspath(args.config) if args.config else ""
    return BrokerConfig.from_properties(properties, config_file=config_file).resolve()


def _print(config: BrokerConfig, *, important_only: bool) -> int:
    for key, value in sorted(config.as_properties().items()):
        if not important_only or key in IMPORTANT_KEYS:
            print(f"{key}={value}")
    return 0
