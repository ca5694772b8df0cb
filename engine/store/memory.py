"""`MemoryStore`: the store of simulations and tests, in plain dictionaries.

Not durable, for one process. A transaction is a lock and an undo list, filled by writes and dropped
at the commit, so that a request pays only for what it changes. The store keeps no reference to a
deleted record.
"""

from __future__ import annotations

import heapq
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

from engine.errors import StoreError
from engine.model import Intent, KeptAnswer, Key, LogEntry, Proxy, Tenant, Token
from engine.store.catalogue import Catalogue, DocumentShelf, LogShelf, SortKey, TokenShelf
from engine.store.protocol import (
    UNCACHED,
    Cursor,
    D,
    Document,
    LogFilter,
    RecordMac,
    TokenFilter,
    Transactional,
    WithoutCvc,
    bare,
    cursor_place,
)
from engine.store.selection import Union, token_matches, token_unions, wants_types

_Steps: TypeAlias = list[tuple[Any, ...]]
"""What undoes a transaction: a callable and its arguments each."""


def _any(_record: Document) -> bool:
    return True


R = TypeVar("R", Token, Document)


def _page(
    shelf: Catalogue[R],
    unions: Sequence[Union],
    accepts: Callable[[R], bool],
    after: Cursor | None,
    size: int | None,
) -> list[R]:
    """Return a page of a catalogue that is ordered by (created_at_ns, id)."""
    place: SortKey | None = None
    if after is not None:
        at_ns, record_id = cursor_place(after)
        known = shelf.records.get(record_id)
        if known is not None:
            at_ns = known.created_at_ns
        if at_ns is None:
            return []
        place = (at_ns, record_id)
    return shelf.page(unions, accepts, after=place, size=size)


