"""What the compiled limiter's arrays must stand: many rules, odd columns, growth, pieces, order.

Each is compared with the interpreted limiter, decision for decision, or with itself over the same
rows in one piece (D-ALGORITHM, D-COMPOSE, D-BLOCK-RESET, D-COUNT, LIM-LOWEST).
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.files import Rate
from engine.limits import LimitTable, Rule, Subject
from engine.limits.compiled import Columns, CompiledLimiter, Decided
from engine.limits.compiled.core import SLOTS
from engine.limits.compiled.lookup import is_plain
from engine.limits.table import CounterName
from engine.profile import Algorithm, LimitsProfile
from tests.benchmarks.workload_w1 import subjects, w1
from tests.engine.limits.test_compiled import check_same, numbered
from tests.engine.limits.test_limiter_oracle import busy_scenarios, scenarios

COUNTERS: tuple[CounterName, ...] = ("ip+key", "key", "ip")
ALGORITHMS: tuple[Algorithm, ...] = (
    "sliding-log",
    "fixed-window",
    "sliding-counter",
    "token-bucket",
    "gcra",
)


def default() -> dict[str, LimitTable]:
    return {"Default": LimitTable.default()}


def many_rules(count: int) -> dict[str, LimitTable]:
    """Rules that all count every request; the later ones are the stricter ones."""
    rules = [
        Rule(
            id=f"OWN-{number}",
            counter=COUNTERS[number % 3],
            rate=Rate(count - number + 2, 1_000),
            action="block" if number % 4 == 1 else "throttle",
            block_ns=700 if number % 4 == 1 else None,
            shadow=number % 7 == 3,
            algorithm=ALGORITHMS[number % 5],
        )
        for number in range(count)
    ]
    return {"Default": LimitTable(tuple(rules))}


def same(one: Decided, other: Decided) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("verdict", "wait_ns", "refusing", "shadow")
    )


def cut(columns: Columns, at: slice) -> Columns:
    others = columns.others
    return Columns(
        columns.t_ns[at],
        columns.kind[at],
        columns.key[at],
        columns.ip[at],
        None if others is None else others[at],
    )


@pytest.mark.parametrize("count", [4, 5, 7, 8, 15, 16, 33, 63])
def test_any_number_of_rules(count: int) -> None:
    """Few are tested at once and more one by one, a lane's row grows, and so does a mask."""
    chance = np.random.default_rng(count)
    times = np.cumsum(chance.integers(0, 60, 900)).tolist()
    people = [Subject("GET", "/", str(n % 3), key_id=str(n % 2)) for n in range(6)]
    calls = [(now, people[who]) for now, who in zip(times, chance.integers(0, 6, 900), strict=True)]
    for throttle in ("refuse", "delay"):
        profile = LimitsProfile(throttle=throttle, delay_bound_ns=50)
        check_same(many_rules(count), profile, calls)


@given(st.one_of(scenarios(), busy_scenarios()), st.lists(st.integers(0, 9), max_size=8))
@settings(max_examples=60)
def test_pieces_of_any_size(scenario: tuple[Any, ...], sizes: list[int]) -> None:
    """Rings get what a piece needs, so the next piece finds them full, half full or cleared."""
    profile, named, steps, _ = scenario
    profile = replace(profile, counted_statuses="every")
    times = np.cumsum([gap for gap, *_ in steps]).tolist()
    calls = [(now, step[1]) for now, step in zip(times, steps, strict=True)]
    whole, pieces = CompiledLimiter(named, profile), CompiledLimiter(named, profile)
    wanted, columns = whole.decide(numbered(whole, calls)), numbered(pieces, calls)
    edges = [0, *np.minimum(np.cumsum(sizes), len(calls)).tolist(), len(calls)]
    found = [pieces.decide(cut(columns, slice(first, last))) for first, last in pairwise(edges)]
    for name in ("verdict", "wait_ns", "refusing", "shadow"):
        together = np.concatenate([getattr(part, name) for part in found])
        assert np.array_equal(together, getattr(wanted, name))


