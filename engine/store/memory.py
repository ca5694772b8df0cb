"""`MemoryStore`: the store of simulations and tests, in dictionaries.

Not durable, for one process. A transaction is a lock and an undo list, filled by writes and dropped
at the commit, so that a request pays only for what it changes.
"""

from __future__ import annotations

import heapq
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast

from sortedcontainers import SortedList

from engine.errors import StoreError
from engine.model import Intent, KeptAnswer, LogEntry, Tenant, Token
from engine.store.protocol import (
    UNCACHED,
    BaseStore,
    Cursor,
    D,
    Document,
    LogFilter,
    TokenFilter,
    WithoutCvc,
    cursor_place,
    drop_cvc,
    owner_of,
    unique_names,
)
from engine.store.selection import (
    Term,
    log_matches,
    log_terms,
    log_unions,
    token_matches,
    token_terms,
    token_unions,
)

_MAX_SORTED: Final = 1_000
"""A page sorts so many records of a term; of more, it walks through all records in order."""

R = TypeVar("R")
SortKey: TypeAlias = tuple[Any, ...]
"""A record's place in the order: an instant, then the tie-breakers, the id last."""


class Table(Generic[R]):
    """One tenant's records of one kind: by id, in order and by term.

    Order and terms are computed at the first read: to add a record is `records[id] = record` and
    `fresh.append(id)`.
    """

    __slots__ = ("_ids_by_term", "_order", "_sort_key", "_terms_of", "fresh", "records")

    def __init__(
        self,
        sort_key: Callable[[R], SortKey],
        terms_of: Callable[[R], Iterable[Term]] = lambda _: (),
    ) -> None:
        self.records: dict[str, R] = {}
        self.fresh: list[str] = []
        self._order: SortedList[SortKey] = SortedList()
        self._ids_by_term: dict[Term, str | set[str]] = {}  # most terms have one record
        self._sort_key = sort_key
        self._terms_of = terms_of

    def add(self, record_id: str, record: R) -> None:
        """Add a new record."""
        self.records[record_id] = record
        self.fresh.append(record_id)

    def remove(self, record_id: str) -> R:
        """Remove a record and return it."""
        if self.fresh and self.fresh[-1] == record_id:  # the usual case of an undo
            self.fresh.pop()
            return self.records.pop(record_id)
        self._settle()
        record = self.records.pop(record_id)
        self._order.remove(self._sort_key(record))
        for term in self._terms_of(record):
            ids = self._ids_by_term[term]
            if not isinstance(ids, str):
                ids.remove(record_id)
            if isinstance(ids, str) or not ids:
                del self._ids_by_term[term]
        return record

    def replace(self, record_id: str, record: R) -> R:
        """Replace a record and return the old one."""
        old = self.remove(record_id)
        self.add(record_id, record)
        return old

    def page(
        self,
        unions: Sequence[Sequence[Term]] = (),
        accepts: Callable[[R], bool] = lambda _: True,
        *,
        after: SortKey | None = None,
        before: SortKey | None = None,
        size: int | None = None,
    ) -> list[R]:
        """Return the accepted records between two places in order."""
        self._settle()
        keys = self._order.irange(after, before, inclusive=(False, False))
        if unions:
            narrowest = min(map(self._ids, unions), key=lambda parts: sum(map(len, parts)))
            if sum(map(len, narrowest)) <= _MAX_SORTED:
                keys = self._sorted({id_ for part in narrowest for id_ in part}, after, before)
        records = (self.records[key[-1]] for key in keys)
        return list(islice(filter(accepts, records), size))

    def _ids(self, union: Sequence[Term]) -> list[Collection[str]]:
        held = (self._ids_by_term.get(term, ()) for term in union)
        return [(ids,) if isinstance(ids, str) else ids for ids in held]

    def _sorted(
        self, ids: Iterable[str], after: SortKey | None, before: SortKey | None
    ) -> Iterator[SortKey]:
        keys = sorted(self._sort_key(self.records[record_id]) for record_id in ids)
        return (
            key
            for key in keys
            if (after is None or key > after) and (before is None or key < before)
        )

    def _settle(self) -> None:
        for record_id in self.fresh:
            record = self.records[record_id]
            self._order.add(self._sort_key(record))
            for term in self._terms_of(record):
                ids = self._ids_by_term.setdefault(term, record_id)
                if isinstance(ids, set):
                    ids.add(record_id)
                elif ids != record_id:
                    self._ids_by_term[term] = {ids, record_id}
        self.fresh.clear()


def _created(record: Token | Document) -> SortKey:
    return (record.created_at_ns, record.id)


