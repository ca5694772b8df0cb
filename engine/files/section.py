"""A table read key by key, where the next key to read depends on earlier values.

Forms (`engine.files.forms`) are the first choice; a `Section` is for tables that no dataclass
describes. It uses the same kinds, and `done` refuses the keys that nobody asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn, TypeVar

from engine.files.document import Document, Spot
from engine.files.kinds import Boolean, Choice, Integer, Items, Kind, Number, Text
from engine.files.quantities import Duration, RateText, Size
from engine.files.units import Rate

__all__ = ["REQUIRED", "Section"]

REQUIRED: Final[Any] = object()
"""The default of a key that must be there."""

_Default = TypeVar("_Default")
_Value = TypeVar("_Value")


class Section:
    """A table of a document. Every reader raises `InputError` at the value's place.

    A `default` is what a reader returns for a key that is not there; without one it must be.
    """

    def __init__(self, spot: Spot | Document) -> None:
        self.spot = spot.spot() if isinstance(spot, Document) else spot
        if not isinstance(self.spot.value, Mapping):
            self.spot.fail("must be a table")
        self._asked: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self.spot.value

    def read(
        self, name: str, kind: Kind[_Value], default: _Default = REQUIRED
    ) -> _Value | _Default:
        """Return a value of any kind."""
        self._asked.append(name)
        if name in self.spot.value:
            return kind.read(self.spot.child(name))
        if default is REQUIRED:
            self.spot.fail_missing(name)
        return default

    def string(
        self,
        name: str,
        *,
        default: _Default = REQUIRED,
        choices: tuple[str, ...] | None = None,
        environment: bool = False,
        secret: bool = False,
    ) -> str | _Default:
        """Return a string that is not empty; `environment` expands `${NAME}`."""
        if choices is not None:
            return self.read(name, Choice(choices), default)
        return self.read(name, Text(environment=environment, secret=secret), default)

    def integer(
        self,
        name: str,
        *,
        default: _Default = REQUIRED,
        minimum: int | None = None,
        maximum: int | None = None,
    ) -> int | _Default:
        """Return a whole number."""
        return self.read(name, Integer(minimum, 2**63 - 1 if maximum is None else maximum), default)

    def number(
        self,
        name: str,
        *,
        default: _Default = REQUIRED,
        above: float | None = None,
        minimum: float | None = None,
        maximum: float | None = None,
    ) -> float | _Default:
        """Return a finite number."""
        return self.read(name, Number(above, minimum, maximum), default)

    def boolean(self, name: str, *, default: _Default = REQUIRED) -> bool | _Default:
        """Return true or false."""
        return self.read(name, Boolean(), default)

    def duration_ns(
        self, name: str, *, default: _Default = REQUIRED, minimum_ns: int = 0
    ) -> int | _Default:
        """Return the nanoseconds of a duration such as `"1m30s"`."""
        return self.read(name, Duration(minimum_ns), default)

    def rate(self, name: str, *, default: _Default = REQUIRED) -> Rate | _Default:
        """Return a rate such as `"50/10s"`."""
        return self.read(name, RateText(), default)

    def size_bytes(self, name: str, *, default: _Default = REQUIRED) -> int | _Default:
        """Return the bytes of a size such as `"30MB"`."""
        return self.read(name, Size(), default)

    def strings(
        self,
        name: str,
        *,
        default: _Default = REQUIRED,
        environment: bool = False,
        secret: bool = False,
    ) -> tuple[str, ...] | _Default:
        """Return an array of strings."""
        kind = Items(Text(environment=environment, secret=secret))
        return self.read(name, kind, default)

    def plain(self, name: str, *, default: Any = REQUIRED) -> Any:  # noqa: ANN401 # reason: any TOML value
        """Return a value as it stands, unchecked."""
        return self.read(name, _Plain(), default)

    def table(self, name: str) -> Section:
        """Return a table; an empty one where the file has none."""
        self._asked.append(name)
        if name not in self.spot.value:
            return Section(Spot(self.spot.document, (*self.spot.path, name), {}))
        return Section(self.spot.child(name))

    def tables(self, name: str) -> tuple[Section, ...]:
        """Return an array of tables; an empty one where the file has none."""
        self._asked.append(name)
        if name not in self.spot.value:
            return ()
        array = self.spot.child(name)
        if not isinstance(array.value, list | tuple):
            array.fail(f"must be an array of tables; write [[{name}]]")
        return tuple(Section(array.child(index)) for index in range(len(array.value)))

    def names(self) -> tuple[str, ...]:
        """Return the keys of the table, in the file's order."""
        return tuple(self.spot.value)

    def fail(self, name: str, rule: str, *, secret: bool = False) -> NoReturn:
        """Raise `InputError` about a key that is there: `file:line:col: thing = value <rule>`."""
        self.spot.child(name).fail(rule, secret=secret)

    def done(self) -> None:
        """Refuse the first key that no reader asked for, with the nearest one that was."""
        self.spot.check_keys(tuple(dict.fromkeys(self._asked)))


class _Plain(Kind[Any]):
    def _read(self, spot: Spot) -> Any:  # noqa: ANN401 # reason: any TOML value
        return spot.value