def test_tables_grow_with_proxy_keys_and_hosts_in_them() -> None:
    """Ten thousand lanes that differ in the proxy key or the host alone, in small pieces."""
    limiter, whole = (CompiledLimiter(default(), LimitsProfile()) for _ in range(2))
    kinds = [
        each.kind(Subject("POST", "/", "ip", proxy_key_id="p", host_id="h"))
        for each in (limiter, whole)
    ]
    rows = np.arange(30_000)
    others = np.stack([rows % 5_000, 7 + rows // 5_000 % 2], axis=1)
    columns = Columns(rows, rows * 0 + kinds[0], rows * 0 - 1, rows * 0, others)
    found = [limiter.decide(cut(columns, slice(at, at + 500))) for at in range(0, 30_000, 500)]
    wanted = whole.decide(columns)
    assert limiter.lane_count == whole.lane_count == 10_000
    assert limiter.counter_count == whole.counter_count == 1 + 5_000 + 2
    assert np.array_equal(np.concatenate([part.wait_ns for part in found]), wanted.wait_ns)
    assert 0 < wanted.admitted.mean() < 1


def test_lanes_found_in_advance() -> None:
    """Lanes may be found for two pieces before either is decided, and be decided about twice."""
    workload = w1(6_000)
    calls = list(zip(workload.t_ns.tolist(), subjects(workload), strict=True))
    one, other = (CompiledLimiter(default(), LimitsProfile()) for _ in range(2))
    columns = numbered(one, calls)
    numbered(other, calls)
    parts = [cut(columns, slice(0, 3_000)), cut(columns, slice(3_000, 6_000))]
    lanes = [other.lanes(part) for part in parts]
    later = columns.t_ns + 10**12
    wanted = [one.decide(part) for part in parts]
    wanted.append(one.decide(replace(parts[0], t_ns=later[:3_000])))
    times = [parts[0].t_ns, parts[1].t_ns, later[:3_000]]
    for t_ns, lane, expected in zip(times, [*lanes, lanes[0]], wanted, strict=True):
        assert same(other.decide_lanes(t_ns, lane), expected)


def test_memory_follows_what_windows_hold_and_not_how_long_a_log_is() -> None:
    """A log in many pieces: what has left the window gives its slots, and decisions stay."""
    in_pieces, in_one = (CompiledLimiter(default(), LimitsProfile()) for _ in range(2))
    workload = w1(20_000)
    calls = list(zip(workload.t_ns.tolist(), subjects(workload), strict=True))
    columns = numbered(in_pieces, calls)
    numbered(in_one, calls)
    step_ns = max(rule.window_ns for rule in LimitTable.default()) // 3
    times = [columns.t_ns + turn * step_ns for turn in range(40)]
    found, slots = [], []
    for t_ns in times:
        found.append(in_pieces.decide(replace(columns, t_ns=t_ns)))
        slots.append(int(in_pieces.core.used[SLOTS]))
    assert slots[-1] == slots[9] < 2 * slots[3]
    repeated = {name: np.tile(getattr(columns, name), len(times)) for name in ("kind", "key", "ip")}
    assert columns.others is not None
    others = np.tile(columns.others, (len(times), 1))
    wanted = in_one.decide(Columns(np.concatenate(times), **repeated, others=others))
    for name in ("verdict", "wait_ns", "refusing"):
        together = np.concatenate([getattr(part, name) for part in found])
        assert np.array_equal(together, getattr(wanted, name))
    assert 0 < wanted.admitted.mean() < 1


def test_columns_of_any_integers() -> None:
    """Narrow ones, those that may not be written to, and every second of an array."""
    workload = w1(2_000)
    calls = list(zip(workload.t_ns.tolist(), subjects(workload), strict=True))
    limiter = CompiledLimiter(default(), LimitsProfile())
    columns = numbered(limiter, calls)
    wanted = limiter.decide(columns)
    t_ns, key = columns.t_ns.copy(), np.repeat(columns.key, 2)[::2]
    t_ns.flags.writeable = False
    odd = Columns(t_ns, columns.kind.astype(np.uint8), key, columns.ip.astype(np.int16))
    again = CompiledLimiter(default(), LimitsProfile())
    numbered(again, calls)
    assert same(again.decide(odd), wanted)


def test_the_code_for_plain_profiles_is_taken_for_those_alone() -> None:
    def plain(profile: LimitsProfile, tables: dict[str, LimitTable]) -> bool:
        limiter = CompiledLimiter(tables, profile)
        limiter.kind(Subject("GET", "/", "ip", key_id="key"))
        return is_plain(limiter.ready_core())

    usual = LimitsProfile()
    assert plain(usual, default())
    assert not plain(usual, many_rules(8)), "a rule in shadow"
    for profile in (
        replace(usual, throttle="delay"),
        replace(usual, count_refused=True),
        replace(usual, block_extends=True),
        replace(usual, block_reset="clear"),
    ):
        assert not plain(profile, default())


def test_a_cleared_counter_keeps_its_ring() -> None:
    """Blocks that clear (D-BLOCK-RESET) begin over and over, in one ring of the limit's size."""
    rule = Rule(id="OWN-0", counter="ip", rate=Rate(3, 10), action="block", block_ns=5)
    profile = LimitsProfile(block_reset="clear")
    calls = [(now, Subject("GET", "/", "ip")) for now in range(2_000)]
    limiter = CompiledLimiter({"Default": LimitTable((rule,))}, profile)
    decided = limiter.decide(numbered(limiter, calls))
    assert decided.admitted.sum() == 3 * 2_000 // 8, "three, then a block of five"
    assert limiter.core.used[SLOTS] == 3
