"""`python -m simulator compare`: its flags, and what it prints."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from typing import TYPE_CHECKING

from simulator.commands.flags import add_budget, precision_of
from simulator.commands.words import console, metric_text, needed_text, print_precision

if TYPE_CHECKING:
    from simulator.study.replications import Precision

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `compare`."""
    parser.description = "Say what differs between two runs, and how surely."
    parser.add_argument("a", metavar="DIR_A", help="a run's folder")
    parser.add_argument("b", metavar="DIR_B", help="another run's folder")
    parser.add_argument(
        "--precision",
        type=precision_of,
        metavar="X",
        help="replicate both, each in its fidelity, until every share's difference is known to ± X",
    )
    add_budget(parser, "pairs of runs that --precision may take (1000)")
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 too where the precision is not reached"
    )
    parser.add_argument("--json", action="store_true", help="print the differences as JSON")


def run(args: argparse.Namespace) -> int:
    """Run the command: 0 where nothing differs, 1 where something does."""
    from rich.table import Table

    from simulator.study.comparison import compare

    def tell(pairs: int, reached: Precision) -> None:
        if not reached.reached:
            print(f"{pairs} pairs{needed_text(reached.needed)}", file=sys.stderr, flush=True)

    found = compare(
        args.a,
        args.b,
        precision=args.precision,
        most_replications=args.most_replications,
        most_time=args.most_time,
        told=tell,
    )
    missed = args.strict and found.precision is not None and not found.precision.reached
    shown = [d for d in found.differences if d.a != d.b or d.is_sure]
    if args.json:
        frame = found.frame.reset_index()
        print(json.dumps(json.loads(frame.to_json(orient="records")), indent=2))
        return 1 if shown or not found.same_rows or missed else 0
    print(f"A = {found.names[0]}, B = {found.names[1]}, {found.said}")
    if found.precision is not None:
        print_precision(dataclasses.asdict(found.precision), found.pairs)
    if not shown:
        print("no metric differs" + ("" if found.same_rows else "; some rows do"))
        return 0 if found.same_rows and not missed else 1
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("metric", no_wrap=True)
    for name in ("A", "B", "B − A", "from", "to"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("sure", no_wrap=True)
    table.add_column("method", no_wrap=True)
    for d in shown:
        values = (d.a, d.b, d.change.mean, d.change.low, d.change.high)
        table.add_row(
            d.metric,
            *(metric_text(d.metric, value) for value in values),
            "yes" if d.is_sure else "",
            d.change.method,
        )
    console().print(table)
    return 1
