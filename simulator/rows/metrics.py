"""Metrics of a run, by any dimension of its rows, in one pass over the row groups.

No frames are made on the way: making and grouping them takes longer than playing a short run.

A run that fits in one batch of `EXACT_ROWS` gets exact percentiles; beyond, they come from a
t-digest for each group (about 1 % off in rank), so that memory follows the groups and not the rows.

Here `by="clause"` groups the refused rows by the clause that refused them. The table by clause of
`summary.json` counts what each clause was offered.

*Blocked time* is computed from the rows too, in all or between instants. A block lasts from a
blocked row to the instant that it was told to wait for. Overlaps of one counter count once: a wait
of 5 s, and a second later one of 4 s, are a block of 5 s, not of 9. The times of several counters
add up.

One metric's series over time tells how long a warm-up and a run should be:

*Warm-up*: MSER-5 (White, Cobb and Spratt, "A comparison of five steady-state truncation heuristics
for simulation", WSC 2000). The series is cut into batches of five bins. Of all truncations d in the
first half, MSER-5 suggests the one with the smallest standard error of the remaining mean: the sum
of squared deviations from that mean, divided by the square of the number of remaining batches. If
that is the last truncation allowed, the series has no steady part.

*Length*: what is left behind the warm-up is cut into twenty batches, whose means give Student's t
interval. Its half-width shrinks with the square root of the length. Where neighbouring batches
depend on each other, or do not differ at all, nothing is said of a length.

Neither is proof: one run has one start. Replications show how far runs lie apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from fastdigest import TDigest

from engine.errors import InputError, did_you_mean
from simulator.arguments import TEXTS, ArgumentRule, format_value, whole
from simulator.intervals import interval_of, runs_for_precision
from simulator.rows.parquet import missing, refuse_missing
from simulator.rows.record import PASSED
from simulator.rows.reducer import GroupBlockedTime, RowBatch
from simulator.scenario.conditions import LABELS

if TYPE_CHECKING:
    import pandas as pd


DIMENSIONS: Final = ("client", "group", *LABELS[1:], "time")
_NUMBERED: Final = ("client", "time")
"""Dimensions whose values are numbers; those of the others are texts."""
BY: Final = ArgumentRule(
    "a dimension, or a list of them",
    lambda by: isinstance(by, str) or TEXTS.holds(by),
    lambda by: [by] if isinstance(by, str) else list(by),
)
WHERE: Final = ArgumentRule(
    'dimensions with the value of each, such as {"key": "key-0001"}',
    lambda where: isinstance(where, Mapping) and all(isinstance(name, str) for name in where),
    dict,
)
EXACT_ROWS: Final = 1 << 20
QUANTILES: Final = (0.5, 0.9, 0.99)
_QUANTILE_NAMES: Final = {
    what: [f"{what}_p{q * 100:g}_ns" for q in QUANTILES] for what in ("wait", "latency")
}
_NAN: Final = float("nan")
COUNTS: Final = frozenset(
    {"offered", "admitted", "delayed", "refused", "blocked", "blocked_time", "goodput_per_s"}
)
"""Metrics that are 0 where there is no row."""
SUMS: Final = COUNTS - {"goodput_per_s"}
"""Metrics that are the sum of those of parts of the rows."""
_COLUMN_OF: Final = {"group": "client", "clause": "rule", "time": "t_ns"}
_COUNTED: Final = ("offered", "admitted", "delayed", "refused", "blocked", "refused_share")
NEEDS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(_COUNTED, ("outcome",)),
    "blocked_ns": ("t_ns", "key", "ip", "outcome", "rule", "wait_ns"),
    "goodput_per_s": ("outcome", "status"),
    "attempts_per_success": ("outcome", "status"),
    **{
        name: ("outcome", f"{what}_ns") for what, names in _QUANTILE_NAMES.items() for name in names
    },
    "first_refusal_ns": ("t_ns", "outcome"),
    "fairness": ("client", "outcome"),
}
"""Metric → the columns of the rows that it is made of, in the order of a frame's columns."""
_NUMBER: Final = whole(0)
_WIDTH: Final = whole(1, 'the width of a bin, such as "10s", with time', below=1 << 63)
_NAME: Final = ArgumentRule("a text, as the rows have it", lambda value: isinstance(value, str))
_ALL: Final = "all"

