"""From a log to a scenario: what is told of it, and what is refused in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import simulator
from engine.errors import InputError
from engine.files import parse_toml
from simulator.cli import main
from simulator.logs import LogMap
from simulator.scenario import Scenario, loads
from simulator.scenario.draws import DailyArrivals, OnOffArrivals, PoissonArrivals
from simulator.study.fit import Fit
from simulator.study.fit._fit import _refusals
from simulator.study.fit.judge import _OF_LIMITS, Judgement, Line, _interval
from simulator.study.fit.observed import _log_mix

S = 1_000_000_000

TWO = """
duration = "10m"
seed = 5
[[tenants]]
name = "shop"
[[applications]]
name = "page"
tenant = "shop"
kind = "public"
[[applications]]
name = "back"
tenant = "shop"
keys = 2
[[addresses]]
name = "office"
[[clients]]
name = "people"
count = 20
application = "page"
addresses = "office"
think = { kind = "exponential", mean = "20s" }
retry = { kind = "fixed", delay = "2s", attempts = 4, honour_retry_after = false }
[[clients]]
name = "bursts"
count = 2
application = "back"
loop = "open"
arrivals = { kind = "on-off", on_rate = "20/1s", on = "5s", off = "15s" }
mix = [{ request = "GET /tokens", weight = 3 }, { request = "POST /tokens/search" }]
"""
MAP = """
time = { field = "t_ns", unit = "ns" }
address = "ip"
key = "key"
method = "method"
path = "path"
tenant = "tenant"
application = "application"
application_kind = { field = "application", lookup = { page = "public", back = "private" } }
"""


@pytest.fixture(scope="module")
def two() -> simulator.Fit:
    """Return the fit of the rows of a scenario of two groups."""
    rows = simulator.run(loads(TWO), fidelity="compiled", check=False).requests
    log_map = LogMap.from_document(parse_toml(MAP, "map.toml"))
    return simulator.fit(rows, map=log_map, runs=9)


@pytest.mark.slow
def test_own_rows_give_groups_keys_and_addresses_back(two: simulator.Fit) -> None:
    groups = {group.applications[0]: group for group in two.scenario.clients}
    assert groups["page"].count == 20
    assert groups["back"].count == 2
    assert [app.ordinary_keys for app in two.scenario.applications] == [2, 1]
    pool = next(p for p in two.scenario.addresses if p.name == groups["page"].addresses)
    assert pool.count == 1
    assert groups["back"].addresses is None
    mix = {ask.request: ask.weight for ask in groups["back"].mix}
    assert mix["GET /tokens"] / sum(mix.values()) == pytest.approx(0.75, abs=0.05)


def interval(frame: pd.DataFrame, *line: str) -> tuple[float, float]:
    """Return the ends of a line's interval."""
    found = frame[["low", "high"]].to_dict("index")[line]
    return found["low"], found["high"]


def test_own_rows_give_their_parameters_back_within_intervals(two: simulator.Fit) -> None:
    found = two.parameters
    people = next(g.name for g in two.scenario.clients if g.applications == ("page",))
    bursts = next(g.name for g in two.scenario.clients if g.applications == ("back",))
    for group, name, truth in (
        (people, "think", 20.0),
        (people, "retry.delay", 2.0),
        (bursts, "on_rate", 20.0),
        (bursts, "on", 5.0),
        (bursts, "off", 15.0),
    ):
        low, high = interval(found, group, name)
        assert low <= truth <= high, (group, name, low, high)
        assert high < 2.5 * low, "an interval that says something"


def test_the_first_line_has_the_figures_of_the_table(two: simulator.Fit) -> None:
    own, *others = two.under
    assert own.factor == 1
    assert len(others) == 2
    of_limits = [line for line in two.judged.lines if line.measure in _OF_LIMITS]
    assert [own.share, *own.others] == of_limits
    assert two.differs or own.words in _refusals(two)


