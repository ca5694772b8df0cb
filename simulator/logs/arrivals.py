"""From a log to arrivals: ordered, scaled, and with labels in the place of secrets.

An arrival is an instant and the number of a `Party` (who asks for what). This is the form that any
way of deciding takes, one request at a time or a column at a time. The log is read once, and its
rows wait in a `Spill`; memory follows the parties.

Order is (instant, line) after a stable sort; an instant is floor((t − t0) / speed) in exact
integers, t0 the earliest in the log. Key texts end here: what comes out holds `key-0001` in order
of first appearance, or keyed hashes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from engine.errors import InputError
from engine.model import TenantKind
from simulator.logs import Kind, Log, LogBatch, LogStream
from simulator.logs.labels import name_parties
from simulator.logs.parties import Parties, Party, PartyTable
from simulator.logs.spill import RUN_ROWS, Spill, in_blocks

__all__ = ["BLOCK_ROWS", "Arrivals", "Block", "Party", "make_arrivals", "read_speed", "speed_text"]

BLOCK_ROWS: Final = 1 << 17
"""Rows a block; that of a file's row group, so that a block is written as it was decided."""

_NUMBERED_ROWS: Final = 1 << 18
_LATEST_NS: Final = 1 << 62
_SPEED: Final = re.compile(r"\d{1,12}(?:\.\d{1,12})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Block:
    """Some consecutive arrivals. t_ns: instants from the run's start. party: who asks for what."""

    t_ns: npt.NDArray[np.int64]
    party: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.t_ns)


class Arrivals:
    """The requests of a replay, to be read in decision order as often as need be.

    parties: who asks for what, in order of first appearance. start_ns, end_ns: instants of the
    first and the last request in ns since the Unix epoch (UTC), as logged. A context manager; its
    end gives back the room that the requests took.
    """

    def __init__(self, rows: Spill, table: PartyTable, parties: Parties, speed: Fraction) -> None:
        self.parties = parties
        self.start_ns, self.end_ns = table.start_ns, table.end_ns
        self._rows = rows
        self._place = table.places()
        self._speed = speed
        _check_span(self.end_ns - self.start_ns, speed)

    def __len__(self) -> int:
        return len(self._rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._rows.close()

    def blocks(self, rows: int = BLOCK_ROWS) -> Iterator[Block]:
        """Yield all arrivals, `rows` at a time."""
        for t_ns, party in in_blocks(self._rows.in_order(), rows):
            yield Block(self._scaled(t_ns), self._place[party])

    def _scaled(self, t_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return floor((t − t0) / speed), exactly."""
        times, over = self._speed.denominator, self._speed.numerator
        if (self.end_ns - self.start_ns) * times < 1 << 63:
            return np.asarray((t_ns - self.start_ns) * times // over, dtype=np.int64)
        return np.array([(t - self.start_ns) * times // over for t in t_ns.tolist()], dtype="i8")


def read_speed(speed: str | int | Fraction) -> Fraction:
    """Return how many times faster than the log the replay runs. Raises `InputError`.

    >>> read_speed("0.5")
    Fraction(1, 2)
    """
    try:
        found = Fraction(speed if not isinstance(speed, str) or _SPEED.fullmatch(speed) else 0)
    except (TypeError, ValueError, OverflowError):
        found = Fraction(0)
    if found <= 0:
        raise InputError(f"speed = {speed!r} must be a decimal number above 0, such as 1000 or 0.5")
    return found


def speed_text(speed: Fraction) -> str:
    """Return a speed as a decimal number where it is one.

    >>> speed_text(Fraction(5, 2)), speed_text(Fraction(1000)), speed_text(Fraction(1, 3))
    ('2.5', '1000', '1/3')
    """
    decimals = next((n for n in range(25) if not speed * 10**n % 1), None)
    if decimals is None:
        return str(speed)
    digits = str(int(speed * 10**decimals)).rjust(decimals + 1, "0")
    return f"{digits[:-decimals]}.{digits[-decimals:]}" if decimals else digits


def make_arrivals(
    log: Log | LogStream,
    *,
    kind: Kind,
    tenant_kind: TenantKind,
    speed: Fraction,
    pseudonym_key: bytes | None = None,
    prefix_bits: int = 128,
    folder: Path | None = None,
    run_rows: int = RUN_ROWS,
) -> Arrivals:
    """Read a log to its end; order and scale its requests, and put labels in place of key texts.

    kind, tenant_kind: of the keys of which the log says nothing.
    pseudonym_key: with it, addresses and keys become keyed hashes (HMAC-SHA-256).
    prefix_bits: what tells IPv6 clients apart (D-IP).
    folder: where requests lie meanwhile, when there are more than `run_rows`; None keeps all in
    memory.

    Raises `InputError` when the log gives one key two owners, or is too long at this speed, and as
    `LogStream.batches` does; `OSError` when the folder has no room.
    """
    rows, table = Spill(folder, run_rows=run_rows), PartyTable()
    try:
        for batch in _gathered(log.batches()):
            rows.add(batch.t_ns, table.number(batch))
        parties = name_parties(table.ordered(), log, kind, tenant_kind, pseudonym_key, prefix_bits)
        return Arrivals(rows, table, parties, speed)
    except BaseException:
        rows.close()
        raise


def _gathered(batches: Iterator[LogBatch]) -> Iterator[LogBatch]:
    """Yield the same rows in larger batches: in each, a party is looked up once."""
    held: list[LogBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += len(batch)
        if count >= _NUMBERED_ROWS:
            yield LogBatch.joined(held)
            held, count = [], 0
    if held:
        yield LogBatch.joined(held)


def _check_span(span_ns: int, speed: Fraction) -> None:
    if span_ns * speed.denominator // speed.numerator >= _LATEST_NS:
        raise InputError(
            f"speed = {speed_text(speed)} must keep the replay below 146 years; the log spans"
            f" {span_ns // 10**9} s"
        )
