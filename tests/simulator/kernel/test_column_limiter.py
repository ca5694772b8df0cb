"""The compiled limiter decides as the interpreted one does: rule, wait, masks, blocks, shadows.

The tables, profiles and traffic are those that the interpreted limiter is held to its oracle with:
a few nanoseconds a window, so that edges, ties and roll-overs are the rule. D-ALGORITHM, D-EDGES,
D-COUNT, D-COMPOSE, D-THROTTLE, D-BLOCK-START, D-BLOCK-OWN, D-BLOCK-RESET, D-DECIDER, LIM-LOWEST.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings

from engine.errors import InputError
from engine.limits import Limiter, LimitTable, Subject
from engine.profile import Algorithm, LimitsProfile
from simulator.kernel.limiter import ColumnLimiter, is_admitted, verdict_of
from tests.benchmarks.workload_w1 import subjects, w1
from tests.engine.limits.test_limiter_oracle import busy_scenarios, scenarios

DEFAULT = {"Default": LimitTable.default()}


def lanes_of(limiter: ColumnLimiter, calls: list[tuple[int, Subject]]) -> np.ndarray[Any, Any]:
    """Return the lane of each request: names become numbers, in order of appearance."""
    known: dict[tuple[str, str], int] = {}

    def number(what: str, name: str | None) -> int:
        return -1 if name is None else known.setdefault((what, name), len(known))

    records = [
        (limiter.kind(subject), number("key", subject.key_id), number("ip", subject.ip))
        for _, subject in calls
    ]
    return limiter.lanes(*np.array(records, dtype=np.int64).reshape(-1, 3).T)


def instants(calls: list[tuple[int, Subject]]) -> np.ndarray[Any, Any]:
    return np.array([t_ns for t_ns, _ in calls], dtype=np.int64)


def check_same(
    tables: Mapping[str, LimitTable],
    profile: LimitsProfile,
    calls: list[tuple[int, Subject]],
    origin_ns: int = 0,
) -> None:
    """Put requests to both limiters; every decision is the same."""
    plain = Limiter(tables, profile, origin_ns=origin_ns)
    compiled = ColumnLimiter(tables, profile, origin_ns=origin_ns)
    verdicts, waits_ns = compiled.decide(instants(calls), lanes_of(compiled, calls))
    admitted = is_admitted(verdicts)
    clauses: dict[str, int] = {}
    for row, (t_ns, subject) in enumerate(calls):
        expected = plain.decide(t_ns, subject)
        actual = *verdict_of(int(verdicts[row]), compiled.names), int(waits_ns[row])
        assert actual == (expected.outcome, expected.rule, expected.wait_ns)
        assert admitted[row] == expected.admitted
        for clause in {name.partition(".")[0] for name in expected.shadow}:
            clauses[clause] = clauses.get(clause, 0) + 1
    assert compiled.shadow_requests() == clauses


def compare(scenario: tuple[Any, ...]) -> None:
    profile, tables, steps, origin_ns = scenario
    profile = replace(profile, counted_statuses="every")
    now_ns, calls = 0, []
    for gap_ns, subject, *_ in steps:
        now_ns += gap_ns
        calls.append((now_ns, subject))
    check_same(tables, profile, calls, origin_ns)


@given(scenarios())
@settings(max_examples=60)
def test_any_table_profile_and_traffic(scenario: tuple[Any, ...]) -> None:
    compare(scenario)


@pytest.mark.slow
@given(busy_scenarios())
@settings(max_examples=150)
def test_busy_counters(scenario: tuple[Any, ...]) -> None:
    compare(scenario)


@pytest.mark.slow
@given(busy_scenarios())
@settings(max_examples=200)
def test_many_busy_counters(scenario: tuple[Any, ...]) -> None:
    compare(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", get_args(Algorithm))
def test_w1_with_growing_arrays(algorithm: Algorithm) -> None:
    workload = w1(30_000)
    calls = list(zip(workload.t_ns.tolist(), subjects(workload), strict=True))
    check_same(DEFAULT, LimitsProfile(algorithm=algorithm), calls)


def test_a_log_in_pieces_is_decided_as_in_one() -> None:
    workload = w1(20_000)
    calls = list(zip(workload.t_ns.tolist(), subjects(workload), strict=True))
    whole, pieces = (ColumnLimiter(DEFAULT, LimitsProfile()) for _ in range(2))
    expected = whole.decide(instants(calls), lanes_of(whole, calls))
    t_ns, lanes = instants(calls), lanes_of(pieces, calls)
    parts = [
        pieces.decide(t_ns[first : first + 7_000], lanes[first : first + 7_000])
        for first in range(0, len(calls), 7_000)
    ]
    for together, column in zip(zip(*parts, strict=True), expected, strict=True):
        assert np.array_equal(np.concatenate(together), column)


def test_counting_by_answers_is_refused_in_one_line() -> None:
    profile = LimitsProfile(counted_statuses="success")
    with pytest.raises(InputError, match='counted_statuses = "success" must go with the engine'):
        ColumnLimiter(DEFAULT, profile)


def test_a_ring_has_at_most_twice_the_slots_that_its_window_held() -> None:
    """Bursts of 900 a minute against a limit that is never met: old charges leave their slots."""
    table = LimitTable.default().replace_rule("LIM-CREATE", rate="100000/1s")
    limiter = ColumnLimiter({"Default": table}, LimitsProfile())
    kind = limiter.kind(Subject("POST", "/tokenize", "ip"))
    for second in range(60):
        t_ns = np.sort(np.arange(100) * 3_000_000) + second * 1_000_000_000
        zeros = np.zeros(100, np.int64)
        limiter.decide(t_ns, limiter.lanes(zeros + kind, zeros, zeros))
    assert limiter.limits.counters["size"].max() <= 2_000 + 48
