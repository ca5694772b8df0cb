"""Sliders over a scenario; each move of a slider makes a compiled run.

The explorer is a scenario and some *knobs*, each a path in it with its range; the widgets only
show them. A knob changes the scenario by `with_value`, so a picture is an ordinary run. The
picture shows what was admitted and what each clause refused, as the report's page does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Thread
from typing import Any, Final, get_args

from markupsafe import Markup

from engine.errors import InputError
from engine.files import Rate, format_duration
from engine.profile import Algorithm
from simulator.arguments import TEXT, ArgumentRule, optional, takes
from simulator.options import SCENARIO, ScenarioLike, resolve
from simulator.play.simulation import Fidelity, is_compiled, simulate, warm_up
from simulator.rows import Result
from simulator.rows.findings import PARTS, Findings, gather
from simulator.scenario import Scenario, limits_of, profile_of, with_values
from simulator.scenario.draws import ConstantArrivals, PoissonArrivals
from simulator.scenario.model import needs_bodies
from simulator.views import charts
from simulator.views.svg import rates_compared
from simulator.views.text import Axis, percent_text

AS_IT_STANDS: Final = "as it stands"
_ALGORITHM: Final = "choices.limits.algorithm"
_WIDER: Final = 4
_VALUES: Final = ArgumentRule(
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
    positions: some settings of them by name. `play` runs it with other values;
    `static` is the picture of the positions, for readers of a notebook that does not run.
    """

    def __init__(self, scenario: Scenario) -> None:
        if reason := needs_bodies(scenario):
            raise InputError(f"explore is compiled, limits alone, and {reason}; use run")
        self.scenario = scenario
        self.algorithm: Algorithm = profile_of(scenario).limits.algorithm
        self._compiler = Thread(target=warm_up, daemon=True)
        if not is_compiled():
            self._compiler.start()
        self._base = self._play({})
        self.knobs = _knobs(scenario, self._base)
        self.positions = _positions(self._base, self.knobs)
        self._widget: Any = None

    @takes(values=optional(_VALUES))
    def play(self, values: Mapping[str, Any] | None = None) -> Result:
        """Run the scenario with some values changed, by path, and return the result."""
        if self.is_compiling:
            self._compiler.join()
        return self._play(values or {})

    def _play(self, values: Mapping[str, Any]) -> Result:
        """Run with some values; while the simulation compiles, at the fidelity that needs none."""
        scenario = with_values(self.scenario, values.items())
        fidelity: Fidelity = "limits" if self.is_compiling else "compiled"
        return simulate(scenario, fidelity=fidelity, check=False)

    @property
    def is_compiling(self) -> bool:
        """Whether the simulation is being compiled, as it is once on a machine."""
        return self._compiler.is_alive()

    @property
    def static(self) -> str:
        """The picture of the positions, as SVG."""
        return picture({name: self._play(_values(at)) for name, at in self.positions.items()})

    def draw(self, values: Mapping[str, Any] | None = None) -> str:
        """Return the picture with some values changed; a fault as one line."""
        try:
            now = self._play(values or {})
        except InputError as fault:
            return Markup("<p>{}</p>").format(fault)
        return picture({"with these values": now, AS_IT_STANDS: self._base})

    @property
    def widget(self) -> Any:  # noqa: ANN401 # reason: ipywidgets has no types
        """The sliders with their picture. Raises `InputError` without ipywidgets."""
        if self._widget is None:
            self._widget = _widget(self)
        return self._widget

    def when_compiled(self, call: Callable[[], None]) -> None:
        """Call a function once the simulation is compiled, from another thread."""

        def wait() -> None:
            self._compiler.join()
            call()

        Thread(target=wait, daemon=True).start()

    def _repr_mimebundle_(self, **options: Any) -> Any:  # noqa: ANN401 # reason: IPython's protocol
        bundle = self.widget._repr_mimebundle_(**options)  # reason: IPython's protocol
        data = dict(bundle[0] if isinstance(bundle, tuple) else bundle or {})
        data["image/svg+xml"] = self.static
        return data


