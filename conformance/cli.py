# PYTHON_ARGCOMPLETE_OK
"""The commands of the conformance harness: `run`, `check`, `init`, `replay`, `judge` and more.

Exit codes: 0 everything that was asked for passed, 1 a finding (a failed clause, an expected
failure that did not occur, nothing judged; a *partial* run too under `--strict`), 2 usage or bad
input, 3 the target is unreachable, accepts none of the keys or is not a tokenization service, 4 the
harness itself failed, 130 interrupted. Bad input prints one line, never a traceback.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import importlib.util
import os
import random
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from engine.command_line import (
    Parser,
    add_exit_codes,
    add_version,
    complete,
    number_of,
    require_extra,
    run_command,
)
from engine.errors import InputError, did_you_mean, reason_of

if TYPE_CHECKING:
    from conformance.context.check import Check
    from conformance.runner.runner import Options
    from conformance.target import Target

_CALM_ALLOCATIONS: Final = 50_000
_COMMANDS: Final = {
    "run": "judge a live deployment clause by clause; sends bursts that exceed limits",
    "init": "write a target file, which describes a deployment to the suite",
    "check": "list what can be judged with a target, what cannot and why; sends nothing",
    "list": "list the clauses, and the checks that judge each one",
    "explain": "print what a clause requires, how it is judged, and what a check needs",
    "replay": "repeat the failed checks of a run for a clause, with the same seed",
    "judge": "judge the recorded exchanges of a run again; sends nothing",
    "selftest": "run the suite against known-bad deployments; it must catch each one",
}
_EXIT_CODES: Final = (
    "0 no finding, 1 a finding, 2 usage or bad input, 3 the deployment is unreachable, refuses the "
    "keys, or the address is wrong, 4 the harness failed, 5 nothing was judged, or a clause was "
    "left out because the budget was spent"
)
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.-]+")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    parser = _parser()
    complete(parser)
    args = parser.parse_args(argv)

    def command() -> int:
        if args.run is not _init:
            require_extra("conformance", "hypothesis", "pytest", "schemathesis")
        code: int = args.run(args)
        return code

    return run_command("conformance", command)


def _add(
    commands: argparse._SubParsersAction[Parser],
    name: str,
    run: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    """Add a command; its description appears in the list of commands and in its own help."""
    description = _COMMANDS[name]
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=description, description=f"{description[0].upper()}{description[1:]}."
    )
    parser.set_defaults(run=run)
    return parser


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m conformance",
        description="Test whether a deployment conforms to the clauses.",
    )
    add_version(parser)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = _add(commands, "run", _run)
    _add_run_arguments(run)

    init = _add(commands, "init", _init)
    init.add_argument("file", type=Path, metavar="FILE", help="the file to write; must not exist")
    init.add_argument(
        "--url",
        metavar="URL",
        help="probe this deployment first; unanswered settings become comments",
    )

    check = _add(commands, "check", _check)
    check.add_argument("target", metavar="TARGET", help="a target.toml")
    _add_selection(check)

    listed = _add(commands, "list", _list)
    listed.add_argument("ids", nargs="*", metavar="ID", help="a clause, or a prefix such as TOK-")

    explain = _add(commands, "explain", _explain)
    explain.add_argument("ids", nargs="+", metavar="ID", help="a clause, a prefix, or a check")

    replay = _add(commands, "replay", _replay)
    replay.add_argument("folder", type=Path, metavar="DIR", help="the folder of a run")
    replay.add_argument("ids", nargs="+", metavar="ID", help="a clause, or a prefix")
    replay.add_argument(
        "--target", metavar="FILE", help="a target file to use instead of the run's"
    )

    judge = _add(commands, "judge", _judge)
    judge.add_argument("folder", type=Path, metavar="DIR", help="the folder of a run")
    judge.add_argument("--strict", action="store_true", help="an undecided clause is a finding too")

    _add_selftest(commands)
    add_exit_codes(parser, commands, _EXIT_CODES)
    return parser


def _add_selftest(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the `selftest` command, unless `conformance.faults` is not installed."""
    if importlib.util.find_spec("conformance.faults") is None:
        return
    parser = _add(commands, "selftest", _selftest)
    parser.add_argument(
        "--full",
        action="store_true",
        help="every fault against every check, and a sample over real HTTP",
    )
    parser.add_argument(
        "--select",
        metavar="IDS",
        default="",
        help="faults to try: ids, clauses or prefixes such as LIM-, separated by commas",
    )
    parser.add_argument(
        "--processes",
        type=number_of("a whole number", 1, 64),
        default=min(2, os.cpu_count() or 1),
        metavar="N",
        help="processes to spread the work over (default: 2 where there are as many)",
    )


