"""The baseline: an earlier run, and what is new, fixed and unchanged since then.

The comparison is by clause. A clause that fails for another reason than before counts as unchanged:
the reason may vary from run to run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conformance.context.verdicts import ClauseResult
from engine.errors import InputError, reason_of

RESULTS_FILE: Final = "results.json"


@dataclass(frozen=True, slots=True)
class BaselineComparison:
    """The ids of clauses, by how they have changed.

    new: findings of this run only. mended: findings of the baseline that this run judged without
    one. unchanged: findings of both. unseen: findings of the baseline that this run did not judge.
    """

    new: tuple[str, ...]
    mended: tuple[str, ...]
    unchanged: tuple[str, ...]
    unseen: tuple[str, ...]

    @property
    def line(self) -> str:
        """The comparison in one line."""
        parts = [
            f"{len(ids)} {word}" + (f" ({', '.join(ids)})" if ids else "")
            for word, ids in (
                ("new", self.new),
                ("fixed", self.mended),
                ("unchanged", self.unchanged),
            )
        ]
        if self.unseen:
            parts.append(f"{len(self.unseen)} not judged now ({', '.join(self.unseen)})")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Baseline:
    """An earlier run. path: as it was given; findings: clauses that failed it; started_at: when."""

    path: str
    findings: frozenset[str]
    started_at: str = ""

    @classmethod
    def of(cls, path: Path) -> Baseline:
        """Return the baseline of a run's folder, or of its results.json; raises `InputError`."""
        results = read_results(path)
        findings = frozenset(
            result["clause"] for result in results["clauses"] if result.get("is_finding")
        )
        return cls(str(path), findings, str(results.get("started_at", "")))

    def compare(self, results: Sequence[ClauseResult]) -> BaselineComparison:
        """Return what has changed since then."""
        now = [result.clause.id for result in results if result.is_finding]
        judged = {result.clause.id for result in results if result.is_as_asked}
        gone = [name for name in sorted(self.findings) if name not in now]
        return BaselineComparison(
            tuple(name for name in now if name not in self.findings),
            tuple(name for name in gone if name in judged),
            tuple(name for name in now if name in self.findings),
            tuple(name for name in gone if name not in judged),
        )


def read_results(path: Path) -> Mapping[str, Any]:
    """Return a run's results, by its folder or the file itself; raises `InputError`."""
    file = path / RESULTS_FILE if path.is_dir() or path.suffix != ".json" else path
    try:
        results = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{file}: {reason_of(error)}; give the folder of a run") from None
    except (ValueError, RecursionError):
        results = None
    clauses = results.get("clauses") if isinstance(results, dict) else None
    is_run = isinstance(results, dict) and results.get("format") == 1 and isinstance(clauses, list)
    if not is_run or not all(
        isinstance(clause, dict) and "clause" in clause for clause in clauses or ()
    ):
        raise InputError(f"{file} must be the results of a run; run it again")
    return dict(results or {})
