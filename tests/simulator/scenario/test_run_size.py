"""How many requests a scenario is expected to ask for: worked out by hand, and against runs."""

from __future__ import annotations

from pathlib import Path

import pytest

import simulator
from simulator.scenario import load, loads
from simulator.study.run_size import expected_requests

HEAD = """
duration = "100s"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
kind = "public"
[[clients]]
name = "c"
application = "a"
count = 3
"""
STEPS = '[{ at = "20s", rate = "1/1s" }, { at = "60s", rate = "2/1s" }]'
HOURS = ", ".join(["0"] * 23 + ["24"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{ kind = "constant", rate = "5/1s" }', 3 * 500),
        ('{ kind = "poisson", rate = "3/10s" }', 3 * 30),
        (f'{{ kind = "steps", steps = {STEPS} }}', 3 * (40 + 80)),
        ('{ kind = "ramp", from = "0/1s", to = "10/1s", over = "50s" }', 3 * (250 + 500)),
        ('{ kind = "ramp", from = "0/1s", to = "4/1s", over = "200s" }', 3 * 100),
        (f'{{ kind = "daily", rate = "1/1s", day = "48s", hours = [{HOURS}] }}', 3 * 2 * 48),
        ('{ kind = "on-off", on_rate = "10/1s", on = "1s", off = "4s" }', 3 * 200),
    ],
)
def test_an_open_loop_asks_as_often_as_its_rate_says(text: str, expected: int) -> None:
    assert expected_requests(loads(f'{HEAD}loop = "open"\narrivals = {text}\n')) == expected


def test_a_group_asks_between_its_start_and_its_stop() -> None:
    arrivals = 'loop = "open"\narrivals = { kind = "constant", rate = "5/1s" }\n'
    assert expected_requests(loads(f'{HEAD}{arrivals}start = "10s"\nstop = "30s"\n')) == 300


def test_a_file_of_arrivals_is_counted_as_far_as_it_is_played(tmp_path: Path) -> None:
    (tmp_path / "times.txt").write_text("0\n1\n99\n100\n101\n")
    arrivals = 'loop = "open"\narrivals = { kind = "replay", file = "times.txt" }\n'
    assert expected_requests(loads(HEAD + arrivals, folder=tmp_path)) == 3 * 3


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ('think = "9s"\nservice = "1s"', 3 * 10),
        ('think = "9s"\nservice = "1s"\nconcurrency = 4', 3 * 40),
        ('think = { kind = "exponential", mean = "10s" }', 3 * 10),
        ('think = { kind = "uniform", low = "5s", high = "15s" }', 3 * 10),
        ('think = { kind = "discrete", values = ["5s", "20s"], weights = [2, 1] }', 3 * 10),
        ('think = { kind = "lognormal", median = "10s", sigma = 0 }', 3 * 10),
        ('think = { kind = "pareto", least = "5s", alpha = 2 }', 3 * 10),
        ('think = { kind = "pareto", least = "5s", alpha = 1 }', 3 * 10),
        ('pacing = { kind = "token-bucket", rate = "1/2s" }', 3 * 51),
    ],
)
def test_a_closed_loop_asks_once_a_turn(more: str, expected: int) -> None:
    assert expected_requests(loads(f"{HEAD}{more}\n")) == expected


@pytest.mark.parametrize("name", ["everyday", "management-loop", "retry-storm"])
def test_runs_begin_about_as_many_requests_as_expected(name: str) -> None:
    asked = simulator.run(name, fidelity="limits").summary["totals"]["requests"]
    assert expected_requests(load(name)) == pytest.approx(asked, rel=0.1)
