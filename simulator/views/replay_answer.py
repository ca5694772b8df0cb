"""The answer on the terminal: who would have been refused, when, by which clause, for how long.

Text from the log is shown without control characters and never as markup.
"""

from __future__ import annotations

from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from simulator.rows import Result
from simulator.views.findings import Findings, gather, together_ns
from simulator.views.text import Axis, count_text, counted_text, plain_text, share_text, span_text

_SHOWN: Final = 10


def print_answer(result: Result, console: Console) -> None:
    """Print the answer of a replay."""
    summary = result.summary
    findings = gather(result.batches(), end_ns=summary["duration_ns"], bins=1)
    replayed = summary["replay"]
    in_log_time = replayed["speed"] == "1"
    axis = Axis(findings.end_ns, summary["start_time_ns"] if in_log_time else None)
    _print_headline(summary, console)
    if summary["totals"]["refused"]:
        console.print(_by_clause(summary, findings, axis))
    if findings.parties:
        console.print(_by_party(findings, axis))
    if "against" in summary:
        _print_against(summary, console)
    _print_shadow(summary, console)
    _print_unparsed(replayed, console)


def _print_headline(summary: dict[str, Any], console: Console) -> None:
    totals, replayed = summary["totals"], summary["replay"]
    console.print(
        Text(
            f"{counted_text(totals['offered'], 'request')} from"
            f" {counted_text(replayed['addresses'], 'address', 'addresses')} with"
            f" {counted_text(replayed['keys'], 'key')}, over"
            f" {span_text(replayed['log_span_ns'])} of log:"
            f" {count_text(totals['refused'])} would have been refused"
            f" ({share_text(totals['refused'], totals['offered'])})."
        )
    )


def _by_clause(summary: dict[str, Any], findings: Findings, axis: Axis) -> Table:
    # A log with too few columns does not show when and for how long (`Findings.parts`).
    told = ("first", "last", "shut out") if "parties" in findings.parts else ()
    names = ("clause", "offered", "refused", "share", *told, "addresses")
    table = _table("By limit clause", *names)
    for line in summary["clauses"]:
        if not line["offered"]:
            continue
        found = [each for who, each in findings.parties.items() if who.clause == line["clause"]]
        times = ["–"] * len(told)
        if found:
            times = [
                axis.instant(min(each.first_ns for each in found)),
                axis.instant(max(each.last_ns for each in found)),
                span_text(together_ns(found)),
            ]
        table.add_row(
            line["clause"],
            count_text(line["offered"]),
            count_text(line["refused"]),
            share_text(line["refused"], line["offered"]),
            *times,
            count_text(line["ips"]),
        )
    return table


def _by_party(findings: Findings, axis: Axis) -> Table:
    ordered = sorted(
        findings.parties.items(), key=lambda item: (-item[1].refused, item[0].ip, item[0].clause)
    )
    title = f"Refused most ({min(_SHOWN, len(ordered))} of {count_text(len(ordered))})"
    columns = ("address", "key", "clause", "refused", "first", "last", "shut out")
    table = _table(title, *columns, left=3)
    for who, found in ordered[:_SHOWN]:
        table.add_row(
            Text(plain_text(who.ip)),
            Text(plain_text(who.key or "no key")),
            who.clause,
            count_text(found.refused),
            axis.instant(found.first_ns),
            axis.instant(found.last_ns),
            span_text(found.shut_ns),
        )
    return table


def _print_against(summary: dict[str, Any], console: Console) -> None:
    against = summary["against"]
    gained, lost, keys = (against[name] for name in ("gained", "lost", "keys_changed"))
    console.print(
        Text(
            f"Against {against['limits']}: {count_text(against['refused_old'])} refused before,"
            f" {count_text(against['refused_new'])} now;"
            f" {counted_text(gained, 'request gains', 'requests gain')},"
            f" {counted_text(lost, 'loses', 'lose')};"
            f" {counted_text(against['ips_changed'], 'address', 'addresses')} and"
            f" {counted_text(keys, 'key notices', 'keys notice')}."
        )
    )
    parts = (("clause", "clauses", "clause"), ("key", "keys", "name"), ("address", "ips", "name"))
    for word, part, name in parts:
        lines = against[part][:_SHOWN]
        if not lines:
            continue
        table = _table(f"Who gains and who loses, by {word}", word, "refused before")
        for column in ("refused now", "gain", "lose"):
            table.add_column(column, justify="right")
        for line in lines:
            counts = (line[each] for each in ("refused_old", "refused_new", "gained", "lost"))
            label = Text(plain_text(line[name] or "no key"))
            table.add_row(label, *(count_text(count) for count in counts))
        console.print(table)


def _print_shadow(summary: dict[str, Any], console: Console) -> None:
    for line in summary["clauses"]:
        if line["shadow_refused"]:
            count = counted_text(line["shadow_refused"], "request")
            console.print(Text(f"{line['clause']} is in shadow and would refuse {count}."))


def _print_unparsed(replayed: dict[str, Any], console: Console) -> None:
    count = replayed["unparsed"]
    if not count:
        return
    word = "line does" if count == 1 else "lines do"
    console.print(Text(f"{count_text(count)} {word} not parse as {replayed['format']}:"))
    for line in replayed["unparsed_first"]:
        console.print(Text(f"  {plain_text(line)}"))
    if count > len(replayed["unparsed_first"]):
        console.print(Text(f"  … and {count_text(count - len(replayed['unparsed_first']))} more"))


def _table(title: str, *columns: str, left: int = 1) -> Table:
    """Return an empty table; where room is short only instants wrap, between day and time."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for place, column in enumerate(columns):
        table.add_column(
            column,
            justify="left" if place < left else "right",
            no_wrap=column not in {"first", "last"},
        )
    return table
