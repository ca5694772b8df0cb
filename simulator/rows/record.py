"""Attempt rows: the columns of `requests.parquet`, and the table of who asks for what.

A row is one attempt at a request, in the order in which the service decided. Rows travel inside
the simulator as seven whole numbers (`CELLS`); whatever is text (tenant, key, address, path …)
stands once in a `SubjectTable`, and the outcome with its rule once in a `VerdictTable`.

This module defines only the form of the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from engine.messages import Outcome
from simulator.rows.subjects import Subject, SubjectTable

__all__ = [
    "CELLS",
    "FORMAT_VERSION",
    "NO_STATUS",
    "SCHEMA",
    "TEXT_COLUMNS",
    "Chunk",
    "Subject",
    "SubjectTable",
    "VerdictTable",
]

FORMAT_VERSION: Final = 1
"""Stands in the file's metadata under `tollgate.format`; counts up when a column changes."""

TEXT_COLUMNS: Final = (
    "tenant",
    "application",
    "key",
    "ip",
    "method",
    "path",
    "outcome",
    "rule",
)

_TEXT: Final = pa.dictionary(pa.int32(), pa.string())

SCHEMA: Final = pa.schema(
    [
        pa.field("t_ns", pa.int64(), nullable=False),
        pa.field("client", pa.int32(), nullable=False),
        pa.field("attempt", pa.int32(), nullable=False),
        *(pa.field(name, _TEXT) for name in TEXT_COLUMNS),
        pa.field("wait_ns", pa.int64(), nullable=False),
        pa.field("latency_ns", pa.int64(), nullable=False),
        pa.field("status", pa.int16()),
    ],
    metadata={"tollgate.format": str(FORMAT_VERSION)},
)
"""The columns, in file order. `rule` is null when admitted, `status` where no body was run."""

CELLS: Final = 7
"""Whole numbers a row: t_ns, subject, attempt, verdict, wait_ns, latency_ns, status."""

NO_STATUS: Final = -1

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


class VerdictTable:
    """The distinct (outcome, rule) pairs of a run; 0 is admitted."""

    __slots__ = ("_numbers", "verdicts")

    def __init__(self) -> None:
        self.verdicts: list[tuple[Outcome, str | None]] = [("admitted", None)]
        self._numbers: dict[tuple[Outcome, str | None], int] = {("admitted", None): 0}

    def number(self, outcome: Outcome, rule: str | None) -> int:
        """Return the pair's number, a new one where it is new."""
        pair = (outcome, rule)
        found = self._numbers.get(pair)
        if found is None:
            found = self._numbers[pair] = len(self.verdicts)
            self.verdicts.append(pair)
        return found


@dataclass(slots=True)
class Chunk:
    """Some consecutive rows as arrays, with the tables that their numbers point into."""

    t_ns: Numbers
    subject: Numbers
    attempt: Numbers
    verdict: Numbers
    wait_ns: Numbers
    latency_ns: Numbers
    status: Numbers
    subjects: SubjectTable = field(repr=False)
    verdicts: Sequence[tuple[Outcome, str | None]] = field(repr=False)

    def __len__(self) -> int:
        return len(self.t_ns)

    def outcome_is(self, *outcomes: Outcome) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return, row by row, whether its outcome is one of `outcomes`."""
        hits = np.fromiter((o in outcomes for o, _ in self.verdicts), bool, len(self.verdicts))
        return np.asarray(hits[self.verdict])
