"""A trace: requests at given times through the limits alone, as a table and as a picture.

    frame = simulator.trace([0] * 51 + [11], simulator.caller(kind="public"))
    simulator.strip(frame.assign(who="51 at once"))

Times are seconds, and the decisions are the engine's own: the limiter is the one that a request
meets, without a body. For traffic of many clients who retry, use `simulator.run`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
_WIDTH, _HEIGHT = 560, 22
_LONGEST_S: Final = 10**9
_BARS: Final[Mapping[str, tuple[str, float]]] = {
    "admitted": ("#9db8dc", 1),
    "delayed": ("#e69f00", 1),
    "refused": ("#d55e00", 0.15),
    "blocked": ("#1d2a44", 1),
}
"""Outcome → colour of its bar, the same in every strip, and how much of it is filled.

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
        bars.properties(width=_WIDTH, height=max(_HEIGHT * len(order), 40))
        .mark_bar(size=_HEIGHT * 0.65, strokeWidth=1.5, aria=False)
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
