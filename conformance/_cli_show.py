"""`list`, `explain` and `init`: what needs no deployment."""

from __future__ import annotations

import argparse
import textwrap
from importlib import resources
from typing import TYPE_CHECKING

from engine.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from conformance.registry import Check

__all__ = ["explain", "init", "show_list"]


def show_list(args: argparse.Namespace) -> int:
    """Print a line a clause: id, status, the checks that judge it."""
    from conformance.registry import all_checks, checks_of
    from engine.clauses import select

    all_checks()
    for clause in select(args.ids):
        checks = ", ".join(check.id for check in checks_of([clause.id]))
        if not checks:
            checks = "not observable" if clause.unobservable else "no check"
        print(f"{clause.id:<22} {clause.seed_section:<5} {clause.status:<10} {checks}")
    return 0


def explain(args: argparse.Namespace) -> int:
    """Print what is asked of a clause, how it is checked and what that takes."""
    from conformance.registry import all_checks, checks_of
    from engine.clauses import CLAUSES, select

    checks = all_checks()
    for one in args.ids:
        if one in checks:
            _print_check(checks[one])
            continue
        try:
            clauses = select([one])
        except InputError:
            known = [*(clause.id for clause in CLAUSES), *checks]
            hint = did_you_mean(one, known)
            hint = hint if hint.startswith("; did") else "; `list` prints them"
            raise InputError(f"ID = {one!r} must be a clause or a check{hint}") from None
        for clause in clauses:
            print(f"{clause.id}  (seed {clause.seed_section}, {clause.status})")
            print(textwrap.indent(textwrap.fill(clause.text, 96), "  "))
            if clause.decisions:
                print(f"  left open: {', '.join(clause.decisions)}; what a deployment does of them")
                print("  is reported, never failed, unless DECISIONS.md marks it study")
            if clause.unobservable:
                print(f"  not observable: {clause.unobservable}")
            if clause.masked:
                print(f"  partly masked: {clause.masked}")
            for check in checks_of([clause.id]):
                _print_check(check)
            print()
    return 0


def _print_check(check: Check) -> None:
    from engine.files import format_duration

    print(f"  check {check.id}: {check.says}")
    print(f"    accepted: {check.accepts}")
    takes = f", {format_duration(check.takes_ns)} at least" if check.takes_ns else ""
    print(f"    about {check.requests} requests{takes}; judges {', '.join(check.clauses)}")
    wants = [*dict.fromkeys(check.roles), *check.needs]
    if check.sources:
        wants.append(f"{check.sources} addresses")
    if wants:
        print(f"    needs {', '.join(wants)}")


def init(args: argparse.Namespace) -> int:
    """Write a target to fill in."""
    text = resources.files("conformance.target").joinpath("starter.toml").read_text("utf-8")
    try:
        with args.file.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{args.file} is there already; choose another name") from None
    except OSError as error:
        reason = (error.strerror or "no reason given").lower()
        raise InputError(f"{args.file} must be a file to write: {reason}") from None
    print(f"wrote {args.file}; fill it in, then: python -m conformance run {args.file}")
    return 0
