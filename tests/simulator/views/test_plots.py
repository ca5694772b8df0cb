"""Plots for a notebook: valid charts of a bounded size that show the run's own numbers."""

import math
import re

import pandas as pd
import pytest
import vl_convert
from markupsafe import escape

import simulator
from engine.files import span_text
from simulator.rows.findings import gather
from simulator.views import svg
from simulator.views.charts import RATES, Estimates, Plots, PlottedEstimate, estimates
from simulator.views.text import (
    Axis,
    binding_text,
    count_text,
    number_text,
    plain_text,
    share_text,
)

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


# --- numbers, instants and hostile texts ---------------------------------------------------------


def plain(text: str) -> str:
    return text.replace("\u202f", " ")


@pytest.mark.parametrize(
    ("span_ns", "text"),
    [
        (0, "0 s"),
        (1, "1 ns"),
        (1_500, "1.5 µs"),
        (2_500_000, "2.5 ms"),
        (65 * SECOND_NS, "1 min 5 s"),
        (60 * SECOND_NS, "1 min"),
        (3_600 * SECOND_NS + 1, "1 h"),
        (298_859 * SECOND_NS, "3 d 11 h"),
    ],
)
def test_spans(span_ns: int, text: str) -> None:
    assert plain(span_text(span_ns)) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 10, "0 %"),
        (1, 1_000_000, "< 0.01 %"),
        (135, 9_999, "1.4 %"),
        (999_999, 1_000_000, "> 99.99 %"),
        (10, 10, "100 %"),
        (0, 0, "0 %"),
        (1, 1_000, "0.10 %"),
    ],
)
def test_shares_never_hide_the_rare(part: int, whole: int, text: str) -> None:
    assert plain(share_text(part, whole)) == text


@pytest.mark.parametrize(
    ("hit", "known", "where"),
    [
        (1, 1, "at one address"),
        (1, 2, "at one of 2 addresses"),
        (2, 2, "at both addresses"),
        (3, 3, "at all 3 addresses"),
        (2, 3, "at 2 of 3 addresses"),
    ],
)
def test_a_group_is_told_at_how_many_addresses_it_is_bound(
    hit: int, known: int, where: str
) -> None:
    binds = {"clause": "LIM-IP", "addresses": hit}
    group = {"binds": binds, "clauses": ["LIM-IP"], "addresses": known}
    assert binding_text(group) == f"LIM-IP {where}"
    assert binding_text({**group, "clauses": ["LIM-IP", "LIM-PUBLIC"]}) == (
        f"LIM-IP most of all {where}"
    )


def test_counts_stand_in_groups_of_three() -> None:
    assert count_text(1_234_567) == "1,234,567"


@pytest.mark.parametrize(
    ("value", "text"),
    [(28_170.0, "28,170"), (1_234_567.8, "1,234,568"), (0.000012, "0.000012"), (math.nan, "–")],
)
def test_numbers_have_no_exponent(value: float, text: str) -> None:
    assert number_text(value) == text


def test_control_characters_are_shown_not_obeyed() -> None:
    assert plain_text("a\x1b[31m\u202eb\n") == "a\\x1b[31m\\u202eb\\n"
    assert plain_text("Zürich") == "Zürich"


def test_ticks_are_round_few_and_in_utc_where_the_start_is_known() -> None:
    day_ns = 86_400 * SECOND_NS
    start_ns = 1_431_857_100 * SECOND_NS
    axis = Axis(int(3.46 * day_ns), start_ns)
    ticks = axis.ticks()
    assert 3 <= len(ticks) <= 9
    assert all((start_ns + at) % (3_600 * SECOND_NS) == 0 for at, _ in ticks)
    assert [plain(text) for _, text in ticks][:3] == ["12:00", "18 May", "12:00"]
    assert axis.instant(3 * SECOND_NS) == "2015-05-17 10:05:03"
    assert plain(Axis(60 * SECOND_NS).instant(SECOND_NS)) == "+1 s"


@pytest.mark.parametrize(
    ("days", "step_days"),
    [(9, 2), (17, 4), (50, 7), (70, 14), (200, 30), (700, 90), (1_500, 365), (3_000, 730)],
)
def test_ticks_and_bins_are_cut_into_the_same_spans_beyond_two_days(
    days: int, step_days: int
) -> None:
    day_ns = 86_400 * SECOND_NS
    step_ns = step_days * day_ns
    assert [at for at, _ in Axis(days * day_ns).ticks()][:2] == [0, step_ns]
    findings = gather([], {"warm_up_ns": 0, "duration_ns": days * day_ns}, bins=8)
    assert findings.bin_ns == step_ns


@pytest.mark.parametrize("end_ns", [1, 2, 999, 10**9, 10**12, 10**15, 10**18])
def test_every_axis_has_ticks(end_ns: int) -> None:
    assert 1 <= len(Axis(end_ns).ticks()) <= 10
