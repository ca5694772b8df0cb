"""A drawn mechanism: requests as a strip, the fill of each counter under it, and a scrubber.

Everything is computed beforehand, so the picture works offline and without a kernel. Without
JavaScript it is a still picture of the whole trace; with it, a slider moves from request to request
and a line says what each one meets.
"""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from engine import Decision, InputError, LimitTable, Profile
from engine.limits import Limiter, Subject
from simulator.arguments import TEXT, ArgumentRule, takes
from simulator.traces import SECONDS, TRACE_RULES

_SECOND_NS: Final = 1_000_000_000
_WIDTH: Final = 640
_LEFT, _RIGHT = 130, 10
_LONGEST_LABEL: Final = 19
"""Characters that fit to the left of the picture; a longer label is drawn narrower."""
_STRIP_HEIGHT, _FILL_HEIGHT, _AXIS_HEIGHT = 24, 90, 26
_SAMPLES: Final = 240
_TICKS: Final = 6
_STEPS: Final = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 60, 100, 120, 200, 300, 600)
_COLOURS: Final[Mapping[str, str]] = {
    "admitted": "#9db8dc",
    "delayed": "#e69f00",
    "refused": "#d55e00",
    "blocked": "#1d2a44",
}
_LINES: Final = ("#2f5d9b", "#8a4fa3", "#3b7d4f")

_SCRIPT: Final = """
(() => {
  const root = document.getElementById("ID"), data = DATA;
  const slider = root.querySelector("input"), text = root.querySelector("output");
  const line = root.querySelector(".cursor");
  root.querySelector(".scrub").hidden = false;
  const show = () => {
    const step = data[slider.value];
    line.setAttribute("x1", step.x); line.setAttribute("x2", step.x);
    line.style.display = "";
    text.textContent = step.text;
  };
  slider.addEventListener("input", show);
  show();
})();
"""


@dataclass(frozen=True)
class MechanismStep:
    """One request. lane: who sent it. used: each counter's charges after the decision."""

    t_ns: int
    lane: str
    decision: Decision
    used: tuple[int, ...]


@dataclass(frozen=True, repr=False)
class Mechanism:
    """What a limiter does with some requests, to be shown in a notebook.

    title: stands above the picture. names, limits: of the counters that the requests meet. fills:
    instants and the charges of each counter at them.
    """

    title: str

    steps: tuple[MechanismStep, ...]
    names: tuple[str, ...]
    limits: tuple[int, ...]
    fills: tuple[tuple[int, tuple[int, ...]], ...]

    @property
    def text(self) -> str:
        """The picture in words, for a reader who does not see it."""
        lanes = dict.fromkeys(step.lane for step in self.steps)
        parts = []
        for lane in lanes:
            outcomes = [str(step.decision.outcome) for step in self.steps if step.lane == lane]
            counts = {outcome: outcomes.count(outcome) for outcome in _COLOURS}
            text = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
            parts.append(f"{lane}: {text}" if lane else text)
        peaks = [max(used[n] for _, used in self.fills) for n in range(len(self.names))]
        fills = [
            f"{name} fills to {peak} of {limit}"
            for name, peak, limit in zip(self.names, peaks, self.limits, strict=True)
        ]
        return f"{self.title}: " + "; ".join([*parts, *fills]) + "."

    @property
    def _legend(self) -> str:
        """The outcomes that occur, each beside its mark in the strip."""
        met = {str(step.decision.outcome) for step in self.steps}
        return " &nbsp; ".join(
            f'<span style="color:{colour}">{"▯" if outcome == "refused" else "▮"}</span> {outcome}'
            for outcome, colour in _COLOURS.items()
            if outcome in met
        )

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        picture = _Picture(self)
        identity = (
            "mechanism-" + hashlib.sha256(f"{self.title}{picture.svg}".encode()).hexdigest()[:8]
        )
        data = json.dumps(picture.steps, ensure_ascii=False, separators=(",", ":"))
        script = _SCRIPT.replace("ID", identity).replace("DATA", data.replace("</", "<\\/"))
        return (
            f'<div id="{identity}" class="mechanism"><b>{html.escape(self.title)}</b>'
            f" &nbsp; <small>{self._legend}</small><br>"
            f"{picture.svg}"
            f'<p class="scrub" hidden><input type="range" min="0" max="{len(self.steps) - 1}"'
            f' value="0" style="width:{_WIDTH - _LEFT - _RIGHT}px;margin-left:{_LEFT}px"'
            ' aria-label="request"><br><output></output></p>'
            f"<script>{script}</script></div>"
        )


