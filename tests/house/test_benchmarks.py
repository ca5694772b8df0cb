"""The measurement behind `make bench`: turns are fair, and a ratio is what it says."""

import pytest

from tests.benchmarks import __main__ as runner
from tests.benchmarks._measure import Contestant, Timing, interleave, rate_text, ratio


def test_contestants_take_turns_and_state_is_fresh() -> None:
    calls: list[str] = []

    def contestant(name: str) -> Contestant:
        def prepare() -> object:
            calls.append(f"prepare {name}")
            return lambda: calls.append(name)

        return Contestant(name, prepare, units=1)  # type: ignore[arg-type] # reason: shows both steps

    timings = interleave([contestant("a"), contestant("b")], rounds=2, warm_ups=0)
    turns = ["a", "b", "b", "a"]
    assert calls == [step for name in turns for step in (f"prepare {name}", name)]
    assert [len(timing.unit_ns) for timing in timings] == [2, 2]


def test_a_ratio_is_formed_round_by_round() -> None:
    who = Contestant("x", lambda: lambda: None, units=1)
    slow = Timing(who, (40.0, 400.0, 44.0))
    fast = Timing(who, (10.0, 100.0, 10.0))
    found = ratio(slow, fast)
    assert (found.low, found.median, found.high) == (4.0, 4.0, 4.2)
    assert str(found) == "4 (4 to 4.2)"


def test_a_rate_is_units_a_second() -> None:
    assert [rate_text(ns) for ns in (250.0, 4e4, 2e9)] == ["4 M/s", "25 k/s", "0.5/s"]


def test_an_unknown_benchmark_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        runner.main(["no-such-benchmark"])
    assert stopped.value.code == 2
    assert "NAME = no-such-benchmark must be one of" in capsys.readouterr().err
