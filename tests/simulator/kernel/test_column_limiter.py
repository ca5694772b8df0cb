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
from simulator.kernel.limiter import ColumnLimiter, Columns
from tests.benchmarks.workload_w1 import subjects, w1
from tests.engine.limits.test_limiter_oracle import busy_scenarios, scenarios

DEFAULT = {"Default": LimitTable.default()}


def numbered(limiter: ColumnLimiter, calls: list[tuple[int, Subject]]) -> Columns:
    """Return requests as columns: names become numbers, in order of appearance."""
    known: dict[tuple[str, str], int] = {}

    def number(what: str, name: str | None) -> int:
        return -1 if name is None else known.setdefault((what, name), len(known))

    records = [
        (t_ns, limiter.kind(subject), number("key", subject.key_id), number("ip", subject.ip))
        for t_ns, subject in calls
    ]
    return Columns(*np.array(records, dtype=np.int64).reshape(-1, 4).T)


def check_same(
    tables: Mapping[str, LimitTable],
    profile: LimitsProfile,
    calls: list[tuple[int, Subject]],
    origin_ns: int = 0,
) -> None:
    """Put requests to both limiters; every decision is the same."""
    plain = Limiter(tables, profile, origin_ns=origin_ns)
    compiled = ColumnLimiter(tables, profile, origin_ns=origin_ns)
    columns = numbered(compiled, calls)
    decisions = compiled.decide(columns)
    verdicts = decisions.verdicts()
    clauses: dict[str, int] = {}
    for row, (t_ns, subject) in enumerate(calls):
        expected = plain.decide(t_ns, subject)
        names = compiled.rules(int(columns.kind[row]))
        shadow = int(decisions.shadow[row]) if len(decisions.shadow) else 0
        actual = (
            *verdicts[int(decisions.verdict[row])],
            int(decisions.wait_ns[row]),
            tuple(name for bit, name in enumerate(names) if decisions.refusing[row] >> bit & 1),
            tuple(name for bit, name in enumerate(names) if shadow >> bit & 1),
        )
        assert actual == (
            expected.outcome,
            expected.rule,
            expected.wait_ns,
            expected.refusing,
            expected.shadow,
        )
        assert decisions.admitted[row] == expected.admitted
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


@given(busy_scenarios())
@settings(max_examples=150)
def test_busy_counters(scenario: tuple[Any, ...]) -> None:
    compare(scenario)


@pytest.mark.slow
@given(busy_scenarios())
@settings(max_examples=200)
def test_many_busy_counters(scenario: tuple[Any, ...]) -> None:
    compare(scenario)


@pytest.mark.parametrize("algorithm", get_args(Algorithm))
def test_w1_with_growing_arrays(algorithm: Algorithm) -> None:
    workload = w1(30_000)
    calls = list(zip(workload.t_ns.tolist(), subjects(workload), strict=True))
    check_same(DEFAULT, LimitsProfile(algorithm=algorithm), calls)


def test_a_log_in_pieces_is_decided_as_in_one() -> None:
    workload = w1(20_000)
    calls = list(zip(workload.t_ns.tolist(), subjects(workload), strict=True))
    whole, pieces = (ColumnLimiter(DEFAULT, LimitsProfile()) for _ in range(2))
    expected = whole.decide(numbered(whole, calls))
    columns = numbered(pieces, calls)
    parts = []
    for first in range(0, len(calls), 7_000):
        piece = slice(first, first + 7_000)
        part = Columns(*(column[piece] for column in vars_of(columns)))
        parts.append(pieces.decide(part))
    for name in ("verdict", "wait_ns", "refusing"):
        together = np.concatenate([getattr(part, name) for part in parts])
        assert np.array_equal(together, getattr(expected, name))


def vars_of(columns: Columns) -> tuple[np.ndarray[Any, Any], ...]:
    return columns.t_ns, columns.kind, columns.key, columns.ip


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
        limiter.decide(Columns(t_ns, zeros + kind, zeros, zeros))
    assert limiter.limits.counters["size"].max() <= 2_000 + 48
