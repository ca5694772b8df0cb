"""The parties of a log: its distinct requests (who asks for what), with labels for key texts.

A log may have as many parties as requests, so a party is an index into arrays; a `LogCaller` object
is made only on request. `PartyTable` numbers the parties while the log is read. It keeps the codes
of each party, and the instant and line of its earliest request; so labels can be numbered in order
of first appearance in time even if the log is not in order.

Key texts end here: `Naming` replaces them by `key-0001` in order of first appearance, or by
keyed hashes.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.errors import InputError
from engine.hosts import client_address, is_plain_address
from engine.model import ApplicationKind, TenantKind
from simulator.logs import Kind, LogBatch, LogStream
from simulator.rows.record import (
    GrowableArray,
    Numbers,
    TextColumn,
    distinct,
    factorize,
    first_of_each,
)

_CODE_BITS: Final = 32

Codes = npt.NDArray[np.int32]


class RowNumbers:
    """Numbers of distinct rows of codes, from 0, the same from call to call.

    New rows are numbered in order of appearance. A row of several codes is a pair of the number
    of all codes before the last, and the last.
    """

    def __init__(self, columns: int) -> None:
        assert columns > 1, "a row has several codes"
        self._pairs = [_Pairs() for _ in range(columns - 1)]

    def __len__(self) -> int:
        return len(self._pairs[-1])

    def number(self, columns: Sequence[Codes]) -> Numbers:
        """Return each row's number. columns: codes from −1 to 2³¹ − 2."""
        number = columns[0].astype(np.int64) + 1
        for pairs, column in zip(self._pairs, columns[1:], strict=True):
            number = pairs.number(number, column)
        return number


class _Pairs:
    """Numbers of distinct pairs; the pairs are kept in their order, each beside its number."""

    def __init__(self) -> None:
        self._ordered: Numbers = np.empty(0, dtype=np.int64)
        self._numbers: Codes = np.empty(0, dtype=np.int32)

    def __len__(self) -> int:
        return len(self._ordered)

    def number(self, left: Numbers, right: Codes) -> Numbers:
        """Return each pair's number. left: from 0, below 2³¹. right: from −1."""
        local, pairs = factorize(left << _CODE_BITS | (right.astype(np.int64) + 1))
        order = np.argsort(pairs)
        ordered = pairs[order]
        place = np.searchsorted(self._ordered, ordered)
        known = np.zeros(len(pairs), dtype=bool)
        inside = place < len(self._ordered)
        known[inside] = self._ordered[place[inside]] == ordered[inside]
        numbers = np.empty(len(pairs), dtype=np.int64)
        numbers[order[known]] = self._numbers[place[known]]
        new = ~known
        fresh = np.sort(order[new])  # in order of appearance
        numbers[fresh] = np.arange(len(self), len(self) + len(fresh))
        self._numbers = np.insert(self._numbers, place[new], numbers[order[new]])
        self._ordered = np.insert(self._ordered, place[new], ordered[new])
        return np.asarray(numbers[local])


class Owner(NamedTuple):
    """Whose a key is. Without a key there is no tenant and no application (D-UNKEYED)."""

    tenant: str | None
    tenant_kind: TenantKind | None
    application: str | None
    application_kind: ApplicationKind | None
    legacy: bool


NOBODY: Final = Owner(None, None, None, None, legacy=False)


class LogCaller(NamedTuple):
    """Who asks for what."""

    owner: Owner
    key: str | None
    ip: str
    method: str
    path: str


@dataclass(frozen=True, slots=True)
class LogCallers(Sequence[LogCaller]):
    """The parties of a log in order of first appearance in time, column by column.

    owner: each one's place in `owners`, the first of which is nobody. others: what else was read.
    """

    owner: Codes
    owners: Sequence[Owner]
    key: TextColumn
    ip: TextColumn
    method: TextColumn
    path: TextColumn
    others: Mapping[str, TextColumn]

    def __len__(self) -> int:
        return len(self.owner)

    def __getitem__(self, number: Any) -> Any:  # noqa: ANN401 # reason: a sequence's own signature
        names: Any = (column.name(number) for column in (self.key, self.ip, self.method, self.path))
        return LogCaller(self.owners[self.owner[number]], *names)

    def kinds(self, group: Callable[[str, str], object]) -> tuple[Numbers, Iterator[LogCaller]]:
        """Return each party's kind of request, and one party of each kind.

        A kind is all that decides which rules apply: whose a key is does not, but of what kind.
        group: returns what the limits tell apart of a method and a path.
        """
        groups: dict[object, int] = {}
        request, first = distinct([self.method.codes, self.path.codes])
        pairs = zip(self.method.codes[first].tolist(), self.path.codes[first].tolist(), strict=True)
        names = ((self.method.texts[method], self.path.texts[path]) for method, path in pairs)
        of_request = np.fromiter(
            (groups.setdefault(group(*name), len(groups)) for name in names), np.int32, len(first)
        )
        sorts: dict[Owner, int] = {}
        sort = np.array(
            [
                sorts.setdefault(owner._replace(tenant=None, application=None), len(sorts))
                for owner in self.owners
            ]
        )
        number, first = distinct([sort[self.owner], of_request[request]])
        return number, (self[number] for number in first.tolist())


