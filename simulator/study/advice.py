"""What advice says: suggestions, the tables they rest on, and how both are shown and written."""

from __future__ import annotations

import difflib
import html
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import pandas as pd
from markupsafe import Markup

from simulator.scenario import Scenario, dump, with_values
from simulator.study.comparison import Difference
from simulator.study.run_size import Edits
from simulator.views import charts, svg
from simulator.views.report import study_page, table_html
from simulator.views.text import percent_text

if TYPE_CHECKING:
    import altair as alt

About: TypeAlias = Literal["cause", "pace", "batch", "retry", "keys", "addresses", "limit"]

_HEADINGS: Final = {
    "binding": "Bottleneck",
    "headroom": "How full the fullest counter was",
    "pace": "Largest pace",
    "retry": "What retrying costs",
    "limit": "Smallest limit that meets the target, and its price",
}
_SHARES: Final = frozenset(
    (
        *("refused_share", "low", "high", "explains", "explains_low", "explains_high"),
        *("median", "p99", "most", "refused_after_a_block"),
    )
)
"""Columns of the frames that hold shares."""
_TITLES: Final = {
    "refused_share": "refused",
    "low": "refused, from",
    "high": "refused, to",
    "explains": "less without the clause",
    "explains_low": "less, from",
    "explains_high": "less, to",
    "now": "today",
    "keeps": "target met at",
    "breaks": "target not met at",
    "estimate": "border about",
    "attempts_per_success": "attempts per success",
    "refused_after_a_block": "refused after a block",
    "enough": "target met at",
    "too_low": "target not met at",
    "price_now": "most in a window, today",
    "price": "most in a window, with that limit",
}
"""What the columns of the frames are called in text."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A change, what it does, and how sure that is.

    group: whom it is for. edits: path and value, as `with_value` takes them. effects: on the group.
    target: whether the change claims to meet the target. verified: what fresh runs with the change
    say; empty without edits.
    """

    group: str
    about: About
    text: str
    edits: Edits = ()
    effects: tuple[Difference, ...] = ()
    target: bool = False
    verified: str = ""

    def applied_to(self, scenario: Scenario) -> Scenario:
        """Return the scenario with the change."""
        return with_values(scenario, self.edits)

    def diff(self, scenario: Scenario) -> str:
        """Return the change as a unified diff of the scenario's file, every default written out."""
        before, after = (
            dump(scenario_of_side).splitlines()
            for scenario_of_side in (scenario, self.applied_to(scenario))
        )
        lines = difflib.unified_diff(before, after, "scenario.toml", "scenario.toml", lineterm="")
        return "\n".join(lines)