def _selftest(args: argparse.Namespace) -> int:
    """Run the suite against known-bad deployments; returns the exit code."""
    from conformance.faults.selftest import run

    return run(args)


# --- run ----------------------------------------------------------------------------------------


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--select",
        metavar="IDS",
        action="append",
        default=[],
        help="clauses, such as TOK-,LIM-PUBLIC",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--schema-only",
        action="store_true",
        help="only generated bodies for POST /tokenize: valid and invalid ones",
    )
    what.add_argument("--no-limits", action="store_true", help="leave the probes of limits out")


def _add_run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="TARGET", help="a target.toml; `init` writes one")
    _add_selection(parser)
    parser.add_argument(
        "--strict", action="store_true", help="an undecided clause is a finding too"
    )
    parser.add_argument("--seed", type=_seed, metavar="N", help="seed of every generated value")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder of the results (runs/<name>-<seed>)"
    )
    parser.add_argument(
        "--force", action="store_true", help="write into a folder that is not empty"
    )
    parser.add_argument(
        "--format",
        metavar="LIST",
        action="append",
        default=[],
        help="junit,sarif,annotations,json,html; default junit,json,html",
    )
    parser.add_argument(
        "--baseline", type=Path, metavar="RUN", help="an earlier run to compare with"
    )
    parser.add_argument(
        "--only-new",
        action="store_true",
        help="only findings that are not in the baseline fail the run",
    )
    parser.add_argument("--quiet", action="store_true", help="print only the summary")
    parser.add_argument("--plan", action="store_true", help="print the plan and run nothing")


