"""The static site: the chapters, the documents and the public interface as pages that open offline.

A page is made of a rendered notebook or of a document in `docs/`. Clause and decision ids lead to
the specification and show who defined them; public names lead to the interface. Nothing is
fetched from elsewhere: one style, one script with the search, both beside the pages.
"""

from __future__ import annotations

import base64
import html
import importlib
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import jinja2
import nbformat
from nbconvert.filters.markdown_mistune import markdown2html_mistune
from pygments import highlight  # type: ignore[import-untyped] # reason: untyped library
from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped] # reason: untyped library
from pygments.lexers import PythonLexer  # type: ignore[import-untyped] # reason: untyped library

from engine import Engine
from engine.clauses import CLAUSES, DECISIONS
from notebooks.api_pages import PACKAGES, api_bodies
from notebooks.course import DOORS, FOLDER, PARTS, Chapter, chapters
from notebooks.course_picture import course_picture
from notebooks.tables import site_table

__all__ = ["DOCUMENTS", "write_site"]

DOCUMENTS: Final = {
    "REFERENCE.md": "Reference",
    "SPECIFICATION.md": "Specification",
    "DECISIONS.md": "Decisions",
    "conformance.md": "Guide: conformance",
    "simulator.md": "Guide: simulator",
    "ARCHITECTURE.md": "Architecture",
}
"""The documents that are pages, by file in `docs/`, with their names in the site."""
_DOCS: Final = FOLDER.parent / "docs"
_LONG_LINES: Final = 24
"""Of printed text, from which on it is folded."""
_PLACES: Final = (
    ("Reference", "reference.html"),
    ("Specification", "specification.html"),
    ("Decisions", "decisions.html"),
    ("Python", "api/index.html"),
)
_STATUS: Final = {
    "specified": "specified",
    "mixed": "specified, a detail is our choice",
    "assumed": "our choice",
}
_ID: Final = re.compile(r"\b(?:TOK|REC|AUTH|ERR|LIM|QUO|PRX|RCT|ACC|D)-[A-Z0-9]+(?:-[A-Z0-9]+)*\b")
_CALL: Final = re.compile(
    rf'(<span class="n">({"|".join(PACKAGES)})</span><span class="o">\.</span>)'
    r'<span class="n">(\w+)</span>'
)
_CLASS: Final = re.compile(r'<span class="n">([A-Z]\w+)</span>')
_CODE: Final = [".highlight", ".pdoc-code"]
"""The classes of code, in texts and in the pages of the interface."""
_PAGE: Final = jinja2.Environment(autoescape=False).from_string(  # noqa: S701 # reason: what goes in is HTML made here
    (FOLDER / "page.j2").read_text(encoding="utf-8")
)


def write_site(folder: Path) -> Path:
    """Write every page, the style, the search and the index; returns the index."""
    folder.mkdir(parents=True, exist_ok=True)
    course = chapters()
    bodies = {chapter.page: _chapter_body(chapter) for chapter in course}
    titles = {chapter.page: chapter.title for chapter in course}
    for name, title in DOCUMENTS.items():
        text = (_DOCS / name).read_text(encoding="utf-8")
        bodies[_page_name(name)] = _document(text)
        titles[_page_name(name)] = title
    interface = api_bodies()
    titles |= {page: f"Python: {Path(page).stem}" for page in interface}
    (folder / "api").mkdir(exist_ok=True)
    for page, body in (bodies | interface).items():
        at = next((n for n, chapter in enumerate(course) if chapter.page == page), None)
        before = course[at - 1] if at else None
        after = course[at + 1] if at is not None and at + 1 < len(course) else None
        _write_page(folder / page, titles[page], body, before=before, after=after)
    (folder / "site.css").write_text(_style(), encoding="utf-8")
    (folder / "search.js").write_text(_search(titles, bodies), encoding="utf-8")
    index = folder / "index.html"
    _write_page(index, "The course", _front(course))
    return index