Line: TypeAlias = dict[str, Any]
"""Metric → its value; NaN or None where there is none."""


@dataclass(slots=True)
class _GroupCounts:
    """What is kept for one group of rows."""

    counts: dict[str, int] = field(default_factory=dict)
    good: int = 0
    first_refusal_ns: int | None = None
    admitted_of: dict[int, int] = field(default_factory=dict)
    latency: list[Any] = field(default_factory=list)
    wait: list[Any] = field(default_factory=list)
    latency_digest: TDigest = field(default_factory=TDigest)
    wait_digest: TDigest = field(default_factory=TDigest)
    blocked_ns: int = 0


def lines_of(  # noqa: PLR0913 # reason: what an analyst may narrow and split by
    batches: Iterable[pa.RecordBatch],
    by: Sequence[str],
    *,
    end_ns: int,
    start_ns: int = 0,
    bin_ns: int | None = None,
    groups: Mapping[str, range] | None = None,
    where: Mapping[str, str | int] | None = None,
    counters: Mapping[str, Sequence[str]] | None = None,
    exact: bool = True,
) -> dict[tuple[Any, ...], Line]:
    """Return the metrics of each group, by its values of the dimensions `by` (see `DIMENSIONS`).

    Metrics: offered, admitted, delayed, refused, blocked (counts of attempts), refused_share,
    blocked_ns (time for which blocked counters admit nobody, added up over counters; in a bin of
    time what falls into it), goodput_per_s (admitted and not answered with an error),
    attempts_per_success, wait_p50_ns … and latency_p50_ns … (of what was admitted),
    first_refusal_ns (from `start_ns`; None when never), fairness (Jain's index of the
    admitted attempts of each client; 1 = even).

    bin_ns: width of a bin for `time`. groups: client group → client numbers, for `group`.
    where: dimension → the value that rows must have. Rows before `start_ns` are left out.
    counters: rule → the columns that tell its counters apart, `key` and `ip` unless given.
    A metric that needs a column which the rows lack (`NEEDS`) is NaN.
    Raises `InputError` for an unknown dimension, and for one that is a column which they lack.
    """
    _check_dimensions(by, where or {}, bin_ns)
    held: Sequence[str] = ()
    counts: dict[Any, _GroupCounts] = {}
    blocks: dict[Any, GroupBlockedTime] = {}
    others = [name for name in by if name != "time"]
    nulls = "clause" not in by and "rule" not in by
    for batch in batches:
        held = held or _checked(batch.schema.names, (*by, *(where or ())), start_ns)
        rows = RowBatch(batch, bin_ns, groups or {})
        for name, value in (where or {}).items():
            rows = rows.take(np.flatnonzero(rows.holds(name, value)))
        blocked = rows.take(np.flatnonzero(rows.holds("outcome", "blocked")))
        for key, part in blocked.split(others, nulls=nulls) if len(blocked) else ():
            times = blocks.setdefault(key or (), GroupBlockedTime(start_ns, end_ns, counters or {}))
            times.take(part)
        if start_ns:
            rows = rows.take(np.flatnonzero(rows.ints("t_ns") >= start_ns))
        if len(rows):
            for key, part in rows.split(by, nulls=nulls):
                _take(counts.setdefault(key or (_ALL,), _GroupCounts()), part, exact=exact)
    _share_blocks(counts, blocks, by, bin_ns)
    place = by.index("time") if "time" in by else None
    lacking = [name for name, needed in NEEDS.items() if held and missing(needed, held)]
    unknown = dict.fromkeys(lacking, _NAN)
    lines = {}
    for key, group in counts.items():
        at_ns = start_ns if place is None else key[place]
        until_ns = end_ns if place is None else min(end_ns, at_ns + (bin_ns or 0))
        lines[key] = _line(group, until_ns - max(at_ns, start_ns), start_ns) | unknown
    return lines


