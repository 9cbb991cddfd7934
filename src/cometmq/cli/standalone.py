"""Run a NameServer and a broker in one process. Point any RocketMQ client at the NameServer address printed."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from cometmq.broker.config import LISTEN_PORT_DEFAULT
from cometmq.cli.parser import port
from cometmq.cli.server import add_server_options, add_setting_option, say, serve, settings_of
from cometmq.errors import ConfigError
from cometmq.nameserver.config import LISTEN_PORT_DEFAULT as NAMESERVER_PORT_DEFAULT

STORE_DEFAULT = Path("~") / ".cometmq" / "store"
# Keys that options set here; given with -o they would have no effect.
OPTION_OF_KEY = {
    "listenPort": "--port",
    "bindAddress": "--host",
    "storePathRootDir": "--store",
    "namesrvAddr": "--nameserver-port",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on and to advertise (127.0.0.1)"
    )
    parser.add_argument(
        "--port",
        type=port,
        default=LISTEN_PORT_DEFAULT,
        help=f"port of the broker ({LISTEN_PORT_DEFAULT}; 0: any)",
    )
    parser.add_argument(
        "--nameserver-port",
        type=port,
        default=NAMESERVER_PORT_DEFAULT,
        help=f"port of the NameServer ({NAMESERVER_PORT_DEFAULT}; 0: any)",
    )
    parser.add_argument(
        "--store", default=str(STORE_DEFAULT), metavar="DIR", help=f"directory ({STORE_DEFAULT})"
    )
    add_setting_option(parser)
    add_server_options(parser)


def run(args: argparse.Namespace) -> int:
    began = time.monotonic()
    from cometmq.logging_setup import set_up_logging
    from cometmq.metrics.service import StandaloneMetrics
    from cometmq.standalone import Standalone, StandaloneConfig

    set_up_logging(args.log_level, as_json=args.log_json)
    settings = settings_of(args.settings)
    for key in settings.keys() & OPTION_OF_KEY.keys():
        raise ConfigError(
            f"A standalone broker takes {key} from {OPTION_OF_KEY[key]}; use that instead of -o."
        )
    store = Path(args.store).expanduser()
    if store.exists() and not store.is_dir():
        raise ConfigError(f"The store {store} is no directory; choose another --store.")
    config = StandaloneConfig(
        store=str(store),
        host=args.host,
        port=args.port,
        nameserver_port=args.nameserver_port,
        settings=settings,
    )
    standalone = Standalone(config)
    metrics = StandaloneMetrics(standalone, args.metrics_host, args.metrics_port)

    async def ready() -> None:
        await metrics.start()
        broker = standalone.broker
        say(f"NameServer  {standalone.nameserver_address}")
        say(
            f"Broker      {broker.address} ({broker.config.broker_name}, {broker.config.broker_cluster_name})"
        )
        say(f"Store       {broker.config.store_path_root_dir}")
        if metrics.url:
            say(f"Metrics     {metrics.url}")
        say(f"Ready after {time.monotonic() - began:.2f} s; Ctrl-C stops.")
        say(
            f"ready nameserver={standalone.nameserver_address} broker={broker.address} "
            f"pid={os.getpid()}{metrics.suffix}"
        )

    return serve(standalone, args, ready)
