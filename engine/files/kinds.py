"""Kinds of values: each defines how its values are read, written and described.

A kind turns a TOML value into a Python one or fails at its place, turns it back, and gives the
JSON Schema of what it accepts. Forms (`engine.files.forms`) combine kinds into tables.
"""

from __future__ import annotations

import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, TypeVar

from engine.errors import did_you_mean
from engine.files.document import Spot, shown_value

Value = TypeVar("Value")
Schema = dict[str, Any]

_ENVIRONMENT: Final = re.compile(r"\$\{([^}]*)\}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Kind(ABC, Generic[Value]):
    """A kind of value. `suffix`: the unit that ends Python names and is left out of files."""

    suffix: ClassVar[str] = ""

    @abstractmethod
    def read(self, spot: Spot) -> Value:
        """Return the Python value; `InputError` at its place when it breaks the rule."""

    def write(self, value: Value) -> Any:  # noqa: ANN401 # reason: any TOML value
        """Return the TOML value that reads back as `value`."""
        return value

    def schema(self, _definitions: dict[str, Schema]) -> Schema:
        """Return the JSON Schema; shared parts go to `definitions`."""
        return {}


@dataclass(frozen=True)
class TextType(Kind[str]):
    """A string.

    pattern, rule: a regular expression for the whole text, and its rule in words.
    environment: `${NAME}` stands for that environment variable, which must be set.
    secret: messages do not quote it.
    """

    pattern: str | None = None
    rule: str = "must not be empty"
    environment: bool = False
    secret: bool = False

    def read(self, spot: Spot) -> str:
        if not isinstance(spot.value, str):
            spot.fail("must be a string", secret=self.secret)
        text = self._expanded(spot, spot.value) if self.environment else spot.value
        broken = self.pattern is not None and not re.fullmatch(self.pattern, text)
        if broken or not text:
            spot.fail(self.rule, secret=self.secret)
        return text

    def schema(self, _definitions: dict[str, Schema]) -> Schema:
        schema: Schema = {"type": "string"}
        if self.pattern is not None and not self.environment:
            schema["pattern"] = f"^(?:{self.pattern})$"
        else:
            schema["minLength"] = 1
        return schema

    def _expanded(self, spot: Spot, text: str) -> str:
        def variable(match: re.Match[str]) -> str:
            name = match[1]
            if not _VARIABLE.fullmatch(name):
                spot.fail("must name environment variables as ${NAME}", secret=self.secret)
            if name not in os.environ:
                spot.fail_key(f"needs the environment variable {name}, which is not set")
            return os.environ[name]

        return _ENVIRONMENT.sub(variable, text)


@dataclass(frozen=True)
class ChoiceType(Kind[Any]):
    """One of a closed list of strings or whole numbers."""

    choices: tuple[Any, ...]

    def read(self, spot: Spot) -> Any:  # noqa: ANN401 # reason: strings or numbers
        for choice in self.choices:
            if type(spot.value) is type(choice) and spot.value == choice:
                return choice
        names = ", ".join(shown_value(choice) for choice in self.choices)
        words = [str(choice) for choice in self.choices]
        is_text = isinstance(spot.value, str)
        hint = did_you_mean(spot.value, words, otherwise="") if is_text else ""
        rule = f"must be one of {names}{hint}" if len(self.choices) > 1 else f"must be {names}"
        return spot.fail(rule)

    def schema(self, _definitions: dict[str, Schema]) -> Schema:
        if len(self.choices) == 1:
            return {"const": self.choices[0]}
        return {"enum": list(self.choices)}


@dataclass(frozen=True)
class Integer(Kind[int]):
    """A whole number from `minimum` to `maximum`."""

    minimum: int | None = None
    maximum: int | None = 2**63 - 1

    def read(self, spot: Spot) -> int:
        if not isinstance(spot.value, int) or isinstance(spot.value, bool):
            spot.fail("must be a whole number")
        _check_bounds(spot, spot.value, self.minimum, self.maximum)
        return spot.value

    def schema(self, _definitions: dict[str, Schema]) -> Schema:
        maximum = None if self.maximum == 2**63 - 1 else self.maximum
        return _bounded({"type": "integer"}, minimum=self.minimum, maximum=maximum)


@dataclass(frozen=True)
class Number(Kind[float]):
    """A finite number, whole or decimal; `above` excludes its bound."""

    above: float | None = None
    minimum: float | None = None
    maximum: float | None = None

    def read(self, spot: Spot) -> float:
        value = spot.value
        if not isinstance(value, int | float) or isinstance(value, bool):
            spot.fail("must be a number")
        if not math.isfinite(value) or abs(value) > 1e300:
            spot.fail("must be a finite number")
        if self.above is not None and value <= self.above:
            spot.fail(f"must be above {self.above:g}")
        _check_bounds(spot, value, self.minimum, self.maximum)
        return float(value)

    def write(self, value: float) -> float | int:
        return int(value) if value == int(value) and abs(value) < 2**53 else value

    def schema(self, _definitions: dict[str, Schema]) -> Schema:
        return _bounded(
            {"type": "number"},
            exclusiveMinimum=self.above,
            minimum=self.minimum,
            maximum=self.maximum,
        )


@dataclass(frozen=True)
class Boolean(Kind[bool]):
    """`true` or `false`."""

    def read(self, spot: Spot) -> bool:
        if not isinstance(spot.value, bool):
            spot.fail("must be true or false")
        return spot.value

    def schema(self, _definitions: dict[str, Schema]) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True)
