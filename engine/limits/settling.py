"""Giving charges back, where only successful requests count (D-COUNTED, only 2xx).

A request is decided at its arrival, before its answer is known, so it is charged then; an answer
other than 2xx gives the charge back. From that moment on the counter is as if the request had
never been made: later charges are undone, last first, and made again without it. Decisions about
other requests meanwhile are not revised, nor are the blocks that they began.

A counter keeps a journal from its oldest unsettled charge on; without requests in flight it is
empty, and a charge that is given back at once costs one undo.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from engine.limits.algorithms import BLOCK, LAST, PLACE, READY, Charge, grow_ring
from engine.messages import Decision

__all__ = ["Entry", "Journal", "PendingDecision", "make_charge"]


class Entry:
    """One charge: its instant, what it overwrote, and whether its answer was a success yet."""

    __slots__ = ("line", "settled", "slot_ns", "t_ns")

    def __init__(self, t_ns: int) -> None:
        self.t_ns = t_ns
        self.line: list[int] = []
        self.slot_ns = 0
        self.settled = False


@dataclass(frozen=True, slots=True)
class PendingDecision(Decision):
    """A decision whose charges may still be given back: hand it to `Limiter.settle`."""

    settle_with: tuple[Any, ...] = field(default=(), repr=False, compare=False)


def make_charge(
    charge: Charge, line: list[int], ring: list[int], row: tuple[int, ...], t_ns: int
) -> None:
    """Charge one request, growing the ring where the algorithm asks for a slot more."""
    try:
        charge(line, ring, row, t_ns)
    except IndexError:
        grow_ring(ring, row[0])
        charge(line, ring, row, t_ns)


class Journal:
    """The charges of one counter from its oldest unsettled one on."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        """Forget all: the counter was cleared, and there is nothing left to give back."""
        self._entries.clear()

    def charge(
        self, charge: Charge, line: list[int], ring: list[int], row: tuple[int, ...], t_ns: int
    ) -> Entry:
        """Charge one request and remember how to undo it."""
        entry = Entry(t_ns)
        self._charge(entry, charge, line, ring, row)
        return entry

    def keep(self, entry: Entry) -> None:
        """The answer was a success: the charge stays."""
        entry.settled = True
        self._trim()

    def give_back(
        self, entry: Entry, charge: Charge, line: list[int], ring: list[int], row: tuple[int, ...]
    ) -> None:
        """The answer was no success: undo this charge and those after it, and redo the latter."""
        place = next((i for i, each in enumerate(self._entries) if each is entry), None)
        if place is None:
            return  # the counter was cleared since
        block_until_ns = line[BLOCK]
        undone = [self._entries.pop() for _ in range(len(self._entries) - place)]
        for each in undone:
            line[:] = each.line
            if line[PLACE] < len(ring):
                ring[line[PLACE]] = each.slot_ns
        for each in undone[-2::-1]:
            self._charge(each, charge, line, ring, row)
        line[BLOCK] = block_until_ns
        line[READY] = max(line[READY], block_until_ns)
        self._trim()

    def _charge(
        self,
        entry: Entry,
        charge: Charge,
        line: list[int],
        ring: list[int],
        row: tuple[int, ...],
    ) -> None:
        entry.line = line.copy()
        entry.slot_ns = ring[line[PLACE]] if line[PLACE] < len(ring) else 0
        make_charge(charge, line, ring, row, entry.t_ns)
        line[LAST] = entry.t_ns
        self._entries.append(entry)

    def _trim(self) -> None:
        while self._entries and self._entries[0].settled:
            self._entries.popleft()
