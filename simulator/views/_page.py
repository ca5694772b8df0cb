"""The page: a run's folder in, `report.html` beside it out.

One file, no script, no request to anywhere: a content-security policy in the page says so too.
The template engine escapes all text from a log. The same folder gives the same bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from simulator.rows.warm_up import BINS, warm_up_of
from simulator.views import _small_charts
from simulator.views._charts import FRAMES, gantt, histogram_chart, timeline
from simulator.views._findings import PARTS, Findings, gather, histogram, quantile_ns
from simulator.views._headline import group_lines, threshold_lines
from simulator.views._tables import (
    address_rows,
    answer,
    bin_rows,
    check_lines,
    clause_rows,
    group_rows,
    shut_out,
    spread_rows,
    tiles,
    top_rows,
    versus,
)
from simulator.views._text import Axis, clock_text, count_text, plain_text, share_text, span_text

__all__ = ["REPORT_FILE", "write_report"]

REPORT_FILE: Final = "report.html"

_GANTT_ROWS: Final = 24
_COLOURS: Final = 10
_QUANTILES: Final = (("half", 0.5), ("90\u202f%", 0.9), ("99\u202f%", 0.99))
_BATCH_ROWS: Final = 1 << 17
_UNTOLD: Final = {
    "timeline": "the timeline",
    "attempts": "retries and goodput",
    "parties": "who was shut out",
    "waits": "waits",
    "latencies": "latencies",
}


def write_report(folder: str | Path) -> Path:
    """Write `report.html` into a run's folder, from its `requests.parquet` and `summary.json`.

    Returns the page's path. Raises `OSError` when the folder's files cannot be read or written.
    """
    folder = Path(folder)
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    resolved = folder / "scenario.resolved.toml"
    # Whatever is buffered ahead stays in memory until the whole file is read.
    with pq.ParquetFile(folder / "requests.parquet", pre_buffer=False) as file:
        findings = gather(
            file.iter_batches(_BATCH_ROWS),
            end_ns=summary["duration_ns"],
            bins=BINS,
            start_ns=summary["warm_up_ns"],
        )
    scenario = resolved.read_text("utf-8") if resolved.is_file() else None
    page = folder / REPORT_FILE
    page.write_text(render(summary, findings, scenario), "utf-8", newline="\n")
    return page


def render(summary: Mapping[str, Any], findings: Findings, scenario: str | None = None) -> str:
    """Return the page's text."""
    replayed = summary.get("replay")
    # Show instants as logged, unless the replay ran at another speed.
    in_log_time = replayed is not None and replayed["speed"] == "1"
    axis = Axis(findings.end_ns, summary["start_time_ns"] if in_log_time else None)
    colours = _colours(summary, findings)
    parties = shut_out(findings, _GANTT_ROWS)
    environment = Environment(
        loader=PackageLoader("simulator.views", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        count=count_text, span=span_text, plain=plain_text, instant=axis.instant
    )
    environment.globals.update(share=share_text)
    return environment.get_template("report.html").render(
        style=Markup(_style()),  # noqa: S704 # reason: the package's own file
        summary=summary,
        replayed=replayed,
        scenario=scenario,
        answer=answer(summary, findings, axis),
        tiles=tiles(summary, findings, axis),
        colours=colours,
        timeline={
            width: timeline(findings, axis, colours, frame).markup()
            for width, frame in FRAMES.items()
            if "timeline" in findings.parts
        },
        kept=summary.get("columns", ()),
        untold=_untold(summary, findings),
        bin_rows=bin_rows(findings, axis),
        bin_text=span_text(findings.bin_ns),
        gantt={
            width: gantt(parties, axis, colours, frame).markup()
            for width, frame in FRAMES.items()
            if parties
        },
        parties=parties,
        parties_total=len(findings.shut_out),
        clauses=clause_rows(summary),
        shown={
            "delayed": any(line["delayed"] for line in summary["clauses"]),
            "shadow": any(line["shadow_refused"] for line in summary["clauses"]),
        },
        groups=group_rows(summary),
        group_lines=group_lines(summary),
        threshold_lines=threshold_lines(summary),
        statuses=summary["totals"].get("statuses", {}),
        question=summary.get("question"),
        recorded=summary.get("answer"),
        attempts=_time_pictures(summary, findings, axis),
        headroom=_headroom(summary, axis, colours),
        warm_up=_warm_up(summary, findings, axis),
        addresses=_addresses(findings),
        runs=_runs(summary),
        keys=top_rows(findings, "key"),
        ips=top_rows(findings, "ip"),
        spreads=_spreads(findings),
        versus=versus(summary),
        checks=check_lines(summary),
        in_log_time=in_log_time,
        start_text=clock_text(summary["start_time_ns"]),
        end_ns=findings.end_ns,
    )


def _untold(summary: Mapping[str, Any], findings: Findings) -> list[str]:
    """Return the parts left out because the log lacks their columns; a replay has no retries."""
    has = PARTS if summary.get("groups") else PARTS.keys() - {"attempts"}
    return [_UNTOLD[part] for part in PARTS if part in has and part not in findings.parts]


def _style() -> str:
    return (Path(__file__).parent / "page" / "report.css").read_text("utf-8")


def _colours(summary: Mapping[str, Any], findings: Findings) -> dict[str, str]:
    """Return a colour class for each clause that refused, in table order."""
    order = [line["clause"] for line in summary["clauses"]]
    order += sorted(clause for clause in findings.refused if clause not in order)
    bound = [clause for clause in order if clause in findings.refused]
    return {clause: f"c{place % _COLOURS}" for place, clause in enumerate(bound)}


def _time_pictures(
    summary: Mapping[str, Any], findings: Findings, axis: Axis
) -> dict[str, Any] | None:
    """Return first attempts against retries, and goodput; a log has no retries to tell."""
    if "replay" in summary or "attempts" not in findings.parts or not findings.rows:
        return None
    return {
        "attempts": _small_charts.attempts(findings, axis).markup(),
        "goodput": _small_charts.goodput(findings, axis).markup(),
        "rows": _small_charts.time_rows(findings, axis),
    }


def _warm_up(summary: Mapping[str, Any], findings: Findings, axis: Axis) -> dict[str, Any] | None:
    """Return the refused share's own series, and the warm-up that it suggests; none of a log."""
    if "replay" in summary or "timeline" not in findings.parts:
        return None
    refused = sum(findings.refused.values(), np.zeros_like(findings.offered))
    series = [
        turned / offered if offered else math.nan
        for turned, offered in zip(refused.tolist(), findings.offered.tolist(), strict=True)
    ]
    found = warm_up_of(
        "refused_share",
        series,
        bin_ns=findings.bin_ns,
        end_ns=findings.end_ns,
        given_ns=findings.start_ns,
    )
    if not found.is_long_enough or not refused.any():
        return None
    return {
        "chart": _small_charts.warm_up(found, axis).markup(),
        "found": found,
        "rows": [
            (axis.instant(place * found.bin_ns), f"{value:.4g}")
            for place, value in enumerate(found.series)
            if not math.isnan(value)
        ],
    }


def _headroom(
    summary: Mapping[str, Any], axis: Axis, colours: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return how full counters were."""
    drawn = _small_charts.headroom(summary, axis, colours)
    if drawn is None:
        return None
    return {"chart": drawn.markup(), **summary["headroom"]}


def _addresses(findings: Findings) -> dict[str, Any] | None:
    """Return the refused share by address, where more than one asked."""
    found = address_rows(findings)
    drawn = _small_charts.addresses(findings)
    if drawn is None or found["total"] <= 1:
        return None
    return {"chart": drawn.markup(), **found}


def _runs(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what replications say."""
    rows = spread_rows(summary)
    drawn = _small_charts.spread([row for row in rows if row["drawn"]])
    if not rows or drawn is None:
        return None
    return {"chart": drawn.markup(), "rows": rows, "count": len(summary["replications"]["runs"])}


def _spreads(findings: Findings) -> list[dict[str, Any]]:
    """Return the distributions of waits and latencies that say something."""
    found = []
    for title, note, counts in (
        (
            "How long the refused had to wait",
            "From a refused request to the instant at which it would have been let in",
            findings.waits,
        ),
        (
            "From arrival to answer",
            "Of the requests that were let in, delays included",
            findings.latencies,
        ),
    ):
        steps = histogram(counts)
        if not steps or steps[-1][1] <= 1:
            continue
        found.append(
            {
                "title": title,
                "note": note,
                "chart": histogram_chart(steps, title).markup(),
                "steps": steps,
                "total": int(counts.sum()),
                "quantiles": [(name, quantile_ns(counts, share)) for name, share in _QUANTILES],
            }
        )
    return found
