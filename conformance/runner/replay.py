"""Replay: repeats the checks that failed in a run, with the same seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.report.baseline import read_results
from conformance.report.report import Report
from conformance.runner.runner import Options, Progress, Run
from conformance.target import Target
from conformance.wire.transport import Transport
from engine.clauses import select
from engine.errors import InputError

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


def replay(
    folder: str | Path,
    target: Target | str | Path,
    ids: Sequence[str],
    *,
    transport: Transport | None = None,
) -> Report:
    """Repeat the failed checks of the run in a folder, with the same seed; return the report.

    ids: clauses, or the beginnings of their ids, such as `TOK-ATOMIC` or `LIM-`. Raises
    `InputError` for a folder without a run, and where nothing of the clauses failed.
    """
    results = read_results(Path(folder))
    before = failed(results, ids)
    if not before:
        raise InputError(f"ids = {', '.join(ids)}: nothing of it failed in {folder}")
    if not isinstance(target, Target):
        target = Target.from_toml(target)
    return again(results, before, target, transport=transport)
