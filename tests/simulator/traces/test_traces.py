"""Traces through the limits alone: the table, the picture, and what is refused as input."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction

import pytest

import simulator
from engine import InputError, LimitTable
from simulator import caller, decide, mechanism


def test_a_trace_has_a_row_a_request_and_tells_the_rule_and_the_wait() -> None:
    """LIM-PUBLIC: 50 a minute, then a block of 10 s, to the nanosecond."""
    last = Fraction(10) - Fraction(1, 10**9)
    frame = simulator.trace(
        [*[0] * 51, last, 10], simulator.caller(kind="public"), block_reset="clear"
    )
    assert list(frame["outcome"][49:]) == ["admitted", "blocked", "blocked", "admitted"]
    assert list(frame["rule"][50:52]) == ["LIM-PUBLIC", "LIM-PUBLIC"]
    assert frame["wait_s"][50] == 10
    assert simulator.refused(frame) == [0, float(last)]
    assert simulator.spans(simulator.refused(frame)) == "0, 9"


def test_a_strip_says_what_it_shows_and_tells_each_outcome_by_a_colour() -> None:
    who = simulator.caller("POST", "/tokens", tenant="test")
    frame = simulator.trace([n / 10 for n in range(100)], who)
    drawn = simulator.strip(frame.assign(who="ten a second")).to_dict()
    assert drawn["description"] == (
        "Outcomes of requests over time, 0 to 9.9 s. ten a second: 50 admitted, 50 refused."
    )
    assert drawn["encoding"]["color"]["scale"]["domain"] == ["admitted", "refused"]
    full, outline = drawn["encoding"]["fillOpacity"]["scale"]["range"]
    assert full == 1 > 2 * outline, "refused is told by its form as well as by its colour"
    assert [len(rows) for rows in drawn["datasets"].values()] == [2], "a bar a run, not a request"


@pytest.mark.parametrize(
    ("times", "says"),
    [
        ([1, 0], "times_s[1] = 0 must not be before 1 s"),
        ([-1], "times_s = [-1] must be a list of seconds from 0 up"),
        ([0, math.nan], "times_s = [0, nan] must be a list of seconds from 0 up"),
    ],
)
def test_times_that_are_none_are_refused(times: list[float], says: str) -> None:
    with pytest.raises(InputError) as caught:
        simulator.decide(times, simulator.caller())
    assert says in str(caught.value)


def test_a_strip_without_its_column_says_the_way_out() -> None:
    with pytest.raises(InputError, match=r"'who' must be a column of rows.*assign\(who='a name'\)"):
        simulator.strip(simulator.trace([0], simulator.caller()))


# --- drawn mechanisms ----------------------------------------------------------------------------


TEN = LimitTable.default().replace_rule(
    "LIM-PUBLIC", rate="10/10s", action="throttle", block_ns=None
)
SIXTY = [n * 0.4 for n in range(60)]


def test_the_steps_are_the_limits_decisions_and_the_fill_is_the_counters() -> None:
    who = caller(kind="public")
    made = mechanism(SIXTY, who, table=TEN)
    decided = decide(SIXTY, caller(kind="public"), table=TEN)
    assert [step.decision.outcome for step in made.steps] == [one.outcome for one in decided]
    used = [step.used[made.names.index("LIM-PUBLIC")] for step in made.steps]
    assert used[:12] == [*range(1, 11), 10, 10], "a log of ten requests, full at the tenth"


def test_the_page_needs_no_network_and_escapes_its_title() -> None:
    made = mechanism({"<a>": [0, 1], "b": [0]}, caller(), title="<script>")
    page = made._repr_html_()
    assert "<b>&lt;script&gt;</b>" in page
    assert not re.search(r"(?:src|href)=|https?:", page)
    steps = json.loads(page.split("data = ", 1)[1].split(";\n", 1)[0])
    assert [step["text"].split(": ")[1] for step in steps] == ["<a>", "b", "<a>"]
    assert made.text.startswith("<script>: <a>: 2 admitted; b: 1 admitted")


def test_no_request_is_one_line() -> None:
    with pytest.raises(InputError, match=r"times_s = \{\} must hold at least one time"):
        mechanism([], caller())
