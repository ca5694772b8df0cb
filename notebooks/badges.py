"""Badges: who defined what each section shows, from the tables of clauses and decisions.

A rendered notebook says under each heading which of the section's clauses are *specified*, which
hold a detail of *our choice*, and for each decision that the section names (or whose statuses it
shows) the profile field, the other choices and what is *for study*. Sources name ids alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from engine.clauses import CLAUSES, DECISIONS, Clause, OpenDecision
from engine.profile import choices

__all__ = ["badges", "put_badges", "sections"]

_WORDS: Final = {
    "specified": "specified",
    "mixed": "specified, a detail is our choice",
    "assumed": "our choice",
}
_ID: Final = re.compile(r"\b[A-Z]+(?:-[A-Z0-9]+)+\b")
_HEADING: Final = re.compile(r"^#{1,4} .+$", re.MULTILINE)
_STATUS: Final = r"\b(?:40[013459]|41[35]|422|50[234])\b"
_IN_CODE: Final = re.compile(rf"status\w*\b[^\n]*{_STATUS}")
_IN_PROSE: Final = re.compile(_STATUS)


def badges(text: str, code: str = "", *, clauses: Sequence[Clause] = CLAUSES) -> str:
    """Return the badges of a section as a quotation; empty where it names nothing.

    text: its prose, heading included. code: its cells; a status in it is D-STATUSES.
    """
    named = set(_ID.findall(text))
    if _IN_PROSE.search(text) or _IN_CODE.search(code):
        named.add("D-STATUSES")
    lines = []
    for status, words in _WORDS.items():
        ids = [_clause(one) for one in clauses if one.id in named and one.status == status]
        if ids:
            lines.append(f"**{words}**: {', '.join(ids)}")
    lines += [_decision(one) for one in DECISIONS if one.id in named]
    return "\n".join(f"> {line}  " for line in lines)


def sections(cells: Sequence[Any]) -> Iterator[tuple[int, str, str, str]]:
    """Yield (place of the cell, heading, prose, code) for each heading of a notebook's cells."""
    found: list[tuple[int, str, list[str], list[str]]] = []
    for place, cell in enumerate(cells):
        if cell.cell_type == "code":
            if found:
                found[-1][3].append(cell.source)
            continue
        text = str(cell.source)
        marks = list(_HEADING.finditer(text))
        if found:
            found[-1][2].append(text[: marks[0].start()] if marks else text)
        ends = [*(mark.start() for mark in marks[1:]), len(text)][: len(marks)]
        found += [
            (place, mark[0], [text[mark.start() : end]], [])
            for mark, end in zip(marks, ends, strict=True)
        ]
    for place, heading, prose, code in found:
        yield place, heading, "\n".join(prose), "\n".join(code)


def put_badges(cells: Sequence[Any]) -> None:
    """Write the badges of each section below its heading."""
    for place, heading, prose, code in list(sections(cells)):
        said = badges(prose, code)
        folded = said and _folded(said)
        if said and not heading.startswith("# "):
            lines = str(cells[place].source).split("\n")
            lines.insert(lines.index(heading) + 1, f"\n{folded}\n")
            cells[place]["source"] = "\n".join(lines)
        elif said:  # the chapter's clauses stand at the end of the first cell
            cells[place]["source"] = f"{cells[place].source}\n\n{folded}"


def _folded(said: str) -> str:
    """Return badges below one line that opens them.

    >>> _folded("> **specified**: TOK-LEAF  ").splitlines()[0]
    '<details><summary>Specified</summary>'
    """
    choices_made = said.count("**our choice** D-")
    line = "Specified" if "**specified" in said else "Our choice"
    if choices_made and line == "Specified":
        line += f", with {choices_made} open choice{'s' if choices_made > 1 else ''}"
    return f"<details><summary>{line}</summary>\n\n{said}\n\n</details>"


def _clause(clause: Clause) -> str:
    return f"{clause.id} (open: {', '.join(clause.decisions)})" if clause.decisions else clause.id


def _decision(decision: OpenDecision) -> str:
    question = " ".join(decision.question.split()).rstrip(".")
    parts = [_field(path) for path in decision.fields] or ["decided once, no field of the profile"]
    is_listed = any("other choices" in part or "study" in part for part in parts)
    if not is_listed and decision.alternatives:
        kind = "other choices, some for study" if decision.study else "other choices"
        parts.append(f"{kind}: {' '.join(decision.alternatives.split())}")
    return f"**our choice** {decision.id}, {question}: {'; '.join(parts)}"


def _field(path: str) -> str:
    choice = next(one for one in choices() if one.path == path)
    said = f"`{path}` = {_value(choice.default)}"
    for words, values in (
        ("other choices", choice.readings),
        ("**for study**", choice.study),
    ):
        if values:
            said += f", {words}: {', '.join(map(_value, values))}"
    return said


def _value(value: object) -> str:
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
