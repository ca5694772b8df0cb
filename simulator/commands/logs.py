"""The commands that read an access log, `replay` and `fit`: their flags, and what they print."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from simulator.commands.words import console
from simulator.logs import log_name
from simulator.progress import progress_shown

_SCENARIO: Final = "scenario.toml"


def add_replay(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `replay`."""
    parser.description = "Put the requests of a real access log through the limits."
    from simulator.options import ReplayOptions, add_flags

    add_flags(parser, ReplayOptions, out="folder of the results (runs/<log>-0)")
    parser.add_argument("--quiet", action="store_true", help="print only the report's path")


def run_replay(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code. Raises `InputError` for bad input."""
    from simulator.options import DEFAULT_KIND, DEFAULT_TENANT, ReplayOptions, given, repeated
    from simulator.rows import check_out
    from simulator.study.replay import SEED, replay, run_name
    from simulator.views.replay_answer import print_answer
    from simulator.views.report import REPORT_FILE

    out = Path(args.out) if args.out else Path("runs") / f"{run_name(log_name(args.source))}-{SEED}"
    check_out(out, force=args.force)
    screen = console()
    if not args.quiet:
        tenant = args.tenant or DEFAULT_TENANT
        kind = args.as_kind or DEFAULT_KIND
        keys = f"keys by {args.map}" if args.map else f"every key {kind} of a {tenant} tenant"
        screen.print(
            f"seed {SEED}, fidelity {args.fidelity}, {keys}, speed {args.speed},"
            f" limits {args.limits or 'default'}",
            markup=False,
        )
    command = ["python", "-m", "simulator", "replay", *repeated(args, ReplayOptions, force=True)]
    asked = given(args, ReplayOptions) | {"out": out, "command": command}
    with _progress(quiet=args.quiet) as progress:
        result = replay(**asked, progress=progress)
    if not args.quiet:
        print_answer(result, screen)
        if args.check:
            broken = len(result.violations)
            found = f"{broken} broken" if broken else "all hold"
            screen.print(f"checks: {found} ({result.check_s:.2f} s)", markup=False)
        print("again:", shlex.join(command))
        print("report:", out / REPORT_FILE)
    else:
        print(out / REPORT_FILE)
    for violation in result.violations[:5]:
        print(f"broken invariant: {violation}", file=sys.stderr)
    return 1 if result.violations else 0


def add_fit(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `fit`."""
    parser.description = (
        "Fit a scenario to a real access log, and run both under the same limits to judge it."
    )
    from simulator.options import FitOptions, add_flags

    add_flags(parser, FitOptions)
    parser.add_argument("--out", metavar="FILE", help=f"the scenario file ({_SCENARIO})")
    parser.add_argument("--force", action="store_true", help="replace that file")
    parser.add_argument("--quiet", action="store_true", help="print only the file's path")


def run_fit(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code. Raises `InputError` for bad input."""
    from simulator.options import FitOptions, given
    from simulator.study.fit import check_free, fit

    out = Path(args.out or _SCENARIO)
    check_free(out, force=args.force)
    with _progress(quiet=args.quiet) as progress:
        found = fit(**given(args, FitOptions), judged=not args.quiet, progress=progress)
    found.save(out, force=args.force)
    if args.quiet:
        print(out)
        return 0
    console().print(found)
    print("play it:", shlex.join(["python", "-m", "simulator", "run", str(out)]))
    print("scenario:", out)
    return 0


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[str, int], None] | None]:
    """Show how many of a log's requests are done: a bar on a terminal, else plain lines."""
    columns = ("{task.description}: {task.completed:,} requests",)
    with progress_shown(*columns, quiet=quiet) as tell:
        yield tell and (lambda stage, rows: tell(stage, rows, None, f"{rows:,} requests"))
