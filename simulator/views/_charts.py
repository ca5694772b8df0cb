"""The report's charts: refusals by clause over time, who was shut out when, distribution of waits.

Each takes findings that are counted already and gives a drawing with a bounded number of marks.
Wide charts are drawn twice: on a phone the page shows the narrow one, with names above their rows
instead of beside them, so that nothing scrolls sideways.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from simulator.views._findings import Findings, Party, Refusals
from simulator.views._svg import Drawing, bars_path
from simulator.views._text import (
    Axis,
    count_text,
    counted_text,
    plain_text,
    share_text,
    span_text,
)

__all__ = ["FRAMES", "Frame", "gantt", "histogram_chart", "timeline"]


@dataclass(frozen=True, slots=True)
class Frame:
    """How wide a picture is, and its margins.

    head: height of a row's name where it stands above the row; 0 where it stands beside it.
    """

    width: int
    left: int
    right: int
    head: int = 0

    @property
    def plot(self) -> int:
        """The width between the margins."""
        return self.width - self.left - self.right

    @property
    def row(self) -> int:
        """The height of a row, with its name."""
        return self.head + _ROW

    def ticks(self, axis: Axis) -> Iterator[tuple[float, str]]:
        """Yield place and text of as many of an axis's ticks as have room."""
        places = [(self.left + axis.place(at_ns, self.plot), text) for at_ns, text in axis.ticks()]
        longest = max((len(text) for _, text in places), default=0)
        room = self.plot / max(1, len(places) - 1)
        yield from places[:: max(1, -(-int(_LETTER * (longest + 2)) // max(1, int(room))))]


_WIDE: Final = Frame(1080, 150, 28)
_NARROW: Final = Frame(360, 40, 24, 18)
FRAMES: Final = {"wide": _WIDE, "narrow": _NARROW}
"""The class of a picture on the page, which shows one of them, and its frame."""
_LETTER: Final = 6.6
_ROW: Final = 22
_LONGEST_LABEL: Final = 22
_LABEL_WIDTH: Final = 62


def timeline(
    findings: Findings, axis: Axis, colours: Mapping[str, str], frame: Frame = _WIDE
) -> Drawing:
    """Three panels over one time axis: all requests, the refused by clause, each clause's share."""
    clauses = [clause for clause in colours if clause in findings.refused]
    tall_a, tall_b, gap = 120, 150 if clauses else 0, 34
    top_b = 26 + tall_a + gap
    top_c = top_b + tall_b + gap if clauses else top_b
    bottom = top_c + frame.row * len(clauses)
    drawing = Drawing(frame.width, bottom + 30, _timeline_title(findings, clauses))
    if findings.start_ns:
        width = axis.place(findings.start_ns, frame.plot)
        drawing.rect(
            frame.left, 26, width, bottom - 26, "warmup", "warm-up, left out of the numbers"
        )
    for x, text in frame.ticks(axis):
        drawing.line(x, 26, x, bottom, "grid")
        drawing.text(x, bottom + 20, text, "tick mid")
    _stack(
        drawing,
        "Requests",
        (26, tall_a),
        [("admitted", findings.offered - _sum(findings)), ("turned", _sum(findings))],
        findings,
        axis,
        frame,
    )
    if clauses:
        series = [(colours[clause], findings.refused[clause]) for clause in clauses]
        _stack(drawing, "Refused, by clause", (top_b, tall_b), series, findings, axis, frame)
        drawing.text(frame.left, top_c - 10, "Share refused by each clause", "panel")
        for place, clause in enumerate(clauses):
            top = top_c + place * frame.row
            _strip(drawing, clause, colours[clause], top, findings, axis, frame)
    if not frame.head:  # touch screens cannot hover
        _hover(drawing, findings, axis, (26, bottom))
    return drawing


def gantt(
    parties: Sequence[tuple[Party, Refusals]],
    axis: Axis,
    colours: Mapping[str, str],
    frame: Frame = _WIDE,
) -> Drawing:
    """Who was shut out when: a row a key and address under a clause."""
    frame = Frame(frame.width, 8, 24, frame.head) if frame.head else Frame(frame.width, 290, 96)
    bottom = 10 + frame.row * len(parties)
    drawing = Drawing(frame.width, bottom + 30, f"When whom was shut out: {len(parties)} rows")
    for x, text in frame.ticks(axis):
        drawing.line(x, 6, x, bottom, "grid")
        drawing.text(x, bottom + 18, text, "tick mid" if x > _LABEL_WIDTH / 2 else "tick")
    for place, (who, found) in enumerate(parties):
        top = 10 + place * frame.row
        if place % 2 == 0:
            drawing.rect(0, top, frame.width, frame.row, "zebra")
        ip = _short(who.ip, 15 if frame.head else _LONGEST_LABEL)
        drawing.text(8, top + 15, ip, "label mono")
        key = _short(who.key or "no key", 14 if frame.head else 19)
        drawing.text(150 if frame.head else 166, top + 15, key, "label mono muted")
        bars = _gantt_bars(found, axis, frame, top + frame.head)
        drawing.path(bars_path(bars), colours[who.clause], _gantt_title(who, found, axis))
        drawing.text(frame.width - 8, top + 15, span_text(found.shut_ns), "label end")
    return drawing


def histogram_chart(steps: Sequence[tuple[int, int, int]], title: str) -> Drawing:
    """A histogram over a logarithmic scale of time; `steps` are (from_ns, to_ns, count)."""
    width, tall, left = 420, 150, 22
    drawing = Drawing(width, tall + 44, title)
    slot = (width - 2 * left) / max(12, len(steps))
    highest = max(count for _, _, count in steps)
    shift = (width - 2 * left - slot * len(steps)) / 2
    drawing.line(left, tall + 16, width - left, tall + 16, "axis")
    decades = [place for place, (from_ns, _, _) in enumerate(steps) if _is_decade(from_ns)]
    apart = -(-_LABEL_WIDTH // slot)
    labelled = set(decades if len(decades) > 2 else range(0, len(steps), int(apart)))
    for place, (from_ns, to_ns, count) in enumerate(steps):
        x = left + shift + place * slot
        high = tall * count / highest
        if count:
            drawing.rect(
                x + 1,
                16 + tall - max(1.0, high),
                slot - 2,
                max(1.0, high),
                "hist",
                f"{_step_text(from_ns, to_ns)}: {count_text(count)}",
            )
        if to_ns <= 1:
            drawing.text(x + slot / 2, tall + 34, "0", "tick mid")
        elif place in labelled:
            drawing.line(x, tall + 16, x, tall + 21, "axis")
            drawing.text(x, tall + 34, span_text(from_ns), "tick mid")
    return drawing


def _is_decade(at_ns: int) -> bool:
    return at_ns > 0 and str(at_ns).rstrip("0") == "1"


def _step_text(from_ns: int, to_ns: int) -> str:
    return "none" if to_ns <= 1 else f"{span_text(from_ns)} to {span_text(to_ns)}"


def _timeline_title(findings: Findings, clauses: Sequence[str]) -> str:
    refused = int(_sum(findings).sum())
    by = ", ".join(clauses) or "none"
    return (
        f"Requests over time: {count_text(findings.rows)} offered, {count_text(refused)} refused;"
        f" clauses that refused: {by}"
    )


def _sum(findings: Findings) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    total = np.zeros(len(findings.offered), dtype=np.int64)
    for counts in findings.refused.values():
        total = total + counts
    return total


def _stack(  # reason: a panel's place, data and axes
    drawing: Drawing,
    title: str,
    place: tuple[float, float],
    series: Sequence[tuple[str, np.ndarray[tuple[int], np.dtype[np.int64]]]],
    findings: Findings,
    axis: Axis,
    frame: Frame,
) -> None:
    """Draw stacked bars, the first series at the bottom, with an axis of round counts."""
    top, tall = place
    total = np.sum([counts for _, counts in series], axis=0)
    ceiling = _round_up(int(total.max(initial=0)))
    drawing.text(frame.left, top - 10, title, "panel")
    for count in sorted({0, ceiling // 2, ceiling} if ceiling > 1 else {0, ceiling}):
        y = top + tall * (1 - count / max(1, ceiling))
        drawing.line(frame.left, y, frame.width - frame.right, y, "grid" if count else "axis")
        drawing.text(frame.left - (4 if frame.head else 8), y + 4, count_text(count), "tick end")
    below = np.zeros(len(total), dtype=np.int64)
    for css, counts in series:
        bars = []
        for bin_ in np.flatnonzero(counts):
            x, width = _bin_place(int(bin_), findings, axis, frame)
            high = tall * int(counts[bin_]) / ceiling
            y = top + tall * (1 - (int(below[bin_]) + int(counts[bin_])) / ceiling)
            bars.append((x, y, width, high))
        drawing.path(bars_path(bars), css)
        below = below + counts


def _strip(  # reason: a row's place, data and axes
    drawing: Drawing,
    clause: str,
    css: str,
    top: float,
    findings: Findings,
    axis: Axis,
    frame: Frame,
) -> None:
    """Draw one clause's row: the larger the share that the clause refused, the darker the bin."""
    if frame.head:
        drawing.text(frame.left, top + 14, _short(clause, 40), "label mono")
    else:
        drawing.text(frame.left - 8, top + 14, _short(clause), "label end mono")
    top += frame.head
    drawing.rect(frame.left, top + 3, frame.plot, _ROW - 6, "strip")
    counts = findings.refused[clause]
    shades: dict[int, list[tuple[float, float, float, float]]] = {}
    for bin_ in np.flatnonzero(counts):
        share = int(counts[bin_]) / max(1, int(findings.offered[bin_]))
        shade = 1 + min(3, int(share * 4))
        x, width = _bin_place(int(bin_), findings, axis, frame)
        shades.setdefault(shade, []).append((x, top + 3, width, _ROW - 6))
    for shade, bars in sorted(shades.items()):
        drawing.path(bars_path(bars), f"{css} shade{shade}")


def _hover(drawing: Drawing, findings: Findings, axis: Axis, span: tuple[float, float]) -> None:
    """Lay an invisible bar with the numbers over every bin that holds something."""
    top, bottom = span
    for bin_ in np.flatnonzero(findings.offered):
        at = int(bin_)
        x, width = _bin_place(at, findings, axis, _WIDE, apart=False)
        offered = int(findings.offered[at])
        lines = [f"{axis.instant(at * findings.bin_ns)}: {counted_text(offered, 'request')}"]
        for clause, counts in findings.refused.items():
            if refused := int(counts[at]):
                share = share_text(refused, offered)
                lines.append(f"{clause}: {count_text(refused)} refused ({share})")
        drawing.rect(x, top, width, bottom - top, "hover", "\n".join(lines))


def _bin_place(
    bin_: int, findings: Findings, axis: Axis, frame: Frame, *, apart: bool = True
) -> tuple[float, float]:
    x = axis.place(bin_ * findings.bin_ns, frame.plot)
    width = axis.place((bin_ + 1) * findings.bin_ns, frame.plot) - x
    gap = min(1.0, width / 5) if apart else 0.0
    return frame.left + x, max(0.8, width - gap)


def _gantt_bars(
    found: Refusals, axis: Axis, frame: Frame, top: float
) -> list[tuple[float, float, float, float]]:
    """Return a row's bars, those that would touch on the page drawn as one."""
    bars: list[tuple[float, float]] = []
    for from_ns, until_ns in found.intervals:
        start = frame.left + axis.place(from_ns, frame.plot)
        end = max(start + 1.6, frame.left + axis.place(until_ns, frame.plot))
        if bars and start <= bars[-1][1] + 0.6:
            bars[-1] = (bars[-1][0], max(end, bars[-1][1]))
        else:
            bars.append((start, end))
    return [(start, top + 4, end - start, _ROW - 8) for start, end in bars]


def _gantt_title(who: Party, found: Refusals, axis: Axis) -> str:
    if not found.refused:
        return (
            f"{who.clause} refused {plain_text(who.ip)} in the warm-up alone; shut out"
            f" {span_text(found.shut_ns)} of what follows"
        )
    return (
        f"{who.clause} refused {plain_text(who.ip)} {count_text(found.refused)} times, first"
        f" {axis.instant(found.first_ns)}, last {axis.instant(found.last_ns)}; shut out"
        f" {span_text(found.shut_ns)}"
    )


def _short(text: str, longest: int = _LONGEST_LABEL) -> str:
    text = plain_text(text)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _round_up(count: int) -> int:
    """Return the next count of one digit and zeros that an axis ends with."""
    power = 1
    while True:
        for step in (1, 2, 3, 4, 5, 6, 8):
            if step * power >= count:
                return step * power
        power *= 10
