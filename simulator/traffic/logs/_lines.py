r"""Logs of one line a request, told apart by a pattern: combined, common, or a user's own.

    combined   ADDRESS IDENTITY USER [TIME] "REQUEST" STATUS SIZE "REFERER" "AGENT" ["EXTRA1" …]
    common     ADDRESS IDENTITY USER [TIME] "REQUEST" STATUS SIZE

A line of another shape is refused with the first place where it leaves the format: a line that was
cut may have been cut anywhere. Quoted fields may hold escapes (`\"`), which stay as logged. Every
pattern here is linear in the length of the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from simulator.traffic.logs._batch import BATCH_LINES, Batch, Column, Faults
from simulator.traffic.logs._source import numbered_lines, open_log

__all__ = ["COMBINED", "COMMON", "LineReader", "combined_reader", "common_reader", "pattern_reader"]

_Split: TypeAlias = Callable[[str], "dict[str, str | None] | str"]

_QUOTED: Final = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_PLACES: Final = (
    ("address", r"(?P<address>\S+)"),
    ("identity", r" (?P<identity>\S+)"),
    ("user", r' (?P<user>[^\["]+)'),
    ("time", r" \[(?P<time>[^\]]*)\]"),
    ("request", rf" (?P<request>{_QUOTED})"),
    ("status", r" (?P<status>\d{3}|-)"),
    ("size", r" (?P<size>\d+|-)"),
)
_MORE_PLACES: Final = (
    ("referer", rf" (?P<referer>{_QUOTED})"),
    ("agent", rf" (?P<agent>{_QUOTED})"),
)
_EXTRAS: Final = 9
_EXTRA: Final = re.compile(rf" (?:({_QUOTED})|(\S+))")
_BLANKS: Final = frozenset({"", "-"})

COMMON: Final = tuple(name for name, _ in _PLACES)
"""The fields of the common log format."""
COMBINED: Final = (
    *COMMON,
    *(name for name, _ in _MORE_PLACES),
    "key",
    *(f"extra{number}" for number in range(1, _EXTRAS + 1)),
)
"""The fields of the combined format; `key` is the first extra one that reads like an API key."""


class LineReader:
    """A log of which one function splits each line into fields, or says why it cannot."""

    open_ended = False

    def __init__(self, path: Path, fields: Sequence[str], split: _Split) -> None:
        self.fields = tuple(fields)
        self._path = path
        self._split = split

    def batches(self, wanted: Sequence[str], faults: Faults) -> Iterator[Batch]:
        """Yield the log in batches of the `wanted` fields; blank lines are no lines."""
        lines: list[int] = []
        columns: list[list[str | None]] = [[] for _ in wanted]
        with open_log(self._path) as stream:
            for number, text in numbered_lines(stream):
                found = self._split(text) if text is not None else "line is too long"
                if isinstance(found, str):
                    if text is None or text.strip():
                        faults.add(number, found)
                    continue
                lines.append(number)
                for column, name in zip(columns, wanted, strict=True):
                    column.append(found.get(name))
                if len(lines) == BATCH_LINES:
                    yield Batch(lines, list[Column](columns))
                    lines, columns = [], [[] for _ in wanted]
        if lines:
            yield Batch(lines, list[Column](columns))


def common_reader(path: Path) -> LineReader:
    """Read the common log format."""
    return LineReader(path, COMMON, _splitter(_PLACES, extras=False))


def combined_reader(path: Path) -> LineReader:
    """Read the combined log format, with whatever fields stand after the user agent."""
    return LineReader(path, COMBINED, _splitter((*_PLACES, *_MORE_PLACES), extras=True))


def pattern_reader(path: Path, pattern: re.Pattern[str]) -> LineReader:
    """Read lines that `pattern` matches; its named groups are the fields."""

    def split(text: str) -> dict[str, str | None] | str:
        match = pattern.search(text)
        return "line must match the pattern of the map" if match is None else match.groupdict()

    return LineReader(path, tuple(pattern.groupindex), split)


def _splitter(places: Sequence[tuple[str, str]], *, extras: bool) -> _Split:
    whole = re.compile("".join(pattern for _, pattern in places))

    def split(text: str) -> dict[str, str | None] | str:
        match = whole.match(text)
        if match is None:
            return _diagnosis(text, places)
        found = {name: _bare(value) for name, value in match.groupdict().items()}
        rest = text[match.end() :].rstrip()
        if not rest:
            return found
        if not extras:
            return "line must end after the size; is it the combined format?"
        return _with_extras(found, rest)

    return split


def _with_extras(found: dict[str, str | None], rest: str) -> dict[str, str | None] | str:
    place = number = 0
    while place < len(rest):
        extra = _EXTRA.match(rest, place)
        if extra is None or (extra[2] or "").startswith('"'):
            return "field after the user agent must be quoted text, closed"
        number += 1
        value = _bare(extra[1] or extra[2])
        if number <= _EXTRAS:
            found[f"extra{number}"] = value
        if value is not None and value.startswith("key_"):
            found.setdefault("key", value)
        place = extra.end()
    return found


def _bare(value: str) -> str | None:
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = value[1:-1]
    return None if value in _BLANKS else value


def _diagnosis(text: str, places: Sequence[tuple[str, str]]) -> str:
    """Name the first field that is not where the format has it."""
    pattern = ""
    for name, part in places:
        pattern += part
        if re.match(pattern, text) is None:
            return f"{name} is missing, cut or not in its form"
    return "line is not in its format"
