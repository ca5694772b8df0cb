"""The commands of the conformance harness: `run`, `replay`, `judge`, `list`, `selftest` and more.

Exit codes: 0 fine, 1 a finding (a failed clause, an expected failure that is none; a *partial* run
too under `--strict`), 2 usage or bad input, 3 target unreachable, 4 the harness itself failed (an
exception in a check, which says nothing of the deployment), 130 interrupted.
Bad input is one line, no traceback.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from conformance import _cli_run, _cli_show
from engine.errors import TollgateError

__all__ = ["main"]

_UNREACHABLE = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    from conformance.preflight import Unreachable

    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr] # reason: text streams of a process have it
    args = _parser().parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except TollgateError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2
    except Unreachable as error:
        print(f"conformance: {error}", file=sys.stderr)
        return _UNREACHABLE
    except KeyboardInterrupt:
        print("conformance: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m conformance", description="Is a live deployment what the clauses say?"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run the suite against a deployment")
    _cli_run.add_run_arguments(run)
    run.set_defaults(run=_cli_run.run)

    listed = commands.add_parser("list", help="list the clauses and what checks them")
    listed.add_argument("ids", nargs="*", metavar="ID", help="a clause, or a prefix such as TOK-")
    listed.set_defaults(run=_cli_show.show_list)

    explain = commands.add_parser("explain", help="say how a clause is checked")
    explain.add_argument("ids", nargs="+", metavar="ID", help="a clause, a prefix, or a check")
    explain.set_defaults(run=_cli_show.explain)

    init = commands.add_parser("init", help="write a target to fill in")
    init.add_argument("file", type=Path, metavar="FILE", help="must not be there yet")
    init.set_defaults(run=_cli_show.init)

    replay = commands.add_parser("replay", help="ask again what failed in a run")
    replay.add_argument("folder", type=Path, metavar="DIR", help="the folder of a run")
    replay.add_argument("ids", nargs="+", metavar="ID", help="a clause, or a prefix")
    replay.add_argument("--target", metavar="FILE", help="another target file than the run's")
    replay.set_defaults(run=_cli_run.replay)

    judge = commands.add_parser("judge", help="compute a run's verdicts again, offline")
    judge.add_argument("folder", type=Path, metavar="DIR", help="the folder of a run")
    judge.add_argument("--strict", action="store_true", help="a partial run is a finding too")
    judge.set_defaults(run=_cli_run.judge)

    _add_selftest(commands)
    return parser


def _add_selftest(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The known-bad deployments bring their own command."""
    try:
        selftest = importlib.import_module("conformance.faults.selftest")
    except ModuleNotFoundError as error:
        if error.name not in {"conformance.faults", "conformance.faults.selftest"}:
            raise
        return
    parser = commands.add_parser("selftest", help="prove that every known-bad deployment is caught")
    selftest.add_arguments(parser)
    parser.set_defaults(run=selftest.run)
