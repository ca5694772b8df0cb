"""From a percent script to a notebook with outputs.

What makes the bytes stable: cell ids are made from the notebook's name and the cell's place,
execution counts and times are left out, the kernel is always called `python3`, what goes to
standard error (compiling, a slow worker) is about the machine and left out too, a widget leaves
what it shows to a reader without a kernel, and a notebook itself shows no time, path, port or draw
that is not seeded.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import jupytext
import nbformat
from nbclient import NotebookClient

from notebooks.course import FOLDER

__all__ = ["render"]

_TIMEOUT_S: Final = 400
"""Of a cell: no cell takes half a minute, but the first on a machine may wait for a compiler."""
_WIDGET: Final = "application/vnd.jupyter.widget-view+json"
_KERNEL: Final = {"display_name": "Python 3", "language": "python", "name": "python3"}


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
