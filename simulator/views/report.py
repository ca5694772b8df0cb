"""The report: a run's folder in, `report.html` beside it out.

One file, no script, no request to anywhere: a content-security policy in the page says so too.
The template engine escapes all text from a log. The same folder gives the same bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow.parquet as pq
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from engine.files import span_text
from simulator.rows.findings import PARTS, Findings, gather, quantile_ns, together_ns
from simulator.rows.metrics import BINS, warm_up_of
from simulator.views import charts, svg
from simulator.views.text import (
    Axis,
    count_text,
    counted_text,
    group_rows,
    metric_title,
    nodes_text,
    number_text,
    percent_text,
    plain_text,
    runs_share_text,
    share_text,
    threshold_lines,
    value_text,
)

if TYPE_CHECKING:
    import pandas as pd

_TOP: Final = 12
_TABLE_BINS: Final = 48
_SPREAD: Final = ("offered", "refused_share", "goodput_per_s", "latency_p99")
"""Metrics of replications that are drawn, beside those of groups and thresholds."""


def answer(summary: Mapping[str, Any], findings: Findings, axis: Axis) -> str:
    """Return the run's answer in a few sentences; the mean of replications first."""
    alone = _of_one_run(summary, findings, axis)
    share = runs_share_text(summary, "refused_share")
    if not share:
        return alone
    replications = summary["replications"]
    confidence = f"{100 * replications['confidence']:.0f}\u202f%"
    return (
        f"Over {len(replications['runs'])} runs {share} of the attempts are refused on average,"
        f" with {confidence} confidence. The run of seed {summary['seed']}: {alone}"
    )


def _of_one_run(summary: Mapping[str, Any], findings: Findings, axis: Axis) -> str:
    totals = summary["totals"]
    offered, refused = totals["offered"], totals["refused"]
    replayed = "replay" in summary
    # A line of a log is one request; a simulated client may retry a request.
    thing, would = ("request", "would have been") if replayed else ("attempt", "were")
    things = counted_text(offered, thing)
    if not refused:
        return f"None of {things} {would} refused."
    counted = f"{count_text(refused)} of {things} ({share_text(refused, offered)}) {would} refused"
    of_others = _of_requests(summary)
    if not findings.parties:
        return " ".join((f"{counted}.", *of_others))
    by_clause: dict[str, int] = {}
    for who, refusals in findings.parties.items():
        by_clause[who.clause] = by_clause.get(who.clause, 0) + refusals.refused
    names = sorted(by_clause, key=lambda clause: (-by_clause[clause], clause))
    most = f"all by {names[0]}" if len(names) == 1 else f"most by {names[0]}"
    first_ns = min(refusals.first_ns for refusals in findings.parties.values())
    last_ns = max(refusals.last_ns for refusals in findings.parties.values())
    ips = len({who.ip for who in findings.parties})
    addresses = "address" if ips == 1 else "addresses"
    sentence = (
        f"{counted}, {most}: the first at {axis.instant(first_ns)}, the last at"
        f" {axis.instant(last_ns)}, from {count_text(ips)} {addresses}."
    )
    return " ".join((sentence, *of_others))


def _of_requests(summary: Mapping[str, Any]) -> list[str]:
    """Return the results of requests of one or more attempts; a log has no retries."""
    totals = summary["totals"]
    began, pending = (totals.get(name, 0) for name in ("requests", "requests_pending"))
    ended = began - pending
    if not ended or "replay" in summary:
        return []
    things, share = counted_text(ended, "request"), share_text(totals["succeeded"], ended)
    ends = f"Of {things} that ended, retries included, {share} succeeded"
    if not pending:
        return [f"{ends}."]
    return [f"{ends}; {count_text(pending)} had not ended at the end of the run."]


