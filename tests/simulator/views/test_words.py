"""Numbers, instants and hostile texts as a reader sees them."""

import math

import pytest

from engine.files import span_text
from simulator.rows.findings import gather
from simulator.views.text import (
    Axis,
    binding_text,
    count_text,
    number_text,
    plain_text,
    share_text,
)

SECOND_NS = 10**9


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
