# PYTHON_ARGCOMPLETE_OK
"""The commands: `clauses`, `limits`, `profile`, `openapi`, `serve`, `backup`, `rotate-key`.

Exit codes: 0 fine, 2 usage or bad input, 130 interrupted. Bad input is one line, no traceback.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from typing import Final

from engine.command_line import (
    Parser,
    add_exit_codes,
    add_version,
    complete,
    run_command,
    schema_line,
)
from engine.http._cli_serve import (
    add_backup_arguments,
    add_openapi_arguments,
    add_rotate_key_arguments,
    add_serve_arguments,
)

_LABELS: Final = {"check": "checks", "notebook": "chapters"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    parser = _parser()
    complete(parser)
    args = parser.parse_args(argv)
    return run_command("engine", lambda: args.run(args))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m engine",
        description="Look up the specification, serve the engine, and maintain its store.",
    )
    add_version(parser)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    clauses = commands.add_parser(
        "clauses",
        help="print clauses, and where each is implemented and checked",
        description="Print what a clause requires and where it is implemented, tested and checked.",
    )
    ids = "an id, a prefix such as TOK-, or a decision such as D-ORDER (default: all clauses)"
    clauses.add_argument("ids", nargs="*", metavar="ID", help=ids)
    clauses.add_argument("--tests", action="store_true", help="print the tests of each clause too")
    clauses.set_defaults(run=_clauses)
    limits = commands.add_parser(
        "limits",
        help="print a limit table",
        description="Print a limit table: what each rule matches, counts and does.",
    )
    limits.add_argument(
        "file", nargs="?", help="a limits.toml (default: the specification's table)"
    )
    limits.add_argument(
        "--toml", action="store_true", help="print as TOML that you can edit and pass to --limits"
    )
    limits.set_defaults(run=_limits)
    profile = commands.add_parser(
        "profile",
        help="print every open choice, as TOML to edit",
        description="Print every choice that the specification leaves open, as TOML to edit.",
    )
    profile.add_argument("file", nargs="?", help="a profile.toml (default: the defaults)")
    profile.set_defaults(run=_profile)
    add_serve_arguments(commands.add_parser("serve", help="serve the engine over HTTP"))
    add_openapi_arguments(commands.add_parser("openapi", help="write an OpenAPI document"))
    add_backup_arguments(
        commands.add_parser("backup", help="copy a store, also while it is being served")
    )
    add_rotate_key_arguments(
        commands.add_parser("rotate-key", help="encrypt a store's data keys with a new master key")
    )
    add_exit_codes(parser, commands, "0 fine, 2 usage or bad input")
    return parser


def _clauses(args: argparse.Namespace) -> int:
    from engine.clauses import CLAUSES

    if not args.ids:
        for clause in CLAUSES:
            print(f"{clause.id:<22} {clause.seed_section:<5} {clause.status:<10} {clause.text}")
        return 0
    decisions = [name for name in args.ids if name.startswith("D-")]
    for name in decisions:
        _print_decision(name)
    if len(decisions) < len(args.ids):
        _print_clauses([name for name in args.ids if name not in decisions], tests=args.tests)
    return 0


def _print_clauses(names: list[str], *, tests: bool) -> None:
    from engine.clauses import load_index, select

    index = load_index()
    for clause in select(names):
        print(f"{clause.id}  (section {clause.seed_section}, {clause.status})")
        print(textwrap.indent(textwrap.fill(clause.text, 96), "  "))
        _print_choices(clause.decisions)
        if clause.unobservable:
            print(f"  not observable: {clause.unobservable}")
        if clause.masked:
            print(f"  partly masked: {clause.masked}")
        for kind, places in index[clause.id].items():
            if kind == "tests" and not tests:
                print(f"  tests: {len(places)}; --tests prints them")
                continue
            print(f"  {_LABELS.get(kind, kind)}:" + ("  none yet" if not places else ""))
            for place in places:
                print(f"    {place}")
        print()


def _print_decision(name: str) -> None:
    from engine.clauses import open_decision

    decision = open_decision(name)
    labels = {
        "default": decision.default,
        "alternatives, for study" if decision.study else "alternatives": decision.alternatives,
        "profile": ", ".join(decision.fields) or None,
        "fixed": decision.fixed,
    }
    print(f"{decision.id}  {decision.question}")
    for label, text in labels.items():
        if text is not None:
            print(textwrap.indent(textwrap.fill(f"{label}: {text}", 96), "  "))
    print()


def _print_choices(decisions: Sequence[str]) -> None:
    from engine.profile import decisions as fields_by_decision

    fields = fields_by_decision()
    for decision in decisions:
        held = ", ".join(fields.get(decision, [])) or "fixed, not a profile setting"
        print(f"  {decision}: {held}")


def _limits(args: argparse.Namespace) -> int:
    from engine.limits import LimitTable, render

    table = LimitTable.default() if args.file is None else LimitTable.from_toml(args.file)
    if args.toml:
        print(schema_line("engine.limits", "limits.schema.json") + table.to_toml().rstrip())
    else:
        print(render(table))
    return 0


def _profile(args: argparse.Namespace) -> int:
    from engine.profile import Profile

    profile = Profile() if args.file is None else Profile.from_toml(args.file)
    head, _, text = profile.to_toml(explained=True).partition("\n")
    assert head == "#:schema profile.schema.json", "a name that is right beside the file alone"
    print(schema_line("engine", "profile.schema.json") + text.rstrip())
    return 0
