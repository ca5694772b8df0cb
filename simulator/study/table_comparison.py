"""Two limit tables over the same arrivals: who gains and who loses by the new one.

A request is gained when the old table refused it and the new one lets it in, lost the other way
round. The comparison is request by request, so what cancels out in totals is still seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.messages import Outcome
from simulator.play.gates import Rows
from simulator.rows.counters import CounterIndex
from simulator.rows.record import Chunk, Recorder, SubjectTable, TextTable
from simulator.rows.tally import Tally

__all__ = ["SHOWN", "Comparison"]

SHOWN: Final = 50
"""Keys and addresses that a summary names; the counts are of all."""

_COUNTS: Final = ("refused_old", "refused_new", "gained", "lost")

Numbers = npt.NDArray[np.int64]


class Comparison:
    """Takes what two tables decided about the same arrivals, and counts by subject and by verdict.

    old: what the older table's gate writes to. It is a watcher of the newer one's rows. subjects:
    who asks, in both.
    """

    def __init__(self, subjects: SubjectTable) -> None:
        self._subjects = subjects
        self._per_subject: Numbers = np.zeros((len(_COUNTS), len(subjects)), dtype=np.int64)
        self._of_old = _PerVerdict()
        self._of_new = _PerVerdict()
        self._waiting: tuple[deque[Chunk], deque[Chunk]] = deque(), deque()
        recorder = Recorder([_Side(self, 0)], subjects=subjects)
        self.old = Rows(recorder, Tally(CounterIndex(), (), end_ns=0))

    def take(self, chunk: Chunk) -> None:
        """Take what the newer table decided about the next rows."""
        self._take(1, chunk)

    def _take(self, side: int, chunk: Chunk) -> None:
        """Compare with the other table's chunk of the same rows, when both are there."""
        self._waiting[side].append(chunk)
        olds, news = self._waiting
        while olds and news:
            self._compare(olds.popleft(), news.popleft())

    def _compare(self, old: Chunk, new: Chunk) -> None:
        assert len(old) == len(new), "both tables decide about the same rows"
        old_passed, new_passed = (each.outcome_is("admitted", "delayed") for each in (old, new))
        gained, lost = new_passed & ~old_passed, old_passed & ~new_passed
        for place, mask in enumerate((~old_passed, ~new_passed, gained, lost)):
            counts = np.bincount(new.subject[mask], minlength=len(self._subjects))
            self._per_subject[place] += counts
        self._of_old.take(old, ~old_passed, gained)
        self._of_new.take(new, ~new_passed, lost)

    def summary(self) -> dict[str, Any]:
        """Return what `summary.json` says of a comparison.

        `refused_old`, `refused_new`, `gained` and `lost` count requests, in total, by clause (by
        the clause that refused, the reported one where several did), by key and by address; of keys
        and addresses the `SHOWN` with the most changed requests are named, and `keys_changed` and
        `ips_changed` say how many there are.
        """
        keys, keys_changed = self._by(self._subjects.text("key"))
        ips, ips_changed = self._by(self._subjects.text("ip"))
        totals = self._per_subject.sum(axis=1).tolist()
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

    def _by(self, names: TextTable) -> tuple[list[dict[str, Any]], int]:
        """Count by a subject's name; return the lines that changed most, and how many changed."""
        totals: Numbers = np.zeros((len(_COUNTS), len(names.texts) + 1), dtype=np.int64)
        for total, counts in zip(totals, self._per_subject, strict=True):
            np.add.at(total, names.of_entry, counts)  # none, −1, is the last place
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


class _Side:
    """Takes the rows of one table."""

    def __init__(self, comparison: Comparison, side: int) -> None:
        self._comparison = comparison
        self._side = side

    def take(self, chunk: Chunk) -> None:
        self._comparison._take(self._side, chunk)  # noqa: SLF001 # reason: a part of it


class _PerVerdict:
    """Of one table: by verdict, how many it refused, and how many of those the other let in."""

    def __init__(self) -> None:
        self._verdicts: Sequence[tuple[Outcome, str | None]] = []
        self._counts: Numbers = np.zeros((2, 0), dtype=np.int64)

    def take(
        self, chunk: Chunk, refused: npt.NDArray[np.bool_], changed: npt.NDArray[np.bool_]
    ) -> None:
        self._verdicts = chunk.verdicts
        size = len(chunk.verdicts)
        grown: Numbers = np.zeros((2, size), dtype=np.int64)
        grown[:, : self._counts.shape[1]] = self._counts
        for place, mask in enumerate((refused, changed)):
            grown[place] += np.bincount(chunk.verdict[mask], minlength=size)
        self._counts = grown

    def by_rule(self) -> list[tuple[str, int, int]]:
        """Return the rules that refused anything, with both counts."""
        counts = zip(self._verdicts, *self._counts.tolist(), strict=False)
        return [(rule, whole, part) for (_, rule), whole, part in counts if rule and whole]
