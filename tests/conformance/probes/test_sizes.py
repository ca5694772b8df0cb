"""What a plan says of requests and of time: the most is never exceeded, whatever a limiter does."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest

from conformance.probes.procedures import _border_requests, play_borders
from conformance.probes.rows import ROWS, counter_of, rate_of, spare_sources
from conformance.runner.bench import Bench
from conformance.runner.plan import make_plan
from conformance.runner.registry import all_checks
from conformance.runner.runner import Options, Run
from conformance.runner.session import Session
from conformance.runner.verdicts import Verdict
from conformance.target.form import Budget
from conformance.wire.in_process import deploy
from engine import Engine, LimitTable, Profile, Request, Response
from engine.clauses import select
from tests.conformance.probes.measured import PROBES, SECOND_NS, play

SEED = LimitTable.default()
NOBODY_REFUSED = LimitTable(tuple(dataclasses.replace(rule, shadow=True) for rule in SEED))
LIGHT = tuple(
    name.removeprefix("limits.")
    for name in PROBES
    if name not in {"limits.LIM-IP", "limits.LIM-PRIVATE"}
)
LIMITERS: dict[str, dict[str, Any]] = {
    "as specified": {},
    "never refuses": {"table": NOBODY_REFUSED, "told_table": SEED},
    "delays": {"throttle": "delay"},
    "spaces": {"algorithm": "gcra", "burst_requests": 1},
    "counts refused": {"algorithm": "fixed-window", "count_refused": True},
}


def _check_sizes(names: tuple[str, ...], limiter: dict[str, Any]) -> None:
    found = play(*names, **limiter)
    sent = Counter(one.check for one in found.run.session.exchanges.values())
    allowed = found.run.plan().allowances
    checks = all_checks()
    for name in names:
        check_id = f"limits.{name}"
        assert sent[check_id] <= checks[check_id].requests_most <= allowed[check_id], check_id
    assert not [one.says for one in found.run.findings if "budget" in one.says]


@pytest.mark.slow
@pytest.mark.parametrize("limiter", LIMITERS)
def test_no_probe_sends_more_than_its_plan_says(limiter: str) -> None:
    """Looks and repeated plays included; nothing is skipped for want of budget."""
    _check_sizes(LIGHT, LIMITERS[limiter])


@pytest.mark.slow
@pytest.mark.parametrize("limiter", ["never refuses", "delays"])
def test_no_heavy_probe_sends_more_than_its_plan_says(limiter: str) -> None:
    _check_sizes(("LIM-PRIVATE", "LIM-IP"), LIMITERS[limiter])


def test_the_default_budget_holds_whatever_a_whole_run_may_send() -> None:
    plan = Run(deploy().target).plan()
    assert plan.needed == plan.requests_most <= Budget().requests
    assert plan.short_says is None


def test_a_budget_that_may_cut_a_check_short_is_told_with_what_is_enough() -> None:
    plan = Run(deploy(budget=Budget(requests=40_000)).target).plan()
    assert plan.requests_most <= 40_000
    enough = deploy(budget=Budget(requests=plan.needed))
    assert plan.short_says == (
        f"budget.requests may cut a check short, which is then skipped; {plan.needed} are enough "
        "for any run"
    )
    assert Run(enough.target).plan().short_says is None


def test_a_row_of_the_targets_own_table_has_its_own_size() -> None:
    rate = SEED["LIM-SEARCH"].rate._replace(limit_requests=500)
    table = SEED.replace_rule("LIM-SEARCH", rate=rate)
    checks = [all_checks()["limits.LIM-SEARCH"]]
    sizes = [
        make_plan(deploy().target, one, select(["LIM-SEARCH"]), checks).dealt[0].check.requests_most
        for one in (SEED, table)
    ]
    assert sizes[1] > 5 * sizes[0]


class OnlyTokenize(Engine):
    """Has nothing but POST /tokenize."""

    async def submit(self, request: Request) -> Response:
        if request.path.partition("?")[0] != "/tokenize":
            return Response(404, {"title": "not here"})
        return await super().submit(request)


def test_the_floor_counts_what_was_played() -> None:
    """A reactor that is not there is not waited for."""
    for engine, seconds in ((Engine, 30), (OnlyTokenize, 0)):
        made = deploy(engine=engine)
        options = Options(checks=("reactors.timeout",), select=("RCT-TIMEOUT",))
        report = Run(made.target, options, transport=made.transport).execute()
        assert report.floor_ns // SECOND_NS == seconds


class BusyElsewhere(Engine):
    """Refuses what comes from any address but the first that a key was used at."""

    async def submit(self, request: Request) -> Response:
        homes = self.__dict__.setdefault("homes", {})
        answer = await super().submit(request)
        is_home = homes.setdefault(str(request.key), request.ip) == request.ip
        is_read = request.path.startswith("/tokens/search")
        return answer if is_home or not is_read else Response(429, {"title": "too many"})


class BusyKeys(Engine):
    """Refuses searches with any key but the first that asked."""

    async def submit(self, request: Request) -> Response:
        answer = await super().submit(request)
        if not request.path.startswith("/tokens/search"):
            return answer
        first = self.__dict__.setdefault("first", request.key)
        return answer if request.key == first else Response(429, {"title": "too many"})


@pytest.mark.parametrize("limit", [5, 2000])
@pytest.mark.parametrize(
    ("other", "engine"), [("LIM-IP", BusyElsewhere), ("LIM-PRIVATE", BusyKeys)]
)
def test_an_address_or_a_key_that_others_have_filled_fails_no_row(
    limit: int, other: str, engine: type[Engine]
) -> None:
    """Another check may use that address, or the key that is tried in place of the row's own."""
    rate = SEED[other].rate._replace(limit_requests=limit)
    told = SEED.replace_rule(other, rate=rate)
    found = play("LIM-SEARCH", told_table=told, engine=engine)
    verdicts = {one.verdict for one in found.run.findings if one.clause == "LIM-SEARCH"}
    if limit == 5:
        assert Verdict.FAIL not in verdicts
        assert f"so {other} may have refused them" in found.says("LIM-SEARCH")
    else:
        assert Verdict.FAIL in verdicts


