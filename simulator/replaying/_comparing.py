"""Two limit tables over the same arrivals: who gains and who loses by the new one.

A request is gained when the old table refused it and the new one lets it in, lost the other way
round. The comparison is request by request, so what cancels out in totals is still seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simulator.replaying._arrivals import Arrivals
from simulator.replaying._deciding import Decisions

__all__ = ["SHOWN", "compare_decisions"]

SHOWN: Final = 50
"""Keys and addresses that a summary names; the counts are of all."""

Numbers = npt.NDArray[np.int64]


def compare_decisions(arrivals: Arrivals, old: Decisions, new: Decisions) -> dict[str, Any]:
    """Return what `summary.json` says of a comparison.

    `refused_old`, `refused_new`, `gained` and `lost` count requests, in total, by clause (by the
    clause that refused, the reported one where several did), by key and by address; of keys and
    addresses the `SHOWN` with the most changed requests are named, and `keys_changed` and
    `ips_changed` say how many there are.
    """
    gained = new.passed & ~old.passed
    lost = old.passed & ~new.passed
    masks = (~old.passed, ~new.passed, gained, lost)
    keys, keys_changed = _by(arrivals, masks, lambda party: arrivals.parties[party].key)
    ips, ips_changed = _by(arrivals, masks, lambda party: arrivals.parties[party].ip)
    return {
        **{name: int(mask.sum()) for name, mask in zip(_COUNTS, masks, strict=True)},
        "clauses": _by_clause(old, new, gained, lost),
        "keys_changed": keys_changed,
        "keys": keys,
        "ips_changed": ips_changed,
        "ips": ips,
    }


_COUNTS: Final = ("refused_old", "refused_new", "gained", "lost")


def _by_clause(
    old: Decisions, new: Decisions, gained: npt.NDArray[np.bool_], lost: npt.NDArray[np.bool_]
) -> list[dict[str, Any]]:
    """Count by clause: what it gained is what it refused before, what it lost it refuses now."""
    lines: dict[str, dict[str, Any]] = {}
    for decisions, refused, changed, mask in (
        (old, "refused_old", "gained", gained),
        (new, "refused_new", "lost", lost),
    ):
        whole = _per_verdict(decisions, ~decisions.passed)
        some = _per_verdict(decisions, mask)
        for (_, rule), count, part in zip(decisions.verdicts, whole, some, strict=True):
            if rule is None or not count:
                continue
            clause = rule.partition(".")[0]
            line = lines.setdefault(clause, {"clause": clause, **dict.fromkeys(_COUNTS, 0)})
            line[refused] += count
            line[changed] += part
    return sorted(lines.values(), key=lambda line: line["clause"])


def _per_verdict(decisions: Decisions, mask: npt.NDArray[np.bool_]) -> list[int]:
    counts = np.bincount(decisions.verdict[mask], minlength=len(decisions.verdicts))
    return [int(count) for count in counts]


def _by(
    arrivals: Arrivals,
    masks: Iterable[npt.NDArray[np.bool_]],
    name_of: Callable[[int], str | None],
) -> tuple[list[dict[str, Any]], int]:
    """Count by a party's name; return the lines that changed most, and how many changed."""
    per_party = [
        np.bincount(arrivals.party[mask], minlength=len(arrivals.parties)).tolist()
        for mask in masks
    ]
    totals: dict[str | None, list[int]] = {}
    for party, counts in enumerate(zip(*per_party, strict=True)):
        if any(counts):
            total = totals.setdefault(name_of(party), [0] * len(_COUNTS))
            for place, count in enumerate(counts):
                total[place] += count
    changed: list[dict[str, Any]] = [
        {"name": name, **dict(zip(_COUNTS, counts, strict=True))}
        for name, counts in totals.items()
        if counts[2] or counts[3]
    ]
    changed.sort(key=lambda line: (-line["gained"] - line["lost"], line["name"] or ""))
    return changed[:SHOWN], len(changed)
