"""How a fit is shown: on a terminal, in a notebook, and as charts."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import pandas as pd

from engine.files import format_duration
from simulator.study.fit.model import unit_of
from simulator.views.charts import Band, Estimate, Estimates, band, estimates
from simulator.views.text import plain_table

if TYPE_CHECKING:
    import altair as alt
    from rich.console import Group

    from simulator.study.fit._fit import Fit
    from simulator.study.fit.judge import Judgement, Line
    from simulator.study.fit.model import FittedGroup


def as_text(fit: Fit) -> Group:
    """Return what a terminal shows of a fit."""
    from rich.console import Group  # noqa: PLC0415 # reason: loads only where it is shown
    from rich.text import Text  # noqa: PLC0415 # reason: as above

    rest = ("how they ask", "after a refusal")
    groups = plain_table(["group"], ("clients", "requests"), rest, wraps=("group", *rest))
    for group in fit.model.groups:
        counts = f"{group.count.value:,.0f}", f"{group.rows:,}"
        groups.add_row(group.name, *counts, _pace(group), _retry(group))
    parts: list[Any] = [Text(_head(fit)), Text(), groups]
    if fit.judgement is not None:
        what, *sides, agrees = _columns(fit.judgement)
        table = plain_table([what], sides, [agrees])
        for row in _rows(fit.judgement):
            table.add_row(*row)
        parts += [Text(), Text(_judged(fit)), Text(), table]
    if fit.lost:
        parts += [Text(), Text("Limits of this fit:")]
        parts += [Text(f"- {words}") for words in fit.lost]
    return Group(*parts)


def _columns(found: Judgement) -> tuple[str, ...]:
    played = "predicted" if found.predicted else "scenario"
    return "measure", "log", played, "95 % of runs lie in", ""


def _rows(found: Judgement) -> list[list[str]]:
    """Return the measures that the log or the runs have, as `_columns` names the parts of each."""
    return [_cells(line) for line in found.lines if line.log or line.high]


def _head(fit: Fit) -> str:
    summary = fit.summary
    span = format_duration(summary["span_ns"] // 1_000_000_000 * 1_000_000_000)
    words = (
        f"{summary['log']}: {summary['requests']:,} requests of {summary['clients']:,} clients in "
        f"{span}"
    )
    if summary["unparsed"]:
        words += f"; {summary['unparsed']:,} lines did not parse"
    return words


def _judged(fit: Fit) -> str:
    found = fit.judgement
    assert found is not None, "it is judged"
    runs = f"{found.runs} runs of the scenario under the same limits"
    if fit.holdout is None:
        return f"Log and scenario side by side; {runs}:"
    return f"The last {fit.holdout:.0%} of the time, predicted from what came before; {runs}:"


def _pace(group: FittedGroup) -> str:
    pace = group.pace
    rate = pace.rate
    low, high = rate.low, rate.high
    factor, unit = unit_of(rate.value)
    return (
        f"{pace.loop}, {pace.kind}, {rate.value * factor:.3g}{unit} each "
        f"({low * factor:.3g} to {high * factor:.3g})"
    )


def _retry(group: FittedGroup) -> str:
    retry = group.retry.retry
    if retry.kind == "none":
        return "gives up" if group.refused else "–"
    honours = ", honours Retry-After" if retry.honour_retry_after else ""
    return f"{retry.kind}, {retry.attempts} attempts{honours}"


def _cells(line: Line) -> list[str]:
    name = line.measure if not line.of else f"{line.measure} {line.of}"
    log, fitted, low, high = (
        _number(line.measure, value) for value in (line.log, line.fitted, line.low, line.high)
    )
    return [name, log, fitted, f"{low} to {high}", "" if line.agrees else "differs"]


def _number(measure: str, value: float) -> str:
    forms = {"refused share": ".2%", "dispersion": ".3g", "gap distance": ".3f"}
    return format(value, forms.get(measure, ",.0f"))


def as_html(fit: Fit) -> str:
    """Return what a notebook shows of a fit."""
    parts = [f"<p><b>{html.escape(_head(fit))}</b></p>", fit.groups.to_html(border=0)]
    if fit.judgement is not None:
        table = pd.DataFrame(_rows(fit.judgement), columns=_columns(fit.judgement))
        parts.append(f"<p>{html.escape(_judged(fit))}</p>")
        parts.append(table.to_html(border=0, index=False))
    if fit.lost:
        items = "".join(f"<li>{html.escape(words)}</li>" for words in fit.lost)
        parts.append(f"<p>Limits of this fit:</p><ul>{items}</ul>")
    return f"<div>{''.join(parts)}</div>"


class FitPlots:
    """Altair charts of a fit: `rate()`, `comparison()`."""

    def __init__(self, fit: Fit) -> None:
        self._fit = fit

    def rate(self, slots: int = 60) -> alt.LayerChart | alt.FacetChart:
        """First attempts over time: the log as a line, the scenario's 95 % of runs as a band."""
        found = self._fit.judged
        size = max(1, len(found.slots_log) // slots)
        log = found.slots_log.reshape(-1, size).sum(axis=1).tolist()
        runs = pd.DataFrame(found.slots_runs.reshape(len(found.slots_runs), -1, size).sum(axis=2))
        return band(
            Band(
                f"First attempts over time in {len(log)} slots, the log within the scenario's"
                " runs.",
                "first attempts",
                found.window.span_ns / 1e9 / len(log),
                log,
                runs.quantile(0.025).tolist(),
                runs.quantile(0.975).tolist(),
            )
        )

    def comparison(self) -> alt.LayerChart | alt.FacetChart:
        """Each measure: the log's value as a mark on the interval of the scenario's runs."""
        rows = []
        for line in self._fit.judged.lines:
            if line.high > 0 or line.log > 0:
                most = max(line.high, line.log, line.fitted)
                agrees = "yes" if line.agrees else "no"
                says = (
                    f"log {line.log:.4g}, scenario {line.fitted:.4g}, 95 % of runs from"
                    f" {line.low:.4g} to {line.high:.4g}"
                )
                shares = line.log / most, line.low / most, line.high / most
                name = f"{line.measure} {line.of}".strip()
                rows.append(Estimate(name, *shares, agrees, agrees, says))
        return estimates(
            Estimates(
                "Each measure of the log beside the interval in which 95 % of the runs lie.",
                "",
                "share of the largest",
                "the log lies inside",
                "",
                {"yes": "goodput", "no": "c0"},
                rows,
            )
        )
