"""The parties of a log: its distinct requests (who asks for what), numbered while it is read.

Kept are the codes of each party, in order of appearance, and the instant and line of its earliest
request; so labels can be numbered in order of first appearance in time even if the log is not in
order. A log may have as many parties as requests, so a party is an index into arrays; a `Party`
object is made only on request.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.model import ApplicationKind, TenantKind
from simulator.logs import LogBatch
from simulator.logs.row_numbers import RowNumbers, distinct
from simulator.rows.int_list import Growing

__all__ = ["NOBODY", "Owner", "Parties", "Party", "PartyCodes", "PartyTable", "Texts"]

Codes = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.int64]


class Party(NamedTuple):
    """Who asks for what. Without a key there is no tenant and no application (D-UNKEYED)."""

    tenant: str | None
    tenant_kind: TenantKind | None
    application: str | None
    application_kind: ApplicationKind | None
    legacy: bool
    key: str | None
    ip: str
    method: str
    path: str


class Owner(NamedTuple):
    """Whose a key is."""

    tenant: str | None
    tenant_kind: TenantKind | None
    application: str | None
    application_kind: ApplicationKind | None
    legacy: bool


NOBODY: Final = Owner(None, None, None, None, legacy=False)


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of texts, which may be keys. codes: each party's place in `texts`, −1 for none."""

    codes: Codes
    texts: Sequence[str] = field(repr=False)

    def name(self, number: int) -> str | None:
        """Return one party's text."""
        code = int(self.codes[number])
        return None if code < 0 else self.texts[code]


@dataclass(frozen=True, slots=True)
class Parties(Sequence[Party]):
    """The parties of a log in order of first appearance in time, column by column.

    owner: each one's place in `owners`, the first of which is nobody.
    """

    owner: Codes
    owners: Sequence[Owner]
    key: Texts
    ip: Texts
    method: Texts
    path: Texts

    def __len__(self) -> int:
        return len(self.owner)

    def __getitem__(self, number: Any) -> Any:  # noqa: ANN401 # reason: a sequence's own signature
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        names = (each.name(number) for each in (self.key, self.ip, self.method, self.path))
        return Party(*self.owners[self.owner[number]], *names)

    def __iter__(self) -> Iterator[Party]:
        return (self[number] for number in range(len(self)))

    def kinds(self) -> tuple[Numbers, Iterator[Party]]:
        """Return each party's kind of request, and one party of each kind.

        A kind is all that decides which rules apply: whose a key is does not, but of what kind.
        There may be as many as paths.
        """
        sorts: dict[Owner, int] = {}
        sort = np.array(
            [
                sorts.setdefault(each._replace(tenant=None, application=None), len(sorts))
                for each in self.owners
            ]
        )
        number, first = distinct([sort[self.owner], self.method.codes, self.path.codes])
        return number, (self[each] for each in first.tolist())


@dataclass(frozen=True, slots=True)
class PartyCodes:
    """The parties of a log in order of first appearance in time, as the log's own codes.

    line: of each party's earliest request.
    """

    columns: dict[str, Codes]
    line: Numbers


class PartyTable:
    """The distinct rows of codes of a log, and when each was first met.

    start_ns, end_ns: the earliest and the latest instant so far, ns since the Unix epoch (UTC).
    """

    def __init__(self) -> None:
        self._columns: dict[str, Growing] = {}
        self._numbers = RowNumbers(0)
        self._first_ns = Growing(np.int64)
        self._first_line = Growing(np.int64)
        self.start_ns, self.end_ns = 1 << 63, -(1 << 63)

    def number(self, batch: LogBatch) -> npt.NDArray[np.int32]:
        """Return the number of each request's party, in order of appearance in the log."""
        if not self._columns:
            self._columns = {name: Growing(np.int32) for name in batch.codes}
            self._numbers = RowNumbers(len(self._columns))
        self.start_ns = min(self.start_ns, int(batch.t_ns.min()))
        self.end_ns = max(self.end_ns, int(batch.t_ns.max()))
        local, first = distinct(list(batch.codes.values()))
        known = len(self._numbers)
        numbers = self._numbers.number([codes[first] for codes in batch.codes.values()])
        for name, column in self._columns.items():
            column.extend(batch.codes[name][first[numbers >= known]])
        if (batch.t_ns[1:] < batch.t_ns[:-1]).any():
            order = np.argsort(batch.t_ns, kind="stable")
            earliest = np.empty(len(first), dtype=np.int64)
            earliest[local[order[::-1]]] = order[::-1]  # of several writes the last one stays
            first = earliest
        self._note_first(numbers, known, batch.t_ns[first], batch.line[first])
        return numbers.astype(np.int32)[local]

    def _note_first(self, numbers: Numbers, known: int, t_ns: Numbers, line: Numbers) -> None:
        """Keep the earliest instant of each party, and of one instant the first line."""
        fresh = numbers >= known  # they stand in the order of their numbers
        self._first_ns.extend(t_ns[fresh])
        self._first_line.extend(line[fresh])
        first_ns, first_line = self._first_ns.read(), self._first_line.read()
        earlier = t_ns < first_ns[numbers]
        first_ns[numbers[earlier]] = t_ns[earlier]
        first_line[numbers[earlier]] = line[earlier]

    def _order(self) -> Numbers:
        """Return the parties' numbers in order of first appearance in time, then line."""
        return np.lexsort((self._first_line.read(), self._first_ns.read()))

    def places(self) -> Numbers:
        """Return, by number, each party's place among the ordered."""
        order = self._order()
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        return places

    def ordered(self) -> PartyCodes:
        """Return all parties, in order of first appearance in time."""
        order = self._order()
        columns = {name: column.read()[order] for name, column in self._columns.items()}
        return PartyCodes(columns, self._first_line.read()[order])
