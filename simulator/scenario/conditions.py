"""Conditions on a run's metrics, such as `refused_share{client='browsers'} <= 0.01`.

A condition is a metric, labels that narrow it, a comparison and a bound. The bound is a number, or
a duration if the metric is one. This module defines which metrics and labels there are;
`simulator.rows` computes them.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from engine.errors import InputError, did_you_mean
from engine.files import Kind, Spot, format_duration
from engine.files.kinds import duration_or_rule


class Metric(NamedTuple):
    """A metric of a run: its column in `simulator.rows.metrics`, where its meaning is said.

    least, most: its range.
    """

    column: str
    is_duration: bool = False
    least: float = 0.0
    most: float = math.inf


METRICS: Final[dict[str, Metric]] = {
    "offered": Metric("offered"),
    "admitted": Metric("admitted"),
    "delayed": Metric("delayed"),
    "refused": Metric("refused"),
    "blocked": Metric("blocked"),
    "refused_share": Metric("refused_share", most=1.0),
    "goodput_per_s": Metric("goodput_per_s"),
    "attempts_per_success": Metric("attempts_per_success", least=1.0),
    "fairness": Metric("fairness", most=1.0),
    "blocked_time": Metric("blocked_ns", is_duration=True),
    "first_refusal": Metric("first_refusal_ns", is_duration=True),
    **{
        f"{what}_{short}": Metric(f"{what}_{short}_ns", is_duration=True)
        for what in ("wait", "latency")
        for short in ("p50", "p90", "p99")
    },
}
"""The metrics that a condition may use."""

LABELS: Final = (
    *("client", "tenant", "application", "key", "ip", "method", "path", "clause", "rule"),
)
"""The labels that narrow a metric. `client` takes the name of a client group."""

_COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
    "!=": operator.ne,
}
_FORM: Final = "must be a condition such as \"refused_share{client='browsers'} <= 0.01\""
_CONDITION: Final = re.compile(
    r"\s*(?P<metric>[A-Za-z_]\w*)\s*(?:\{(?P<labels>[^{}]*)\})?\s*"
    r"(?P<compare><=|>=|==|!=|<|>)\s*(?P<bound>\S+)\s*",
    re.ASCII,
)
_LABEL: Final = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*(?:'([^']*)'|\"([^\"]*)\")\s*", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?%?", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A condition. `bound` is a number, or nanoseconds where the metric is a duration.

    labels: `(name, value)` pairs in the order written; all must match.
    """

    metric: str
    labels: tuple[tuple[str, str], ...] = ()
    compare: str
    bound: float

    @property
    def is_duration(self) -> bool:
        """Whether the metric is a duration, and the bound in nanoseconds."""
        return METRICS[self.metric].is_duration

    def holds(self, value: float) -> bool:
        """Return whether a value of the metric meets the condition; NaN meets none."""
        return not math.isnan(value) and _COMPARE[self.compare](value, self.bound)

    @property
    def subject(self) -> str:
        """What it is about, as it is written: `refused_share{client='browsers'}`."""
        labels = ",".join(f"{name}={_quoted(value)}" for name, value in self.labels)
        return f"{self.metric}{{{labels}}}" if labels else self.metric

    def __str__(self) -> str:
        if self.is_duration:
            return f"{self.subject} {self.compare} {format_duration(int(self.bound))}"
        return f"{self.subject} {self.compare} {repr(self.bound).removesuffix('.0')}"


def _quoted(text: str) -> str:
    """Return a label's value in quotes; a text that was read holds one kind of them at most."""
    return f'"{text}"' if "'" in text else f"'{text}'"


def parse_condition(text: str) -> Condition:
    """Return the condition that a text states; raises `InputError` if it states none.

    >>> parse_condition("latency_p99{client='web'} < 1.5s").bound
    1500000000.0
    >>> str(parse_condition("refused_share <= 1%"))
    'refused_share <= 0.01'
    """
    condition = condition_or_rule(text)
    if isinstance(condition, str):
        raise InputError(f"condition = {text!r} {condition}")
    return condition


def condition_or_rule(text: str) -> Condition | str:  # reason: a return a rule
    """Return the condition, or the rule that the text breaks."""
    match = _CONDITION.fullmatch(text)
    if match is None:
        return _FORM
    metric = match["metric"]
    if metric not in METRICS:
        return f"must name a metric; there is no {metric!r}{did_you_mean(metric, METRICS)}"
    labels = []
    for part in (match["labels"] or "").split(",") if (match["labels"] or "").strip() else []:
        label = _LABEL.fullmatch(part)
        if label is None:
            return _FORM
        if label[1] not in LABELS:
            return f"must name a label; there is no {label[1]!r}{did_you_mean(label[1], LABELS)}"
        labels.append((label[1], label[2] if label[2] is not None else label[3]))
    bound = _bound(match["bound"], METRICS[metric])
    if isinstance(bound, str):
        return bound
    return Condition(metric=metric, labels=tuple(labels), compare=match["compare"], bound=bound)


@dataclass(frozen=True)
class ConditionText(Kind[Condition]):
    """A condition as text."""

    def read(self, spot: Spot) -> Condition:
        if not isinstance(spot.value, str):
            spot.fail(_FORM)
        condition = condition_or_rule(spot.value)
        return spot.fail(condition) if isinstance(condition, str) else condition

    def write(self, value: Condition) -> str:
        return str(value)

    def schema(self, _definitions: dict[str, dict[str, Any]]) -> dict[str, Any]:
        subject = rf"\s*({'|'.join(METRICS)})\s*(\{{[^{{}}]*\}})?\s*"
        return {"type": "string", "pattern": rf"^{subject}(<=|>=|==|!=|<|>)\s*\S+\s*$"}


def _bound(text: str, metric: Metric) -> float | str:
    """Return a bound, or the rule that its text breaks: every value keeps one out of range."""
    if metric.is_duration:
        duration_ns = duration_or_rule(text)
        if isinstance(duration_ns, str):
            return f"must compare with a duration such as 1.5s; {text} is none"
        return float(duration_ns)
    if not _NUMBER.fullmatch(text):
        return f"must compare with a number; {text} is none"
    if text.endswith("%") and not math.isfinite(metric.most):
        return f"must compare with a number; {text} is a share, of which refused_share is one"
    bound = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    if metric.least <= bound <= metric.most:
        return bound
    if math.isfinite(metric.most):
        return (
            f"must compare with a share from {metric.least:g} to {metric.most:g}, "
            f"such as 0.01 or 1%; {text} is none"
        )
    return f"must compare with a number that is at least {metric.least:g}; {text} is below"
