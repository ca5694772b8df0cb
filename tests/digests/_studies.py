"""What notebooks get: fits of logs whose truth is known, charts, and traces, as text."""

from __future__ import annotations

from typing import Any, Final

import orjson

import simulator
from tests.digests._commands import same_everywhere
from tests.simulator.fit.holdout import KINDS, log_of

__all__ = ["FITTED", "PLOTTED", "chart_text", "fit_text", "trace_text"]

FITTED: Final = (*KINDS, "retries judged", "nat judged")
PLOTTED: Final = ("shared-office", "several-nodes", "cold-starts", "slow-destination")
_CHARTS: Final = ("timeline", "attempts", "goodput", "shut_out", "clauses", "waits", "latencies")


def fit_text(name: str) -> str:
    """Return a fit as its scenario file, its tables and what it says that it lost."""
    kind, _, judged = name.partition(" ")
    rows, log_map = log_of(kind, 1)
    more: dict[str, Any] = {"as_kind": "public"} if log_map is None else {"map": log_map}
    found = simulator.fit(rows, **more, judged=bool(judged), runs=9 if judged else None)
    parts = [found.text, repr(found), found.groups.to_csv(), found.parameters.to_csv()]
    parts += [found.comparison.to_csv(), *found.lost, found._repr_html_()]
    if judged:
        parts += [_of_chart(found.plots.rate()), _of_chart(found.plots.comparison())]
    return same_everywhere("\n".join(parts))


def chart_text(name: str) -> str:
    """Return every chart of a run as Vega-Lite."""
    plots = simulator.run(name, fidelity="compiled").plots
    return same_everywhere("\n".join(_of_chart(getattr(plots, chart)()) for chart in _CHARTS))


def trace_text() -> str:
    """Return what single requests meet, under each algorithm, as rows and as a drawing."""
    times = [place / 4 for place in range(60)]
    who = simulator.caller("POST", "/tokenize", kind="public")
    parts = []
    for algorithm in ("sliding-log", "fixed-window", "sliding-counter", "token-bucket", "gcra"):
        rows = simulator.trace([*times, 70.5, 71], who, algorithm=algorithm).assign(who="one")
        parts += [rows.to_csv(), _of_chart(simulator.strip(rows))]
        parts += [str(simulator.refused(rows)), simulator.spans(simulator.refused(rows))]
    return same_everywhere("\n".join(parts))


def _of_chart(chart: Any) -> str:
    """Return a chart's definition; the names of its data are digests of them, so they stay."""
    return orjson.dumps(chart.to_dict(), option=orjson.OPT_SORT_KEYS, default=str).decode()
