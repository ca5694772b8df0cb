"""The `with` block around one transaction, for every store."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

__all__ = ["Block", "Transactional"]


class Transactional(Protocol):
    """An object with `begin`, `commit` and `rollback`."""

    def begin(self, *, write: bool = True) -> None:
        """Open a transaction."""
        ...

    def commit(self) -> None:
        """Keep what it did."""
        ...

    def rollback(self) -> None:
        """Undo what it did."""
        ...


class Block:
    """Begin at the top; at the end commit, or roll back when the block raised.

    A block has no state of its own: two of them, one that writes and one that only reads, serve a
    store for good.
    """

    __slots__ = ("_store", "_write")

    def __init__(self, store: Transactional, *, write: bool) -> None:
        self._store = store
        self._write = write

    def __enter__(self) -> None:
        self._store.begin(write=self._write)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._store.commit()
        else:
            self._store.rollback()