def test_the_judge_plays_both_under_the_same_limits(two: simulator.Fit) -> None:
    lines = two.comparison
    log = lines["log"].to_dict()
    agrees = lines["agrees"].to_dict()
    assert agrees["offered", ""]
    assert agrees["refused share", ""]
    assert agrees["refused share", "LIM-PUBLIC"]
    assert log["blocked s", "LIM-PUBLIC"] > 0
    assert lines["scenario"].to_dict()["peak", "LIM-READ"] == 100
    assert {("dispersion", f"{width} s") for width in (1, 10, 60)} < set(log)


def test_the_file_reads_as_it_plays(two: simulator.Fit) -> None:
    assert loads(two.text, "frame.toml") == two.scenario
    assert "# 20 seen" in two.text
    assert "bursts," in two.text
    shown = two._repr_html_()
    assert "Limits of this fit" in shown
    assert two.plots.rate().to_dict()["layer"]
    assert two.plots.comparison().to_dict()["layer"]


def poisson_log(seed: int, rate: float, span_s: float) -> pd.DataFrame:
    """Return the rows of one client that asks at random."""
    random = np.random.Generator(np.random.Philox(seed))
    at = np.sort(random.uniform(0, span_s, random.poisson(rate * span_s)))
    return pd.DataFrame(
        {"time": (at * 1e9).astype(np.int64) + 1_700_000_000 * S, "ip": "a"}
    ).assign(request="POST /tokenize")


def arrivals_of(scenario: Scenario) -> object:
    """Return the arrivals of the only group."""
    (group,) = scenario.clients
    return group.arrivals


def test_what_comes_at_random_is_poisson_and_what_comes_in_bursts_is_not() -> None:
    plain = simulator.fit(poisson_log(1, 2.0, 600.0), judged=False)
    assert isinstance(arrivals_of(plain.scenario), PoissonArrivals)
    rows = [poisson_log(burst, 10.0, 4.0) for burst in range(20)]
    for burst, frame in enumerate(rows):
        frame["time"] += burst * 30 * S
    bursty = simulator.fit(pd.concat(rows), judged=False, form="parametric")
    assert isinstance(arrivals_of(bursty.scenario), OnOffArrivals)
    low, high = interval(bursty.parameters, "public", "on")
    assert low <= 4.0 <= high


def test_hours_that_differ_by_chance_are_no_daily_shape() -> None:
    even = poisson_log(2, 0.02, 36 * 3_600.0)
    assert isinstance(arrivals_of(simulator.fit(even, judged=False).scenario), PoissonArrivals)
    hour = even["time"] // (3_600 * S) % 24
    shaped = even[(hour < 6) | (even.index % 4 == 0)]
    assert isinstance(
        arrivals_of(simulator.fit(shaped, judged=False, form="parametric").scenario), DailyArrivals
    )


def test_what_was_held_out_is_predicted_with_an_interval() -> None:
    found = simulator.fit(poisson_log(3, 1.2, 3_600.0), holdout="50%", runs=9)
    low, high = interval(found.comparison, "refused share", "")
    assert 0 < low <= found.comparison["log"].to_dict()["refused share", ""] <= high < 0.5
    assert found.judged.predicted


def test_who_comes_only_in_what_was_held_out_is_in_no_group() -> None:
    early = poisson_log(3, 1.2, 1_200.0)
    late = poisson_log(4, 1.2, 300.0)
    late = late.assign(time=late["time"] + 900 * S, ip="203.0.113.77")
    rows = pd.concat([early, late]).sort_values("time")
    found = simulator.fit(rows, holdout="50%", judged=False)
    assert found.groups["clients"].sum() == early["ip"].nunique()


def test_an_attempt_that_a_log_states_is_taken_as_it_stands() -> None:
    rows = poisson_log(5, 1.0, 300.0)
    stated = rows.assign(attempt=np.where(np.arange(len(rows)) % 4 == 0, "1", "2"))
    assert "rate 14.9/min" in simulator.fit(stated, judged=False).text, "a retry is no arrival"
    assert "rate 59.5/min" in simulator.fit(rows, judged=False).text


