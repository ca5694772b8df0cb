"""Kinds of scenario fields that `engine.files` does not have: instants, names, profile choices.

An instant of the wall clock is ISO 8601 in files, nanoseconds since the Unix epoch in Python.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from engine.files import Items, Kind, Spot, TableSchema, TextType
from engine.profile import Profile

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_RULE: Final = "must be a time with its offset, such as 2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class InstantType(Kind[int]):
    """An offset date-time of TOML, or a text of the same form; whole microseconds."""

    suffix: ClassVar[str] = "_ns"

    def read(self, spot: Spot) -> int:
        value = spot.value
        if isinstance(value, str):
            try:
                value = dt.datetime.fromisoformat(value)
            except ValueError:
                spot.fail(_RULE)
        if not isinstance(value, dt.datetime) or value.tzinfo is None:
            spot.fail(_RULE)
        if value < _EPOCH:
            spot.fail("must not be before 1970")
        return (value - _EPOCH) // _MICROSECOND * 1_000

    def write(self, value: int) -> str:
        moment = _EPOCH + value // 1_000 * _MICROSECOND
        return moment.isoformat().replace("+00:00", "Z")

    def schema(self, _definitions: dict[str, dict[str, Any]]) -> dict[str, Any]:
        return {"type": "string", "format": "date-time"}


_NAME = TextType(r"[A-Za-z0-9_-]+", "must be letters, digits, - and _")

NAME: TypeAlias = Annotated[str, _NAME, "name, which no other of these has"]
"""The form of a name that other parts of the scenario refer to."""


@dataclass(frozen=True)
class Names(Kind[tuple[str, ...]]):
    """One name or an array of names; a tuple in Python."""

    def read(self, spot: Spot) -> tuple[str, ...]:
        if isinstance(spot.value, str):
            return (TextType().read(spot),)
        if not isinstance(spot.value, list | tuple):
            spot.fail("must be a name or an array of names")
        return Items(TextType()).read(spot)

    def write(self, value: tuple[str, ...]) -> Any:  # noqa: ANN401 # reason: a text or an array
        return value[0] if len(value) == 1 else list(value)

    def schema(self, definitions: dict[str, dict[str, Any]]) -> dict[str, Any]:
        array = Items(TextType()).schema(definitions)
        return {"anyOf": [{"type": "string", "minLength": 1}, array]}


@dataclass(frozen=True)
class Choices(Kind[Mapping[str, Mapping[str, object]]]):
    """Some of the profile's sections and fields; checked as a profile, kept as written."""

    def read(self, spot: Spot) -> dict[str, dict[str, object]]:
        TableSchema(Profile).read(spot)
        return {section: dict(fields) for section, fields in spot.value.items()}

    def write(self, value: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, object]]:
        return {section: dict(fields) for section, fields in value.items()}

    def schema(self, definitions: dict[str, dict[str, Any]]) -> dict[str, Any]:
        return TableSchema(Profile).schema(definitions)
