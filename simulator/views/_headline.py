"""The headline's lines: the clause that binds each group, and the result of each threshold.

A line is a few words, for the page and for the terminal alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from engine.files import format_duration
from simulator.views._text import count_text, counted_text, plain_text, share_text

__all__ = [
    "binding_text",
    "group_lines",
    "pace_text",
    "runs_share_text",
    "threshold_lines",
    "value_text",
]

_SECOND_NS: Final = 1_000_000_000
_UNITS: Final = (("s", _SECOND_NS), ("min", 60 * _SECOND_NS), ("h", 3_600 * _SECOND_NS))
_LEAST: Final = 0.1
_BOTH: Final = 2
_PARTS: Final = 1_000_000
"""Parts of a whole in which a share is told in percent."""


def group_lines(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the results of each client group in words; none in a replay, which has no groups.

    With replications, the share is their mean with its interval; the rest is of the first run.
    """
    found = []
    for group in summary.get("groups", []):
        if "binds" not in group or not group["offered"]:
            continue
        share = runs_share_text(summary, f"refused_share{{client='{group['name']}'}}")
        share = share or share_text(group["refused"], group["offered"])
        binding = binding_text(group)
        pace = pace_text(group["binds"])
        words = f"{share} by {binding}; {pace} would pass" if binding else "nothing is refused"
        found.append({"name": plain_text(group["name"]), "share": share, "words": words})
    return found


def runs_share_text(summary: Mapping[str, Any], metric: str) -> str:
    """Return a share's mean over replications with its interval; empty where there are none.

    >>> found = {"mean": 0.25, "low": 0.125, "high": 0.5}
    >>> text = runs_share_text({"replications": {"intervals": {"x": found}}}, "x")
    >>> text.replace(chr(0x202F), " ")
    '25 % (12.5 % to 50 %)'
    """
    found = summary.get("replications", {}).get("intervals", {}).get(metric)
    if found is None or found["mean"] is None:
        return ""
    mean, low, high = (_percent_text(found[end]) for end in ("mean", "low", "high"))
    return f"{mean} ({low} to {high})"


def _percent_text(share: float) -> str:
    return share_text(round(share * _PARTS), _PARTS)


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

    Rounded down, so that it passes.

    >>> pace_text({"limit_requests": 200, "window_ns": 10_000_000_000, "sharing": 3})
    '6.6/s each'
    """
    if binds is None:
        return ""
    a_ns = binds["limit_requests"] / (binds["window_ns"] * binds["sharing"])
    unit, unit_ns = next((u for u in _UNITS if a_ns * u[1] >= _LEAST), _UNITS[-1])
    pace = a_ns * unit_ns
    # A value just below a step counts as the step: 0.3 is not exact in binary.
    step = 10.0 ** (math.floor(math.log10(pace)) - 1)
    floored = math.floor(pace / step + 1e-9) * step
    each = " each" if binds["sharing"] > 1 else ""
    return f"{floored:.4g}/{unit}{each}"


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
        "verdict": "holds" if line["holds"] else "does not hold",
        "css": "good" if line["holds"] else "bad",
        "found": value,
        "detail": "in this run alone; replications say how sure that is",
    }


def _of_runs(line: Mapping[str, Any]) -> dict[str, str]:
    name, verdict = line["subject"], line["verdict"]
    low, mean, high = (value_text(name, line[end]) for end in ("low", "mean", "high"))
    detail = f"from {low} to {high} ({line['method']}, {counted_text(line['runs'], 'run')})"
    if verdict == "not decided":
        needed = line["needed"]
        would = "no number of runs is known to do" if needed is None else f"about {needed} would do"
        detail = f"{detail}; {would}"
    css = {"kept": "good", "broken": "bad"}.get(verdict, "open")
    return {
        "that": plain_text(line["that"]),
        "verdict": verdict,
        "css": css,
        "found": mean,
        "detail": detail,
    }


def value_text(metric: str, value: float | None) -> str:
    """Return a metric's value as a person reads it; durations with their unit.

    >>> value_text("refused_share{client='a'} <= 0.5", 0.25), value_text("latency_p50", 2.5e9)
    ('0.25', '2.5s')
    """
    from simulator.scenario import METRICS  # noqa: PLC0415 # reason: the page of a replay needs no scenario

    if value is None:
        return "–"
    name = metric.partition("{")[0].split(" ")[0]
    if name in METRICS and METRICS[name].is_duration:
        step = 10 ** max(0, len(str(int(value))) - 4)
        return format_duration(round(value / step) * step)
    return (
        f"{value:.4g}" if abs(value) < 10_000 else count_text(round(value))
    )  # reason: four digits