def _write_page(
    target: Path,
    title: str,
    body: str,
    *,
    before: Chapter | None = None,
    after: Chapter | None = None,
) -> None:
    text = _PAGE.render(
        title=html.escape(title),
        body=body,
        before=before,
        after=after,
        places=_PLACES,
        root="../" if target.parent.name == "api" else "",
    )
    target.write_text(f"{text}\n", encoding="utf-8")


def _style() -> str:
    light = HtmlFormatter(style="default").get_style_defs(_CODE)
    dark = HtmlFormatter(style="github-dark").get_style_defs(_CODE)
    own = (FOLDER / "site.css").read_text(encoding="utf-8")
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n{own}"


# --- the front page --------------------------------------------------------------------------


def _front(course: list[Chapter]) -> str:
    by_number = {chapter.number: chapter for chapter in course}
    doors = "".join(
        f"<section><h2>{door.title}</h2><p>{door.says}</p><ol>"
        + "".join(
            f'<li><a href="{by_number[n].page}">{html.escape(by_number[n].title)}</a></li>'
            for n in door.numbers
        )
        + "</ol></section>"
        for door in DOORS
    )
    rows = "".join(
        f"<h3>{html.escape(part)}</h3><ul>"
        + "".join(
            f'<li><a href="{by_number[n].page}">{html.escape(by_number[n].title)}</a>'
            f"<p>{_inline(by_number[n].says)}</p></li>"
            for n in numbers
        )
        + "</ul>"
        for part, numbers in PARTS
    )
    documents = "".join(
        f'<li><a href="{_page_name(name)}">{title}</a></li>' for name, title in DOCUMENTS.items()
    )
    badges = ", ".join(
        f'<span class="clause {status}">{words}</span>' for status, words in _STATUS.items()
    )
    return (
        '<div class="front"><h1>Rate limits, from a 429 to its cause</h1>'
        f'<div class="course" tabindex="0">{course_picture()}</div>'
        "<p>The course is about a tokenization service and its limits. Each chapter asks a"
        " question, runs the engine, and asserts what it claims. In a hurry: "
        'the <a href="reference.html">reference</a> shows one complete call and every limit, '
        "status, header and quota with curl.</p>"
        f'<div class="doors">{doors}</div>'
        '<div class="all"><h2>All chapters</h2>'
        '<h3>One call</h3><ul><li><a href="reference.html#a-complete-request-and-response">'
        "A complete request and response</a>"
        "<p>The request and its answer, byte by byte, with curl.</p></li></ul>"
        f"{rows}"
        f"<h2>Look something up</h2><ul>{documents}"
        '<li><a href="api/index.html">Public interface in Python</a></li></ul>'
        f"<p>Clause colours show who defined each clause: {badges}.</p></div></div>"
    )


# --- chapters --------------------------------------------------------------------------------


def _chapter_body(chapter: Chapter) -> str:
    path = (FOLDER / chapter.stem).with_suffix(".ipynb")
    book = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call] # reason: untyped library
    return "\n".join(_cells(book.cells))


def _cells(cells: list[Any]) -> Iterator[str]:
    is_first = True
    for cell in cells:
        if cell.cell_type == "markdown":
            yield _document(cell.source)
            continue
        code, said = _code(cell.source), "\n".join(_outputs(cell.outputs))
        if "answer" in cell.metadata.get("tags", ()):
            yield _folded("Show the solution", code + said, "answer")
        elif is_first or "setup" in cell.metadata.get("tags", ()):
            yield said + _folded("Set-up", code)
        elif cell.metadata.get("jupyter", {}).get("source_hidden"):
            lines = cell.source.count("\n") + 1
            yield said + _folded(f"The code, {lines} lines", code, "long")
        else:
            yield code + said
        is_first = False


def _folded(summary: str, body: str, kind: str = "setup") -> str:
    return f'<details class="{kind}"><summary>{summary}</summary>\n{body}\n</details>'