def tiles(summary: Mapping[str, Any], findings: Findings, axis: Axis) -> list[dict[str, str]]:
    """Return the headline numbers, each with a line under it."""
    totals = summary["totals"]
    offered = totals["offered"]
    ips, keys = {p.ip for p in findings.parties}, {p.key for p in findings.parties}
    # The last bin of a replay may end after its log.
    replay = summary.get("replay")
    span_ns = replay["log_span_ns"] if replay else axis.end_ns - findings.start_ns
    span = span_text(span_ns)
    shut_ns = together_ns(findings.shut_out.values())
    share = f"{share_text(totals['refused'], offered)}, {count_text(totals['blocked'])} by blocks"
    admitted = share_text(totals["admitted"], offered) + _over_runs(summary, "admitted")
    headlines = [
        ("Offered", count_text(offered), f"over {span}{_over_runs(summary, 'offered')}"),
        ("Admitted", count_text(totals["admitted"]), admitted),
        ("Refused", count_text(totals["refused"]), share + _over_runs(summary, "refused")),
    ]
    if totals["delayed"]:
        delayed = share_text(totals["delayed"], offered)
        headlines.append(("Delayed", count_text(totals["delayed"]), delayed))
    if "parties" in findings.parts:
        note = "with at least one caller locked out" if shut_ns else "no caller"
        headlines.append(("Locked out", span_text(shut_ns), note))
        groups = [group for group in summary.get("groups", []) if "binds" in group]
        if groups:
            hit, met = (sum(g[name] for g in groups) for name in ("clients_refused", "clients_met"))
            headlines.append(("Clients affected", count_text(hit), f"of {count_text(met)}"))
        for name, refused, asked in (
            ("Addresses refused", ips, findings.offered_of_ip),
            ("Keys refused", keys, findings.offered_of_key),
        ):
            headlines.append((name, count_text(len(refused)), f"of {count_text(len(asked))}"))
    return [dict(zip(("name", "value", "note"), headline, strict=True)) for headline in headlines]


def _over_runs(summary: Mapping[str, Any], metric: str) -> str:
    """Return a metric's mean over replications with its interval, as the end of a tile's note."""
    interval = summary.get("replications", {}).get("intervals", {}).get(metric)
    if interval is None:
        return ""
    mean, low, high = (value_text(metric, interval[end]) for end in ("mean", "low", "high"))
    return f"; over all runs {mean} ({low} to {high})"


def top_rows(findings: Findings, what: Literal["key", "ip"]) -> dict[str, Any]:
    """Return the keys or addresses that were refused most."""
    offered_of = findings.offered_of_key if what == "key" else findings.offered_of_ip
    rows: dict[str | None, dict[str, Any]] = {}
    for who, refusals in findings.parties.items():
        name = who.key if what == "key" else who.ip
        row = rows.setdefault(
            name,
            {
                "name": "no key" if name is None else plain_text(name),
                "offered": offered_of.get(name, 0),
                "refused": 0,
                "found": [],
                "clauses": {},
            },
        )
        row["refused"] += refusals.refused
        row["found"].append(refusals)
        row["clauses"][who.clause] = row["clauses"].get(who.clause, 0) + refusals.refused
    for who, refusals in findings.carried.items():
        name = who.key if what == "key" else who.ip
        if name in rows:
            rows[name]["found"].append(refusals)
    ordered = sorted(rows.values(), key=lambda row: (-row["refused"], row["name"]))
    most = max((row["refused"] for row in ordered), default=1)
    for row in ordered:
        row["shut_ns"] = together_ns(row.pop("found"))
        row["bar"] = round(100 * row["refused"] / most, 1)
        row["clauses"] = sorted(row["clauses"], key=lambda clause: -row["clauses"][clause])
    return {"rows": ordered[:_TOP], "total": len(ordered)}