def frame_of(lines: Mapping[tuple[Any, ...], Line], by: Sequence[str]) -> pd.DataFrame:
    """Return the metrics of groups as a frame, a line a group, indexed by its dimensions."""
    import pandas as pd  # noqa: PLC0415 # reason: it loads longer than a small run takes

    index: pd.Index[Any] | None = None
    if lines and len(by) > 1:
        index = pd.MultiIndex.from_tuples(list(lines), names=list(by))
    elif lines:
        index = pd.Index([key[0] for key in lines], name=by[0] if by else _ALL)
    answer = pd.DataFrame(list(lines.values()), index=index, columns=list(NEEDS))
    answer["first_refusal_ns"] = answer["first_refusal_ns"].astype("Int64")
    return answer.sort_index()


def _check_dimensions(
    by: Sequence[str], where: Mapping[str, str | int], bin_ns: int | None
) -> None:
    """Raise `InputError` for what is no dimension, or no value of one."""
    for what, asked in (("by", by), ("where", where)):
        for name in asked:
            if name not in DIMENSIONS:
                hint = did_you_mean(name, DIMENSIONS)
                raise InputError(f"{what} = {format_value(name)} must be a dimension{hint}")
    for name, value in where.items():
        rule = _NUMBER if name in _NUMBERED else _NAME
        rule.read(f"where[{name!r}]", value)
    if "time" in (*by, *where):
        _WIDTH.read("bin", bin_ns)


_ROUND_NS: Final = (
    *(unit * 10**power for power in range(9) for unit in (1, 2, 5)),
    *(n * 10**9 for n in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800)),
    *(n * 3600 * 10**9 for n in (1, 2, 3, 6, 12, 24, 48, 96, 168, 336, 720, 2160)),
    *(n * 8760 * 3600 * 10**9 for n in (1, 2, 5, 10, 20, 50, 100)),
)


def round_ns(span_ns: int) -> int:
    """Return the next span that people count in: 1, 2 or 5 of a unit, parts of hours, days, years.

    >>> round_ns(7), round_ns(40 * 10**9)
    (10, 60000000000)
    """
    return next((step_ns for step_ns in _ROUND_NS if step_ns >= span_ns), span_ns)


def column_of(dimension: str) -> str:
    """Return the column of the rows that a dimension is read from."""
    return _COLUMN_OF.get(dimension, dimension)


def _checked(held: Sequence[str], dimensions: Iterable[str], start_ns: int) -> Sequence[str]:
    """Return the columns; raises `InputError` where one that is needed is missing."""
    refuse_missing("metrics", ("t_ns", "outcome") if start_ns else ("outcome",), held)
    for name in dimensions:
        refuse_missing(f"by = {name!r}", (column_of(name),), held)
    return held


def _take(group: _GroupCounts, rows: RowBatch, *, exact: bool) -> None:
    outcome, names = rows.coded("outcome")
    for name, count in zip(names, np.bincount(outcome, minlength=len(names)), strict=True):
        group.counts[name] = group.counts.get(name, 0) + int(count)
    passed, good = ~rows.turned(), rows.good()
    client = rows.ints("client")
    for number in np.unique(client).tolist():
        group.admitted_of.setdefault(number, 0)
    for number, count in zip(*np.unique(client[passed], return_counts=True), strict=True):
        group.admitted_of[int(number)] += int(count)
    if passed.any():
        group.good += int(good.sum())
        _take_times(group, rows.take(np.flatnonzero(passed)), exact=exact)
    if not passed.all():
        turned = rows.take(np.flatnonzero(~passed))
        if group.first_refusal_ns is None:
            group.first_refusal_ns = int(turned.ints("t_ns")[0])


def _take_times(group: _GroupCounts, served: RowBatch, *, exact: bool) -> None:
    latency_ns, wait_ns = served.ints("latency_ns"), served.ints("wait_ns")
    if exact:
        group.latency.append(latency_ns)
        group.wait.append(wait_ns)
    else:
        group.latency_digest.batch_update(np.sort(latency_ns).tolist())
        group.wait_digest.batch_update(np.sort(wait_ns).tolist())


