"""`python -m simulator fit`: its flags, and what it prints."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Final

from simulator.commands.replay import progress_of
from simulator.commands.words import console

__all__ = ["add_arguments", "run"]

_OUT: Final = "scenario.toml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `fit`."""
    parser.description = (
        "Fit a scenario to a real access log, and run both under the same limits to judge it."
    )
    from simulator.options import FitOptions, add_flags

    add_flags(parser, FitOptions)
    parser.add_argument("--out", metavar="FILE", help=f"the scenario file ({_OUT})")
    parser.add_argument("--force", action="store_true", help="replace that file")
    parser.add_argument("--quiet", action="store_true", help="print only the file's path")


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code. Raises `InputError` for bad input."""
    from simulator.options import FitOptions, given
    from simulator.study.fit import check_free, fit

    out = Path(args.out or _OUT)
    check_free(out, force=args.force)
    with progress_of(quiet=args.quiet) as progress:
        found = fit(**given(args, FitOptions), judged=not args.quiet, progress=progress)
    found.save(out, force=args.force)
    if args.quiet:
        print(out)
        return 0
    console().print(found)
    print("play it:", shlex.join(["python", "-m", "simulator", "run", str(out)]))
    print("scenario:", out)
    return 0
