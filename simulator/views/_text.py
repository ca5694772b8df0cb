"""Numbers and instants as text for a report: short, with a unit, unambiguous."""

from __future__ import annotations

import datetime as dt
from typing import Final

__all__ = [
    "Axis",
    "clock_text",
    "count_text",
    "counted_text",
    "plain_text",
    "share_text",
    "span_text",
]

_SECOND_NS: Final = 1_000_000_000
_UNITS: Final = (
    ("d", 86_400 * _SECOND_NS),
    ("h", 3_600 * _SECOND_NS),
    ("min", 60 * _SECOND_NS),
    ("s", _SECOND_NS),
)
_SMALL: Final = (("ms", 1_000_000), ("µs", 1_000), ("ns", 1))
_THIN: Final = "\u202f"
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def count_text(count: int) -> str:
    """Return a whole number in groups of three: `19 366`."""
    return f"{count:,}".replace(",", _THIN)


def counted_text(count: int, word: str, words: str = "") -> str:
    """Return a count with its word, `words` (with an s unless given) for any but one.

    >>> counted_text(1, "request"), counted_text(2, "address", "addresses")
    ('1 request', '2 addresses')
    """
    return f"{count_text(count)} {word if count == 1 else words or word + 's'}"


def share_text(part: int, whole: int) -> str:
    """Return a share in percent; only exact values are shown as 0 % or 100 %."""
    if not whole or not part:
        return f"0{_THIN}%"
    percent = 100 * part / whole
    if percent < 0.01:
        return f"<{_THIN}0.01{_THIN}%"
    if part < whole and percent > 99.99:
        return f">{_THIN}99.99{_THIN}%"
    digits = 2 if percent < 1 else 1 if percent < 99.95 or part < whole else 0
    return f"{percent:.{digits}f}".removesuffix(".0") + f"{_THIN}%"


def span_text(span_ns: int) -> str:
    """Return a length of time in its two largest units: `3 d 10 h`, `1 min 5 s`, `2.5 s`."""
    if span_ns <= 0:
        return f"0{_THIN}s"
    for place, (unit, size_ns) in enumerate(_UNITS[:-1]):
        if span_ns >= size_ns:
            whole, rest_ns = divmod(span_ns, size_ns)
            small, small_ns = _UNITS[place + 1]
            rest = rest_ns // small_ns
            text = f"{whole}{_THIN}{unit}"
            return f"{text} {rest}{_THIN}{small}" if rest else text
    for unit, size_ns in (_UNITS[-1], *_SMALL):
        if span_ns >= size_ns:
            return f"{span_ns / size_ns:.3g}{_THIN}{unit}"
    return f"{span_ns}{_THIN}ns"


def clock_text(at_ns: int, *, date: bool = True) -> str:
    """Return an instant since the Unix epoch as UTC, to the second: `2015-05-17 10:05:03`."""
    moment = _EPOCH + dt.timedelta(seconds=at_ns // _SECOND_NS)
    return moment.strftime("%Y-%m-%d %H:%M:%S" if date else "%H:%M:%S")


def plain_text(text: str) -> str:
    r"""Return a text of a log fit for a terminal or a page: control characters become escapes.

    >>> plain_text("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


class Axis:
    """A time axis of a run: places, tick marks and how instants are called.

    start_ns: the run's start in ns since the Unix epoch where instants are shown as UTC; None
    where they are shown as time since the start.
    """

    _STEPS: Final = (
        *(n * 10**power for power in range(9) for n in (1, 2, 5)),
        *(n * _SECOND_NS for n in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800)),
        *(n * 3600 * _SECOND_NS for n in (1, 2, 3, 6, 12, 24, 48, 96, 168, 336, 720, 2160, 8760)),
    )

    def __init__(self, end_ns: int, start_ns: int | None = None) -> None:
        self.end_ns = max(1, end_ns)
        self.start_ns = start_ns

    def place(self, at_ns: int, width: float) -> float:
        """Return where an instant stands on an axis of that width."""
        return round(min(at_ns, self.end_ns) / self.end_ns * width, 2)

    def ticks(self, most: int = 8) -> list[tuple[int, str]]:
        """Return at most `most` round instants with what they are called."""
        step = next((s for s in self._STEPS if self.end_ns / s <= most), self.end_ns)
        first = 0 if self.start_ns is None else -self.start_ns % step
        found = range(first, self.end_ns + 1, step)
        return [(at, self._tick_text(at, step)) for at in found][: most + 1]

    def _tick_text(self, at_ns: int, step_ns: int) -> str:
        if self.start_ns is None:
            return "0" if at_ns == 0 else span_text(at_ns)
        moment = _EPOCH + dt.timedelta(seconds=(self.start_ns + at_ns) // _SECOND_NS)
        day = f"{moment.day}{_THIN}{moment:%b}"
        if step_ns >= 86_400 * _SECOND_NS or not (moment.hour or moment.minute or moment.second):
            return day if step_ns < 86_400 * 300 * _SECOND_NS else f"{moment:%Y-%m}"
        return f"{moment:%H:%M}" if step_ns >= 60 * _SECOND_NS else f"{moment:%H:%M:%S}"

    def instant(self, at_ns: int) -> str:
        """Return what an instant is called in a table."""
        if self.start_ns is not None:
            return clock_text(self.start_ns + at_ns)
        return "start" if at_ns == 0 else "+" + span_text(at_ns)
