"""Sliders over a scenario; each move of a slider makes a compiled run.

The explorer is a scenario and some *knobs*, each a path in it with its range; the widgets only
show them. A knob changes the scenario by `with_value`, so a picture is an ordinary run. The
picture shows what was admitted and refused, bin by bin, as inline SVG.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, get_args

import numpy as np

from engine.errors import InputError
from engine.files import format_duration
from engine.profile import Algorithm
from simulator.arguments import TEXT, Rule, optional, takes
from simulator.options import SCENARIO, ScenarioLike, resolve
from simulator.play import simulate
from simulator.play.compiled import cannot_play, warm_up
from simulator.progress import tell_line
from simulator.rows import Result
from simulator.rows.record import PASSED
from simulator.scenario import Scenario, limits_of, profile_of, with_values
from simulator.scenario.draws import ConstantArrivals, PoissonArrivals
from simulator.views import ADMITTED, REFUSED

__all__ = ["Explorer", "Knob", "explore", "picture"]

_ALGORITHM: Final = "choices.limits.algorithm"
_WIDER: Final = 4
_VALUES: Final = Rule(
    'paths in the scenario, each with a value, such as {"clients.browsers.count": 3}',
    lambda values: isinstance(values, Mapping) and all(map(TEXT.holds, values)),
)


@dataclass(frozen=True, slots=True)
class Knob:
    """A value that can be changed: its path, and the range of its slider.

    window: of a rate, whose N is turned; None where the value is the number itself.
    """

    label: str
    path: str
    value: int
    most: int
    window: str | None = None

    def written(self, value: int) -> Any:  # noqa: ANN401 # reason: a number or a text
        """Return the value as a file would hold it."""
        return value if self.window is None else f"{value}/{self.window}"


class Explorer:
    """A scenario with knobs; in a notebook it shows sliders and a picture.

    knobs: clients of each group, rates of open groups, limits of the rules that requests met.
    `play` runs it with other values; `static` is the picture of the unchanged scenario, for
    readers of a notebook that does not run.
    """

    def __init__(self, scenario: Scenario) -> None:
        if reason := cannot_play(scenario):
            raise InputError(f"explore is compiled, limits alone, and {reason}; use run")
        warm_up(tell_line)
        self.scenario = scenario
        self.algorithm: Algorithm = profile_of(scenario).limits.algorithm
        base = self.play()
        self.knobs = _knobs(scenario, base)
        self.static = picture(base, "as it stands")
        self._widget: Any = None

    @takes(values=optional(_VALUES))
    def play(self, values: Mapping[str, Any] | None = None) -> Result:
        """Run the scenario with some values changed, by path, and return the result."""
        scenario = with_values(self.scenario, (values or {}).items())
        return simulate(scenario, fidelity="compiled", check=False)

    def draw(self, values: Mapping[str, Any] | None = None) -> str:
        """Return the picture with some values changed; a fault as one line."""
        try:
            return picture(self.play(values), "with these values")
        except InputError as fault:
            return f"<p>{html.escape(str(fault))}</p>"

    @property
    def widget(self) -> Any:  # noqa: ANN401 # reason: ipywidgets has no types
        """The sliders with both pictures. Raises `InputError` without ipywidgets."""
        if self._widget is None:
            self._widget = _widget(self)
        return self._widget

    def _repr_mimebundle_(self, **options: Any) -> Any:  # noqa: ANN401 # reason: IPython's protocol
        bundle = self.widget._repr_mimebundle_(**options)  # reason: IPython's protocol
        data = dict(bundle[0] if isinstance(bundle, tuple) else bundle or {})
        data["text/html"] = self.static
        return data


@takes(scenario=SCENARIO)
def explore(scenario: ScenarioLike) -> Explorer:
    """Return sliders over a scenario, to be the last line of a notebook's cell.

    Raises `InputError` for a scenario that cannot be, or that compiled code cannot play.
    """
    return Explorer(resolve(scenario))


def _knobs(scenario: Scenario, base: Result) -> list[Knob]:
    knobs = []
    for place, group in enumerate(scenario.clients):
        path = f"clients[{place}]"
        most = max(10, _WIDER * group.count)
        knobs.append(Knob(f"{group.name}: clients", f"{path}.count", group.count, most))
        if isinstance(group.arrivals, ConstantArrivals | PoissonArrivals):
            limit, window_ns = group.arrivals.rate
            window = format_duration(window_ns)
            label = f"{group.name}: requests / {window}"
            knobs.append(Knob(label, f"{path}.arrivals.rate", limit, _WIDER * limit, window))
    met = {line["clause"] for line in base.summary["clauses"] if line["offered"]}
    for rule in limits_of(scenario):
        if rule.id in met:
            window = format_duration(rule.window_ns)
            limit = rule.limit_requests
            knobs.append(
                Knob(
                    f"{rule.id} / {window}", f"rules.{rule.id}.rate", limit, _WIDER * limit, window
                )
            )
    return knobs


def _widget(explorer: Explorer) -> Any:  # noqa: ANN401 # reason: ipywidgets has no types
    try:
        import ipywidgets as _ipywidgets  # noqa: PLC0415 # reason: an optional dependency
    except ImportError:
        raise InputError("explore must have ipywidgets; install tollgate[notebooks]") from None
    widgets: Any = _ipywidgets
    sliders = {
        knob: widgets.IntSlider(
            value=knob.value,
            min=min(1, knob.value),
            max=knob.most,
            description=knob.label,
            continuous_update=True,
            style={"description_width": "16em"},
            layout={"width": "36em"},
        )
        for knob in explorer.knobs
    }
    algorithm = widgets.Dropdown(
        options=get_args(Algorithm),
        value=explorer.algorithm,
        description="algorithm",
        style={"description_width": "16em"},
        layout={"width": "28em"},
    )
    drawn = widgets.HTML(value=explorer.draw())

    def follow(change: Any) -> None:  # noqa: ANN401 # reason: the traitlet's change
        del change
        values = {
            knob.path: knob.written(slider.value)
            for knob, slider in sliders.items()
            if slider.value != knob.value
        }
        if algorithm.value != explorer.algorithm:
            values[_ALGORITHM] = algorithm.value
        drawn.value = explorer.draw(values)

    for control in (*sliders.values(), algorithm):
        control.observe(follow, names="value")
    pictures = widgets.VBox([drawn, widgets.HTML(value=explorer.static)])
    return widgets.HBox([widgets.VBox([*sliders.values(), algorithm]), pictures])


BINS: Final = 60
_WIDTH: Final = 640
_HEIGHT: Final = 210
_LEFT: Final = 52
_TOP: Final = 40
_BOTTOM: Final = 36


def picture(result: Result, title: str) -> str:
    """Return a stacked bar a bin of time: admitted below, refused above."""
    end_ns = result.summary["duration_ns"]
    edges = np.linspace(0, end_ns, BINS + 1)
    table = result.table.select(["t_ns", "outcome"])
    t_ns = table.column("t_ns").to_numpy()
    outcome = table.column("outcome").cast("string").to_numpy(zero_copy_only=False)
    good = np.isin(outcome, PASSED)
    admitted, _ = np.histogram(t_ns[good], edges)
    refused, _ = np.histogram(t_ns[~good], edges)
    return _svg(admitted, refused, end_ns / 1e9, _words(result, title))


def _words(result: Result, title: str) -> str:
    totals = result.summary["totals"]
    return (
        f"{title}: {totals['offered']:,} attempts, {totals['refused_share']:.1%} refused, "
        f"{totals['succeeded']:,} of {totals['requests']:,} requests succeeded"
    )


def _svg(admitted: Any, refused: Any, end_s: float, words: str) -> str:  # noqa: ANN401 # reason: arrays
    highest = max(1, int((admitted + refused).max(initial=0)))
    high, width = _HEIGHT - _TOP - _BOTTOM, (_WIDTH - _LEFT - 8) / BINS
    bars = []
    for place, (low, top) in enumerate(zip(admitted.tolist(), refused.tolist(), strict=True)):
        x, foot = _LEFT + place * width, float(_HEIGHT - _BOTTOM)
        for count, colour in ((low, ADMITTED), (top, REFUSED)):
            size = high * count / highest
            foot -= size
            if count:
                bars.append(
                    f'<rect x="{x:.1f}" y="{foot:.1f}" width="{width - 1:.1f}" '
                    f'height="{size:.1f}" fill="{colour}"/>'
                )
    base, middle = _HEIGHT - _BOTTOM, (_LEFT + _WIDTH) // 2
    legend = "".join(
        f'<rect x="{x}" y="20" width="10" height="10" fill="{colour}"/>'
        f'<text x="{x + 14}" y="29">{name}</text>'
        for x, name, colour in ((_LEFT, "let in", ADMITTED), (_LEFT + 70, "refused", REFUSED))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{_escaped(words)}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" font-family="sans-serif" '
        f'font-size="11"><text x="{_LEFT}" y="13">{_escaped(words)}</text>{legend}{"".join(bars)}'
        f'<line x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{base}" y2="{base}" stroke="#888"/>'
        f'<text x="{_LEFT - 4}" y="{_TOP + 8}" text-anchor="end">{highest:,}</text>'
        f'<text x="{_LEFT - 4}" y="{base}" text-anchor="end">0</text>'
        f'<text transform="translate(12 {_TOP + high // 2}) rotate(-90)" text-anchor="middle">'
        f"attempts in {end_s / BINS:g} s</text>"
        f'<text x="{_LEFT}" y="{base + 14}">0</text>'
        f'<text x="{middle}" y="{base + 28}" text-anchor="middle">seconds of the run</text>'
        f'<text x="{_WIDTH - 8}" y="{base + 14}" text-anchor="end">{end_s:,.0f}</text></svg>'
    )


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
