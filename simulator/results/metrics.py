"""Metrics of a run, by any dimension of its rows, in one pass over the row groups.

A run that fits in one batch of `EXACT_ROWS` gets exact percentiles; beyond, they come from a
t-digest for each group (about 1 % off in rank), so that memory follows the groups and not the rows.

What it is not: the table by clause of `summary.json`, which counts what each clause was offered;
here `by="clause"` groups the refused rows by the clause that refused them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from fastdigest import TDigest

from engine.errors import InputError, did_you_mean
from simulator.results.metric_rows import BatchRows

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DIMENSIONS", "EXACT_ROWS", "metrics_of"]

DIMENSIONS: Final = (
    "client",
    "group",
    "tenant",
    "application",
    "key",
    "ip",
    "method",
    "path",
    "clause",
    "rule",
    "time",
)
EXACT_ROWS: Final = 1 << 20
QUANTILES: Final = (0.5, 0.9, 0.99)
_ALL: Final = "all"
_BAD_STATUS: Final = 400


@dataclass(slots=True)
class _Group:
    """What is kept for one group of rows."""

    counts: dict[str, int] = field(default_factory=dict)
    good: int = 0
    firsts: int = 0
    first_refusal_ns: int | None = None
    admitted_of: dict[int, int] = field(default_factory=dict)
    latency: list[Any] = field(default_factory=list)
    wait: list[Any] = field(default_factory=list)
    latency_digest: TDigest = field(default_factory=TDigest)
    wait_digest: TDigest = field(default_factory=TDigest)
    blocks: dict[Any, int] = field(default_factory=dict)
    blocked_ns: int = 0


def metrics_of(
    batches: Iterable[pa.RecordBatch],
    by: str | Sequence[str],
    *,
    end_ns: int,
    start_ns: int = 0,
    bin_ns: int | None = None,
    groups: Mapping[str, range] | None = None,
    where: Mapping[str, str | int] | None = None,
    exact: bool = True,
) -> pd.DataFrame:
    """Return a frame, a line a group, indexed by the dimensions of `by` (see `DIMENSIONS`).

    Columns: offered, admitted, delayed, refused, blocked (counts of attempts), refused_share,
    blocked_ns (time in which some key and address was blocked by some rule), goodput_per_s
    (let in and not answered with an error), attempts_per_success, wait_p50_ns … and
    latency_p50_ns … (of what was let in), first_refusal_ns (from `start_ns`; <NA> when never),
    fairness (Jain's index of what each client had admitted; 1 = even).

    bin_ns: width of a bin for `time`. groups: client group → client numbers, for `group`.
    where: dimension → the value that rows must have. Rows before `start_ns` are left out.
    Raises `InputError` for an unknown dimension.
    """
    names = [by] if isinstance(by, str) else list(by)
    for name in (*names, *(where or ())):
        if name not in DIMENSIONS:
            raise InputError(f"by = {name!r} must be a dimension{did_you_mean(name, DIMENSIONS)}")
    if "time" in names and (bin_ns is None or bin_ns <= 0):
        raise InputError("bin_ns is missing; by = 'time' needs the width of a bin")
    import pandas as pd  # noqa: PLC0415 # reason: it loads longer than a small run takes

    found: dict[Any, _Group] = {}
    nulls = "clause" not in names and "rule" not in names
    for batch in batches:
        rows = BatchRows(batch, bin_ns, groups or {})
        if start_ns:
            rows = rows.take(np.flatnonzero(rows.ints("t_ns") >= start_ns))
        for name, value in (where or {}).items():
            rows = rows.take(np.flatnonzero(rows.holds(name, value)))
        if len(rows):
            for key, part in rows.split(names, nulls=nulls):
                _take(found.setdefault(key or (_ALL,), _Group()), part, end_ns, exact=exact)
    lines = [_line(group, end_ns - start_ns, start_ns, bin_ns) for group in found.values()]
    answer = pd.DataFrame(lines, index=_index(list(found), names), columns=_COLUMNS)
    answer["first_refusal_ns"] = answer["first_refusal_ns"].astype("Int64")
    return answer.sort_index()


def _index(keys: list[tuple[Any, ...]], names: list[str]) -> pd.Index[Any] | None:
    import pandas as pd  # noqa: PLC0415 # reason: it loads longer than a small run takes

    if not keys:
        return None
    found: pd.Index[Any]
    if len(names) > 1:
        found = pd.MultiIndex.from_tuples(keys, names=names)
    else:
        found = pd.Index([key[0] for key in keys], name=names[0] if names else _ALL)
    return found


_COLUMNS: Final = (
    "offered",
    "admitted",
    "delayed",
    "refused",
    "blocked",
    "refused_share",
    "blocked_ns",
    "goodput_per_s",
    "attempts_per_success",
    *(f"{what}_p{q * 100:g}_ns" for what in ("wait", "latency") for q in QUANTILES),
    "first_refusal_ns",
    "fairness",
)


def _take(group: _Group, rows: BatchRows, end_ns: int, *, exact: bool) -> None:
    outcome, names = rows.coded("outcome")
    for name, count in zip(names, np.bincount(outcome, minlength=len(names)), strict=True):
        group.counts[name] = group.counts.get(name, 0) + int(count)
    passed = np.array([name in {"admitted", "delayed"} for name in names])[outcome]
    client = rows.ints("client")
    for number in np.unique(client).tolist():
        group.admitted_of.setdefault(number, 0)
    for number, count in zip(*np.unique(client[passed], return_counts=True), strict=True):
        group.admitted_of[int(number)] += int(count)
    if passed.any():
        served = rows.take(np.flatnonzero(passed))
        group.good += int((served.ints("status") < _BAD_STATUS).sum())  # null, −1, is good
        _take_times(group, served, exact=exact)
    if not passed.all():
        turned = rows.take(np.flatnonzero(~passed))
        if group.first_refusal_ns is None:
            group.first_refusal_ns = int(turned.ints("t_ns")[0])
        _take_blocks(group, turned.take(np.flatnonzero(turned.holds("outcome", "blocked"))), end_ns)


def _take_times(group: _Group, served: BatchRows, *, exact: bool) -> None:
    latency_ns, wait_ns = served.ints("latency_ns"), served.ints("wait_ns")
    if exact:
        group.latency.append(latency_ns)
        group.wait.append(wait_ns)
    else:
        group.latency_digest.batch_update(np.sort(latency_ns).tolist())
        group.wait_digest.batch_update(np.sort(wait_ns).tolist())


def _take_blocks(group: _Group, blocked: BatchRows, end_ns: int) -> None:
    for counter, rows in blocked.split(("rule", "key", "ip"), nulls=True):
        start_ns = rows.ints("t_ns")
        until_ns = np.minimum(start_ns + rows.ints("wait_ns"), end_ns)
        known_ns = group.blocks.get(counter, 0)
        # Whoever is told to wait 5 s and a second later 4 s is blocked for 5 s, not for 9.
        before_ns = np.maximum.accumulate(np.r_[known_ns, until_ns])
        fresh_ns = until_ns - np.maximum(start_ns, before_ns[:-1])
        group.blocked_ns += int(np.maximum(fresh_ns, 0).sum())
        group.blocks[counter] = int(before_ns[-1])


def _line(group: _Group, whole_ns: int, start_ns: int, bin_ns: int | None) -> dict[str, Any]:
    counts = group.counts
    passed = counts.get("admitted", 0) + counts.get("delayed", 0)
    refused = counts.get("refused", 0) + counts.get("blocked", 0)
    offered = passed + refused
    span_ns = bin_ns or whole_ns
    line = {
        "offered": offered,
        "admitted": passed,
        "delayed": counts.get("delayed", 0),
        "refused": refused,
        "blocked": counts.get("blocked", 0),
        "refused_share": refused / offered,
        "blocked_ns": group.blocked_ns,
        "goodput_per_s": group.good * 1e9 / span_ns,
        "attempts_per_success": offered / group.good if group.good else float("nan"),
        "first_refusal_ns": None
        if group.first_refusal_ns is None
        else group.first_refusal_ns - start_ns,
        "fairness": _jain(group.admitted_of.values()),
    }
    for what, values, digest in (
        ("wait", group.wait, group.wait_digest),
        ("latency", group.latency, group.latency_digest),
    ):
        together = np.concatenate(values) if values else None
        for q in QUANTILES:
            name = f"{what}_p{q * 100:g}_ns"
            if together is not None:
                line[name] = float(np.quantile(together, q))
            else:
                line[name] = float("nan") if digest.is_empty() else digest.quantile(q)
    return line


def _jain(values: Iterable[int]) -> float:
    """Return Jain's fairness index (Σx)² ÷ (n · Σx²); 1 where all are equal or nothing passed."""
    numbers = list(values)
    squares = sum(x * x for x in numbers)
    return sum(numbers) ** 2 / (len(numbers) * squares) if squares else 1.0
