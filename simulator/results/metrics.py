"""Metrics of a run, by any dimension of its rows, in one pass over the row groups.

A run that fits in one batch of `EXACT_ROWS` gets exact percentiles; beyond, they come from a
t-digest for each group (about 1 % off in rank), so that memory follows the groups and not the rows.

What it is not: the table by clause of `summary.json`, which counts what each clause was offered;
here `by="clause"` groups the refused rows by the clause that refused them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from fastdigest import TDigest

from engine.errors import InputError, did_you_mean

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
    found: dict[tuple[Any, ...], _Group] = {}
    for batch in batches:
        frame = _frame(batch, start_ns, bin_ns, groups or {})
        for name, value in (where or {}).items():
            frame = frame[(frame[name] == value).to_numpy(dtype=bool, na_value=False)]
        if not names:
            frame = frame.assign(**{_ALL: _ALL})
        if len(frame):
            _take(found, frame, names or [_ALL], end_ns, exact=exact)
    lines = [_line(group, end_ns - start_ns, start_ns, bin_ns) for group in found.values()]
    index = pd.MultiIndex.from_tuples(list(found), names=names or [_ALL]) if found else None
    answer = pd.DataFrame(lines, index=index, columns=_COLUMNS)
    if found and len(names) <= 1:
        answer.index = answer.index.get_level_values(0)
    answer["first_refusal_ns"] = answer["first_refusal_ns"].astype("Int64")
    return answer.sort_index()


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


def _frame(
    batch: pa.RecordBatch, start_ns: int, bin_ns: int | None, groups: Mapping[str, range]
) -> pd.DataFrame:
    frame: pd.DataFrame = batch.to_pandas()
    if start_ns:
        frame = frame[frame["t_ns"] >= start_ns].copy()
    frame["clause"] = frame["rule"].astype(object).map(_clause, na_action="ignore")
    frame["time"] = (frame["t_ns"] // bin_ns) * bin_ns if bin_ns else 0
    names = pd.Series(index=range(max((r.stop for r in groups.values()), default=0)), dtype=object)
    for name, numbers in groups.items():
        names.iloc[numbers.start : numbers.stop] = name
    if len(names):
        frame["group"] = names.reindex(frame["client"].to_numpy()).to_numpy()
    else:
        frame["group"] = None
    return frame


def _clause(rule: str) -> str:
    return rule.partition(".")[0]


def _take(
    found: dict[tuple[Any, ...], _Group],
    frame: pd.DataFrame,
    names: list[str],
    end_ns: int,
    *,
    exact: bool,
) -> None:
    keys = [frame[name].astype(object) for name in names]
    dropna = "clause" in names or "rule" in names
    for key, part in frame.groupby(keys, sort=False, dropna=dropna):
        group = found.setdefault(key, _Group())
        outcome = part["outcome"].astype(object)
        for name, count in outcome.value_counts().items():
            group.counts[str(name)] = group.counts.get(str(name), 0) + int(count)
        passed = outcome.isin(("admitted", "delayed"))
        turned = part[~passed]
        served = part[passed]
        status = served["status"]
        group.good += int((status.isna() | (status < 400)).sum())
        if len(turned):
            first_ns = int(turned["t_ns"].iloc[0])
            if group.first_refusal_ns is None:
                group.first_refusal_ns = first_ns
        for client in np.unique(part["client"].to_numpy()).tolist():
            group.admitted_of.setdefault(client, 0)
        for client, count in zip(*_counted(served["client"]), strict=True):
            group.admitted_of[client] += count
        _take_times(group, served, exact=exact)
        _take_blocks(group, turned, end_ns)


def _counted(values: pd.Series[int]) -> tuple[list[int], list[int]]:
    distinct, counts = np.unique(values.to_numpy(), return_counts=True)
    return distinct.tolist(), counts.tolist()


def _take_times(group: _Group, served: pd.DataFrame, *, exact: bool) -> None:
    if not len(served):
        return
    if exact:
        group.latency.append(served["latency_ns"].to_numpy())
        group.wait.append(served["wait_ns"].to_numpy())
    else:
        group.latency_digest.batch_update(served["latency_ns"].tolist())
        group.wait_digest.batch_update(served["wait_ns"].tolist())


def _take_blocks(group: _Group, turned: pd.DataFrame, end_ns: int) -> None:
    blocked = turned[turned["outcome"].astype(object) == "blocked"]
    for rule, key, ip, t_ns, wait_ns in zip(
        blocked["rule"].astype(object),
        blocked["key"].astype(object),
        blocked["ip"].astype(object),
        blocked["t_ns"].tolist(),
        blocked["wait_ns"].tolist(),
        strict=True,
    ):
        counter = (rule, key, ip)
        until_ns = min(t_ns + wait_ns, end_ns)
        from_ns = max(t_ns, group.blocks.get(counter, 0))
        if until_ns > from_ns:
            group.blocked_ns += until_ns - from_ns
            group.blocks[counter] = until_ns


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