def spread_rows(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the metrics of replications: mean, interval, and how far single runs lie apart."""
    replications = summary.get("replications")
    if replications is None:
        return []
    judged = {line["subject"] for line in replications["thresholds"]}
    rows = []
    for name, interval in replications["intervals"].items():
        values = [run["line"].get(name, 0.0) for run in replications["runs"]]
        values = [value for value in values if value is not None]
        apart = replications["spread"][name]
        if not values or (apart["least"] == apart["most"] == 0 and name not in judged):
            continue
        is_told = name in judged or name in _SPREAD or name.startswith("refused_share{")
        rows.append(
            {
                "name": name,
                "title": metric_title(name),
                **{end: value_text(name, interval[end]) for end in ("mean", "low", "high")},
                **{how: value_text(name, apart[how]) for how in ("least", "most", "deviation")},
                **{f"{end}_value": interval[end] for end in ("mean", "low", "high")},
                "method": interval["method"],
                "values": values,
                "drawn": is_told,
            }
        )
    return rows


def bin_rows(findings: Findings, axis: Axis) -> list[dict[str, Any]]:
    """Return the timeline as a table of at most `_TABLE_BINS` stretches of time."""
    count = len(findings.offered)
    step = max(1, -(-count // _TABLE_BINS))
    rows = []
    for start in range(0, count, step):
        part = slice(start, start + step)
        offered = int(findings.offered[part].sum())
        if not offered:
            continue
        refused = {clause: int(counts[part].sum()) for clause, counts in findings.refused.items()}
        rows.append(
            {
                "from": axis.instant(start * findings.bin_ns),
                "offered": offered,
                "refused": sum(refused.values()),
                "clauses": {clause: number for clause, number in refused.items() if number},
            }
        )
    return rows


def versus(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the what-if of two limit tables, each line with the widths of its two bars."""
    against = summary.get("against")
    if against is None:
        return None
    comparison = dict(against)
    for part in ("clauses", "keys", "ips"):
        lines = [dict(line) for line in against[part]]
        most = max((max(line["gained"], line["lost"]) for line in lines), default=0) or 1
        for line in lines:
            line["gained_bar"] = round(100 * line["gained"] / most, 1)
            line["lost_bar"] = round(100 * line["lost"] / most, 1)
        comparison[part] = lines if part == "clauses" else lines[:_TOP]
    return comparison


REPORT_FILE: Final = "report.html"
_STYLE_FILE: Final = Path(__file__).parent / "page" / "report.css"

_GANTT_ROWS: Final = 24
_QUANTILES: Final = (("half", 0.5), ("90\u202f%", 0.9), ("99\u202f%", 0.99))
_UNTOLD: Final = {
    "timeline": "the timeline",
    "attempts": "retries and goodput",
    "parties": "who was locked out",
    "waits": "waits",
    "latencies": "latencies",
}


def write_report(folder: str | Path, findings: Findings | None = None) -> Path:
    """Write `report.html` into a run's folder, from its `requests.parquet` and `summary.json`.

    findings: of the rows, where they are counted already. Returns the page's path. Raises
    `OSError` when the folder's files cannot be read or written.
    """
    folder = Path(folder)
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    if findings is None:
        # Whatever is buffered ahead stays in memory until the whole file is read.
        with pq.ParquetFile(folder / "requests.parquet", pre_buffer=False) as file:
            findings = gather(file.iter_batches(), summary, bins=BINS)
    resolved = folder / "scenario.resolved.toml"
    scenario = resolved.read_text("utf-8") if resolved.is_file() else None
    if scenario is not None and scenario.startswith("#:schema "):  # a path of this machine
        scenario = scenario.partition("\n")[2]
    page = folder / REPORT_FILE
    page.write_text(render(summary, findings, scenario), "utf-8", newline="\n")
    return page


def render(summary: Mapping[str, Any], findings: Findings, scenario: str | None = None) -> str:
    """Return the page's text."""
    axis = Axis.of(summary)
    colours = charts.clause_colours(summary, findings)
    requests, spans = charts.timeline(findings, colours), charts.shut_out(findings, _GANTT_ROWS)
    ips = top_rows(findings, "ip")
    return _template(axis).render(
        style=Markup(_STYLE_FILE.read_text("utf-8")),  # noqa: S704 # reason: the package's own file
        summary=summary,
        scenario=scenario,
        answer=answer(summary, findings, axis),
        tiles=tiles(summary, findings, axis),
        colours=colours,
        timeline={
            width: svg.timeline(requests, findings, axis, frame).markup()
            for width, frame in svg.FRAMES.items()
            if "timeline" in findings.parts
        },
        untold=_untold(summary, findings),
        bin_rows=bin_rows(findings, axis),
        bin_text=span_text(findings.bin_ns),
        gantt={
            width: svg.gantt(spans, axis, colours, frame).markup()
            for width, frame in svg.FRAMES.items()
            if spans.rows
        },
        parties=spans.rows,
        parties_total=len(findings.shut_out),
        columns={
            "delayed": any(line["delayed"] for line in summary["clauses"]),
            "shadow": any(line["shadow_refused"] for line in summary["clauses"]),
        },
        groups=group_rows(summary),
        nodes_text=nodes_text(summary),
        threshold_lines=threshold_lines(summary),
        attempts=_time_pictures(summary, findings, axis),
        headroom=_headroom(summary, axis, colours),
        warm_up=_warm_up(summary, findings, axis),
        addresses=_addresses(findings, ips),
        runs=_runs(summary),
        keys=top_rows(findings, "key"),
        ips=ips,
        spreads=_spreads(findings),
        versus=versus(summary),
        in_log_time=axis.start_ns is not None,
        end_ns=findings.end_ns,
    )


def study_page(title: str, body: str) -> str:
    """Return the page of a study, in the report's style. body: HTML."""
    style = _STYLE_FILE.read_text("utf-8")
    return (
        f"<!doctype html>\n<html lang='en'><meta charset='utf-8'><title>{title}</title>\n"
        f"<style>{style}</style>\n<main>{body}</main></html>\n"
    )


def dashed(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame to show, with – for what is not known."""
    return frame.astype(object).where(frame.notna(), "–")


def table_html(frame: pd.DataFrame) -> str:
    """Return a frame as a table of a page."""
    table = dashed(frame).to_html(index=False, border=0, float_format=number_text)
    return f'<div class="scroll">{table}</div>'


def _template(axis: Axis) -> Template:
    """Return the page's template, which escapes every text and refuses to lack a value."""
    environment = Environment(
        loader=PackageLoader("simulator.views", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        count=count_text,
        span=span_text,
        plain=plain_text,
        percent=percent_text,
        instant=axis.instant,
    )
    environment.globals.update(share=share_text)
    return environment.get_template("report.html")


def _untold(summary: Mapping[str, Any], findings: Findings) -> list[str]:
    """Return the parts left out because the log lacks their columns; a replay has no retries."""
    has = PARTS if summary.get("groups") else PARTS.keys() - {"attempts"}
    return [_UNTOLD[part] for part in PARTS if part in has and part not in findings.parts]


def _time_pictures(
    summary: Mapping[str, Any], findings: Findings, axis: Axis
) -> dict[str, Any] | None:
    """Return first attempts against retries, and goodput; a log has no retries to tell."""
    if "replay" in summary or "attempts" not in findings.parts or not findings.rows:
        return None
    return {
        **{name: svg.rates(chart(findings), axis).markup() for name, chart in charts.RATES.items()},
        "rows": charts.time_rows(findings, axis),
    }


def _warm_up(summary: Mapping[str, Any], findings: Findings, axis: Axis) -> dict[str, Any] | None:
    """Return the chart of the suggested warm-up; none for a log."""
    if "replay" in summary or "timeline" not in findings.parts:
        return None
    refused = sum(findings.refused.values(), np.zeros_like(findings.offered))
    series = [
        turned / offered if offered else math.nan
        for turned, offered in zip(refused.tolist(), findings.offered.tolist(), strict=True)
    ]
    warm_up = warm_up_of(
        "refused_share",
        series,
        bin_ns=findings.bin_ns,
        end_ns=findings.end_ns,
        given_ns=findings.start_ns,
    )
    if not warm_up.is_long_enough or not refused.any():
        return None
    return {
        "chart": svg.warm_up(warm_up, axis).markup(),
        "found": warm_up,
        "rows": [
            (axis.instant(place * warm_up.bin_ns), percent_text(value))
            for place, value in enumerate(warm_up.series)
            if not math.isnan(value)
        ],
    }


def _headroom(
    summary: Mapping[str, Any], axis: Axis, colours: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return how full counters were."""
    headroom = summary.get("headroom", {})
    if not headroom.get("rules"):
        return None
    return {"chart": svg.headroom(headroom, axis, colours).markup(), **headroom}


def _addresses(findings: Findings, ips: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the refused share by address, where more than one asked."""
    refused, total = ips["total"], len(findings.offered_of_ip)
    if not refused or total <= 1:
        return None
    chart = svg.addresses(ips["rows"]).markup()
    counts = {"refused": refused, "total": total, "never": total - refused}
    return {"chart": chart, "rows": ips["rows"], **counts}


def _runs(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the chart and the rows of replications."""
    rows = spread_rows(summary)
    drawn = [row for row in rows if row["drawn"]]
    if not drawn:
        return None
    chart, count = svg.spread(drawn).markup(), len(summary["replications"]["runs"])
    return {"chart": chart, "rows": rows, "count": count}


def _spreads(findings: Findings) -> list[dict[str, Any]]:
    """Return the distributions of waits and latencies that say something."""
    tables = []
    for chart in (charts.waits(findings), charts.latencies(findings)):
        steps = chart.steps
        if not steps or steps[-1][1] <= 1:
            continue
        tables.append(
            {
                "title": chart.title,
                "note": chart.note,
                "chart": svg.histogram_chart(chart).markup(),
                "steps": steps,
                "total": int(chart.counts.sum()),
                "quantiles": [
                    (name, quantile_ns(chart.counts, share)) for name, share in _QUANTILES
                ],
            }
        )
    return tables
