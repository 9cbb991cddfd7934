"""The parser of every command. A mistake ends in one sentence with the nearest right word, not in a page of usage."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

EXIT_USAGE = 2
PORT_MAX = 65535
VERB = "VERB"  # how the help calls the second word of a command


class Parser(argparse.ArgumentParser):
    """As argparse's; subcommands made by ``add_subparsers`` are of this class, too."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """What is left over is a mistake here already, where the options of the verb are known."""
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(self._about_unknown(rest[0]))
        return found, rest

    def error(self, message: str) -> NoReturn:
        if message.endswith(f"required: {VERB}"):
            message = f"say what to do: {', '.join(name for name, _ in self._verbs())}"
        more = "" if message.endswith("?") else f"; {self.prog} --help says more"
        self.exit(EXIT_USAGE, f"{self.prog}: {message}{more}\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, f"unknown {value!r}{_one_of(value, action.choices)}")

    def _about_unknown(self, word: str) -> str:
        if not word.startswith("-"):
            return f"{word!r} is one argument too many"
        name = word.partition("=")[0]
        if name in _options(parser for _, parser in self._verbs()):
            return f"{name} belongs behind the verb"
        return f"unknown option {name!r}{_nearest(name, _options([self]))}"

    def _verbs(self) -> Iterator[tuple[str, argparse.ArgumentParser]]:
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from action.choices.items()


def port(text: str) -> int:
    """A type for options: sockets take a larger number, and use its last 16 bits."""
    return _whole(text, 0, PORT_MAX)


def count(text: str) -> int:
    """A type for options: at least one."""
    return _whole(text, 1)


def amount(text: str) -> int:
    """A type for options: none, or more."""
    return _whole(text, 0)


def _whole(text: str, least: int, most: int | None = None) -> int:
    """argparse shows the text of an ArgumentTypeError as it is."""
    limits = f"at least {least}" if most is None else f"{least} to {most}"
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number; give {limits}") from None
    if number < least or (most is not None and number > most):
        raise argparse.ArgumentTypeError(f"it cannot be {number}; give {limits}")
    return number


def _options(parsers: Iterable[argparse.ArgumentParser]) -> list[str]:
    return [name for parser in parsers for action in parser._actions for name in action.option_strings]


def _one_of(value: object, choices: Iterable[Any]) -> str:
    known = [str(choice) for choice in choices]
    return _nearest(str(value), known) or f"; it is one of {', '.join(known)}"


def _nearest(word: str, known: Iterable[str]) -> str:
    from cometmq.properties_file import nearest  # only after a mistake: difflib takes its time

    return nearest(word, dict.fromkeys(known))
