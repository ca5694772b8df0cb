"""What a fit is shown on: every built-in scenario, the real logs, and halves that were held out."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pytest

import simulator
from simulator.scenario import load, loads
from tests.simulator.fit.holdout import KINDS, map_of, play

Truth = dict[tuple[str, str], float]

# The cycle of a closed loop is its think time and its answer's, which a log shows together.
TRUTHS: Final[dict[str, Truth]] = {
    "everyday": {
        ("batch", "rate"): 2.0,
        ("backend-1", "count"): 4,
        ("backend-1", "rate"): 2.5,
        ("backend-2", "on_rate"): 15.0,
        ("backend-2", "on"): 20.0,
        ("backend-2", "off"): 60.0,
        ("ci", "count"): 2,
        ("ci", "on_rate"): 8.0,
        ("ci", "on"): 45.0,
        ("ci", "off"): 90.0,
        ("console", "think"): 0.23,
        ("console", "retry.delay"): 1.0,
        ("console", "retry.attempts"): 3,
        ("checkout", "count"): 12,
        ("checkout", "think"): 15.02,
    },
    "bulk-import": {
        ("paced", "rate"): 19.0,
        ("greedy", "think"): 0.066,
    },
    "checkout": {
        ("page", "count"): 1500,
        ("page", "think"): 360.0,
        ("page", "retry.attempts"): 4,
    },
    "cold-starts": {("workers-2", "count"): 2},
    "launch-day": {
        ("page", "rate"): (2 * 600 + 40 * 180 + 20 * 240 + 10 * 180) / 1200,
        ("backend", "rate"): (11 * 900 + 20 * 300) / 1200,
        ("backend", "retry.attempts"): 6,
    },
    "legacy-migration": {
        ("new", "count"): 10,
        ("old", "count"): 10,
        ("old", "think"): 4.02,
        ("old", "retry.base"): 0.5,
        ("old", "retry.attempts"): 6,
        ("new", "rate"): 1 / 4.02,
    },
    "management-loop": {("hasty", "rate"): 4.0, ("paced", "rate"): 3.0},
    "month-end": {
        ("updater-1", "count"): 6,
        ("updater-1", "think"): 1.517,
        ("updater-1", "retry.delay"): 2.0,
        ("updater-1", "retry.attempts"): 3,
        ("updater-2", "count"): 3,
        ("updater-2", "retry.attempts"): 8,
    },
    "retry-storm": {
        ("checkout-1", "count"): 40,
        ("checkout-1", "rate"): 1 / 60,
        ("checkout-1", "retry.delay"): 0.25,
        ("checkout-1", "retry.attempts"): 20,
        ("checkout-2", "count"): 1,
    },
    "shared-office": {
        ("checkout-1", "count"): 1,
        ("checkout-1", "rate"): 5.0,
        ("checkout-2", "count"): 200,
    },
    "slow-destination": {("no-key-1", "count"): 20, ("backend", "count"): 3},
}
WITH_BODIES: Final = ("cold-starts", "month-end", "slow-destination")


@cache
def own(name: str) -> simulator.Fit:
    """Return the fit of a built-in scenario's own rows."""
    scenario = load(name)
    if name in WITH_BODIES:
        rows = simulator.run(scenario, fidelity="limits", check=False).requests
    else:
        rows = simulator.run(scenario, fidelity="compiled", check=False).requests
    return simulator.fit(rows, map=map_of(scenario), runs=9)


def ends(frame: pd.DataFrame, line: tuple[str, str]) -> tuple[float, float]:
    """Return the ends of a line's interval."""
    found = frame[["low", "high"]].to_dict("index")[line]
    return found["low"], found["high"]


@pytest.mark.slow
@pytest.mark.parametrize("name", TRUTHS)
def test_own_rows_give_the_parameters_of_a_built_in_scenario_back(
    name: str, tmp_path: Path
) -> None:
    found = own(name)
    missed = {}
    for line, truth in TRUTHS[name].items():
        low, high = ends(found.parameters, line)
        if not low <= truth <= high:
            missed[line] = (truth, low, high)
    assert not missed
    saved = simulator.load(found.save(tmp_path / "frame.toml"))
    assert [group.name for group in saved.clients] == [g.name for g in found.scenario.clients]
    if not found.model.sessions:
        assert loads(found.text, "frame.toml") == found.scenario
    lines = found.comparison["agrees"].to_dict()
    assert lines["offered", ""]
    assert lines["refused share", ""]


@pytest.mark.slow
@pytest.mark.parametrize("log", ["apache_access.log", "api_arrivals.csv"])
def test_the_real_logs_are_fitted_or_the_sight_lost_is_named(
    shared_data: Path, log: str, tmp_path: Path
) -> None:
    """Their first 2,500 lines."""
    options: dict[str, Any] = {}
    lines = (shared_data / log).read_bytes().splitlines(keepends=True)
    (tmp_path / log).write_bytes(b"".join(lines[:2_500]))
    if log.endswith(".csv"):
        request = {"address": "192.0.2.1", "path": "POST /tokenize"}
        options = {"time_column": "TIMESTAMP", "assume": request}
    found = simulator.fit(tmp_path / log, runs=9, **options)
    agrees = found.comparison["agrees"].to_dict()
    for measure in ("offered", "refused share"):
        assert agrees[measure, ""] != any(measure in words for words in found.lost)


@pytest.mark.slow
def test_the_refused_share_of_a_held_out_half_is_foretold() -> None:
    """Ten of the fifty cases of `tests.simulator.fit.holdout`, one of each kind."""
    found = [play(kind, 101) for kind in KINDS]
    assert sum(case.holds for case in found) >= 9, found
    assert sum(case.high - case.low < 0.35 for case in found) >= 7, "intervals that say something"
