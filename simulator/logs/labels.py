"""From a log's codes to names, and from key texts to labels.

Key texts end here: what comes out holds `key-0001` in order of first appearance, or keyed hashes.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.addresses import client_address
from engine.errors import InputError
from engine.model import TenantKind
from simulator.logs import Kind, Log, LogStream
from simulator.logs.parties import NOBODY, Owner, Parties, PartyCodes, Texts
from simulator.logs.row_numbers import distinct

__all__ = ["name_parties"]

_HASH_DIGITS: Final = 16
_KEY_TEXT: Final = re.compile(r"key_(?:[a-z]+_)*[1-9A-HJ-NP-Za-km-z]{22}")
_IDENTITY: Final = ("tenant", "tenant_kind", "application", "application_kind", "legacy")
_SHORTEST_KEY: Final = 4
"""A shorter text is not replaced in paths, where it may match by accident."""

Codes = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.int64]


def name_parties(
    parties: PartyCodes,
    log: Log | LogStream,
    kind: Kind,
    tenant_kind: TenantKind,
    pseudonym_key: bytes | None,
    prefix_bits: int = 128,
) -> Parties:
    """Return the parties of a log by their names.

    kind, tenant_kind: of the keys of which the log says nothing. pseudonym_key: with it, addresses
    and keys become keyed hashes (HMAC-SHA-256). prefix_bits: what tells IPv6 clients apart (D-IP).

    Raises `InputError` where a key has two owners: it belongs to one application of one tenant,
    and a log that says otherwise is mapped wrongly.
    """
    return _Naming(parties, log, kind, tenant_kind, pseudonym_key, prefix_bits).named()


@dataclass(slots=True)
class _Naming:
    parties: PartyCodes
    log: Log | LogStream
    kind: Kind
    tenant_kind: TenantKind
    pseudonym_key: bytes | None = field(repr=False)
    prefix_bits: int = 128

    def named(self) -> Parties:
        """Return the parties by their names."""
        codes, names = self.parties.columns, self.log.names
        texts, has_keys = self._key_codes()
        owner, owners = self._owners(texts)
        key, labels = self._labels(texts, has_keys=has_keys)
        address = _used(Texts(codes["address"], names["address"]))
        path = _used(Texts(codes["path"], names["path"]))
        path = _mapped(path, lambda text: _KEY_TEXT.sub("key_…", text))
        if has_keys:
            shown = Texts(texts, names["key"])
            path = _replaced(path, shown, dict(_pairs_of(texts, key, labels)), _SHORTEST_KEY)
        if self.pseudonym_key is not None:
            hashed = [self._hashed("ip-", self._client(text)) for text in address.texts]
            path = _replaced(path, address, dict(enumerate(hashed)), 1)
            address = _mapped(Texts(address.codes, hashed), str)
        elif self.prefix_bits < 128:
            address = _mapped(address, self._client)
        method = _used(Texts(codes["method"], names["method"]))
        return Parties(owner, owners, Texts(key, labels), address, method, path)

    def _client(self, address: str) -> str:
        """Return the counter key of an address; a host name is its own key."""
        return client_address(address, self.prefix_bits) or address

    def _key_codes(self) -> tuple[Codes, bool]:
        """Return each party's key, −1 for none, and whether the log has keys.

        In a log without a key field all requests have the same key; where keys are empty, requests
        have none.
        """
        codes = self.parties.columns.get("key")
        if codes is not None:
            has_keys = bool((codes >= 0).any())
            if has_keys or self.log.says_keys:
                return codes, has_keys
        return np.zeros(len(self.parties.line), dtype=np.int32), False

    def _owners(self, key: Codes) -> tuple[Codes, list[Owner]]:
        """Return whose each party's key is. Raises `InputError` where a key has two owners."""
        owner = np.zeros(len(key), dtype=np.int32)
        keyed = np.flatnonzero(key >= 0)
        if not len(keyed):
            return owner, [NOBODY]
        said = [column[keyed] for name, column in self.parties.columns.items() if name in _IDENTITY]
        identity, first = distinct(said or [owner[keyed]])
        numbers = {NOBODY: 0}
        of_identity = [
            numbers.setdefault(self._owner(row), len(numbers)) for row in keyed[first].tolist()
        ]
        owner[keyed] = np.array(of_identity, dtype=np.int32)[identity]
        self._check_owners(owner[keyed], key[keyed], self.parties.line[keyed])
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
        codes, names = self.parties.columns, self.log.names
        said = {name: names[name][codes[name][row]] for name in _IDENTITY if name in codes}
        its_kind = said.get("application_kind", self.kind)
        its_tenant_kind = said.get("tenant_kind", self.tenant_kind)
        return Owner(
            said.get("tenant", its_tenant_kind),
            its_tenant_kind,
            said.get("application", its_kind),
            "private" if its_kind == "legacy" else its_kind,
            said.get("legacy", "true" if its_kind == "legacy" else "false") == "true",
        )

    def _labels(self, key: Codes, *, has_keys: bool) -> tuple[Codes, list[str]]:
        """Return each party's label, numbered in order of first appearance, and the labels."""
        keyed = np.flatnonzero(key >= 0)
        label = np.full(len(key), -1, dtype=np.int32)
        if not len(keyed):
            return label, []
        number, first = distinct([key[keyed]])
        if self.pseudonym_key is None or not has_keys:
            label[keyed] = number
            return label, [f"key-{each:04d}" for each in range(1, len(first) + 1)]
        texts = self.log.names["key"]
        hashed = [self._hashed("key-", texts[code]) for code in key[keyed[first]].tolist()]
        label[keyed] = number
        return label, hashed

    def _hashed(self, mark: str, text: str) -> str:
        assert self.pseudonym_key is not None, "only asked with a key"
        return mark + hmac.digest(self.pseudonym_key, text.encode(), "sha256").hex()[:_HASH_DIGITS]


