"""`python -m simulator advise`: its flags, and what it prints."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import InputError
from simulator.logs import KINDS
from simulator.views.text import number_text

if TYPE_CHECKING:
    from simulator.scenario import Scenario
    from simulator.study.advise import Advice


def add_advise(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `advise`."""
    parser.description = (
        "Say which limits bind each group of clients, what would help it, and what a higher limit"
        " would cost. Each suggestion has the runs that support it."
    )
    from simulator.options import add_flags
    from simulator.study.advise import AdviseOptions

    add_flags(
        parser,
        AdviseOptions,
        scenario="a scenario's file (.toml), a built-in scenario's name, or an access log, to which"
        " a scenario is fitted first",
    )
    who = parser.add_mutually_exclusive_group()
    who.add_argument(
        "--as", dest="as_kind", choices=KINDS, help="of a log: the kind of every key (public)"
    )
    who.add_argument("--map", metavar="FILE", help="of a log: which fields are what")
    parser.add_argument(
        "--out", metavar="DIR", help="write a page, the tables and a diff of each suggestion there"
    )
    parser.add_argument(
        "--force", action="store_true", help="replace the files of an earlier call in DIR"
    )
    parser.add_argument("--quiet", action="store_true", help="print only the suggestions")


def run_advise(args: argparse.Namespace) -> int:
    """Run the command; returns 0."""
    from simulator.options import given
    from simulator.progress import Interrupted
    from simulator.rows import check_out
    from simulator.study.advise import AdviseOptions, advise

    if args.out is not None:
        check_out(Path(args.out), force=args.force)
    try:
        found = advise(
            **given(args, AdviseOptions) | {"scenario": _scenario(args)},
            told=None if args.quiet else _tell,
        )
    except Interrupted as interrupted:
        _print_advice(interrupted.found, args)
        raise
    _print_advice(found, args)
    return 0


def _scenario(args: argparse.Namespace) -> Scenario | str:
    """Return the scenario that is named, or the one that is fitted to the log."""
    is_log = Path(args.scenario).suffix != ".toml" and Path(args.scenario).is_file()
    for flag in ("as_kind", "map"):
        if not is_log and (value := getattr(args, flag)) is not None:
            name = flag.removesuffix("_kind")
            raise InputError(f"--{name} = {value} must go with a log; {args.scenario} is none")
    if not is_log:
        return str(args.scenario)
    from simulator.study.fit import fit

    if not args.quiet:
        _tell("the log, to fit a scenario to it; `fit` shows how well the two match")
    found: Scenario = fit(args.scenario, as_kind=args.as_kind, map=args.map, judged=False).scenario
    return found


def _tell(text: str) -> None:
    print(f"playing: {text}", file=sys.stderr, flush=True)


def _print_advice(found: Advice, args: argparse.Namespace) -> None:
    from simulator.rows import out_folder
    from simulator.views.report import dashed

    print(f"{found.scenario.name}: {found.runs} runs of each change, paired by seed")
    for group in dict.fromkeys(each.group for each in found.suggestions):
        print(f"\n{group}")
        for each in found.suggestions:
            if each.group == group:
                print(f"  {each.about}: {each.says}")
                if each.verified:
                    print(f"    {each.verified}")
    if not args.quiet:
        for name, frame in found.frames.items():
            print(f"\n{name}")
            print(dashed(frame).to_string(index=False, float_format=number_text))
    if found.unfinished:
        print(f"\nunfinished: {found.unfinished}")
    if args.out is not None:
        with out_folder(Path(args.out), force=args.force) as folder:
            found.write_to(folder)
        print(f"\nwritten to {args.out}")
