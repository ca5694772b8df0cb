"""Help with the warm-up and the length of a run, on series whose answer is known."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simulator
from engine.errors import InputError
from engine.files import format_duration
from simulator.cli import main
from simulator.rows.metrics import mser_5, run_length_of, warm_up_of
from simulator.scenario import loads

S = 1_000_000_000

# For a minute nobody asks but one slow client; then the limit binds for good.
FILLING = """
duration = "5m"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
kind = "private"
[[clients]]
name = "late"
application = "a"
loop = "open"
start = "1m"
arrivals = { kind = "poisson", rate = "60/1s" }
[[clients]]
name = "early"
application = "a"
loop = "open"
arrivals = { kind = "poisson", rate = "1/1s" }
"""


def exact_mser_5(values: list[int]) -> int | None:
    """The definition, in exact numbers."""
    count = len(values) // 5
    if count < 10:
        return None
    batches = [Fraction(sum(values[5 * b : 5 * b + 5]), 5) for b in range(count)]

    def error(d: int) -> Fraction:
        rest = batches[d:]
        mean = sum(rest, Fraction(0)) / len(rest)
        return sum(((each - mean) * (each - mean) for each in rest), Fraction(0)) / (
            len(rest) * len(rest)
        )

    best = min(range(count // 2 + 1), key=error)
    return None if best == count // 2 else 5 * best


def test_a_start_that_differs_is_cut_off_where_it_ends() -> None:
    steady = [4.0, 6.0, 5.0, 3.0, 7.0, 6.0, 4.0] * 20
    assert mser_5([50.0] * 25 + steady) == 25
    assert mser_5([0.0] * 10 + steady) == 10


def test_a_decay_is_cut_off_in_its_tail() -> None:
    rng = np.random.default_rng(3)
    time = np.arange(500)
    series = 10 * np.exp(-time / 20) + rng.normal(0, 0.5, 500)
    cut = mser_5(series.tolist())
    assert cut is not None
    assert 40 <= cut <= 120


def test_a_steady_series_needs_no_warm_up() -> None:
    assert mser_5([0.1] * 100) == 0
    assert mser_5([0.0, 1.0] * 50) == 0


def test_a_trend_or_a_short_series_has_no_answer() -> None:
    assert mser_5([float(each) for each in range(100)]) is None
    assert mser_5([1.0] * 49) is None


@given(st.lists(st.integers(0, 9), min_size=45, max_size=90))
def test_it_is_the_definition(values: list[int]) -> None:
    assert mser_5([float(each) for each in values]) == exact_mser_5(values)


def test_bins_without_a_value_are_passed_over_and_the_last_cut_bin_too() -> None:
    series = [math.nan] * 3 + [50.0] * 25 + [4.0, 6.0] * 40 + [900.0]
    end_ns = 108 * S + S // 2
    found = warm_up_of("offered", series, bin_ns=S, end_ns=end_ns, given_ns=10 * S)
    assert found.suggested_ns == 28 * S
    assert found.is_too_short
    assert len(found.series) == 108
    assert found.mean == 5.0
    long = warm_up_of("offered", series, bin_ns=S, end_ns=end_ns, given_ns=28 * S)
    assert not long.is_too_short


def test_the_length_of_a_run_grows_with_the_square_of_the_precision() -> None:
    rng = np.random.default_rng(5)
    series = rng.normal(10, 2, 200).tolist()
    found = warm_up_of("offered", series, bin_ns=S, end_ns=200 * S)
    start_ns = found.suggested_ns or 0
    now = run_length_of(found, 10.0, end_ns=200 * S).half_width
    assert now is not None
    # Student's t with 19 degrees of freedom: 2.093 · 2 / √200, less what chance does.
    assert now == pytest.approx(2.093 * 2 / math.sqrt(200), rel=0.35)
    half = run_length_of(found, now / 2, end_ns=200 * S).duration_ns
    assert half == pytest.approx(start_ns + 4 * (200 * S - start_ns), rel=1e-6)
    assert run_length_of(found, 10.0, end_ns=200 * S).duration_ns == 200 * S


@pytest.mark.parametrize(
    ("series", "why"),
    [
        ([5.0] * 200, "the batches of this run do not differ"),
        ([5.0] * 30, "fewer than 40 bins have a value"),
        ([float(each) for each in range(200)], "the series does not settle in this run"),
        (
            [5 + math.sin(each / 32) for each in range(600)],
            "neighbouring batches of this run depend on each other",
        ),
    ],
)
def test_no_length_is_named_where_the_run_does_not_tell(series: list[float], why: str) -> None:
    end_ns = len(series) * S
    found = warm_up_of("offered", series, bin_ns=S, end_ns=end_ns)
    answer = run_length_of(found, 0.1, end_ns=end_ns)
    assert (answer.duration_ns, answer.half_width, answer.why_not) == (None, None, why)


def test_a_result_suggests_when_a_late_group_has_come(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "filling.toml"
    path.write_text(FILLING)
    out = tmp_path / "run"
    main(["run", str(path), "--fidelity", "limits", "--out", str(out)])
    lines = [
        line for line in capsys.readouterr().out.splitlines() if line.startswith("warm-up: 0s")
    ]
    found = simulator.Result.load(out).warm_up()
    assert found.suggested_ns is not None
    assert 60 * S <= found.suggested_ns <= 80 * S
    assert found.mean > found.whole_mean + 0.1
    assert len(lines) == 1
    assert f"use --warm-up {format_duration(found.suggested_ns)}" in lines[0]
    page = (out / "report.html").read_text("utf-8")
    assert 'id="warmup"' in page
    assert "MSER-5 suggests a warm-up of" in page
    assert "Refused share over time in bins of" in page

    main(["run", str(path), "--fidelity", "limits", "--warm-up", "90s", "--out", f"{out}-2"])
    assert "shorter than" not in capsys.readouterr().out


def test_replications_say_how_many_would_do() -> None:
    result = simulator.run(loads(FILLING), fidelity="limits", replications=3, warm_up="90s")
    answer = result.run_length(0.001)
    assert answer.replications is not None
    assert answer.replications > 3
    assert result.run_length(0.01, "offered").metric == "offered"


def test_slips_are_named() -> None:
    result = simulator.run(loads(FILLING), fidelity="limits")
    with pytest.raises(InputError, match="metric = 'refusal' must be one of"):
        result.warm_up("refusal")
    with pytest.raises(InputError, match="half_width = 0 must be a number above 0"):
        result.run_length(0)
    with pytest.raises(InputError, match="bin = 0 ns must be above 0"):
        result.warm_up(bin=0)
    with pytest.raises(InputError, match="bin = 1 ns must make at most 1000000 bins"):
        result.warm_up(bin=1)
    with pytest.raises(InputError, match="must be the width of a bin"):
        result.metrics("time", bin=1 << 63)


def test_a_width_beyond_all_runs_has_no_length() -> None:
    answer = simulator.run("management-loop", fidelity="limits").run_length(1e-300)
    assert (answer.duration_ns, answer.why_not) == (None, "no run is so long")
