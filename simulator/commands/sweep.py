"""`python -m simulator sweep`: its flags, and what it prints."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from simulator.progress import TELL_EVERY_S

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `sweep`."""
    from simulator.commands.flags import seed_of

    parser.description = "Play a scenario under many values; a stopped sweep goes on where it was."
    parser.add_argument("scenario", metavar="SCENARIO", help="a file, or a built-in name")
    parser.add_argument(
        "--set",
        dest="axes",
        action="append",
        required=True,
        metavar="PATH=V1,V2|PATH=A..B",
        help="values of one place of the scenario, or a range to sample; again for more",
    )
    parser.add_argument("--sample", metavar="lhs:N", help="points of the ranges together")
    parser.add_argument("--replications", type=_count, default=1, metavar="N", help="runs a point")
    parser.add_argument(
        "--fidelity",
        choices=("compiled", "limits", "engine"),
        default="compiled",
        help="compiled: limit decisions alone, many times as fast (default); limits: the same "
        "decisions under SimPy; engine: every request runs whole",
    )
    parser.add_argument("--seed", type=seed_of, metavar="N", help="the scenario's unless given")
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", help="local, or the address of a Dask scheduler"
    )
    parser.add_argument(
        "--workers",
        type=_count,
        metavar="N",
        help="how many: threads where compiled, else processes (all cores)",
    )
    parser.add_argument("--out", metavar="DIR", help="folder of the dataset (runs/sweep-<name>)")
    parser.add_argument("--quiet", action="store_true", help="print the folder alone")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 100_000):
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1 to 100000")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code. Raises `InputError` for bad input."""
    from engine.errors import InputError
    from simulator.study.runs import resolve
    from simulator.study.sweep import sweep
    from simulator.study.sweep._space import read_axis

    scenario = resolve(args.scenario)
    out = Path(args.out) if args.out else Path("runs") / f"sweep-{scenario.name}"
    axes: dict[str, Any] = {}
    for text in args.axes:
        path, _ = read_axis(text)
        if path in axes:
            raise InputError(f"--set = {path!r} must stand once; list all its values there")
        axes[path] = text.partition("=")[2]
    seed = scenario.seed if args.seed is None else args.seed
    if not args.quiet:
        runs = "1 run" if args.replications == 1 else f"{args.replications} runs"
        print(f"seed {seed}, fidelity {args.fidelity}, {runs} a point")
    with _progress(quiet=args.quiet) as progress, _told_how_to_go_on(out):
        frame = sweep(
            scenario,
            axes,
            out=out,
            sample=args.sample,
            replications=args.replications,
            fidelity=args.fidelity,
            seed=args.seed,
            scheduler=args.scheduler,
            workers=args.workers,
            progress=progress,
        )
    failed = frame[frame["status"] == "failed"]
    if args.quiet:
        print(out)
    else:
        _print(frame, list(axes))
        print("again:", shlex.join(["python", "-m", "simulator", *sys.argv[1:]]))
        print("dataset:", out)
    for line in failed[["point", "replication", "error"]].itertuples(index=False):
        print(f"failed: point {line.point}, run {line.replication}: {line.error}", file=sys.stderr)
    return 1 if len(failed) else 0


def _print(frame: Any, paths: list[str]) -> None:  # noqa: ANN401 # reason: a frame
    """Print each point's means."""
    from rich.table import Table

    from simulator.commands.words import console

    table = Table(box=None, header_style="bold", pad_edge=False)
    metrics = [name for name in ("offered", "admitted", "refused_share") if name in frame]
    for name in (*paths, "runs", *metrics):
        table.add_column(name, justify="right")
    for _, rows in frame[frame["status"] == "ok"].groupby("point"):
        values = [str(rows[path].iloc[0]) for path in paths]
        means = [f"{rows[name].mean():,.4g}" for name in metrics]
        table.add_row(*values, str(len(rows)), *means)
    console().print(table)


@contextmanager
def _told_how_to_go_on(out: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        print(f"what is done stays in {out}; the same command goes on from there", file=sys.stderr)
        raise


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Show how many runs are done: a bar on a terminal, a plain line now and then elsewhere."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            work = bar.add_task("sweeping")
            yield lambda done, whole: bar.update(work, completed=done, total=whole)
    else:
        told_s = time.monotonic()

        def tell(done: int, whole: int) -> None:
            nonlocal told_s
            if done == whole or time.monotonic() - told_s >= TELL_EVERY_S:
                told_s = time.monotonic()
                print(f"sweeping: {done} of {whole}", file=sys.stderr, flush=True)

        yield tell
