"""Which columns a log of attempts keeps: all of them, a named set, or those that are listed.

A day of 10⁸ requests is 1 GB with every column, and most questions need few. The digest of a run
covers all columns whichever are kept, so runs that keep different ones can be compared. Readers of
a log call `missing` first, and leave a part out or report it in one line.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import pyarrow as pa

from engine.errors import InputError, did_you_mean
from simulator.arguments import Rule, optional
from simulator.rows.record import SCHEMA

__all__ = [
    "ALL",
    "COLUMNS",
    "COLUMN_SETS",
    "choose_columns",
    "columns_to_keep",
    "missing",
    "refuse_missing",
    "schema_of",
]

ALL: Final = "all"
COLUMN_SETS: Final[dict[str, tuple[str, ...]]] = {
    ALL: tuple(SCHEMA.names),
    "decisions": ("t_ns", "key", "outcome", "rule", "wait_ns"),
}
"""Words that stand for several columns; others may be listed beside them."""

COLUMNS: Final = optional(
    Rule(
        "names of columns, listed or with commas",
        lambda asked: (
            isinstance(asked, str)
            or (isinstance(asked, list | tuple) and all(isinstance(word, str) for word in asked))
        ),
    )
)


def choose_columns(asked: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the columns that are asked for, in the file's order; None where it is all of them.

    asked: names of columns and of `COLUMN_SETS`, as a sequence or in a text with commas.
    Raises `InputError` for a name that is neither, and where there is none.

    >>> choose_columns("outcome, t_ns")
    ('t_ns', 'outcome')
    >>> choose_columns("decisions,ip")
    ('t_ns', 'key', 'ip', 'outcome', 'rule', 'wait_ns')
    """
    if asked is None:
        return None
    COLUMNS.read("columns", asked)
    words = asked.split(",") if isinstance(asked, str) else asked
    kept: set[str] = set()
    for word in map(str.strip, words):
        if word not in COLUMN_SETS and word not in SCHEMA.names:
            known = [*COLUMN_SETS, *SCHEMA.names]
            raise InputError(
                f"columns = {word!r} must be a column of the log{did_you_mean(word, known)}"
            )
        kept.update(COLUMN_SETS.get(word, (word,)))
    if not kept:
        raise InputError(f"columns = {asked!r} must name a column; leave it out to keep all")
    return None if len(kept) == len(SCHEMA) else _in_order(kept)


def columns_to_keep(
    asked: str | Sequence[str] | None, out: object | None
) -> tuple[str, ...] | None:
    """Return what `choose_columns` does, for a run whose rows go to `out`.

    Raises `InputError` as it does, and where the rows go to no folder.
    """
    if asked is not None and out is None:
        raise InputError(
            f"columns = {asked!r} must go with out, a folder; in memory are all of them, and"
            " Result.save takes columns too"
        )
    return choose_columns(asked)


def schema_of(columns: Collection[str] | None) -> pa.Schema:
    """Return the schema of a log that keeps these columns; all of them for None."""
    if columns is None:
        return SCHEMA
    return pa.schema([SCHEMA.field(name) for name in _in_order(columns)], SCHEMA.metadata)


def missing(needed: Iterable[str], held: Collection[str]) -> tuple[str, ...]:
    """Return the columns that are needed and not held, in the file's order."""
    return _in_order(set(needed).difference(held))


def refuse_missing(what: str, needed: Iterable[str], held: Sequence[str]) -> None:
    """Raise `InputError` where a log lacks a column that `what` is made of; it names them all."""
    if lacking := missing(needed, held):
        raise InputError(
            f"{what} must have the column{'s' * (len(lacking) > 1)} {', '.join(lacking)}; "
            f"the log keeps {', '.join(held)} alone: run again with --columns that name more"
        )


def _in_order(columns: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in SCHEMA.names if name in columns)
