"""`python -m simulator coverage`: its flags, and what it prints."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

from simulator.commands.words import console

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `coverage`."""
    parser.description = "Fire every limit rule, action, quota and bound at least once."
    parser.add_argument("--out", metavar="DIR", help="write coverage.json into this folder")
    parser.add_argument("--force", action="store_true", help="replace what is in that folder")


def run(args: argparse.Namespace) -> int:
    """Run the command: 0 when everything fired or says why it cannot, else 1."""
    from rich.table import Table

    from simulator.rows import check_out, out_folder
    from simulator.study.coverage import coverage

    if args.out is not None:
        check_out(Path(args.out), force=args.force)
    lines = coverage()
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("clause", "what", "fired"):
        table.add_column(name, no_wrap=True)
    table.add_column("how, or why not")
    for line in lines:
        table.add_row(line.clause, line.what, "yes" if line.fired else "no", line.how)
    console().print(table, markup=False)
    missing = [line for line in lines if not line.fired and not line.masked]
    fired = sum(line.fired for line in lines)
    print(f"{fired} of {len(lines)} fired, {len(missing)} missing")
    if args.out is not None:
        with out_folder(Path(args.out), force=args.force) as folder:
            text = json.dumps([dataclasses.asdict(line) for line in lines], indent=2)
            (folder / "coverage.json").write_text(text + "\n", "utf-8")
        print("coverage:", Path(args.out) / "coverage.json")
    return 1 if missing else 0