class PartyTable:
    """The distinct rows of codes of a log, and when each was first met.

    names: of the fields, in the order of a batch's codes.
    start_ns, end_ns: the earliest and the latest instant so far, ns since the Unix epoch (UTC).
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._columns = {name: GrowableArray(np.int32) for name in names}
        self._numbers = RowNumbers(len(self._columns))
        self._first_ns = GrowableArray(np.int64)
        self._first_line = GrowableArray(np.int64)
        self.start_ns, self.end_ns = 1 << 63, -(1 << 63)

    def number(self, batch: LogBatch) -> npt.NDArray[np.int32]:
        """Return the number of each request's party, in order of appearance in the log."""
        self.start_ns = min(self.start_ns, int(batch.t_ns.min()))
        self.end_ns = max(self.end_ns, int(batch.t_ns.max()))
        local, first = distinct(list(batch.codes.values()))
        known = len(self._numbers)
        numbers = self._numbers.number([codes[first] for codes in batch.codes.values()])
        for name, column in self._columns.items():
            column.extend(batch.codes[name][first[numbers >= known]])
        if (batch.t_ns[1:] < batch.t_ns[:-1]).any():
            order = np.argsort(batch.t_ns, kind="stable")
            first = order[first_of_each(local[order], len(first))]
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

    def order(self) -> Numbers:
        """Return the parties' numbers in order of first appearance in time, then line."""
        return np.lexsort((self._first_line.read(), self._first_ns.read()))

    def rows(self, numbers: Numbers) -> tuple[dict[str, Codes], Numbers]:
        """Return the codes of parties, and the line of each one's first request."""
        columns = {name: column.read()[numbers] for name, column in self._columns.items()}
        return columns, self._first_line.read()[numbers]


_HASH_DIGITS: Final = 16
_KEY_TEXT: Final = re.compile(r"key_(?:[a-z]+_)*[1-9A-HJ-NP-Za-km-z]{22}")
_IDENTITY: Final = ("tenant", "tenant_kind", "application", "application_kind", "legacy")
_SHORTEST_KEY: Final = 4
"""A shorter text is not replaced in paths, where it may match by accident."""


