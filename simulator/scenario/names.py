"""Names within a scenario, and how they are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from engine.files import Items, Kind, Spot, Text

__all__ = ["NAME", "Names"]

_NAME = Text(r"[A-Za-z0-9_-]+", "must be letters, digits, - and _")

NAME: TypeAlias = Annotated[str, _NAME, "a name, unique among its kind"]
"""What other parts of the scenario call something."""


@dataclass(frozen=True)
class Names(Kind[tuple[str, ...]]):
    """One name or an array of names; a tuple in Python."""

    def _read(self, spot: Spot) -> tuple[str, ...]:
        if isinstance(spot.value, str):
            return (Text().read(spot),)
        if not isinstance(spot.value, list | tuple):
            spot.fail("must be a name or an array of names")
        return Items(Text()).read(spot)

    def _write(self, value: tuple[str, ...]) -> Any:  # noqa: ANN401 # reason: a text or an array
        return value[0] if len(value) == 1 else list(value)

    def _schema(self, definitions: dict[str, dict[str, Any]]) -> dict[str, Any]:
        array = Items(Text()).schema(definitions)
        return {"anyOf": [{"type": "string", "minLength": 1}, array]}
