"""Whose word a section is: its badges come from the tables, and none is left out."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import jupytext
import pytest

from engine.clauses import CLAUSES, DECISIONS, clause, open_decision
from notebooks.badges import badges, put_badges, sections
from notebooks.course import sources

IDS = {one.id for one in CLAUSES} | {one.id for one in DECISIONS}
ID = re.compile(r"\b[A-Z]+(?:-[A-Z0-9]+)+\b")


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)
def test_every_section_that_names_an_id_wears_its_badge(source: Path) -> None:
    book = jupytext.read(source)
    before = [
        (heading, set(ID.findall(prose)) & IDS) for _, heading, prose, _ in sections(book.cells)
    ]
    put_badges(book.cells)
    after = [prose for _, _, prose, _ in sections(book.cells)]
    assert len(before) == len(after)
    for (heading, named), prose in zip(before, after, strict=True):
        quoted = "\n".join(line for line in prose.split("\n") if line.startswith("> "))
        assert named <= set(ID.findall(quoted)), heading


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)
def test_a_decision_is_named_by_an_id_that_exists(source: Path) -> None:
    for name in re.findall(r"\bD-[A-Z0-9]+(?:-[A-Z0-9]+)*\b", source.read_text(encoding="utf-8")):
        open_decision(name)


def test_an_assumed_clause_is_our_choice_and_never_specified() -> None:
    assumed = dataclasses.replace(clause("TOK-PLAIN"), status="assumed")
    said = badges("## x (TOK-PLAIN)", clauses=[assumed])
    assert said.startswith("> **our choice**: TOK-PLAIN")
    assert "specified" not in said


def test_a_detail_of_ours_is_told_from_what_is_specified() -> None:
    said = badges("TOK-PLAIN and TOK-COMPOSITE").split("\n")
    assert said[0].strip() == "> **specified**: TOK-PLAIN"
    assert said[1].startswith("> **specified, a detail is our choice**: TOK-COMPOSITE (open: ")


def test_a_choice_says_its_field_the_other_choices_and_what_is_for_study() -> None:
    assert (
        badges("D-LEAF")
        .strip()
        .endswith("`tokens.non_string_leaf` = `reject`, other choices: `tokenize`, `pass`")
    )
    assert "`limits.compose` = `all`, **for study**: `lowest`" in badges("D-COMPOSE")


@pytest.mark.parametrize("code", ["assert answer.status == 400", "statuses == [200, 415]"])
def test_a_status_that_only_we_name_is_our_choice(code: str) -> None:
    assert "**our choice** D-STATUSES" in badges("## A status", code)
    assert badges("## A status", code.replace("400", "429").replace("415", "408")) == ""
