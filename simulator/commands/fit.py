"""`python -m simulator fit`: its flags, and what it prints."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Final

from simulator.commands.flags import count_of
from simulator.commands.replay import progress_of
from simulator.logs import FORMATS, KINDS

__all__ = ["add_arguments", "run"]

_PIPE_COLUMNS: Final = 140
_OUT: Final = "scenario.toml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `fit`."""
    parser.description = (
        "Fit a scenario to a real access log, and play both under the same limits to judge it."
    )
    parser.add_argument("log", metavar="LOG", help="the log; plain or gzip; - is standard input")
    parser.add_argument(
        "--format", choices=FORMATS, help="how it is written; left out, the log tells"
    )
    who = parser.add_mutually_exclusive_group()
    who.add_argument(
        "--as", dest="as_kind", choices=KINDS, help="kind of every key; public unless given"
    )
    who.add_argument(
        "--map", metavar="FILE", help="which field of the log says what: tenants, kinds, keys …"
    )
    parser.add_argument(
        "--tenant", choices=("production", "test"), help="kind of the tenant (production)"
    )
    parser.add_argument("--time-column", metavar="NAME", help="the field that holds the time")
    parser.add_argument("--limits", metavar="FILE", help="limit table; default is the built-in one")
    parser.add_argument("--profile", metavar="FILE", help="how limits are read; the defaults else")
    parser.add_argument(
        "--holdout",
        metavar="SHARE",
        help="predict the last part of the time, such as 50%%, from what comes before it",
    )
    parser.add_argument(
        "--runs", type=count_of, metavar="N", help="runs of the scenario to judge it by"
    )
    parser.add_argument("--out", metavar="FILE", help=f"the scenario file ({_OUT})")
    parser.add_argument("--force", action="store_true", help="replace that file")
    parser.add_argument("--quiet", action="store_true", help="print the file's path alone")


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code. Raises `InputError` for bad input."""
    from rich.console import Console

    from simulator.study.fit import check_free, fit

    out = Path(args.out or _OUT)
    check_free(out, force=args.force)
    with progress_of(quiet=args.quiet) as progress:
        found = fit(
            args.log,
            limits=args.limits,
            profile=args.profile,
            as_kind=args.as_kind,
            map=args.map,
            format=args.format,
            tenant=args.tenant,
            time_column=args.time_column,
            holdout=args.holdout,
            runs=args.runs,
            judged=not args.quiet,
            progress=progress,
        )
    found.save(out, force=args.force)
    if args.quiet:
        print(out)
        return 0
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_COLUMNS)
    console.print(found)
    print("play it:", shlex.join(["python", "-m", "simulator", "run", str(out)]))
    print("scenario:", out)
    return 0
