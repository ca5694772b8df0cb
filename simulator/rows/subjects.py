"""Who asks for what, column by column: a run's subjects, however many they are.

A log of a day has about as many distinct (key, address, method, path) as requests. So a subject is
not an object but an index into arrays: its value in each text column, its client, and its counters.
A simulation adds subjects one by one (`SubjectTable.number`); a replay knows them all and adds them
at once (`SubjectTable.adopt`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from engine.limits.table import FAMILIES
from simulator.rows.int_list import Growing, Table

__all__ = [
    "SUBJECT_COLUMNS",
    "Counted",
    "Counters",
    "Subject",
    "SubjectTable",
    "TextTable",
    "Words",
]

SUBJECT_COLUMNS: Final = ("tenant", "application", "key", "ip", "method", "path")


class Subject(NamedTuple):
    """Who asks for what: everything about a row that is known before it is decided.

    client: number of the client, from 0.
    """

    client: int
    tenant: str | None
    application: str | None
    key: str | None
    ip: str
    method: str
    path: str


Counters = tuple[tuple[int, int], ...]
"""What a kind of request is counted in: (place of the rule in the run's index, family) each."""


class Counted(NamedTuple):
    """Every counter that a subject is counted in.

    counters: of its kind; the same tuple for all of the kind. keys: what tells one counter from
    another, family by family.
    """

    counters: Counters = ()
    keys: tuple[Hashable, ...] = ()


_NOTHING: Final = Counted()


class _Numbers(dict[Any, int]):
    """Values, numbered from 0 in order of appearance."""

    __slots__ = ()

    def __missing__(self, value: Hashable) -> int:
        number = self[value] = len(self)
        return number


class Words:
    """The distinct texts of a column, numbered from 0 in order of appearance; null is −1."""

    __slots__ = ("_numbers", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str | None, int] = {None: -1}

    def number(self, text: str | None) -> int:
        """Return a text's number, a new one where it is new."""
        found = self._numbers.get(text)
        if found is None:
            assert text is not None, "null has its number"
            found = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return found


@dataclass(slots=True)
class TextTable:
    """A text column of some entries. of_entry: each one's text, −1 for null. texts: by number."""

    of_entry: Table
    texts: Sequence[str]


class SubjectTable(Sequence[Subject]):
    """The distinct subjects of a run, numbered from 0 in order of appearance.

    What was read of a column stays as it was while others are added.
    """

    __slots__ = (
        "_clients",
        "_count",
        "_families",
        "_kind",
        "_kinds",
        "_known",
        "_new",
        "_number_of",
        "_seen",
        "_texts",
        "_words",
    )

    def __init__(self) -> None:
        self._known: dict[tuple[Subject, Counted], int] = {}
        self._new: list[tuple[int, ...]] = []
        self._count = 0
        self._clients = Growing(np.int64)
        self._words = {name: Words() for name in SUBJECT_COLUMNS}
        self._texts = {name: Growing(np.int32) for name in SUBJECT_COLUMNS}
        self._kinds: list[Counters] = []
        self._number_of: dict[Counters, int] = {}
        self._kind = Growing(np.int32)
        self._families = [Growing(np.int32) for _ in FAMILIES]
        self._seen = [_Numbers() for _ in FAMILIES]

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:  # noqa: ANN401 # reason: a sequence's own signature
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        told = [self.text(name) for name in SUBJECT_COLUMNS]
        texts = [
            None if (code := int(column.of_entry[number])) < 0 else column.texts[code]
            for column in told
        ]
        return Subject(int(self.clients()[number]), *texts)  # type: ignore[arg-type] # reason: address, method and path are never null

    def __iter__(self) -> Iterator[Subject]:
        return (self[number] for number in range(len(self)))

    def number(self, subject: Subject, counted: Counted = _NOTHING) -> int:
        """Return the subject's number, a new one where it is new."""
        found = self._known.get((subject, counted))
        if found is not None:
            return found
        assert len(self._known) == self._count, "all subjects of a run, or one after another"
        found = self._known[subject, counted] = self._count
        self._count += 1
        words = zip(self._words.values(), subject[1:], strict=True)
        families = [seen[key] for seen, key in zip(self._seen, counted.keys, strict=False)]
        self._new.append(
            (
                subject.client,
                self._number_of_kind(counted.counters),
                *(each.number(text) for each, text in words),
                *families,
                *(-1 for _ in range(len(FAMILIES) - len(families))),
            )
        )
        return found

    def _put(self) -> None:
        """Put what is new into its columns; one after another they would take longer."""
        if self._new:
            columns = [self._clients, self._kind, *self._texts.values(), *self._families]
            for column, values in zip(columns, np.array(self._new, np.int64).T, strict=True):
                column.extend(values)
            self._new.clear()

    def adopt(
        self,
        clients: Table,
        texts: Mapping[str, TextTable],
        kinds: Sequence[Counters],
        kind: Table,
        families: Sequence[Table],
    ) -> None:
        """Take in all subjects of a run at once, each another; only where there are none yet.

        kind: each one's place in `kinds`. families: each one's counter in the first families.
        """
        assert not self._count, "all subjects of a run, or one after another"
        self._count = len(clients)
        self._clients.extend(clients)
        for name, told in texts.items():
            self._words[name].texts = list(told.texts)
            self._texts[name].extend(told.of_entry)
        for numbers, column in zip(self._families, families, strict=False):
            numbers.extend(column)
        # Kinds may be as many as paths; those counted alike are one, and a chunk looks at them all.
        same = np.array([self._number_of_kind(each) for each in kinds], dtype=np.int32)
        self._kind.extend(same[kind])

    def clients(self) -> Table:
        """Return each subject's client."""
        self._put()
        return self._clients.read()

    def text(self, name: str) -> TextTable:
        """Return a text column of the subjects; null is −1."""
        self._put()
        return TextTable(self._texts[name].read(), self._words[name].texts)

    def kinds(self) -> tuple[Table, Sequence[Counters]]:
        """Return each subject's kind of request, and what each kind is counted in."""
        self._put()
        return self._kind.read(), self._kinds

    def counters(self, place: int, rows: Table) -> Table:
        """Return each row's counter of the rule at `place`, −1 where the rule does not apply.

        rows: numbers of subjects.
        """
        self._put()
        families = [dict(counters).get(place) for counters in self._kinds]
        used = {family for family in families if family is not None}
        if not used:
            return np.full(len(rows), -1, dtype=np.int64)
        (family,) = used  # a rule's counters are told apart in one way
        found = self._families[family].read().take(rows).astype(np.int64)
        if None in families:
            applies = np.array([each is not None for each in families])
            found[~applies[self._kind.read().take(rows)]] = -1
        return found

    def _number_of_kind(self, counters: Counters) -> int:
        found = self._number_of.get(counters)
        if found is None:
            found = self._number_of[counters] = len(self._kinds)
            self._kinds.append(counters)
        return found
