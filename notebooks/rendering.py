"""From a percent script to a notebook with outputs, and from notebooks to a site.

What makes the bytes stable: cell ids are made from the notebook's name and the cell's place,
execution counts and times are left out, the kernel is always called `python3`, what goes to
standard error (compiling, a slow worker) is about the machine and left out too, a widget leaves
what it shows to a reader without a kernel, and a notebook itself shows no time, path, port or draw
that is not seeded.
"""

from __future__ import annotations

import hashlib
import html
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import jupytext
import nbformat
from nbclient import NotebookClient
from nbconvert import HTMLExporter

from notebooks.api_pages import write_api

__all__ = ["FOLDER", "render", "sources", "write_site"]

FOLDER: Final = Path(__file__).resolve().parent
_TIMEOUT_S: Final = 400
"""Of a cell: no cell takes half a minute, but the first on a machine may wait for a compiler."""
_WIDGET: Final = "application/vnd.jupyter.widget-view+json"
_KERNEL: Final = {"display_name": "Python 3", "language": "python", "name": "python3"}


def sources() -> list[Path]:
    """Return the percent scripts in the order of the course."""
    return sorted(FOLDER.glob("[0-9][0-9]_*.py"))


def render(source: Path) -> str:
    """Run a notebook and return it with its outputs, as the text of its `.ipynb`.

    Raises `nbclient.exceptions.CellExecutionError` when a cell raises, an assertion included.
    """
    book = jupytext.read(source)
    for place, cell in enumerate(book.cells):
        cell["id"] = hashlib.sha256(f"{source.stem}/{place}".encode()).hexdigest()[:8]
        cell["metadata"] = {k: v for k, v in cell.metadata.items() if k == "tags"}
    book.metadata.clear()
    book.metadata["kernelspec"] = dict(_KERNEL)
    client = NotebookClient(
        book,
        timeout=_TIMEOUT_S,
        kernel_name="python3",
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": str(FOLDER)}},
    )
    environment = {"PYTHONPATH": str(FOLDER.parent), "PYTHONHASHSEED": "0", "NO_COLOR": "1"}
    client.execute(env={**os.environ, **environment})
    book.metadata["language_info"] = {"name": "python"}
    for cell in book.cells:
        if cell.cell_type == "code":
            cell["execution_count"] = None
            cell["outputs"] = _joined(
                _stable(output) for output in cell.outputs if output.get("name") != "stderr"
            )
    text = nbformat.writes(book, indent=1, sort_keys=True)  # type: ignore[no-untyped-call] # reason: untyped library
    return f"{text}\n"


def _stable(output: Any) -> Any:
    output.pop("execution_count", None)
    if output.output_type == "execute_result":
        output["execution_count"] = None
    output.pop("transient", None)
    output.get("data", {}).pop(_WIDGET, None)
    return output


def _joined(outputs: Iterable[Any]) -> list[Any]:
    """Return outputs with what was printed in pieces as one: where it is cut is chance."""
    joined: list[Any] = []
    for output in outputs:
        if joined and output.output_type == joined[-1].output_type == "stream":
            joined[-1]["text"] += output["text"]
        else:
            joined.append(output)
    return joined


def write_site(folder: Path) -> Path:
    """Write every rendered notebook as a page, the public interface, and an index; returns it.

    The pages ask for nothing from elsewhere: scripts and styles stand in them, or are left out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    exporter = HTMLExporter(  # type: ignore[no-untyped-call] # reason: untyped library
        template_name="lab",
        mathjax_url="",
        require_js_url="",
        jquery_url="",
        widget_renderer_url="",
        html_manager_semver_range="",
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )
    rows = []
    stems = [source.stem for source in sources()]
    for place, source in enumerate(sources()):
        book = nbformat.read(source.with_suffix(".ipynb"), as_version=4)  # type: ignore[no-untyped-call] # reason: untyped library
        page, _ = exporter.from_notebook_node(book, resources={"metadata": {"name": source.stem}})
        target = folder / f"{source.stem}.html"
        way = _way(stems[max(place - 1, 0) : place], stems[place + 1 : place + 2])
        page = re.sub(r"(<body[^>]*>)", rf"\g<1>{way}", page, count=1)
        target.write_text(_offline(page), encoding="utf-8")
        title, says = _heading(book)
        rows.append(
            f'<li><a href="{target.name}">{html.escape(title)}</a><p>{html.escape(says)}</p></li>'
        )
    write_api(folder / "api")
    index = folder / "index.html"
    index.write_text(_INDEX.format(rows="\n".join(rows)), encoding="utf-8")
    return index


def _offline(page: str) -> str:
    """Drop what would fetch something: script and link elements with an address."""
    page = re.sub(r"<script[^>]*\bsrc=[^>]*>\s*</script>", "", page)
    return re.sub(r"<link[^>]*\bhref=\"https?:[^>]*>", "", page)


def _way(before: list[str], after: list[str]) -> str:
    """Return the line above a page that leads back to the course, and on."""
    ways = [f'<a href="{stem}.html">← before</a>' for stem in before]
    ways.append('<a href="index.html">The course</a>')
    ways += [f'<a href="{stem}.html">next →</a>' for stem in after]
    style = "font:15px system-ui,sans-serif;display:flex;gap:2rem;padding:.75rem 1rem 0"
    return f'<nav style="{style}">{"".join(ways)}</nav>'


def _heading(book: Any) -> tuple[str, str]:
    text = str(book.cells[0].source)
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    says = re.search(r"^(?![#\s])(.+)$", text, re.MULTILINE)
    return (title[1] if title else "", says[1] if says else "")


_INDEX: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Tollgate, by running it</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 46rem;
margin: 3rem auto; padding: 0 1rem; }}
li {{ margin: .75rem 0; }} p {{ margin: .1rem 0; color: #555; }} a {{ font-weight: 600; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #14171c; color: #e6e6e6; }}
p {{ color: #aaa; }} a {{ color: #8ab4ff; }} }}
</style></head><body>
<h1>Tollgate, by running it</h1>
<p>Every semantic of the service, in the order of a course; each claim is an assertion that ran.</p>
<ol>
{rows}
</ol>
<h2>In Python</h2>
<p>The <a href="api/index.html">public interface</a>, from the docstrings.</p>
</body></html>
"""
