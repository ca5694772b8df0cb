"""Replaying: what failed in a run is asked again, with the same seed and the same choices known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from conformance.report.report import Report
from conformance.running import Options, Progress, Run
from conformance.target import Target
from conformance.transport import Transport
from engine.clauses import select

__all__ = ["again", "failed"]

_BAD = ("fail", "error")


def failed(results: Mapping[str, Any], ids: Sequence[str]) -> dict[str, str]:
    """Return those of the clauses that failed in a run's results, with their verdicts."""
    wanted = {clause.id for clause in select(list(ids))}
    return {
        one["clause"]: one["verdict"]
        for one in results["clauses"]
        if one["clause"] in wanted and one["verdict"] in _BAD
    }


def again(
    results: Mapping[str, Any],
    before: Mapping[str, str],
    target: Target,
    *,
    transport: Transport | None = None,
    progress: Progress | None = None,
) -> Report:
    """Run the checks that failed once more and return their report."""
    checks = {
        finding["check"]
        for one in results["clauses"]
        if one["clause"] in before
        for finding in one["findings"]
        if finding["verdict"] in _BAD
    }
    options = Options(select=tuple(before), checks=tuple(sorted(checks)), seed=results["seed"])
    return Run(target, options, transport=transport, progress=progress).execute()
