"""Print a completion script: bash, zsh or fish. ``source <(cometmq completion bash)``"""

from __future__ import annotations

import argparse
import importlib
import sys

SHELLS = ("bash", "zsh", "fish")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS)


def run(args: argparse.Namespace) -> int:
    words = {command: _words(module) for command, module in _commands().items()}
    sys.stdout.write({"bash": bash, "zsh": zsh, "fish": fish}[args.shell](words))
    return 0


def _commands() -> dict[str, str]:
    from cometmq.cli.main import COMMANDS

    return {name: module for name, (module, _) in COMMANDS.items()}


def _words(module_name: str) -> dict[str, list[str]]:
    """Verb to options; the verb '' stands for a command without verbs."""
    module = importlib.import_module(f"cometmq.cli.{module_name}")
    parser = argparse.ArgumentParser(add_help=False)
    module.configure(parser)
    found = {"": _options(parser)}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb, sub in action.choices.items():
                found[verb] = _options(sub)
    return found


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return sorted(
        option for action in parser._actions for option in action.option_strings if option.startswith("--")
    )


Words = dict[str, dict[str, list[str]]]


def _next_words(command: str, verbs: dict[str, list[str]]) -> str:
    return " ".join([verb for verb in verbs if verb] + verbs[""])


def bash(words: Words) -> str:
    cases = []
    for command, verbs in words.items():
        for verb, options in verbs.items():
            if verb:
                cases.append(f'    "{command} {verb}") words="{" ".join(options)}" ;;')
        cases.append(f'    "{command} "*) words="{_next_words(command, verbs)}" ;;')
    listed = "\n".join(cases)
    return f"""# bash completion of cometmq
_cometmq() {{
  local words="" current="${{COMP_WORDS[COMP_CWORD]}}"
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{" ".join(words)} --help --version"
  else
    local verb="${{COMP_WORDS[2]}}"
    [ "$COMP_CWORD" -eq 2 ] && verb=""
    case "${{COMP_WORDS[1]}} $verb" in
{listed}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _cometmq cometmq
"""


def zsh(words: Words) -> str:
    return "#compdef cometmq\nautoload -U +X bashcompinit && bashcompinit\n" + bash(words)


def fish(words: Words) -> str:
    rows = ["# fish completion of cometmq", "complete -c cometmq -f"]
    nothing = "not __fish_seen_subcommand_from " + " ".join(words)
    rows.append(f"complete -c cometmq -n '{nothing}' -a '{' '.join(words)}'")
    for command, verbs in words.items():
        names = [verb for verb in verbs if verb]
        seen = f"__fish_seen_subcommand_from {command}"
        if names:
            rows.append(f"complete -c cometmq -n '{seen}' -a '{' '.join(names)}'")
        options = sorted({option for listed in verbs.values() for option in listed})
        rows += [f"complete -c cometmq -n '{seen}' -l {option[2:]}" for option in options]
    return "\n".join(rows) + "\n"
