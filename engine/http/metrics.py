"""What a server has done since its start, counted; `/metrics` shows it to Prometheus.

Counting costs nanoseconds per request; `engine.http.exposition` makes Prometheus' families of the
counts when somebody reads them. Nothing here names a tenant, a key or an address.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from engine.messages import Decision

BOUNDS_S: Final = (
    *(0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
"""The upper bounds of the latency histogram's buckets."""

_BOUNDS_NS: Final = tuple(int(bound_s * 1e9) for bound_s in BOUNDS_S)


class Metrics:
    """The counts of one server.

    responses: (operation, status, outcome, rule) → requests. shadows: rule → requests that it would
    have refused. buckets: requests up to each of `BOUNDS_S`, and those beyond. in_flight: requests
    that have no response yet.
    """

    def __init__(self) -> None:
        self.responses: dict[tuple[str, int, str, str | None], int] = {}
        self.shadows: dict[str, int] = {}
        self.buckets = [0] * (len(_BOUNDS_NS) + 1)
        self.sum_ns = 0
        self.in_flight = 0

    def count(self, operation: str, status: int, decision: Decision, latency_ns: int) -> None:
        """Count one answered request."""
        response = (operation, status, decision.outcome, decision.rule)
        self.responses[response] = self.responses.get(response, 0) + 1
        for rule in decision.shadow:
            self.shadows[rule] = self.shadows.get(rule, 0) + 1
        self.buckets[bisect_left(_BOUNDS_NS, latency_ns)] += 1
        self.sum_ns += latency_ns
