"""Sliders over a scenario; each move of a slider makes a compiled run.

The explorer is a scenario and some *knobs*, each a path in it with its range; the widgets only
show them. A knob changes the scenario by `with_value`, so a picture is an ordinary run. The
picture shows what was let in and what each clause refused, as the report's page does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, get_args

from markupsafe import Markup

from engine.errors import InputError
from engine.files import Rate, format_duration
from engine.profile import Algorithm
from simulator.arguments import TEXT, Rule, optional, takes
from simulator.options import SCENARIO, ScenarioLike, resolve
from simulator.play.simulation import simulate, warm_up
from simulator.rows import Result
from simulator.scenario import Scenario, limits_of, profile_of, with_values
from simulator.scenario.draws import ConstantArrivals, PoissonArrivals
from simulator.scenario.model import needs_bodies
from simulator.views import charts
from simulator.views.findings import PARTS, gather
from simulator.views.svg import rates
from simulator.views.text import Axis

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
        if reason := needs_bodies(scenario):
            raise InputError(f"explore is compiled, limits alone, and {reason}; use run")
        warm_up()
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
            return Markup("<p>{}</p>").format(fault)

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
            name = f"{group.name}: requests"
            knobs.append(_of_rate(name, f"{path}.arrivals.rate", group.arrivals.rate))
    met = {line["clause"] for line in base.summary["clauses"] if line["offered"]}
    rules = [rule for rule in limits_of(scenario) if rule.id in met]
    return knobs + [_of_rate(rule.id, f"rules.{rule.id}.rate", rule.rate) for rule in rules]


def _of_rate(name: str, path: str, rate: Rate) -> Knob:
    limit, window = rate.limit_requests, format_duration(rate.window_ns)
    return Knob(f"{name} / {window}", path, limit, _WIDER * limit, window)


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


_BINS: Final = 60
_STYLE: Final = Markup(
    "<style>.explorer text {{ font: 11px sans-serif }} .explorer .mid {{ text-anchor: middle }}"
    " .explorer .end {{ text-anchor: end }} .explorer .grid, .explorer .axis {{ stroke: #bbb;"
    " fill: none }} {}</style></svg>"
)
"""What the page's style sheet would say, which a notebook does not have."""


def picture(result: Result, title: str) -> str:
    """Return stacked bars over time: what was let in, and above it what each clause refused."""
    summary, totals = result.summary, result.summary["totals"]
    rows = result.table.select(list(PARTS["timeline"]))
    findings = gather(rows.to_batches(), summary, bins=_BINS)
    words = (
        f"{title}: {totals['offered']:,} attempts, {totals['refused_share']:.1%} refused, "
        f"{totals['succeeded']:,} of {totals['requests']:,} requests succeeded"
    )
    chart = charts.timeline(findings, charts.clause_colours(summary, findings))
    chart = replace(chart, title=words)
    drawn = rates(chart, Axis(findings.end_ns)).markup()
    colours = {each.css: charts.COLOURS[each.css] for each in chart.series}
    fills = " ".join(f".explorer .{css} {{ fill: {fill} }}" for css, fill in colours.items())
    head = Markup('<svg class="explorer" width="640" ')
    drawn = drawn.replace("<svg ", head).replace(Markup("</svg>"), _STYLE.format(fills))
    legend = Markup(" ").join(
        Markup('<span style="color: {}">■</span> {}').format(colours[each.css], each.name)
        for each in chart.series
    )
    return drawn + Markup("<p>{}<br>{}</p>").format(words, legend)
