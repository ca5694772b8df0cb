"""Two limit tables over the same arrivals: who gains and who loses by the new one.

A request is gained when the old table refused it and the new one lets it in, lost the other way
round. The comparison is request by request, so what cancels out in totals is still seen.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simulator.logs.arrivals import Arrivals
from simulator.logs.parties import Texts
from simulator.play.decisions import Decisions, Told

__all__ = ["SHOWN", "Comparison"]

SHOWN: Final = 50
"""Keys and addresses that a summary names; the counts are of all."""

_COUNTS: Final = ("refused_old", "refused_new", "gained", "lost")

Numbers = npt.NDArray[np.int64]


class Comparison:
    """Takes what two tables decided about the same blocks, and counts by party and by verdict."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self._per_party: Numbers = np.zeros((len(_COUNTS), len(arrivals.parties)), dtype=np.int64)
        self._of_old = _PerVerdict()
        self._of_new = _PerVerdict()

    def take(self, old: Decisions, new: Decisions) -> None:
        """Count what the older and the newer table say of one block."""
        old_passed, new_passed = old.passed, new.passed
        gained, lost = new_passed & ~old_passed, old_passed & ~new_passed
        party = new.block.party
        parties = len(self._arrivals.parties)
        for place, mask in enumerate((~old_passed, ~new_passed, gained, lost)):
            self._per_party[place] += np.bincount(party[mask], minlength=parties)
        self._of_old.take(old, ~old_passed, gained)
        self._of_new.take(new, ~new_passed, lost)

    def summary(self) -> dict[str, Any]:
        """Return what `summary.json` says of a comparison.

        `refused_old`, `refused_new`, `gained` and `lost` count requests, in total, by clause (by
        the clause that refused, the reported one where several did), by key and by address; of keys
        and addresses the `SHOWN` with the most changed requests are named, and `keys_changed` and
        `ips_changed` say how many there are.
        """
        keys, keys_changed = self._by(self._arrivals.parties.key)
        ips, ips_changed = self._by(self._arrivals.parties.ip)
        totals = self._per_party.sum(axis=1).tolist()
        return {
            **dict(zip(_COUNTS, totals, strict=True)),
            "clauses": self._by_clause(),
            "keys_changed": keys_changed,
            "keys": keys,
            "ips_changed": ips_changed,
            "ips": ips,
        }

    def _by_clause(self) -> list[dict[str, Any]]:
        """Count by clause: it refused gained requests before, and refuses lost requests now."""
        lines: dict[str, dict[str, Any]] = {}
        for counted, refused, changed in (
            (self._of_old, "refused_old", "gained"),
            (self._of_new, "refused_new", "lost"),
        ):
            for rule, count, part in counted.by_rule():
                clause = rule.partition(".")[0]
                line = lines.setdefault(clause, {"clause": clause, **dict.fromkeys(_COUNTS, 0)})
                line[refused] += count
                line[changed] += part
        return sorted(lines.values(), key=lambda line: line["clause"])

    def _by(self, names: Texts) -> tuple[list[dict[str, Any]], int]:
        """Count by a party's name; return the lines that changed most, and how many changed."""
        totals: Numbers = np.zeros((len(_COUNTS), len(names.texts) + 1), dtype=np.int64)
        for total, counts in zip(totals, self._per_party, strict=True):
            np.add.at(total, names.codes, counts)  # none, −1, is the last place
        known = [*names.texts, None]
        change = totals[2] + totals[3]
        changed = np.flatnonzero(change)
        least = 0 if len(changed) <= SHOWN else np.partition(change, -SHOWN)[-SHOWN]
        # Lines are made of few of them: all of a log's addresses may have changed.
        shown = changed[change[changed] >= least].tolist()
        shown.sort(key=lambda code: (-change[code], known[code] or ""))
        lines = [
            {"name": known[code], **dict(zip(_COUNTS, totals[:, code].tolist(), strict=True))}
            for code in shown[:SHOWN]
        ]
        return lines, len(changed)


class _PerVerdict:
    """Of one table: by verdict, how many it refused, and how many of those the other let in."""

    def __init__(self) -> None:
        self._told = Told()
        self._counts: Numbers = np.zeros((2, 0), dtype=np.int64)

    def take(
        self,
        decisions: Decisions,
        refused: npt.NDArray[np.bool_],
        changed: npt.NDArray[np.bool_],
    ) -> None:
        self._told = decisions.told
        size = len(decisions.told.verdicts)
        grown: Numbers = np.zeros((2, size), dtype=np.int64)
        grown[:, : self._counts.shape[1]] = self._counts
        for place, mask in enumerate((refused, changed)):
            grown[place] += np.bincount(decisions.verdict[mask], minlength=size)
        self._counts = grown

    def by_rule(self) -> list[tuple[str, int, int]]:
        """Return the rules that refused anything, with both counts."""
        counts = zip(self._told.verdicts, *self._counts.tolist(), strict=False)
        return [(rule, whole, part) for (_, rule), whole, part in counts if rule and whole]
