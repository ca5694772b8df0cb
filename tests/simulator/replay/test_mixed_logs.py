"""Logs of many kinds of keys, and of requests without: every number recounted from the rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any, NamedTuple
from unittest import mock

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.files import parse_toml
from engine.limits import LimitTable
from engine.limits.rules import RequestClass, RuleSet, counter_keys
from engine.limits.rules import Subject as Asking
from engine.profile import Profile
from simulator.logs import LogMap
from simulator.play.replay import replay_arrivals
from simulator.play.simulation import Fidelity
from simulator.rows import Result
from simulator.study.replay import replay

SECOND_NS = 10**9


class Owner(NamedTuple):
    """Whose a key is, as the columns of the log say it."""

    tenant: str
    tenant_kind: Any
    application: str
    application_kind: Any
    legacy: str


OWNERS = {
    "a": Owner("t", "production", "web", "public", "false"),
    "b": Owner("t", "production", "shop", "private", "false"),
    "c": Owner("u", "test", "web", "public", "false"),
    "d": Owner("u", "test", "old", "private", "true"),
    "e": Owner("t", "production", "shop", "private", "false"),
    None: Owner("t", "production", "web", "public", "false"),
}
LOG_MAP = LogMap.from_document(
    parse_toml(
        'time = { field = "t_ns", unit = "ns" }\nkey = "key"\naddress = "ip"\n'
        + "".join(f'{name} = "{name}"\n' for name in ("method", "path", *Owner._fields)),
        "map.toml",
    )
)
TABLE = LimitTable.from_text(
    """
