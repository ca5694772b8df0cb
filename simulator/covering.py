"""Coverage: every limit rule, action, quota and bound fires at least once, or says why it cannot.

The lines come from the limit table (a line a counter and a way to act) and from the clause registry
(quotas, proxies, reactors, account updater). Each is triggered by a small scenario made from the
rule's row, so that a row added to the table is covered without a change here. Probes of bounds that
are no rate limits are in `simulator.covering_bounds`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from engine.clauses import CLAUSES, clause
from engine.limits import LimitTable, Rule
from engine.messages import Outcome
from simulator.arguments import instance, optional, takes
from simulator.covering_bounds import BOUNDS
from simulator.results import Result
from simulator.running import run

__all__ = ["COVERED", "CoverageLine", "coverage"]

COVERED: Final = ("ERR-", "LIM-", "QUO-", "PRX-", "RCT-", "ACC-")
"""Prefixes of the clauses that the simulator covers."""

Way: TypeAlias = Literal["refuses", "blocks", "delays"]

_OUTCOMES: Final[dict[Way, Outcome]] = {
    "refuses": "refused",
    "blocks": "blocked",
    "delays": "delayed",
}
_CLIENTS: Final = 4


@dataclass(frozen=True, slots=True)
class CoverageLine:
    """One thing that should fire. how: the evidence, or why it cannot. masked: it cannot."""

    clause: str
    what: str
    fired: bool
    how: str
    masked: bool = False


@takes(table=optional(instance("a LimitTable", LimitTable)))
def coverage(table: LimitTable | None = None) -> list[CoverageLine]:
    """Fire everything of a limit table, the seed's unless given, and every quota and bound."""
    table = LimitTable.default() if table is None else table
    lines = [line for rule in table for line in _rule_lines(rule)]
    lines += _about_all_rules(lines)
    for item in CLAUSES:
        if not item.id.startswith(COVERED) or any(line.clause == item.id for line in lines):
            continue
        probe = BOUNDS.get(item.id)
        if probe is None:
            lines.append(CoverageLine(item.id, "fires", fired=False, how="no probe fires it"))
            continue
        said = probe.fire()
        how = said if said is not None else "it did not fire"
        lines.append(CoverageLine(item.id, probe.what, said is not None, how))
    order = {item.id: place for place, item in enumerate(CLAUSES)}
    return sorted(lines, key=lambda line: order.get(line.clause, len(order)))


def _about_all_rules(lines: list[CoverageLine]) -> Iterator[CoverageLine]:
    """Yield the lines of the clauses that are about every row."""
    for clause_id, way in (("LIM-THROTTLE", "refuses"), ("LIM-BLOCK", "blocks")):
        fired = [line.clause for line in lines if line.fired and line.what.endswith(way)]
        how = f"{len(fired)} counters, {fired[0]} first" if fired else "nothing fired"
        yield CoverageLine(clause_id, way, bool(fired), how)
    slowed = [line.clause for line in lines if line.fired and line.what.endswith("delays")]
    how = f"{len(slowed)} counters, {slowed[0]} first" if slowed else "nothing fired"
    yield CoverageLine("LIM-THROTTLE", "delays", bool(slowed), how)


def _rule_lines(rule: Rule) -> Iterator[CoverageLine]:
    for name in rule.counter_names:
        ways: tuple[Way, ...] = ("refuses", "blocks", "delays")
        for way in ways:
            result = run(_scenario(rule, name, way), fidelity="limits")
            count, first_s = _fired(result, name, _OUTCOMES[way])
            what = name.removeprefix(rule.id).lstrip(".") + " " + way
            if count:
                how = f"{count} of {result.summary['rows']}, the first at {first_s:g} s"
                yield CoverageLine(rule.id, what.strip(), fired=True, how=how)
                continue
            masked = _masked(rule, name)
            how = masked or f"0 of {result.summary['rows']}"
            yield CoverageLine(
                rule.id, what.strip(), fired=False, how=how, masked=masked is not None
            )


def _masked(rule: Rule, name: str) -> str | None:
    """Return why a counter can never be the one that is reported; None where it can."""
    if rule.seed_section is None or name == rule.id or not name.endswith(".ip"):
        return None
    return clause(rule.id).masked


def _fired(result: Result, rule: str, outcome: Outcome) -> tuple[int, float]:
    frame = result.requests
    rows = frame[(frame["rule"].astype(object) == rule) & (frame["outcome"] == outcome)]
    return len(rows), float(rows["t_ns"].iloc[0]) / 1e9 if len(rows) else math.nan


def _scenario(rule: Rule, counter: str, way: Way) -> str:
    """Return a scenario in which one counter of one rule is exceeded, and as few others as can be.

    Half as much again as the rate allows, evenly over one window. A counter by key is asked from
    several addresses, one by address with several keys.
    """
    by_key = counter.endswith(".key") or rule.counter == "key"
    by_ip = counter.endswith(".ip") or rule.counter == "ip"
    limit, window_ns = rule.rate
    clients = _CLIENTS if by_key or by_ip else 1
    each = -(-3 * limit // (2 * clients))
    match = rule.match
    keyed = not (rule.counter == "ip" or match.proxy is not None)
    action = (
        f'action = "block"\nblock = "{rule.block_ns or 1_000_000_000}ns"'
        if way == "blocks"
        else 'action = "throttle"'
    )
    parts = [
        f'name = "coverage"\nduration = "{window_ns}ns"',
        f"[rules.{rule.id}]\n{action}\nshadow = false",
        f'[choices.limits]\nthrottle = "{"delay" if way == "delays" else "refuse"}"',
        f'[[tenants]]\nname = "t"\nkind = "{match.tenant or "production"}"',
        f'[[applications]]\nname = "a"\ntenant = "t"\nkind = "{match.application or "private"}"',
        f"{'legacy_keys' if match.legacy else 'keys'} = {1 if by_key or not by_ip else clients}",
        '[[addresses]]\nname = "one"',
        f'[[clients]]\nname = "c"\ncount = {clients}\nloop = "open"',
        f'arrivals = {{ kind = "constant", rate = "{each}/{window_ns}ns" }}',
        f"mix = [{{ {_asked(rule)} }}]",
    ]
    if keyed:
        parts.append('application = "a"')
    if by_ip:
        parts.append('addresses = "one"')
    if match.proxy is not None:
        parts.append(_PROXY)
    return "\n".join(parts)


_PROXY: Final = """
[[proxies]]
name = "p"
tenant = "t"
host = "pay.example.com"
destination = { kind = "constant", value = "10ms" }
"""


def _asked(rule: Rule) -> str:
    """Return what is asked, so that the rule's row applies, as an entry of a mix."""
    if rule.match.proxy is not None:
        return f'request = "GET /proxy/pay", proxy = "p", via = "{rule.match.proxy}"'
    if rule.match.resource:
        method, _, path = rule.match.resource[0].partition(" ")
        method = "GET" if method == "ANY" else method
        return f'request = "{method} {path.replace("*", "jobs")}"'
    if rule.match.application == "public":
        return 'request = "POST /tokenize"'
    return 'request = "GET /tenants/self"'
