"""Who asks for what in a log: its distinct requests, numbered while it is read, and then named.

What is kept is a line a party, in the order in which parties appear, and of each the instant and
line of its earliest request; so labels can be given out in order of first appearance even where a
log is not in order. Key texts end here: what comes out holds `key-0001`, or keyed hashes.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from engine.errors import InputError
from engine.model import ApplicationKind, TenantKind
from simulator.results.growing import Growing
from simulator.traffic.logs import Kind, Log, LogBatch, LogStream

__all__ = ["Party", "PartyTable"]

_HASH_DIGITS: Final = 16
_KEY_TEXT: Final = re.compile(r"key_(?:[a-z]+_)*[1-9A-HJ-NP-Za-km-z]{22}")
_IDENTITY: Final = ("tenant", "tenant_kind", "application", "application_kind", "legacy")
_SHORTEST_KEY: Final = 4
"""A shorter text says nothing where it stands in a path."""
_WIDEST: Final = 1 << 62

Numbers: TypeAlias = npt.NDArray[np.int64]


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


class _Numbers(dict[tuple[int, ...], int]):
    """Rows of codes, numbered in order of appearance."""

    def __missing__(self, codes: tuple[int, ...]) -> int:
        number = self[codes] = len(self)
        return number


class PartyTable:
    """The distinct rows of codes of a log, and when each was first met.

    start_ns, end_ns: the earliest and the latest instant so far, ns since the Unix epoch (UTC).
    """

    def __init__(self) -> None:
        self._columns: tuple[str, ...] = ()
        self._numbers = _Numbers()
        self._first_ns = Growing(np.int64)
        self._first_line = Growing(np.int64)
        self.start_ns, self.end_ns = 1 << 63, -(1 << 63)

    def number(self, batch: LogBatch) -> npt.NDArray[np.int32]:
        """Return the number of each request's party, in order of appearance in the log."""
        self._columns = tuple(batch.codes)
        self.start_ns = min(self.start_ns, int(batch.t_ns.min()))
        self.end_ns = max(self.end_ns, int(batch.t_ns.max()))
        local, first = _distinct(list(batch.codes.values()))
        rows = zip(*(codes[first].tolist() for codes in batch.codes.values()), strict=True)
        known = len(self._numbers)
        numbers = np.fromiter(map(self._numbers.__getitem__, rows), np.int32, len(first))
        if (batch.t_ns[1:] < batch.t_ns[:-1]).any():
            order = np.argsort(batch.t_ns, kind="stable")
            first = order[_first_of_each(local[order], len(first))]
        self._note_first(numbers, known, batch.t_ns[first], batch.line[first])
        return numbers[local]

    def _note_first(
        self, numbers: npt.NDArray[np.int32], known: int, t_ns: Numbers, line: Numbers
    ) -> None:
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
        """Return, by number, each party's place in `parties`."""
        order = self._order()
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        return places

    def parties(
        self,
        log: Log | LogStream,
        kind: Kind,
        tenant_kind: TenantKind,
        pseudonym_key: bytes | None,
    ) -> tuple[Party, ...]:
        """Return all parties, in order of first appearance in time.

        Raises `InputError` where a key has two owners: it belongs to one application of one tenant,
        and a log that says otherwise is mapped wrongly.
        """
        naming = _Naming(log, self._columns, kind, tenant_kind, pseudonym_key)
        rows = list(self._numbers)
        order = self._order()
        lines = self._first_line.read()[order].tolist()
        if not any(naming.key_code(row) >= 0 for row in rows):
            naming.has_keys = False
        ordered = [rows[number] for number in order.tolist()]
        for row, line in zip(ordered, lines, strict=True):
            naming.meet(row, line)
        return tuple(naming.party(row) for row in ordered)


