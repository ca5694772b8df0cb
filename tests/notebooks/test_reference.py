"""Pages of the site: pictures have words, sections their badges, names their entries."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import altair as alt
import jupytext
import pandas as pd
import pytest

from engine.clauses import CLAUSES, DECISIONS, clause, open_decision
from engine.limits import LimitTable
from engine.model import DEFAULT_QUOTAS
from engine.resources import OPERATIONS
from notebooks.alternatives import in_words
from notebooks.api_pages import PACKAGES, api_bodies
from notebooks.badges import badges, put_badges, sections
from notebooks.course import sources
from notebooks.front_picture import PICTURE, draw
from tests.house._files import ROOT

PAGE = (ROOT / "docs" / "REFERENCE.md").read_text(encoding="utf-8")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def _shape(value: Any) -> Any:
    """Return a JSON value with what differs from run to run left out."""
    if isinstance(value, dict):
        return {name: _shape(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_shape(inner) for inner in value]
    return type(value).__name__


@pytest.mark.slow
def test_a_real_server_answers_every_command_as_the_page_shows(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["sh", "-eu", "-c", "\necho; echo @@@\n".join(_blocks("sh"))],
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    said = [part.strip() for part in ran.stdout.split("@@@")]
    shown = [json.loads(block) for block in _blocks("json")]
    whole, bodies, rest = said[1], said[2 : 2 + len(shown)], said[2 + len(shown) :]
    _, answer = _blocks("http")
    head, _, body = answer.partition("\n\n")
    got_head, _, got_body = whole.partition("\n\n")
    assert _names(got_head) == _names(head)
    assert _shape(json.loads(got_body)) == _shape(json.loads(body))
    assert [_shape(json.loads(one)) for one in bodies] == [_shape(one) for one in shown]
    assert re.match(r"HTTP/1.1 429 .*", rest[0])
    assert re.search(r"^retry-after: [1-6]?[0-9]\r?$", rest[0], re.MULTILINE)
    assert rest[1].split() == ["401", "404", "405"]


def _names(head: str) -> list[str]:
    """Return the first line of an answer and the names of its fields."""
    first, *fields = head.splitlines()
    return [first.strip(), *sorted(field.partition(":")[0] for field in fields if field.strip())]


def test_nothing_is_missing_from_the_tables() -> None:
    listed = [
        *(rule.id for rule in LimitTable.default()),
        *DEFAULT_QUOTAS,
        *(f"| `{one.method} {one.path}` |" for one in OPERATIONS),
    ]
    assert [each for each in listed if each not in PAGE] == []


def test_every_id_of_the_page_resolves() -> None:
    known = {one.id for one in CLAUSES} | {one.id for one in DECISIONS}
    named = set(
        re.findall(r"\b(?:TOK|REC|AUTH|ERR|LIM|QUO|PRX|RCT|ACC|D)-[A-Z0-9]+(?:-[A-Z0-9]+)*\b", PAGE)
    )
    assert named - known == set()


# --- pictures in words ---------------------------------------------------------------------------


FRAME = pd.DataFrame({"x": [1, 2], "y": [3, 4], "side": ["a", "b"]})


def test_a_description_of_a_layer_or_a_facet_is_the_pictures() -> None:
    base = alt.Chart(FRAME, description="Two points, the second higher.").encode(x="x:Q", y="y:Q")
    layered = base.mark_rule() + base.mark_point()
    assert in_words(layered.to_dict()) == "Two points, the second higher."
    assert in_words(layered.facet("side:N").to_dict()) == "Two points, the second higher."


def test_a_chart_without_one_says_its_axes() -> None:
    chart = alt.Chart(FRAME).mark_point().encode(x="x:Q", y=alt.Y("y:Q", title="height"))
    assert in_words(chart.to_dict()) == "A chart. Across: x, 1 to 2. Up or down: height, 3 to 4."


# --- the README's picture ------------------------------------------------------------------------


@pytest.mark.slow
def test_the_picture_is_what_is_committed() -> None:
    assert draw() == PICTURE.read_text(encoding="utf-8"), "run `make notebooks`"


def test_the_readme_shows_it() -> None:
    shown = PICTURE.relative_to(ROOT).as_posix()
    assert f"[picture]: {shown}\n" in (ROOT / "README.md").read_text(encoding="utf-8")


# --- badges --------------------------------------------------------------------------------------


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


# --- pages of the API ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {Path(page).stem: body for page, body in api_bodies().items()}


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_each_public_name_has_an_entry(package: str, pages: dict[str, str]) -> None:
    module = importlib.import_module(package)
    for name in module.__all__:
        assert f'id="{name}"' in pages[package], f"{package}.{name}"


@pytest.mark.parametrize("package", PACKAGES)
def test_each_public_class_and_function_is_described(package: str) -> None:
    module = importlib.import_module(package)
    for name in module.__all__:
        thing = getattr(module, name)
        if inspect.isclass(thing) or inspect.isroutine(thing):
            assert inspect.getdoc(thing), f"{package}.{name} has no docstring"


@pytest.mark.slow
def test_the_pages_ask_for_nothing_from_elsewhere(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        assert not re.search(r"<(?:script|img|iframe|link)[^>]*(?:src|href)=\"?https?:", text), name
        assert not re.search(r"/ho[m]e/|/roo[t]/|/tm[p]/|/wor[k]/", text), name
