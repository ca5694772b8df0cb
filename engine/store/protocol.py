"""The store's protocol: what the engine needs of the place that keeps its records.

Two implementations obey it and one suite tests both: `memory` (simulation) and `sqlite` (a server;
a kill at any instant leaves each request whole or undone). The store knows no rule of the service
and no secret: it gets sealed bytes and keyed hashes.

Every call stands inside one `transaction()`. A transaction is one request or one step of one, is
never open across an await, and is atomic: when its block raises, nothing of it has happened.
Transactions of one store, in all its threads, come one after the other; they do not nest. After a
`StoreError` inside one, the transaction is to be given up.

Pure functions, which both stores share, say which records a filter chooses. A *term* is a short
byte string that a record is filed under; a filter is turned into *unions* of terms, each of which
covers everything that the filter can choose. A store reads the smallest union it knows and checks
each record with `token_matches` or `log_matches`: the terms make it fast, the check correct.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final, Protocol, Self, TypeAlias, TypeVar, cast

from msgspec.structs import replace

from engine.model import (
    Application,
    EncryptionKey,
    Intent,
    Job,
    JobResult,
    KeptAnswer,
    Key,
    LogEntry,
    Proxy,
    Reactor,
    Tenant,
    Token,
)

Document: TypeAlias = (
    Tenant
    | Application
    | Key
    | EncryptionKey
    | Reactor
    | Proxy
    | Job
    | JobResult
    | Intent
    | KeptAnswer
)
"""Records kept whole, looked up by id, and few enough to be listed by tenant."""

D = TypeVar("D", bound=Document)

UNCACHED: Final = frozenset({Job, JobResult, Intent, KeptAnswer})
"""Documents that no request reads to know its caller; their changes make no copy stale."""

Cursor: TypeAlias = str
"""The last record of a page, as `cursor` returns it or as an id; the next page starts after it.

An id works only while its record exists. `cursor` also holds the record's instant, so that a caller
who deletes a page before asking for the next one misses nothing.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFilter:
    """Which tokens of a tenant; None = any.

    containers: a token is in one when its path is that path or lies below it (D-GRANT).
    index_hash: the keyed hash of a searched value (POST /tokens/search).
    metadata: pairs that must all be equal.
    """

    containers: tuple[str, ...] | None = None
    type: str | None = None
    fingerprint: str | None = None
    index_hash: bytes | None = None
    metadata: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFilter:
    """Which log entries of a tenant; instants are half-open [from_ns, before_ns)."""

    entity_type: str | None = None
    entity_id: str | None = None
    from_ns: int | None = None
    before_ns: int | None = None


_LAST_NS: Final = 2**63 - 1


def cursor(record: Token | LogEntry | Document) -> Cursor:
    """Return the cursor that continues after the record, even if it is deleted meanwhile.

    >>> cursor(LogEntry("an-id", "tenant", 12, "token:create", "token", "t", None, 200))
    '12:an-id'
    """
    at_ns = record.at_ns if isinstance(record, LogEntry) else record.created_at_ns
    return f"{at_ns}:{record.id}"


def cursor_place(after: Cursor) -> tuple[int | None, str]:
    """Return the instant (ns; None when it names none) and the id of a cursor.

    >>> cursor_place("12:an-id"), cursor_place("an-id")
    ((12, 'an-id'), (None, 'an-id'))
    """
    instant, colon, record_id = after.rpartition(":")
    if not (colon and instant.isascii() and instant.isdigit() and len(instant) <= 19):
        return None, record_id
    return min(int(instant), _LAST_NS), record_id


WithoutCvc: TypeAlias = Callable[[Token], Token]
"""Makes a token without its cvc and without what was derived from the cvc."""


def drop_cvc(token: Token) -> Token:
    """Remove the cvc of a token from whose cvc nothing was derived."""
    return replace(token, sealed_cvc=None, cvc_until_ns=None)


