"""Requests at given times through the limits alone: as a table, as a strip and as a mechanism.

    frame = simulator.trace([0] * 51 + [11], simulator.caller(kind="public"))
    simulator.strip(frame.assign(who="51 at once"))

Times are seconds, and the decisions are the engine's own: the limiter is the one that a request
meets, without a body. For traffic of many clients who retry, use `simulator.run`.

A `mechanism` draws requests as a strip, the fill of each counter under it, and a scrubber.
Everything is computed beforehand, so the picture works offline and without a kernel. Without
JavaScript it is a still picture of the whole trace; with it, a slider moves from request to request
and a line says what each one meets.
"""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, get_args

from engine import Decision, InputError, LimitTable, Profile
from engine.limits import KeyIdentity, Limiter, Subject, TenantIdentity
from engine.model import ApplicationKind, TenantKind
from simulator.arguments import (
    FLAG,
    TEXT,
    ArgumentRule,
    instance,
    is_number,
    list_of,
    one_of,
    optional,
    takes,
)

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


_SECOND_NS: Final = 1_000_000_000
_STRIP_WIDTH, _STRIP_ROW = 560, 22
_LONGEST_S: Final = 10**9
_BARS: Final[Mapping[str, tuple[str, float]]] = {
    "admitted": ("#9db8dc", 1),
    "delayed": ("#e69f00", 1),
    "refused": ("#d55e00", 0.15),
    "blocked": ("#1d2a44", 1),
}
"""Outcome → colour of its bar, the same in every picture, and how much of it is filled.

Colour alone does not distinguish refused from blocked.
"""


def _is_trace(value: Any) -> bool:  # noqa: ANN401 # reason: whatever a cell hands in
    return {"second", "outcome"} <= set(map(str, getattr(value, "columns", ())))


SECONDS: Final = list_of(
    f"a list of seconds from 0 up and below {_LONGEST_S:,.0f}, such as [0, 0, 1.5]",
    lambda second: is_number(second) and 0 <= second < _LONGEST_S,
)
_TRACE: Final = ArgumentRule(
    "a table with the columns second and outcome; `trace` makes one", _is_trace
)
TRACE_RULES: Final = {
    "times_s": SECONDS,
    "who": instance("a Subject; `caller` makes one", Subject),
    "table": optional(instance("a LimitTable", LimitTable), "the default table"),
    "limits": instance("fields of the profile's section", dict),
}


@takes(
    method=TEXT,
    path=TEXT,
    kind=optional(one_of(get_args(ApplicationKind))),
    tenant=one_of(get_args(TenantKind)),
    legacy=FLAG,
    key=optional(TEXT),
    ip=TEXT,
    proxy_key=optional(TEXT),
    host=optional(TEXT),
)
def caller(  # noqa: PLR0913 # reason: what a rule can look at
    method: str = "GET",
    path: str = "/applications",
    *,
    kind: ApplicationKind | None = "private",
    tenant: TenantKind = "production",
    legacy: bool = False,
    key: str | None = "key-1",
    ip: str = "203.0.113.7",
    proxy_key: str | None = None,
    host: str | None = None,
) -> Subject:
    """Return the subject of a request: by default a private key of a production tenant.

    kind: of the key's application. key, proxy_key, host: any names; the same name is the same
    counter.
    """
    identity = None if key is None else KeyIdentity(key, legacy, f"application of {key}", kind)
    return Subject.of(
        method,
        path,
        ip,
        key=identity,
        tenant=TenantIdentity("tenant", tenant, "Default"),
        proxy_key_id=proxy_key,
        host_id=host,
    )


@takes(**TRACE_RULES)
def decide(
    times_s: Sequence[Fraction | float],
    who: Subject,
    *,
    table: LimitTable | None = None,
    **limits: Any,  # noqa: ANN401 # reason: a field's value, which the profile checks
) -> list[Decision]:
    """Return what the limits decide about one request at each time.

    times_s: seconds in ascending order; a `Fraction` for an exact nanosecond. table: the default
    table unless given. limits: fields of the profile's section, such as `algorithm="gcra"`. Raises
    `InputError`.

    >>> [one.outcome for one in decide([0] * 51, caller(kind="public"))][49:]
    ['admitted', 'blocked']
    """
    profile = Profile().replace(limits=limits)
    limiter = Limiter({"Default": table or LimitTable.default()}, profile.limits)
    return [limiter.decide(now_ns, who) for now_ns in _ascending_ns(times_s)]


