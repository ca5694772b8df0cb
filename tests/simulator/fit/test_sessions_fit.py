"""A fit refuses as its log does, under limits that it was not fitted to, or is said to differ."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import simulator
from simulator.cli import main
from simulator.scenario.draws import SessionArrivals
from tests.simulator.fit.worlds import START_NS, WORLDS, shares

TOLERANCE = 0.15
FEW_REFUSED = 0.01


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_known_worlds_refuse_as_they_do_under_five_limits(world: str) -> None:
    wrong = [
        (log, fitted)
        for log, fitted in shares(world)
        if abs(fitted - log) > max(TOLERANCE * log, FEW_REFUSED)
    ]
    assert not wrong


def bursts(seed: int = 1, clients: int = 4, span_s: int = 3_600) -> pd.DataFrame:
    """Return a log of clients that send 30 to 90 requests at once, every five minutes or so."""
    random = np.random.default_rng(seed)
    rows = []
    for client in range(clients):
        starts = np.cumsum(random.exponential(300, span_s // 300))
        for start in starts[starts < span_s - 60]:
            times = start + np.sort(random.uniform(0, 5, random.integers(30, 90)))
            rows += [
                (round(t_s * 1e9) + START_NS, f"192.0.2.{client}", f"k{client}") for t_s in times
            ]
    frame = pd.DataFrame(sorted(rows), columns=["time", "ip", "key"])
    frame["method"], frame["path"] = "POST", "/tokenize"
    return frame


def few_visits(callers: int = 400, span_s: int = 86_400) -> pd.DataFrame:
    """Return a log of a day in which each caller sends five requests once, or twice."""
    random = np.random.default_rng(1)
    rows = [
        (round((start + number) * 1e9) + START_NS, f"192.0.2.{caller}", f"k{caller}")
        for caller in range(callers)
        for start in random.uniform(0, span_s - 60, 1 + caller % 2)
        for number in range(5)
    ]
    frame = pd.DataFrame(sorted(rows), columns=["time", "ip", "key"])
    frame["method"], frame["path"] = "POST", "/tokenize"
    return frame


@pytest.mark.slow
def test_callers_of_one_session_send_as_much_as_in_the_log() -> None:
    """The first pause is the rest of one that began earlier; it offered 44 % too much once."""
    log = few_visits()
    fit = simulator.fit(log, form="sessions", judged=False)
    rows = simulator.run(fit.scenario, fidelity="limits", check=False).requests
    assert len(rows) == pytest.approx(len(log), rel=0.15)


def batches() -> pd.DataFrame:
    """Return a log of a job that sends 100 requests every ten minutes."""
    t_ns = [START_NS + 10**9 * (600 * job) + 2 * 10**8 * n for job in range(9) for n in range(100)]
    frame = pd.DataFrame({"time": t_ns, "ip": "192.0.2.1", "key": "k"})
    frame["method"], frame["path"] = "POST", "/tokenize"
    return frame


def test_a_saved_fit_runs_from_its_two_files_and_scales(tmp_path: Path) -> None:
    fit = simulator.fit(bursts(), form="sessions", judged=False)
    path = fit.save(tmp_path / "mine.toml")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["mine.sessions.csv", "mine.toml"]
    scenario = simulator.load(path)
    (group,) = scenario.clients
    assert isinstance(group.arrivals, SessionArrivals)
    once = simulator.run(scenario, fidelity="limits", check=False).requests
    text = path.read_text()
    path.write_text(text.replace("count = 4", "count = 8").replace("keys = 4", "keys = 8"))
    twice = simulator.run(simulator.load(path), fidelity="limits", check=False).requests
    assert (once["key"].nunique(), twice["key"].nunique()) == (4, 8)
    assert (once["ip"].nunique(), twice["ip"].nunique()) == (4, 8)
    assert 1.5 < len(twice) / len(once) < 2.5


def test_a_fit_says_how_much_there_is_to_play() -> None:
    told: list[tuple[str, int, int | None]] = []
    log = bursts(clients=2, span_s=1_200)
    simulator.fit(log, runs=3, progress=lambda *report: told.append(report))
    played = [(done, whole) for stage, done, whole in told if stage == "playing"]
    assert played == [(run * len(log), 3 * len(log)) for run in (1, 2, 3)]
    compared = [(done, whole) for stage, done, whole in told if stage == "comparing"]
    assert len(compared) >= 15
    assert all(whole is not None and done < whole for done, whole in compared)


def test_a_form_that_refuses_otherwise_is_named_first_and_strict_exits_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.csv"
    frame = batches()
    frame["time"] = pd.to_datetime(frame["time"]).dt.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    frame.to_csv(log, index=False)
    words = ["fit", str(log), "--as", "public", "--strict", "--force"]
    out = ["--out", str(tmp_path / "fitted.toml")]
    assert main([*words, *out, "--form", "parametric", "--runs", "3"]) == 1
    assert capsys.readouterr().out.startswith("DIFFERS: the scenario does not refuse as the log")
    assert main([*words, *out, "--runs", "3"]) == 0
    assert capsys.readouterr().out.startswith("The scenario refuses as the log does")
