"""What a report counts is what the rows say, however they are cut into batches."""

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.rows.findings import (
    Findings,
    RequestKey,
    _steps,
    gather,
    histogram,
    quantile_ns,
    together_ns,
)
from simulator.rows.record import SCHEMA

OUTCOMES = {
    "admitted": (None,),
    "delayed": ("LIM-CREATE",),
    "refused": ("LIM-PRIVATE.key", "LIM-PRIVATE.ip", "LIM-READ"),
    "blocked": ("LIM-PUBLIC", "LIM-IP"),
}


@st.composite
def rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    found = []
    t_ns = 0
    for _ in range(draw(st.integers(0, 40))):
        t_ns += draw(st.sampled_from([0, 1, 7, 100]))
        outcome = draw(st.sampled_from(sorted(OUTCOMES)))
        found.append(
            {
                "t_ns": t_ns,
                "client": draw(st.integers(0, 3)),
                "attempt": draw(st.integers(1, 2)),
                "tenant": "t",
                "application": "a",
                "key": draw(st.sampled_from([None, "key-0001", "key-0002"])),
                "ip": draw(st.sampled_from(["192.0.2.1", "192.0.2.2"])),
                "method": "GET",
                "path": "/x",
                "outcome": outcome,
                "rule": draw(st.sampled_from(OUTCOMES[outcome])),
                "wait_ns": 0 if outcome == "admitted" else draw(st.integers(1, 300)),
                "latency_ns": draw(st.integers(0, 50)),
                "status": draw(st.sampled_from([None, 200, 502])),
            }
        )
    return found


def found_in(given_rows: list[dict[str, Any]], batch: int, start_ns: int, end_ns: int) -> Findings:
    table = pa.Table.from_pylist(given_rows, schema=SCHEMA)
    summary = {"duration_ns": end_ns, "warm_up_ns": start_ns}
    return gather(table.to_batches(max_chunksize=batch), summary, bins=50)


@settings(max_examples=40)
@given(rows(), st.integers(5, 41), st.sampled_from([0, 60]))
def test_counts_and_shut_out_times_are_those_of_a_slow_look(
    given_rows: list[dict[str, Any]], batch: int, start_ns: int
) -> None:
    end_ns = max((row["t_ns"] for row in given_rows), default=0) + 200
    found = found_in(given_rows, batch, start_ns, end_ns)
    kept = [row for row in given_rows if row["t_ns"] >= start_ns]
    turned = [row for row in kept if row["outcome"] in {"refused", "blocked"}]

    def party(row: dict[str, Any]) -> RequestKey:
        return RequestKey(row["rule"].split(".")[0], row["key"], row["ip"])

    assert int(found.offered.sum()) == len(given_rows)
    assert dict(Counter(map(party, turned))) == {w: f.refused for w, f in found.parties.items()}
    shut: dict[RequestKey, set[int]] = defaultdict(set)
    for row in given_rows:
        if row["outcome"] in {"refused", "blocked"}:
            from_ns, until_ns = max(row["t_ns"], start_ns), row["t_ns"] + row["wait_ns"]
            shut[party(row)].update(range(from_ns, min(until_ns, end_ns)))
    shut = defaultdict(set, {who: instants for who, instants in shut.items() if instants})
    assert found.shut_out.keys() == shut.keys()
    for who, instants in shut.items():
        refusals = found.shut_out[who]
        assert refusals.shut_ns == len(instants)
        assert {ns for start, end in refusals.intervals for ns in range(start, end)} == instants
        ends = [end for _, end in refusals.intervals]
        assert all(a < b for a, (b, _) in zip(ends, refusals.intervals[1:], strict=False))
        mine = [row for row in turned if party(row) == who]
        assert (who in found.parties) == bool(mine)
        if not mine:
            continue
        assert (refusals.first_ns, refusals.last_ns) == (mine[0]["t_ns"], mine[-1]["t_ns"])
        assert refusals.blocked == sum(row["outcome"] == "blocked" for row in mine)
    assert together_ns(found.shut_out.values()) == len(set().union(*shut.values()))
    assert found.offered_of_ip == dict(Counter(row["ip"] for row in kept))
    assert found.offered_of_key == dict(Counter(row["key"] for row in kept))
    good = [row for row in given_rows if row["outcome"] in {"admitted", "delayed"}]
    assert len(found.good) in {0, len(found.offered)}
    assert int(found.good.sum()) == sum((row["status"] or 0) < 400 for row in good)
    assert int(found.firsts.sum()) == sum(row["attempt"] == 1 for row in given_rows)
    assert sum(count for *_, count in histogram(found.waits)) == len(turned)


@given(st.lists(st.integers(1, 10**13), min_size=1, max_size=50), st.sampled_from([0.5, 0.9, 1.0]))
def test_a_quantile_is_never_too_low_and_at_most_6_percent_too_high(
    values: list[int], share: float
) -> None:
    values = [min(value, 10**12 - 1) for value in values]
    exact = sorted(values)[int(np.ceil(share * len(values))) - 1]
    found = quantile_ns(_steps(np.array(values)), share)
    assert exact * 0.999 <= found <= max(exact + 1, exact * 1.06)


def test_a_quantile_of_nothing_is_0() -> None:
    assert quantile_ns(_steps(np.array([], dtype=np.int64)), 0.5) == 0


@pytest.mark.parametrize("span_ns", [1, 59, 10**9, 3_600 * 10**9, 10**15, 4 * 10**18])
def test_bins_are_few_and_reach_the_end(span_ns: int) -> None:
    found = gather([], {"duration_ns": span_ns, "warm_up_ns": 0}, bins=180)
    assert len(found.offered) <= 180
    assert len(found.offered) * found.bin_ns >= span_ns