class _Naming:
    """Turns codes into names, and keys into labels."""

    def __init__(
        self,
        log: Log | LogStream,
        columns: Sequence[str],
        kind: Kind,
        tenant_kind: TenantKind,
        pseudonym_key: bytes | None,
    ) -> None:
        self._log = log.name
        self._names: Mapping[str, Sequence[str]] = log.names
        self._place = {name: place for place, name in enumerate(columns)}
        self._identity = [name for name in _IDENTITY if name in self._place]
        self._kind = kind
        self._tenant_kind = tenant_kind
        self._pseudonym_key = pseudonym_key
        self._owners: dict[int, tuple[tuple[str, ...], int]] = {}
        self._labels: dict[int, str] = {}
        self._paths: dict[int, str] = {}
        self._hashed: dict[int, str] = {}
        self.has_keys = True
        """A log without keys is one of one key, and not one of requests without."""

    def key_code(self, row: tuple[int, ...]) -> int:
        """Return the code of a row's key, negative where it has none."""
        place = self._place.get("key")
        if place is None or not self.has_keys:
            return -1 if self.has_keys else 0
        return row[place]

    def meet(self, row: tuple[int, ...], line: int) -> None:
        """Learn whose a row's key is, in order of first appearance. Raises `InputError`."""
        code = self.key_code(row)
        if code < 0:
            return
        owner = self._owner(row)
        known, known_line = self._owners.setdefault(code, (owner, line))
        if known != owner:
            raise InputError(
                f"{self._log}:{line}: key must belong to one application of one tenant; line"
                f" {known_line} gives it another, map tenant and application by the key"
            )
        if code not in self._labels:
            self._labels[code] = self._label(code)

    def _owner(self, row: tuple[int, ...]) -> tuple[str, ...]:
        """Return tenant, its kind, application, its kind and whether the key is a legacy one."""
        said = {name: self._name(row, name) for name in self._identity}
        its_kind = said.get("application_kind", self._kind)
        its_tenant_kind = said.get("tenant_kind", self._tenant_kind)
        return (
            said.get("tenant", its_tenant_kind),
            its_tenant_kind,
            said.get("application", its_kind),
            "private" if its_kind == "legacy" else its_kind,
            said.get("legacy", "true" if its_kind == "legacy" else "false"),
        )

    def _label(self, code: int) -> str:
        if self._pseudonym_key is not None and self.has_keys:
            return "key-" + _hashed(self._pseudonym_key, self._names["key"][code])
        return f"key-{len(self._labels) + 1:04d}"

    def _name(self, row: tuple[int, ...], column: str) -> str:
        return self._names[column][row[self._place[column]]]

    def party(self, row: tuple[int, ...]) -> Party:
        """Return a row's party, without any key's text."""
        code = self.key_code(row)
        address, path = self._name(row, "address"), self._path(row)
        if code >= 0 and self.has_keys:
            text = self._names["key"][code]
            if len(text) >= _SHORTEST_KEY:
                path = path.replace(text, self._labels[code])
        if self._pseudonym_key is not None:
            hashed = self._hashed_address(row)
            address, path = hashed, path.replace(address, hashed)
        method = self._name(row, "method")
        if code < 0:
            return Party(None, None, None, None, False, None, address, method, path)
        tenant, tenant_kind, application, kind, legacy = self._owners[code][0]
        return Party(
            tenant,
            tenant_kind,  # type: ignore[arg-type] # reason: the map let no other word through
            application,
            kind,  # type: ignore[arg-type] # reason: the map let no other word through
            legacy == "true",
            self._labels[code],
            address,
            method,
            path,
        )

    def _path(self, row: tuple[int, ...]) -> str:
        code = row[self._place["path"]]
        found = self._paths.get(code)
        if found is None:
            found = self._paths[code] = _KEY_TEXT.sub("key_…", self._name(row, "path"))
        return found

    def _hashed_address(self, row: tuple[int, ...]) -> str:
        assert self._pseudonym_key is not None, "only asked with a key"
        code = row[self._place["address"]]
        found = self._hashed.get(code)
        if found is None:
            text = self._name(row, "address")
            found = self._hashed[code] = "ip-" + _hashed(self._pseudonym_key, text)
        return found


def _hashed(pseudonym_key: bytes, text: str) -> str:
    return hmac.digest(pseudonym_key, text.encode(), "sha256").hex()[:_HASH_DIGITS]


def _distinct(columns: Sequence[npt.NDArray[np.int32]]) -> tuple[Numbers, Numbers]:
    """Number the distinct rows in order of appearance; return each row's number, and first rows."""
    import pandas as pd  # noqa: PLC0415 # reason: loaded where a log is read

    number, width = columns[0].astype(np.int64) + 1, int(columns[0].max()) + 2
    for column in columns[1:]:
        size = int(column.max()) + 2
        if width * size > _WIDEST:
            number, names = pd.factorize(number)
            width = len(names)
        number = number * size + (column + 1)
        width *= size
    number, names = pd.factorize(number)  # hashes in one pass, where np.unique sorts
    return number, _first_of_each(number, len(names))


def _first_of_each(number: Numbers, count: int) -> Numbers:
    """Return the first row of each number."""
    first = np.empty(count, dtype=np.int64)
    first[number[::-1]] = np.arange(len(number))[::-1]  # of several writes the last one stays
    return first