def _code(source: str) -> str:
    text: str = highlight(source, PythonLexer(), HtmlFormatter())
    text = _CALL.sub(_called, text)
    return _CLASS.sub(lambda found: _to_interface(found[1], found[0]) or found[0], text)


def _called(found: re.Match[str]) -> str:
    whole = f'<span class="n">{found[3]}</span>'
    return found[1] + (_to_interface(f"{found[2]}.{found[3]}", whole) or whole)


def _outputs(outputs: list[Any]) -> Iterator[str]:
    for output in outputs:
        if output.output_type == "stream":
            yield _printed(output.text)
            continue
        data = output.get("data", {})
        if "image/svg+xml" in data:
            yield _picture(data["image/svg+xml"])
        elif "text/html" in data:
            yield f'<div class="table" tabindex="0">{site_table(data["text/html"])}</div>'
        elif "text/markdown" in data:
            yield _document(data["text/markdown"])
        elif "text/plain" in data:
            yield _printed(data["text/plain"])


def _printed(text: str) -> str:
    lines = text.rstrip().count("\n") + 1
    shown = f'<pre class="said" tabindex="0">{html.escape(text.rstrip())}</pre>'
    return _folded(f"{lines} lines", shown, "long") if lines > _LONG_LINES else shown


def _picture(svg: str) -> str:
    words = re.search(r'<svg[^>]*\saria-label="([^"]*)"', svg)
    size = re.search(r'<svg[^>]*\swidth="([\d.]+)"[^>]*\sheight="([\d.]+)"', svg)
    shape = f' width="{float(size[1]):.0f}" height="{float(size[2]):.0f}"' if size else ""
    data = base64.b64encode(svg.encode()).decode()
    source = f"data:image/svg+xml;base64,{data}"
    return f'<figure><img src="{source}" alt="{words[1] if words else ""}"{shape}></figure>'


# --- documents and their links ---------------------------------------------------------------


def _page_name(document: str) -> str:
    return f"{Path(document).stem.lower()}.html"


def _document(markdown: str) -> str:
    text = markdown2html_mistune(markdown)
    text = re.sub(
        r'(<h\d id=")([^"]+)(">.*?<a class="anchor-link" href="#)[^"]+"',
        lambda found: f'{found[1]}{_anchor(found[2])}{found[3]}{_anchor(found[2])}"',
        text,
    )
    text = text.replace("<table>", '<div class="table" tabindex="0"><table>')
    text = text.replace("</table>", "</table></div>")
    text = re.sub(
        r'<a href="([^"#:]+)(#[^"]*)?">(.*?)</a>', _between_documents, text, flags=re.DOTALL
    )
    return _linked(text)


def _anchor(title: str) -> str:
    """Return a heading's anchor as code hosts make it, so that links in documents hold here too."""
    return re.sub(r"[^\w-]", "", title.lower())


def _between_documents(found: re.Match[str]) -> str:
    path = Path(found[1])
    if path.name in DOCUMENTS:
        return f'<a href="{_page_name(path.name)}{found[2] or ""}">{found[3]}</a>'
    if path.suffix == ".ipynb":
        return f'<a href="{path.stem}.html{found[2] or ""}">{found[3]}</a>'
    return found[3] if path.suffix in {".md", ".py"} else found[0]


def _inline(markdown: str) -> str:
    """Return a sentence of Markdown as HTML, without a paragraph of its own."""
    return re.sub(r"^<p>|</p>$", "", markdown2html_mistune(markdown).strip())


def _linked(text: str) -> str:
    """Link clause ids, decision ids and public names outside of links, headings and blocks."""
    closed: list[str] = []
    parts = []
    for part in re.split(r"(<[^>]+>)", text):
        tag = re.match(r"<(/?)(a|h1|h2|h3|h4|pre|code)\b", part)
        if tag:
            closed = closed[:-1] if tag[1] else [*closed, tag[2]]
        parts.append(part if part.startswith("<") else _word_linked(part, closed))
    return "".join(parts)


