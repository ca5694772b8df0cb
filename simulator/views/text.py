"""Numbers, instants and the headline's lines as text, for the page and for the terminal alike.

Numbers are short, with a unit, and unambiguous. A headline's line says which clause binds a group,
or what became of a threshold.
"""

from __future__ import annotations

import datetime as dt
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal

from engine.files import format_duration, span_text

if TYPE_CHECKING:
    from rich.box import Box
    from rich.console import Console
    from rich.table import Table

    from simulator.intervals import Interval

_SECOND_NS: Final = 1_000_000_000
_PIPE_COLUMNS: Final = 140
_THIN: Final = "\u202f"
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def count_text(count: int) -> str:
    """Return a whole number in groups of three: `19,366`."""
    return f"{count:,}"


def number_text(value: float, digits: int = 4) -> str:
    """Return a number in so many digits, whole ones never cut, and without an exponent.

    >>> number_text(28_173.4), number_text(0.123456), number_text(2e-5), number_text(12.0)
    ('28,173', '0.1235', '0.00002', '12')
    """
    if not math.isfinite(value):
        return "–"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{Decimal(f'{value:.{digits}g}'):,f}"


def counted_text(count: int, word: str, words: str = "") -> str:
    """Return a count with its word, `words` (with an s unless given) for any but one.

    >>> counted_text(1, "request"), counted_text(2, "address", "addresses")
    ('1 request', '2 addresses')
    """
    return f"{count_text(count)} {word if count == 1 else words or word + 's'}"


def share_text(part: int, whole: int) -> str:
    """Return a share in percent; only exact values are shown as 0 % or 100 %."""
    if not whole or not part:
        return f"0{_THIN}%"
    percent = 100 * part / whole
    if percent < 0.01:
        return f"<{_THIN}0.01{_THIN}%"
    if part < whole and percent > 99.99:
        return f">{_THIN}99.99{_THIN}%"
    digits = 2 if percent < 1 else 1 if percent < 99.95 or part < whole else 0
    return f"{percent:.{digits}f}".removesuffix(".0") + f"{_THIN}%"


