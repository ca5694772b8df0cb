"""Tokens in a SQLite store: their rows, the terms they are filed under, and how many there are."""

# ruff: noqa: S608  # reason: names of tables and columns are constants here, values are bound

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final

from engine.errors import StoreError
from engine.model import Token
from engine.store.protocol import Cursor, TokenFilter, cursor_place
from engine.store.retention import WithoutCvc
from engine.store.selection import (
    TYPE_TERMS,
    Union,
    token_matches,
    token_terms,
    token_unions,
    type_of,
    wants_types,
)
from engine.store.sqlite_file import Session
from engine.store.sqlite_rows import TOKENS
from engine.store.sqlite_slots import Slots

__all__ = ["TokenTable"]

_ID: Final = TOKENS.names.index("id")
_CREATED: Final = TOKENS.names.index("created_at_ns")
_COUNTED: Final = 1_000
"""Records of a term that are counted to tell a narrow one from a wide one."""

_SELECT: Final = f"SELECT {TOKENS.columns} FROM tokens"
_BY_ID: Final = " WHERE tokens.tenant_id = ? AND tokens.id = ?"
_ADD_TERM: Final = "INSERT INTO token_terms VALUES (?, ?, ?, ?)"
_DROP_TERM: Final = (
    "DELETE FROM token_terms WHERE tenant_id = ? AND term = ? AND created_at_ns = ? AND id = ?"
)
_COUNT: Final = (
    "INSERT INTO counters VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + ?"
)
_DERIVED: Final = (
    "instr(coalesce(search_indexes, '') || coalesce(fingerprint_expression, ''), 'data.cvc')"
)
_WALK: Final = (
    _SELECT + " INDEXED BY tokens_listed WHERE tokens.tenant_id = ?"
    " AND (tokens.created_at_ns, tokens.id) > (?, ?) ORDER BY tokens.created_at_ns, tokens.id"
)
_WALK_TERM: Final = (
    f"SELECT {TOKENS.columns} FROM token_terms AS filed CROSS JOIN tokens"
    " ON tokens.tenant_id = filed.tenant_id AND tokens.id = filed.id"
    " WHERE filed.tenant_id = ? AND filed.term = ?"
    " AND (filed.created_at_ns, filed.id) > (?, ?) ORDER BY filed.created_at_ns, filed.id"
)


def _term_rows(token: Token) -> list[tuple[object, ...]]:
    return [(token.tenant_id, term, token.created_at_ns, token.id) for term in token_terms(token)]


def _counter(tenant_id: str) -> str:
    return f"tokens:{tenant_id}"


def _place_of(row: Sequence[Any]) -> tuple[int, str]:
    return row[_CREATED], row[_ID]