@takes(scenario=SCENARIO)
def explore(scenario: ScenarioLike) -> Explorer:
    """Return sliders for a scenario's parameters; put the call at the end of a notebook cell.

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


def _values(turned: Mapping[Knob, int]) -> dict[str, Any]:
    """Return path → value, as a file would hold it."""
    return {knob.path: knob.written(value) for knob, value in turned.items()}


def _positions(base: Result, knobs: Sequence[Knob]) -> dict[str, dict[Knob, int]]:
    """Return as it stands, the limit that refuses most at its highest, and each rate at a tenth."""
    positions: dict[str, dict[Knob, int]] = {AS_IT_STANDS: {}}
    most = max(base.summary["clauses"], key=lambda line: line["refused"], default=None)
    for knob in knobs:
        if most is not None and most["refused"] and knob.path == f"rules.{most['clause']}.rate":
            positions[f"{knob.label} = {knob.most}"] = {knob: knob.most}
        elif knob.path.endswith(".arrivals.rate") and knob.value > 1:
            tenth = max(1, knob.value // 10)
            positions[f"{knob.label} = {tenth}"] = {knob: tenth}
    return positions


def _widget(explorer: Explorer) -> Any:  # noqa: ANN401 # reason: ipywidgets has no types
    try:
        import ipywidgets as _ipywidgets  # noqa: PLC0415 # reason: an optional dependency
    except ImportError:
        raise InputError("explore must have ipywidgets; install tollgate[notebooks]") from None
    widgets: Any = _ipywidgets
    sliders, algorithm = _controls(explorer, widgets)
    controls = (*sliders.values(), algorithm)
    drawn = widgets.HTML(value=explorer.draw())
    is_held = False

    def follow(_change: object = None) -> None:
        if is_held:
            return
        turned = {knob: s.value for knob, s in sliders.items() if s.value != knob.value}
        values = _values(turned)
        if algorithm.value != explorer.algorithm:
            values[_ALGORITHM] = algorithm.value
        drawn.value = explorer.draw(values)

    def button(name: str, position: Mapping[Knob, int]) -> Any:  # noqa: ANN401 # reason: ipywidgets has no types
        def put(_pressed: object) -> None:
            nonlocal is_held
            is_held = True
            for knob, slider in sliders.items():
                slider.value = position.get(knob, knob.value)
            algorithm.value = explorer.algorithm
            is_held = False
            follow()

        made = widgets.Button(description=name, layout={"width": "auto"})
        made.on_click(put)
        return made

    for control in controls:
        control.observe(follow, names="value")
    in_rows = {"flex_flow": "row wrap"}
    buttons = [button(*position) for position in explorer.positions.items()]
    return widgets.VBox(
        [
            widgets.HBox(buttons, layout=in_rows),
            widgets.HBox([*controls], layout=in_rows),
            _state(explorer, widgets),
            drawn,
        ]
    )


def _controls(explorer: Explorer, widgets: Any) -> tuple[dict[Knob, Any], Any]:  # noqa: ANN401 # reason: ipywidgets has no types
    style = {"description_width": "13em"}
    sliders = {
        knob: widgets.IntSlider(
            value=knob.value,
            min=min(1, knob.value),
            max=knob.most,
            description=knob.label,
            continuous_update=True,
            style=style,
            layout={"width": "27em"},
        )
        for knob in explorer.knobs
    }
    algorithm = widgets.Dropdown(
        options=get_args(Algorithm),
        value=explorer.algorithm,
        description="algorithm",
        style=style,
        layout={"width": "24em"},
    )
    return sliders, algorithm


def _state(explorer: Explorer, widgets: Any) -> Any:  # noqa: ANN401 # reason: ipywidgets has no types
    """Return a line that says so while the simulation is compiled."""
    line = widgets.HTML()
    if explorer.is_compiling:
        line.value = (
            "Compiling the simulation, once on this machine (below half a minute). Meanwhile a"
            " move of a slider takes a second or more."
        )

        def clear() -> None:
            line.value = ""

        explorer.when_compiled(clear)
    return line


_BINS: Final = 60
_STYLE: Final = Markup(
    "<style>.explorer text {{ font: 8px sans-serif }} .explorer .mid {{ text-anchor: middle }}"
    " .explorer .end {{ text-anchor: end }} .explorer .grid, .explorer .axis {{ stroke: #bbb;"
    " fill: none }} {}</style></svg>"
)
"""What the page's style sheet would say, which a notebook does not have."""
_SVG: Final = Markup(
    '<svg xmlns="http://www.w3.org/2000/svg" class="explorer" width="560" height="{:.0f}"'
    ' style="max-width: 100%; background: white" '
)
_WIDE: Final = 560 / 420
"""A picture in a notebook beside the same on a page."""


def picture(results: Mapping[str, Result]) -> str:
    """Return stacked bars over time: what was admitted, and above it what each clause refused.

    results: by what they are called. All are drawn on one scale, in the same colours.
    """
    gathered: dict[str, Findings] = {}
    colours: dict[str, str] = {}
    for name, result in results.items():
        rows = result.table.select(list(PARTS["timeline"]))
        findings = gather(rows.to_batches(), result.summary, bins=_BINS)
        heading = _in_words(name, result.summary["totals"])
        gathered[heading] = findings
        for clause in charts.clause_colours(result.summary, findings):
            colours.setdefault(clause, f"c{len(colours) % len(charts.CLAUSES)}")
    stacks = {
        heading: charts.timeline(
            findings, {clause: css for clause, css in colours.items() if clause in findings.refused}
        )
        for heading, findings in gathered.items()
    }
    longest_ns = max(findings.end_ns for findings in gathered.values())
    drawing = rates_compared(stacks, Axis(longest_ns), "; ".join(stacks))
    legend = {"admitted": "admitted", **colours}
    drawing.height += 18
    drawing.text(46, drawing.height - 4, "requests a second:", "tick")
    x = 140.0
    for name, css in legend.items():
        drawing.rect(x, drawing.height - 12, 8, 8, css)
        words = name if css == "admitted" else f"refused by {name}"
        drawing.text(x + 12, drawing.height - 4, words, "tick")
        x += 24 + 5 * len(words)
    fills = " ".join(
        f".explorer .{css} {{ fill: {charts.COLOURS[css]} }}" for css in legend.values()
    )
    drawn = drawing.markup().replace("<svg ", _SVG.format(_WIDE * drawing.height), 1)
    return drawn.replace(Markup("</svg>"), _STYLE.format(fills))


def _in_words(name: str, totals: Mapping[str, Any]) -> str:
    return (
        f"{name}: {totals['offered']:,} attempts, {percent_text(totals['refused_share'])} refused, "
        f"{totals['succeeded']:,} of {totals['requests']:,} requests succeeded"
    )
