"""What the notebooks about limits share: a trace through the limiter alone, and its picture.

Times are seconds, decisions are the engine's own: `play` asks the same limiter that a request
meets, without a body. The picture is a strip of requests, so that a rule is seen as time.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Final

import altair as alt
import pandas as pd

from engine import Decision, LimitTable, Profile
from engine.limits import Limiter, Subject
from engine.model import ApplicationKind, TenantKind

__all__ = ["COLOURS", "SECOND_NS", "caller", "play", "refused", "runs", "strip", "trace"]

SECOND_NS: Final = 1_000_000_000
COLOURS: Final = {
    "admitted": "#9db8dc",
    "delayed": "#e69f00",
    "refused": "#d55e00",
    "blocked": "#1d2a44",
}
"""Outcome → colour, the same in every picture."""


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
    """Return who asks for what, as far as limits look."""
    return Subject(
        method,
        path,
        ip,
        key_id=key,
        tenant_kind=tenant,
        application_kind=kind,
        legacy=legacy,
        proxy_key_id=proxy_key,
        host_id=host,
    )


def play(
    times_s: Iterable[Fraction | float],
    who: Subject,
    *,
    table: LimitTable | None = None,
    **limits: Any,
) -> list[Decision]:
    """Decide one request at each time; `limits` are fields of the profile's section."""
    profile = Profile().replace(limits=limits)
    limiter = Limiter({"Default": table or LimitTable.default()}, profile.limits)
    return [limiter.decide(_ns(time_s), who) for time_s in times_s]


def trace(
    times_s: Iterable[Fraction | float],
    who: Subject,
    *,
    table: LimitTable | None = None,
    **limits: Any,
) -> pd.DataFrame:
    """Return a line a request: second, outcome, rule, wait_s."""
    times = list(times_s)
    decisions = play(times, who, table=table, **limits)
    return pd.DataFrame(
        {
            "second": [float(time_s) for time_s in times],
            "outcome": [decision.outcome for decision in decisions],
            "rule": [decision.rule or "" for decision in decisions],
            "wait_s": [decision.wait_ns / SECOND_NS for decision in decisions],
        }
    )


def refused(frame: pd.DataFrame) -> list[float]:
    """Return the seconds at which a trace was refused."""
    return list(frame.loc[frame["outcome"].isin(("refused", "blocked")), "second"])


def runs(seconds: Iterable[float]) -> str:
    """Return whole seconds as spans, such as `50-59, 110-119`."""
    spans: list[list[int]] = []
    for second in map(int, seconds):
        if spans and second - spans[-1][1] <= 1:
            spans[-1][1] = second
        else:
            spans.append([second, second])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans) or "none"


def strip(rows: pd.DataFrame, by: str = "who", *, height: int = 22, zero: bool = True) -> alt.Chart:
    """Return a line of bars for each value of `by`, coloured by outcome.

    rows: second, outcome, and the column that `by` names; drawn in the order of its values.
    Requests of one outcome that follow one another closely are one bar, so that a picture stays
    small however many requests it shows. zero: whether time is shown from 0 on, or from the first
    request.
    """
    order = list(dict.fromkeys(rows[by]))
    bars = [bar for who in order for bar in _bars(rows[rows[by] == who], str(who))]
    shown = [name for name in COLOURS if name in set(rows["outcome"])]
    colours = alt.Scale(domain=shown, range=[COLOURS[name] for name in shown])
    frame = pd.DataFrame(bars, columns=["who", "outcome", "from", "to"])
    chart: alt.Chart = (
        alt.Chart(
            frame, width=560, height=max(height * len(order), 40), description=_in_words(rows, by)
        )
        .mark_bar(size=height * 0.65, strokeWidth=1.5, aria=False)
        .encode(
            x=alt.X("from:Q", title="seconds", scale=alt.Scale(zero=zero, nice=zero)),
            x2="to",
            y=alt.Y("who:N", sort=order, title=None, axis=alt.Axis(labelLimit=260)),
            color=alt.Color("outcome:N", scale=colours, title=None),
            stroke=alt.Stroke("outcome:N", scale=colours, title=None),
        )
    )
    return chart


def _in_words(rows: pd.DataFrame, by: str) -> str:
    """Return what a strip shows, for who does not see it."""
    said = []
    for who, mine in rows.groupby(by, sort=False):
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


def _ns(seconds: Fraction | float) -> int:
    return int(Fraction(seconds).limit_denominator(SECOND_NS) * SECOND_NS)
