"""The outlook: what a target allows to be judged, what not and why, before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from conformance.runner.plan import Plan
from conformance.target.form import Target
from conformance.target.roles import ROLES
from engine.files import format_duration
from engine.limits import LimitTable

__all__ = ["blocked_addresses", "outlook", "unshown"]

_WIDTH: Final = 96


def unshown(plan: Plan) -> list[tuple[str, list[str]]]:
    """Return (reason, clauses) of what a plan cannot show, the reason of most clauses first."""
    by_reason: dict[str, dict[str, None]] = {}
    for finding in plan.left_out:
        by_reason.setdefault(finding.says, {})[finding.clause] = None
    for clause in plan.clauses:
        if clause.unobservable is not None:
            by_reason.setdefault(clause.unobservable, {})[clause.id] = None
        if clause.masked is not None:
            by_reason.setdefault(clause.masked, {})[f"{clause.id} in part"] = None
    found = [(reason, list(clauses)) for reason, clauses in by_reason.items()]
    return sorted(found, key=lambda one: -len(one[1]))


def blocked_addresses(plan: Plan, target: Target, limits: LimitTable | None = None) -> list[str]:
    """Return what probes will shut out for a while, besides the keys that are theirs alone.

    A rule whose counter is the address alone refuses everybody behind that address.
    """
    found = []
    for rule in limits or LimitTable.default():
        probe = next((one for one in plan.dealt if one.check.id == f"limits.{rule.id}"), None)
        if probe is None or rule.counter != "ip" or rule.shadow:
            continue
        lasts_ns = rule.block_ns or rule.window_ns
        lasts = format_duration(lasts_ns)
        if target.forwarded is not None:
            header = target.forwarded.partition(":")[0]
            where = f"the addresses that {header} names"
            who = "no real client may use one of these addresses then"
        else:
            named = [source for source in probe.sources if source is not None]
            where = " and ".join(named) or "this machine's own address"
            who = "so is everybody else behind the same address: one NAT, VPN or CI host"
        found.append(
            f"the probe of {rule.id} exceeds {rule.rate}: for {lasts} afterwards every request "
            f"from {where} is refused; {who}; --no-limits leaves such probes out"
        )
    return found


def outlook(plan: Plan, target: Target, limits: LimitTable) -> Iterator[str]:
    """Yield the lines of `check`: what will be judged, what not, why, and how to change that."""
    left: dict[str, None] = {}
    for finding in plan.left_out:
        left[finding.clause] = None
    judged = {clause for one in plan.dealt for clause in one.check.clauses}
    asked = [clause for clause in plan.clauses if clause.id in judged]
    whole = [clause.id for clause in asked if clause.id not in left]
    part = [clause.id for clause in asked if clause.id in left]
    yield f"{target.base_url}: {len(asked)} of {len(plan.clauses)} clauses can be judged"
    yield from _listed("judged", whole)
    yield from _listed("judged in part", part)
    yield f"a run sends about {plan.requests} requests, {plan.requests_most} at most"
    if plan.floor_ns:
        floor = format_duration(plan.floor_ns)
        yield f"  and takes {floor} or a little longer: windows, blocks and retentions cannot be"
        yield "  made shorter"
    if plan.short_says is not None:
        yield f"warning: {plan.short_says}"
    for line in blocked_addresses(plan, target, limits):
        yield f"warning: {line}"
    reasons = unshown(plan)
    if reasons:
        yield ""
        yield "not judged, or in part only, and why:"
    for reason, clauses in reasons:
        yield f"- {', '.join(clauses)}"
        yield f"    {reason}"
    yield from _missing_roles(target)
    yield from _renamed(target)
    yield ""
    yield "nothing was sent; whether the keys are accepted shows at the start of a run"


def _listed(word: str, ids: Iterable[str]) -> Iterator[str]:
    line = f"{word}:"
    for name in ids:
        if len(line) + len(name) + 2 > _WIDTH:
            yield line
            line = "   "
        line += f" {name}"
    if line.strip(": ") != word:
        yield line


def _missing_roles(target: Target) -> Iterator[str]:
    """Yield what a key of each role that the target lacks would have to hold."""
    missing = [role for name, role in ROLES.items() if not target.labels(name)]
    few = [
        (role, len(target.labels(name)))
        for name, role in ROLES.items()
        if role.many and 0 < len(target.labels(name)) < 8
    ]
    if missing:
        yield ""
        yield "keys that would show more ([[keys]] role = …):"
        for role in missing:
            yield f"- {role.name}: {role.holds}; shows {role.purpose}"
    if few:
        yield ""
        yield "roles of which eight keys let limits be measured in one round:"
        for role, number in few:
            yield f"- {role.name}: {number}"


def _renamed(target: Target) -> Iterator[str]:
    if target.notes:
        yield ""
        yield from target.notes
