"""What compiled runs of one scenario share: the runs are the same as without it, bit for bit."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from simulator.play.simulation import simulate, template_for
from simulator.rows.result import Keep
from simulator.scenario import Scenario, builtin, load, loads, parse_condition
from simulator.study import runs
from simulator.study.runs import Replication, line_of, line_of_conditions, replicator


def _builtins() -> list[tuple[str, Scenario]]:
    return [(name, load(name)) for name in builtin()]


@pytest.mark.slow
@pytest.mark.parametrize("anonymous", [False, True])
def test_a_template_moves_nothing(anonymous: bool) -> None:
    met = 0
    keep: Keep = "totals" if anonymous else "rows"
    for name, scenario in _builtins():
        template = template_for(scenario, anonymous=anonymous)
        if template is None:
            continue
        met += 1
        flags: dict[str, Any] = {"fidelity": "compiled", "check": not anonymous}
        flags["headroom"] = not anonymous
        for seed in (3, 4):
            alone = simulate(scenario, seed=seed, **flags)
            shared = simulate(scenario, seed=seed, template=template, keep=keep, **flags)
            assert shared.summary["totals"] == alone.summary["totals"], name
            if not anonymous:
                for each in (shared, alone):  # rules are met in another order
                    each.summary["headroom"]["rules"].sort(key=lambda rule: str(rule["rule"]))
                assert shared.summary == alone.summary, name
    assert met > 5


DEALT = """
duration = "1m"
tenants = [{ name = "t" }]
applications = [{ name = "a", tenant = "t", kind = "public", keys = 5 }]
addresses = [{ name = "pool", count = 3, DEAL }]
[[clients]]
name = "c"
count = 9
application = "a"
addresses = "pool"
keys = { KEYS }
loop = "open"
arrivals = { kind = "poisson", rate = "30/1m" }
"""


@pytest.mark.parametrize(
    ("deal", "keys", "shares"),
    [
        ("clients_each = 2", "", True),
        ('deal = { per = "client" }', "", True),
        ("deal = { zipf = 1.0 }", "", False),
        ('deal = { per = "request" }', "", False),
        ("clients_each = 2", "zipf = 1.0", False),
        ("clients_each = 2", 'per = "request"', False),
    ],
)
def test_what_is_dealt_by_chance_is_not_shared(deal: str, keys: str, shares: bool) -> None:
    scenario = loads(DEALT.replace("DEAL", deal).replace("KEYS", keys))
    assert (template_for(scenario) is not None) == shares
    with replicator() as player:
        found = player.play(scenario, range(3), fidelity="compiled")
    for run in found:
        alone = simulate(scenario, seed=run.seed, fidelity="compiled")
        assert run.sha256 == alone.summary["sha256"]


def test_runs_are_the_same_here_and_in_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the totals alone are wanted."""
    scenario = load("shared-office")
    conditions = [parse_condition("refused_share <= 0.01"), parse_condition("offered > 0")]
    of_conditions = partial(line_of_conditions, conditions)
    alone = [line_of(simulate(scenario, seed=n, fidelity="compiled"), scenario) for n in range(6)]
    monkeypatch.setattr(runs, "_START_S", 0.0)
    told = list[Replication]()
    with replicator() as player:
        whole = player.play(scenario, range(6), fidelity="compiled", on_progress=told.append)
        assert player._workers.are_started
        lean = player.play(
            scenario, range(6), fidelity="compiled", line=of_conditions, keep="subjects"
        )
    assert sorted(run.seed for run in told) == list(range(6))
    assert [run.seed for run in whole] == list(range(6))
    for run, part, line in zip(whole, lean, alone, strict=True):
        assert repr(run.line) == repr(line)
        assert part.line["offered"] == line["offered"]


def test_short_work_starts_no_process() -> None:
    with replicator() as player:
        player.play(load("shared-office"), range(6), fidelity="compiled")
        assert not player._workers.are_started
