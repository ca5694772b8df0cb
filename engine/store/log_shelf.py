"""The log entries of one tenant in memory, in order of (at_ns, arrival)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from engine.model import LogEntry
from engine.store.catalogue import Catalogue, Key
from engine.store.protocol import LogFilter, cursor_place
from engine.store.selection import Term, log_matches, log_terms, log_unions

__all__ = ["LogShelf", "Numbered"]

Numbered: TypeAlias = tuple[int, LogEntry]
"""An entry with the number of its arrival."""


def _key_of(numbered: Numbered) -> Key:
    arrival, entry = numbered
    return (entry.at_ns, arrival, entry.id)


def _terms_of(numbered: Numbered) -> list[Term]:
    return log_terms(numbered[1])


class LogShelf(Catalogue[Numbered]):
    """Log entries in order, and indexed by their terms.

    `arrivals` counts the entries that ever arrived; it is open to the store, which numbers them.
    """

    __slots__ = ("_earliest_ns", "arrivals")

    def __init__(self) -> None:
        super().__init__(_key_of, _terms_of)
        self.arrivals = 0
        self._earliest_ns: int | None = None  # at or before every entry; None: there is none

    def put(self, numbered: Numbered) -> None:
        """Add a new entry, or bring one back."""
        entry = numbered[1]
        entry_id, at_ns = entry.id, entry.at_ns
        self.records[entry_id] = numbered
        self.fresh.append(entry_id)
        if self._earliest_ns is None or at_ns < self._earliest_ns:
            self._earliest_ns = at_ns

    def find(self, chosen: LogFilter, after: str | None, size: int) -> Sequence[LogEntry]:
        """Return at most `size` chosen entries in order, after a cursor."""
        place: Key | None = None
        if after is not None:
            at_ns, entry_id = cursor_place(after)
            known = self.records.get(entry_id)
            if known is not None:
                place = _key_of(known)
            elif at_ns is not None:  # it expired, and with it all entries of its instant
                place = (at_ns + 1,)
            else:
                return []
        if chosen.from_ns is not None:
            place = max(place or (), (chosen.from_ns,))
        found = self.page(
            log_unions(chosen),
            lambda numbered: log_matches(numbered[1], chosen),
            after=place,
            before=None if chosen.before_ns is None else (chosen.before_ns,),
            size=size,
        )
        return [entry for _, entry in found]

    def expire(self, before_ns: int, size: int | None = None) -> list[Numbered]:
        """Take out and return the entries of instants before `before_ns`, `size` at most."""
        if self._earliest_ns is None or self._earliest_ns >= before_ns:
            return []
        gone = [self.remove(key[-1]) for key in self.before((before_ns,))[:size]]
        first = self.first()
        self._earliest_ns = None if first is None else first[0]
        return gone
