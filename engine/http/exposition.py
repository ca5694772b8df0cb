"""The text of `/metrics`: the counts of a server as Prometheus' metric families."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.metadata import version

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from engine.http.access_log import BOUNDS_S, Metrics


def exposition(metrics: Metrics) -> bytes:
    """Return the metrics in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Families(metrics))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Return the metric families."""
        metrics = self._metrics
        by_status: Counter[tuple[str, ...]] = Counter()
        by_decision: Counter[tuple[str, ...]] = Counter()
        for (operation, status, outcome, rule), count in metrics.responses.copy().items():
            by_status[operation, str(status)] += count
            by_decision[outcome, rule or ""] += count
        build = GaugeMetricFamily(
            "tollgate_build_info",
            "Always 1; the labels name the build.",
            labels=("version", "python"),
        )
        build.add_metric((version("tollgate"), platform.python_version()), 1)
        yield build
        yield _counters(
            "tollgate_requests", "Requests answered.", ("operation", "status"), by_status
        )
        yield _counters(
            "tollgate_decisions",
            "Decisions of the limits; rule is the clause that refused or delayed.",
            ("outcome", "rule"),
            by_decision,
        )
        yield _counters(
            "tollgate_shadow_refusals",
            "Requests that a rule in shadow would have refused.",
            ("rule",),
            {(rule,): count for rule, count in metrics.shadows.items()},
        )
        yield GaugeMetricFamily(
            "tollgate_requests_in_flight", "Requests being answered.", metrics.in_flight
        )
        yield _histogram(metrics)


def _histogram(metrics: Metrics) -> HistogramMetricFamily:
    total, buckets = 0, []
    for bound_s, count in zip(BOUNDS_S, metrics.buckets, strict=False):
        total += count
        buckets.append((f"{bound_s:g}", total))
    buckets.append(("+Inf", total + metrics.buckets[-1]))
    return HistogramMetricFamily(
        "tollgate_request_duration_seconds",
        "From the head of a request to its answer.",
        buckets=buckets,
        sum_value=metrics.sum_ns / 1e9,
    )


def _counters(
    name: str, description: str, labels: tuple[str, ...], counts: Mapping[tuple[str, ...], int]
) -> CounterMetricFamily:
    family = CounterMetricFamily(name, description, labels=labels)
    for values, count in sorted(counts.items()):
        family.add_metric(values, count)
    return family
