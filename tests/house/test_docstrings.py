"""Every example in a docstring runs and gives what it shows."""

import doctest
import importlib

import pytest

from tests.house._files import PACKAGES, module_name, python_files, text

_WITH_EXAMPLES = [
    module_name(path)
    for path in python_files(*PACKAGES)
    if ">>> " in text(path) and path.name != "__main__.py"
]


@pytest.mark.parametrize("name", _WITH_EXAMPLES)
def test_docstring_examples_run(name: str) -> None:
    outcome = doctest.testmod(importlib.import_module(name), raise_on_error=False)
    assert outcome.failed == 0
    assert outcome.attempted > 0, "an example that is not in a docstring never runs"
