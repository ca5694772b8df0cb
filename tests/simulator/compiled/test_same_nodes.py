"""Several nodes: both fidelities give the same rows and the same counts, bit for bit."""

from __future__ import annotations

import pytest

from simulator.scenario import builtin, load, loads, with_value
from tests.drawn import Choices, Seeded, outside_scenario_text, scenario_text
from tests.simulator.compiled.test_same_decisions import check_same

BALANCES = ("round-robin", "random", "address", "key", "least-busy")
SHARINGS = ("none", "split", "synced", "shared-slow")
TIMES = ("1ns", "7ms", "300ms", "1s", "3s")


def text_with_nodes(text: str, choose: Choices) -> str:
    """Return a drawn scenario with drawn nodes; what sharing cannot play is left out."""
    sharing = choose.one(SHARINGS)
    count = 2 if sharing == "split" else choose.whole(2, 4)
    if sharing == "split":
        text = text.replace('compose = "lowest"', 'compose = "all"')
    if sharing in {"synced", "shared-slow"}:
        text = text.replace('throttle = "delay"', 'throttle = "refuse"')
    if choose.either():
        text += '\n[rules.LIM-LEGACY]\nrate = "2/1s"\nshadow = true'
    return f"""{text}
[nodes]
count = {count}
balance = "{choose.one(BALANCES)}"
sharing = "{sharing}"
every = "{choose.one(TIMES)}"
lag = "{choose.one(("0s", *TIMES))}"
race = "{choose.one(TIMES)}"
"""


def check(seeds: range) -> None:
    """Check drawn scenarios, with and without proxies and reactors."""
    for seed in seeds:
        choose = Seeded(seed)
        make = outside_scenario_text if seed % 3 == 0 else scenario_text
        check_same(loads(text_with_nodes(make(choose), choose)))


def test_drawn_scenarios_with_nodes() -> None:
    check(range(60))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(60, 660, 100))
def test_many_drawn_scenarios_with_nodes(first: int) -> None:
    check(range(first, first + 100))


@pytest.mark.slow
@pytest.mark.parametrize("name", builtin())
def test_built_in_scenarios_on_nodes_whole(name: str) -> None:
    scenario = load(name)
    for place, sharing in enumerate(("none", "synced", "shared-slow")):
        changes = {"count": 3, "sharing": sharing, "balance": BALANCES[place + 2], "lag": "200ms"}
        played = scenario
        for field, value in changes.items():
            played = with_value(played, f"nodes.{field}", value)
        check_same(played)
