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

from simulator.traffic.logs._batch import BATCH_LINES, Batch, Faults
from simulator.traffic.logs._source import numbered_lines, open_log

__all__ = ["COMBINED", "COMMON", "LineReader", "combined_reader", "common_reader", "pattern_reader"]

_Values: TypeAlias = "Sequence[str | None]"
_Split: TypeAlias = Callable[[str], "_Values | str"]
_Prepare: TypeAlias = Callable[[Sequence[str]], _Split]
"""Given the wanted fields, returns what turns a line into their values, or into why it cannot."""

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
_QUOTED_FIELDS: Final = frozenset({"request", "referer", "agent"})
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
    """A log of which one function splits each line into its wanted fields, or says why not."""

    open_ended = False

    def __init__(self, path: Path, fields: Sequence[str], prepare: _Prepare) -> None:
        self.fields = tuple(fields)
        self._path = path
        self._prepare = prepare

    def batches(self, wanted: Sequence[str], faults: Faults) -> Iterator[Batch]:
        """Yield the log in batches of the `wanted` fields; blank lines are no lines."""
        split = self._prepare(wanted)
        lines: list[int] = []
        rows: list[_Values] = []
        with open_log(self._path) as stream:
            for number, text in numbered_lines(stream):
                found = split(text) if text is not None else "line is too long"
                if isinstance(found, str):
                    if text is None or text.strip():
                        faults.add(number, found)
                    continue
                lines.append(number)
                rows.append(found)
                if len(lines) == BATCH_LINES:
                    yield _batch(lines, rows)
                    lines, rows = [], []
        if lines:
            yield _batch(lines, rows)


def _batch(lines: list[int], rows: list[_Values]) -> Batch:
    return Batch(lines, [list(column) for column in zip(*rows, strict=True)])


def common_reader(path: Path) -> LineReader:
    """Read the common log format."""
    return LineReader(path, COMMON, _splitter(_PLACES, extras=False))


def combined_reader(path: Path) -> LineReader:
    """Read the combined log format, with whatever fields stand after the user agent."""
    return LineReader(path, COMBINED, _splitter((*_PLACES, *_MORE_PLACES), extras=True))


def pattern_reader(path: Path, pattern: re.Pattern[str]) -> LineReader:
    """Read lines that `pattern` matches; its named groups are the fields."""

    def prepare(wanted: Sequence[str]) -> _Split:
        def split(text: str) -> _Values | str:
            match = pattern.search(text)
            if match is None:
                return "line must match the pattern of the map"
            return [match[name] for name in wanted]

        return split

    return LineReader(path, tuple(pattern.groupindex), prepare)


def _splitter(places: Sequence[tuple[str, str]], *, extras: bool) -> _Prepare:
    whole = re.compile("".join(pattern for _, pattern in places))
    names = [name for name, _ in places]

    def prepare(wanted: Sequence[str]) -> _Split:
        plain = [names.index(name) if name in names else -1 for name in wanted]
        quoted = [name in _QUOTED_FIELDS for name in wanted]
        every = list(zip(plain, quoted, wanted, strict=True))

        def split(text: str) -> _Values | str:
            match = whole.match(text)
            if match is None:
                return _diagnosis(text, places)
            rest = text[match.end() :].rstrip()
            more: dict[str, str | None] = {}
            if rest:
                if not extras:
                    return "line must end after the size; is it the combined format?"
                fault = _add_extras(more, rest)
                if fault is not None:
                    return fault
            values: list[str | None] = []
            groups = match.groups()
            for place, is_quoted, name in every:
                value = groups[place] if place >= 0 else more.get(name)
                if is_quoted and value is not None:
                    value = value[1:-1]
                values.append(None if value in _BLANKS else value)
            return values

        return split

    return prepare


def _add_extras(found: dict[str, str | None], rest: str) -> str | None:
    """Add the fields after the user agent; returns what is wrong with them, or None."""
    place = number = 0
    while place < len(rest):
        extra = _EXTRA.match(rest, place)
        if extra is None or (extra[2] or "").startswith('"'):
            return "field after the user agent must be quoted text, closed"
        number += 1
        value = _bare(extra[1] or extra[2])
        if number <= _EXTRAS:
            found[f"extra{number}"] = value
        if value.startswith("key_"):
            found.setdefault("key", value)
        place = extra.end()
    return None


def _bare(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value


def _diagnosis(text: str, places: Sequence[tuple[str, str]]) -> str:
    """Name the first field that is not where the format has it."""
    pattern = ""
    for name, part in places:
        pattern += part
        if re.match(pattern, text) is None:
            return f"{name} is missing, cut or not in its form"
    return "line is not in its format"
