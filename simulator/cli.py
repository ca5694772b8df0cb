"""The commands of the simulator: `run`, `replay`, `check`, `init`, `scenarios` and more.

Exit codes: 0 fine, 1 a finding (a threshold or an invariant that does not hold, a difference),
2 usage or bad input, 130 interrupted. Bad input is one line, no traceback.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.errors import TollgateError

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr] # reason: text streams of a process have it
    args = _parser().parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except TollgateError as error:
        print(f"simulator: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("simulator: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _parser() -> argparse.ArgumentParser:
    from simulator import _cli_run
    from simulator.replaying import cli as _replay

    parser = argparse.ArgumentParser(
        prog="python -m simulator", description="Model limit behaviour."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="play a scenario")
    _cli_run.add_arguments(run)
    run.set_defaults(run=_cli_run.run)

    replay = commands.add_parser("replay", help="put a real access log through the limits")
    _replay.add_arguments(replay)
    replay.set_defaults(run=_replay.run)

    scenarios = commands.add_parser("scenarios", help="list the built-in scenarios")
    scenarios.set_defaults(run=_scenarios)

    check = commands.add_parser("check", help="check a scenario file, and say what it holds")
    check.add_argument(
        "file", metavar="FILE", help="a scenario file, or a built-in scenario's name"
    )
    check.set_defaults(run=_check)

    init = commands.add_parser("init", help="write a small scenario to start from")
    init.add_argument("file", metavar="FILE", help="the file to write; must not be there yet")
    init.set_defaults(run=_init)
    return parser


def _scenarios(args: argparse.Namespace) -> int:
    import textwrap

    from simulator.scenario import builtin

    del args
    for name, question in builtin().items():
        lines = textwrap.wrap(question, 74) or [""]
        print(f"{name:<18} {lines[0]}")
        for line in lines[1:]:
            print(f"{'':<18} {line}")
    return 0


def _check(args: argparse.Namespace) -> int:
    from engine.files import format_duration
    from simulator.scenario import limit_tables_of, load, profile_of

    scenario = load(args.file)
    tables = limit_tables_of(scenario)
    profile_of(scenario)
    clients = sum(group.count for group in scenario.clients)
    keys = sum(app.ordinary_keys + app.legacy_keys for app in scenario.applications)
    print(
        f"{args.file}: fine; scenario {scenario.name!r}, {format_duration(scenario.duration_ns)}, "
        f"{_counted(len(scenario.tenants), 'tenant')}, {_counted(keys, 'key')}, "
        f"{_counted(clients, 'client')} in {_counted(len(scenario.clients), 'group')}, "
        f"{_counted(sum(len(table.rules) for table in tables.values()), 'limit rule')}"
    )
    return 0


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _init(args: argparse.Namespace) -> int:
    from engine.errors import InputError
    from simulator.scenario import starter

    path = Path(args.file)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(starter())
    except FileExistsError:
        raise InputError(f"FILE = {path} must not be there yet; choose another name") from None
    except OSError as fault:
        raise InputError(
            f"FILE = {path} must be a file that can be written; {fault.strerror}"
        ) from None
    print(f"wrote {path}; run it: python -m simulator run {path}")
    return 0
