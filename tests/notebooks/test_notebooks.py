"""The course: every notebook runs, every claim holds, and what is committed is what it shows."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import pandas as pd
import pytest
from nbclient import NotebookClient

from engine.clauses import CLAUSES
from notebooks.course import DOORS, FOLDER, PARTS, START, chapters, sources, start_page
from notebooks.rendering import kernel, render
from notebooks.site import DOCUMENTS, write_site
from notebooks.tables import site_table
from tests.house._files import ROOT

CLAUSE = re.compile(r"\b(?:TOK|REC|AUTH|ERR|LIM|QUO|PRX|RCT|ACC)-[A-Z0-9-]*[A-Z0-9]\b")

SHORTEST_ALTERNATIVE = 30
"""Characters of a picture's alternative text, below which it says nothing."""


@pytest.fixture(scope="module")
def client() -> Iterator[NotebookClient]:
    with kernel() as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)
def test_a_notebook_shows_what_is_committed(source: Path, client: NotebookClient) -> None:
    """Run top to bottom: every assertion holds, and all but pixels is as it is committed."""
    shown = json.loads(render(source, client))
    for data, metadata in _pictures(shown):
        pixels = base64.b64decode(data.pop("image/png"))
        assert pixels.startswith(b"\x89PNG"), "a PNG beside each SVG"
        words = metadata.get("image/png", {}).get("alt", "")
        assert len(words) >= SHORTEST_ALTERNATIVE, f"what does the picture show? {words!r}"
        assert not words.startswith("A chart."), "what it shows, not its axes alone"
    committed = json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))
    for data, _ in _pictures(committed):
        data.pop("image/png", None)  # fonts differ from machine to machine
    assert shown == committed, "run `make notebooks`"


