"""The independent service answers as the specification says, whoever stands in front of it."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from conformance.context.verdicts import Verdict
from conformance.runner.runner import Options, Run
from conformance.target import Target
from tests.conformance.independent.deployment import deployment

_CHECKED = (
    *("model.sequences", "authentication.header", "deduplication.at-once"),
    *("limits.status", "limits.lowest", "limits.counted"),
)
_OPEN = {Verdict.INCONCLUSIVE, Verdict.SKIPPED}
CARD = {"number": "4242424242424242", "expiration_month": 12, "expiration_year": 2030}


def _ask(target: Target, role: str, body: Any) -> tuple[int, Any]:
    key = next(key for key in target.keys if key.role == role)
    request = urllib.request.Request(
        target.base_url + "/tokenize",
        json.dumps(body).encode(),
        {"SVC-API-KEY": key.value, "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_it_mirrors_deduplicates_and_limits(tmp_path: Path, processes: int) -> None:
    with deployment(tmp_path / "service", processes=processes) as path:
        target = Target.from_toml(path)
        status, body = _ask(
            target, "private_prod", {"a": "x", "b": [{"type": "card", "data": CARD}]}
        )
        assert status == 201
        assert body["b"][0]["mask"]["number"] == "XXXXXXXXXXXX4242"
        assert _ask(target, "private_prod", ["1"] * 6)[0] == 422
        assert _ask(target, "private_no_permission", ["1"])[0] == 403
        first = _ask(target, "dedup", ["same"])[1]
        assert _ask(target, "dedup_reader", ["same"])[1] == first
        answers: list[tuple[float, int, float]] = []
        while len(answers) < 110 or answers[-1][1] != 429:  # where a window is too short for 51
            sent_s = time.time()
            answers.append((sent_s, _ask(target, "private_test", ["1"])[0], time.time()))
        _assert_fifty_a_window(answers)


def _assert_fifty_a_window(answers: list[tuple[float, int, float]]) -> None:
    """Hold answers, each with its instants sent and received, against 50 in 10 s of the clock."""
    assert {status for _, status, _ in answers} == {201, 429}
    admitted = [(sent_s // 10, got_s // 10) for sent_s, status, got_s in answers if status == 201]
    for window in {sent_s // 10 for sent_s, _, _ in answers}:
        assert admitted.count((window, window)) <= 50
        # The one on its way at the window's edge may have been counted on either side.
        possible = sum(first <= window <= last for first, last in admitted)
        refused = any(s // 10 == window == g // 10 for s, status, g in answers if status == 429)
        assert not refused or possible >= 50


def _verdicts(path: Path, seed: int) -> dict[str, Verdict]:
    """Run the quick clauses once; a busy machine may leave some of them open."""
    target = Target.from_toml(path)
    report = Run(target, Options(checks=_CHECKED, seed=seed)).execute()
    return {one.clause.id: one.verdict for one in report.results}


@pytest.mark.slow
def test_runs_in_a_row_give_the_same_verdicts(tmp_path: Path) -> None:
    """Nothing that conforms is failed, and what is decided is decided alike, run after run."""
    with deployment(tmp_path / "service", processes=2) as path:
        found = [_verdicts(path, seed) for seed in (1, 2)]
    for verdicts in found:
        assert not {Verdict.FAIL, Verdict.ERROR} & set(verdicts.values())
    for clause in found[0]:
        decided = {one[clause] for one in found} - _OPEN
        assert len(decided) <= 1, clause
    passed = [name for name, one in found[0].items() if one is Verdict.PASS]
    assert len(passed) >= 15
