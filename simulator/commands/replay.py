"""`python -m simulator replay`: its flags, and what it prints."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from simulator.commands.flags import add_columns
from simulator.logs import FORMATS, KINDS, log_name

__all__ = ["add_arguments", "progress_of", "run"]

_PIPE_COLUMNS: Final = 140
_TELL_EVERY_S: Final = 5.0
_DEFAULTS: Final = {"speed": "1", "fidelity": "limits", "check": True}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `replay`."""
    parser.description = "Put the requests of a real access log through the limits."
    parser.add_argument("log", metavar="LOG", help="the log; plain or gzip; - is standard input")
    parser.add_argument(
        "--format", choices=FORMATS, help="how it is written; left out, the log tells"
    )
    who = parser.add_mutually_exclusive_group()
    who.add_argument(
        "--as",
        dest="as_kind",
        choices=KINDS,
        help="kind of every key; public unless given",
    )
    who.add_argument(
        "--map", metavar="FILE", help="which field of the log says what: tenants, kinds, keys …"
    )
    parser.add_argument(
        "--tenant", choices=("production", "test"), help="kind of the tenant (production)"
    )
    parser.add_argument("--time-column", metavar="NAME", help="the field that holds the time")
    parser.add_argument("--speed", metavar="X", help="how many times faster than the log (1)")
    parser.add_argument("--limits", metavar="FILE", help="limit table; default is the built-in one")
    parser.add_argument("--against", metavar="FILE", help="older table (or default): who gains?")
    parser.add_argument("--profile", metavar="FILE", help="how limits are read; the defaults else")
    parser.add_argument(
        "--pseudonymise",
        action="store_true",
        help="put keyed hashes in the place of addresses and keys",
    )
    parser.add_argument(
        "--fidelity",
        choices=("limits", "compiled", "engine"),
        help="decide by the limits alone (default), or run the whole engine",
    )
    parser.add_argument(
        "--check",
        action=argparse.BooleanOptionalAction,
        help="run the invariant checkers (on)",
    )
    parser.add_argument("--out", metavar="DIR", help="folder of the results (runs/<log>-0)")
    add_columns(parser)
    parser.add_argument("--force", action="store_true", help="replace the results in that folder")
    parser.add_argument("--quiet", action="store_true", help="print the report's path alone")
    parser.set_defaults(**_DEFAULTS)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code. Raises `InputError` for bad input."""
    from rich.console import Console

    from simulator.rows import check_out
    from simulator.study.replay import DEFAULT_KIND, DEFAULT_TENANT, SEED, replay, run_name
    from simulator.views import REPORT_FILE
    from simulator.views.replay_answer import print_answer

    out = Path(args.out) if args.out else Path("runs") / f"{run_name(log_name(args.log))}-{SEED}"
    check_out(out, force=args.force)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_COLUMNS)
    kind = None if args.map else args.as_kind or DEFAULT_KIND
    tenant = args.tenant or DEFAULT_TENANT
    if not args.quiet:
        keys = f"keys by {args.map}" if args.map else f"every key {kind} of a {tenant} tenant"
        console.print(
            f"seed {SEED}, fidelity {args.fidelity}, {keys}, speed {args.speed},"
            f" limits {args.limits or 'default'}",
            markup=False,
        )
    with progress_of(quiet=args.quiet) as progress:
        result = replay(
            args.log,
            format=args.format,
            as_kind=kind,
            map=args.map,
            tenant=args.tenant,
            time_column=args.time_column,
            speed=args.speed,
            limits=args.limits,
            against=args.against,
            profile=args.profile,
            pseudonymise=args.pseudonymise,
            fidelity=args.fidelity,
            check=args.check,
            out=out,
            columns=args.columns,
            force=args.force,
            progress=progress,
            command=_command(args),
        )
    if not args.quiet:
        print_answer(result, console)
        if args.check:
            broken = len(result.violations)
            found = f"{broken} broken" if broken else "all hold"
            console.print(f"checks: {found} ({result.check_s:.2f} s)", markup=False)
        print("again:", shlex.join(_command(args)))
        print("report:", out / REPORT_FILE)
    else:
        print(out / REPORT_FILE)
    for violation in result.violations[:5]:
        print(f"broken invariant: {violation}", file=sys.stderr)
    return 1 if result.violations else 0


def _command(args: argparse.Namespace) -> list[str]:
    """Return the command that repeats this replay."""
    words = ["python", "-m", "simulator", "replay", args.log]
    for flag, value in (
        ("--format", args.format),
        ("--as", args.as_kind),
        ("--map", args.map),
        ("--tenant", args.tenant),
        ("--time-column", args.time_column),
        ("--speed", args.speed),
        ("--limits", args.limits),
        ("--against", args.against),
        ("--profile", args.profile),
        ("--fidelity", args.fidelity),
        ("--out", args.out),
        ("--columns", args.columns),
    ):
        name = flag.removeprefix("--").replace("-", "_")
        if value is not None and value != _DEFAULTS.get(name):
            words += [flag, str(value)]
    words += ["--pseudonymise"] * args.pseudonymise + ["--no-check"] * (not args.check)
    return [*words, "--force"]


@contextmanager
def progress_of(*, quiet: bool) -> Iterator[Callable[[str, int], None] | None]:
    """Show how many of a log's requests are done: a bar on a terminal, else plain lines."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        text = TextColumn("{task.description}: {task.completed:,} requests")
        columns = (SpinnerColumn(), text, TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("reading", total=None)
            yield lambda stage, rows: bar.update(task, description=stage, completed=rows)
    else:
        yield _plain_lines()


def _plain_lines() -> Callable[[str, int], None]:
    import time

    told_s = time.monotonic()

    def tell(stage: str, rows: int) -> None:
        nonlocal told_s
        if time.monotonic() - told_s >= _TELL_EVERY_S:
            told_s = time.monotonic()
            print(f"{stage}: {rows:,} requests", file=sys.stderr, flush=True)

    return tell
