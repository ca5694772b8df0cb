"""The specification and the open decisions as documents, made from the engine's own tables.

`docs/SPECIFICATION.md`, `docs/DECISIONS.md`, `docs/REFERENCE.md` and the fields in
`docs/simulator.md` are written by `make notebooks`; a test holds them fresh. What they say stands
in `engine/clauses.toml`, `engine/decisions.toml`, the limit table and the default quotas.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from functools import cache
from itertools import groupby
from typing import Final

from engine.clauses import CLAUSES, DECISIONS, Clause, OpenDecision
from engine.files import format_duration
from engine.limits import LimitTable
from engine.limits.table import render
from engine.model import DEFAULT_QUOTAS, QuotaValue
from notebooks.course import FOLDER, chapters
from notebooks.reference_page import reference_page
from notebooks.scenario_fields import scenario_fields

__all__ = ["law_pages"]

_TITLES: Final = {
    "TOK": "Tokenize",
    "REC": "The token record",
    "AUTH": "Authentication",
    "ERR": "Errors",
    "LIM": "Rate limits",
    "QUO": "Tenant quotas",
    "PRX": "Proxies",
    "RCT": "Reactors",
    "ACC": "The account updater",
}
_WORDS: Final = {
    "specified": "specified",
    "mixed": "specified, a detail is our choice",
    "assumed": "our choice",
}
_INTRODUCTION: Final = """\
# The specification

What a tokenization service must do, clause by clause. Every clause has a stable id; code, tests,
checks, notebooks and reports name it. `python -m engine clauses ID` shows where each one lives.

*Specified* means that the published specification says it. *Our choice* means that the
specification is silent: a service may do otherwise, and conformance reports what it does and does
not fail it. The choices stand in [DECISIONS.md](DECISIONS.md) under the ids named here.

The specification says nothing about token states, events and versions: they are left out here too.
Shapes are specified for `POST /tokenize` alone; those of every other endpoint are our choice.
"""
_OPENING: Final = """\
# The open decisions

What the specification leaves open, what the engine does, and what a service may do instead. Most
are fields of the profile: `python -m engine profile` prints them as a file to change. A conforming
service may make any of the *other choices*; conformance detects and reports which. An alternative
*for study* exists in simulations only: a deployment that does it fails its clause.
"""


_FIELDS: Final = "## Every field of a scenario\n"
_FIELDS_SAY: Final = """
Made from `simulator/scenario/scenario.schema.json` by `make notebooks`. `limits`, `profile` and
`choices` take what `python -m engine limits --toml` and `python -m engine profile` print.
"""


def law_pages() -> Mapping[str, str]:
    """Return the documents by their names in `docs/`."""
    return {
        "SPECIFICATION.md": _specification(),
        "DECISIONS.md": _decisions(),
        "REFERENCE.md": reference_page(_quota),
        "simulator.md": _guide_with_fields(),
    }


def _guide_with_fields() -> str:
    """Return the analysts' guide with its last section, every field, made anew."""
    text = (FOLDER.parent / "docs" / "simulator.md").read_text(encoding="utf-8")
    return f"{text.partition(_FIELDS)[0].rstrip()}\n\n{_FIELDS}{_FIELDS_SAY}\n{scenario_fields()}"


def _specification() -> str:
    parts = [_INTRODUCTION]
    for prefix, clauses in groupby(CLAUSES, key=lambda one: one.id.partition("-")[0]):
        parts.append(f"## {_TITLES[prefix]}\n")
        if prefix == "LIM":
            parts.append(f"```\n{render(LimitTable.default())}\n```\n")
        if prefix == "QUO":
            parts.append(_quotas())
        parts.extend(_clause(one) for one in clauses)
    return "\n".join(parts)


def _clause(clause: Clause) -> str:
    lines = [f"### {clause.id}\n", f"{_wrapped(_sentence(clause.text))}\n"]
    facts = [f"{_WORDS[clause.status]} (section {clause.seed_section})"]
    if clause.decisions:
        names = ", ".join(f"[{one}](DECISIONS.md#{one.lower()})" for one in clause.decisions)
        facts.append(f"choices: {names}")
    if clause.unobservable:
        facts.append(f"no client can see it: {clause.unobservable}")
    if clause.masked:
        facts.append(f"hidden in part: {clause.masked}")
    lines.extend(_item(_sentence(fact)) for fact in facts)
    shown = [one for one in chapters() if clause.id in _named(one.stem)]
    links = ", ".join(f"[{one.title}](../notebooks/{one.stem}.ipynb)" for one in shown)
    lines.append(_item(f"Shown in: {links}."))
    return "\n".join(lines) + "\n"


@cache
def _named(stem: str) -> frozenset[str]:
    """Return the ids that a chapter names."""
    text = (FOLDER / f"{stem}.py").read_text(encoding="utf-8")
    return frozenset(re.findall(r"\b[A-Z]{2,4}-[A-Z0-9]+(?:-[A-Z0-9]+)*\b", text))


def _quotas() -> str:
    rows = [f"| {name} | {_quota(name, value)} |" for name, value in DEFAULT_QUOTAS.items()]
    return "\n".join(["| quota | default |", "|---|---|", *rows]) + "\n"


def _quota(name: str, value: QuotaValue) -> str:
    is_time = isinstance(value, int) and name.endswith("Retention")
    return format_duration(int(value)) if is_time else str(value)


def _decisions() -> str:
    return "\n".join([_OPENING, *(_decision(one) for one in DECISIONS)])


def _decision(decision: OpenDecision) -> str:
    lines = [f"### {decision.id}\n", f"{_wrapped(_sentence(decision.question))}\n"]
    lines.append(_item(f"Default: {_end(decision.default)}"))
    if decision.alternatives:
        kind = "Alternatives, some for study" if decision.study else "Other choices"
        lines.append(_item(f"{kind}: {_end(decision.alternatives)}"))
    if decision.fields:
        fields = ", ".join(f"`{one}`" for one in decision.fields)
        lines.append(_item(f"Profile: {fields}."))
    if decision.fixed:
        lines.append(_item(f"Fixed: {_end(decision.fixed)}"))
    return "\n".join(lines) + "\n"


def _sentence(text: str) -> str:
    """Return a text that begins with a capital and ends with a full stop."""
    return _end(text[:1].upper() + text[1:])


def _end(text: str) -> str:
    text = " ".join(text.split())
    return text if text.endswith((".", "?")) else f"{text}."


def _item(text: str) -> str:
    return _wrapped(f"- {text}", "  ")


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
