"""The public interface as pages of the site, made from the docstrings.

A package's `__all__` is what is public: nothing else is shown. The pages copy no text by hand: a
change in a docstring changes the page.
"""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Final

import pdoc
import pdoc.render

__all__ = ["PACKAGES", "write_api"]

PACKAGES: Final = ("engine", "simulator", "conformance")
_TEMPLATES: Final = Path(__file__).resolve().parent / "api_templates"


def write_api(folder: Path) -> Path:
    """Write a page a package, an index and a search that works offline; returns the index.

    Raises `UserWarning` when a public name does not resolve.
    """
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:  # a name that is imported on demand stands in no `__dict__`
            setattr(module, name, getattr(module, name))
    pdoc.render.configure(docformat="markdown", show_source=False, template_directory=_TEMPLATES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Inside a class with a method `list`, the annotation `list[…]` means that method to pdoc.
        warnings.filterwarnings("ignore", message="Error parsing type annotation")
        pdoc.pdoc(*PACKAGES, output_directory=folder)
    return folder / "index.html"
