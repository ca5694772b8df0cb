"""Instants of the wall clock: ISO 8601 in files, nanoseconds since the Unix epoch in Python."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from engine.files import Kind, Spot

__all__ = ["Instant"]

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_RULE: Final = "must be a time with its offset, such as 2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class Instant(Kind[int]):
    """An offset date-time of TOML, or a text of the same form; whole microseconds."""

    suffix: ClassVar[str] = "_ns"

    def _read(self, spot: Spot) -> int:
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

    def _write(self, value: int) -> str:
        moment = _EPOCH + value // 1_000 * _MICROSECOND
        return moment.isoformat().replace("+00:00", "Z")

    def _schema(self, _definitions: dict[str, dict[str, Any]]) -> dict[str, Any]:
        return {"type": "string", "format": "date-time"}