def _dedup_term(dedup_hash: bytes) -> Term:
    return b"d" + dedup_hash


def _terms_of_token(token: Token) -> list[Term]:
    return [*token_terms(token), _dedup_term(token.dedup_hash)]


def _new_tokens() -> Table[Token]:
    return Table(_created, _terms_of_token)


def _new_documents() -> Table[Document]:
    return Table(_created)


_Arrived: TypeAlias = tuple[int, LogEntry]
"""An entry with the number of its arrival."""


def _new_logs() -> Table[_Arrived]:
    return Table(
        lambda arrived: (arrived[1].at_ns, arrived[0], arrived[1].id),
        lambda arrived: log_terms(arrived[1]),
    )


class MemoryStore(BaseStore):
    """The store in memory; safe among threads, one transaction after the other."""

    persistent = False

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()
        self._open = False
        self._undo: list[tuple[Any, ...]] | None = None
        self._version = 0
        self._documents: dict[tuple[type, str], Document] = {}
        self._tables: defaultdict[tuple[type, str], Table[Document]] = defaultdict(_new_documents)
        self._names: dict[bytes, Document] = {}
        self._answers_of: defaultdict[str, set[str]] = defaultdict(set)  # by what they show
        self._tokens: defaultdict[str, Table[Token]] = defaultdict(_new_tokens)
        self._logs: defaultdict[str, Table[_Arrived]] = defaultdict(_new_logs)
        self._arrivals = 0
        self._deadlines: list[tuple[int, str, str]] = []  # (until_ns, tenant of a token, id)
        self._secrets: dict[str, bytes] = {}
        self._work: dict[str, LogEntry] = {}

    # transactions
    def begin(self, *, write: bool = True) -> None:
        """Open a transaction, when the one before it has ended."""
        self._lock.acquire()
        if self._open:
            self._lock.release()
            raise AssertionError("a transaction is open in this thread; they do not nest")
        self._open = True
        self._undo = [] if write else None

    def commit(self) -> None:
        """End the transaction; what it did is there for all."""
        assert self._open, "no transaction is open"
        self._undo = None
        self._open = False
        self._lock.release()

    def rollback(self) -> None:
        """End the transaction, undoing what it did, last first."""
        assert self._open, "no transaction is open"
        for step, *arguments in reversed(self._undo or []):
            step(*arguments)
        self.commit()

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            assert not self._open, "a transaction is open"
            self.__init__()  # type: ignore[misc]  # reason: an empty store, which nobody uses

    def _reads(self) -> None:
        assert self._open, "a read must stand in a transaction"

    def _changes(self) -> list[tuple[Any, ...]]:
        assert self._undo is not None, "a write must stand in a transaction that writes"
        return self._undo

    # documents
    def put(self, record: Document) -> None:
        """Insert or replace the record."""
        undo = self._changes()
        for name in unique_names(record):
            if name in self._names and self._names[name].id != record.id:
                raise StoreError("a name of a record must be its own; it is taken")
        kind = type(record)
        undo.append((self._set, kind, record.id, self._set(kind, record.id, record)))

    def get(self, kind: type[D], record_id: str) -> D | None:
        """Return the record of that class and id."""
        self._reads()
        return cast("D | None", self._documents.get((kind, record_id)))

    def delete(self, kind: type[D], record_id: str) -> bool:
        """Remove the record, and the kept answers that show it."""
        undo = self._changes()
        old = self._set(kind, record_id, None)
        undo.append((self._set, kind, record_id, old))
        self._delete_answers(record_id)
        return old is not None

    def _delete_answers(self, entity_id: str) -> None:
        for answer_id in [*self._answers_of.get(entity_id, ())]:
            self.delete(KeptAnswer, answer_id)

    def _set(self, kind: type, record_id: str, new: Document | None) -> Document | None:
        """Put `new`, or nothing, in the place of a record, which is returned."""
        if kind not in UNCACHED:
            self._version += 1  # before the change, so that no cache takes old data for new
        old = self._documents.pop((kind, record_id), None)
        if old is not None:
            self._tables[kind, owner_of(old)].remove(record_id)
            for name in unique_names(old):
                del self._names[name]
            for entity_id in old.entity_ids if isinstance(old, KeptAnswer) else ():
                self._answers_of[entity_id].discard(record_id)
        if new is not None:
            self._documents[kind, record_id] = new
            self._tables[kind, owner_of(new)].add(record_id, new)
            self._names.update((name, new) for name in unique_names(new))
            for entity_id in new.entity_ids if isinstance(new, KeptAnswer) else ():
                self._answers_of[entity_id].add(record_id)
            if isinstance(new, Intent | KeptAnswer):
                heapq.heappush(self._deadlines, (new.until_ns, "", record_id))
        return old

    def list(
        self, kind: type[D], tenant_id: str, *, after: Cursor | None = None, size: int | None = None
    ) -> Sequence[D]:
        """Return a tenant's records of that class in order, after a cursor."""
        self._reads()
        if kind is Tenant:
            own = self.get(kind, tenant_id)
            return [] if own is None or after is not None else [own][:size]
        return cast("Sequence[D]", _page(self._tables[kind, tenant_id], after, size))

    def tenants(self) -> Sequence[Tenant]:
        """Return all tenants in order."""
        self._reads()
        return cast("Sequence[Tenant]", self._tables[Tenant, ""].page())

    def _named(self, name: bytes) -> Document | None:
        self._reads()
        return self._names.get(name)

    def documents_version(self) -> int:
        """Return a number that changes whenever a document changes."""
        return self._version

    # tokens
    def add_tokens(self, tokens: Sequence[Token]) -> None:
        """Insert new tokens. The hot path: two entries each, and one step to undo them all."""
        added: list[Token] = []
        self._changes().append((self._drop, added))
        for token in tokens:
            table, token_id = self._tokens[token.tenant_id], token.id
            if token_id in table.records:
                raise StoreError("the id of a new token must be its own; it is taken")
            table.records[token_id] = token
            table.fresh.append(token_id)
            added.append(token)
            if token.cvc_until_ns is not None:
                self._note_cvc(token)

    def _drop(self, tokens: Sequence[Token]) -> None:
        for token in reversed(tokens):
            self._tokens[token.tenant_id].remove(token.id)

    def _note_cvc(self, token: Token) -> None:
        if token.cvc_until_ns is not None:
            heapq.heappush(self._deadlines, (token.cvc_until_ns, token.tenant_id, token.id))

    def token(self, tenant_id: str, token_id: str) -> Token | None:
        """Return a tenant's token."""
        self._reads()
        return self._tokens[tenant_id].records.get(token_id)

    def duplicate(self, tenant_id: str, dedup_hash: bytes) -> Token | None:
        """Return the oldest token of that hash (D-DEDUP-KEY)."""
        self._reads()
        equal = self._tokens[tenant_id].page([[_dedup_term(dedup_hash)]], size=1)
        return equal[0] if equal else None

    def update_token(self, token: Token) -> None:
        """Replace the token of the same id."""
        table = self._tokens[token.tenant_id]
        if token.id not in table.records:
            raise StoreError("a token that is updated must exist; it does not")
        self._changes().append((self._restore, table.replace(token.id, token)))
        self._note_cvc(token)

    def _restore(self, token: Token) -> None:
        self._tokens[token.tenant_id].replace(token.id, token)
        self._note_cvc(token)

    def _put_back(self, token: Token) -> None:
        self._tokens[token.tenant_id].add(token.id, token)
        self._note_cvc(token)

    def delete_token(self, tenant_id: str, token_id: str) -> bool:
        """Remove a token, and the kept answers that show it."""
        undo, table = self._changes(), self._tokens[tenant_id]
        if token_id not in table.records:
            return False
        undo.append((self._put_back, table.remove(token_id)))
        self._delete_answers(token_id)
        return True

    def find_tokens(
        self, tenant_id: str, chosen: TokenFilter, *, after: Cursor | None = None, size: int
    ) -> Sequence[Token]:
        """Return at most `size` chosen tokens in order, after a cursor."""
        self._reads()
        table = self._tokens[tenant_id]
        accepts = partial(token_matches, chosen=chosen)
        return _page(table, after, size, token_unions(chosen), accepts)

    def count_tokens(self, tenant_id: str) -> int:
        """Return how many tokens the tenant holds."""
        self._reads()
        return len(self._tokens[tenant_id].records)

    # logs
    def add_log(self, entry: LogEntry) -> None:
        """Append a log entry."""
        undo, table = self._changes(), self._logs[entry.tenant_id]
        if entry.id in table.records:
            raise StoreError("the id of a new log entry must be its own; it is taken")
        self._arrivals += 1
        table.add(entry.id, (self._arrivals, entry))
        undo.append((table.remove, entry.id))

    def find_logs(
        self, tenant_id: str, chosen: LogFilter, *, after: Cursor | None = None, size: int
    ) -> Sequence[LogEntry]:
        """Return at most `size` chosen entries in order, after a cursor."""
        self._reads()
        table = self._logs[tenant_id]
        place: SortKey = () if chosen.from_ns is None else (chosen.from_ns,)
        if after is not None:
            at_ns, entry_id = cursor_place(after)
            known = table.records.get(entry_id)
            if known is None and at_ns is None:
                return []
            # One that expired did so with all entries of its instant.
            gone = (at_ns + 1,) if at_ns is not None else ()
            place = max(place, gone if known is None else (known[1].at_ns, known[0], entry_id))
        arrived = table.page(
            log_unions(chosen),
            lambda arrived: log_matches(arrived[1], chosen),
            after=place or None,
            before=None if chosen.before_ns is None else (chosen.before_ns,),
            size=size,
        )
        return [entry for _, entry in arrived]

    def expire_logs(self, tenant_id: str, before_ns: int, *, size: int | None = None) -> int:
        """Erase a tenant's entries older than `before_ns` (QUO-LOG)."""
        undo, table = self._changes(), self._logs[tenant_id]
        gone = table.page(before=(before_ns,), size=size)
        for arrived in gone:
            table.remove(arrived[1].id)
            undo.append((table.add, arrived[1].id, arrived))
        return len(gone)

    # retention
    def next_deadline_ns(self) -> int | None:
        """Return the earliest deadline of a cvc, an intent or a kept answer."""
        with self._lock:
            while self._deadlines:
                if self._due(self._deadlines[0]) is not None:
                    return self._deadlines[0][0]
                heapq.heappop(self._deadlines)  # its record was deleted before the deadline
        return None

    def is_due(self, now_ns: int) -> bool:
        """Return whether a deadline has come, also of a record that was deleted before it."""
        earliest = self._deadlines[:1]
        return bool(earliest) and earliest[0][0] <= now_ns

    def expire(
        self, now_ns: int, without_cvc: WithoutCvc = drop_cvc, *, size: int | None = None
    ) -> int:
        """Delete records whose retention has expired (QUO-CVC, QUO-INTENT)."""
        undo, erased = self._changes(), 0
        while self.is_due(now_ns) and (size is None or erased < size):
            deadline = heapq.heappop(self._deadlines)
            undo.append((heapq.heappush, self._deadlines, deadline))
            record = self._due(deadline)
            if isinstance(record, Token):
                self.update_token(without_cvc(record))
            elif record is not None:
                self.delete(type(record), record.id)
            erased += record is not None
        return erased

    def _due(self, deadline: tuple[int, str, str]) -> Token | Intent | KeptAnswer | None:
        """Return the record that has this deadline; no two kinds share an id."""
        until_ns, tenant_id, record_id = deadline
        if tenant_id:
            token = self._tokens[tenant_id].records.get(record_id)
            return token if token is not None and token.cvc_until_ns == until_ns else None
        for kind in (Intent, KeptAnswer):
            record = self._documents.get((kind, record_id))
            if isinstance(record, Intent | KeptAnswer) and record.until_ns == until_ns:
                return record
        return None

    # secrets and work
    def secret(self, name: str) -> bytes | None:
        """Return the wrapped secret of that name."""
        return self.secrets().get(name)

    def put_secret(self, name: str, wrapped: bytes) -> None:
        """Insert or replace a wrapped secret."""
        self._changes().append((_put, self._secrets, name, self._secrets.get(name)))
        self._secrets[name] = wrapped

    def secrets(self) -> Mapping[str, bytes]:
        """Return all wrapped secrets by name."""
        self._reads()
        return self._secrets

    def open_work(self, entry: LogEntry) -> None:
        """Remember that an operation has begun."""
        if entry.id in self._work:
            raise StoreError("the id of new work must be its own; it is taken")
        self._changes().append((_put, self._work, entry.id, None))
        self._work[entry.id] = entry

    def close_work(self, work_id: str) -> None:
        """Forget it."""
        self._changes().append((_put, self._work, work_id, self._work.pop(work_id, None)))

    def unfinished_work(self) -> Sequence[LogEntry]:
        """Return what never finished, in order of (at_ns, id)."""
        self._reads()
        return sorted(self._work.values(), key=lambda entry: (entry.at_ns, entry.id))


def _put(held: dict[str, Any], name: str, value: object) -> None:
    if value is None:
        held.pop(name, None)
    else:
        held[name] = value


def _page(
    table: Table[Any],
    after: Cursor | None,
    size: int | None,
    unions: Sequence[Sequence[Term]] = (),
    accepts: Callable[[Any], bool] = lambda _: True,
) -> list[Any]:
    """Return a page of a table that is ordered by (created_at_ns, id)."""
    place: SortKey | None = None
    if after is not None:
        at_ns, record_id = cursor_place(after)
        known = table.records.get(record_id)
        if known is None and at_ns is None:
            return []
        place = (at_ns if known is None else known.created_at_ns, record_id)
    return table.page(unions, accepts, after=place, size=size)
