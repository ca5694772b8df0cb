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
from engine.limits.compiled import Columns, CompiledLimiter
from engine.limits.subject import OTHER_FIELDS
from engine.profile import Algorithm, LimitsProfile
from tests.benchmarks.workload_w1 import subjects, w1
from tests.engine.limits.test_limiter_oracle import busy_scenarios, scenarios


def numbered(limiter: CompiledLimiter, calls: list[tuple[int, Subject]]) -> Columns:
    """Return requests as columns: names become numbers, in order of appearance."""
    known: dict[tuple[str, str], int] = {}

    def number(what: str, name: str | None) -> int:
        return -1 if name is None else known.setdefault((what, name), len(known))

    rows = [
        (
            now_ns,
            limiter.kind(subject),
            number("key", subject.key_id),
            number("ip", subject.ip),
            *(number(part, getattr(subject, part)) for part in OTHER_FIELDS),
        )
        for now_ns, subject in calls
    ]
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4 + len(OTHER_FIELDS)).T
    t_ns, kind, key, ip = (np.ascontiguousarray(column) for column in columns[:4])
    return Columns(t_ns, kind, key, ip, columns[4:].T)


def check_same(
    tables: Mapping[str, LimitTable],
    profile: LimitsProfile,
    calls: list[tuple[int, Subject]],
    origin_ns: int = 0,
) -> None:
    """Put requests to both limiters; every decision is the same."""
    one = Limiter(tables, profile, origin_ns=origin_ns)
    other = CompiledLimiter(tables, profile, origin_ns=origin_ns)
    columns = numbered(other, calls)
    decided = other.decide(columns)
    verdicts = decided.verdicts()
    clauses: dict[str, int] = {}
    for row, (now_ns, subject) in enumerate(calls):
        wanted = one.decide(now_ns, subject)
        in_force, shadow = other.rules(int(columns.kind[row]))
        found = (
            *verdicts[int(decided.verdict[row])],
            int(decided.wait_ns[row]),
            tuple(n for bit, n in enumerate(in_force) if decided.refusing[row] >> bit & 1),
            tuple(n for bit, n in enumerate(shadow) if decided.shadow[row] >> bit & 1),
        )
        assert found == (
            wanted.outcome,
            wanted.rule,
            wanted.wait_ns,
            wanted.refusing,
            wanted.shadow,
        )
        assert decided.admitted[row] == wanted.admitted
        for name in {name.partition(".")[0] for name in wanted.shadow}:
            clauses[name] = clauses.get(name, 0) + 1
    assert other.shadow_requests() == clauses


def play(scenario: tuple[Any, ...]) -> None:
    profile, named, steps, origin_ns = scenario
    profile = replace(profile, counted_statuses="every")
    now_ns, calls = 0, []
    for gap_ns, subject, *_ in steps:
        now_ns += gap_ns
        calls.append((now_ns, subject))
    check_same(named, profile, calls, origin_ns)


@given(scenarios())
@settings(max_examples=40)
def test_any_table_profile_and_traffic(scenario: tuple[Any, ...]) -> None:
    play(scenario)


@given(busy_scenarios())
@settings(max_examples=150)
def test_busy_counters(scenario: tuple[Any, ...]) -> None:
    play(scenario)


@pytest.mark.slow
@given(busy_scenarios())
@settings(max_examples=500)
def test_many_busy_counters(scenario: tuple[Any, ...]) -> None:
    play(scenario)


@pytest.mark.slow
@given(scenarios())
@settings(max_examples=500)
def test_many_tables_profiles_and_traffics(scenario: tuple[Any, ...]) -> None:
    play(scenario)


@pytest.mark.parametrize("algorithm", get_args(Algorithm))
def test_w1_with_growing_arrays(algorithm: Algorithm) -> None:
    workload = w1(30_000)
    calls = list(zip(workload.t_ns.tolist(), subjects(workload), strict=True))
    check_same({"Default": LimitTable.default()}, LimitsProfile(algorithm=algorithm), calls)


def test_a_log_in_pieces_is_decided_as_in_one() -> None:
    workload = w1(20_000)
    calls = list(zip(workload.t_ns.tolist(), subjects(workload), strict=True))
    tables, profile = {"Default": LimitTable.default()}, LimitsProfile()
    whole, pieces = CompiledLimiter(tables, profile), CompiledLimiter(tables, profile)
    columns, same = numbered(whole, calls), numbered(pieces, calls)
    wanted = whole.decide(columns)
    found = []
    for at in range(0, len(calls), 7_000):
        cut = slice(at, at + 7_000)
        part = Columns(same.t_ns[cut], same.kind[cut], same.key[cut], same.ip[cut])
        found.append(pieces.decide(part))
    for name in ("verdict", "wait_ns", "refusing", "shadow"):
        together = np.concatenate([getattr(part, name) for part in found])
        assert np.array_equal(together, getattr(wanted, name))


def test_counting_by_answers_is_refused_in_one_line() -> None:
    profile = LimitsProfile(counted_statuses="success")
    with pytest.raises(InputError, match='counted_statuses = "success" must go with the engine'):
        CompiledLimiter({"Default": LimitTable.default()}, profile)
