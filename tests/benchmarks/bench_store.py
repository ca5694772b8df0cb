"""What a store costs: SQLite against bare `sqlite3`, and both stores as they fill.

The bare contestants write with the same durability (write-ahead log, full synchronisation). One
writes exactly the rows that the store writes, into the same tables; the other one row a token into
a table that has nothing but a primary key, which is less than a store needs.
"""

import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import blake2b
from itertools import count, islice
from pathlib import Path
from statistics import median
from typing import Any
from uuid import UUID

import msgspec
from rich.console import Console
from rich.table import Table

from engine.model import Key, Token
from engine.store import MemoryStore, SqliteStore, Store, TokenFilter
from engine.store.sqlite_file import SCHEMA
from tests.benchmarks._measure import Contestant, interleave, show

_TRANSACTIONS = 100
_SAMPLES = 200
_TENANT = str(UUID(int=1))
_HOUR_NS = 3_600 * 1_000_000_000


def _digest(number: int, size_bytes: int) -> bytes:
    return blake2b(b"%d" % number, digest_size=size_bytes).digest()


def _token(number: int) -> Token:
    """Return a token as tokenize makes them: every tenth is a card with a cvc."""
    is_card = number % 10 == 0
    return Token(
        id=str(UUID(bytes=_digest(number, 16))),
        tenant_id=_TENANT,
        type="card" if is_card else "token",
        container="/pci/high/" if is_card else "/general/high/",
        created_by=_TENANT,
        created_at_ns=number,
        sealed_data=_digest(number, 64),
        dedup_hash=_digest(number, 32),
        fingerprint=_digest(number, 20).hex() if is_card else None,
        index_hashes=(_digest(number, 32),) if is_card else (),
        sealed_cvc=_digest(number, 40) if is_card else None,
        cvc_until_ns=number + _HOUR_NS if is_card else None,
    )


def _batches(size: int) -> list[list[Token]]:
    tokens = map(_token, count())
    return [list(islice(tokens, size)) for _ in range(_TRANSACTIONS)]


# --- against bare sqlite3 ------------------------------------------------------------------------

_Statements = Sequence[tuple[str, Sequence[Any]]]