def _pairs_of(texts: Codes, key: Codes, labels: Sequence[str]) -> list[tuple[int, str]]:
    """Return the label of each text of a key."""
    keyed = np.flatnonzero(texts >= 0)
    _, first = distinct([texts[keyed]])
    rows = keyed[first]
    return [
        (code, labels[label])
        for code, label in zip(texts[rows].tolist(), key[rows].tolist(), strict=True)
    ]


def _used(column: Texts) -> Texts:
    """Return the column with the texts that some party has, in order of first appearance."""
    number, first = distinct([column.codes])
    used = column.codes[first].tolist()
    return Texts(number.astype(np.int32), [column.texts[code] for code in used])


def _mapped(column: Texts, change: Callable[[str], str]) -> Texts:
    """Return the column with its texts changed; those that are the same then become one."""
    numbers: dict[str, int] = {}
    to = np.array(
        [numbers.setdefault(change(text), len(numbers)) for text in column.texts], dtype=np.int32
    )
    return Texts(to[column.codes], list(numbers))


def _replaced(column: Texts, told: Texts, by: Mapping[int, str], shortest: int) -> Texts:
    """Return the column with each occurrence of the party's own text of `told` replaced.

    by: what stands in its place, by code of `told`. shortest: of fewer letters nothing is replaced.
    """
    number, first = distinct([column.codes, told.codes])
    numbers = {text: place for place, text in enumerate(column.texts)}
    to = column.codes[first].astype(np.int32)
    pairs = zip(to.tolist(), told.codes[first].tolist(), strict=True)
    for place, (code, own) in enumerate(pairs):
        if own < 0:
            continue
        text, secret = column.texts[code], told.texts[own]
        if len(secret) >= shortest and secret in text:
            to[place] = numbers.setdefault(text.replace(secret, by[own]), len(numbers))
    return _used(Texts(to[number], list(numbers)))
