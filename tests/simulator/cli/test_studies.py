"""Replications, capacity, comparison and coverage, from the command line and from Python."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simulator
from engine.clauses import CLAUSES
from engine.errors import InputError
from engine.limits import LimitTable
from simulator import progress
from simulator.cli import main
from simulator.intervals import interval_of
from simulator.study import capacity, comparison
from simulator.study.capacity import Player, scenario_player
from simulator.study.coverage import BOUNDS, COVERED

S = 1_000_000_000

POISSON = """
duration = "1m"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
kind = "public"
[[clients]]
name = "c"
application = "a"
loop = "open"
arrivals = { kind = "poisson", rate = "60/1m" }
[[thresholds]]
that = "refused_share <= 0.5"
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with a small scenario in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "poisson.toml").write_text(POISSON)
    return tmp_path


LOW = """
[[rule]]
id = "EVERYBODY"
match = {}
counter = "ip"
rate = "LOW/10s"
action = "throttle"
"""


@pytest.fixture
def files(here: Path) -> Path:
    """A scenario that names a table and a profile, and other ones to take in place of them."""
    (here / "own.toml").write_text(LOW.replace("LOW", "1000"))
    (here / "low.toml").write_text(LOW.replace("LOW", "5"))
    (here / "counts.toml").write_text("[limits]\ncount_refused = true\n")
    (here / "plain.toml").write_text("[limits]\ncount_refused = false\n")
    own = 'limits = "own.toml"\nprofile = "plain.toml"\n'
    (here / "poisson.toml").write_text(own + POISSON)
    (here / "low-inside.toml").write_text(
        own.replace("own", "low").replace("plain", "counts") + POISSON
    )
    return here


def test_a_run_takes_limits_and_a_profile_in_place_of_the_scenarios(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = ["--limits", "low.toml", "--profile", "counts.toml"]
    assert main(["run", "poisson.toml", "--fidelity", "limits", *told, "--out", "a"]) == 1
    again = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("repeat with:"))
    assert "--limits low.toml --profile counts.toml" in again
    found = [
        simulator.run("poisson.toml", fidelity="limits"),
        simulator.run("poisson.toml", fidelity="limits", limits=Path("low.toml")),
        simulator.run("poisson.toml", fidelity="limits", limits="low.toml", profile="counts.toml"),
        simulator.run("low-inside.toml", fidelity="limits"),
    ]
    none, low, *counted = [each.summary["totals"]["refused"] for each in found]
    counted.append(json.loads(Path("a/summary.json").read_text())["totals"]["refused"])
    assert (none, counted) == (0, [counted[0]] * 3)
    assert 0 < low < counted[0], "refused requests count too"
    built_in = simulator.run("poisson.toml", fidelity="limits", limits="default")
    assert "LIM-PUBLIC" in built_in.clauses.index


