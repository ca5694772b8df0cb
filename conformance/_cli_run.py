"""`run`, `replay` and `judge`: their flags, and what they print."""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from engine.errors import InputError

if TYPE_CHECKING:
    from conformance.target import Target

__all__ = ["add_run_arguments", "judge", "replay", "run"]

_CALM_ALLOCATIONS: Final = 50_000
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.-]+")


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `run`."""
    parser.add_argument("target", metavar="TARGET", help="a target.toml; `init` writes one")
    parser.add_argument(
        "--select", metavar="IDS", action="append", default=[], help="clauses, as TOK-,LIM-PUBLIC"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--schema-only", action="store_true", help="only the schema layer")
    what.add_argument("--no-limits", action="store_true", help="leave the probes of limits out")
    parser.add_argument("--strict", action="store_true", help="a partial run is a finding too")
    parser.add_argument("--seed", type=_seed, metavar="N", help="for everything made up")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default runs/<name>-<seed>")
    parser.add_argument(
        "--force", action="store_true", help="write into a folder that is not empty"
    )
    parser.add_argument("--quiet", action="store_true", help="print the last lines only")
    parser.add_argument("--plan", action="store_true", help="print the plan and run nothing")


def _seed(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Run the suite; returns the exit code."""
    from conformance.preflight import Unreachable
    from conformance.report.terminal import Terminal, show_report
    from conformance.running import Options, Run, Silence
    from conformance.target import Target

    target = Target.from_toml(args.target)
    seed = random.SystemRandom().getrandbits(31) if args.seed is None else args.seed
    select = tuple(part for each in args.select for part in each.split(",") if part)
    options = Options(
        select=select,
        schema_only=args.schema_only,
        no_limits=args.no_limits,
        strict=args.strict,
        seed=seed,
    )
    terminal = Terminal()
    if args.plan:
        planned = Run(target, options)
        planned.transport.close()
        terminal.planned(planned.plan(), target, seed)
        return 0
    out = args.out or Path("runs") / f"{_name(args.target)}-{seed}"
    _prepare(out, is_forced=args.force)
    one = Run(
        target,
        options,
        out=out,
        progress=Silence() if args.quiet else terminal,
        command=_command(args, select, seed, out),
    )
    try:
        with _few_collections():
            report = one.execute()
    except Unreachable:
        _forget(out)
        raise
    finally:
        terminal.close()
    files = report.save(out)
    if args.quiet:
        print(report.verdict_line)
    else:
        show_report(terminal.console, report, files)
    return report.exit_code


def _name(target: str) -> str:
    return _NOT_IN_NAMES.sub("-", Path(target).stem).strip("-.") or "target"


def _command(
    args: argparse.Namespace, select: tuple[str, ...], seed: int, out: Path
) -> tuple[str, ...]:
    """Return the command that repeats this run."""
    words = ["python", "-m", "conformance", "run", str(args.target)]
    if select:
        words += ["--select", ",".join(select)]
    for flag in ("schema_only", "no_limits", "strict"):
        if getattr(args, flag):
            words.append("--" + flag.replace("_", "-"))
    return (*words, "--seed", str(seed), "--out", str(out), "--force")


def _prepare(out: Path, *, is_forced: bool) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()) and not is_forced:
            raise InputError(f"--out = {out} must be empty; choose another, or give --force")
    except OSError as error:
        reason = (error.strerror or "no reason given").lower()
        raise InputError(f"--out = {out} must be a folder to write: {reason}") from None


@contextlib.contextmanager
def _few_collections() -> Iterator[None]:
    """Collect garbage seldom: a pause for it would blur a burst."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_CALM_ALLOCATIONS, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _forget(out: Path) -> None:
    """Leave no trace of a run that reached nobody, so that the same command works once it can."""
    from conformance.history import HISTORY_FILE

    (out / HISTORY_FILE).unlink(missing_ok=True)
    if not any(out.iterdir()):
        out.rmdir()


def replay(args: argparse.Namespace) -> int:
    """Ask again, with the same seed, what failed; say what it was and what it is now."""
    from conformance.replaying import again, failed
    from conformance.report.terminal import Terminal, show_report

    results = _results(args.folder)
    before = failed(results, args.ids)
    if not before:
        print(f"nothing of {', '.join(args.ids)} failed in {args.folder}")
        return 0
    terminal = Terminal()
    report = again(results, before, _target_of(args, results), progress=terminal)
    terminal.close()
    show_report(terminal.console, report)
    for clause_id, verdict in before.items():
        print(f"{clause_id}: was {verdict}, is {report.result(clause_id).verdict.word}")
    return report.exit_code


def _target_of(args: argparse.Namespace, results: dict[str, Any]) -> Target:
    from conformance.target import Target

    if args.target is not None:
        return Target.from_toml(args.target)
    command = results["command"]
    if len(command) < 5:
        raise InputError(f"{args.folder} was not run from a target file; give --target FILE")
    if not Path(command[4]).exists():
        says = "must be the run's target file; go where it was run, or give --target FILE"
        raise InputError(f"{command[4]} {says}")
    return Target.from_toml(command[4])


def _results(folder: Path) -> dict[str, Any]:
    from conformance.report.report import RESULTS_FILE

    path = folder / RESULTS_FILE
    try:
        found = json.loads(path.read_text("utf-8"))
    except OSError as error:
        reason = (error.strerror or "unreadable").lower()
        raise InputError(f"{path}: {reason}; give the folder of a run") from None
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("format") != 1:
        raise InputError(f"{path} must be the results of a run; run it again")
    return found


def judge(args: argparse.Namespace) -> int:
    """Judge a history again, and say where that differs from what was said then."""
    import dataclasses

    from rich.console import Console

    from conformance.judging import judge as judged
    from conformance.report.terminal import show_report

    report = judged(args.folder)
    if args.strict:
        report = dataclasses.replace(report, strict=True)
    console = Console(highlight=False, soft_wrap=True)
    show_report(console, report)
    then = {one["clause"]: one["verdict"] for one in _results(args.folder)["clauses"]}
    for result in report.results:
        old = then.get(result.clause.id)
        if old is not None and old != result.verdict.word:
            print(f"{result.clause.id}: was {old}, is {result.verdict.word}")
    return report.exit_code
