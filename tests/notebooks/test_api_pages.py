"""Every public name has its entry in the site, with the text of its docstring."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

from notebooks.api_pages import PACKAGES, api_bodies


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
