"""Edges that drawn tables and traffic seldom meet, compiled and interpreted alike.

D-BLOCK-RESET, D-COUNT, D-THROTTLE and shadow rules, each at the very nanosecond that tells one
reading from its neighbour; and arrays that are full to the last place.
"""

from __future__ import annotations

import numpy as np

from engine.files import Rate
from engine.limits import LimitTable, Rule, Subject
from engine.limits.compiled import Columns, CompiledLimiter
from engine.limits.table import CounterName
from engine.profile import LimitsProfile
from tests.engine.limits.test_compiled import check_same

COUNTERS: tuple[CounterName, ...] = ("ip", "key", "ip+key")
BY_IP = Subject("GET", "/", "ip")


def table(*rules: Rule) -> dict[str, LimitTable]:
    return {"Default": LimitTable(rules)}


def test_what_is_refused_as_a_clearing_block_ends_counts_again() -> None:
    """D-BLOCK-RESET clear, D-COUNT all: in the block nothing is charged, from its end on it is."""
    blocks = Rule(id="OWN-0", counter="ip", rate=Rate(1, 10), action="block", block_ns=5)
    longer = Rule(id="OWN-1", counter="ip", rate=Rate(1, 20), action="throttle")
    profile = LimitsProfile(block_reset="clear", count_refused=True)
    for end_ns in (5, 6, 7):
        calls = [(now_ns, BY_IP) for now_ns in (0, 1, end_ns, end_ns + 1, end_ns + 12)]
        check_same(table(blocks, longer), profile, calls)


def test_a_rule_in_shadow_takes_a_delayed_request_where_it_has_room() -> None:
    """D-THROTTLE delay: who would be delayed there is charged at the release, not on arrival."""
    shadow = Rule(id="OWN-0", counter="ip", rate=Rate(1, 10), action="throttle", shadow=True)
    profile = LimitsProfile(throttle="delay", delay_bound_ns=30)
    check_same(table(shadow), profile, [(0, BY_IP)] * 9 + [(15, BY_IP)] * 4)
    in_force = Rule(id="OWN-1", counter="ip", rate=Rate(2, 7), action="throttle")
    check_same(table(in_force, shadow), profile, [(now_ns, BY_IP) for now_ns in range(40)])


def test_counters_run_out_before_lanes_do() -> None:
    """Each request has counters of its own, several a lane: they grow when the next do not fit."""
    rules = [
        Rule(id=f"OWN-{number}", counter=counter, rate=Rate(1, 10), action="throttle")
        for number, counter in enumerate(COUNTERS)
    ]
    limiter = CompiledLimiter(table(*rules), LimitsProfile())
    kind = limiter.kind(Subject("GET", "/", "ip", key_id="key"))
    rows = np.arange(3_500)
    decided = limiter.decide(Columns(rows, rows * 0 + kind, rows, rows))
    assert decided.admitted.all()
    assert (limiter.lane_count, limiter.counter_count) == (3_500, 3 * 3_500)
    again = limiter.decide(Columns(rows * 0 + 3_500, rows * 0 + kind, rows, rows))
    assert again.admitted.tolist() == [at <= 3_490 for at in range(3_500)]
