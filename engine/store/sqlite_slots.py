"""Ciphertexts in cells that never move, so that overwriting one leaves no copy anywhere.

A slot is a row of `sealed`. Rows are appended, never removed; a cell is written again only with as
many bytes, which SQLite does in place. A ciphertext is padded to a size class, and an erased slot
(all zeros) is used again for the next one of its class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from engine.store.sqlite_file import Session

__all__ = ["PLAIN", "Slots", "make_cell", "open_cell", "size_class"]

PLAIN: Final = b"\0"
"""The prefix of a text that an upgrade has moved into a cell; no ciphertext has it."""

_LENGTH_BYTES: Final = 4
_SMALLEST: Final = 64


def size_class(size_bytes: int) -> int:
    """Return the cell size for a ciphertext: an eighth larger than needed at most, 64 at least.

    >>> size_class(10), size_class(61), size_class(1000)
    (64, 128, 1024)
    """
    needed = size_bytes + _LENGTH_BYTES
    step = max(_SMALLEST, 1 << max(needed.bit_length() - 4, 0))
    return -(-needed // step) * step


def make_cell(sealed: bytes) -> bytes:
    """Return the cell that holds a ciphertext."""
    framed = len(sealed).to_bytes(_LENGTH_BYTES, "big") + sealed
    return framed.ljust(size_class(len(sealed)), b"\0")


def open_cell(cell: bytes | None) -> bytes | None:
    """Return the ciphertext of a cell."""
    if cell is None:
        return None
    length_bytes = int.from_bytes(cell[:_LENGTH_BYTES], "big")
    return cell[_LENGTH_BYTES : _LENGTH_BYTES + length_bytes]


class Slots:
    """The cells of one store file."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def put(self, sealed: bytes) -> int:
        """Write a ciphertext into a slot and return its number."""
        cell = make_cell(sealed)
        free = self._session.one(
            "SELECT min(slot) FROM free_slots WHERE size_bytes = ?", (len(cell),)
        )
        slot: int | None = free[0]
        if slot is None:
            fresh = self._session.run("INSERT INTO sealed (cell) VALUES (?)", (cell,)).lastrowid
            assert fresh is not None, "an insert gives a row id"
            return fresh
        self._session.run(
            "DELETE FROM free_slots WHERE size_bytes = ? AND slot = ?", (len(cell), slot)
        )
        self._session.run("UPDATE sealed SET cell = ? WHERE slot = ?", (cell, slot))
        return slot

    def change(self, slot: int | None, sealed: bytes | None) -> int | None:
        """Let a slot hold another ciphertext, or none; return the slot that holds it now."""
        if slot is None:
            return None if sealed is None else self.put(sealed)
        if sealed is not None:
            held = self._session.one("SELECT cell FROM sealed WHERE slot = ?", (slot,))[0]
            cell = make_cell(sealed)
            if held == cell:
                return slot
            if len(held) == len(cell):
                self._session.erases()
                self._session.run("UPDATE sealed SET cell = ? WHERE slot = ?", (cell, slot))
                return slot
        self.erase([slot])
        return None if sealed is None else self.put(sealed)

    def erase(self, slots: Sequence[int]) -> None:
        """Overwrite slots with zeros, to be used again."""
        if not slots:
            return
        self._session.erases()
        numbers = [(slot,) for slot in slots]
        self._session.many(
            "UPDATE sealed SET cell = zeroblob(length(cell)) WHERE slot = ?", numbers
        )
        self._session.many(
            "INSERT INTO free_slots SELECT length(cell), slot FROM sealed WHERE slot = ?", numbers
        )
