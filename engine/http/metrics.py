"""Metrics in the text format of Prometheus: requests, decisions by clause, latency.

Counted in plain dictionaries, which cost nanoseconds a request, and turned into metric families
when somebody asks. Nothing here names a tenant, a key or an address.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from engine.messages import Decision

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_BOUNDS_NS: Final = tuple(
    int(seconds * 1e9)
    for seconds in (
        0.00005,
        0.0001,
        0.0002,
        0.0005,
        0.001,
        0.0025,
        0.005,
        0.01,
        0.025,
        0.05,
        0.1,
        0.25,
        0.5,
        1,
        2.5,
        5,
        10,
        30,
    )
)


class Metrics(Collector):
    """What the server has done since its start."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, int, str, str | None], int] = {}
        self._shadows: dict[str, int] = {}
        self._buckets = [0] * (len(_BOUNDS_NS) + 1)
        self._sum_ns = 0
        self.in_flight = 0
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def count(self, operation: str, status: int, decision: Decision, latency_ns: int) -> None:
        """Count one answered request."""
        answer = (operation, status, decision.outcome, decision.rule)
        self._answers[answer] = self._answers.get(answer, 0) + 1
        for rule in decision.shadow:
            self._shadows[rule] = self._shadows.get(rule, 0) + 1
        self._buckets[bisect_left(_BOUNDS_NS, latency_ns)] += 1
        self._sum_ns += latency_ns

    def text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Return the metric families."""
        asked: Counter[tuple[str, int]] = Counter()
        decided: Counter[tuple[str, str]] = Counter()
        for (operation, status, outcome, rule), count in self._answers.copy().items():
            asked[operation, status] += count
            decided[outcome, rule or ""] += count
        requests = CounterMetricFamily(
            "tollgate_requests", "Requests answered.", labels=("operation", "status")
        )
        for (operation, status), count in sorted(asked.items()):
            requests.add_metric((operation, str(status)), count)
        yield requests
        decisions = CounterMetricFamily(
            "tollgate_decisions",
            "Decisions of the limits; rule is the clause that refused or delayed.",
            labels=("outcome", "rule"),
        )
        for labels, count in sorted(decided.items()):
            decisions.add_metric(labels, count)
        yield decisions
        shadows = CounterMetricFamily(
            "tollgate_shadow_refusals",
            "Requests that a rule in shadow would have refused.",
            labels=("rule",),
        )
        for rule, count in sorted(self._shadows.items()):
            shadows.add_metric((rule,), count)
        yield shadows
        yield GaugeMetricFamily(
            "tollgate_requests_in_flight", "Requests being answered.", self.in_flight
        )
        yield self._histogram()

    def _histogram(self) -> HistogramMetricFamily:
        total, buckets = 0, []
        for bound_ns, count in zip(_BOUNDS_NS, self._buckets, strict=False):
            total += count
            buckets.append((f"{bound_ns / 1e9:g}", total))
        buckets.append(("+Inf", total + self._buckets[-1]))
        return HistogramMetricFamily(
            "tollgate_request_duration_seconds",
            "From the head of a request to its answer.",
            buckets=buckets,
            sum_value=self._sum_ns / 1e9,
        )