@pytest.mark.slow
def test_studies_take_limits_and_a_profile_in_place_of_the_scenarios(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = ["--limits", "low.toml", "--profile", "counts.toml"]
    plays = {
        "sweep": ["--set", "clients.c.count=1,2"],
        "capacity": [
            *("--vary", "clients.c.arrivals.rate", "--between", "10/1m", "90/1m", "--quiet"),
            *("--keep", "refused_share <= 0.1", "--tolerance", "0.2"),
        ],
        "advise": ["--replications", "2", "--quiet"],
    }
    for command, words in plays.items():
        out = {"sweep": ["--out", "s1"]}.get(command, [])
        code = main([command, "poisson.toml", *words, *told, *out])
        shown = capsys.readouterr().out
        out = {"sweep": ["--out", "s2"]}.get(command, [])
        assert main([command, "low-inside.toml", *words, *out]) == code, command
        inside = capsys.readouterr().out.replace("low-inside", "poisson").replace("s2", "s1")
        if command == "sweep":
            assert " ".join(told) in shown
            inside = inside.replace(" --out s1", f" {' '.join(told)} --out s1", 1)
        assert inside == shown, command


@pytest.mark.parametrize(
    ("told", "message"),
    [
        (["--limits", "no.toml"], "limits = 'no.toml' must be a file; there is none"),
        (["--profile", "low.toml"], "low.toml:2:3: rule is an unknown key"),
        (["--limits", "counts.toml"], "counts.toml:1:2: limits is an unknown key"),
    ],
)
def test_limits_and_profiles_that_cannot_be_are_named(
    files: Path, told: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["run"], ["sweep", "--set", "clients.c.count=1"]):
        assert main([*command, "poisson.toml", *told]) == 2
        assert message in capsys.readouterr().err


def test_replications_have_intervals_and_their_own_seeds(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["run", "poisson.toml", "--fidelity", "limits", "--replications", "6", "--seed", "20"]
    assert main(argv) == 0
    printed = capsys.readouterr().out
    assert "replications 6, seeds 20 to 25" in printed
    assert printed.splitlines()[-1] == "report: runs/poisson-20/report.html"
    summary = json.loads((here / "runs/poisson-20/summary.json").read_text())
    runs = summary["replications"]["runs"]
    assert [run["seed"] for run in runs] == list(range(20, 26))
    alone = simulator.run("poisson.toml", fidelity="limits", seed=23)
    assert runs[3]["sha256"] == alone.summary["sha256"]
    assert runs[3]["line"]["offered"] == alone.summary["totals"]["offered"]
    offered = [run["line"]["offered"] for run in runs]
    interval = summary["replications"]["intervals"]["offered"]
    assert interval["mean"] == pytest.approx(sum(offered) / 6)
    assert interval["low"] < interval["mean"] < interval["high"]
    # The true mean is 60 attempts; six runs are enough to hold it at this seed.
    assert interval["low"] < 60 < interval["high"]


@pytest.mark.slow
def test_replications_on_all_cores_are_the_same(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = simulator.run("poisson.toml", fidelity="limits", replications=4)
    monkeypatch.setattr("simulator.study.runs._START_S", 0.0)
    spread = simulator.run("poisson.toml", fidelity="limits", replications=4)
    assert spread.summary == alone.summary


def test_replications_in_python(here: Path) -> None:
    result = simulator.run("poisson.toml", fidelity="limits", replications=3)
    assert list(result.replications.columns)[:3] == ["mean", "low", "high"]
    assert result.replications.loc["refused_share", "method"] == "batch means"
    assert (result.replications["mean"] > 0).any()
    assert simulator.run("poisson.toml", fidelity="limits").replications.empty


def _constant(rate: str) -> str:
    return POISSON.replace("poisson", "constant").replace("60/1m", rate).partition("[[thr")[0]


def test_capacity_finds_the_limit_itself() -> None:
    found = simulator.capacity(
        _constant("10/1m"),
        vary="clients.c.arrivals.rate",
        between=("10/1m", "90/1m"),
        keep="refused_share == 0",
        replications=2,
    )
    assert (found.keeps, found.breaks) == ("50/1m", "50.05/1m")  # a mean rate takes decimals
    assert len(found.trials) <= 13


def test_capacity_is_unsure_where_chance_decides() -> None:
    found = simulator.capacity(
        POISSON,
        vary="clients.c.arrivals.rate",
        between=("20/1m", "120/1m"),
        keep="refused_share <= 0.1",
        replications=4,
    )
    assert found.keeps is not None
    assert found.breaks is not None
    low, high = (float(text.split("/")[0]) for text in (found.keeps, found.breaks))
    assert 35 < low < high < 75
    assert high <= 1.1 * low
    assert found.border is not None
    assert low <= found.border.low < found.border.high <= high
    assert found.runs <= 200


@pytest.mark.parametrize(
    ("between", "keeps", "breaks"),
    [(("5/1m", "40/1m"), "40/1m", None), (("60/1m", "90/1m"), None, "60/1m")],
)
def test_capacity_says_when_an_end_decides(
    between: tuple[str, str], keeps: str | None, breaks: str | None
) -> None:
    found = simulator.capacity(
        _constant("10/1m"),
        vary="clients.c.arrivals.rate",
        between=between,
        keep="refused_share == 0",
        replications=2,
    )
    assert (found.keeps, found.breaks) == (keeps, breaks)
    assert len(found.trials) == 2
    assert found.is_decided


@pytest.mark.slow
def test_studies_are_the_same_where_they_are_compiled(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Capacity, replications and a comparison of their folders, digit for digit."""
    found = [
        simulator.capacity(
            POISSON,
            vary="clients.c.arrivals.rate",
            between=("20/1m", "120/1m"),
            keep="refused_share <= 0.1",
            replications=3,
            most_replications=30,
            tolerance=0.1,
            fidelity=fidelity,
        )
        for fidelity in ("limits", "compiled")
    ]
    assert found[0].trials == found[1].trials
    (here / "p.toml").write_text(POISSON)
    argv = ["capacity", "p.toml", "--vary", "clients.c.arrivals.rate", "--between", "20/1m"]
    argv += ["120/1m", "--keep", "refused_share <= 0.1", "--replications", "3"]
    argv += ["--most-replications", "30", "--tolerance", "0.1"]
    texts = []
    for fidelity in ("limits", "compiled"):
        main([*argv, "--quiet", "--fidelity", fidelity])
        texts.append(capsys.readouterr().out)
        run = ["run", "p.toml", "--fidelity", fidelity, "--replications", "3"]
        assert main([*run, "--quiet", "--out", fidelity]) == 0
        capsys.readouterr()
    assert texts[0] == texts[1] != ""
    assert main(["compare", "limits", "compiled"]) == 0


def test_the_studies(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "c.toml").write_text(_constant("10/1m"))
    argv = ["capacity", "c.toml", "--vary", "clients.c.arrivals.rate", "--between", "10/1m"]
    argv += ["90/1m", "--keep", "refused_share == 0", "--replications", "2"]
    assert main([*argv, "--quiet"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "refused_share == 0 is met up to clients.c.arrivals.rate = 50/1m",
        "it is not met from clients.c.arrivals.rate = 50.05/1m on",
    ]


def test_a_search_says_how_much_it_rests_on(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not decided is an answer: how many runs would do, and an exit code where it counts."""
    argv = ["capacity", "poisson.toml", "--vary", "clients.c.count", "--between", "0", "2"]
    argv += ["--keep", "refused_share < 0.3", "--most-replications", "14"]
    assert main(argv) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[1] == "clients.c.count = 0: coarse search: no value"
    assert "no value is shown to meet refused_share < 0.3" in printed
    (line,) = [line for line in printed if line.startswith("not decided: where it is met; about")]
    most = line.rpartition(" ")[2]
    assert int(most) > 14
    assert printed[-1] == "14 runs"
    assert main([*argv[:-1], most, "--strict", "--quiet"]) == 0
    assert "is met up to clients.c.count = 2" in capsys.readouterr().out


def test_a_search_ends_with_its_budget_and_says_how_sharp_it_is(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tolerance would take thousands of runs: the answer is as sharp as the runs allow."""
    argv = ["capacity", "shared-office", "--vary", "clients.script.arrivals.rate", "--between"]
    argv += ["1/10s", "20/10s", "--keep", "refused_share{client='browsers'} <= 0.05", "--strict"]
    assert main(argv) == 0
    printed = capsys.readouterr().out.splitlines()
    assert int(printed[-1].removesuffix(" runs")) <= 200
    (border,) = [line for line in printed if line.startswith("the border is at ")]
    percent = float(border.partition(" ± ")[2].removesuffix("\u202f%"))
    assert 1 < percent < 5
    (line,) = [line for line in printed if line.startswith("the tolerance of 0.01 is not reached")]
    assert int(line.rpartition(" ")[2]) > 1_000
    (line,) = [line for line in printed if line.startswith("what limits it: ")]
    varies = float(line.split()[-4])
    assert percent * 5 < varies < percent * 7.5  # 95 % of 100 to 200 runs: σ = ± / 1.96 · √runs


def test_a_search_says_how_far_it_is_and_what_is_known(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial may take hundreds of runs: silence would look like a hang."""
    monkeypatch.setattr(progress, "TELL_EVERY_S", 0.0)
    rate = "clients.c.arrivals.rate"
    argv = ["capacity", "poisson.toml", "--vary", rate, "--between", "40/1m", "300/1m"]
    argv += ["--keep", "refused_share <= 0.3", "--tolerance", "0.2"]
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert err.splitlines()[0] == f"{rate} = 40/1m: 1 of 5 runs; so far nothing is decided"
    failed = next(line for line in out.splitlines() if ": not met (" in line)
    value = failed.partition(" = ")[2].partition(":")[0]
    assert " runs, about " in err.splitlines()[-1]
    assert " left; so far " in err.splitlines()[-1]
    assert value
    assert main([*argv, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_an_interrupted_search_says_what_is_known(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C after the first trial: its answer stands, and the exit code is that of Ctrl-C."""
    played: list[str] = []

    def interrupted(*told: Any) -> Player:
        whole = scenario_player(*told)

        def play(value: str, seeds: Sequence[int]) -> tuple[list[float], list[float]]:
            if len(played) == 10:
                raise KeyboardInterrupt
            played.append(value)
            return whole(value, seeds)

        return play

    monkeypatch.setattr(capacity, "scenario_player", interrupted)
    argv = ["capacity", "poisson.toml", "--vary", "clients.c.arrivals.rate", "--between", "20/1m"]
    assert main([*argv, "120/1m", "--keep", "refused_share <= 0.1"]) == 130
    printed = capsys.readouterr()
    assert "the search is not finished: it was interrupted" in printed.out
    assert "simulator: interrupted" in printed.err


@pytest.mark.parametrize(
    ("vary", "between", "keep", "text"),
    [
        ("clients.x.count", ("1", "2"), "refused == 0", "has no element 'x'"),
        ("clients.c.count", ("1", "2/1s"), "refused == 0", "must be two numbers"),
        ("clients.c.count", ("2", "1"), "refused == 0", "must rise"),
        ("clients.c.count", ("1", "9" * 400), "refused == 0", "must be two numbers"),
        ("clients.c.count", ("1", "9" * 5_000), "refused == 0", "must be two numbers"),
        ("clients.c.count", ("1", "2"), "refusals == 0", "there is no 'refusals'"),
    ],
)
def test_a_search_that_cannot_be_is_one_line(
    vary: str, between: tuple[str, str], keep: str, text: str
) -> None:
    with pytest.raises(InputError, match=text):
        simulator.capacity(POISSON, vary=vary, between=between, keep=keep)


def test_capacity_says_nothing_of_a_value_where_nobody_asks() -> None:
    """No clients have no share: that neither keeps nor breaks a condition on it."""
    for keep in ("refused_share{client='c'} <= 0.9", "latency_p99 <= 1s"):
        slow = POISSON.replace("[[thr", 'service = { kind = "exponential", mean = "9ms" }\n[[thr')
        found = simulator.capacity(slow, vary="clients.c.count", between=(0, 1), keep=keep)
        assert [found.trials[0].verdict, found.trials[-1].verdict] == ["not decided", "met"]
        assert (found.keeps, found.breaks) == ("1", None)


def test_compare_pairs_by_seed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--fidelity", "limits", "--replications", "5", "--quiet"]
    assert main(["run", "poisson.toml", "--out", "a", *common]) == 0
    (here / "loose.toml").write_text(POISSON + '[rules.LIM-PUBLIC]\nrate = "55/1m"\n')
    assert main(["run", "loose.toml", "--out", "b", *common]) == 0
    capsys.readouterr()
    assert main(["compare", "a", "b"]) == 1
    printed = capsys.readouterr().out
    assert "paired by seed (5 pairs)" in printed
    assert "refused by clause LIM-PUBLIC" in printed
    assert "_" not in printed, "a table for people has titles, not the names of columns"
    found = simulator.compare("a", "b")
    lines = {d.metric: d for d in found.differences}
    assert lines["offered"].change.mean == 0  # the same arrivals under the same seeds
    assert not lines["offered"].is_sure
    assert lines["refused"].change.mean < 0
    assert lines["refused"].is_sure
    assert 0 < lines["goodput_per_s"].change.low < 1
    assert lines["goodput_per_s"].is_sure
    assert main(["compare", "a", "a"]) == 0
    assert "no metric differs" in capsys.readouterr().out
    assert main(["compare", "a", "nowhere"]) == 2
    summary = json.loads((here / "b/summary.json").read_text()) | {"format": 1}
    (here / "b/summary.json").write_text(json.dumps(summary))
    capsys.readouterr()
    assert main(["compare", "a", "b"]) == 2
    assert "of format 2; its summary.json has format 1" in capsys.readouterr().err


@pytest.mark.slow
def test_run_replicates_until_its_shares_are_known(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["run", "poisson.toml", "--fidelity", "compiled", "--force", "--out", "a"]
    assert main([*argv, "--precision", "0.02"]) == 0
    printed = capsys.readouterr().out
    found = json.loads((here / "a" / "summary.json").read_text())["replications"]
    count = len(found["runs"])
    assert found["precision"]["reached"]
    assert f"precision: every share is known to ± 0.02 after {count} runs" in printed
    for name, each in found["intervals"].items():
        if name.startswith("refused_share"):
            assert each["method"] == "bootstrap-t"
            assert (each["high"] - each["low"]) / 2 <= 0.02
            assert 0 <= each["low"] < each["high"] <= 1
    # What fewer runs leave open is said with what would do, and counts where it is asked to.
    few = ["--precision", "0.02", "--most-replications", "6"]
    assert main([*argv, *few]) == 0
    (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("precision: ")]
    assert line.startswith("precision: ± 0.02 is not reached after 6 runs; about ")
    foreseen = int(line.split()[-4])
    assert 0.25 * count < foreseen < 4 * count
    assert main([*argv, *few, "--strict"]) == 1
    assert main([*argv, "--precision", "0.02", "--most-time", "1ms"]) == 0
    assert "is not reached after 10 runs" in capsys.readouterr().out


@pytest.mark.slow
def test_compare_replicates_until_differences_are_known(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "loose.toml").write_text(POISSON + '[rules.LIM-PUBLIC]\nrate = "55/1m"\n')
    for name, out in (("poisson.toml", "a"), ("loose.toml", "b")):
        assert main(["run", name, "--fidelity", "compiled", "--quiet", "--out", out]) == 0
    capsys.readouterr()
    assert main(["compare", "a", "b", "--precision", "0.02"]) == 1
    printed = capsys.readouterr().out
    assert "precision: every share is known to ± 0.02 after " in printed
    assert "paired by seed" in printed
    few = ["compare", "a", "b", "--precision", "0.02", "--most-replications", "5"]
    assert main(few) == 1
    assert "precision: ± 0.02 is not reached after 5 runs; about " in capsys.readouterr().out
    assert main(["compare", "a", "a", *few[3:]]) == 0


def test_compare_pairs_single_runs_by_time(here: Path) -> None:
    one = simulator.run("poisson.toml", fidelity="limits")
    again = simulator.run("poisson.toml", fidelity="limits")
    assert simulator.compare(one, again).same_rows
    loose = simulator.run(POISSON + '[rules.LIM-PUBLIC]\nrate = "55/1m"\n', fidelity="limits")
    found = simulator.compare(one, loose)
    assert found.paired == "slices"
    lines = {d.metric: d for d in found.differences}
    difference = loose.summary["totals"]["refused"] - one.summary["totals"]["refused"]
    assert lines["refused"].change.mean == difference
    assert "paired by time" in found._repr_html_()
    loose.save(here / "a<b>")
    found = simulator.compare(one, here / "a<b>")
    assert "a&lt;b&gt;, paired by time" in found._repr_html_()


def test_compare_of_other_seeds_exits_with_1_for_what_is_significant(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--fidelity", "limits", "--replications", "5", "--quiet"]
    tight = POISSON.replace("<= 0.5", "<= 1") + '[rules.LIM-PUBLIC]\nrate = "20/1m"\n'
    (here / "tight.toml").write_text(tight)
    for name, seed, out in (("poisson", 7, "a"), ("poisson", 100, "b"), ("tight", 100, "c")):
        assert main(["run", f"{name}.toml", "--seed", str(seed), "--out", out, *common]) == 0
    capsys.readouterr()
    assert main(["compare", "a", "b"]) == 0
    printed = capsys.readouterr().out
    assert "at 5 % for all metrics together (Holm)" in printed
    assert "no difference is significant: other seeds alone would differ as much" in printed
    assert main(["compare", "a", "b", "--json"]) == 0
    assert not any(line["sure"] for line in json.loads(capsys.readouterr().out))
    assert main(["compare", "a", "c"]) == 1
    assert "no difference is significant" not in capsys.readouterr().out
    changed = simulator.compare("a", "c")
    assert "refused" in changed.significant
    assert changed.frame.loc["refused", "sure"]
    assert "offered" not in changed.significant


@pytest.mark.slow
def test_equal_scenarios_seldom_have_a_significant_difference() -> None:
    """Of 17 intervals of 95 % more than half of the tables have one without 0; Holm's test, 5 %."""
    random = np.random.default_rng(7)
    alarms = apart = detected = 0
    for _ in range(200):
        before, after = (
            [{f"m{place}": value for place, value in enumerate(run)} for run in side]
            for side in random.normal(size=(2, 10, 17))
        )
        changes, significant = comparison._tested(partial(comparison._independent, before, after))
        assert significant <= {d.metric for d in changes if d.is_sure}
        apart += any(d.is_sure for d in changes)
        alarms += bool(significant)
        moved = [{name: value + 3 * (name == "m0") for name, value in run.items()} for run in after]
        _, significant = comparison._tested(partial(comparison._independent, before, moved))
        detected += "m0" in significant
    assert apart > 80
    assert alarms <= 18
    assert detected > 190


def test_compare_leaves_out_what_one_scenario_alone_has(here: Path) -> None:
    """A metric that B never measured is not 0 there; a clause that refused nothing is."""
    common = {"fidelity": "limits", "replications": 3}
    own = POISSON.replace("refused_share <= 0.5", "offered{client='c'} > 0")
    free = POISSON + '[rules.LIM-PUBLIC]\nrate = "900/1m"\n'
    found = simulator.compare(simulator.run(own, **common), simulator.run(free, **common))  # type: ignore[arg-type] # reason: flags of several types
    lines = {d.metric: d for d in found.differences}
    assert "offered{client='c'}" not in lines
    assert lines["refused{clause='LIM-PUBLIC'}"].b == 0.0
    assert lines["refused{clause='LIM-PUBLIC'}"].a > 0


def test_compare_of_single_runs_adds_up_slices_with_and_without_rows() -> None:
    text = POISSON + '[rules.LIM-PUBLIC]\nrate = "3/1m"\nblock = "45s"\n'
    text = text.replace('rate = "60/1m"', 'rate = "9/1m"')
    one = simulator.run(text, fidelity="limits")
    other = simulator.run(text.replace('"45s"', '"3s"'), fidelity="limits")
    lines = {d.metric: d for d in simulator.compare(one, other).differences}
    bins = [each.metrics(by="time", bin=3 * S) for each in (one, other)]
    assert len(bins[0]) < 20  # the slices are as long; some are empty
    for metric, column in (("offered", "offered"), ("blocked_time", "blocked_ns")):
        steps = [
            float(bins[1][column].get(at, 0)) - float(bins[0][column].get(at, 0))
            for at in range(0, 60 * S, 3 * S)
        ]
        found, expected = lines[metric].change, interval_of(steps)
        assert found.mean == pytest.approx(20 * expected.mean)
        assert found.method == expected.method
        assert found.half_width >= 20 * expected.half_width * 0.999  # slices may correlate
    assert math.isinf(lines["first_refusal"].change.low)
    assert lines["refused_share{client='c'}"].change.low < -0.9
    for seed, said in ((7, "not the same warm-up"), (8, "differ in length or warm-up")):
        later = simulator.run(text, fidelity="limits", warm_up="10s", seed=seed)
        assert said in simulator.compare(one, later).said


def test_compare_of_a_run_without_requests_says_0_of_it() -> None:
    """That B offered nothing is the one thing to know; a line that is missing hid it."""
    some = simulator.run(POISSON, fidelity="limits")
    none = simulator.run(POISSON.replace('"60/1m"', '"1/20000h"'), fidelity="limits")
    offered = some.summary["totals"]["offered"]
    assert offered > none.summary["totals"]["offered"] == 0
    for a, b in ((some, none), (none, some), (none, none)):
        lines = {d.metric: d for d in simulator.compare(a, b).differences}
        was, now = (float(each.summary["totals"]["offered"]) for each in (a, b))
        assert (lines["offered"].a, lines["offered"].b) == (was, now)
        assert lines["offered"].change.mean == now - was
        assert lines["offered"].is_sure == (was != now)
        assert lines["blocked_time"].b == b.clauses["blocked_ns"].sum()
        assert ("refused_share" in lines) == (was + now > 0)


@pytest.mark.slow
def test_everything_fires_or_says_why_not() -> None:
    lines = simulator.coverage()
    missing = [line for line in lines if not line.fired and not line.masked]
    assert missing == []
    covered = {line.clause for line in lines}
    assert covered == {item.id for item in CLAUSES if item.id.startswith(COVERED)}
    counters = {name for rule in LimitTable.default() for name in rule.counter_names}
    ways = {(line.clause, line.what) for line in lines}
    for name in counters:
        clause, _, leg = name.partition(".")
        for way in ("refuses", "blocks", "delays"):
            assert (clause, f"{leg} {way}".strip()) in ways
    masked = {(line.clause, line.what) for line in lines if line.masked}
    assert masked == {("LIM-PRIVATE", f"ip {way}") for way in ("refuses", "blocks", "delays")}


def test_coverage_notices_what_does_not_fire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BOUNDS, "QUO-CVC", ("expires", lambda: None))
    monkeypatch.delitem(BOUNDS, "RCT-HOT")
    only = LimitTable((LimitTable.default()["LIM-PATCH"],))
    lines = simulator.coverage(only)
    missing = {line.clause for line in lines if not line.fired}
    assert {"QUO-CVC", "RCT-HOT", "LIM-IP", "LIM-PRIVATE"} <= missing
    assert "LIM-PATCH" not in missing


@pytest.mark.slow
def test_the_coverage_command(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["coverage", "--out", "cov"]) == 0
    printed = capsys.readouterr().out
    assert "62 of 65 fired, 0 missing" in printed
    assert "hidden by LIM-IP" in printed
    assert len(json.loads((here / "cov/coverage.json").read_text())) == 65


def test_the_public_face_has_what_it_names() -> None:
    for name in simulator.__all__:
        assert getattr(simulator, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'walk'"):
        getattr(simulator, "walk")  # noqa: B009 # reason: shows the error
