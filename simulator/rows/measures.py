"""The value of a metric of a run, narrowed by labels: what thresholds and searches ask for.

The metrics and labels are listed in `simulator.scenario.conditions`; their values are columns of
`simulator.rows.metrics`. `client` takes a client group's name, or one client's number. `clause`
and `rule` narrow what was refused, delayed and blocked to what that rule reported; what was offered
stays whole, so `refused_share{clause='LIM-READ'}` is the share that LIM-READ refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from engine.errors import InputError, did_you_mean
from simulator.rows.metrics import NEEDS, column_of
from simulator.rows.result import Result
from simulator.scenario.conditions import METRICS, Condition

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["columns_of", "is_of_totals", "measure", "measure_condition", "subject_of", "value_in"]

_NAN: Final = float("nan")
_BY_RULE: Final[tuple[str, ...]] = ("clause", "rule")
_REPORTED: Final = frozenset({"refused", "delayed", "blocked", "blocked_time", "first_refusal"})
_TOTALS: Final = frozenset({"offered", "delayed", "refused", "blocked", "refused_share"})
"""Metrics that the totals of a summary hold, equal to those computed from the rows."""
_COUNTS: Final = frozenset({"offered", "admitted", "delayed", "refused", "blocked", "blocked_time"})


def measure_condition(result: Result, condition: Condition) -> float:
    """Return the value of what a condition is about; nanoseconds where it is a duration."""
    return measure(result, condition.metric, dict(condition.labels))


def subject_of(condition: Condition) -> str:
    """Return what a condition is about, as it is written: `refused_share{client='browsers'}`."""
    labels = ",".join(f"{name}='{value}'" for name, value in condition.labels)
    return f"{condition.metric}{{{labels}}}" if labels else condition.metric


def measure(result: Result, metric: str, labels: Mapping[str, str] | None = None) -> float:
    """Return a metric's value; nanoseconds where it is a duration, NaN where there is none.

    Raises `InputError` for an unknown metric or an unknown client group.
    """
    if metric not in METRICS:
        raise InputError(f"metric = {metric!r} must be known{did_you_mean(metric, METRICS)}")
    labels = dict(labels or {})
    if not labels and metric in _TOTALS:
        totals = result.summary["totals"]
        return float(totals[metric]) if totals["offered"] or metric in _COUNTS else _NAN
    by_rule = {name: labels.pop(name) for name in _BY_RULE if name in labels}
    where = _where(result, labels)
    narrowed: dict[str, str | int] = {**where, **by_rule}
    if by_rule and metric in _REPORTED:
        return value_in(result.metrics(where=narrowed), metric)
    whole = result.metrics(where=where)
    if by_rule and metric == "refused_share":
        offered = value_in(whole, "offered")
        refused = value_in(result.metrics(where=narrowed), "refused")
        return refused / offered if offered else _NAN
    return value_in(whole, metric)


def is_of_totals(condition: Condition) -> bool:
    """Return whether a run's totals tell what a condition is about, without its rows."""
    return not condition.labels and condition.metric in _TOTALS


def columns_of(condition: Condition, *, warm_up: bool = False) -> set[str]:
    """Return the columns of the rows that a condition's value is made of.

    warm_up: whether rows are left out by their time.
    """
    needed = set(NEEDS[METRICS[condition.metric].column])
    needed.update(column_of(name) for name, _ in condition.labels)
    return needed | {"t_ns"} if warm_up else needed


def _where(result: Result, labels: Mapping[str, str]) -> dict[str, str | int]:
    where: dict[str, str | int] = {n: value for n, value in labels.items() if n != "client"}
    name = labels.get("client")
    if name is not None:
        if name in result.groups:
            where["group"] = name
        elif name.isdigit():
            where["client"] = int(name)
        else:
            raise InputError(
                f"client = {name!r} must be a client group{did_you_mean(name, result.groups)}"
            )
    return where


def value_in(frame: pd.DataFrame, metric: str) -> float:
    """Return a metric's value in a frame of one line; of no rows a count is 0, all else NaN."""
    if not len(frame):
        return 0.0 if metric in _COUNTS else _NAN
    import pandas as pd  # noqa: PLC0415 # reason: it loads longer than a small run takes

    value = frame[METRICS[metric].column].iloc[0]
    return _NAN if pd.isna(value) else float(value)
