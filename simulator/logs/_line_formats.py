r"""Logs of one line a request, told apart by a pattern: combined, common, or a user's own.

    combined   ADDRESS IDENTITY USER [TIME] "REQUEST" STATUS SIZE "REFERER" "AGENT" ["EXTRA1" …]
    common     ADDRESS IDENTITY USER [TIME] "REQUEST" STATUS SIZE

A line of another shape is refused with the first place where it leaves the format: a line that was
cut may have been cut anywhere. Quoted fields may hold escapes (`\"`), which stay as logged. Every
pattern here is linear in the length of the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from simulator.logs._batch import BATCH_LINES, Batch, Faults
from simulator.logs._source import Place, line_blocks, numbered_lines, open_log

__all__ = ["COMBINED", "COMMON", "CommonReader", "PatternReader"]

_Extras: TypeAlias = "dict[str, str | None] | str"
"""The fields after the user agent by name, or what is wrong with them."""

# No part matches a line feed: whole blocks of lines are matched at once.
_QUOTED: Final = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
_PLACES: Final = (
    ("address", r"(?P<address>\S+)"),
    ("identity", r" (?P<identity>\S+)"),
    ("user", r' (?P<user>[^\["\n]+)'),
    ("time", r" \[(?P<time>[^\]\n]*)\]"),
    ("request", rf" (?P<request>{_QUOTED})"),
    ("status", r" (?P<status>\d{3}|-)"),
    ("size", r" (?P<size>\d+|-)"),
)
_MORE_PLACES: Final = (
    ("referer", rf" (?P<referer>{_QUOTED})"),
    ("agent", rf" (?P<agent>{_QUOTED})"),
)
_EXTRAS: Final = 9
_TAILS_KEPT: Final = 1 << 15
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


class CommonReader:
    """The common log format, or the combined one with whatever stands after the user agent.

    One search gives all lines of a block: either the fields, or the whole line where it has none.
    """

    open_ended = False

    def __init__(self, path: Place, *, is_combined: bool) -> None:
        self.fields = COMBINED if is_combined else COMMON
        self._path = path
        self._places = (*_PLACES, *_MORE_PLACES) if is_combined else _PLACES
        self._is_combined = is_combined
        self._tails: dict[str, _Extras] = {}

    def clean(self, name: str, text: str | None) -> str | None:
        """Return a field without its quotes; an empty one and `-` are absent."""
        if text is not None and name in _QUOTED_FIELDS:
            text = text[1:-1]
        return None if text in _BLANKS else text

    def batches(self, wanted: Sequence[str], faults: Faults) -> Iterator[Batch]:
        """Yield the log in batches of the `wanted` fields; blank lines are no lines."""
        captured = ["address", *(name for name in wanted if name != "address")]
        row = self._row(captured)
        names = [name for name, _ in self._places if name in captured]
        with open_log(self._path) as stream:
            for first, text in line_blocks(stream):
                if text is None:
                    faults.add(first, "line is too long")
                    continue
                found = row.findall(text)
                lines: Sequence[int] = range(first, first + len(found))
                # A line that has the format has an address; another one stands whole at the end.
                if not all(each[0] for each in found):
                    self._add_faults(found, first, faults)
                    lines = [number for number, each in zip(lines, found, strict=True) if each[0]]
                    found = [each for each in found if each[0]]
                if found:
                    yield from self._batch(lines, found, names, wanted, faults)

    def _row(self, captured: Sequence[str]) -> re.Pattern[str]:
        """Return what matches one line: the captured fields and the rest, or the whole line."""
        fields = "".join(
            part if name in captured else part.replace(f"(?P<{name}>", "(?:")
            for name, part in self._places
        )
        return re.compile(rf"(?:{fields}([^\n]*)|([^\n]*))\n")

    def _add_faults(self, found: Sequence[tuple[str, ...]], first: int, faults: Faults) -> None:
        for number, each in enumerate(found, first):
            if not each[0] and each[-1].strip():
                faults.add(number, _diagnosis(each[-1].rstrip("\r"), self._places))

    def _batch(
        self,
        lines: Sequence[int],
        found: Sequence[tuple[str, ...]],
        names: Sequence[str],
        wanted: Sequence[str],
        faults: Faults,
    ) -> Iterator[Batch]:
        columns = dict(zip((*names, "tail", "whole"), zip(*found, strict=True), strict=True))
        extras = {tail: self._extras(tail) for tail in set(columns["tail"])}
        if any(isinstance(extra, str) for extra in extras.values()):
            good = []
            for place, (number, tail) in enumerate(zip(lines, columns["tail"], strict=True)):
                extra = extras[tail]
                if isinstance(extra, str):
                    faults.add(number, extra)
                else:
                    good.append(place)
            if not good:
                return
            lines = [lines[place] for place in good]
            columns = {name: tuple(c[place] for place in good) for name, c in columns.items()}
        yield Batch(lines, [self._column(name, columns, extras) for name in wanted])

    def _column(
        self, name: str, columns: dict[str, tuple[str, ...]], extras: dict[str, _Extras]
    ) -> Sequence[str | None]:
        if name in columns:
            return columns[name]
        of_tail = {
            tail: extra.get(name) for tail, extra in extras.items() if not isinstance(extra, str)
        }
        return [of_tail[tail] for tail in columns["tail"]]

    def _extras(self, tail: str) -> _Extras:
        """Return what stands after the last field that the format has."""
        found = self._tails.get(tail)
        if found is None:
            if len(self._tails) >= _TAILS_KEPT:
                self._tails.clear()
            found = self._tails[tail] = self._read_extras(tail.rstrip())
        return found

    def _read_extras(self, rest: str) -> _Extras:
        if rest and not self._is_combined:
            return "line must end after the size; is it the combined format?"
        more: dict[str, str | None] = {}
        return _add_extras(more, rest) or more


class PatternReader:
    """Lines that a pattern of the user's matches; its named groups are the fields."""

    open_ended = False

    def __init__(self, path: Place, pattern: re.Pattern[str]) -> None:
        self.fields = tuple(pattern.groupindex)
        self._path = path
        self._pattern = pattern

    def clean(self, name: str, text: str | None) -> str | None:
        """Return the text as it is."""
        del name
        return text

    def batches(self, wanted: Sequence[str], faults: Faults) -> Iterator[Batch]:
        """Yield the log in batches of the `wanted` fields; blank lines are no lines."""
        lines: list[int] = []
        rows: list[Sequence[str | None]] = []
        with open_log(self._path) as stream:
            for number, text in numbered_lines(stream):
                match = None if text is None else self._pattern.search(text)
                if match is None:
                    if text is None:
                        faults.add(number, "line is too long")
                    elif text.strip():
                        faults.add(number, "line must match the pattern of the map")
                    continue
                lines.append(number)
                rows.append([match[name] for name in wanted])
                if len(lines) == BATCH_LINES:
                    yield Batch(lines, list(zip(*rows, strict=True)))
                    lines, rows = [], []
        if lines:
            yield Batch(lines, list(zip(*rows, strict=True)))


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
