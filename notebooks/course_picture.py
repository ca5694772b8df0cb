"""The front page's picture: what the course is, in one exchange of two clients with one limit.

The outcomes and the fill of the counter are the limiter's own; only the callouts are written here.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import Final

from simulator import caller, trace

__all__ = ["course_picture"]

_WIDTH, _LEFT, _RIGHT = 960, 150, 24
_END_S, _WINDOW_S, _LIMIT = 120, 60, 50
_LANES: Final = ((150, "retries every 5 s"), (186, "waits as told"))
_FILL: Final = (228, 300)
"""Top and bottom of the counter's fill."""
_COLOURS: Final = {"admitted": "#7fa3d4", "blocked": "#d55e00"}
_CALLOUTS: Final = (
    (4, 128, "You arrive with a 429.", "Retry-After: 56", "00_from_429_to_clause.html"),
    (32, 268, "Which counter refused?", "LIM-PUBLIC: 50 a minute", "08_limit_rules.html"),
    (39, 128, "Why for so long?", "Each early retry is blocked.", "11_throttle_block_delay.html"),
    (22, 197, "What should you do?", "Wait once, then go on.", "12_retry_storms.html"),
)
"""Seconds and height of each number in the picture; its question, answer and chapter."""


def course_picture() -> str:
    """Return the picture as SVG, with a link for each question."""
    first = [number * 0.08 for number in range(_LIMIT)]
    sent = ([*first, *range(4, _END_S, 5)], [*first, 4, *range(60, _END_S, 5)])
    public = caller("POST", "/tokenize", kind="public")
    lanes = [
        list(zip(frame["second"], frame["outcome"], strict=True))
        for frame in (trace(times, public) for times in sent)
    ]
    parts = [*_strips(lanes), *_fill(lanes[1]), *_callouts()]
    words = (
        "Two clients send fifty requests in four seconds and get a 429. One retries every five"
        " seconds and stays blocked for a minute; the other waits as long as the answer says and is"
        " admitted."
        " The course asks which counter refused, why, and what to do."
    )
    return f'<svg viewBox="0 0 {_WIDTH} 330" role="img" aria-label="{words}">{"".join(parts)}</svg>'


def _x(second: float) -> float:
    return round(_LEFT + second / _END_S * (_WIDTH - _LEFT - _RIGHT), 1)


def _strips(lanes: list[list[tuple[float, str]]]) -> Iterator[str]:
    for (y, name), steps in zip(_LANES, lanes, strict=True):
        yield _text(_LEFT - 10, y + 15, name, "end")
        for second, outcome in steps:
            yield (
                f'<rect x="{_x(second) - 1.5}" y="{y}" width="3" height="22"'
                f' fill="{_COLOURS[outcome]}"/>'
            )


def _fill(steps: list[tuple[float, str]]) -> Iterator[str]:
    """Draw how full the counter is of the client that waits: what it admitted in a window."""
    top, bottom = _FILL
    admitted = [second for second, outcome in steps if outcome == "admitted"]
    changes = sorted({*admitted, *(second + _WINDOW_S for second in admitted)})
    points, height = [f"{_x(0)},{bottom}"], float(bottom)
    for second in (at for at in changes if at <= _END_S):
        held = sum(second - _WINDOW_S < one <= second for one in admitted)
        points.append(f"{_x(second)},{height}")
        height = round(bottom - (bottom - top) * held / _LIMIT, 1)
        points.append(f"{_x(second)},{height}")
    points += [f"{_x(_END_S)},{height}", f"{_x(_END_S)},{bottom}"]
    yield f'<polygon points="{" ".join(points)}" fill="#7fa3d4" fill-opacity="0.35"/>'
    right = _WIDTH - _RIGHT
    yield f'<path class="rule" d="M{_LEFT} {top}H{right}M{_LEFT} {bottom}H{right}"/>'
    yield _text(_LEFT - 10, top + 5, "counter full: 50", "end")
    yield _text(_LEFT - 10, bottom + 4, "empty", "end")
    for second in range(0, _END_S + 1, 20):
        yield _text(_x(second), bottom + 20, f"{second} s", "middle")


def _callouts() -> Iterator[str]:
    """Number places of the picture, and ask about each in a row above it."""
    column = _WIDTH / len(_CALLOUTS)
    for place, (second, y, question, answer, page) in enumerate(_CALLOUTS):
        x = round(place * column + 10, 1)
        yield _number(place + 1, _x(second), y)
        yield _number(place + 1, x + 9, 43)
        asks = f'<text class="asks" x="{x + 26}" y="48">{html.escape(question)}</text>'
        yield f'<a href="{page}">{asks}</a>{_text(x + 26, 70, answer, "start")}'


def _number(number: int, x: float, y: float) -> str:
    return (
        f'<circle cx="{x}" cy="{y}" r="10" fill="#1d2a44"/>'
        f'<text x="{x}" y="{y + 4}" text-anchor="middle" class="number">{number}</text>'
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{html.escape(text)}</text>'