@dataclass(slots=True)
class Advice:
    """What `advise` found.

    refused: the share that may be refused. runs: under each change. suggestions: what refuses a
    group, and the changes that help it, each verified in runs under fresh seeds; those that fresh
    runs contradict are in `contradicted` alone. unfinished: why it ended early; empty where it
    did not.

    Frames: `binding` (group × clause: the share it refuses, and the share that would be refused
    less without it), `headroom` (rule: how full its fullest counter was), `pace`, `retry`, `limit`
    and `tradeoff` (each limit that was played, its price, and what is refused under it).
    """

    scenario: Scenario
    refused: float
    runs: int
    binding: pd.DataFrame = field(default_factory=pd.DataFrame)
    headroom: pd.DataFrame = field(default_factory=pd.DataFrame)
    pace: pd.DataFrame = field(default_factory=pd.DataFrame)
    retry: pd.DataFrame = field(default_factory=pd.DataFrame)
    limit: pd.DataFrame = field(default_factory=pd.DataFrame)
    tradeoff: pd.DataFrame = field(default_factory=pd.DataFrame)
    suggestions: list[Suggestion] = field(default_factory=list)
    contradicted: list[Suggestion] = field(default_factory=list)
    unfinished: str = ""

    @property
    def frames(self) -> dict[str, pd.DataFrame]:
        """Every frame that holds something, by its heading."""
        frames = {heading: getattr(self, name) for name, heading in _HEADINGS.items()}
        return {heading: frame for heading, frame in frames.items() if len(frame)}

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The frames as text: titles instead of names, and shares in percent."""
        return {
            heading: frame.assign(
                **{
                    name: frame[name].map(percent_text, na_action="ignore")
                    for name in frame
                    if name in _SHARES
                }
            ).rename(columns=_TITLES)
            for heading, frame in self.frames.items()
        }

    @property
    def changes(self) -> pd.DataFrame:
        """A line an effect of a suggestion: before, after, and the interval of the difference."""
        return pd.DataFrame(
            [
                (
                    *(suggestion.group, suggestion.about, suggestion.text, effect.metric),
                    *(effect.a, effect.b, effect.change.low, effect.change.high),
                    effect.is_sure,
                )
                for suggestion in self.suggestions
                for effect in suggestion.effects
            ],
            columns=["group", "about", "says", "metric", "before", "after", "low", "high", "sure"],
        )

    @property
    def lead(self) -> str:
        """The advice in one sentence: what refuses the group refused most, and what helps most."""
        changes = [
            suggestion
            for suggestion in self.suggestions
            if suggestion.effects and suggestion.about != "batch"
        ]
        if changes:
            group = max(changes, key=lambda change: change.effects[0].a).group
        elif self.suggestions:
            group = self.suggestions[0].group
        else:
            why = "no change helped in fresh runs" if len(self.binding) else "nothing is refused"
            return f"No change is suggested: {why}."
        causes = [
            suggestion.text
            for suggestion in self.suggestions
            if (suggestion.group, suggestion.about) == (group, "cause")
        ]
        helps = [change for change in changes if change.group == group]
        parts = [f"{group}: {_first_part(causes[0])}"] if causes else []
        if helps:
            best = min(helps, key=lambda change: change.effects[0].b)
            parts.append(f"what helps {group} most: {_first_part(best.text)}")
        return "; ".join(parts or [_first_part(self.suggestions[0].text)]) + "."

    def chart(self) -> alt.LayerChart | alt.FacetChart:
        """Draw the trade-off: what is refused under each limit, against the limit's price."""
        return charts.estimates(self._estimates())

    def _estimates(self) -> charts.Estimates:
        """Return the chart of the trade-off; the few runs of a coarse search have no interval."""
        rows = [
            charts.PlottedEstimate(
                line["price"],
                line["refused_share"],
                line["low"] if line["verdict"] else math.nan,
                line["high"] if line["verdict"] else math.nan,
                line["group"],
                "decided" if line["verdict"] else "coarse search",
                f"{line['group']} at {line['limit']}: {percent_text(line['refused_share'])} refused"
                f" ({percent_text(line['low'])} to {percent_text(line['high'])}),"
                f" {line['runs']} runs",
            )
            for line in self.tradeoff.to_dict("records")
        ]
        groups = dict.fromkeys(row.series for row in rows)
        return charts.Estimates(
            "The refused share under each simulated limit, against the most that one caller could"
            " then send in a window. Values of the coarse search have a few runs; the others have"
            " an interval.",
            "most that one caller can send in a window",
            "refused share",
            "group and rule",
            "runs",
            {group: f"c{place % len(charts.CLAUSES)}" for place, group in enumerate(groups)},
            rows,
        )

    def write_to(self, folder: Path) -> None:
        """Write `advice.html`, a CSV file a frame, and each suggestion's diff into a folder."""
        for name in (*_HEADINGS, "tradeoff", "changes"):
            getattr(self, name).to_csv(folder / f"{name}.csv", index=False)
        for number, suggestion in enumerate(self.suggestions, 1):
            if suggestion.edits:
                name = f"{number:02d}-{suggestion.group}-{suggestion.about}.diff"
                (folder / name).write_text(suggestion.diff(self.scenario) + "\n", "utf-8")
        page = self._repr_html_()
        if len(self.tradeoff):
            chart = self._estimates()
            legend = Markup("").join(
                Markup('<li><span class="dot {}"></span>{}</li>').format(css, group)
                for group, css in chart.colours.items()
            )
            page += (
                "<h4>What a higher limit costs</h4><p>A bar is the interval of a value that was"
                " decided; pale dots are the few runs of the coarse search.</p>"
                f"<ul class='legend'>{legend}</ul>"
                f"<div class='chart slim'>{svg.estimates(chart).markup()}</div>"
            )
        (folder / "advice.html").write_text(study_page("Advice", page), "utf-8")

    def _repr_html_(self) -> str:
        parts = [
            f"<h3>Advice for {html.escape(self.scenario.name)}</h3>",
            f"<p><b>{html.escape(self.lead)}</b></p>",
        ]
        if self.unfinished:
            parts.append(f"<p>Unfinished: {html.escape(self.unfinished)}.</p>")
        lines = "".join(
            f"<li><b>{html.escape(suggestion.group)}</b>: {html.escape(suggestion.text)}"
            f"{' ' + html.escape(suggestion.verified) if suggestion.verified else ''}</li>"
            for suggestion in self.suggestions
        )
        parts.append(f"<ul>{lines}</ul>")
        for name, frame in self.tables.items():
            parts.append(f"<h4>{name}</h4>{table_html(frame)}")
        return "".join(parts)


def _first_part(text: str) -> str:
    """Return what a suggestion says before its details."""
    return text.partition("; ")[0].partition(": fair share")[0].rstrip(".")