@pytest.mark.parametrize("stated", ["²", "9" * 5_000])
def test_an_attempt_that_is_no_number_is_unknown(stated: str) -> None:
    rows = poisson_log(5, 1.0, 300.0)
    odd = rows.assign(attempt=np.where(np.arange(len(rows)) % 4 == 0, stated, ""))
    assert "rate 59.5/min" in simulator.fit(odd, judged=False).text


RETRYING = """
duration = "10m"
seed = 5
[[tenants]]
name = "shop"
[[applications]]
name = "page"
tenant = "shop"
kind = "public"
[[addresses]]
name = "office"
[[clients]]
name = "people"
count = 2
application = "page"
addresses = "office"
loop = "open"
arrivals = { kind = "poisson", rate = "3/5s" }
mix = [{ request = "GET /tokens" }]
retry = { kind = "fixed", delay = "700ms", attempts = 3, honour_retry_after = false }
"""


def test_a_log_that_numbers_only_retries_tells_what_is_no_retry() -> None:
    rows = simulator.run(loads(RETRYING), fidelity="compiled", check=False).requests
    marked = rows.assign(attempt=rows["attempt"].astype(str).where(rows["attempt"] > 1, ""))
    found = simulator.fit(marked, judged=False).groups
    assert found["first_attempts"].sum() == (rows["attempt"] == 1).sum()


def test_rare_kinds_of_requests_join_a_common_one_and_are_counted() -> None:
    random = np.random.Generator(np.random.Philox(6))
    rows = poisson_log(6, 4.0, 300.0)
    kinds = [f"/kind-{chr(97 + number)}" for number in range(26)]
    rows["method"], rows["path"] = "GET", random.permutation(np.resize(kinds, len(rows)))
    assert "2 rare kinds of requests" in " ".join(simulator.fit(rows, judged=False).lost)


def test_a_further_value_is_predicted_by_students_t_and_of_many_by_ranks() -> None:
    """Textbook: the mean of five is itself uncertain by a fifth of their variance."""
    few = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    scale = few.std(ddof=1) * (1 + 1 / 5) ** 0.5
    assert _interval(few) == pytest.approx(stats.t.interval(0.95, 4, loc=3, scale=scale))
    assert _interval(np.arange(39.0)) == (0, 38)
    assert _interval(np.arange(79.0)) == (1, 77)


def test_a_kind_of_request_that_came_once_is_unlikely_in_another_group_and_not_impossible() -> None:
    """Else a single request would decide which group its client belongs to."""
    mix = np.array([[5.0, 0.0, 0.0], [4.0, 1.0, 0.0]])
    _, once, never = np.exp(_log_mix(np.array([1.0, 0.0]), mix)).tolist()
    assert 0.05 < once < 0.1
    assert never < 1e-300


def test_a_fit_says_in_what_the_log_differs() -> None:
    lines = [
        Line("gap distance", "people", 0.4, 0.1, 0.0, 0.2),
        Line("refused share", "LIM-PUBLIC", 0.0, 0.2, 0.1, 0.3),
        Line("peak", "LIM-READ", 90, 40, 30, 50),
        Line("offered", "", 100, 100, 90, 110),
    ]
    said = Judgement(lines, 9, False, range(1), np.zeros(1, np.int64), np.zeros((1, 1))).lost
    assert said == [
        "the times between requests of people: they have another distribution",
        "refused share by LIM-PUBLIC: less in the log",
        "how full LIM-READ gets: fuller in the log",
    ]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (1, "must hold at least 20 requests to be fitted; it has 1, take a longer one"),
        (40, "must span at least 5s to be fitted; all its times lie within 1ns"),
    ],
)
def test_a_log_that_cannot_be_fitted_is_told_so(rows: int, said: str) -> None:
    frame = pd.DataFrame({"time": [1_700_000_000 * S] * rows, "ip": ["a"] * rows})
    frame["request"] = "POST /tokenize"
    with pytest.raises(InputError, match=said) as caught:
        simulator.fit(frame)
    assert "\n" not in str(caught.value)


