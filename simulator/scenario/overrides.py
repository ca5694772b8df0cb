"""What a scenario changes in its profile, without another file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.files import Form, Kind, Spot
from engine.profile import Profile

__all__ = ["Choices"]


@dataclass(frozen=True)
class Choices(Kind[Mapping[str, Mapping[str, object]]]):
    """Some of the profile's sections and fields; checked as a profile, kept as written."""

    def _read(self, spot: Spot) -> dict[str, dict[str, object]]:
        Form(Profile).read(spot)
        return {section: dict(fields) for section, fields in spot.value.items()}

    def _write(self, value: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, object]]:
        return {section: dict(fields) for section, fields in value.items()}

    def _schema(self, definitions: dict[str, dict[str, Any]]) -> dict[str, Any]:
        return Form(Profile).schema(definitions)
