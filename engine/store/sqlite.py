"""`SqliteStore`: the store of a server, one file that survives a kill at any instant.

One process owns the file, from the opening to the close; a second one is refused. Records are
MessagePack in a column, and beside it stand the columns that look-ups need. Deleted data is
overwritten in the file by SQLite's `secure_delete`; the write-ahead log still holds old pages until
`truncate_log` has moved it into the file. `Store` says what each method does.
"""

from __future__ import annotations

import heapq
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import astuple, replace

from engine.errors import StoreError, wrong_type
from engine.model import Application, KeptAnswer, LogEntry, Token
from engine.store.protocol import (
    UNCACHED,
    Cursor,
    D,
    Document,
    LogFilter,
    Store,
    TokenFilter,
    Union,
    WithoutCvc,
    cursor_place,
    drop_cvc,
    owner_of,
    token_matches,
    token_terms,
    token_unions,
    unique_names,
)
from engine.store.sqlite_file import StoreFile, store_error

# ruff: noqa: S608  # reason: names of tables and columns are constants here, values are bound

_KINDS: Final[Mapping[type, str]] = {kind: kind.__name__ for kind in Document.__args__}
_KIND_OF: Final = {name: kind for kind, name in _KINDS.items()}
_R = TypeVar("_R")
_plain: Final = msgspec.msgpack.Encoder()
_of_sets: Final = msgspec.msgpack.Encoder(order="deterministic")
"""Of applications, whose permissions are sets; it would also sort the mappings of others."""

_decoders: Final[Mapping[type, Any]] = {
    kind: msgspec.msgpack.Decoder(kind) for kind in (*_KINDS, Token)
}

_PROBE_BYTES: Final = 65_536
_LAST_SEQ: Final = 2**63 - 1
_MAX_COUNTED: Final = 1_000
"""How many records of a term are counted, to tell a narrow term from a wide one."""

_BY_ID: Final = "tenant_id = ? AND id = ?"
_WALK: Final = (
    "SELECT created_at_ns, id, record, {data} FROM tokens INDEXED BY tokens_listed"
    " WHERE tenant_id = ? AND (created_at_ns, id) > (?, ?) ORDER BY created_at_ns, id"
)
_WALK_TERM: Final = (
    "SELECT filed.created_at_ns, filed.id, record, {data} FROM token_terms AS filed"
    " CROSS JOIN tokens ON tokens.tenant_id = filed.tenant_id AND tokens.id = filed.id"
    " WHERE filed.tenant_id = ? AND filed.term = ?"
    " AND (filed.created_at_ns, filed.id) > (?, ?) ORDER BY filed.created_at_ns, filed.id"
)
_LOG: Final = ", ".join(LogEntry.__struct_fields__)


def _encode(record: Document | Token) -> bytes:
    if isinstance(record, Token):
        record = replace(record, sealed_data=b"")  # which has a column of its own
    encoder = _of_sets if isinstance(record, Application) else _plain
    try:
        return encoder.encode(record)
    except UnicodeEncodeError as error:
        raise store_error(error) from None  # the codec's error holds the text


def _decode(kind: type[_R], row_id: str, record: bytes) -> _R:
    try:
        decoded: _R = _decoders[kind].decode(record)
    except (msgspec.DecodeError, UnicodeDecodeError):
        table = "tokens" if kind is Token else f"documents ({_KINDS[kind]})"
        raise StoreError(
            f"the store is damaged: table {table}, row {row_id!a}, column record"
        ) from None
    return decoded


def _token(token_id: str, record: bytes, sealed_data: bytes) -> Token:
    return replace(_decode(Token, token_id, record), sealed_data=sealed_data)


def _term_rows(tokens: Sequence[Token]) -> list[tuple[object, ...]]:
    return [
        (token.tenant_id, term, token.created_at_ns, token.id)
        for token in tokens
        for term in token_terms(token)
    ]