def _share_blocks(
    counts: Mapping[Any, _GroupCounts],
    blocks: Mapping[Any, GroupBlockedTime],
    names: Sequence[str],
    bin_ns: int | None,
) -> None:
    """Set how long the counters of each group were blocked, within its bin if it has one."""
    if "time" not in names:
        for key, group in counts.items():
            times = blocks.get(() if key == (_ALL,) and not names else key)
            group.blocked_ns = times.in_all_ns() if times is not None else 0
        return
    place = names.index("time")
    bins: dict[Any, list[int]] = {}
    for key in counts:
        bins.setdefault(key[:place] + key[place + 1 :], []).append(key[place])
    for others, starts in bins.items():
        times = blocks.get(others)
        if times is not None:
            starts_ns = np.array(starts, dtype=np.int64)
            shares_ns = times.between(starts_ns + (bin_ns or 1)) - times.between(starts_ns)
            for start, share_ns in zip(starts, shares_ns.tolist(), strict=True):
                counts[(*others[:place], start, *others[place:])].blocked_ns = share_ns


def _line(group: _GroupCounts, span_ns: int, start_ns: int) -> Line:
    counts = group.counts
    offered = sum(counts.values())
    passed = sum(counts.get(outcome, 0) for outcome in PASSED)
    refused = offered - passed
    line = {
        "offered": offered,
        "admitted": passed,
        "delayed": counts.get("delayed", 0),
        "refused": refused,
        "blocked": counts.get("blocked", 0),
        "refused_share": refused / offered,
        "blocked_ns": group.blocked_ns,
        "goodput_per_s": group.good * 1e9 / span_ns,
        "attempts_per_success": offered / group.good if group.good else _NAN,
        "first_refusal_ns": None
        if group.first_refusal_ns is None
        else group.first_refusal_ns - start_ns,
        "fairness": _jain(group.admitted_of.values()),
    }
    for what, values, digest in (
        ("wait", group.wait, group.wait_digest),
        ("latency", group.latency, group.latency_digest),
    ):
        if values:
            quantiles = np.quantile(np.concatenate(values), QUANTILES).tolist()
        else:
            quantiles = [_NAN if digest.is_empty() else digest.quantile(q) for q in QUANTILES]
        line.update(zip(_QUANTILE_NAMES[what], quantiles, strict=True))
    return line


def _jain(values: Iterable[int]) -> float:
    """Return Jain's fairness index (Σx)² ÷ (n · Σx²); 1 where all are equal or nothing passed."""
    numbers = list(values)
    squares = sum(x * x for x in numbers)
    return sum(numbers) ** 2 / (len(numbers) * squares) if squares else 1.0


BINS: Final = 180
"""Bins that a run is cut into at most, unless told."""
_BATCH: Final = 5
_LEAST_BATCHES: Final = 10
"""The fewest batches from which a warm-up is estimated."""
_MEANS: Final = 20
_LONGEST: Final = 1e9
"""How much narrower than this run's own interval one can be asked for."""
_DEPENDENT: Final = 2 / math.sqrt(_MEANS)
"""A correlation of neighbours that independent batches seldom reach."""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The warm-up that a metric's series suggests.

    series: the metric bin by bin, from the run's start; NaN where a bin has no value. A last bin
    that the run's end cuts is left out. given_ns: the run's warm-up. suggested_ns: the warm-up that
    MSER-5 suggests; None where the series is too short, or does not settle. is_long_enough: whether
    there are 50 bins with a value. mean: of the series behind `suggested_ns`; whole_mean: of all.
    """

    metric: str
    bin_ns: int
    series: tuple[float, ...]
    given_ns: int
    suggested_ns: int | None
    is_long_enough: bool
    mean: float
    whole_mean: float

    @property
    def is_too_short(self) -> bool:
        """Whether the run's warm-up is shorter than the suggested one."""
        return self.suggested_ns is not None and self.given_ns < self.suggested_ns


@dataclass(frozen=True, slots=True)
class RunLength:
    """How long a run, or how many replications, would give a mean this half-width.

    asked: the half-width. half_width: that of this run's own interval, by batch means; None where
    it has none. duration_ns: about how long one run would have to be, its warm-up included.
    replications: about how many runs like the replications of this one; None without any. why_not:
    why there is no duration; empty where there is one.
    """

    metric: str
    asked: float
    half_width: float | None
    duration_ns: int | None
    replications: int | None
    why_not: str = ""