class MemoryStore(Transactional):
    """The store in memory; safe among threads, one transaction after the other."""

    persistent = False

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()
        self._open = False
        self._log: _Steps = []
        self._undo: _Steps | None = None
        self._documents = DocumentShelf()
        self._version = 0
        self._latest_ns = 0
        self._tokens: defaultdict[str, TokenShelf] = defaultdict(TokenShelf)
        self._logs: defaultdict[str, LogShelf] = defaultdict(LogShelf)
        self._deadlines: list[tuple[int, str, str]] = []
        self._secrets: dict[str, bytes] = {}
        self._work: dict[str, LogEntry] = {}

    # transactions
    def begin(self, *, write: bool = True, wait: bool = True) -> None:  # noqa: ARG002 # reason: no other program holds it
        """Open a transaction, when the one before it has ended."""
        self._lock.acquire()
        if self._open:
            self._lock.release()
            raise AssertionError("a transaction is open in this thread; they do not nest")
        self._open = True
        if write:
            self._undo = self._log

    def commit(self) -> None:
        """End the transaction; what it did is there for all."""
        assert self._open, "no transaction is open"
        if self._log:
            self._log.clear()
        self._undo = None
        self._open = False
        self._lock.release()

    def rollback(self) -> None:
        """End the transaction, undoing what it did, last first."""
        assert self._open, "no transaction is open"
        while self._log:
            step, *arguments = self._log.pop()
            step(*arguments)
        self._undo = None
        self._open = False
        self._lock.release()

    def scrub(self) -> bool:
        """Return True: nothing of what was erased is left."""
        return True

    def probe(self) -> None:
        """Do nothing: memory can be written."""

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            assert not self._open, "a transaction is open"
            self.__init__()  # type: ignore[misc]  # reason: an empty store, which nobody uses

    def _check_reads(self) -> None:
        assert self._open, "a read must stand in a transaction"

    def _changes(self) -> _Steps:
        assert self._undo is not None, "a write must stand in a transaction that writes"
        return self._undo

    def guard(self, mac: RecordMac) -> None:
        """Do nothing: no other program reaches these records."""

    # documents
    def put(self, record: Document) -> None:
        """Insert or replace the record."""
        undo = self._changes()
        self._documents.check_names(record)
        kind = type(record)
        undo.append((self._set, kind, record.id, self._set(kind, record.id, record)))

    def get(self, kind: type[D], record_id: str) -> D | None:
        """Return the record of that class and id."""
        self._check_reads()
        return cast("D | None", self._documents.get(kind, record_id))

    def delete(self, kind: type[D], record_id: str) -> bool:
        """Remove the record."""
        undo = self._changes()
        if self._documents.get(kind, record_id) is None:
            return False
        undo.append((self._set, kind, record_id, self._set(kind, record_id, None)))
        return True

    def list(
        self, kind: type[D], tenant_id: str, *, after: Cursor | None = None, size: int | None = None
    ) -> Sequence[D]:
        """Return a tenant's records of that class in order, after a cursor."""
        self._check_reads()
        if kind is Tenant:
            own = self._documents.tenant(tenant_id)
            return cast("Sequence[D]", [] if after is not None else own[:size])
        shelf = self._documents.listed[kind, tenant_id]
        return cast("Sequence[D]", _page(shelf, (), _any, after, size))

    def tenants(self) -> Sequence[Tenant]:
        """Return all tenants in order."""
        self._check_reads()
        return cast("Sequence[Tenant]", self._documents.listed[Tenant, ""].page((), _any))

    def key_by_hash(self, text_hash: bytes) -> Key | None:
        """Return the API key of that text hash."""
        self._check_reads()
        return cast("Key | None", self._documents.named.get(("key hash", text_hash)))

    def proxy_by_hash(self, key_hash: bytes) -> Proxy | None:
        """Return the proxy of that proxy-key hash."""
        self._check_reads()
        return cast("Proxy | None", self._documents.named.get(("proxy-key hash", key_hash)))

    def proxy_by_host(self, host: str) -> Proxy | None:
        """Return the proxy of that custom hostname."""
        self._check_reads()
        return cast("Proxy | None", self._documents.named.get(("hostname", host)))

    def documents_version(self) -> int:
        """Return a number that changes whenever a document changes."""
        return self._version

    def _set(self, kind: type, record_id: str, new: Document | None) -> Document | None:
        """Put `new`, or nothing, in the place of a record, which is returned."""
        if isinstance(new, Intent | KeptAnswer):
            heapq.heappush(self._deadlines, (new.until_ns, "", record_id))
        elif kind not in UNCACHED:
            self._version += 1  # before the change, so that no cache takes old data for new
        return self._documents.swap(kind, record_id, new)

    # tokens
    def add_tokens(self, tokens: Sequence[Token]) -> None:
        """Insert new tokens. The hot path: two entries each, and one step to undo them all."""
        undo = self._undo
        assert undo is not None, "a write must stand in a transaction that writes"
        added: list[Token] = []
        undo.append((self._drop_tokens, added))
        for token in tokens:
            shelf, token_id = self._tokens[token.tenant_id], token.id
            if shelf.records.setdefault(token_id, token) is not token:
                raise StoreError("the id of a new token must be its own; it is taken")
            shelf.fresh.append(token_id)
            added.append(token)
            if token.cvc_until_ns is not None:
                self._note_cvc(token)

    def token(self, tenant_id: str, token_id: str) -> Token | None:
        """Return a tenant's token."""
        self._check_reads()
        return self._tokens[tenant_id].records.get(token_id)

    def duplicate(self, tenant_id: str, dedup_hash: bytes) -> Token | None:
        """Return the oldest token of that hash (D-DEDUP-KEY)."""
        self._check_reads()
        return self._tokens[tenant_id].oldest(dedup_hash)

    def update_token(self, token: Token) -> None:
        """Replace the token of the same id."""
        undo = self._changes()
        shelf = self._tokens[token.tenant_id]
        if token.id not in shelf.records:
            raise StoreError("a token that is updated must exist; it does not")
        undo.append((self._swap_token, shelf.swap(token)))
        self._note_cvc(token)

    def delete_token(self, tenant_id: str, token_id: str) -> bool:
        """Remove a token."""
        undo = self._changes()
        shelf = self._tokens[tenant_id]
        if token_id not in shelf.records:
            return False
        undo.append((self._put_token, shelf.drop(token_id)))
        return True

    def find_tokens(
        self, tenant_id: str, chosen: TokenFilter, *, after: Cursor | None = None, size: int
    ) -> Sequence[Token]:
        """Return at most `size` chosen tokens in order, after a cursor."""
        self._check_reads()
        shelf = self._tokens[tenant_id]
        unions = token_unions(chosen, shelf.types() if wants_types(chosen) else ())
        return _page(shelf, unions, lambda token: token_matches(token, chosen), after, size)

    def count_tokens(self, tenant_id: str) -> int:
        """Return how many tokens the tenant holds."""
        self._check_reads()
        return len(self._tokens[tenant_id].records)

    def _drop_tokens(self, added: Sequence[Token]) -> None:
        for token in reversed(added):
            self._tokens[token.tenant_id].drop(token.id)

    def _put_token(self, token: Token) -> None:
        self._tokens[token.tenant_id].add(token.id, token)
        self._note_cvc(token)

    def _swap_token(self, token: Token) -> None:
        self._tokens[token.tenant_id].swap(token)
        self._note_cvc(token)

    def _note_cvc(self, token: Token) -> None:
        if token.cvc_until_ns is not None:
            heapq.heappush(self._deadlines, (token.cvc_until_ns, token.tenant_id, token.id))

    # logs
    def add_log(self, entry: LogEntry) -> None:
        """Append a log entry."""
        undo = self._undo
        assert undo is not None, "a write must stand in a transaction that writes"
        shelf = self._logs[entry.tenant_id]
        if entry.id in shelf.records:
            raise StoreError("the id of a new log entry must be its own; it is taken")
        shelf.arrivals = arrival = shelf.arrivals + 1
        shelf.put((arrival, entry))
        undo.append((shelf.remove, entry.id))

    def find_logs(
        self, tenant_id: str, chosen: LogFilter, *, after: Cursor | None = None, size: int
    ) -> Sequence[LogEntry]:
        """Return at most `size` chosen entries in order, after a cursor."""
        self._check_reads()
        return self._logs[tenant_id].find(chosen, after, size)

    def expire_logs(self, tenant_id: str, before_ns: int, *, size: int | None = None) -> int:
        """Erase a tenant's entries older than `before_ns` (QUO-LOG)."""
        undo = self._changes()
        shelf = self._logs[tenant_id]
        gone = shelf.expire(before_ns, size)
        undo.extend((shelf.put, numbered) for numbered in gone)
        return len(gone)

    # retention
    def latest_ns(self) -> int:
        """Return the latest instant that was given."""
        return self._latest_ns

    def put_latest_ns(self, steady_ns: int) -> None:
        """Remember an instant; there is no later process."""
        self._latest_ns = max(self._latest_ns, steady_ns)

    def next_deadline_ns(self) -> int | None:
        """Return the earliest deadline of a cvc, an intent or a kept answer."""
        deadlines = self._deadlines
        with self._lock:
            while deadlines:
                if self._is_due_at(*deadlines[0]):
                    return deadlines[0][0]
                heapq.heappop(deadlines)  # its record was deleted before the deadline
        return None

    def is_due(self, now_ns: int) -> bool:
        """Return whether a deadline has come, also of a record that was deleted before it."""
        try:
            return self._deadlines[0][0] <= now_ns if self._deadlines else False
        except IndexError:  # another thread has just emptied it
            return False

    def expire(
        self, now_ns: int, without_cvc: WithoutCvc = bare, *, size: int | None = None
    ) -> int:
        """Delete records whose retention has expired (QUO-CVC, QUO-INTENT)."""
        undo = self._changes()
        deadlines = self._deadlines
        erased = 0
        while deadlines and deadlines[0][0] <= now_ns and (size is None or erased < size):
            due = heapq.heappop(deadlines)
            if not self._is_due_at(*due):
                continue
            erased += 1
            _, tenant_id, record_id = due
            if tenant_id:
                token = self._tokens[tenant_id].records[record_id]
                old = self._tokens[tenant_id].swap(without_cvc(token))
                undo.append((self._swap_token, old))
            else:
                kind = type(self._due(record_id))
                undo.append((self._set, kind, record_id, self._set(kind, record_id, None)))
        return erased

    def _is_due_at(self, until_ns: int, tenant_id: str, record_id: str) -> bool:
        if tenant_id:
            token = self._tokens[tenant_id].records.get(record_id)
            return token is not None and token.cvc_until_ns == until_ns
        record = self._due(record_id)
        return record is not None and record.until_ns == until_ns

    def _due(self, record_id: str) -> Intent | KeptAnswer | None:
        """Return the record of an id that has a deadline; no two kinds share an id."""
        found = self._documents.get(Intent, record_id)
        if found is None:
            found = self._documents.get(KeptAnswer, record_id)
        return cast("Intent | KeptAnswer | None", found)

    # secrets
    def secret(self, name: str) -> bytes | None:
        """Return the wrapped secret of that name."""
        self._check_reads()
        return self._secrets.get(name)

    def put_secret(self, name: str, wrapped: bytes) -> None:
        """Insert or replace a wrapped secret."""
        self._changes().append((_restore, self._secrets, name, self._secrets.get(name)))
        self._secrets[name] = wrapped

    def secrets(self) -> Mapping[str, bytes]:
        """Return all wrapped secrets by name."""
        self._check_reads()
        return dict(self._secrets)

    # work
    def open_work(self, entry: LogEntry) -> None:
        """Remember that an operation has begun."""
        undo = self._changes()
        if entry.id in self._work:
            raise StoreError("the id of new work must be its own; it is taken")
        undo.append((_restore, self._work, entry.id, None))
        self._work[entry.id] = entry

    def close_work(self, work_id: str) -> None:
        """Forget it."""
        self._changes().append((_restore, self._work, work_id, self._work.pop(work_id, None)))

    def unfinished_work(self) -> Sequence[LogEntry]:
        """Return what never finished, in order of (at_ns, id)."""
        self._check_reads()
        return sorted(self._work.values(), key=lambda entry: (entry.at_ns, entry.id))

    def abandoned_work(self) -> Sequence[LogEntry]:
        """Return nothing: this store ends with its process."""
        self._changes()
        return []


def _restore(held: dict[str, Any], name: str, value: object) -> None:
    if value is None:
        held.pop(name, None)
    else:
        held[name] = value