[[rule]]
id = "TEST"
match = { tenant = "test" }
counter = "ip+key"
rate = "2/4s"
action = "throttle"
[[rule]]
id = "TOKENS"
match = { resource = ["GET /tokens", "POST /tokenize"] }
counter = "key"
rate = "3/5s"
action = "block"
block = "3s"
[[rule]]
id = "LEGACY"
match = { legacy = true }
counter = "key"
rate = "2/7s"
action = "block"
block = "2s"
[[rule]]
id = "PUBLIC"
match = { application = "public" }
counter = "ip+key"
rate = "1/2s"
action = "block"
block = "2s"
[[rule]]
id = "EITHER"
match = { application = "private" }
counter = "key|ip"
rate = "5/9s"
action = "throttle"
shadow = true
[[rule]]
id = "EVERYBODY"
counter = "ip"
rate = "4/3s"
action = "block"
block = "4s"
"""
)
OTHER = TABLE.replace_rule("PUBLIC", rate="3/2s").replace_rule("EVERYBODY", rate="3/3s")


class Line(NamedTuple):
    """A request of the log; half_seconds: after the one before."""

    half_seconds: int
    key: str | None
    ip: str
    method: str
    path: str


HIDDEN = [f"/x/key_prod_{letter * 22}" for letter in "AB"]
"""Paths that rows show as one."""
LINES = st.lists(
    st.builds(
        Line,
        st.integers(0, 2),
        st.sampled_from([*OWNERS]),
        st.sampled_from(["192.0.2.1", "192.0.2.2"]),
        st.sampled_from(["GET", "POST"]),
        st.sampled_from(["/tokens", "/tokenize", "/x", *HIDDEN]),
    ),
    min_size=1,
    max_size=60,
)
MANY = [Line(0, None, "192.0.2.1", "GET", path) for path in HIDDEN] + [
    Line(n % 2, "aabcdbe"[n % 7] if n % 5 else None, f"192.0.2.{1 + n // 3 % 2}", "GET", path)
    for n, path in enumerate([*["/tokens"] * 80, "/tokenize", "/x", *HIDDEN])
]
PASSED = {"admitted", "delayed"}


def _log(lines: list[Line]) -> pd.DataFrame:
    instant, rows = 0, []
    for line in lines:
        instant += line.half_seconds * SECOND_NS // 2
        rows.append({**line._asdict(), "t_ns": instant, **OWNERS[line.key]._asdict()})
    return pd.DataFrame(rows)


def _replayed(lines: list[Line], fidelity: Fidelity, block_rows: int, **options: Any) -> Result:
    with mock.patch.dict(replay_arrivals.__kwdefaults__, block_rows=block_rows):
        return replay(_log(lines), map=LOG_MAP, fidelity=fidelity, **{"limits": TABLE, **options})


class Asked(NamedTuple):
    """A request as its row should name it, and what it is counted in.

    counters: the row of the limit table, the rule, and whose counter, each.
    """

    tenant: str | None
    application: str | None
    key: str | None
    ip: str
    method: str
    path: str
    counters: list[tuple[str, str, Any]]


def _asked(lines: list[Line]) -> list[Asked]:
    """Return each request; the log has a column of keys, and an empty one is no key."""
    legs = RuleSet({"Default": TABLE}, Profile().limits)
    labels: dict[str, str] = {}
    found = []
    for line in lines:
        owner, label = OWNERS[line.key], None
        if line.key is not None:
            label = labels.setdefault(line.key, f"key-{len(labels) + 1:04d}")
        asking = Asking(line.method, line.path, line.ip)
        if label is not None:
            asking = Asking(
                line.method,
                line.path,
                line.ip,
                key_id=label,
                tenant_kind=owner.tenant_kind,
                application_kind=owner.application_kind,
                legacy=owner.legacy == "true",
            )
        asked = RequestClass.of(asking, legs.classifier.matching(line.method, line.path))
        keys = counter_keys(asking)
        counters = [(leg.rule.id, leg.name, keys[leg.key_place]) for leg in legs.of_class(asked)]
        tenant = None if label is None else owner.tenant
        application = None if label is None else owner.application
        path = "/x/key_…" if line.path in HIDDEN else line.path
        found.append(Asked(tenant, application, label, line.ip, line.method, path, counters))
    return found


def _rows(result: Result) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = result.table.to_pylist()
    return rows


BLOCK_ROWS = st.sampled_from([1, 7, 1_000])
FIDELITIES = st.sampled_from(["limits", "compiled"])


@pytest.mark.slow
@given(LINES, FIDELITIES, BLOCK_ROWS)
@example(MANY, "limits", 13)
@example(MANY, "compiled", 13)
def test_rows_say_who_asked_and_for_what(
    lines: list[Line], fidelity: Fidelity, block_rows: int
) -> None:
    result = _replayed(lines, fidelity, block_rows)
    clients: dict[tuple[str | None, str], int] = {}
    for row, asked in zip(_rows(result), _asked(lines), strict=True):
        assert [row[name] for name in Asked._fields[:-1]] == list(asked[:-1])
        assert row["client"] == clients.setdefault((asked.key, asked.ip), len(clients))
    assert result.violations == ()
    assert result.summary["replay"]["keys"] == len({key for key, _ in clients} - {None})
    assert result.summary["replay"]["addresses"] == len({ip for _, ip in clients})
    ends = [row["t_ns"] + max(row["wait_ns"], row["latency_ns"]) for row in _rows(result)]
    assert result.summary["duration_ns"] == max(ends) + 1
    totals = result.summary["totals"]
    passed = sum(row["outcome"] in PASSED for row in _rows(result))
    assert (totals["requests"], totals["succeeded"]) == (len(lines), passed)


@pytest.mark.slow
@given(LINES, FIDELITIES, BLOCK_ROWS)
@example(MANY, "limits", 13)
@example(MANY, "compiled", 13)
def test_the_table_by_clause_is_recounted_from_the_rows(
    lines: list[Line], fidelity: Fidelity, block_rows: int
) -> None:
    result = _replayed(lines, fidelity, block_rows)
    offered: Counter[str] = Counter()
    admitted: Counter[str] = Counter()
    refused = defaultdict(list)
    blocks = defaultdict(list)
    for row, asked in zip(_rows(result), _asked(lines), strict=True):
        clauses = {clause for clause, _, _ in asked.counters}
        offered.update(clauses)
        if row["outcome"] in PASSED:
            admitted.update(clauses)
            continue
        (counter,) = [each for each in asked.counters if each[1] == row["rule"]]
        refused[counter[0]].append(row)
        if row["outcome"] == "blocked":
            blocks[counter].append((row["t_ns"], row["t_ns"] + row["wait_ns"]))
    blocked_ns: Counter[str] = Counter()
    for (clause, _, _), spans in blocks.items():
        starts = [*(start_ns for start_ns, _ in spans), spans[-1][1]]
        ends = [*(end_ns for _, end_ns in spans)]
        for (start_ns, next_ns), end_ns in zip(pairwise(starts), ends, strict=True):
            blocked_ns[clause] += min(end_ns, next_ns) - start_ns
    for line in result.summary["clauses"]:
        clause, rows = line["clause"], refused[line["clause"]]
        assert (line["offered"], line["admitted"]) == (offered[clause], admitted[clause])
        assert line["refused"] == len(rows)
        assert line["blocked_ns"] == blocked_ns[clause]
        assert line["keys"] == len({row["key"] for row in rows} - {None})
        assert line["ips"] == len({row["ip"] for row in rows})
        assert line["first_refusal_ns"] == (rows[0]["t_ns"] if rows else None)


@given(LINES, FIDELITIES, BLOCK_ROWS)
@example(MANY, "limits", 13)
@settings(max_examples=25)
def test_a_comparison_is_recounted_from_the_rows_of_both_tables(
    lines: list[Line], fidelity: Fidelity, block_rows: int
) -> None:
    result = _replayed(lines, fidelity, block_rows, against=OTHER)
    other = _replayed(lines, fidelity, block_rows, limits=OTHER)
    names = ("refused_old", "refused_new", "gained", "lost")
    counts: dict[tuple[str, Any], Counter[str]] = defaultdict(Counter)
    for old, new in zip(_rows(other), _rows(result), strict=True):
        by_old, by_new = (row["outcome"] in PASSED for row in (old, new))
        found = (not by_old, not by_new, by_new and not by_old, by_old and not by_new)
        told = {name: 1 for name, each in zip(names, found, strict=True) if each}
        for place in (("keys", new["key"]), ("ips", new["ip"]), ("all", None)):
            counts[place].update(told)
    against = result.summary["against"]
    assert {name: against[name] for name in names} == {n: counts["all", None][n] for n in names}
    for kind in ("keys", "ips"):
        changed = {
            name: {each: count[each] for each in names}
            for (of_kind, name), count in counts.items()
            if of_kind == kind and (count["gained"] or count["lost"])
        }
        assert against[f"{kind}_changed"] == len(changed)
        found_lines = {line.pop("name"): line for line in against[kind]}
        assert found_lines == changed