def clock_text(at_ns: int) -> str:
    """Return an instant since the Unix epoch as UTC, to the second: `2015-05-17 10:05:03`."""
    moment = _EPOCH + dt.timedelta(seconds=at_ns // _SECOND_NS)
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def plain_text(text: str) -> str:
    r"""Return a text of a log fit for a terminal or a page: control characters become escapes.

    >>> plain_text("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def plain_table(
    left: Sequence[str],
    numbers: Sequence[str] = (),
    rest: Sequence[str] = (),
    *,
    wraps: Sequence[str] = (),
    title: str | None = None,
    box: Box | None = None,
) -> Table:
    """Return an empty table for a terminal, by the names of its columns.

    numbers: those that stand to the right. rest: what follows them. wraps: those that may wrap.
    box: the lines, if it has some.
    """
    from rich.table import Table  # noqa: PLC0415 # reason: loads only where one is shown

    table = Table(title=title, title_justify="left", box=box, header_style="bold", pad_edge=False)
    for name in (*left, *numbers, *rest):
        side: Literal["left", "right"] = "right" if name in numbers else "left"
        table.add_column(name, justify=side, no_wrap=name not in wraps)
    return table


def console() -> Console:
    """Return the console for standard output; wide if that is not a terminal."""
    from rich.console import Console  # noqa: PLC0415 # reason: as above

    return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_COLUMNS)


class Axis:
    """A time axis of a run: places, tick marks and how instants are called.

    start_ns: the run's start in ns since the Unix epoch where instants are shown as UTC; None
    where they are shown as time since the start.
    """

    def __init__(self, end_ns: int, start_ns: int | None = None) -> None:
        self.end_ns = max(1, end_ns)
        self.start_ns = start_ns

    @classmethod
    def of(cls, summary: Mapping[str, Any]) -> Axis:
        """Return the axis of a run: UTC in a replay at the log's own pace."""
        replayed = summary.get("replay")
        in_log_time = replayed is not None and replayed["speed"] == "1"
        return cls(summary["duration_ns"], summary["start_time_ns"] if in_log_time else None)

    def place(self, at_ns: int, width: float) -> float:
        """Return where an instant stands on an axis of that width."""
        return round(min(at_ns, self.end_ns) / self.end_ns * width, 2)

    def ticks(self, most: int = 8) -> list[tuple[int, str]]:
        """Return at most `most` round instants with what they are called."""
        from simulator.rows.metrics import round_ns  # noqa: PLC0415 # reason: a command that only counts needs no rows

        step = round_ns(-(-self.end_ns // most))
        first = 0 if self.start_ns is None else -self.start_ns % step
        instants = range(first, self.end_ns + 1, step)
        return [(at, self._tick_text(at, step)) for at in instants][: most + 1]

    def _tick_text(self, at_ns: int, step_ns: int) -> str:
        if self.start_ns is None:
            return "0" if at_ns == 0 else span_text(at_ns)
        moment = _EPOCH + dt.timedelta(seconds=(self.start_ns + at_ns) // _SECOND_NS)
        day = f"{moment.day}{_THIN}{moment:%b}"
        if step_ns >= 86_400 * _SECOND_NS or not (moment.hour or moment.minute or moment.second):
            return day if step_ns < 86_400 * 300 * _SECOND_NS else f"{moment:%Y-%m}"
        return f"{moment:%H:%M}" if step_ns >= 60 * _SECOND_NS else f"{moment:%H:%M:%S}"

    def instant(self, at_ns: int) -> str:
        """Return what an instant is called in a table."""
        if self.start_ns is not None:
            return clock_text(self.start_ns + at_ns)
        return "start" if at_ns == 0 else "+" + span_text(at_ns)


def nodes_text(summary: Mapping[str, Any]) -> str:
    """Return what a run on several nodes says of them; empty for one node, or exact ones.

    >>> nodes_text({})
    ''
    """
    nodes = summary.get("nodes")
    if nodes is None:
        return ""
    every, lag, race = (format_duration(nodes[f"{name}_ns"]) for name in ("every", "lag", "race"))
    how = {
        "none": "each counts alone",
        "split": "each has its share of every limit",
        "synced": f"each publishes its counts every {every}, and the others know them {lag} later",
        "shared-slow": f"their one counter is written {race} after it is read",
    }[nodes["sharing"]]
    return (
        f"{counted_text(nodes['count'], 'node')}, {nodes['balance']}; {how}. "
        f"{count_text(nodes['admitted_beyond'])} attempts were admitted beyond the exact limits, "
        f"and {count_text(nodes['refused_below'])} below them were refused."
    )


_PACE_UNITS: Final = (("s", _SECOND_NS), ("min", 60 * _SECOND_NS), ("h", 3_600 * _SECOND_NS))
_LEAST: Final = 0.1
_MAX_SENDERS: Final = 4
"""Groups of clients whose pace at a counter is told."""
_BOTH: Final = 2
_SHARE: Final = "refused_share"
_PARTS: Final = 10**9
"""Parts of a whole in which a share is told in percent."""


def group_rows(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what each group of clients met; none in a replay, whose clients have no groups.

    words: of a group that asked for something. With replications, their share is the mean with its
    interval; the rest is of the first run.
    """
    rows = []
    for group in summary.get("groups", []):
        if "binds" not in group:
            continue
        binding, pace = binding_text(group), pace_text(group["binds"])
        words = "nothing is refused" if group["offered"] else ""
        if binding:
            share = runs_share_text(summary, f"refused_share{{client='{group['name']}'}}")
            share = share or share_text(group["refused"], group["offered"])
            words = f"{share} refused by {binding}; {fair_share_text(group['binds'], summary)}"
        rows.append({**group, "binding": binding, "pace": pace, "words": words})
    return rows


def runs_share_text(summary: Mapping[str, Any], metric: str) -> str:
    """Return a share's mean over replications with its interval; empty where there are none.

    >>> found = {"mean": 0.25, "low": 0.125, "high": 0.5}
    >>> text = runs_share_text({"replications": {"intervals": {"x": found}}}, "x")
    >>> text.replace(chr(0x202F), " ")
    '25 % (12.5 % to 50 %)'
    """
    interval = summary.get("replications", {}).get("intervals", {}).get(metric)
    if interval is None or interval["mean"] is None:
        return ""
    mean, low, high = (percent_text(interval[end]) for end in ("mean", "low", "high"))
    return f"{mean} ({low} to {high})"


def percent_text(share: float) -> str:
    """Return a share, or the difference of two, in percent.

    >>> [percent_text(share).replace(chr(0x202F), " ") for share in (0.125, -0.004)]
    ['12.5 %', '-0.40 %']
    >>> percent_text(-0.00002).replace(chr(0x202F), " ")
    '> -0.01 %'
    """
    text = share_text(round(abs(share) * _PARTS), _PARTS)
    if share >= 0:
        return text
    sign = {"<": ">", ">": "<"}.get(text[0])
    return f"-{text}" if sign is None else f"{sign}{_THIN}-{text[2:]}"


def binding_text(group: Mapping[str, Any]) -> str:
    """Return which clause binds a group, and at how many addresses; empty where none does."""
    binds = group["binds"]
    if binds is None:
        return ""
    clauses = group["clauses"]
    name = binds["clause"] if len(clauses) == 1 else f"{next(iter(clauses))} most of all"
    hit, known = binds["addresses"], group["addresses"]
    if hit == 1:
        where = "at one address" if known == 1 else f"at one of {count_text(known)} addresses"
    elif hit == known:
        where = "at both addresses" if known == _BOTH else f"at all {count_text(known)} addresses"
    else:
        where = f"at {count_text(hit)} of {count_text(known)} addresses"
    return f"{name} {where}"


def pace_text(binds: Mapping[str, Any] | None) -> str:
    """Return the pace per client that the counter with most refusals admits: `6.6/s`.

    Rounded down, so that together they stay within the rate.

    >>> pace_text({"limit_requests": 200, "window_ns": 10_000_000_000, "sharing": 3})
    '6.6/s each'
    """
    if binds is None:
        return ""
    a_ns = binds["limit_requests"] / (binds["window_ns"] * binds["sharing"])
    unit, unit_ns = next((u for u in _PACE_UNITS if a_ns * u[1] >= _LEAST), _PACE_UNITS[-1])
    pace = a_ns * unit_ns
    # A value just below a step counts as the step: 0.3 is not exact in binary.
    step = 10.0 ** (math.floor(math.log10(pace)) - 1)
    floored = math.floor(pace / step + 1e-9) * step
    suffix = " each" if binds["sharing"] > 1 else ""
    return f"{floored:.4g}/{unit}{suffix}"


def fair_share_text(binds: Mapping[str, Any] | None, summary: Mapping[str, Any]) -> str:
    """Return the fair share of the counter that refused most, and what each group sends there.

    >>> binds = {"limit_requests": 50, "window_ns": 60_000_000_000, "sharing": 5}
    >>> binds["senders"] = {"shop": {"clients": 4, "offered": 40}}
    >>> fair_share_text(binds, {"duration_ns": 600_000_000_000, "warm_up_ns": 0})
    'fair share of this counter 0.16/s each; sent: shop 1/min each'
    """
    if binds is None:
        return ""
    span_ns = summary["duration_ns"] - summary["warm_up_ns"]
    senders = [
        f"{name} {rate_text(row['offered'] / row['clients'] / span_ns)}"
        + (" each" if row["clients"] > 1 else "")
        for name, row in binds.get("senders", {}).items()
    ]
    sent = f"; sent: {', '.join(senders[:_MAX_SENDERS])}" if senders else ""
    return f"fair share of this counter {pace_text(binds)}{sent}"


def rate_text(per_ns: float) -> str:
    """Return a rate in the largest unit of time in which it is not tiny: `6.6/s`."""
    unit, unit_ns = next((u for u in _PACE_UNITS if per_ns * u[1] >= _LEAST), _PACE_UNITS[-1])
    return f"{number_text(per_ns * unit_ns, 2)}/{unit}"


def threshold_lines(summary: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the result of each threshold: over all replications where there are some.

    css: the class of its colour; the words say it too.
    """
    replicated = summary.get("replications")
    if replicated is None:
        return [_of_one_run(line) for line in summary.get("thresholds", [])]
    return [_of_runs(line) for line in replicated["thresholds"]]


def _of_one_run(line: Mapping[str, Any]) -> dict[str, str]:
    value = value_text(line["that"], line["value"])
    return {
        "that": plain_text(line["that"]),
        "verdict": "met" if line["holds"] else "not met",
        "css": "good" if line["holds"] else "bad",
        "found": value,
        "detail": "in this run alone; use replications to see how certain that is",
    }


def _of_runs(line: Mapping[str, Any]) -> dict[str, str]:
    name, verdict = line["subject"], line["verdict"]
    low, mean, high = (value_text(name, line[end]) for end in ("low", "mean", "high"))
    detail = f"from {low} to {high} ({line['method']}, {counted_text(line['runs'], 'run')})"
    if verdict == "not decided":
        detail += needed_text(line["needed"])
    css = {"met": "good", "not met": "bad"}.get(verdict, "open")
    return {
        "that": plain_text(line["that"]),
        "verdict": verdict,
        "css": css,
        "found": mean,
        "detail": detail,
    }


def needed_text(needed: int | None) -> str:
    """Return how many runs would be enough, as the end of a sentence."""
    return (
        "; no sufficient number is known" if needed is None else f"; about {needed} would be enough"
    )


def value_text(metric: str, value: float | None) -> str:
    """Return a metric's value, or the difference of two: shares in percent, durations with units.

    >>> value_text("goodput_per_s{client='a'} >= 0.5", 0.25), value_text("latency_p50", 2.5e9)
    ('0.25', '2.5\u202fs')
    """
    from simulator.scenario import METRICS  # noqa: PLC0415 # reason: the page of a replay needs no scenario

    if value is None or not math.isfinite(value):
        return "–"
    name = _name_of(metric)
    if name in METRICS and METRICS[name].is_duration:
        return ("-" if value < 0 else "") + span_text(round(abs(value)))
    return percent_text(value) if name == _SHARE else number_text(value)


_TITLES: Final = {
    "goodput_per_s": "goodput per s",
    "admitted_beyond": "admitted beyond exact limits",
    "refused_below": "refused below exact limits",
    **{
        f"{what}_{short}": f"{what}, {title}"
        for what in ("wait", "latency")
        for short, title in (
            ("p50", "median"),
            ("p90", "90th percentile"),
            ("p99", "99th percentile"),
        )
    },
}
"""What metrics are called in text where an underscore alone does not become a space."""


def metric_title(metric: str) -> str:
    """Return what a metric, which may have labels, is called in a table.

    >>> metric_title("latency_p50"), metric_title("refused_share{client='browsers'}")
    ('latency, median', 'refused share of client browsers')
    """
    name, _, labels = metric.partition("{")
    title = _TITLES.get(name, name.replace("_", " "))
    if not labels:
        return title
    words = labels.removesuffix("}").replace("='", " ").replace("',", ",").removesuffix("'")
    return f"{title} {'by' if words.startswith('clause') else 'of'} {words}"


def _name_of(metric: str) -> str:
    """Return the name of a metric that may have labels, or stand in a condition."""
    return metric.partition("{")[0].split(" ")[0]


def interval_text(interval: Interval, metric: str) -> str:
    """Return a metric's interval in words."""
    if interval.runs == 0:
        return "no value"
    runs = "1 run" if interval.runs == 1 else f"{interval.runs} runs"
    if interval.method == "exact":
        return value_text(metric, interval.mean)
    mean, low, high = (value_text(metric, end) for end in interval[:3])
    return f"{mean}, from {low} to {high}, {runs}"


def share_line(summary: Mapping[str, Any]) -> str:
    """Return the refused share of a single run with its interval, or why it has none."""
    known = summary["intervals"]["refused_share"]
    if known["mean"] is None:
        return "refused share: nothing was offered"
    if known["method"] == "exact":
        return (
            f"refused share: {percent_text(known['mean'])}, exact: the scenario has no randomness"
        )
    if known["method"] == "range":
        return (
            f"refused share: {percent_text(known['mean'])} in this run; one run is too short for"
            " an interval, so use --replications"
        )
    mean, low, high = (percent_text(known[end]) for end in ("mean", "low", "high"))
    line = f"refused share: {mean}, 95 % interval {low} to {high} ({known['method']} of this run)"
    note = episode_text([known])
    return line if note is None else f"{line}\n{note}"


def episode_text(intervals: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the assumption behind intervals of what was never refused; None without any."""
    episodes = [known["episode"] for known in intervals if known["episode"] is not None]
    if not episodes:
        return None
    return (
        "rule of three: assumes that a refusal, if there were any, would come with"
        f" {number_text(max(episodes), 3)} others (a block, or a full window, and its retries)"
    )


def precision_text(precision: Mapping[str, Any], count: int) -> str:
    """Return whether a precision was reached, and if not, how many runs would be enough."""
    if precision["reached"]:
        return f"precision: every share is known to ± {precision['asked']:g} after {count} runs"
    needed = needed_text(precision["needed"])
    return f"precision: ± {precision['asked']:g} is not reached after {count} runs{needed}"