def owner_of(record: Document) -> str:
    """Return the tenant that a document is listed under; tenants stand under none."""
    return "" if isinstance(record, Tenant) else record.tenant_id


def unique_names(record: Document) -> list[bytes]:
    """Return the names, besides its id, that no two documents may share."""
    if isinstance(record, Key):
        return [b"k" + record.text_hash]
    if isinstance(record, Proxy):
        host = [] if record.host is None else [b"h" + record.host.encode()]
        return [b"p" + record.key_hash, *host]
    return []


class Store(Protocol):
    """Keeps records. Call every method inside a transaction unless its docstring says otherwise."""

    persistent: bool
    """True when the records outlive the process (a seed is refused then)."""

    documents_version: int
    """A number that changes with every change of a document.

    Equal numbers mean unchanged documents, except for kinds that are not cached (intents, jobs and
    their results, kept answers). May be read outside of a transaction too: every request does.
    """

    @contextmanager
    def transaction(self, *, write: bool = True) -> Iterator[None]:
        """Open the one transaction of a step; commit at the end of the block, undo on raise.

        With `write=False` the block only reads, which is cheaper; a write in it is an
        AssertionError.
        """
        self.begin(write=write)
        try:
            yield
        except BaseException:
            self.rollback()
            raise
        self.commit()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, *, write: bool = True) -> None:
        """Open a transaction by hand, where a context manager costs too much.

        `commit` or `rollback` must follow from the same thread, whatever happens between. Raises
        `StoreBusy` where another program has the file locked.
        """

    def commit(self) -> None:
        """Make what the transaction did last; when this raises, nothing of it has happened."""

    def rollback(self) -> None:
        """Undo what the transaction did."""

    def truncate_log(self) -> bool:
        """Leave nothing of deleted data beside the records, outside of a transaction.

        Called from time to time, in any thread. False when another program prevents it.
        """
        return True

    def probe(self) -> None:
        """Write and read back, in no transaction; raises `StoreError` where that cannot be done."""
        return

    def close(self) -> None:
        """Give everything back; the store is not used afterwards."""

    # documents
    def put(self, record: Document) -> None:
        """Insert the record, or replace the one of the same class and id.

        Raises:
            StoreError: another record has its key hash, proxy-key hash or hostname.
        """

    def get(self, kind: type[D], record_id: str) -> D | None:
        """Return the record of that class and id."""

    def delete(self, kind: type[D], record_id: str) -> bool:
        """Remove it and the kept answers that show it; False when there is none."""

    def list(
        self, kind: type[D], tenant_id: str, *, after: Cursor | None = None, size: int | None = None
    ) -> Sequence[D]:
        """Return a tenant's records of that class in order of (created_at_ns, id)."""

    def tenants(self) -> Sequence[Tenant]:
        """Return all tenants in order of (created_at_ns, id)."""
        return self.list(Tenant, "")

    def key_by_hash(self, text_hash: bytes) -> Key | None:
        """Return the API key of that text hash."""
        return cast("Key | None", self._named(b"k" + text_hash))

    def proxy_by_hash(self, key_hash: bytes) -> Proxy | None:
        """Return the proxy of that proxy-key hash."""
        return cast("Proxy | None", self._named(b"p" + key_hash))

    def proxy_by_host(self, host: str) -> Proxy | None:
        """Return the proxy of that custom hostname (lower case, no port)."""
        return cast("Proxy | None", self._named(b"h" + host.encode("utf-8", "replace")))

    def _named(self, name: bytes) -> Document | None:
        """Return the document that has one of its `unique_names`."""

    # tokens
    def add_tokens(self, tokens: Sequence[Token]) -> None:
        """Insert new tokens.

        Raises:
            StoreError: an id is taken.
        """

    def token(self, tenant_id: str, token_id: str) -> Token | None:
        """Return a tenant's token."""

    def duplicate(self, tenant_id: str, dedup_hash: bytes) -> Token | None:
        """Return the oldest (created_at_ns, id) token of that hash (D-DEDUP-KEY)."""

    def update_token(self, token: Token) -> None:
        """Replace the token of the same tenant, id and created_at_ns, overwriting what it held.

        Raises:
            StoreError: there is none.
        """

    def delete_token(self, tenant_id: str, token_id: str) -> bool:
        """Remove a token and the kept answers that show it; False when there is none."""

    def find_tokens(
        self,
        tenant_id: str,
        chosen: TokenFilter,
        *,
        after: Cursor | None = None,
        size: int,
        has_data: bool = True,
    ) -> Sequence[Token]:
        """Return at most `size` chosen tokens in order of (created_at_ns, id), after a cursor.

        has_data: False where nobody reads the sealed data, which may be large and is left out then.
        A cursor that names a deleted token by its id alone gives an empty page; one of
        `cursor` goes on where that token stood.
        """

    def count_tokens(self, tenant_id: str) -> int:
        """Return how many tokens the tenant holds."""

    # logs
    def add_log(self, entry: LogEntry) -> None:
        """Append a log entry."""

    def find_logs(
        self, tenant_id: str, chosen: LogFilter, *, after: Cursor | None = None, size: int
    ) -> Sequence[LogEntry]:
        """Return at most `size` entries in order of (at_ns, arrival), after a cursor."""

    # retention
    @property
    def next_deadline_ns(self) -> int | None:
        """The earliest deadline of a cvc, an intent or a kept answer.

        May be read outside of a transaction too: every request does.
        """

    def expire(
        self, now_ns: int, without_cvc: WithoutCvc = drop_cvc, *, size: int | None = None
    ) -> int:
        """Erase every cvc, intent and kept answer due by `now_ns`; returns how many.

        size: about how many at most, of each kind; the rest stays due.
        without_cvc: makes the token without its cvc; may be called only for tokens whose
        expressions use the cvc.
        """

    def expire_logs(self, tenant_id: str, before_ns: int, *, size: int | None = None) -> int:
        """Erase a tenant's log entries older than `before_ns` (at_ns < before_ns), `size` at most.

        Returns how many.
        """

    def latest_ns(self) -> int:
        """Return the latest instant that `put_latest_ns` was given; 0 before."""
        return 0

    def put_latest_ns(self, steady_ns: int) -> None:
        """Remember an instant, for a later process whose clock was set back."""
        del steady_ns  # memory has no later process

    # the vault's own: wrapped data keys and other small secrets, by name
    def secret(self, name: str) -> bytes | None:
        """Return the wrapped secret of that name."""
        return self.secrets().get(name)

    def put_secret(self, name: str, wrapped: bytes) -> None:
        """Insert or replace a wrapped secret."""

    def secrets(self) -> Mapping[str, bytes]:
        """Return all wrapped secrets by name (for key rotation)."""

    # Work under way, of operations that await the world: begin, await, finish.
    def open_work(self, entry: LogEntry) -> None:
        """Remember that an operation has begun, by what its log shall say if it never finishes.

        entry: its id is the work's, its `at_ns` when it began.

        Raises:
            StoreError: the id is taken.
        """

    def close_work(self, work_id: str) -> None:
        """Forget it: it has finished."""

    def unfinished_work(self) -> Sequence[LogEntry]:
        """Return what has begun and not finished, in order of (at_ns, id)."""

    def abandoned_work(self) -> Sequence[LogEntry]:
        """Return those of `unfinished_work` that a process before this one has begun."""
        return []