@takes(**TRACE_RULES)
def trace(
    times_s: Sequence[Fraction | float],
    who: Subject,
    *,
    table: LimitTable | None = None,
    **limits: Any,  # noqa: ANN401 # reason: a field's value, which the profile checks
) -> pd.DataFrame:
    """Return decisions as a frame, one row per request: second, outcome, rule, wait_s.

    The arguments are those of `decide`. rule: the one that refuses or delays, else empty.

    >>> trace([0, 1], caller()).to_dict("records")[1]
    {'second': 1.0, 'outcome': 'admitted', 'rule': '', 'wait_s': 0.0}
    """
    import pandas as pd  # noqa: PLC0415 # reason: slow to import, and `decide` needs none

    decided = decide(times_s, who, table=table, **limits)
    return pd.DataFrame(
        {
            "second": [float(time_s) for time_s in times_s],
            "outcome": [decision.outcome for decision in decided],
            "rule": [decision.rule or "" for decision in decided],
            "wait_s": [decision.wait_ns / _SECOND_NS for decision in decided],
        }
    )


@takes(frame=_TRACE)
def refused(frame: pd.DataFrame) -> list[float]:
    """Return the seconds at which a trace was refused, by a throttle or by a block."""
    return list(frame.loc[frame["outcome"].isin(("refused", "blocked")), "second"])


@takes(seconds=SECONDS)
def spans(seconds: Sequence[float]) -> str:
    """Return whole seconds as ranges, in text.

    >>> spans([50, 51, 51.5, 52, 110])
    '50-52, 110'
    """
    rows: list[list[int]] = []
    for second in map(int, seconds):
        if rows and second - rows[-1][1] <= 1:
            rows[-1][1] = second
        else:
            rows.append([second, second])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in rows) or "none"


@takes(rows=_TRACE, zero=FLAG)
def strip(rows: pd.DataFrame, *, zero: bool = True) -> alt.Chart:
    """Return a line of bars for each value of `who`, coloured by outcome.

    rows: second, outcome, and who; drawn in the order of its values.
    Requests of one outcome that follow one another closely are one bar, so that a picture stays
    small however many requests it shows. A refused bar is an outline, a blocked one is filled.
    zero: whether time is shown from 0 on, or from the first request. Raises `InputError` where
    the column `who` is missing.
    """
    import altair as alt  # noqa: PLC0415 # reason: slow to import, and a trace needs none
    import pandas as pd  # noqa: PLC0415 # reason: as above

    from simulator.views.charts import rows_of_bars  # noqa: PLC0415 # reason: as above

    if "who" not in rows:
        raise InputError(
            "'who' must be a column of rows; for one caller write `trace(…).assign(who='a name')`"
        )
    order = list(dict.fromkeys(rows["who"]))
    intervals = [bar for who in order for bar in _bars(rows[rows["who"] == who], str(who))]
    frame = pd.DataFrame(intervals, columns=["who", "outcome", "from", "to"])
    met = [name for name in _BARS if name in set(rows["outcome"])]
    colour_of = {name: _BARS[name][0] for name in met}
    x = alt.X("from:Q", title="seconds", scale=alt.Scale(zero=zero, nice=zero))
    colours = alt.Scale(domain=list(colour_of), range=list(colour_of.values()))
    filled = alt.Scale(domain=list(colour_of), range=[_BARS[name][1] for name in met])
    bars = rows_of_bars(frame, _in_words(rows), x, colour_of, "outcome")
    chart: alt.Chart = (
        bars.properties(width=_STRIP_WIDTH, height=max(_STRIP_ROW * len(order), 40))
        .mark_bar(size=_STRIP_ROW * 0.65, strokeWidth=1.5, aria=False)
        .encode(
            stroke=alt.Stroke("outcome:N", scale=colours, title="outcome"),
            fillOpacity=alt.FillOpacity("outcome:N", scale=filled, title="outcome"),
        )
    )
    return chart


def _in_words(rows: pd.DataFrame) -> str:
    """Return a strip's content in words, for a screen reader."""
    said = []
    for who, mine in rows.groupby("who", sort=False):
        counts = mine["outcome"].value_counts(sort=False)
        said.append(f"{who}: " + ", ".join(f"{n} {outcome}" for outcome, n in counts.items()))
    ends = f"{rows['second'].min():g} to {rows['second'].max():g} s"
    return f"Outcomes of requests over time, {ends}. " + "; ".join(said) + "."


def _bars(rows: pd.DataFrame, who: str) -> list[list[Any]]:
    """Return (who, outcome, from, to): a request lasts until the next, where that is near."""
    seconds, outcomes = rows["second"].tolist(), rows["outcome"].tolist()
    near = 1.5 * float(rows["second"].diff().median()) + 1e-9
    bars: list[list[Any]] = []
    for place, (second, outcome) in enumerate(zip(seconds, outcomes, strict=True)):
        if bars and bars[-1][1] == outcome and second - seconds[place - 1] <= near:
            bars[-1][3] = second
            continue
        if bars and second - seconds[place - 1] <= near:
            bars[-1][3] = second
        bars.append([who, outcome, second, second])
    return bars


