"""The page: `report.html`, one file without scripts that loads no other resource.

Filters use CSS only, and a content security policy in the page forbids everything else. The
template engine escapes everything that comes from a deployment.

The chart of a limit's timeline shows time from left to right, with a row for each key and address.
A burst is a bar with its count; a single request is a dot, or a cross where it was refused.
Admitted, refused and lost requests differ in colour. A table beside the chart shows the same data.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from conformance.context.choices import line_of
from conformance.context.verdicts import Moment
from conformance.limits.observations import is_gateway_answer
from conformance.report.evidence import sender_of, status_of
from conformance.report.report import Report
from conformance.report.sections import crashes, folds, passes
from engine.files import span_text

_SECOND_NS: Final = 1_000_000_000
_WIDTH: Final = 760
_LEFT: Final = 12
_ROW: Final = 60
_TOP: Final = 8
_AXIS: Final = 26
_TICKS: Final = 8
_NARROW: Final = 30
_CHARACTER: Final = 8
_STEPS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300)
_WORST: Final = frozenset({"fail", "error"})
_TITLES: Final = {
    "TOK": "Tokenize",
    "REC": "Token records",
    "AUTH": "Authentication",
    "ERR": "Errors",
    "LIM": "Rate limits",
    "QUO": "Quotas",
    "PRX": "Proxies",
    "RCT": "Reactors",
    "ACC": "Account updater",
}


def page(report: Report) -> str:
    """Return the page's text."""
    environment = Environment(
        loader=PackageLoader("conformance.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["line_of"] = line_of
    environment.filters |= {"span": span_text, "redacted": report.redactor.text}
    plain = report.plain()
    style = (Path(__file__).parent / "page" / "report.css").read_text("utf-8")
    bad = report.exit_code != 0
    clauses = _told(report, plain)
    passed: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for result in passes(report.results):
        clause = clauses[result.clause.id]
        passed[clause["family"]].append(clause)
    text = environment.get_template("report.html").render(
        style=Markup(style),  # noqa: S704 # reason: the package's own file
        report=plain,
        told=clauses,
        titles=_TITLES,
        answer_css="fail" if bad else "skipped" if report.partial else "pass",
        took_ns=report.took_ns,
        why_more=report.rest.why,
        baseline=report.comparison and report.comparison.line,
        families=dict.fromkeys(clause["family"] for clause in clauses.values()),
        crashed=crashes(report.results),
        folds=folds(report.results),
        passed=passed,
        command=shlex.join(report.command),
    )
    return text.lstrip("\n")


def _told(report: Report, plain: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what the page says of each clause, by its id."""
    clauses = {}
    for result, clause in zip(report.results, plain["clauses"], strict=True):
        findings = [
            {
                **plain_finding,
                "drawn": picture(moments) if (moments := report.timeline(finding)) else None,
            }
            for finding, plain_finding in zip(result.findings, clause["findings"], strict=True)
        ]
        clauses[result.clause.id] = {
            **clause,
            "findings": sorted(findings, key=lambda finding: finding["verdict"] not in _WORST),
            "family": result.clause.id.partition("-")[0],
            "word": result.word,
            "is_new": result.clause.id in report.new,
            "says": report.redactor.text(result.message),
        }
    return clauses


def picture(timeline: Sequence[Moment]) -> dict[str, Any]:
    """Return what the page draws: marks, which are lines of its table too, rows and ticks."""
    start_ns = min(moment.at_ns for moment in timeline)
    end_ns = max(moment.until_ns or moment.at_ns for moment in timeline)
    span_s = max((end_ns - start_ns) / _SECOND_NS, 0.001)
    rows = list(dict.fromkeys(sender_of(moment) for moment in timeline))

    def across(at_ns: int) -> float:
        seconds = (at_ns - start_ns) / _SECOND_NS
        return round(_LEFT + seconds / span_s * (_WIDTH - 2 * _LEFT), 1)

    marks: list[dict[str, Any]] = []
    for moment in timeline:
        left = across(moment.at_ns)
        right = across(moment.until_ns) if moment.until_ns is not None else left
        y = _TOP + rows.index(sender_of(moment)) * _ROW + 36
        marks.append(
            {
                "x": left,
                "width": max(right - left, 3.0),
                "y": y,
                "label": y - 10 if _kind(moment.status) == "refused" else y + 19,
                "count": moment.count,
                "text": str(moment.count),
                "anchor": "start" if left < _WIDTH - _NARROW else "end",
                "kind": _kind(moment.status),
                "at": _offset(moment, start_ns),
                "status": status_of(moment),
                "whose": sender_of(moment),
                "says": moment.message,
            }
        )
    _merge_labels(marks)
    step = next((step for step in _STEPS if span_s / step <= _TICKS), span_s / _TICKS)
    ticks: list[dict[str, Any]] = []
    while len(ticks) * step <= span_s:
        seconds = len(ticks) * step
        ticks.append({"x": across(start_ns + int(seconds * _SECOND_NS)), "text": f"{seconds:g} s"})
    height = _TOP + len(rows) * _ROW + _AXIS
    return {
        "width": _WIDTH,
        "height": height,
        "axis": height - _AXIS + 4,
        "rows": [{"y": _TOP + place * _ROW + 10, "text": row} for place, row in enumerate(rows)],
        "marks": marks,
        "ticks": ticks,
    }


def _merge_labels(marks: Sequence[dict[str, Any]]) -> None:
    """Write the counts of series that lie close together as one text, not over each other."""
    last: dict[float, dict[str, Any]] = {}
    for mark in marks:
        if mark["count"] < 2:
            continue
        near = last.get(mark["label"])
        if near is not None and mark["x"] - near["x"] < _CHARACTER * (len(near["text"]) + 1):
            near["text"] += f", {mark['text']}"
            mark["text"] = ""
        else:
            last[mark["label"]] = mark


def _offset(moment: Moment, start_ns: int) -> str:
    at = f"{(moment.at_ns - start_ns) / _SECOND_NS:+.3f} s"
    if moment.until_ns is None:
        return at
    lasts = (moment.until_ns - moment.at_ns) / _SECOND_NS
    return f"{at}, first to last {lasts:.3f} s"


def _kind(status: int | None) -> str:
    if status == 429:
        return "refused"
    return "lost" if is_gateway_answer(status) else "admitted"
