"""Public names of a package, imported when they are first asked for.

A command or a plugin that imports a package then loads only what it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["on_demand"]


def on_demand(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return what a package takes as its `__getattr__` and `__dir__`.

    homes: the module of each public name.
    """

    def find(name: str) -> Any:  # noqa: ANN401 # reason: whatever goes by the name
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home), name)

    def names() -> list[str]:
        return sorted(homes)

    return find, names
