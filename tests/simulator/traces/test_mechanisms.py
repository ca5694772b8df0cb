"""A drawn mechanism shows what the limits decide, works offline, and says so without a picture."""

import json
import re

import pytest

from engine import InputError, LimitTable
from simulator import caller, decide, mechanism

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