def test_no_probe_asks_from_an_address_that_another_one_fills() -> None:
    """LIM-IP counts every request of an address: those of others are not in its history."""
    made = deploy(sources=tuple(f"127.0.0.{number}" for number in range(2, 18)))
    run = Run(made.target, Options(seed=1), transport=made.transport)
    plan = run.plan()
    run.session.crowded = plan.crowded
    own = {one.check.id: one.sources for one in plan.dealt}
    assert set(own["limits.LIM-IP"]) | set(own["limits.LIM-PRIVATE"]) <= plan.crowded
    for dealt in plan.dealt:
        bench = Bench(dealt.check, run.session, keys=dealt.keys, sources=dealt.sources)
        assert not plan.crowded & set(spare_sources(bench, 16))


@pytest.mark.parametrize(("rule_id", "counters"), [("LIM-SEARCH", 1), ("LIM-PUBLIC", 4)])
def test_two_borders_take_as_many_requests_as_are_planned(rule_id: str, counters: int) -> None:
    """For each of a row's counters; LIM-PUBLIC's block is looked at across the second border."""
    made = deploy(profile=Profile().replace(limits={"algorithm": "fixed-window"}))
    session = Session(made.target, made.transport, seed=1)
    bench = Bench(all_checks()[f"limits.{rule_id}"], session)
    row = ROWS[rule_id]
    counter = counter_of(bench, "one", rule_id, bench.key(row.role or ""))
    _, rate = rate_of(bench, rule_id)
    made.transport.run([play_borders(counter, rate, 0)])
    names = [burst.name for burst in counter.bursts]
    assert names[:4] == ["first", "the last of it", "behind a border", "full again"]
    sent = len(counter.exchanges())
    assert sent * counters <= _border_requests(row, rate)
    if not rate.block_ns:
        assert sent == _border_requests(row, rate)