def _word_linked(text: str, closed: list[str]) -> str:
    """Link what stands between two tags. closed: the open tags that hold links off, or code."""
    if closed == ["code"]:
        place = _to_interface(html.unescape(text).partition("(")[0], text)
        if place is not None:
            return place
    return text if closed and closed != ["code"] else _ID.sub(_badge, text)


def _badge(found: re.Match[str]) -> str:
    page, status, says = _law().get(found[0], ("", "", ""))
    if not page:
        return found[0]
    title = html.escape(f"{_STATUS[status]}: {says}")
    where = f"{page}#{found[0].lower()}"
    return f'<a class="clause {status}" href="{where}" title="{title}">{found[0]}</a>'


@cache
def _law() -> Mapping[str, tuple[str, str, str]]:
    """Return id → page, who defined it, and its text."""
    known = {one.id: ("specification.html", one.status, one.text) for one in CLAUSES}
    return known | {one.id: ("decisions.html", "assumed", one.question) for one in DECISIONS}


@cache
def _interface() -> Mapping[str, str]:
    """Return public name, alone and with its package, → its place in the pages of the interface."""
    places: dict[str, str] = {}
    for package in PACKAGES:
        places[package] = f"api/{package}.html"
        for name in importlib.import_module(package).__all__:
            place = f"api/{package}.html#{name}"
            places.setdefault(name, place)
            places[f"{package}.{name}"] = place
    for name in vars(Engine):
        if not name.startswith("_"):
            places.setdefault(f"engine.{name}", f"api/engine.html#Engine.{name}")
    return places


def _to_interface(name: str, shown: str) -> str | None:
    place = _interface().get(name)
    if place is None or (name.islower() and "." not in name):
        return None
    return f'<a href="{place}">{shown}</a>'


# --- search ----------------------------------------------------------------------------------


def _search(titles: Mapping[str, str], bodies: Mapping[str, str]) -> str:
    places = [
        (f"{titles[page]}{f' · {head}' if head != titles[page] else ''}", where, text)
        for page, body in bodies.items()
        for head, where, text in _sections(page, body)
    ]
    places += [(name, place, text) for name, place, text in _public_names(inspect.getdoc)]
    script = (FOLDER / "site.js").read_text(encoding="utf-8")
    return f"const PLACES = {json.dumps(places, ensure_ascii=False)};\n{script}"


def _sections(page: str, body: str) -> Iterator[tuple[str, str, str]]:
    """Yield heading, address and text of each section of a page."""
    # Badges, set-ups and code are alike in many sections: they would be found in place of the text.
    shown = re.sub(r'<details( class="setup")?>.*?</details>', "", body, flags=re.DOTALL)
    if _is_chapter(page):
        shown = re.sub(r'<div class="highlight">.*?</div>', "", shown, flags=re.DOTALL)
    for part in re.split(r"(?=<h[123] id=)", shown):
        head = re.match(
            r'<h[123] id="([^"]+)">(.*?)<a class="anchor-link".*?</h[123]>', part, re.DOTALL
        )
        if head:
            yield _words(head[2]), f"{page}#{head[1]}", _words(part[head.end() :])


def _is_chapter(page: str) -> bool:
    return page[0].isdigit()


def _words(markup: str) -> str:
    inline = re.sub(r"</?(?:a|b|code|em|span|strong)\b[^>]*>", "", markup)
    text = re.sub(r"<(script|style|svg)\b.*?</\1>|<[^>]+>", " ", inline, flags=re.DOTALL)
    return " ".join(html.unescape(text).split())


def _public_names(says: Callable[[object], str | None]) -> Iterator[tuple[str, str, str]]:
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            text = says(getattr(module, name)) or ""
            first = text.partition("\n\n")[0]
            yield f"{package}.{name}", f"api/{package}.html#{name}", " ".join(first.split())