class TokenTable:
    """The tokens of one file."""

    def __init__(self, session: Session, slots: Slots) -> None:
        self._session = session
        self._slots = slots

    def add(self, tokens: Sequence[Token]) -> None:
        """Insert new tokens."""
        added: dict[str, int] = {}
        rows = []
        terms: list[tuple[object, ...]] = []
        for token in tokens:
            row = TOKENS.pack(token)
            for at in TOKENS.sealed:
                if row[at] is not None:
                    row[at] = self._slots.put(row[at])
            rows.append(row)
            terms += _term_rows(token)
            added[token.tenant_id] = added.get(token.tenant_id, 0) + 1
        self._session.many(TOKENS.insert, rows)
        self._session.many(_ADD_TERM, terms)
        for tenant_id, number in added.items():
            self._session.run(_COUNT, (_counter(tenant_id), number, number))

    def get(self, tenant_id: str, token_id: str) -> Token | None:
        """Return a tenant's token."""
        row = self._session.one(_SELECT + _BY_ID, (tenant_id, token_id))
        return None if row is None else TOKENS.unpack(row)

    def oldest(self, tenant_id: str, dedup_hash: bytes) -> Token | None:
        """Return the oldest (created_at_ns, id) token of that hash (D-DEDUP-KEY)."""
        row = self._session.one(
            _SELECT + " WHERE tenant_id = ? AND dedup_hash = ? ORDER BY created_at_ns, id LIMIT 1",
            (tenant_id, dedup_hash),
        )
        return None if row is None else TOKENS.unpack(row)

    def update(self, token: Token) -> None:
        """Replace the token of the same id."""
        old = self.get(token.tenant_id, token.id)
        if old is None:
            raise StoreError("a token that is updated must exist; it does not")
        assert old.created_at_ns == token.created_at_ns, "a token's creation never changes"
        self._session.erases()
        row = TOKENS.pack(token)
        slots = self._slots_of(token.tenant_id, token.id)
        for at, slot in zip(TOKENS.sealed, slots, strict=True):
            row[at] = self._slots.change(slot, row[at])
        self._session.run(
            f"UPDATE tokens SET {TOKENS.assign}" + _BY_ID, [*row, token.tenant_id, token.id]
        )
        before, after = set(_term_rows(old)), set(_term_rows(token))
        self._session.many(_DROP_TERM, list(before - after))
        self._session.many(_ADD_TERM, list(after - before))

    def delete(self, tenant_id: str, token_id: str) -> bool:
        """Remove a token, overwriting what it held."""
        token = self.get(tenant_id, token_id)
        if token is None:
            return False
        self._session.erases()
        slots = self._slots_of(tenant_id, token_id)
        self._slots.erase([slot for slot in slots if slot is not None])
        self._session.run("DELETE FROM tokens" + _BY_ID, (tenant_id, token_id))
        self._session.many(_DROP_TERM, _term_rows(token))
        self._session.run(_COUNT, (_counter(tenant_id), 0, -1))
        return True

    def find(
        self, tenant_id: str, chosen: TokenFilter, after: Cursor | None, size: int
    ) -> Sequence[Token]:
        """Return at most `size` chosen tokens in order, after a cursor."""
        place = (-1, "") if after is None else self._place(tenant_id, after)
        if place is None:
            return []
        unions = token_unions(chosen, self._types(tenant_id) if wants_types(chosen) else ())
        found: list[Token] = []
        walks = self._walks(tenant_id, unions, place)
        try:
            for row in heapq.merge(*walks, key=_place_of):
                if len(found) == size:
                    break
                token = TOKENS.unpack(row)
                if token_matches(token, chosen):
                    found.append(token)
        except sqlite3.Error as error:
            raise StoreError(f"the store file failed: {error}") from error
        finally:
            for walk in walks:
                walk.close()  # an open one would keep the log from being emptied
        return found

    def count(self, tenant_id: str) -> int:
        """Return how many tokens the tenant holds."""
        row = self._session.one("SELECT value FROM counters WHERE name = ?", (_counter(tenant_id),))
        return 0 if row is None else row[0]

    def with_cvc(self, tenant_id: str) -> Sequence[Token]:
        """Return a tenant's tokens that hold a cvc."""
        chosen = f"{_SELECT} WHERE cvc_until_ns IS NOT NULL AND tenant_id = ?"
        return [TOKENS.unpack(row) for row in self._session.all(chosen, (tenant_id,))]

    def next_cvc_ns(self) -> int | None:
        """Return the earliest deadline of a cvc."""
        at_ns: int | None = self._session.one(
            "SELECT min(cvc_until_ns) FROM tokens WHERE cvc_until_ns IS NOT NULL"
        )[0]
        return at_ns

    def expire(self, now_ns: int, without_cvc: WithoutCvc, size: int) -> int:
        """Erase every cvc whose deadline is at or before `now_ns` (QUO-CVC).

        A token with an expression that may be over its cvc (D-CVC-DERIVE) is asked for as a whole,
        and every other one loses two columns.
        """
        derived = self._session.all(
            f"{_SELECT} WHERE cvc_until_ns <= ? AND {_DERIVED} LIMIT ?", (now_ns, size)
        )
        for row in derived:
            self.update(without_cvc(TOKENS.unpack(row)))
        due = self._session.all(
            "SELECT seq, sealed_cvc FROM tokens"
            f" WHERE cvc_until_ns <= ? AND NOT {_DERIVED} LIMIT ?",
            (now_ns, size),
        )
        self._slots.erase([slot for _, slot in due if slot is not None])
        self._session.many(
            "UPDATE tokens SET sealed_cvc = NULL, cvc_until_ns = NULL WHERE seq = ?",
            [(number,) for number, _ in due],
        )
        return len(derived) + len(due)

    def _slots_of(self, tenant_id: str, token_id: str) -> Sequence[int | None]:
        columns = ", ".join(TOKENS.sealed_names)
        slots: Sequence[int | None] = self._session.one(
            f"SELECT {columns} FROM tokens" + _BY_ID, (tenant_id, token_id)
        )
        return slots

    def _place(self, tenant_id: str, after: Cursor) -> tuple[int, str] | None:
        at_ns, token_id = cursor_place(after)
        row = self._session.one("SELECT created_at_ns FROM tokens" + _BY_ID, (tenant_id, token_id))
        if row is not None:
            at_ns = row[0]
        return None if at_ns is None else (at_ns, token_id)

    def _types(self, tenant_id: str) -> Iterator[str]:
        """Yield every token type that the tenant has, with one look-up each."""
        term, end = TYPE_TERMS
        while True:
            term = self._session.one(
                "SELECT min(term) FROM token_terms WHERE tenant_id = ? AND term > ? AND term < ?",
                (tenant_id, term, end),
            )[0]
            if term is None:
                return
            yield type_of(term)

    def _walks(
        self, tenant_id: str, unions: Sequence[Union], place: tuple[int, str]
    ) -> list[sqlite3.Cursor]:
        if not unions:
            return [self._session.run(_WALK, (tenant_id, *place))]
        narrowest = unions[0]
        if len(unions) > 1:
            narrowest = min(unions, key=lambda union: self._width(tenant_id, union))
        return [self._session.run(_WALK_TERM, (tenant_id, term, *place)) for term in narrowest]

    def _width(self, tenant_id: str, union: Union) -> int:
        width = 0
        for term in union:
            width += self._session.one(
                "SELECT count(*) FROM (SELECT 1 FROM token_terms"
                " WHERE tenant_id = ? AND term = ? LIMIT ?)",
                (tenant_id, term, _COUNTED - width),
            )[0]
            if width >= _COUNTED:
                break
        return width
