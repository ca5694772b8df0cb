"""Flags that several commands take, and what their texts must be."""

from __future__ import annotations

import argparse

__all__ = ["add_budget", "add_columns", "count_of", "precision_of", "seed_of"]


def add_columns(parser: argparse.ArgumentParser) -> None:
    """Add the flag that says which columns a run's rows are kept with."""
    parser.add_argument(
        "--columns",
        metavar="NAMES",
        help="columns that requests.parquet keeps, as t_ns,key,outcome; decisions stands for "
        "t_ns,key,outcome,rule,wait_ns (all)",
    )


def add_budget(parser: argparse.ArgumentParser, most: str) -> None:
    """Add the flags that say when replications end."""
    parser.add_argument("--most-replications", type=count_of, metavar="N", help=most)
    parser.add_argument("--most-time", metavar="D", help="end after D (1m30s), whatever is known")


def seed_of(text: str) -> int:
    """Return a seed of a command line."""
    if not (text.isascii() and text.isdigit() and int(text) < 2**63):
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 0 to 2^63 - 1")
    return int(text)


def precision_of(text: str) -> float:
    """Return a precision of a command line."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 0.5:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be above 0 and below 0.5, half the width of a share's interval"
        )
    return value


def count_of(text: str) -> int:
    """Return a count of a command line."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 100_000):
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1 to 100000")
    return int(text)