@dataclass(slots=True)
class Naming:
    """Gives the parties of a log their names.

    codes: of each field, in order of first appearance. line: of each party's earliest request.
    kind, tenant_kind: of the keys of which the log says nothing. pseudonym_key: with it, addresses
    and keys become keyed hashes (HMAC-SHA-256). prefix_bits: what tells IPv6 clients apart (D-IP).
    """

    codes: dict[str, Codes]
    line: Numbers
    log: LogStream
    kind: Kind
    tenant_kind: TenantKind
    pseudonym_key: bytes | None = field(repr=False)
    prefix_bits: int

    def named(self) -> LogCallers:
        """Return the parties by their names.

        Raises `InputError` where a key has two owners: it belongs to one application of one tenant,
        and a log that says otherwise is mapped wrongly.
        """
        codes, names = self.codes, self.log.names
        texts, has_keys = self._key_codes()
        owner, owners = self._owners(texts)
        key, labels = self._labels(texts, has_keys=has_keys)
        address = _used(TextColumn(codes["address"], names["address"]))
        path = _used(TextColumn(codes["path"], names["path"]))
        path = _mapped(path, lambda text: _KEY_TEXT.sub("key_…", text))
        if has_keys:
            keyed = np.flatnonzero(texts >= 0)
            rows = keyed[distinct([texts[keyed]])[1]]
            of_key = zip(texts[rows].tolist(), key[rows].tolist(), strict=True)
            by = {code: labels[label] for code, label in of_key}
            path = _replaced(path, TextColumn(texts, names["key"]), by, _SHORTEST_KEY)
        if self.pseudonym_key is not None:
            hashed = [self._hashed("ip-", self._client(text)) for text in address.texts]
            path = _replaced(path, address, dict(enumerate(hashed)), 1)
            address = _mapped(TextColumn(address.codes, hashed), str)
        elif self.prefix_bits < 128:
            address = _mapped(address, self._client)
        method = _used(TextColumn(codes["method"], names["method"]))
        others = {
            name: TextColumn(column, names[name])
            for name, column in codes.items()
            if name not in ("address", "key", "method", "path", *_IDENTITY)
        }
        return LogCallers(owner, owners, TextColumn(key, labels), address, method, path, others)

    def _client(self, address: str) -> str:
        """Return the counter key of an address; a host name is its own key."""
        if is_plain_address(address):
            return address  # the same text, not a copy
        return client_address(address, self.prefix_bits) or address

    def _key_codes(self) -> tuple[Codes, bool]:
        """Return each party's key, −1 for none, and whether the log has keys.

        In a log without a key field all requests have the same key; where keys are empty, requests
        have none.
        """
        codes = self.codes.get("key")
        if codes is not None:
            has_keys = bool((codes >= 0).any())
            if has_keys or self.log.has_key_field:
                return codes, has_keys
        return np.zeros(len(self.line), dtype=np.int32), False

    def _owners(self, key: Codes) -> tuple[Codes, list[Owner]]:
        """Return whose each party's key is. Raises `InputError` where a key has two owners."""
        owner = np.zeros(len(key), dtype=np.int32)
        keyed = np.flatnonzero(key >= 0)
        if not len(keyed):
            return owner, [NOBODY]
        stated = [column[keyed] for name, column in self.codes.items() if name in _IDENTITY]
        identity, first = distinct(stated or [owner[keyed]])
        numbers = {NOBODY: 0}
        of_identity = [
            numbers.setdefault(self._owner(row), len(numbers)) for row in keyed[first].tolist()
        ]
        owner[keyed] = np.array(of_identity, dtype=np.int32)[identity]
        self._check_owners(owner[keyed], key[keyed], self.line[keyed])
        return owner, list(numbers)

    def _check_owners(self, owner: Codes, key: Codes, line: Numbers) -> None:
        """Raise `InputError` where a key has two owners."""
        of_key, met = distinct([key])
        other = np.flatnonzero(owner != owner[met][of_key])
        if len(other):
            known = line[met[of_key[other[0]]]]
            raise InputError(
                f"{self.log.name}:{line[other[0]]}: key must belong to one application of one"
                f" tenant; line {known} gives it another, map tenant and application by the key"
            )

    def _owner(self, row: int) -> Owner:
        """Return tenant, its kind, application, its kind and whether the key is a legacy one."""
        codes, names = self.codes, self.log.names
        stated = {name: names[name][codes[name][row]] for name in _IDENTITY if name in codes}
        its_kind = stated.get("application_kind", self.kind)
        its_tenant_kind = stated.get("tenant_kind", self.tenant_kind)
        return Owner(
            stated.get("tenant", its_tenant_kind),
            its_tenant_kind,
            stated.get("application", its_kind),
            "private" if its_kind == "legacy" else its_kind,
            stated.get("legacy", "true" if its_kind == "legacy" else "false") == "true",
        )

    def _labels(self, key: Codes, *, has_keys: bool) -> tuple[Codes, list[str]]:
        """Return each party's label, numbered in order of first appearance, and the labels."""
        keyed = np.flatnonzero(key >= 0)
        label = np.full(len(key), -1, dtype=np.int32)
        label[keyed], first = distinct([key[keyed]])
        if self.pseudonym_key is None or not has_keys:
            return label, [f"key-{number:04d}" for number in range(1, len(first) + 1)]
        texts = self.log.names["key"]
        hashed = [self._hashed("key-", texts[code]) for code in key[keyed[first]].tolist()]
        return label, hashed

    def _hashed(self, mark: str, text: str) -> str:
        assert self.pseudonym_key is not None, "only asked with a key"
        return mark + hmac.digest(self.pseudonym_key, text.encode(), "sha256").hex()[:_HASH_DIGITS]


def _used(column: TextColumn) -> TextColumn:
    """Return the column with the texts that some party has, in order of first appearance."""
    number, first = distinct([column.codes])
    used = column.codes[first].tolist()
    return TextColumn(number.astype(np.int32), [column.texts[code] for code in used])


def _mapped(column: TextColumn, change: Callable[[str], str]) -> TextColumn:
    """Return the column with its texts changed; those that are the same then become one."""
    numbers: dict[str, int] = {}
    to = np.array(
        [numbers.setdefault(change(text), len(numbers)) for text in column.texts], dtype=np.int32
    )
    return TextColumn(to[column.codes], list(numbers))


def _replaced(
    column: TextColumn, secrets: TextColumn, by: Mapping[int, str], shortest: int
) -> TextColumn:
    """Return the column with each occurrence of the party's own text of `secrets` replaced.

    by: its replacement, by code of `secrets`. shortest: of fewer letters nothing is replaced.
    """
    number, first = distinct([column.codes, secrets.codes])
    numbers = {text: place for place, text in enumerate(column.texts)}
    to = column.codes[first].astype(np.int32)
    pairs = zip(to.tolist(), secrets.codes[first].tolist(), strict=True)
    for place, (code, own) in enumerate(pairs):
        if own < 0:
            continue
        text, secret = column.texts[code], secrets.texts[own]
        if len(secret) >= shortest and secret in text:
            to[place] = numbers.setdefault(text.replace(secret, by[own]), len(numbers))
    return _used(TextColumn(to[number], list(numbers)))
