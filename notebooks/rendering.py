"""From a percent script to a notebook with outputs.

Notebooks run in one kernel, one after the other, each from an empty namespace. What makes the bytes
stable: cell ids are made from the notebook's name and the cell's place,
execution counts and times are left out, the kernel is always called `python3`, what goes to
standard error (compiling, a slow worker) is about the machine and left out too, a widget leaves
what it shows to a reader without a kernel, and a notebook itself shows no time, path, port or draw
that is not seeded. Pixels depend on the machine's fonts: a picture whose SVG is the committed one
keeps the committed pixels.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import jupytext
import nbformat
import vl_convert
from nbclient import NotebookClient
from traitlets.config import Config

from notebooks.badges import put_badges
from notebooks.course import FOLDER

__all__ = ["kernel", "render"]

_TIMEOUT_S: Final = 400
"""Of a cell: no cell takes half a minute, but the first on a machine may wait for a compiler."""
_LONG_LINES: Final = 24
"""Of a cell's code, from which on JupyterLab folds it, so that its result comes first."""
_SCALE: Final = 1
"""Of a picture in pixels."""
_CONFIG: Final = Config(KernelManager={"transport_encryption": "auto"})
"""Cells and outputs go to and fro encrypted, where the kernel can; otherwise it warns."""
_BEFORE: Final = "%reset -f\nfrom notebooks.alternatives import use; use(); del use"
"""Run in the kernel before a notebook, and no part of it."""
_WIDGET: Final = "application/vnd.jupyter.widget-view+json"
_KERNEL: Final = {"display_name": "Python 3", "language": "python", "name": "python3"}


@contextmanager
def kernel() -> Iterator[NotebookClient]:
    """Yield a running kernel for `render`. Its start costs more than most notebooks."""
    client = NotebookClient(
        nbformat.v4.new_notebook(),  # type: ignore[no-untyped-call] # reason: untyped library
        timeout=_TIMEOUT_S,
        kernel_name="python3",
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": str(FOLDER)}},
        config=_CONFIG,
    )
    environment = {"PYTHONPATH": str(FOLDER.parent), "PYTHONHASHSEED": "0", "NO_COLOR": "1"}
    with client.setup_kernel(env={**os.environ, **environment}):
        yield client


def render(source: Path, client: NotebookClient) -> str:
    """Run a notebook and return it with its outputs, as the text of its `.ipynb`.

    client: of a kernel; what an earlier notebook left in it is forgotten.

    Raises `nbclient.exceptions.CellExecutionError` when a cell raises, an assertion included.
    """
    pixels = _committed_pixels(source.with_suffix(".ipynb"))
    book = jupytext.read(source)
    put_badges(book.cells)
    is_first = True
    for place, cell in enumerate(book.cells):
        cell["id"] = hashlib.sha256(f"{source.stem}/{place}".encode()).hexdigest()[:8]
        cell["metadata"] = _metadata(cell, is_setup=is_first)
        is_first = is_first and cell.cell_type != "code"
    book.metadata.clear()
    book.metadata["kernelspec"] = dict(_KERNEL)
    book.cells.insert(0, nbformat.v4.new_code_cell(_BEFORE))  # type: ignore[no-untyped-call] # reason: untyped library
    client.nb = book
    client.execute(cleanup_kc=False)
    del book.cells[0]
    book.metadata["language_info"] = {"name": "python"}
    for cell in book.cells:
        if cell.cell_type == "code":
            cell["execution_count"] = None
            cell["outputs"] = _joined(
                _with_pixels(_stable(output), pixels)
                for output in cell.outputs
                if output.get("name") != "stderr"
            )
    text = nbformat.writes(book, indent=1, sort_keys=True)  # type: ignore[no-untyped-call] # reason: untyped library
    return f"{text}\n"


def _metadata(cell: Any, *, is_setup: bool) -> dict[str, Any]:
    """Return what is kept of a cell's metadata: tags, and what JupyterLab folds.

    The first cell of code sets up; long code is folded and its result is not; the answer to an
    exercise is folded with what it shows.
    """
    tags = cell.metadata.get("tags", [])
    kept: dict[str, Any] = {"tags": tags} if tags else {}
    is_long = cell.source.count("\n") + 1 > _LONG_LINES
    if cell.cell_type == "code" and (is_setup or is_long or {"setup", "answer"} & set(tags)):
        kept["jupyter"] = {"source_hidden": True}
        if "answer" in tags:
            kept["jupyter"]["outputs_hidden"] = True
    return kept


def _committed_pixels(notebook: Path) -> dict[str, str]:
    """Return SVG → PNG of each picture that a notebook holds; nothing without the file."""
    if not notebook.exists():
        return {}
    outputs = (
        output
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        for output in cell.get("outputs", ())
    )
    pictures = (output.get("data", {}) for output in outputs)
    return {
        "".join(picture["image/svg+xml"]): picture["image/png"]
        for picture in pictures
        if {"image/svg+xml", "image/png"} <= picture.keys()
    }


def _with_pixels(output: Any, known: Mapping[str, str]) -> Any:
    """Add a PNG to a picture, for readers that show no SVG: untrusted notebooks, code hosts.

    known: SVG → PNG that stays.
    """
    svg = output.get("data", {}).get("image/svg+xml")
    if svg is not None:
        text = "".join(svg)
        if text not in known:
            pixels = vl_convert.svg_to_png(text, scale=_SCALE)
            known = {text: base64.b64encode(pixels).decode() + "\n"}
        output["data"]["image/png"] = known[text]
        words = re.search(r'<svg[^>]*\saria-label="([^"]*)"', text)
        if words:
            output["metadata"] = {"image/png": {"alt": html.unescape(words[1])}}
    return output


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
