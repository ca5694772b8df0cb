"""`MemoryStore`: the store of simulations and tests, in dictionaries.

Not durable, for one process. A transaction is a lock and a list of what was replaced, filled by
writes and dropped at the commit. `Store` says what each method does.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, cast

from engine.errors import StoreError
from engine.model import KeptAnswer, Key, LogEntry, Proxy, Token
from engine.store import selection
from engine.store.protocol import (
    Cursor,
    D,
    Document,
    LogFilter,
    Store,
    TokenFilter,
    WithoutCvc,
    drop_cvc,
    owner_of,
    unique_names,
)
from engine.store.table import Table, equal_to, owned_by, shows, until_ns_of


class MemoryStore(Store):
    """The store in memory; safe among threads, one transaction after the other."""

    persistent = False
    next_deadline_ns: int | None = None

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._is_open = False
        self._undo: list[tuple[Any, ...]] | None = None
        self.documents_version = 0
        self.next_deadline_ns = None
        self._tables: dict[tuple[type, str], Table] = {}
        self._arrivals = count()
        self._deadlines: list[tuple[int, int, Table, str]] = []
        self._secrets: dict[str, bytes] = {}
        self._work: dict[str, LogEntry] = {}

    def _table(self, kind: type, tenant_id: str = "") -> Table:
        """Return a table: a tenant's tokens or log entries, or all documents of a kind."""
        assert self._is_open, "a read must stand in a transaction"
        name = kind, tenant_id
        return self._tables.get(name) or self._tables.setdefault(name, Table(kind))

    def begin(self, *, write: bool = True) -> None:
        self._lock.acquire()
        if self._is_open:
            self._lock.release()
            raise AssertionError("a transaction is open in this thread; they do not nest")
        self._is_open, self._undo = True, [] if write else None

    def commit(self) -> None:
        assert self._is_open, "no transaction is open"
        self._is_open, self._undo = False, None
        self._lock.release()

    def rollback(self) -> None:
        assert self._is_open, "no transaction is open"
        for step, *arguments in reversed(self._undo or []):
            step(*arguments)
        self.commit()

    def close(self) -> None:
        with self._lock:
            assert not self._is_open, "a transaction is open"
            self.__init__()  # type: ignore[misc]  # reason: an empty store, which nobody uses

    def _set(self, table: Table, record_id: str, new: object) -> Any:  # noqa: ANN401 # reason: a record
        self._note(self._swap, table, record_id, table.records.get(record_id))
        return self._swap(table, record_id, new)

    def _add(self, table: Table, record_id: str, new: object) -> None:
        if record_id in table.records:
            raise StoreError("the id of a new record must be its own; it is taken")
        assert self._undo is not None, "a write must stand in a transaction that writes"
        self._undo.append((self._swap, table, record_id, None))
        table.records[record_id] = new
        table.fresh.append(record_id)

    def _expires(self, until_ns: int | None, table: Table, record_id: str) -> None:
        if until_ns is not None:
            heapq.heappush(self._deadlines, (until_ns, next(self._arrivals), table, record_id))
            self.next_deadline_ns = self._deadlines[0][0]

    def _swap(self, table: Table, record_id: str, new: object) -> Any:  # noqa: ANN401 # reason: a record
        if table.is_cached:
            self.documents_version += 1  # before the change: no cache takes old data for new
        self._expires(until_ns_of(new), table, record_id)
        old = table.swap(record_id, new)
        self._drop_deadlines()
        return old

    def _drop_deadlines(self) -> None:
        """Drop the first deadlines while their records are gone or have another one."""
        while self._deadlines:
            until_ns, _, table, record_id = self._deadlines[0]
            if until_ns_of(table.records.get(record_id)) == until_ns:
                self.next_deadline_ns = until_ns
                return
            heapq.heappop(self._deadlines)
        self.next_deadline_ns = None

    def _note(self, *step: Any) -> None:  # noqa: ANN401 # reason: a function and its arguments
        assert self._undo is not None, "a write must stand in a transaction that writes"
        self._undo.append(step)

    def put(self, record: Document) -> None:
        table = self._table(type(record))
        holders = [holder for name in unique_names(record) for holder in table.of_term(name)]
        if any(holder.id != record.id for holder in holders):
            raise StoreError("a name of a record must be its own; it is taken")
        self._set(table, record.id, record)

    def get(self, kind: type[D], record_id: str) -> D | None:
        return cast("D | None", self._table(kind).records.get(record_id))

    def delete(self, kind: type[D], record_id: str) -> bool:
        return self._delete(self._table(kind), record_id)

    def _delete(self, table: Table, record_id: str) -> bool:
        answers = self._table(KeptAnswer)
        for answer in answers.of_term(shows(record_id)):
            self._set(answers, answer.id, None)
        return self._set(table, record_id, None) is not None

    def list(
        self, kind: type[D], tenant_id: str, *, after: Cursor | None = None, size: int | None = None
    ) -> Sequence[D]:
        unions, table = [[owned_by(tenant_id)]], self._table(kind)
        return table.page(
            unions, lambda record: owner_of(record) == tenant_id, after=after, size=size
        )

    def _named(self, name: bytes) -> Document | None:
        return next((r for kind in (Key, Proxy) for r in self._table(kind).of_term(name)), None)

    def add_tokens(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            table = self._table(Token, token.tenant_id)
            self._add(table, token.id, token)
            if token.cvc_until_ns is not None:
                self._expires(token.cvc_until_ns, table, token.id)

    def token(self, tenant_id: str, token_id: str) -> Token | None:
        return cast("Token | None", self._table(Token, tenant_id).records.get(token_id))

    def duplicate(self, tenant_id: str, dedup_hash: bytes) -> Token | None:
        return next(iter(self._table(Token, tenant_id).of_term(equal_to(dedup_hash))), None)

    def update_token(self, token: Token) -> None:
        table = self._table(Token, token.tenant_id)
        if token.id not in table.records:
            raise StoreError("a token that is updated must exist; it does not")
        self._set(table, token.id, token)

    def delete_token(self, tenant_id: str, token_id: str) -> bool:
        return self._delete(self._table(Token, tenant_id), token_id)

    def find_tokens(
        self,
        tenant_id: str,
        chosen: TokenFilter,
        *,
        after: Cursor | None = None,
        size: int,
        has_data: bool = True,  # noqa: ARG002 # reason: to leave data out would cost more
    ) -> Sequence[Token]:
        accepts = partial(selection.token_matches, chosen=chosen)
        table = self._table(Token, tenant_id)
        return table.page(selection.token_unions(chosen), accepts, after=after, size=size)

    def count_tokens(self, tenant_id: str) -> int:
        return len(self._table(Token, tenant_id).records)

    def add_log(self, entry: LogEntry) -> None:
        table = self._table(LogEntry, entry.tenant_id)
        self._add(table, entry.id, (next(self._arrivals), entry))

    def find_logs(
        self, tenant_id: str, chosen: LogFilter, *, after: Cursor | None = None, size: int
    ) -> Sequence[LogEntry]:
        arrived = self._table(LogEntry, tenant_id).page(
            selection.log_unions(chosen),
            lambda arrived: selection.log_matches(arrived[1], chosen),
            after=after,
            from_ns=chosen.from_ns,
            before_ns=chosen.before_ns,
            size=size,
        )
        return [entry for _, entry in arrived]

    def expire_logs(self, tenant_id: str, before_ns: int, *, size: int | None = None) -> int:
        table = self._table(LogEntry, tenant_id)
        old = table.page(before_ns=before_ns, size=size)
        for _, entry in old:
            self._set(table, entry.id, None)
        return len(old)

    def expire(
        self, now_ns: int, without_cvc: WithoutCvc = drop_cvc, *, size: int | None = None
    ) -> int:
        assert self._undo is not None, "a write must stand in a transaction that writes"
        erased = 0
        while self._deadlines and (size is None or erased < size):
            until_ns, _, table, record_id = self._deadlines[0]
            if until_ns > now_ns:
                break
            record = table.records[record_id]
            self._set(table, record_id, without_cvc(record) if type(record) is Token else None)
            erased += 1
        return erased

    def put_secret(self, name: str, wrapped: bytes) -> None:
        self._note(_put, self._secrets, name, self._secrets.get(name))
        self._secrets[name] = wrapped

    def secrets(self) -> Mapping[str, bytes]:
        assert self._is_open, "a read must stand in a transaction"
        return self._secrets

    def open_work(self, entry: LogEntry) -> None:
        if entry.id in self._work:
            raise StoreError("the id of new work must be its own; it is taken")
        self._note(_put, self._work, entry.id, None)
        self._work[entry.id] = entry

    def close_work(self, work_id: str) -> None:
        self._note(_put, self._work, work_id, self._work.pop(work_id, None))

    def unfinished_work(self) -> Sequence[LogEntry]:
        assert self._is_open, "a read must stand in a transaction"
        return sorted(self._work.values(), key=lambda entry: (entry.at_ns, entry.id))


def _put(held: dict[str, Any], name: str, value: object) -> None:
    if value is None:
        held.pop(name, None)
    else:
        held[name] = value