def _ascending_ns(times_s: Sequence[Fraction | float]) -> Iterator[int]:
    """Yield times in nanoseconds. Raises `InputError` where they go back."""
    before_ns = 0
    for place, second in enumerate(times_s):
        now_ns = int(Fraction(second).limit_denominator(_SECOND_NS) * _SECOND_NS)
        if now_ns < before_ns:
            raise InputError(
                f"times_s[{place}] = {float(second):g} must not be before"
                f" {before_ns / _SECOND_NS:g} s; sort the times"
            )
        before_ns = now_ns
        yield now_ns


_WIDTH: Final = 640
_LEFT, _RIGHT = 130, 10
_LONGEST_LABEL: Final = 19
"""Characters that fit to the left of the picture; a longer label is drawn narrower."""
_STRIP_HEIGHT, _FILL_HEIGHT, _AXIS_HEIGHT = 24, 90, 26
_SAMPLES: Final = 240
_TICKS: Final = 6
_STEPS: Final = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 60, 100, 120, 200, 300, 600)
_COLOURS: Final = {outcome: colour for outcome, (colour, _) in _BARS.items()}
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


class Mechanism:
    """What a limiter does with some requests, to be shown in a notebook.

    title: stands above the picture. names, limits: of the counters that the requests meet. fills:
    instants and the charges of each counter at them.
    """

    def __init__(
        self,
        title: str,
        steps: Sequence[MechanismStep],
        names: Sequence[str],
        limits: Sequence[int],
        fills: Sequence[tuple[int, tuple[int, ...]]],
    ) -> None:
        self.title, self.steps, self.fills = title, steps, fills
        self.names, self.limits = names, limits
        self._first_ns = steps[0].t_ns
        self._span_ns = max(1, steps[-1].t_ns - self._first_ns)
        self._lanes = list(dict.fromkeys(step.lane for step in steps))
        self._peaks = [max(used[n] for _, used in fills) for n in range(len(names))]
        # A counter that never fills a twentieth would be a flat line.
        self._shown = [n for n, peak in enumerate(self._peaks) if peak >= limits[n] / 20]
        self._top = len(self._lanes) * _STRIP_HEIGHT + 8

    @property
    def text(self) -> str:
        """The picture in words, for a reader who does not see it."""
        parts = []
        for lane in self._lanes:
            outcomes = [str(step.decision.outcome) for step in self.steps if step.lane == lane]
            counts = {outcome: outcomes.count(outcome) for outcome in _COLOURS}
            text = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
            parts.append(f"{lane}: {text}" if lane else text)
        fills = [
            f"{name} fills to {peak} of {limit}"
            for name, peak, limit in zip(self.names, self._peaks, self.limits, strict=True)
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
        svg = self._svg()
        digest = hashlib.sha256(f"{self.title}{svg}".encode()).hexdigest()
        identity = f"mechanism-{digest[:8]}"
        steps = [self._step(step) for step in self.steps]
        data = json.dumps(steps, ensure_ascii=False, separators=(",", ":"))
        script = _SCRIPT.replace("ID", identity).replace("DATA", data.replace("</", "<\\/"))
        return (
            f'<div id="{identity}" class="mechanism"><b>{html.escape(self.title)}</b>'
            f" &nbsp; <small>{self._legend}</small><br>"
            f"{svg}"
            f'<p class="scrub" hidden><input type="range" min="0" max="{len(self.steps) - 1}"'
            f' value="0" style="width:{_WIDTH - _LEFT - _RIGHT}px;margin-left:{_LEFT}px"'
            ' aria-label="request"><br><output></output></p>'
            f"<script>{script}</script></div>"
        )

    def _x(self, t_ns: int) -> float:
        share = (t_ns - self._first_ns) / self._span_ns
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)

    def _y(self, used: int, limit: int) -> float:
        return round(self._top + _FILL_HEIGHT * (1 - used / limit), 1)

    def _step(self, step: MechanismStep) -> dict[str, float | str]:
        decision = step.decision
        fills = ", ".join(
            f"{self.names[n]} {step.used[n]} of {self.limits[n]}" for n in self._shown
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
        words = html.escape(self.text, quote=True)
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
            for step in self.steps:
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
        parts = []
        for colour, n in zip(_LINES, self._shown, strict=False):
            limit = self.limits[n]
            points = " ".join(
                f"{self._x(t_ns)},{self._y(used[n], limit)}" for t_ns, used in self.fills
            )
            place = self._shown.index(n)
            parts.append(
                f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
            )
            label = f"{self.names[n]}, {limit}"
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
    return Mechanism(title, steps, names, bounds, fills)


def _label(text: str, y: float, colour: str = "currentColor") -> str:
    narrow = f' textLength="{_LEFT - 10}" lengthAdjust="spacingAndGlyphs"'
    width = narrow if len(text) > _LONGEST_LABEL else ""
    return (
        f'<text x="{_LEFT - 8}" y="{y}" text-anchor="end" fill="{colour}"{width}>'
        f"{html.escape(text)}</text>"
    )
