"""Walking the open choices: each value of a choice, tried on the same small case.

The list of choices is the profile's own, so a choice that is added and not walked is noticed. A
*case* is a function of some sections of a profile; it plays something and says what was seen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pandas as pd

from engine import Profile

__all__ = ["Case", "Choice", "Walk", "choices"]

Case: TypeAlias = Callable[..., object]
"""Called with sections of a profile, such as `limits={"compose": "all"}`."""

_SECOND_NS: Final = 1_000_000_000


@dataclass(frozen=True)
class Choice:
    """One field of the profile, as the registry knows it. `path` is `section.field`."""

    section: str
    name: str
    decision: str
    asks: str
    default: Any
    readings: tuple[Any, ...]
    study: tuple[Any, ...]

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}"

    def written(self, value: Any) -> str:
        """Return a value as a reader takes it in."""
        if self.name.endswith("_ns"):
            return f"{value / _SECOND_NS:g} s"
        return str(list(value)) if isinstance(value, tuple) else str(value)


def choices() -> Iterator[Choice]:
    """Yield every choice that the profile holds, in its order."""
    for section in dataclasses.fields(Profile):
        for item in dataclasses.fields(getattr(Profile(), section.name)):
            meta = item.metadata
            yield Choice(
                section.name,
                item.name,
                meta["decision"],
                meta["asks"],
                item.default,
                meta["readings"],
                meta["study"],
            )


@dataclass
class Walk:
    """What has been walked so far: a row a choice and value.

    Every listed value of a choice is tried; where the list is open (a number, a name), the
    notebook gives another value.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)

    def through(
        self, section: str, cases: Mapping[str, Case | tuple[Case, Sequence[Any]]]
    ) -> pd.DataFrame:
        """Try the choices of a section and return what was seen.

        cases: field → case, or (case, other values). Each value must make another difference than
        the default does: a choice that changes nothing would not be shown by its case.
        """
        known = {choice.name: choice for choice in choices() if choice.section == section}
        began = len(self.rows)
        for name, given in cases.items():
            choice = known[name]
            case, others = given if isinstance(given, tuple) else (given, ())
            values = [choice.default, *choice.readings, *choice.study, *others]
            seen = [_said(case(**{section: {name: value}})) for value in values]
            assert len(values) > 1, f"{choice.path}: another value is needed"
            assert seen[0] not in seen[1:], f"{choice.path}: {seen} shows no difference"
            self.rows += [
                {
                    "choice": name,
                    "decides": choice.decision,
                    "asks": choice.asks,
                    "value": choice.written(value),
                    "is": _kind(choice, value),
                    "seen": said,
                    "path": choice.path,
                }
                for value, said in zip(values, seen, strict=True)
            ]
        return self.frame(began)

    def frame(self, began: int = 0) -> pd.DataFrame:
        """Return the rows from one on, as a table to be read."""
        index = ["choice", "decides", "asks", "value"]
        return pd.DataFrame(self.rows[began:])[[*index, "is", "seen"]].set_index(index)

    def walked(self) -> set[str]:
        """Return the paths of the choices that have been walked."""
        return {row["path"] for row in self.rows}

    def seen(self, path: str, value: str) -> str:
        """Return what was seen of a value, as written."""
        return next(
            str(row["seen"]) for row in self.rows if (row["path"], row["value"]) == (path, value)
        )

    def tried(self) -> set[tuple[str, str]]:
        """Return (path, value as written) of everything that has been tried."""
        return {(row["path"], row["value"]) for row in self.rows}


def _kind(choice: Choice, value: Any) -> str:
    if value is choice.default:
        return "default"
    return "study" if value in choice.study else "reading"


def _said(seen: object) -> str:
    return ", ".join(map(str, seen)) if isinstance(seen, list | tuple | set) else str(seen)
