"""`simulator.fit`: fit a scenario to a log, measure how well it matches, and show both."""

from __future__ import annotations

import html
import itertools
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from engine.errors import InputError
from engine.files import span_text
from simulator.arguments import takes_options
from simulator.options import FitOptions
from simulator.rows.record import Numbers
from simulator.scenario import Scenario
from simulator.study.fit.judge import (
    TOLERANCE,
    Judgement,
    Line,
    Measures,
    Under,
    difference,
    judge,
    judge_limits,
    other_factors,
    replayed,
    scaled,
)
from simulator.study.fit.model import (
    FittedGroup,
    Model,
    model_of,
    round_ns,
    unit_of,
)
from simulator.study.fit.observed import Observed, group_clients, observe
from simulator.study.fit.series import Hints, burst_gaps_ns, most_attempts, patience_ns
from simulator.study.fit.sessions import with_sessions
from simulator.views.charts import Estimates, PlottedEstimate, band, estimates
from simulator.views.text import percent_text, plain_table

if TYPE_CHECKING:
    import altair as alt
    from rich.console import Group


@takes_options(FitOptions)
def fit(options: FitOptions) -> Fit:
    """Fit a scenario to an access log, and measure how well it matches the log.

    {options}

    Log and scenario are judged under the same limits and profile.

    Raises `InputError` for a log that cannot be read or fitted.

    >>> rows = __import__("simulator").run("management-loop", fidelity="limits").requests
    >>> fit(rows, as_kind="management", judged=False).groups["loop"].tolist()
    ['open', 'open']
    """
    with TemporaryDirectory(prefix="simulator-fit-") as folder:
        observed = observe(options, Path(folder))
        with observed.arrivals:
            return _fitted(observed, options)


def _fitted(observed: Observed, options: FitOptions) -> Fit:
    holdout = options.holdout
    assert not isinstance(holdout, str), "a text was read already"
    split = round(observed.span_ns * (1 - (holdout or 0)))
    window = range(split)
    model, measures = _model(observed, options, window, steady=holdout is not None)
    model, under = _selected(model, measures, observed, options, window)
    fitted = Fit(model, observed_summary(observed), None, holdout, under)
    series = model.series
    if options.judged and holdout is not None:
        window = range(split, observed.span_ns)
        hints = Hints(*series.hints[:2])
        measures, series = replayed(observed, options, window, model.of_client, hints)
        if measures["offered", ""] < 1:
            raise InputError(
                f"holdout = {holdout:.0%} must leave requests to predict; the log has none there"
            )
    if options.judged:
        fitted.judgement = judge(
            model, measures, series, window, options, predicted=holdout is not None
        )
        if holdout is None:  # the same window under the same limits: one reading, of more runs
            own = Under.of(Fraction(1), fitted.judgement.lines)
            fitted.under = [own, *under[1:]]
    return fitted


def _model(
    observed: Observed, options: FitOptions, window: range, *, steady: bool
) -> tuple[Model, Measures]:
    """Return the parametric model of a window, and the measures of the log in it."""
    grouping = group_clients(observed, _counts(observed, window))
    replayed_with = partial(replayed, observed, options, window, grouping.of_client)
    measures, series = replayed_with()
    if "attempt" not in observed.fields and series.refusals.any():  # which are retries is open
        patience = patience_ns(series)
        measures, series = replayed_with(Hints(patience))
        measures, series = replayed_with(Hints(patience, most_attempts(series)))
    gaps = burst_gaps_ns(series)
    if gaps.any():
        measures, series = replayed_with(series.hints._replace(burst_gap_ns=gaps))
    return model_of(observed, window, series, grouping, options, steady=steady), measures


def _selected(
    model: Model, own: Measures, observed: Observed, options: FitOptions, window: range
) -> tuple[Model, list[Under]]:
    """Return the parametric model, or that of sessions where it refuses more like the log.

    own: the log's measures under its limits.
    """
    measures: dict[Fraction, Measures] = {}

    def share_under(factor: Fraction) -> float:
        table = scaled(options.table, factor)
        measures[factor], _ = replayed(observed, options, window, model.of_client, table=table)
        return measures[factor]["refused share", ""]

    logs = {factor: measures[factor] for factor in other_factors(share_under)}
    logs = {Fraction(1): own} | logs
    judged_of = partial(
        judge_limits, options=options, series=model.series, window=window, logs=logs
    )
    judged = judged_of(model)
    if options.form == "parametric" or (options.form == "auto" and _distance(judged) <= TOLERANCE):
        return model, judged
    sessions = with_sessions(model, observed, window, options)
    if sessions is None:
        return model, judged
    others = judged_of(sessions)
    if options.form == "sessions" or _distance(others) < _distance(judged):
        return sessions, others
    return model, judged


def _distance(judged: Sequence[Under]) -> float:
    return max(difference(under.share) for under in judged)


def _counts(observed: Observed, window: range) -> Numbers:
    """Return each party's first attempts in a window; all attempts if they have no numbers."""
    counts = np.zeros(len(observed.client), dtype=np.int64)
    for _, party in observed.arrivals.part(window.start, window.stop).blocks():
        counts += np.bincount(party, minlength=len(counts))
    return np.asarray(np.where(observed.attempt <= 1, counts, 0))


