"""Attempt rows on their way from a run to whoever counts or stores them.

A row is one attempt at a request, in the order in which the service decided. Rows travel inside
the simulator as seven whole numbers (`CELLS`); whatever is text (tenant, key, address, path …)
stands once in a `SubjectTable`, and the outcome with its rule once among the run's verdicts.

*Subjects*: a log of a day has about as many distinct (key, address, method, path) as requests. So a
subject is not an object but an index into arrays: its value in each text column, its client, and
its counters. A simulation adds subjects one by one (`SubjectTable.number`); a replay knows them all
and adds them at once (`SubjectTable.adopt`).

*Recorder*: decisions come in order; answers may come later and in any order (a proxy's destination
takes up to 25 s). A chunk is passed on to the `Watcher`s when it is full, all its rows are
answered, and every chunk before it has been passed on. So memory grows with the requests in flight,
not with the length of the run.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from engine.limits.table import COUNTER_KEYS
from engine.messages import Decision, Outcome

Table: TypeAlias = npt.NDArray[Any]
_FIRST_SIZE = 64
_WIDEST: Final = 1 << 62
_DENSE: Final = 1 << 20
"""Distinct rows up to which a table of all of them is cheaper than a hash."""


def ensure_capacity(array: Table, size: int, *, fill: int) -> Table:
    """Return an array with room for `size` numbers, and for twice as many as before if it grows."""
    if size <= len(array):
        return array
    larger = np.full(max(size, 2 * len(array)), fill, dtype=array.dtype)
    larger[: len(array)] = array
    return larger


class GrowableArray:
    """An array of one type that numbers are appended to."""

    __slots__ = ("_count", "_kept")

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._kept: Table = np.zeros(_FIRST_SIZE, dtype=dtype)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def extend(self, values: Sequence[int] | Table) -> None:
        """Append some numbers."""
        count = self._count + len(values)
        self._kept = ensure_capacity(self._kept, count, fill=0)
        self._kept[self._count : count] = values
        self._count = count

    def read(self) -> Table:
        """Return everything so far; later numbers do not show in it."""
        return self._kept[: self._count]


SUBJECT_COLUMNS: Final = ("tenant", "application", "key", "ip", "method", "path")


class RequestIdentity(NamedTuple):
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
"""What a kind of request is counted in: (place of the leg in the run's view, family) each."""


_CLIENT: Final = ("key", "ip")


def columns_by(parts: Iterable[str]) -> tuple[str, ...]:
    """Return the columns of a row that hold these parts of a request, in the rows' order.

    Rows name neither proxy keys nor hostnames; what has no column is left out.

    >>> columns_by(("ip", "key_id")), columns_by(("proxy_key_id", "ip"))
    (('key', 'ip'), ('ip',))
    """
    names = {part.removesuffix("_id") for part in parts}
    return tuple(name for name in SUBJECT_COLUMNS if name in names)


def clause_of(rule: str) -> str:
    """Return the clause of a rule as decisions name it.

    >>> clause_of("LIM-PRIVATE.key"), clause_of("LIM-IP")
    ('LIM-PRIVATE', 'LIM-IP')
    """
    return rule.partition(".")[0]


def distinct(columns: Sequence[Table]) -> tuple[Numbers, Numbers]:
    """Number the distinct rows in order of appearance; return each row's number, and first rows.

    columns: codes from −1. Few combinations are numbered in a table, which spares a run without
    many of them loading Arrow's functions.
    """
    joined = joined_codes(columns)
    width = int(joined.max(initial=-1)) + 1
    if width > _DENSE:
        number, names = factorize(joined)
        return number, first_of_each(number, len(names))
    first = np.full(width, len(joined), dtype=np.int64)
    first[joined[::-1]] = np.arange(len(joined) - 1, -1, -1)  # of equal ones the last stays
    seen = np.flatnonzero(first < len(joined))
    order = seen[np.argsort(first[seen])]
    place = np.empty(width, dtype=np.int64)
    place[order] = np.arange(len(order))
    return place[joined], first[order]


def number_column(
    values: Numbers, dtype: type[np.signedinteger[Any]], *, missing: Numbers | None = None
) -> pa.Array:
    """Return a column of numbers; `pa.array` would load pandas: time, and 50 MB."""
    valid = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    held = pa.py_buffer(np.ascontiguousarray(values, dtype))
    return pa.Array.from_buffers(pa.from_numpy_dtype(dtype), len(values), [valid, held])


def array_of(column: pa.Array) -> Numbers:
    """Return a column of numbers without nulls as an array, without pandas as well."""
    return np.asarray(np.from_dlpack(column))


def factorize(values: Numbers) -> tuple[Numbers, Numbers]:
    """Number the distinct values in order of appearance; return each one's number, and them.

    It hashes in one pass, where `np.unique` sorts.
    """
    encoded = number_column(values, np.int64).dictionary_encode()
    return array_of(encoded.indices).astype(np.int64), array_of(encoded.dictionary)


def joined_codes(columns: Sequence[Table]) -> Numbers:
    """Return a number for each row, which tells apart what its codes, from −1, tell apart."""
    number: Numbers = columns[0].astype(np.int64) + 1
    width = int(columns[0].max(initial=-1)) + 2
    for column in columns[1:]:
        size = int(column.max(initial=-1)) + 2
        if width * size > _WIDEST:
            number, names = factorize(number)
            width = len(names)
        number = number * size + (column + 1)
        width *= size
    return number


def first_of_each(number: Numbers, count: int) -> Numbers:
    """Return the first row of each number."""
    first = np.empty(count, dtype=np.int64)
    first[number[::-1]] = np.arange(len(number))[::-1]  # of several writes the last one stays
    return first


class Interner(dict[Any, int]):
    """Distinct values, numbered from 0 in order of appearance. known: the values by number."""

    __slots__ = ("known",)

    def __init__(self, *first: Hashable) -> None:
        super().__init__()
        self.known: list[Any] = list(first)
        self.update(zip(first, range(len(first)), strict=True))

    def __missing__(self, value: Hashable) -> int:
        number = self[value] = len(self.known)
        self.known.append(value)
        return number


def words(*first: str) -> Interner:
    """Return the table of a column's distinct texts; null is −1."""
    interner = Interner(*first)
    interner[None] = -1
    return interner


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column of texts, which may be keys. codes: each entry's place in `texts`, −1 for none."""

    codes: Table
    texts: Sequence[str] = field(repr=False)

    def name(self, number: int) -> str | None:
        """Return one entry's text."""
        code = int(self.codes[number])
        return None if code < 0 else self.texts[code]


class SubjectTable(Sequence[RequestIdentity]):
    """The distinct subjects of a run, numbered from 0 in order of appearance.

    An array that was read does not change when subjects are added later.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Hashable, ...], int] = {}
        self._new: list[tuple[int, ...]] = []
        self._count = 0
        self._clients = GrowableArray(np.int64)
        self._words = {name: words() for name in SUBJECT_COLUMNS}
        self._texts = {name: GrowableArray(np.int32) for name in SUBJECT_COLUMNS}
        self._kinds = Interner()
        self._kind = GrowableArray(np.int32)
        self._families = [GrowableArray(np.int32) for _ in COUNTER_KEYS]
        self._seen = [Interner() for _ in COUNTER_KEYS]

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:  # noqa: ANN401 # reason: a sequence's own signature
        texts = (self.text(name).name(number) for name in SUBJECT_COLUMNS)
        return RequestIdentity(int(self.clients()[number]), *texts)  # type: ignore[arg-type] # reason: address, method and path are never null

    def number(
        self,
        subject: RequestIdentity,
        counters: Counters = (),
        keys: tuple[Hashable, ...] = (),
    ) -> int:
        """Return the subject's number, a new one where it is new.

        counters: that it is counted in. keys: what tells one counter from another, by family.
        """
        number = self._known.get((subject, counters, keys))
        if number is not None:
            return number
        assert len(self._known) == self._count, "all subjects of a run, or one after another"
        number = self._known[subject, counters, keys] = self._count
        self._count += 1
        texts = zip(self._words.values(), subject[1:], strict=True)
        families = [seen[key] for seen, key in zip(self._seen, keys, strict=False)]
        self._new.append(
            (
                subject.client,
                self._kinds[counters],
                *(interner[text] for interner, text in texts),
                *families,
                *(-1 for _ in range(len(COUNTER_KEYS) - len(families))),
            )
        )
        return number

    def _put(self) -> None:
        """Put what is new into its columns; one after another they would take longer."""
        if self._new:
            columns = [self._clients, self._kind, *self._texts.values(), *self._families]
            for column, values in zip(columns, np.array(self._new, np.int64).T, strict=True):
                column.extend(values)
            self._new.clear()

    def adopt(
        self,
        texts: Mapping[str, TextColumn],
        kinds: Sequence[Counters],
        kind: Table,
    ) -> None:
        """Add all subjects of a run at once: distinct ones, to a table that is empty.

        A client is a key at an address. Families with a part that is no column have no counters.
        kind: each one's place in `kinds`.
        """
        assert not self._count, "all subjects of a run, or one after another"
        self._count = len(kind)
        for name, column in texts.items():
            self._words[name].known = list(column.texts)
            self._texts[name].extend(column.codes)
        clients, _ = distinct([texts[name].codes for name in _CLIENT])
        self._clients.extend(clients)
        for numbers, by in zip(self._families, COUNTER_KEYS, strict=True):
            names = columns_by(by)
            codes = [texts[name].codes for name in names]
            if len(names) < len(by):
                numbers.extend(np.full(self._count, -1, dtype=np.int32))
            elif len(names) == 1:
                numbers.extend(codes[0])
            else:
                numbers.extend(clients if names == _CLIENT else distinct(codes)[0])
        # Kinds may be as many as paths; those counted alike are one, and a chunk looks at them all.
        same = np.array([self._kinds[counters] for counters in kinds], dtype=np.int32)
        self._kind.extend(same[kind])

    def clients(self) -> Table:
        """Return each subject's client."""
        self._put()
        return self._clients.read()

    def text(self, name: str) -> TextColumn:
        """Return a text column of the subjects; null is −1."""
        self._put()
        return TextColumn(self._texts[name].read(), self._words[name].known)

    def kinds(self) -> tuple[Table, Sequence[Counters]]:
        """Return each subject's kind of request, and what each kind is counted in."""
        self._put()
        return self._kind.read(), self._kinds.known

    def counters(self, place: int, rows: Table) -> Table:
        """Return each row's counter of the leg at `place`, −1 where it does not apply.

        rows: numbers of subjects.
        """
        self._put()
        families = [dict(counters).get(place) for counters in self._kinds.known]
        used = {family for family in families if family is not None}
        if not used:
            return np.full(len(rows), -1, dtype=np.int64)
        (family,) = used  # a leg's counters are told apart in one way
        numbers: Numbers = self._families[family].read().take(rows).astype(np.int64)
        if None in families:
            applies = np.array([of_kind is not None for of_kind in families])
            numbers[~applies[self._kind.read().take(rows)]] = -1
        return numbers


FORMAT_VERSION: Final = 1
"""Stands in the file's metadata under `tollgate.format`; counts up when a column changes."""

TEXT_COLUMNS: Final = (*SUBJECT_COLUMNS, "outcome", "rule")

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

CELL_NAMES: Final = ("t_ns", "subject", "attempt", "verdict", "wait_ns", "latency_ns", "status")
CELLS: Final = len(CELL_NAMES)
"""Whole numbers a row."""

NO_STATUS: Final = -1

PASSED: Final[tuple[Outcome, ...]] = ("admitted", "delayed")
"""The outcomes of attempts that were admitted; the others were refused."""

Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(slots=True)
class Chunk:
    """Some consecutive rows as arrays, with the tables that their numbers point into.

    clients, texts: each subject's client, and the text columns of subjects and verdicts, as they
    are now: other threads may read them while the run goes on.
    """

    t_ns: Numbers
    subject: Numbers
    attempt: Numbers
    verdict: Numbers
    wait_ns: Numbers
    latency_ns: Numbers
    status: Numbers
    subjects: SubjectTable = field(repr=False)
    verdicts: Sequence[tuple[Outcome, str | None]] = field(repr=False)
    clients: Table = field(init=False, repr=False)
    texts: dict[str, TextColumn] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.clients = self.subjects.clients()
        self.texts = {name: self.subjects.text(name) for name in SUBJECT_COLUMNS}
        for name, column in zip(("outcome", "rule"), zip(*self.verdicts, strict=True), strict=True):
            numbers = words()
            codes = np.array([numbers[text] for text in column])
            self.texts[name] = TextColumn(codes, numbers.known)

    def __len__(self) -> int:
        return len(self.t_ns)

    def entries(self, name: str) -> Numbers:
        """Return, row by row, its place in a text column."""
        return self.subject if name in SUBJECT_COLUMNS else self.verdict

    def passed(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return, row by row, whether it was admitted; the others were refused."""
        return self.outcome_is(*PASSED)

    def outcome_is(self, *outcomes: Outcome) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return, row by row, whether its outcome is one of `outcomes`."""
        hits = np.fromiter((o in outcomes for o, _ in self.verdicts), bool, len(self.verdicts))
        return np.asarray(hits[self.verdict])

    def rule_is(self, rule: str | None) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return, row by row, whether its decision names this rule; None where it names none."""
        hits = np.fromiter((r == rule for _, r in self.verdicts), bool, len(self.verdicts))
        return np.asarray(hits[self.verdict])

    def counters(self, place: int) -> Numbers:
        """Return, row by row, the counter of the leg at `place`, −1 where it does not apply."""
        return self.subjects.counters(place, self.subject)

    def release_ns(self) -> Numbers:
        """Return, row by row, when it was admitted, if it was."""
        return self.t_ns + np.where(self.outcome_is("delayed"), self.wait_ns, 0)


CHUNK_ROWS: Final = 1 << 17
"""Rows a chunk, and a row group of the file."""

_LATENCY_CELL: Final = CELL_NAMES.index("latency_ns")
_STATUS_CELL: Final = CELL_NAMES.index("status")
_OPEN: Final = -1


Watcher: TypeAlias = Callable[[Chunk], None]
"""Takes a run's rows, chunk by chunk, in decision order."""


@dataclass(eq=False, slots=True)
class _Open:
    """A chunk that is still being written to."""

    cells: list[int] = field(default_factory=list)
    unanswered: int = 0


class Recorder:
    """Collects a run's rows and hands them to `watchers`.

    shadow: clause → requests that its rules in shadow would have refused, from `from_ns` on.

    `add` returns the row's number; a row added with `latency_ns` None is under way, and `answer`
    must be called for it. `close` hands on what is left.
    """

    def __init__(
        self,
        watchers: Sequence[Watcher],
        *,
        chunk_rows: int = CHUNK_ROWS,
        subjects: SubjectTable | None = None,
        from_ns: int = 0,
    ) -> None:
        assert chunk_rows > 0, "a chunk holds rows"
        self.subjects = SubjectTable() if subjects is None else subjects
        self.shadow: Counter[str] = Counter()
        self._from_ns = from_ns
        self.verdicts = Interner(("admitted", None))
        self._watchers = tuple(watchers)
        self._chunk_cells = chunk_rows * CELLS
        self._last = _Open()
        self._chunks = deque([self._last])
        self._first = 0  # number of the first chunk that is not handed on, times its rows

    def verdict(self, now_ns: int, decision: Decision) -> int:
        """Return a decision's number, and count what shadow rules would have refused."""
        if decision.shadow and now_ns >= self._from_ns:
            self.shadow.update({clause_of(rule) for rule in decision.shadow})
        return self.verdicts[decision.outcome, decision.rule]

    def add(
        self,
        t_ns: int,
        subject: int,
        attempt: int,
        verdict: int,
        wait_ns: int,
        latency_ns: int | None,
        status: int = NO_STATUS,
    ) -> int:
        """Take in one decided attempt; returns its number, for `answer`."""
        last = self._last
        cells = last.cells
        if len(cells) == self._chunk_cells:
            last = self._next_chunk()
            cells = last.cells
        if latency_ns is None:
            last.unanswered += 1
            latency_ns = _OPEN
        cells += (t_ns, subject, attempt, verdict, wait_ns, latency_ns, status)
        return self._first + (len(self._chunks) - 1) * self._chunk_cells + len(cells) - CELLS

    def take(self, columns: dict[str, Numbers]) -> None:
        """Hand on rows that are answered already, as columns; not to be mixed with `add`."""
        assert not self._last.cells, "a recorder takes rows or columns"
        self._tell(columns)

    def _tell(self, columns: dict[str, Numbers]) -> None:
        chunk = Chunk(**columns, subjects=self.subjects, verdicts=self.verdicts.known)
        for watcher in self._watchers:
            watcher(chunk)

    def answer(self, row: int, latency_ns: int, status: int) -> None:
        """Say when and how a row that was under way was answered."""
        place, cell = divmod(row - self._first, self._chunk_cells)
        chunk = self._chunks[place]
        assert chunk.cells[cell + _LATENCY_CELL] == _OPEN, "a row is answered once"
        chunk.cells[cell + _LATENCY_CELL] = latency_ns
        chunk.cells[cell + _STATUS_CELL] = status
        chunk.unanswered -= 1

    def close(self) -> None:
        """Hand on the rows that are left; every one of them must be answered."""
        while self._chunks:
            assert not self._chunks[0].unanswered, "every row is answered before the end"
            self._hand_on()

    def _next_chunk(self) -> _Open:
        self._last = _Open()
        self._chunks.append(self._last)
        while len(self._chunks) > 1 and not self._chunks[0].unanswered:
            self._hand_on()
        return self._last

    def _hand_on(self) -> None:
        cells = self._chunks.popleft().cells
        self._first += self._chunk_cells
        if not cells:
            return
        rows = np.array(cells, dtype=np.int64).reshape(-1, CELLS)
        self._tell(dict(zip(CELL_NAMES, np.ascontiguousarray(rows.T), strict=True)))