Term: TypeAlias = bytes
Union: TypeAlias = Sequence[Term]

_ROOT_PATH: Final = "/"
_MAX_ANCESTORS: Final = 8
"""How many ancestors a token is filed under; bounded, so that a long path costs little."""


def _path(container: str) -> str:
    return container if container.endswith("/") else container + "/"


@lru_cache(maxsize=1024)
def _ancestors(container: str) -> tuple[str, ...]:
    """Return each path below the root down to the container, `_MAX_ANCESTORS` at most."""
    path = _path(container)
    paths: list[str] = []
    end = path.find("/", 1)
    while end >= 0 and len(paths) < _MAX_ANCESTORS:
        paths.append(path[: end + 1])
        end = path.find("/", end + 1)
    return tuple(paths)


def _metadata_term(name: str, value: str) -> Term:
    """Return a digest, because values are long; `token_matches` makes the final check."""
    text = f"{len(name)}:{name}{value}".encode()
    return b"m" + blake2b(text, digest_size=16).digest()


def token_terms(token: Token) -> list[Term]:
    """Return every term that the token is filed under, each once."""
    terms = [b"c" + path.encode() for path in _ancestors(token.container)]
    terms.append(b"t" + token.type.encode())
    if token.fingerprint is not None:
        terms.append(b"f" + token.fingerprint.encode())
    if token.index_hashes:
        terms += {b"h" + index_hash for index_hash in token.index_hashes}
    if token.metadata:
        terms += [_metadata_term(name, value) for name, value in token.metadata.items()]
    return terms