def _pictures(book: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return data and metadata of each output that is a picture."""
    outputs = [output for cell in book["cells"] for output in cell.get("outputs", ())]
    return [
        (output["data"], output["metadata"])
        for output in outputs
        if "image/svg+xml" in output.get("data", {})
    ]


SMALL = """\
# %% [markdown]
# # Small

# %%
import altair as alt
import pandas as pd

_ = alt.renderers.enable("svg")

# %%
frame = pd.DataFrame({"x": [1, 2], "y": [3, 4]})
alt.Chart(frame, description="Two points, the second higher").mark_point().encode(x="x", y="y")

# %%
total = 0
total += 0
total += 1
total += 2
total += 3
total += 4
total += 5
total += 6
total += 7
total += 8
total += 9
total += 10
total += 11
total += 12
total += 13
total += 14
total += 15
total += 16
total += 17
total += 18
total += 19
total += 20
total += 21
total += 22
total += 23
total += 24
total

# %% [markdown]
# ## Exercise
# What is one and one?

# %% tags=["answer"]
print(1 + 1)
"""


@pytest.mark.slow
def test_a_rendered_notebook_folds_set_up_and_answers_and_has_pixels(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], client: NotebookClient
) -> None:
    """For JupyterLab before anything runs, for untrusted notebooks, and without a warning."""
    source = tmp_path / "00_small.py"
    source.write_text(SMALL, encoding="utf-8")
    book = json.loads(render(source, client))
    _, setup, drawn, long, _, answer = book["cells"]
    assert setup["metadata"] == {"jupyter": {"source_hidden": True}}
    assert drawn["metadata"] == {}
    assert long["metadata"] == {"jupyter": {"source_hidden": True}}, "the result is shown"
    assert answer["metadata"]["jupyter"] == {"outputs_hidden": True, "source_hidden": True}
    assert answer["outputs"][0]["text"] == ["2\n"]
    ((data, metadata),) = _pictures(book)
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert metadata == {"image/png": {"alt": "Two points, the second higher"}}
    assert "WARNING" not in capfd.readouterr().err


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)
def test_a_notebook_teaches_with_claims_that_are_asserted(source: Path) -> None:
    text = source.read_text(encoding="utf-8")
    assert text.startswith("# %% [markdown]\n# # ")
    assert text.count("assert ") >= 4
    named = set(CLAUSE.findall(text))
    assert named, "a notebook names the clauses that it shows"
    assert named <= {clause.id for clause in CLAUSES}


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)
def test_a_committed_notebook_holds_nothing_of_the_machine(source: Path) -> None:
    book = json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))
    nbformat.validate(book)
    assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"])
    outputs = json.dumps([cell.get("outputs") for cell in book["cells"]])
    assert not re.search(r"127\.0\.0\.1:\d|/ho[m]e/|/roo[t]/|/tm[p]/|Traceback", outputs)
    assert not re.search(r'"name": "stderr"|"model_id"', outputs)
    assert set(book["metadata"]) == {"kernelspec", "language_info"}
    assert book["metadata"]["kernelspec"]["name"] == "python3"


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)
def test_a_notebook_shows_what_it_says_with_few_marks(source: Path) -> None:
    """A picture, or a table where that serves better."""
    book = json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))
    outputs = [output for cell in book["cells"] for output in cell.get("outputs", ())]
    drawn = [output["data"].get("image/svg+xml") for output in outputs if "data" in output]
    pictures = ["".join(text) for text in drawn if text]
    assert pictures or any("text/html" in output.get("data", {}) for output in outputs)
    for picture in pictures:
        assert picture.startswith("<svg")
        assert picture.count("<path") <= 5_000


@pytest.mark.slow
def test_every_image_has_an_alternative_text(tmp_path: Path) -> None:
    """In every page of the site, and in every document that code hosts show."""
    write_site(tmp_path)
    for page in tmp_path.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for tag, name in (("img", "alt"), ("svg", "aria-label")):
            for image in re.findall(rf"<{tag}\b[^>]*>", text):
                words = re.search(rf'\b{name}="([^"]*)"', image)
                assert words, f"{page.name}: {image[:200]}"
                assert len(words[1]) >= SHORTEST_ALTERNATIVE, f"{page.name}: {words[1]!r}"
    for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for words in re.findall(r"!\[([^\]]*)\]", document.read_text(encoding="utf-8")):
            assert len(words) >= SHORTEST_ALTERNATIVE, f"{document.name}: {words!r}"


def test_the_start_page_lists_every_chapter_as_it_is_called() -> None:
    """`make lab` opens it."""
    assert START.read_text(encoding="utf-8") == start_page(), "run `make notebooks`"
    assert all(f"]({source.stem}.ipynb)" in start_page() for source in sources())


def test_a_table_of_the_site_has_one_row_of_heads_and_its_words_to_the_left() -> None:
    frame = pd.DataFrame(
        {"n": [1.5, 2.0], "what": ["a `key`", "b"]},
        index=pd.MultiIndex.from_tuples([("x", 1), ("x", 2)], names=["group", "turn"]),
    )
    table = site_table(frame.to_html())
    assert table.count("<thead>") == 1
    heads = re.findall(r"<th([^>]*)>(\w+)</th>", table.partition("</thead>")[0])
    assert heads == [("", "group"), ("", "turn"), ("", "n"), (' class="words"', "what")]
    cells = re.findall(r"<td([^>]*)>(.*?)</td>", table)
    words = ' class="words"'
    assert cells == [("", "1.5"), (words, "a <code>key</code>"), ("", "2.0"), (words, "b")]


def test_every_clause_is_taught() -> None:
    texts = [source.read_text(encoding="utf-8") for source in sources()]
    named = {clause for text in texts for clause in CLAUSE.findall(text)}
    assert {clause.id for clause in CLAUSES} - named == set()


@pytest.mark.parametrize("term", ["fidelity", "goodput", "jitter", "sliding window"])
def test_a_term_is_introduced_where_it_is_first_used(term: str) -> None:
    texts = [source.read_text(encoding="utf-8") for source in sources()]
    first = next(text for text in texts if term in text.lower())
    assert f"*{term}*" in " ".join(first.replace("\n# ", " ").split()).lower()


@pytest.mark.slow
def test_the_site_asks_for_nothing_from_elsewhere(tmp_path: Path) -> None:
    index = write_site(tmp_path)
    pages = sorted(tmp_path.glob("*.html"))
    assert len(pages) == len(sources()) + len(DOCUMENTS) + 1
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"<(?:script|img|iframe)[^>]*\bsrc=\"?(?:https?:)?//", text), page
        assert not re.search(r"<link[^>]*\bhref=\"?(?:https?:)?//", text), page
        assert not re.search(r"@import|url\(\s*[\"']?(?:https?:)?//", text), page
    listed = index.read_text(encoding="utf-8")
    assert all(f'href="{source.stem}.html"' in listed for source in sources())


def test_each_chapter_is_told_in_one_whole_sentence_and_file_numbers_are_the_order() -> None:
    for chapter in chapters():
        assert re.fullmatch(r"[^.?!]*(?:[.?!](?=\S)[^.?!]*)*[.?!]", chapter.says), chapter.says
        assert chapter.title
    numbers = [number for _, part in PARTS for number in part]
    assert numbers == [int(source.stem[:2]) for source in sources()], "each once, in order"
    assert not any(chapter.title.endswith("?") for chapter in chapters()), "the subject of each"
    assert all(len(door.numbers) <= 5 and set(door.numbers) <= set(numbers) for door in DOORS)


@pytest.mark.slow
def test_a_page_shows_whose_word_a_clause_is_and_leads_to_it(tmp_path: Path) -> None:
    write_site(tmp_path)
    page = (tmp_path / "09_lowest_limit.html").read_text(encoding="utf-8")
    assert '<a class="clause specified" href="specification.html#lim-lowest" title="' in page
    law = (tmp_path / "specification.html").read_text(encoding="utf-8")
    assert '<h3 id="lim-lowest">' in law
    assert 'href="09_lowest_limit.html"' in law, "and from the clause to its chapters"
    office = (tmp_path / "13_one_office_ip.html").read_text(encoding="utf-8")
    assert 'href="api/simulator.html#simulator.run"' not in office
    assert 'href="api/simulator.html#run"' in office


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)
def test_a_chapter_asks_for_a_prediction_and_ends_with_an_exercise(source: Path) -> None:
    """The answer is hidden, runs like every cell, and asserts what it says."""
    text = source.read_text(encoding="utf-8")
    first_code = text.index("\n# %%\n")
    assert "# **Predict before you read on.** " in text[:first_code]
    learnt, exercise = text.index("\n# ## What was learnt\n"), text.index("\n# ## Exercise\n")
    answer = text.index('\n# %% tags=["answer"]\n')
    assert first_code < learnt < exercise < answer
    hidden = text[answer:]
    assert hidden.count("# %%") == 1, "the answer is the last cell"
    assert "assert " in hidden


# --- other seeds ---------------------------------------------------------------------------------


SIMULATED = sorted(
    source.stem
    for source in sources()
    if 'tags=["parameters"]' in source.read_text(encoding="utf-8")
)


def play(source: Path, **parameters: Any) -> None:
    """Run a notebook's cells in this process, its parameters replaced after their cell."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in jupytext.read(source).cells:
        if cell.cell_type == "code":
            exec(compile(cell.source, source.name, "exec"), names)  # reason: our own cells
        if "parameters" in cell.metadata.get("tags", ()):
            assert set(parameters) <= set(names), "every parameter is one of the notebook's"
            names.update(parameters)


OTHERS = (
    ("10_algorithms", {"SEED": 5_000}),
    ("12_retry_storms", {"SEED": 5_000, "ATTEMPTS": 12}),
    ("13_one_office_ip", {"SEED": 5_000, "RUNS": 24}),
    ("14_proxies_reactors", {"SEED": 5_000, "RUNS": 8}),
    ("15_month_end", {"SEED": 5_000}),
    ("17_fitting_a_log", {"SEED": 5_000}),
    ("18_finding_capacity", {"SEED": 5_000}),
    ("19_limit_explorer", {"SEED": 5_000}),
    ("20_advice", {"SEED": 5_000}),
    ("21_several_nodes", {"SEED": 5_000}),
    ("22_sweep_on_dask", {"SEED": 5_000, "RUNS": 8}),
)


@pytest.mark.slow
@pytest.mark.parametrize(("stem", "parameters"), OTHERS, ids=[stem for stem, _ in OTHERS])
def test_the_claims_hold_for_other_seeds(stem: str, parameters: dict[str, Any]) -> None:
    play(FOLDER / f"{stem}.py", **parameters)


def test_every_simulated_chapter_is_played_with_other_seeds() -> None:
    assert [stem for stem, _ in OTHERS] == SIMULATED
