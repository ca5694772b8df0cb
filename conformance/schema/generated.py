"""What the generator is asked for and what it gives back, as plain data.

It knows nothing of the library that generates: that is slow to import, and a run imports it only
when its turn has come.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Asked", "Explored", "Fault", "Search"]

Fault = tuple[str, str]
"""A clause's id, and what is wrong."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One generated request and its answer.

    operation: its id in the document. is_negative: whether it was made to break the document.
    body: JSON, None for none. number: of its exchange.
    """

    operation: str
    is_negative: bool
    body: Any
    has_body: bool
    status: int
    number: int


@dataclass(frozen=True, slots=True)
class Search:
    """How to generate: data of which mode, in which phases, at most how many an operation."""

    mode: Literal["positive", "negative"]
    phases: tuple[str, ...]
    examples: int


@dataclass(slots=True)
class Explored:
    """What came of it. failures: (clause, what is wrong, exchange) one an operation and clause.

    errors: what the generator itself stumbled over; phases: those that ran.
    """

    failures: list[tuple[str, str, int]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    phases: set[str] = field(default_factory=set)

    def __add__(self, other: Explored) -> Explored:
        """Return what came of both."""
        return Explored(
            self.failures + other.failures,
            self.errors + other.errors,
            self.phases | other.phases,
        )
