"""Two statements about "at most L in any W" that hold whatever the algorithm and the latency.

- *premature refusal*: even counting every request that could lie in a window of length W ending
  where the refusal was decided, fewer than L were admitted. Logs, fixed windows, buckets never do
  that; a sliding counter may, when it weighs an earlier window (`families` knows).
- *overrun*: more than k·L admissions lie provably inside one window of length W. k = 1 is the
  strict reading; no fixed window and no bucket of L per W passes k = 2.

Pure functions over sightings; `families` says which algorithm could have made a history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from conformance.probes.sightings import Sighting

__all__ = ["Premature", "broken_blocks", "premature_refusals", "provable_admissions"]

_Instants = npt.NDArray[np.int64]


class Premature(NamedTuple):
    """A refusal that came too early, and how many admissions could excuse it at most."""

    sighting: Sighting
    possible_requests: int


def _bounds(sightings: Sequence[Sighting], *outcomes: str) -> tuple[_Instants, _Instants]:
    chosen = [one for one in sightings if one.outcome in outcomes]
    sent = np.array([one.sent_ns for one in chosen], dtype=np.int64)
    received = np.array([one.received_ns for one in chosen], dtype=np.int64)
    return sent, received


def premature_refusals(
    sightings: Sequence[Sighting],
    limit_requests: int,
    window_ns: int,
    *,
    counts_refused: bool = False,
) -> list[Premature]:
    """Return the refusals that fewer than `limit_requests` admissions could excuse.

    Lost requests may have been admitted; where refused ones count too (D-COUNT all) they excuse
    as well.
    """
    counted = ("admitted", "lost", "refused") if counts_refused else ("admitted", "lost")
    sent, received = _bounds(sightings, *counted)
    sent.sort()
    received.sort()
    found = []
    for one in sightings:
        if one.outcome != "refused":
            continue
        begun = int(np.searchsorted(sent, one.received_ns, side="right"))
        gone = int(np.searchsorted(received, one.sent_ns - window_ns, side="right"))
        possible = begun - gone - (1 if counts_refused else 0)
        if possible < limit_requests:
            found.append(Premature(one, possible))
    return found


def provable_admissions(sightings: Sequence[Sighting], window_ns: int) -> int:
    """Return the most admissions that lie provably inside one window of length `window_ns`."""
    sent, received = _bounds(sightings, "admitted")
    if not len(sent):
        return 0
    best = 0
    for start_ns in np.unique(sent):
        best = max(
            best, int(np.count_nonzero((sent >= start_ns) & (received < start_ns + window_ns)))
        )
    return best


def broken_blocks(sightings: Sequence[Sighting], block_ns: int) -> list[Sighting]:
    """Return the admissions that lie provably inside the block of this counter's first refusal.

    The first refusal begins a block (LIM-BLOCK), decided between its sending and its answer. A lost
    request before it may have been the one that was beyond the rate: the block may be as old.
    """
    refused = [one for one in sightings if one.outcome == "refused"]
    if not refused:
        return []
    first_sent_ns = min(one.sent_ns for one in sightings if one.outcome in {"refused", "lost"})
    begun_ns = min(one.received_ns for one in refused)
    return [
        one
        for one in sightings
        if one.outcome == "admitted"
        and one.sent_ns > begun_ns
        and one.received_ns < first_sent_ns + block_ns
    ]
