"""Run a NameServer with the settings of a RocketMQ 4.9 namesrv.conf (properties file)."""

from __future__ import annotations

import argparse
import logging
import os

from cometmq.cli.parser import port
from cometmq.cli.server import add_server_options, add_setting_option, say, serve, settings_of

log = logging.getLogger(__name__)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-c", "--config", metavar="FILE", help="properties file (namesrv.conf)")
    parser.add_argument("--host", metavar="HOST", help="address to listen on (default: all)")
    parser.add_argument("--port", type=port, metavar="PORT", help="port to listen on (9876; 0: any)")
    parser.add_argument("-p", "--print-config", action="store_true", help="print every setting and exit")
    add_setting_option(parser)
    add_server_options(parser)


def run(args: argparse.Namespace) -> int:
    from cometmq.logging_setup import set_up_logging
    from cometmq.metrics.service import NameServerMetrics
    from cometmq.nameserver.config import NameServerConfig
    from cometmq.nameserver.server import NameServer
    from cometmq.properties_file import check_port

    set_up_logging(args.log_level, as_json=args.log_json)
    config = NameServerConfig.from_file(args.config) if args.config else NameServerConfig()
    if args.host is not None:
        config.bind_address = args.host
    if args.port is not None:
        config.listen_port = args.port
    for problem in config.update(settings_of(args.settings)):
        log.warning("%s", problem)
    check_port("listenPort", config.listen_port)
    if args.print_config:
        for key, value in sorted(config.as_properties().items()):
            print(f"{key}={value}")
        return 0
    nameserver = NameServer(config)
    metrics = NameServerMetrics(nameserver, args.metrics_host, args.metrics_port)

    async def ready() -> None:
        await metrics.start()
        address = f"{config.bind_address or '127.0.0.1'}:{nameserver.port}"
        say("The Name Server boot success. serializeType=JSON")
        say(f"ready nameserver={address} pid={os.getpid()}{metrics.suffix}")

    return serve(nameserver, args, ready)
