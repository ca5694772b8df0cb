"""The instants of a file of arrivals, as the clients of an open loop replay them.

What it is not: the replay of an access log through the limits (`simulator.study.replay`); here only
the instants matter, and the scenario says who asks for what.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path

from engine.errors import InputError
from simulator.scenario.draws import ReplayArrivals

__all__ = ["ReplayedInstants"]


class ReplayedInstants:
    """Files of arrivals, each read once a run."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[Path, str | None], list[int]] = {}

    def of(self, replay: ReplayArrivals) -> Iterator[int]:
        """Yield floor((t − t₀) / speed) of each line, sorted.

        Raises `InputError` with file:line for a file that cannot be read.
        """
        place = (replay.file.file, replay.column)
        stamps = self._known.get(place)
        if stamps is None:
            stamps = self._known[place] = _stamps(replay)
        first_ns = stamps[0]
        return ((at_ns - first_ns) // replay.speed for at_ns in stamps)


def _stamps(replay: ReplayArrivals) -> list[int]:
    path = replay.file.file
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            stamps = sorted(_read(replay, lines))
    except (OSError, UnicodeDecodeError) as fault:
        reason = getattr(fault, "strerror", None) or "it is no UTF-8 text"
        raise InputError(f"{path} must be a readable file of arrival times; {reason}") from None
    if not stamps:
        raise InputError(f"{path} must hold at least one arrival time; it holds none")
    return stamps


def _read(replay: ReplayArrivals, lines: Iterable[str]) -> Iterator[int]:
    from simulator.logs._values import StampError, clock_for  # noqa: PLC0415 # reason: readers of logs bring all of Arrow

    seconds, iso = clock_for("s"), clock_for("iso")
    for number, text in _texts(replay, lines):
        read = seconds if text.lstrip("-").replace(".", "", 1).isdigit() else iso
        try:
            yield read(text)
        except StampError as fault:
            raise InputError(f"{replay.file.file}:{number}:1: {fault}") from None


def _texts(replay: ReplayArrivals, lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    if replay.column is None:
        for number, line in enumerate(lines, start=1):
            text = line.strip()
            if text and not text.startswith("#"):
                yield number, text
        return
    rows = csv.DictReader(lines)
    if replay.column not in (rows.fieldnames or ()):
        known = ", ".join(rows.fieldnames or ())
        raise InputError(
            f"{replay.file.file}:1:1: column = {replay.column!r} must be in the header; "
            f"it has {known}"
        )
    for row in rows:
        yield rows.line_num, (row[replay.column] or "").strip()