class SqliteStore(Store):
    """The store in one SQLite file (write-ahead log, full synchronisation, mode 0600).

    path: the file; made when there is none.
    truncates: whether a commit that deleted something empties the log before it returns; with
        False, call `truncate_log` from time to time, in any thread.
    checked_bytes: a file of up to this size is checked for damage when it is opened.

    Safe among threads. Raises `StoreError` when the file is no store, of another version, damaged,
    not writable, or owned by another process.
    """

    persistent = True

    def __init__(self, path: str | Path, *, truncates: bool = True, checked_bytes: int = 0) -> None:
        given: object = path
        if not isinstance(given, str | Path):
            raise wrong_type("path", given, "a file's path")
        self._file = StoreFile(Path(path), checked_bytes)
        self._connection = self._file.connection
        self._truncates = truncates
        self._lock = threading.RLock()
        self._is_open = self._writes = self._erases = self._is_changed = False
        self._has_erased = True  # before a kill, the log may have held deleted data
        self._commits = self._commits_seen = 0
        self.documents_version = 0
        self._deadline_ns: int | None = None
        self._knows_deadline = False
        with self.transaction(write=False):
            self._abandoned = self.unfinished_work()

    def __repr__(self) -> str:
        return f"SqliteStore({str(self._file.path)!r})"

    # statements
    def _run(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        assert self._writes, "a write must stand in a transaction that writes"
        return self._execute(self._connection.execute, sql, values)

    def _many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        assert self._writes, "a write must stand in a transaction that writes"
        if rows:
            self._execute(self._connection.executemany, sql, rows)

    def _all(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        assert self._is_open, "a read must stand in a transaction"
        try:
            return self._connection.execute(sql, values).fetchall()
        except UnicodeEncodeError:  # no text of the store holds a surrogate
            return []
        except sqlite3.Error as error:
            raise store_error(error) from error

    def _one(self, sql: str, values: Sequence[Any] = ()) -> Any:  # noqa: ANN401 # reason: a row
        rows = self._all(sql, values)
        return rows[0] if rows else None

    def _execute(
        self, run: Callable[[str, Any], sqlite3.Cursor], sql: str, values: Sequence[Any] = ()
    ) -> sqlite3.Cursor:
        try:
            return run(sql, values)
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise store_error(error) from error

    # transactions
    def begin(self, *, write: bool = True) -> None:
        self._lock.acquire()
        if self._is_open:
            self._lock.release()
            raise AssertionError("a transaction is open in this thread; they do not nest")
        try:
            if write:
                self._file.check_identity()
            self._execute(self._connection.execute, "BEGIN IMMEDIATE" if write else "BEGIN")
        except BaseException:
            self._lock.release()
            raise
        self._is_open, self._writes = True, write
        self._erases = self._is_changed = False

    def commit(self) -> None:
        assert self._is_open, "no transaction is open"
        try:
            self._execute(self._connection.execute, "COMMIT")
        except BaseException:
            self.rollback()
            raise
        self._commits += self._writes
        self._has_erased |= self._erases
        truncates = self._truncates and self._has_erased
        self._end()
        if truncates:
            self.truncate_log()

    def rollback(self) -> None:
        assert self._is_open, "no transaction is open"
        try:
            if self._connection.in_transaction:
                self._execute(self._connection.execute, "ROLLBACK")
        finally:
            if self._writes:
                self._knows_deadline = False
                self.documents_version += self._is_changed
            self._end()

    def _end(self) -> None:
        self._is_open = self._writes = False
        self._lock.release()

    def truncate_log(self) -> bool:
        """Empty the log, where it may hold deleted data or nothing was written since the last call.

        Returns False where another program, such as a backup, reads the file at that time.
        """
        with self._lock:
            is_idle, self._commits_seen = self._commits == self._commits_seen, self._commits
            if not (self._has_erased or (is_idle and self._commits)):
                return True
            row = self._execute(
                self._connection.execute, "PRAGMA wal_checkpoint(TRUNCATE)"
            ).fetchone()
            if row[0] != 0:
                return False
            self._has_erased, self._commits = False, 0
            self._commits_seen = 0
            return True

    def probe(self) -> None:
        # Larger than a log that was emptied has room for.
        with self.transaction():
            self._run("INSERT INTO probes VALUES (zeroblob(?))", (_PROBE_BYTES,))
            assert self._one("SELECT length(bytes) FROM probes")[0] == _PROBE_BYTES
            self._run("DELETE FROM probes")

    def close(self) -> None:
        with self._lock:
            assert not self._is_open, "a transaction is open"
            self._file.close()

    # documents
    def put(self, record: Document) -> None:
        kind, tenant_id = _KINDS[type(record)], owner_of(record)
        self._note_change(type(record))
        until_ns = getattr(record, "until_ns", None)
        row = (tenant_id, record.created_at_ns, until_ns, _encode(record), kind, record.id)
        updated = self._run(
            "UPDATE documents SET tenant_id = ?, created_at_ns = ?, until_ns = ?, record = ?"
            " WHERE kind = ? AND id = ?",
            row,
        ).rowcount
        if updated:
            self._erases = True
            self._run("DELETE FROM names WHERE kind = ? AND id = ?", (kind, record.id))
        else:
            self._run(
                "INSERT INTO documents (tenant_id, created_at_ns, until_ns, record, kind, id)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                row,
            )
        names = [(name, kind, record.id) for name in unique_names(record)]
        self._many("INSERT INTO names VALUES (?, ?, ?)", names)
        if isinstance(record, KeptAnswer):
            self._run("DELETE FROM answers_of WHERE answer_id = ?", (record.id,))
            entities = [(entity_id, record.id) for entity_id in record.entity_ids]
            self._many("INSERT OR IGNORE INTO answers_of VALUES (?, ?)", entities)

    def get(self, kind: type[D], record_id: str) -> D | None:
        row = self._one(
            "SELECT record FROM documents WHERE kind = ? AND id = ?", (_KINDS[kind], record_id)
        )
        return None if row is None else _decode(kind, record_id, row[0])

    def delete(self, kind: type[D], record_id: str) -> bool:
        name = _KINDS[kind]
        deleted = self._run("DELETE FROM documents WHERE kind = ? AND id = ?", (name, record_id))
        if not deleted.rowcount:
            return False
        self._erases = True
        self._note_change(kind)
        self._run("DELETE FROM names WHERE kind = ? AND id = ?", (name, record_id))
        self._run("DELETE FROM answers_of WHERE answer_id = ?", (record_id,))
        self._delete_answers(record_id)
        return True

    def _delete_answers(self, entity_id: str) -> None:
        for (answer_id,) in self._all(
            "SELECT answer_id FROM answers_of WHERE entity_id = ?", (entity_id,)
        ):
            self.delete(KeptAnswer, answer_id)

    def _note_change(self, kind: type) -> None:
        if kind in UNCACHED:
            self._knows_deadline = False
        else:
            self._is_changed = True
            self.documents_version += 1

    def list(
        self, kind: type[D], tenant_id: str, *, after: Cursor | None = None, size: int | None = None
    ) -> Sequence[D]:
        place = self._place("documents WHERE kind = ? AND id = ?", (_KINDS[kind],), after)
        if place is None:
            return []
        rows = self._all(
            "SELECT id, record FROM documents WHERE kind = ? AND tenant_id = ?"
            " AND (created_at_ns, id) > (?, ?) ORDER BY created_at_ns, id LIMIT ?",
            (_KINDS[kind], tenant_id, *place, -1 if size is None else size),
        )
        return [_decode(kind, *row) for row in rows]

    def _named(self, name: bytes) -> Document | None:
        row = self._one(
            "SELECT names.kind, names.id, record FROM names JOIN documents USING (kind, id)"
            " WHERE name = ?",
            (name,),
        )
        return None if row is None else _decode(_KIND_OF[row[0]], row[1], row[2])

    def _place(
        self, rows: str, owner: Sequence[str], after: Cursor | None
    ) -> tuple[int, str] | None:
        """Return where a list goes on; None after a record that is gone, known by its id alone."""
        if after is None:
            return -1, ""
        at_ns, record_id = cursor_place(after)
        row = self._one(f"SELECT created_at_ns FROM {rows}", (*owner, record_id))
        if row is not None:
            at_ns = row[0]
        return None if at_ns is None else (at_ns, record_id)

    # tokens
    def add_tokens(self, tokens: Sequence[Token]) -> None:
        self._many(
            "INSERT INTO tokens"
            " (id, tenant_id, created_at_ns, dedup_hash, cvc_until_ns, record, sealed_data)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    token.id,
                    token.tenant_id,
                    token.created_at_ns,
                    token.dedup_hash,
                    token.cvc_until_ns,
                    _encode(token),
                    token.sealed_data,
                )
                for token in tokens
            ],
        )
        self._many("INSERT INTO token_terms VALUES (?, ?, ?, ?)", _term_rows(tokens))
        if any(token.cvc_until_ns is not None for token in tokens):
            self._knows_deadline = False

    def token(self, tenant_id: str, token_id: str) -> Token | None:
        columns = "id, record, sealed_data"
        row = self._one(f"SELECT {columns} FROM tokens WHERE {_BY_ID}", (tenant_id, token_id))
        return None if row is None else _token(*row)

    def duplicate(self, tenant_id: str, dedup_hash: bytes) -> Token | None:
        row = self._one(
            "SELECT id, record, sealed_data FROM tokens WHERE tenant_id = ? AND dedup_hash = ?"
            " ORDER BY created_at_ns, id LIMIT 1",
            (tenant_id, dedup_hash),
        )
        return None if row is None else _token(*row)

    def update_token(self, token: Token) -> None:
        old = self.token(token.tenant_id, token.id)
        if old is None:
            raise StoreError("a token that is updated must exist; it does not")
        assert old.created_at_ns == token.created_at_ns, "a token's creation never changes"
        self._erases, self._knows_deadline = True, False
        self._run(
            "UPDATE tokens SET dedup_hash = ?, cvc_until_ns = ?, record = ?, sealed_data = ?"
            f" WHERE {_BY_ID}",
            (
                token.dedup_hash,
                token.cvc_until_ns,
                _encode(token),
                token.sealed_data,
                token.tenant_id,
                token.id,
            ),
        )
        before, after = set(_term_rows([old])), set(_term_rows([token]))
        self._drop_terms(list(before - after))
        self._many("INSERT INTO token_terms VALUES (?, ?, ?, ?)", list(after - before))

    def _drop_terms(self, rows: Sequence[Sequence[Any]]) -> None:
        self._many(
            "DELETE FROM token_terms WHERE tenant_id = ? AND term = ? AND created_at_ns = ?"
            " AND id = ?",
            rows,
        )

    def delete_token(self, tenant_id: str, token_id: str) -> bool:
        token = self.token(tenant_id, token_id)
        if token is None:
            return False
        self._erases, self._knows_deadline = True, False
        self._run(f"DELETE FROM tokens WHERE {_BY_ID}", (tenant_id, token_id))
        self._drop_terms(_term_rows([token]))
        self._delete_answers(token_id)
        return True

    def find_tokens(
        self,
        tenant_id: str,
        chosen: TokenFilter,
        *,
        after: Cursor | None = None,
        size: int,
        has_data: bool = True,
    ) -> Sequence[Token]:
        place = self._place(f"tokens WHERE {_BY_ID}", (tenant_id,), after)
        if place is None:
            return []
        page: list[Token] = []
        walks = self._walks(tenant_id, token_unions(chosen), place, has_data=has_data)
        try:
            for _, *row in heapq.merge(*walks):
                if len(page) == size:
                    break
                token = _token(*row)
                if token_matches(token, chosen):
                    page.append(token)
        except sqlite3.Error as error:
            raise store_error(error) from error
        finally:
            for walk in walks:
                walk.close()  # an open one would keep the log from being emptied
        return page

    def count_tokens(self, tenant_id: str) -> int:
        count: int = self._one("SELECT count(*) FROM tokens WHERE tenant_id = ?", (tenant_id,))[0]
        return count

    def _walks(
        self, tenant_id: str, unions: Sequence[Union], place: tuple[int, str], *, has_data: bool
    ) -> Sequence[sqlite3.Cursor]:
        execute, data = self._connection.execute, "sealed_data" if has_data else "x''"
        if not unions:
            return [self._execute(execute, _WALK.format(data=data), (tenant_id, *place))]
        narrowest = unions[0]
        if len(unions) > 1:
            narrowest = min(unions, key=lambda union: self._width(tenant_id, union))
        walk = _WALK_TERM.format(data=data)
        return [self._execute(execute, walk, (tenant_id, term, *place)) for term in narrowest]

    def _width(self, tenant_id: str, union: Union) -> int:
        width = 0
        for term in union:
            width += self._one(
                "SELECT count(*) FROM (SELECT 1 FROM token_terms"
                " WHERE tenant_id = ? AND term = ? LIMIT ?)",
                (tenant_id, term, _MAX_COUNTED - width),
            )[0]
            if width >= _MAX_COUNTED:
                break
        return width

    # logs
    def add_log(self, entry: LogEntry) -> None:
        self._run(f"INSERT INTO logs ({_LOG}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", astuple(entry))

    def find_logs(
        self, tenant_id: str, chosen: LogFilter, *, after: Cursor | None = None, size: int
    ) -> Sequence[LogEntry]:
        place = (-1, -1)
        if after is not None:
            at_ns, entry_id = cursor_place(after)
            known = self._one(f"SELECT at_ns, seq FROM logs WHERE {_BY_ID}", (tenant_id, entry_id))
            if known is None and at_ns is None:
                return []
            # One that expired did so with all entries of its instant.
            place = (at_ns or 0, _LAST_SEQ) if known is None else known
        index, tests, values = "logs_listed", "", []
        for test, value, by in (
            ("entity_type = ?", chosen.entity_type, "logs_by_type"),
            ("entity_id = ?", chosen.entity_id, "logs_by_entity"),
            ("at_ns >= ?", chosen.from_ns, ""),
            ("at_ns < ?", chosen.before_ns, ""),
        ):
            if value is not None:
                tests += f" AND {test}"
                values.append(value)
                index = by or index
        rows = self._all(
            f"SELECT {_LOG} FROM logs INDEXED BY {index}"
            f" WHERE tenant_id = ? AND (at_ns, seq) > (?, ?){tests} ORDER BY at_ns, seq LIMIT ?",
            (tenant_id, *place, *values, size),
        )
        return [LogEntry(*row) for row in rows]

    def expire_logs(self, tenant_id: str, before_ns: int, *, size: int | None = None) -> int:
        return self._run(
            "DELETE FROM logs WHERE seq IN"
            " (SELECT seq FROM logs WHERE tenant_id = ? AND at_ns < ? LIMIT ?)",
            (tenant_id, before_ns, -1 if size is None else size),
        ).rowcount

    # retention
    @property
    def next_deadline_ns(self) -> int | None:
        with self._lock:
            if not self._knows_deadline:
                if not self._is_open:
                    with self.transaction(write=False):
                        return self.next_deadline_ns
                cvc = self._one(
                    "SELECT min(cvc_until_ns) FROM tokens WHERE cvc_until_ns IS NOT NULL"
                )
                document = self._one(
                    "SELECT min(until_ns) FROM documents WHERE until_ns IS NOT NULL"
                )
                deadlines = (*cvc, *document)
                self._deadline_ns = min((at for at in deadlines if at is not None), default=None)
                self._knows_deadline = True
            return self._deadline_ns

    def expire(
        self, now_ns: int, without_cvc: WithoutCvc = drop_cvc, *, size: int | None = None
    ) -> int:
        assert self._writes, "a write must stand in a transaction that writes"
        most = -1 if size is None else size
        cvcs = self._all(
            "SELECT id, record, sealed_data FROM tokens WHERE cvc_until_ns <= ? LIMIT ?",
            (now_ns, most),
        )
        for row in cvcs:
            self.update_token(without_cvc(_token(*row)))
        documents = self._all(
            "SELECT kind, id FROM documents WHERE until_ns <= ? LIMIT ?", (now_ns, most)
        )
        for kind, record_id in documents:
            self.delete(_KIND_OF[kind], record_id)
        self._knows_deadline = False
        return len(cvcs) + len(documents)

    def latest_ns(self) -> int:
        row = self._one("SELECT value FROM state WHERE name = 'latest_ns'")
        return 0 if row is None else row[0]

    def put_latest_ns(self, steady_ns: int) -> None:
        self._run(
            "INSERT INTO state VALUES ('latest_ns', ?1)"
            " ON CONFLICT (name) DO UPDATE SET value = max(value, ?1)",
            (steady_ns,),
        )

    # secrets and work
    def secret(self, name: str) -> bytes | None:
        row = self._one("SELECT wrapped FROM secrets WHERE name = ?", (name,))
        return None if row is None else row[0]

    def put_secret(self, name: str, wrapped: bytes) -> None:
        self._erases = True
        self._run(
            "INSERT INTO secrets VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET wrapped = ?2",
            (name, wrapped),
        )

    def secrets(self) -> Mapping[str, bytes]:
        return dict(self._all("SELECT name, wrapped FROM secrets"))

    def open_work(self, entry: LogEntry) -> None:
        self._run(f"INSERT INTO work ({_LOG}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", astuple(entry))

    def close_work(self, work_id: str) -> None:
        self._run("DELETE FROM work WHERE id = ?", (work_id,))

    def unfinished_work(self) -> Sequence[LogEntry]:
        return [LogEntry(*row) for row in self._all(f"SELECT {_LOG} FROM work ORDER BY at_ns, id")]

    def abandoned_work(self) -> Sequence[LogEntry]:
        before = {entry.id for entry in self._abandoned}
        return [entry for entry in self.unfinished_work() if entry.id in before]