def observed_summary(observed: Observed) -> dict[str, Any]:
    """Return the summary of the log."""
    return {
        "log": observed.log.name,
        "format": observed.log.format,
        "requests": len(observed.arrivals),
        "clients": observed.clients,
        "span_ns": observed.arrivals.end_ns - observed.arrivals.start_ns,
        "start_ns": observed.arrivals.start_ns,
        "unparsed": observed.log.unparsed,
        "unparsed_first": list(observed.log.unparsed_first),
        "says": sorted(observed.fields),
    }


def check_free(path: Path, *, force: bool) -> None:
    """Raise `InputError` where the file exists and must not be replaced."""
    if path.is_dir():
        raise InputError(f"out = {path} must be a file; it is a folder")
    if path.exists() and not force:
        raise InputError(
            f"out = {path} must not exist yet; name another file, or replace it with --force"
        )
    if not path.parent.is_dir():
        raise InputError(f"out = {path} must be in a folder that exists; make {path.parent}")


@dataclass(eq=False, repr=False)
class Fit:
    """A fitted scenario.

    text: the scenario file. scenario: what it reads as. summary: what the log is. holdout: the
    share of time that was held out, None for none. judgement: log and scenario side by side.
    under: both under the log's limits, first, and under two other tables, in what matters for
    limits.
    """

    model: Model
    summary: dict[str, Any]
    judgement: Judgement | None
    holdout: float | None
    under: list[Under] = field(default_factory=list)

    @property
    def differs(self) -> str:
        """Where the limits do otherwise with scenario and log, in words; empty if nowhere."""
        return "; ".join(itertools.chain.from_iterable(under.differs for under in self.under))

    @property
    def text(self) -> str:
        """The scenario file."""
        return self.model.text

    @property
    def scenario(self) -> Scenario:
        """The fitted scenario."""
        return self.model.scenario

    @property
    def lost(self) -> list[str]:
        """What the log does not contain, and where the scenario does not match it."""
        return [*(self.judgement.lost if self.judgement else ()), *self.model.lost]

    @property
    def groups(self) -> pd.DataFrame:
        """One row per client group: name, number of clients, how they send requests."""
        rows = [
            {
                "group": group.name,
                "application": group.application,
                "kind": group.kind,
                "clients": int(group.count.value),
                "seen": group.seen,
                "requests": group.rows,
                "first_attempts": group.firsts,
                "refused": group.refused,
                "loop": group.pace.loop,
                "arrivals": group.pace.kind,
                "rate_per_s": group.pace.rate.value,
                "rate_low": group.pace.rate.low,
                "rate_high": group.pace.rate.high,
                "retry": group.retry.retry.kind,
            }
            for group in self.model.groups
        ]
        return pd.DataFrame(rows).set_index("group")

    @property
    def parameters(self) -> pd.DataFrame:
        """One row per parameter of a group: its value and its 95 % interval."""
        rows = [
            {"group": group.name, "parameter": name, **asdict(estimate)}
            for group in self.model.groups
            for name, estimate in {
                "count": group.count,
                "rate": group.pace.rate,
                **group.pace.parameters,
                **{f"retry.{name}": estimate for name, estimate in group.retry.parameters.items()},
            }.items()
        ]
        return pd.DataFrame(rows).set_index(["group", "parameter"])

    @property
    def comparison(self) -> pd.DataFrame:
        """Log and scenario side by side: one row per measure, with its prediction interval."""
        lines = [] if self.judgement is None else self.judgement.lines
        rows = [(*astuple(line), line.agrees) for line in lines]
        names = ["measure", "of", "log", "scenario", "low", "high", "agrees"]
        return pd.DataFrame(rows, columns=names).set_index(["measure", "of"])

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the scenario file, whole or not at all.

        Raises `InputError` where something is there already (unless `force`), or cannot be written.
        """
        target = Path(path)
        check_free(target, force=force)
        try:
            with TemporaryDirectory(prefix=".fit-", dir=target.parent) as folder:
                self.model.save(Path(folder) / target.name)
                for file in sorted(
                    Path(folder).iterdir(), key=lambda file: file.name == target.name
                ):
                    file.replace(target.with_name(file.name))
        except OSError as fault:
            raise InputError(
                f"out = {target} must be a file that can be written; {fault.strerror}"
            ) from None
        return target

    @property
    def judged(self) -> Judgement:
        """The judgement; raises `InputError` where the fit was not judged."""
        if self.judgement is None:
            raise InputError("fit(judged=False) has nothing to compare; fit with judged = True")
        return self.judgement

    @property
    def plots(self) -> FitPlots:
        """Altair charts: `plots.rate()`, `plots.comparison()`."""
        return FitPlots(self)

    def __rich__(self) -> Group:
        return _as_text(self)

    def _repr_html_(self) -> str:
        return _as_html(self)

    def __repr__(self) -> str:
        return (
            f"<Fit {self.summary['log']} requests={self.summary['requests']} "
            f"groups={len(self.model.groups)}>"
        )


# --- how it is shown -----------------------------------------------------------------------------

_MEASURES: Final = {
    "blocked s": "blocked (s) by",
    "peak": "requests in the fullest counter of",
    "dispersion": "index of dispersion over",
    "gap distance": "distance of inter-arrival times of",
}
"""What measures are called in a table, before what they are of."""


def _as_text(fit: Fit) -> Group:
    from rich.console import Group  # noqa: PLC0415 # reason: loads only where it is shown
    from rich.text import Text  # noqa: PLC0415 # reason: as above

    rest = ("arrivals", "retries")
    numbers = ("clients seen", "clients in all", "requests")
    groups = plain_table(["group"], numbers, rest, wraps=("group", *numbers, *rest))
    for group in fit.model.groups:
        counts = f"{group.seen:,}", f"{group.count.value:,.0f}", f"{group.rows:,}"
        groups.add_row(group.name, *counts, _pace(group), _retry(group))
    parts: list[Any] = [Text(_refusals(fit)), Text(_head(fit)), Text(), groups]
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


def _refusals(fit: Fit) -> str:
    if fit.differs:
        return f"DIFFERS: the scenario does not refuse as the log does: {fit.differs}"
    return "The scenario refuses as the log does: " + "; ".join(under.words for under in fit.under)


def _columns(judgement: Judgement) -> tuple[str, ...]:
    played = "predicted" if judgement.predicted else "scenario"
    return "measure", "log", played, "95 % prediction interval", "verdict"


def _rows(judgement: Judgement) -> list[list[str]]:
    """Return the measures that the log or the runs have, as `_columns` names the parts of each."""
    return [_cells(line) for line in judgement.lines if line.log or line.high]


def _head(fit: Fit) -> str:
    summary = fit.summary
    span = span_text(round_ns(summary["span_ns"]))  # as the scenario's file states it
    words = (
        f"{summary['log']}: {summary['requests']:,} requests of {summary['clients']:,} clients in "
        f"{span}"
    )
    if summary["unparsed"]:
        words += f"; {summary['unparsed']:,} lines did not parse"
    return words


def _judged(fit: Fit) -> str:
    judgement = fit.judgement
    assert judgement is not None, "it is judged"
    runs = f"{judgement.runs} runs of the scenario under the same limits"
    if fit.holdout is None:
        return f"Log and scenario side by side; {runs}:"
    last = percent_text(fit.holdout)
    return f"The last {last} of the time, predicted from what came before; {runs}:"


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
    values = (line.log, line.fitted, line.low, line.high)
    log, fitted, low, high = (_number(line.measure, value) for value in values)
    if not line.agrees and log in {low, high}:
        log, fitted, low, high = (f"{value:,.2f}" for value in values)
    return [_title(line), log, fitted, f"{low} to {high}", "agrees" if line.agrees else "differs"]


def _title(line: Line) -> str:
    """Return what a measure is called in a table or a picture."""
    by = " by" if line.measure == "refused share" and line.of else ""
    return f"{_MEASURES.get(line.measure, line.measure)}{by} {line.of}".strip()


def _number(measure: str, value: float) -> str:
    if measure == "refused share":
        return percent_text(value)
    forms = {"dispersion": ".3g", "gap distance": ".3f"}
    return format(value, forms.get(measure, ",.0f"))


def _as_html(fit: Fit) -> str:
    heads = (html.escape(text) for text in (_refusals(fit), _head(fit)))
    parts = [*(f"<p><b>{text}</b></p>" for text in heads), fit.groups.to_html(border=0)]
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
        judgement = self._fit.judged
        size = max(1, len(judgement.slots_log) // slots)
        log = judgement.slots_log.reshape(-1, size).sum(axis=1).tolist()
        runs = pd.DataFrame(
            judgement.slots_runs.reshape(len(judgement.slots_runs), -1, size).sum(axis=2)
        )
        return band(
            f"First attempts over time in {len(log)} slots, the log within the scenario's runs.",
            "first attempts",
            len(judgement.window) / 1e9 / len(log),
            log,
            runs.quantile(0.025).tolist(),
            runs.quantile(0.975).tolist(),
        )

    def comparison(self) -> alt.LayerChart | alt.FacetChart:
        """Each measure: the log's value as a mark on the interval of the scenario's runs."""
        rows = []
        for line in self._fit.judged.lines:
            if line.high > 0 or line.log > 0:
                whole = line.log or line.high
                agrees = "yes" if line.agrees else "no"
                label = (
                    f"log {line.log:.4g}, scenario {line.fitted:.4g}, 95 % of runs from"
                    f" {line.low:.4g} to {line.high:.4g}"
                )
                shares = line.log / whole, line.low / whole, line.high / whole
                rows.append(PlottedEstimate(_title(line), *shares, agrees, agrees, label))
        return estimates(
            Estimates(
                "Each measure of the log at 100 %, and the interval in which 95 % of the scenario's"
                " runs lie: it holds 100 % where the two agree.",
                "",
                "the scenario's runs, where the log is 100 %",
                "the log lies inside",
                "",
                {"yes": "goodput", "no": "c0"},
                rows,
            )
        )
