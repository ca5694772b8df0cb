"""The open decisions: what the seed leaves open, the engine's default, and the alternatives.

The data are in `decisions.toml`, from which documents are generated. A decision is either a choice,
set by profile fields, or fixed for a stated reason.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Final

from engine.errors import InputError, did_you_mean

__all__ = ["DECISIONS", "OpenDecision", "open_decision"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDecision:
    """One decision.

    default: what the engine does by default. alternatives: what a service may do instead, None when
    none is known; `study` where one of them is for simulation only, else they are readings.
    fields: the profile fields that set it, as `section.field`. fixed: why there are none.
    """

    id: str
    question: str
    default: str
    alternatives: str | None = None
    study: bool = False
    fields: tuple[str, ...] = ()
    fixed: str | None = None


def _load() -> tuple[OpenDecision, ...]:
    raw = resources.files("engine").joinpath("decisions.toml").read_text(encoding="utf-8")
    return tuple(
        OpenDecision(**{**row, "fields": tuple(row.get("fields", ()))})
        for row in tomllib.loads(raw)["decision"]
    )


DECISIONS: Final[tuple[OpenDecision, ...]] = _load()
"""Every open decision, in the order of the list."""

_BY_ID: Final = {item.id: item for item in DECISIONS}


def open_decision(decision_id: str) -> OpenDecision:
    """Return the decision of that id; raises `InputError` with the nearest known one."""
    try:
        return _BY_ID[decision_id]
    except KeyError:
        raise InputError(
            f"decision = {decision_id!r} does not exist{did_you_mean(decision_id, _BY_ID)}"
        ) from None