def test_the_command_writes_a_file_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    poisson_log(4, 1.0, 120.0).to_csv("access.csv", index=False)
    assert main(["fit", "access.csv", "--runs", "9"]) == 0
    printed = capsys.readouterr().out
    assert "Log and scenario side by side; 9 runs" in printed
    assert "Limits of this fit:" in printed
    assert main(["check", "scenario.toml"]) == 0
    assert main(["fit", "access.csv"]) == 2
    assert "must not exist yet" in capsys.readouterr().err
    (tmp_path / "one.log").write_text("", "utf-8")
    assert main(["fit", "one.log", "--out", "other.toml"]) == 2
    assert not (tmp_path / "other.toml").exists()


@pytest.mark.slow
def test_an_interrupted_fit_leaves_nothing_half_written(tmp_path: Path) -> None:
    poisson_log(4, 1.0, 120.0).to_csv(tmp_path / "access.csv", index=False)
    code = (
        "import simulator.study.fit._fit as fit\n"
        "def stop(*_, **__): raise KeyboardInterrupt\n"
        "fit.judge = stop\n"
        "from simulator.cli import main\n"
        "raise SystemExit(main(['fit', 'access.csv', '--out', 'out.toml']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 130, done.stderr
    assert done.stderr.splitlines()[-1] == "simulator: interrupted"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["access.csv"]


@pytest.mark.parametrize(("keys", "has_none"), [(' "key_1"', False), ("", True)])
def test_a_fit_says_that_a_log_has_no_keys_only_where_it_has_none(
    tmp_path: Path, keys: str, *, has_none: bool
) -> None:
    """The combined format of `serve --access-log` has the key after the user agent."""
    lines = [
        f"192.0.2.{second % 3} - - [02/Mar/2026:08:{second // 60:02}:{second % 60:02} +0000]"
        f' "POST /tokenize HTTP/1.1" 200 - "-" "-"{keys}\n'
        for second in range(0, 600, 5)
    ]
    (tmp_path / "access.log").write_text("".join(lines), "utf-8")
    fitted = simulator.fit(tmp_path / "access.log", judged=False)
    assert any("keys: the log has none" in words for words in fitted.lost) is has_none


# --- names ---------------------------------------------------------------------------------------


_MAP = """
time = { field = "t_ns", unit = "ns" }
key = "key"
tenant = "tenant"
application = "application"
"""


REQUEST = {"ip": "192.0.2.1", "method": "POST", "path": "/tokenize"}


def _fit(tenants: tuple[str, ...]) -> Fit:
    """Fit a log of tenants that each have an application `web`."""
    rows = [
        {"t_ns": at * 10**9, "key": tenant, "tenant": tenant, "application": "web", **REQUEST}
        for at in range(30)
        for tenant in tenants
    ]
    log_map = LogMap.from_document(parse_toml(_MAP, "map.toml"))
    return simulator.fit(pd.DataFrame(rows), map=log_map, judged=False)


def test_tenants_without_a_letter_that_a_scenario_takes_are_told_apart() -> None:
    found = _fit(("日本", "中国"))
    assert [tenant.name for tenant in found.scenario.tenants] == ["tenant", "tenant-1"]
    assert [each.tenant for each in found.scenario.applications] == ["tenant", "tenant-1"]


def test_applications_of_one_name_are_told_apart() -> None:
    """Two tenants may call an application the same; a scenario's names are unique."""
    found = _fit(("one", "two"))
    applications = [(each.tenant, each.name) for each in found.scenario.applications]
    assert applications == [("one", "web"), ("two", "web-2")]
    assert found.groups.index.tolist() == ["web", "web-2"]
    assert [group.applications for group in found.scenario.clients] == [("web",), ("web-2",)]