def token_unions(chosen: TokenFilter) -> list[Union]:
    """Return the unions of terms that cover the filter; none when every token has to be judged."""
    unions: list[Union] = []
    if chosen.index_hash is not None:
        unions.append((b"h" + chosen.index_hash,))
    if chosen.fingerprint is not None:
        unions.append((b"f" + chosen.fingerprint.encode(),))
    unions += [(_metadata_term(name, value),) for name, value in chosen.metadata]
    if chosen.type is not None:
        unions.append((b"t" + chosen.type.encode(),))
    if chosen.containers is not None and _ROOT_PATH not in chosen.containers:
        paths = sorted({_ancestors(container)[-1] for container in chosen.containers})
        outermost: list[str] = []  # a token below two of them would come twice
        for path in paths:
            if not outermost or not path.startswith(outermost[-1]):
                outermost.append(path)
        unions.append([b"c" + path.encode() for path in outermost])
    return unions


def _lies_in(container: str, chosen: Iterable[str]) -> bool:
    path = _path(container)
    return any(path.startswith(_path(above)) for above in chosen)


def token_matches(token: Token, chosen: TokenFilter) -> bool:
    """Return whether the filter chooses the token; containers by whole segments (D-GRANT)."""
    metadata = token.metadata or {}
    return (
        (chosen.containers is None or _lies_in(token.container, chosen.containers))
        and chosen.type in (None, token.type)
        and chosen.fingerprint in (None, token.fingerprint)
        and (chosen.index_hash is None or chosen.index_hash in token.index_hashes)
        and all(metadata.get(name) == value for name, value in chosen.metadata)
    )


def log_terms(entry: LogEntry) -> list[Term]:
    """Return the terms that a log entry is filed under."""
    return [b"i" + entry.entity_id.encode(), b"t" + entry.entity_type.encode()]


def log_unions(chosen: LogFilter) -> list[Union]:
    """Return the unions of terms that cover the filter; none when every entry has to be judged."""
    unions: list[Union] = []
    if chosen.entity_id is not None:
        unions.append((b"i" + chosen.entity_id.encode(),))
    if chosen.entity_type is not None:
        unions.append((b"t" + chosen.entity_type.encode(),))
    return unions


def log_matches(entry: LogEntry, chosen: LogFilter) -> bool:
    """Return whether the filter chooses the entry; instants are half-open."""
    return (
        chosen.entity_type in (None, entry.entity_type)
        and chosen.entity_id in (None, entry.entity_id)
        and (chosen.from_ns is None or entry.at_ns >= chosen.from_ns)
        and (chosen.before_ns is None or entry.at_ns < chosen.before_ns)
    )
