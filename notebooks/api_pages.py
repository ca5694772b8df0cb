"""The public interface as pages of the site, made from the docstrings.

A package's `__all__` is what is public: nothing else is shown. The pages copy no text by hand: a
change in a docstring changes the page.
"""

from __future__ import annotations

import html
import importlib
import inspect
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pdoc.doc
import pdoc.render

__all__ = ["PACKAGES", "api_bodies"]

PACKAGES: Final = ("engine", "simulator", "conformance")
_TEMPLATES: Final = Path(__file__).resolve().parent / "api_templates"


def api_bodies() -> dict[str, str]:
    """Return the page of each package and their index: address in the site → HTML of its text.

    Raises `UserWarning` when a public name does not resolve.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Inside a class with a method `list`, the annotation `list[…]` means that method to pdoc.
        warnings.filterwarnings("ignore", message="Error parsing type annotation")
        bodies = dict(_packages())
    bodies["api/index.html"] = "<h1>Public interface in Python</h1><ul>{}</ul>".format(
        "".join(
            f'<li><a href="{package}.html">{package}</a>: {html.escape(_first_line(package))}</li>'
            for package in PACKAGES
        )
    )
    return bodies


def _packages() -> Iterator[tuple[str, str]]:
    pdoc.render.configure(
        docformat="markdown", show_source=False, search=False, template_directory=_TEMPLATES
    )
    documented = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:  # a name that is imported on demand stands in no `__dict__`
            setattr(module, name, getattr(module, name))
        documented[package] = pdoc.doc.Module(module)
    for package, module_of in documented.items():
        yield f"api/{package}.html", pdoc.render.html_module(module_of, documented)


def _first_line(package: str) -> str:
    text = inspect.getdoc(importlib.import_module(package)) or ""
    return text.partition("\n")[0]
