# PYTHON_ARGCOMPLETE_OK
"""The commands of the simulator: `run`, `replay`, `check`, `init`, `scenarios` and more.

Exit codes: 0 fine, 1 a finding (a threshold or an invariant that does not hold, a difference),
2 usage or bad input, 130 interrupted. Bad input is one line, no traceback.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final, NoReturn

from engine.command_line import (
    Parser,
    add_exit_codes,
    add_version,
    complete,
    is_completing,
    run_command,
)

_LOGS: Final = "simulator.commands.logs"
_STUDIES: Final = "simulator.commands.studies"
_COMMANDS: Final = {
    "run": ("run a scenario", "simulator.commands.run"),
    "replay": ("apply the limits to an access log", _LOGS),
    "fit": ("fit a scenario to an access log", _LOGS),
    "coverage": ("trigger every limit, quota and bound once", _STUDIES),
    "sweep": ("run a scenario with many values", _STUDIES),
    "capacity": ("find the largest value that meets a condition", _STUDIES),
    "compare": ("report what differs between runs or policies", _STUDIES),
    "advise": (
        "report which limits are the bottleneck of each client group, and what helps",
        _STUDIES,
    ),
    "scenarios": ("list the built-in scenarios", __name__),
    "check": ("check a scenario file", "simulator.commands.check"),
    "init": ("write a small scenario to start from", __name__),
}
"""Command → what the overview says, and the module whose `add_…` takes its flags, `run_…` runs."""

_EXIT_CODES: Final = (
    "0 fine, 1 a condition that is not met, a broken invariant or a difference, "
    "2 usage or bad input"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    # Arrow's other pools keep what was freed: 30 MB of a replay. Arrow reads it when it loads.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

    def command() -> int:
        parser = _parser(_COMMANDS if is_completing() else words[:1])
        complete(parser)
        args = parser.parse_args(words, argparse.Namespace(words=words))
        code: int = args.run(args)
        return code

    return run_command("simulator", command)


class _Parser(Parser):
    """A parser that says in one line what is wrong with a flag's value, without the usage."""

    def error(self, message: str) -> NoReturn:
        if message.startswith("argument "):
            self.exit(2, f"simulator: {message.removeprefix('argument ')}\n")
        super().error(message)


def _parser(asked: Collection[str]) -> argparse.ArgumentParser:
    """Return the parser; only the command that is asked for loads its flags."""
    parser = _Parser(prog="python -m simulator", description="Simulate traffic under the limits.")
    add_version(parser)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (summary, place) in _COMMANDS.items():
        flags = commands.add_parser(name, help=summary)
        if name in asked:
            module = import_module(place)
            getattr(module, f"add_{name}")(flags)
            flags.set_defaults(run=getattr(module, f"run_{name}"))
    add_exit_codes(parser, commands, _EXIT_CODES)
    return parser


def add_scenarios(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `scenarios`."""
    parser.description = (
        "List the built-in scenarios: the question of each, and the answer of its run."
    )


def add_init(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `init`."""
    parser.description = (
        "Write a small scenario to start from, and the JSON Schema of scenarios beside it."
    )
    parser.add_argument("file", metavar="FILE", help="the file to write; it must not exist")


def run_scenarios(args: argparse.Namespace) -> int:
    """Print the built-in scenarios; returns 0."""
    import textwrap

    from simulator.scenario import builtin, load

    del args
    for name, question in builtin().items():
        lines = textwrap.wrap(question, 74) + textwrap.wrap(f"→ {load(name).answer}", 74)
        for head, line in zip([name, *[""] * len(lines)], lines, strict=False):
            print(f"{head:<18} {line}")
    return 0


def run_init(args: argparse.Namespace) -> int:
    """Write the file and its schema; returns 0."""
    import json

    from engine.errors import InputError
    from simulator.scenario import schema, starter

    path = Path(args.file)
    beside = path.with_name("scenario.schema.json")  # the name that the starter's head gives
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(starter())
        text = json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
        beside.write_text(text, "utf-8")
    except FileExistsError:
        raise InputError(f"FILE = {path} must not exist yet; choose another name") from None
    except OSError as fault:
        raise InputError(
            f"FILE = {path} must be a file that can be written; {fault.strerror}"
        ) from None
    print(f"wrote {path} and {beside.name}, the schema for your editor")
    print(f"run it: python -m simulator run {path}")
    return 0
