"""The page: `report.html`, one file, no script, no request to anywhere; filters are style alone.

A content-security policy in the page says so too. Whatever stems from a deployment is escaped by
the template engine.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from conformance.report.picture import picture
from conformance.report.report import Report
from conformance.report.sections import causes, crashes, folds, passes
from engine.files import format_duration

__all__ = ["page"]

_MILLISECOND_NS: Final = 1_000_000
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
    plain = report.plain()
    style = (Path(__file__).parent / "page" / "report.css").read_text("utf-8")
    bad = report.exit_code != 0
    told = _told(report, plain)
    families = dict.fromkeys(one["family"] for one in told.values())
    text = environment.get_template("report.html").render(
        style=Markup(style),  # noqa: S704 # reason: the package's own file
        report=plain,
        answer_css="fail" if bad else "skipped" if report.partial else "pass",
        took=_span(report.took_ns),
        floor=_span(report.floor_ns),
        notices=[*report.notes, *report.broken, *_notices(plain["preflight"])],
        baseline=None if report.comparison is None else report.comparison.line,
        families=[{"id": name, "title": _TITLES.get(name, name)} for name in families],
        causes=[
            {
                "clause": told[cause.result.clause.id],
                "followers": [told[one.clause.id] for one in cause.followers],
            }
            for cause in causes(report.results)
        ],
        crashed=[told[one.clause.id] for one in crashes(report.results)],
        folds=[
            {
                "word": fold.verdict.word,
                "reason": report.redactor.text(fold.reason),
                "clauses": [told[one.clause.id] for one in fold.results],
            }
            for fold in folds(report.results)
        ],
        passed=_passed(report, told),
        preflight=_preflight(plain["preflight"]),
        command=shlex.join(report.command),
    )
    return text.lstrip("\n")


def _told(report: Report, plain: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what the page says of each clause, by its id."""
    found = {}
    new = () if report.comparison is None else report.comparison.new
    for result, clause in zip(report.results, plain["clauses"], strict=True):
        findings = [
            {**told, "drawn": picture(moments) if (moments := report.timeline(one)) else None}
            for one, told in zip(result.findings, clause["findings"], strict=True)
        ]
        found[result.clause.id] = {
            **clause,
            "findings": sorted(findings, key=lambda one: one["verdict"] not in _WORST),
            "family": result.clause.id.partition("-")[0],
            "word": result.word,
            "is_new": result.clause.id in new,
            "says": report.redactor.text(result.says),
        }
    return found


def _passed(report: Report, told: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {}
    for result in passes(report.results):
        clause = told[result.clause.id]
        title = _TITLES.get(clause["family"], clause["family"])
        group = groups.setdefault(clause["family"], {"title": title, "clauses": []})
        group["clauses"].append(clause)
    return list(groups.values())


def _notices(preflight: dict[str, Any]) -> list[str]:
    problems = [f"cannot be used: {why}" for why in preflight.get("problems", {}).values()]
    opened = preflight.get("open_says")
    return [*([opened] if opened else []), *problems]


def _preflight(preflight: dict[str, Any]) -> str:
    accepted = ", ".join(preflight.get("accepted", ())) or "no role"
    return f"accepted {accepted}; an answer takes {_span(preflight.get('latency_ns', 0))}"


def _span(duration_ns: int) -> str:
    rounded = duration_ns // (_MILLISECOND_NS // 10) * (_MILLISECOND_NS // 10)
    return format_duration(rounded) if rounded else "0s"