def _seed(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number")
    return int(text)


def _selected(args: argparse.Namespace) -> tuple[str, ...]:
    return tuple(part for text in args.select for part in text.split(",") if part)


def _options(args: argparse.Namespace, seed: int) -> Options:
    """Return the options that select what is judged."""
    from conformance.runner.runner import Options

    return Options(
        select=_selected(args), schema_only=args.schema_only, no_limits=args.no_limits, seed=seed
    )


def _formats(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the formats asked for; raises `InputError` for an unknown one."""
    from conformance.report.report import chosen_formats

    return chosen_formats(args.format, "--format")


def _run(args: argparse.Namespace) -> int:
    """Run the suite; returns the exit code."""
    from conformance.report.code_hosts import commands_for
    from conformance.report.report import chosen_baseline
    from conformance.runner.preflight import Unreachable
    from conformance.runner.runner import Progress, Run
    from conformance.target import Target
    from conformance.terminal import Terminal, show_report

    formats, names = _formats(args), ("--baseline", "--only-new")
    baseline = chosen_baseline(args.baseline, only_new=args.only_new, names=names)
    target = Target.from_toml(args.target)
    seed = random.SystemRandom().getrandbits(31) if args.seed is None else args.seed
    options = dataclasses.replace(_options(args, seed), strict=args.strict)
    terminal = Terminal()
    if args.plan:
        planned = Run(target, options)
        planned.transport.close()
        terminal.planned(planned.plan(), planned.session)
        terminal.show_plan()
        return 0
    out = args.out or Path("runs") / f"{_name(args.target)}-{seed}"
    _prepare(out, is_forced=args.force)
    run = Run(
        target,
        options,
        out=out,
        progress=Progress() if args.quiet else terminal,
        command=_command(args, seed, out),
    )
    try:
        with _few_collections():
            report = run.execute()
    except Unreachable:
        _forget(out)
        raise
    finally:
        terminal.close()
    report = dataclasses.replace(report, baseline=baseline, only_new=args.only_new)
    files = report.save(out, formats)
    if report.aborted is not None:
        line = report.redactor.text(report.verdict_line)
        print(f"conformance: {line} (details in {out})", file=sys.stderr)
    elif args.quiet:
        print(report.verdict_line)
    else:
        show_report(terminal.console, report, files)
    commands = commands_for(report, os.environ) if "annotations" in formats else None
    if commands is not None:
        print(commands)
    return report.exit_code


def _name(target: str) -> str:
    return _NOT_IN_NAMES.sub("-", Path(target).stem).strip("-.") or "target"


def _command(args: argparse.Namespace, seed: int, out: Path) -> tuple[str, ...]:
    """Return the command that repeats this run."""
    words = ["python", "-m", "conformance", "run", str(args.target)]
    select = _selected(args)
    if select:
        words += ["--select", ",".join(select)]
    for flag in ("schema_only", "no_limits", "strict"):
        if getattr(args, flag):
            words.append("--" + flag.replace("_", "-"))
    if args.format:
        words += ["--format", ",".join(_formats(args))]
    if args.baseline is not None:
        words += ["--baseline", str(args.baseline)]
        words += ["--only-new"] if args.only_new else []
    return (*words, "--seed", str(seed), "--out", str(out), "--force")


def _prepare(out: Path, *, is_forced: bool) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()) and not is_forced:
            raise InputError(f"--out = {out} must be empty; choose another, or give --force")
    except OSError as error:
        raise InputError(f"--out = {out} must be a folder to write: {reason_of(error)}") from None


@contextlib.contextmanager
def _few_collections() -> Iterator[None]:
    """Run the garbage collector rarely: its pauses would distort the timing of a burst."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_CALM_ALLOCATIONS, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _forget(out: Path) -> None:
    """Delete the history of a run that reached no deployment; the command can be repeated."""
    from conformance.context.history import HISTORY_FILE

    (out / HISTORY_FILE).unlink(missing_ok=True)
    if not any(out.iterdir()):
        out.rmdir()


def _replay(args: argparse.Namespace) -> int:
    """Repeat the failed checks with the same seed; print the earlier and the new verdicts."""
    from conformance.report.baseline import read_results
    from conformance.runner.runner import again, failed
    from conformance.terminal import Terminal, show_report

    results = read_results(args.folder)
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


def _target_of(args: argparse.Namespace, results: Mapping[str, Any]) -> Target:
    from conformance.target import Target

    if args.target is not None:
        return Target.from_toml(args.target)
    command = results["command"]
    if len(command) < 5:
        raise InputError(f"{args.folder} was not run from a target file; give --target FILE")
    if not Path(command[4]).exists():
        rule = "must be the run's target file; go where it was run, or give --target FILE"
        raise InputError(f"{command[4]} {rule}")
    return Target.from_toml(command[4])


def _judge(args: argparse.Namespace) -> int:
    """Judge a recorded history again, and print each verdict that has changed."""
    from rich.console import Console

    from conformance.report.baseline import read_results
    from conformance.runner.offline import judge as judged
    from conformance.terminal import show_report

    report = judged(args.folder)
    if args.strict:
        report = dataclasses.replace(report, strict=True)
    console = Console(highlight=False, soft_wrap=True)
    show_report(console, report)
    then = {result["clause"]: result["verdict"] for result in read_results(args.folder)["clauses"]}
    for result in report.results:
        old = then.get(result.clause.id)
        if old is not None and old != result.verdict.word:
            print(f"{result.clause.id}: was {old}, is {result.verdict.word}")
    return report.exit_code


# --- targets ------------------------------------------------------------------------------------


def _init(args: argparse.Namespace) -> int:
    """Write a target file to fill in; with `--url`, ask the deployment first."""
    from conformance.starter import starter, write_starter

    made = starter(args.url)
    for line in made.said:
        print(line)
    write_starter(args.file, made)
    beside = "its schema beside it" if made.profile is None else "its profile and schema beside it"
    print(f"wrote {args.file}, and {beside}; fill it in, then:")
    print(f"  python -m conformance check {args.file}")
    print(f"  python -m conformance run {args.file}")
    return 0


def _check(args: argparse.Namespace) -> int:
    """Say what a target allows to be judged; sends nothing."""
    from conformance.runner.plan import outlook
    from conformance.runner.runner import Run
    from conformance.target import Target
    from conformance.target.form import stand_ins
    from engine.files import read_toml

    document = read_toml(args.target)
    unset = stand_ins(document)
    target = Target.from_document(document)
    run = Run(target, _options(args, 0))
    run.transport.close()
    for line in outlook(run.plan(), target, run.session.limits):
        print(line)
    if unset:
        print(f"a run needs these environment variables, which are not set: {', '.join(unset)}")
    return 0


# --- clauses and checks -------------------------------------------------------------------------


def _list(args: argparse.Namespace) -> int:
    """Print one line per clause: id, section, status, and the checks that judge it."""
    from conformance.context.check import all_checks, checks_of
    from engine.clauses import select

    all_checks()
    for clause in select(args.ids):
        checks = ", ".join(check.id for check in checks_of([clause.id]))
        if not checks:
            checks = "not observable" if clause.unobservable else "no check"
        print(f"{clause.id:<22} {clause.seed_section:<5} {clause.status:<10} {checks}")
    return 0


def _explain(args: argparse.Namespace) -> int:
    """Print what a clause requires, how it is checked and what the check needs."""
    from conformance.context.check import all_checks, checks_of
    from engine.clauses import CLAUSES, select

    checks = all_checks()
    for name in args.ids:
        if name in checks:
            _print_check(checks[name])
            continue
        try:
            clauses = select([name])
        except InputError:
            known = [*(clause.id for clause in CLAUSES), *checks]
            hint = did_you_mean(name, known, otherwise="; `list` prints them")
            raise InputError(f"ID = {name!r} must be a clause or a check{hint}") from None
        for clause in clauses:
            print(f"{clause.id}  (section {clause.seed_section}, {clause.status})")
            print(textwrap.indent(textwrap.fill(clause.text, 96), "  "))
            if clause.decisions:
                print(f"  left open: {', '.join(clause.decisions)}")
                print(
                    "    a run reports the choice; one that is for study fails (docs/DECISIONS.md)"
                )
            if clause.unobservable:
                print(f"  not observable: {clause.unobservable}")
            if clause.masked:
                print(f"  partly masked: {clause.masked}")
            for check in checks_of([clause.id]):
                _print_check(check)
            print()
    return 0


def _print_check(check: Check) -> None:
    from engine.files import span_text

    print(f"  check {check.id}: {check.description}")
    accepted = f"accepted: {check.accepts}"
    print(textwrap.indent(textwrap.fill(accepted, 92, break_on_hyphens=False), "    "))
    takes = f", {span_text(check.takes_ns)} at least" if check.takes_ns else ""
    print(f"    about {check.requests:,} requests{takes}")
    judges = f"judges {', '.join(check.clauses)}"
    print(textwrap.indent(textwrap.fill(judges, 92, break_on_hyphens=False), "    "))
    wants = [f"a key of role {role}" for role in dict.fromkeys(check.roles)]
    if check.sources:
        addresses = "address" if check.sources == 1 else "addresses"
        wants.append(f"{check.sources} {addresses}")
    if wants:
        print(f"    needs {', '.join(wants)}")