def _are_lanes(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(lane, str) and SECONDS.holds(seconds) for lane, seconds in value.items()
    )


_TIMES: Final = ArgumentRule(
    "a list of seconds from 0 up, or a dict of such lists by lane",
    lambda value: SECONDS.holds(value) or _are_lanes(value),
)


@takes(
    times_s=_TIMES,
    who=TRACE_RULES["who"],
    title=TEXT,
    table=TRACE_RULES["table"],
    limits=TRACE_RULES["limits"],
)
def mechanism(
    times_s: Sequence[Fraction | float] | Mapping[str, Sequence[Fraction | float]],
    who: Subject,
    *,
    title: str = "requests over time",
    table: LimitTable | None = None,
    **limits: Any,  # noqa: ANN401 # reason: a field's value, which the profile checks
) -> Mechanism:
    """Return what the limits do with requests at the given times, ready to be drawn.

    times_s: seconds in ascending order, or a list for each lane of the strip; at equal times the
    first lane goes first. who: the subject of all requests; `caller` makes one. title: stands above
    the picture. table: the default table unless given. limits: fields of the profile's section,
    such as `algorithm="gcra"`. Raises `InputError`.

    >>> from simulator import caller
    >>> mechanism([0] * 51, caller(kind="public")).text
    'requests over time: 50 admitted, 1 blocked; LIM-PUBLIC fills to 50 of 50; LIM-IP fills to 50 \
of 2000.'
    """
    lanes = times_s if isinstance(times_s, Mapping) else {"": times_s}
    if not any(lanes.values()):
        raise InputError("times_s = {} must hold at least one time; give one")
    sent = sorted(
        (int(Fraction(second) * _SECOND_NS), place, lane)
        for place, (lane, seconds) in enumerate(lanes.items())
        for second in seconds
    )
    profile = Profile().replace(limits=limits)
    limiter = Limiter({"Default": table or LimitTable.default()}, profile.limits)
    settings = [counter.settings for counter in limiter.match(who).counters]

    def used(now_ns: int) -> tuple[int, ...]:
        counters = limiter.match(who).counters
        return tuple(c.settings.limit_requests - c.window.remaining(now_ns) for c in counters)

    first_ns, last_ns = sent[0][0], sent[-1][0]
    between = [first_ns + (last_ns - first_ns) * n // _SAMPLES for n in range(_SAMPLES + 1)]
    steps: list[MechanismStep] = []
    fills: list[tuple[int, tuple[int, ...]]] = []
    for t_ns, _, lane in sent:
        while between and between[0] < t_ns:
            fills.append((between[0], used(between.pop(0))))
        decision = limiter.decide(t_ns, who)
        steps.append(MechanismStep(t_ns, lane, decision, used(t_ns)))
        fills.append((t_ns, steps[-1].used))
    names = tuple(setting.name for setting in settings)
    bounds = tuple(setting.limit_requests for setting in settings)
    return Mechanism(title, tuple(steps), names, bounds, tuple(fills))


class _Picture:
    """The picture of a mechanism, and what each step of its slider shows."""

    def __init__(self, made: Mechanism) -> None:
        self._made = made
        self._first_ns = made.steps[0].t_ns
        self._span_ns = max(1, made.steps[-1].t_ns - self._first_ns)
        self._lanes = list(dict.fromkeys(step.lane for step in made.steps))
        # A counter that never fills a twentieth would be a flat line.
        peaks = [max(used[n] for _, used in made.fills) for n in range(len(made.names))]
        self._shown = [n for n, peak in enumerate(peaks) if peak >= made.limits[n] / 20]
        self._top = len(self._lanes) * _STRIP_HEIGHT + 8
        self.steps = [self._step(step) for step in made.steps]
        self.svg = self._svg()

    def _x(self, t_ns: int) -> float:
        share = (t_ns - self._first_ns) / self._span_ns
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

    def _y(self, used: int, limit: int) -> float:
        return round(self._top + _FILL_HEIGHT * (1 - used / limit), 1)

    def _step(self, step: MechanismStep) -> dict[str, float | str]:
        made, decision = self._made, step.decision
        fills = ", ".join(
            f"{made.names[n]} {step.used[n]} of {made.limits[n]}" for n in self._shown
        )
        wait = f", wait {decision.wait_ns / _SECOND_NS:g} s" if decision.wait_ns else ""
        by_rule = f" by {decision.rule}" if decision.rule else ""
        lane = f"{step.lane}: " if step.lane else ""
        at = f"{step.t_ns / _SECOND_NS:g} s"
        return {
            "x": self._x(step.t_ns),
            "text": f"{at}: {lane}{decision.outcome}{by_rule}{wait}; {fills}",
        }

    def _svg(self) -> str:
        height = self._top + _FILL_HEIGHT + _AXIS_HEIGHT
        parts = [*self._strips(), *self._fills(), *self._axis()]
        words = html.escape(self._made.text, quote=True)
        return (
            f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img"'
            f' aria-label="{words}" style="max-width:100%;font:11px sans-serif">{"".join(parts)}'
            f'<line class="cursor" y1="0" y2="{self._top + _FILL_HEIGHT}" stroke="currentColor"'
            ' stroke-width="1" style="display:none"/></svg>'
        )

    def _strips(self) -> list[str]:
        parts = []
        for place, lane in enumerate(self._lanes):
            y = place * _STRIP_HEIGHT + 4
            parts.append(_label(lane or "requests", y + 13))
            for step in self._made.steps:
                if step.lane == lane:
                    outcome = step.decision.outcome
                    fill = "none" if outcome == "refused" else _COLOURS[outcome]
                    parts.append(
                        f'<rect x="{self._x(step.t_ns) - 2}" y="{y}" width="4"'
                        f' height="{_STRIP_HEIGHT - 8}" fill="{fill}" stroke="{_COLOURS[outcome]}"'
                        f"><title>{outcome}</title></rect>"
                    )
        return parts

    def _fills(self) -> list[str]:
        made, parts = self._made, []
        for colour, n in zip(_LINES, self._shown, strict=False):
            limit = made.limits[n]
            points = " ".join(
                f"{self._x(t_ns)},{self._y(used[n], limit)}" for t_ns, used in made.fills
            )
            place = self._shown.index(n)
            parts.append(
                f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
            )
            label = f"{made.names[n]}, {limit}"
            parts.append(_label(label, self._top + 12 + 14 * place, colour))
        right = _WIDTH - _RIGHT
        parts += [
            f'<line x1="{_LEFT}" x2="{right}" y1="{y}" y2="{y}" stroke="currentColor"'
            f' stroke-opacity="0.4"{dashes}/>'
            for y, dashes in (
                (self._top, ' stroke-dasharray="4 3"'),
                (self._top + _FILL_HEIGHT, ""),
            )
        ]
        return parts

    def _axis(self) -> list[str]:
        span_s = self._span_ns / _SECOND_NS
        step = next((step for step in _STEPS if span_s / step <= _TICKS), span_s / _TICKS)
        first_s = self._first_ns / _SECOND_NS
        y = self._top + _FILL_HEIGHT + 14
        parts = []
        mark = -(-first_s // step)
        while mark * step <= first_s + span_s + 1e-9:
            x = self._x(round(mark * step * _SECOND_NS))
            parts.append(
                f'<text x="{x}" y="{y}" text-anchor="middle" fill="currentColor">'
                f"{mark * step:g} s</text>"
            )
            mark += 1
        return parts


def _label(text: str, y: float, colour: str = "currentColor") -> str:
    narrow = f' textLength="{_LEFT - 10}" lengthAdjust="spacingAndGlyphs"'
    width = narrow if len(text) > _LONGEST_LABEL else ""
    return (
        f'<text x="{_LEFT - 8}" y="{y}" text-anchor="end" fill="{colour}"{width}>'
        f"{html.escape(text)}</text>"
    )