class AnyJson(Kind[Any]):
    """Any value that JSON can hold: no date, no time, no infinity."""

    def read(self, spot: Spot) -> Any:  # noqa: ANN401 # reason: any JSON
        value = spot.value
        if isinstance(value, Mapping):
            return {key: self.read(spot.child(key)) for key in value}
        if isinstance(value, list | tuple):
            return [self.read(spot.child(index)) for index in range(len(value))]
        if isinstance(value, float) and not math.isfinite(value):
            spot.fail("must be a finite number")
        if not isinstance(value, str | int | float):
            spot.fail("must be JSON, which has no dates and times; write a string")
        return value


@dataclass(frozen=True)
class Items(Kind[tuple[Any, ...]]):
    """An array whose elements are all of one kind; `minimum` is its least length."""

    item: Kind[Any]
    minimum: int = 0

    def read(self, spot: Spot) -> tuple[Any, ...]:
        if not isinstance(spot.value, list | tuple):
            header = isinstance(spot.value, Mapping) and len(spot.path) == 1
            hint = f"; write [[{spot.path[0]}]]" if header else ""
            spot.fail(f"must be an array{hint}")
        if len(spot.value) < self.minimum:
            spot.fail(
                "must not be empty"
                if self.minimum == 1
                else f"must have at least {self.minimum} elements"
            )
        return tuple(self.item.read(spot.child(index)) for index in range(len(spot.value)))

    def write(self, value: tuple[Any, ...]) -> list[Any]:
        return [self.item.write(item) for item in value]

    def schema(self, definitions: dict[str, Schema]) -> Schema:
        schema: Schema = {"type": "array", "items": self.item.schema(definitions)}
        return _bounded(schema, minItems=self.minimum or None)


@dataclass(frozen=True)
class TableOf(Kind[Mapping[str, Any]]):
    """A table with any keys, all values of one kind."""

    item: Kind[Any]

    def read(self, spot: Spot) -> dict[str, Any]:
        if not isinstance(spot.value, Mapping):
            spot.fail("must be a table")
        return {key: self.item.read(spot.child(key)) for key in spot.value}

    def write(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return {key: self.item.write(item) for key, item in value.items()}

    def schema(self, definitions: dict[str, Schema]) -> Schema:
        return {"type": "object", "additionalProperties": self.item.schema(definitions)}


def _check_bounds(spot: Spot, value: float, minimum: float | None, maximum: float | None) -> None:
    below = minimum is not None and value < minimum
    over = maximum is not None and value > maximum
    if not below and not over:
        return
    spot.fail(f"must be at least {minimum}" if below else f"must be at most {maximum}")


def _bounded(schema: Schema, **bounds: float | None) -> Schema:
    return schema | {name: bound for name, bound in bounds.items() if bound is not None}
