"""Public names of a package, imported when they are first asked for.

A command or a plugin that imports a package then loads only what it uses.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from pkgutil import get_data
from typing import Any


def on_demand(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return what a package takes as its `__getattr__`, `__dir__` and `__all__`.

    The public names are those that its `__init__.py` imports under `if TYPE_CHECKING:`, each as
    itself: so type checkers and editors read the same list.
    """
    source = get_data(package, "__init__.py")
    assert source is not None, "a package is installed with its sources"
    homes = {
        alias.name: node.module
        for block in ast.parse(source).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    }

    def find(name: str) -> Any:  # noqa: ANN401 # reason: whatever goes by the name
        if name == "__version__":
            from importlib.metadata import version  # noqa: PLC0415 # reason: slow, and rarely needed

            return version("tollgate")
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home), name)

    def names() -> list[str]:
        return sorted(homes)

    return find, names, names()
