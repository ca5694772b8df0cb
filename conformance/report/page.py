"""The page: `report.html`, one file, no script, no request to anywhere.

A content-security policy in the page says so too. Whatever stems from a deployment is escaped by
the template engine.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from conformance.report.report import Report
from engine.files import format_duration

__all__ = ["page"]

_MILLISECOND_NS: Final = 1_000_000
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
    return environment.get_template("report.html").render(
        style=Markup(style),  # noqa: S704 # reason: the package's own file
        report=plain,
        answer_css="fail" if bad else "skipped" if report.partial else "pass",
        took=_span(report.took_ns),
        floor=_span(report.floor_ns),
        notices=[*report.notes, *_notices(plain["preflight"])],
        groups=_groups(report, plain),
        preflight=_preflight(plain["preflight"]),
        command=shlex.join(report.command),
    )


def _groups(report: Report, plain: dict[str, Any]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for result, clause in zip(report.results, plain["clauses"], strict=True):
        prefix = result.clause.id.partition("-")[0]
        title = _TITLES.get(prefix, prefix)
        group = found.setdefault(prefix, {"title": title, "clauses": []})
        says = report.redactor.text(result.says)
        group["clauses"].append({**clause, "word": result.word, "says": says})
    return list(found.values())


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