def _recorded(batches: Sequence[Sequence[Token]], folder: Path) -> Sequence[_Statements]:
    """Return the rows that the store writes for each batch, as statements and values."""
    written: list[list[tuple[str, Sequence[Any]]]] = []
    with closing(SqliteStore(folder / "recorded.db")) as store:
        run, many = store._run, store._many

        def record(sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
            if sql.startswith("INSERT"):
                written[-1].append((sql, values))
            return run(sql, values)

        def record_all(sql: str, rows: Sequence[Sequence[Any]]) -> None:
            written[-1].extend((sql, row) for row in rows)
            many(sql, rows)

        store._run = record  # type: ignore[method-assign]  # reason: listens in
        store._many = record_all  # type: ignore[method-assign]  # reason: listens in
        for batch in batches:
            written.append([])
            with store.transaction():
                store.add_tokens(batch)
    return written


def _bare(path: Path, tables: Sequence[str]) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    for statement in tables:
        connection.execute(statement)
    return connection


def _write_bare(
    path: Path, tables: Sequence[str], written: Sequence[_Statements]
) -> Callable[[], None]:
    connection = _bare(path, tables)

    def write() -> None:
        for statements in written:
            connection.execute("BEGIN IMMEDIATE")
            for sql, values in statements:
                connection.execute(sql, values)
            connection.execute("COMMIT")

    return write


def _write_store(path: Path, batches: Sequence[Sequence[Token]]) -> Callable[[], None]:
    store = SqliteStore(path)

    def write() -> None:
        for batch in batches:
            with store.transaction():
                store.add_tokens(batch)

    return write


def _against_bare(size: int, *, rounds: int) -> None:
    batches = _batches(size)
    plain_tables = ["CREATE TABLE tokens (id PRIMARY KEY, record BLOB)"]
    insert, pack = "INSERT INTO tokens VALUES (?, ?)", msgspec.msgpack.encode
    plain = [[(insert, (token.id, pack(token))) for token in batch] for batch in batches]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        same = _recorded(batches, folder)
        fresh = (folder / f"{number}.db" for number in count())
        contestants = [
            Contestant(
                "SqliteStore", lambda: _write_store(next(fresh), batches), _TRANSACTIONS * size
            ),
            Contestant(
                "bare, the same rows",
                lambda: _write_bare(next(fresh), SCHEMA, same),
                _TRANSACTIONS * size,
                sqlite3.sqlite_version,
            ),
            Contestant(
                "bare, one plain row a token",
                lambda: _write_bare(next(fresh), plain_tables, plain),
                _TRANSACTIONS * size,
                sqlite3.sqlite_version,
            ),
        ]
        show(
            f"SQLite with full durability, {size} token(s) a transaction",
            "tokens",
            interleave(contestants, rounds=rounds),
        )


# --- as it fills ---------------------------------------------------------------------------------


@contextmanager
def _memory() -> Iterator[Store]:
    yield MemoryStore()


@contextmanager
def _sqlite() -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as name, closing(SqliteStore(Path(name) / "b.db")) as store:
        yield store


def _fill(store: Store, first: int, size: int) -> None:
    for start in range(first, size, 1_000):
        with store.transaction():
            store.add_tokens([_token(number) for number in range(start, start + 1_000)])
            for number in range(start, min(start + 1_000, 100_000)):
                store.put(Key(f"key-{number}", _TENANT, "app", False, _digest(number, 32)))


def _operations(store: Store, size: int) -> dict[str, Callable[[int], object]]:
    """Each takes the number of a sample; samples are spread over all that is stored."""
    pages = TokenFilter(containers=("/pci/",))
    first = 1_000 * (1_000_000 + size)
    new = iter([_token(number) for number in range(first, first + 2 * _SAMPLES)])
    step = max(1, size // _SAMPLES)
    return {
        "add one": lambda _: store.add_tokens([next(new)]),
        "by id": lambda n: store.token(_TENANT, str(UUID(bytes=_digest(n * step, 16)))),
        "duplicate": lambda n: store.duplicate(_TENANT, _digest(n * step, 32)),
        "page of 20": lambda n: store.find_tokens(
            _TENANT, pages, after=f"{n * step // 2}:", size=20
        ),
        "search": lambda n: store.find_tokens(
            _TENANT, TokenFilter(index_hash=_digest(n * step // 10 * 10, 32)), size=20
        ),
        "key": lambda n: store.key_by_hash(_digest(n * step % 100_000, 32)),
        "deadline": lambda _: store.next_deadline_ns,
        "expire none": lambda _: store.expire(0),
    }


def _cost_us(store: Store, operation: Callable[[int], object]) -> float:
    """Return the median time of the operation in a transaction of its own, in µs."""
    taken_ns = []
    for number in range(_SAMPLES):
        start_ns = time.perf_counter_ns()
        with store.transaction():
            operation(number)
        taken_ns.append(time.perf_counter_ns() - start_ns)
    return median(taken_ns) / 1_000


def _curve(title: str, opened: Callable[[], Any], sizes: Sequence[int]) -> None:
    costs: dict[str, list[float]] = {}
    with opened() as store:
        filled = 0
        for size in sizes:
            _fill(store, filled, size)
            filled = size
            for name, operation in _operations(store, size).items():
                _cost_us(store, operation)  # what is settled at the first read, caches
                costs.setdefault(name, []).append(_cost_us(store, operation))
    table = Table(title=title, title_justify="left")
    table.caption = f"µs an operation and its transaction, median of {_SAMPLES}"
    table.add_column("operation")
    for size in sizes:
        table.add_column(f"{size:,} tokens", justify="right")
    table.add_column("last / first", justify="right")
    for name, values in costs.items():
        cells = [f"{value:.3g}" for value in values]
        table.add_row(name, *cells, f"{values[-1] / values[0]:.2f}")
    Console(width=100).print(table)


def main(*, big: bool) -> None:
    """Print the ratios to bare `sqlite3` and the curves; `big` fills SQLite to a million too."""
    for size in (1, 5):
        _against_bare(size, rounds=15 if big else 7)
    _curve("MemoryStore", _memory, (1_000, 10_000, 100_000, 1_000_000))
    _curve("SqliteStore", _sqlite, (1_000, 10_000, 100_000) + (1_000_000,) * big)
