"""The command ``cometmq``: picks the subcommand and runs it.

Each subcommand is a module with ``configure(parser)`` and ``run(args) -> int``. Only the one asked for is
imported: a server must be ready in well under half a second, and ``cometmq --version`` needs nothing at
all.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Sequence

from cometmq import __version__
from cometmq.cli.parser import EXIT_USAGE, Parser
from cometmq.errors import CometMQError

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130

# Subcommand -> module in cometmq.cli, what it does. In the order in which the help shows them.
COMMANDS = {
    "standalone": ("standalone", "a NameServer and a broker in one process, ready to use"),
    "demo": ("demo", "a service in a surge, with and without a broker, in about a minute"),
    "broker": ("broker", "run a broker; show and config look at a running one"),
    "nameserver": ("nameserver", "run a NameServer"),
    "topic": ("topic", "create, show, change and delete topics"),
    "group": ("group", "consumer groups: progress, settings, offsets"),
    "message": ("message", "send, find and read messages"),
    "cluster": ("cluster", "brokers and NameServers of a cluster"),
    "ha": ("ha", "replication: roles, positions, how far slaves are behind"),
    "mqadmin": ("mqadmin", "the commands of RocketMQ's mqadmin in their own spelling"),
    "bench": ("bench", "measure a broker"),
    "completion": ("completion", "print a completion script for bash, zsh or fish"),
    "store": ("store", "inspect, verify and dump the files of a store"),
    "pipe": ("pipe", "data pipelines on Spark: archive, replay, dead letters, funnel"),
}


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments[0] if arguments else "--help"
    if name in ("--version", "-V"):
        print(version_text())
        return 0
    if name in ("--help", "-h", "help"):
        print(help_text())
        return 0
    if name not in COMMANDS:
        print(
            f"cometmq: unknown command {name!r}{_nearest(name)}; cometmq --help lists them", file=sys.stderr
        )
        return EXIT_USAGE
    if name == "broker" and arguments[1:2] in (["show"], ["config"]):
        return run_command(name, arguments[1:], "broker_admin")  # about a running broker, not to run one
    return run_command(name, arguments[1:])


def run_command(name: str, arguments: Sequence[str], module_name: str = "") -> int:
    own_module, summary = COMMANDS[name]
    try:
        module = importlib.import_module(f"cometmq.cli.{module_name or own_module}")
        parser = Parser(prog=f"cometmq {name}", description=(module.__doc__ or summary).replace("``", "'"))
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        module.configure(parser)
        return int(module.run(parser.parse_args(arguments)) or 0)
    except CometMQError as error:
        print(f"cometmq {name}: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has seen enough
        return 0
    except OSError as error:
        print(f"cometmq {name}: {sentence(error)}", file=sys.stderr)
        return EXIT_FAILED


def sentence(error: OSError) -> str:
    """What the system said, and about which file; a number of an error helps nobody."""
    what = error.strerror or str(error) or type(error).__name__
    return f"{what}: {error.filename}" if error.filename is not None else what


def version_text() -> str:
    return f"cometmq {__version__} ({'compiled' if is_compiled() else 'pure'})"


def is_compiled() -> bool:
    """The hot path comes from an extension module, not from its source (see COMETMQ_PURE)."""
    spec = importlib.util.find_spec("cometmq.broker.plain_send_cy")
    return spec is not None and not str(spec.origin).endswith(".py")


def help_text() -> str:
    lines = [
        "usage: cometmq COMMAND [OPTIONS]",
        "",
        "A message broker of the RocketMQ 4.9 design.",
        "",
        "commands:",
    ]
    lines += [f"  {name:<12} {summary}" for name, (_, summary) in COMMANDS.items()]
    lines += ["", "cometmq COMMAND --help tells the options; cometmq --version the version."]
    return "\n".join(lines)


def _nearest(name: str) -> str:
    from cometmq.properties_file import nearest

    return nearest(name, COMMANDS)


if __name__ == "__main__":
    raise SystemExit(main())