def mser_5(values: Sequence[float]) -> int | None:
    """Return how many of the first values to leave out, a multiple of 5; None for no answer.

    There is none for fewer than 50 values, and where the series does not settle in its first half.

    >>> mser_5([9.0] * 10 + [1.0, 2.0] * 40), mser_5([1.0] * 100), mser_5(range(100))
    (10, 0, None)
    """
    count = len(values) // _BATCH
    if count < _LEAST_BATCHES:
        return None
    known: Values = np.asarray(values, dtype=np.float64)[: count * _BATCH]
    batches = known.reshape(count, _BATCH).mean(axis=1)
    most = count // 2
    errors = np.array([_squares(batches[d:]) / (count - d) ** 2 for d in range(most + 1)])
    # Of truncations that are equal but for rounding, the shortest.
    slack = 1e-12 * float(np.square(batches).max()) / count
    best = int(np.flatnonzero(errors <= errors.min() * (1 + 1e-9) + slack)[0])
    return None if best == most else best * _BATCH


def _squares(values: Values) -> float:
    return float(np.square(values - values.mean()).sum())


def warm_up_of(
    metric: str, series: Sequence[float], *, bin_ns: int, end_ns: int, given_ns: int = 0
) -> WarmUp:
    """Return what a series says of the warm-up; bins without a value (NaN) are passed over."""
    whole: Values = np.asarray(series[: end_ns // bin_ns], dtype=np.float64)
    places = np.flatnonzero(~np.isnan(whole))
    values = whole[places]
    cut = mser_5(values.tolist())
    suggested_ns = None
    if cut is not None:
        # Keep the start if nothing is cut; else cut everything before the first bin kept.
        suggested_ns = int(places[cut]) * bin_ns if cut else 0
    return WarmUp(
        metric,
        bin_ns,
        tuple(whole.tolist()),
        given_ns,
        suggested_ns,
        len(values) >= _BATCH * _LEAST_BATCHES,
        _mean(values[cut or 0 :]),
        _mean(values),
    )


def _mean(values: Values) -> float:
    return float(values.mean()) if len(values) else math.nan


def run_length_of(
    warm_up: WarmUp, half_width: float, *, end_ns: int, of_runs: Sequence[float] = ()
) -> RunLength:
    """Return how long a run would give a half-width, by what stays behind the warm-up.

    of_runs: the metric of each replication.
    """
    start_ns = max(warm_up.given_ns, warm_up.suggested_ns or 0)
    whole: Values = np.asarray(warm_up.series[-(-start_ns // warm_up.bin_ns) :], dtype=np.float64)
    values = whole[~np.isnan(whole)]
    runs = [value for value in of_runs if not math.isnan(value)]
    needed = runs_for_precision(runs, warm_up.metric, half_width) if len(runs) > 1 else None

    def answer(now: float | None, duration_ns: int | None, why_not: str = "") -> RunLength:
        return RunLength(warm_up.metric, half_width, now, duration_ns, needed, why_not)

    if warm_up.suggested_ns is None and warm_up.is_long_enough:
        return answer(None, None, "the series does not settle in this run")
    if len(values) < 2 * _MEANS:
        return answer(None, None, f"fewer than {2 * _MEANS} bins have a value")
    size = len(values) // _MEANS
    means = values[len(values) - size * _MEANS :].reshape(_MEANS, size).mean(axis=1)
    if means.min() == means.max():
        return answer(None, None, "the batches of this run do not differ")
    if _neighbours(means) > _DEPENDENT:
        return answer(None, None, "neighbouring batches of this run depend on each other")
    now = interval_of(means.tolist()).half_width
    if now <= half_width:
        return answer(now, end_ns)
    if now > half_width * _LONGEST:
        return answer(now, None, "no run is so long")
    return answer(now, start_ns + math.ceil((end_ns - start_ns) * (now / half_width) ** 2))


def _neighbours(means: Values) -> float:
    """Return the correlation of each mean with the next."""
    apart: Any = means - means.mean()
    return float((apart[1:] * apart[:-1]).sum() / np.square(apart).sum())
