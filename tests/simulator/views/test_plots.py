"""Plots for a notebook: valid charts of a bounded size that show the run's own numbers."""

import re

import pandas as pd
import pytest
import vl_convert
from markupsafe import escape

import simulator
from simulator.rows.findings import gather
from simulator.views import svg
from simulator.views.charts import RATES, Estimates, Plots, PlottedEstimate, estimates
from simulator.views.text import Axis

SECOND_NS = 10**9
REQUEST = {"method": "POST", "path": "/tokenize"}


@pytest.fixture(scope="module")
def result() -> simulator.Result:
    instants = [n * SECOND_NS // 4 for n in range(800)]
    return simulator.replay(
        pd.DataFrame(
            {"t_ns": instants, "ip": [f"203.0.113.{n % 2}" for n in range(800)], **REQUEST}
        ),
        speed=2,
    )


@pytest.mark.parametrize("name", ["timeline", "shut_out", "clauses", "waits"])
def test_every_plot_draws(result: simulator.Result, name: str) -> None:
    chart = getattr(Plots(result), name)()
    assert 0 < len(chart.data) <= 5_000
    drawn = vl_convert.vegalite_to_svg(chart.to_json())
    assert len(re.findall(r'aria-roledescription="(?:bar|rect mark)"', drawn)) == len(chart.data)


def test_a_result_has_its_plots(result: simulator.Result) -> None:
    assert result.plots.waits().data["requests"].sum() == result.summary["totals"]["refused"]


def test_the_page_and_a_notebook_show_the_same_charts() -> None:
    """A chart is defined once: same counts and words, as SVG and as Altair's."""
    run = simulator.run("retry-storm", fidelity="limits", seed=3)
    found = gather(run.batches(), run.summary, bins=60)
    for name, chart in RATES.items():
        stack, drawn = chart(found), getattr(run.plots, name)()
        assert drawn.description == stack.title
        for series in stack.series:
            rows = drawn.data[drawn.data["outcome"] == series.name]
            assert rows[stack.unit].sum() == series.counts.sum()
        drawing = svg.rates(stack, Axis(found.end_ns)).markup()
        assert drawing.startswith("<svg")
        assert escape(stack.title) in drawing
    drawn = run.plots.attempts().data.groupby("outcome")["attempts"].sum()
    first = (run.requests["attempt"] == 1).sum()
    assert drawn.to_dict() == {"first attempts": first, "retries": len(run.requests) - first}


def test_a_page_and_a_notebook_show_the_same_values_in_their_intervals() -> None:
    nan = float("nan")
    rows = [
        PlottedEstimate(50, 0.5, nan, nan, "a", "coarse search", "a at 50"),
        PlottedEstimate(120, 0.02, 0.01, 0.04, "b", "decided", "b at 120"),
    ]
    title = "shares by limit"
    chart = Estimates(title, "limit", "share", "group", "runs", {"a": "c0", "b": "c1"}, rows)
    _, intervals, values = estimates(chart).to_dict()["layer"]
    data = estimates(chart).to_dict()["datasets"]
    assert [row["text"] for row in data[intervals["data"]["name"]]] == ["b at 120"]
    assert [row["value"] for row in data[values["data"]["name"]]] == [0.5, 0.02]
    drawn = svg.estimates(chart).markup()
    assert re.findall(r'class="(c\d[^"]*)"', drawn) == ["c0 shade1", "c1 shade1", "c1"]
    assert re.findall(r"<title>(.*?)</title>", drawn) == ["a at 50", "b at 120"]
    assert title in drawn


def test_the_timeline_holds_every_request(result: simulator.Result) -> None:
    data = Plots(result).timeline().data
    assert data["requests"].sum() == 800
    refused = data[data["outcome"] == "LIM-PUBLIC"]["requests"].sum()
    assert refused == result.summary["totals"]["refused"] > 0


def test_a_replay_at_the_log_s_pace_is_shown_in_utc() -> None:
    log = pd.DataFrame({"t_ns": [1_431_857_103 * SECOND_NS] * 60, "ip": "192.0.2.1", **REQUEST})
    data = Plots(simulator.replay(log)).timeline().data
    assert str(data["from"].iloc[0]) == "2015-05-17 10:05:03+00:00"


def test_plots_of_a_quiet_run_are_empty_not_broken() -> None:
    quiet = Plots(simulator.replay(pd.DataFrame({"t_ns": [0, 1], "ip": "192.0.2.1", **REQUEST})))
    for chart in (quiet.timeline(), quiet.shut_out(), quiet.waits(), quiet.latencies()):
        vl_convert.vegalite_to_svg(chart.to_json())
