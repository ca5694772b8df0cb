"""The plan: what runs, with which keys and addresses, when, how long, and what cannot be shown.

Checks that wait run side by side. Probes of limits get keys and addresses of their own; all other
checks share the rest. Where a target has too few for all probes at once, further *rounds* follow,
each after the longest window or block has passed. A probe that needs more than the target has is
left out, and the plan says what to add.

In real time, checks start one after another. The longest probes start at once, because they decide
how long a run takes. Shorter probes start later: if all started together, they would delay each
other, distort bursts and make the long probes late. Heavy computation waits until the first bursts
are over. Checks that may stall the deployment wait until only blocks and windows are left, unless
answers are so slow that the checks would not finish in time. The schedule changes no verdict. On
virtual time all checks start at once.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from conformance.context.check import (
    CLEANING,
    PREFLIGHT,
    Check,
    Load,
    about_all,
    missing_need,
)
from conformance.context.session import Rest
from conformance.context.verdicts import Finding, Verdict
from conformance.limits.findings import MOST_MEASUREMENTS
from conformance.limits.measurement import HEAVY_REQUESTS
from conformance.limits.rows import ROWS, LimitRow, parties_apart, sizes_of, tighter
from conformance.messages.exchange import KeyLabel
from conformance.target import ROLES, Source, Target
from engine import LimitTable
from engine.clauses import Clause
from engine.files import span_text
from engine.limits import Rule

_SECOND_NS: Final = 1_000_000_000
_SEVERAL: Final = 6
_SLACK_REQUESTS: Final = 30
_FEW_REQUESTS: Final = 40
"""So many an address answers at any time, whatever limits it."""
"""Extra requests of a check, besides twice its usual number, where it does not name a maximum."""


@dataclass(frozen=True, slots=True)
class Dealt:
    """A check with its keys and addresses, its own or shared ones."""

    check: Check
    keys: Mapping[str, Sequence[KeyLabel]]
    sources: tuple[Source, ...]


@dataclass(slots=True)
class RunPlan:
    """What a run will do.

    clauses: the selected ones. sequential, rounds: the checks; the first round runs beside
    `sequential`, each later one after a pause of `pause_ns`. heavy: rows of thousands of requests,
    measured one after the other when nothing else runs. left_out: findings for checks that
    cannot run here. reserved: the usual number of requests of each check, the preflight and the
    cleaning included; their sum is never above the budget. spare: how many requests of the budget
    they share beyond that. needed: the budget that holds any run.
    """

    clauses: tuple[Clause, ...]
    sequential: list[Dealt] = field(default_factory=list)
    rounds: list[list[Dealt]] = field(default_factory=list)
    heavy: list[Dealt] = field(default_factory=list)
    left_out: list[Finding] = field(default_factory=list)
    reserved: dict[str, int] = field(default_factory=dict)
    spare: int = 0
    needed: int = 0
    pause_ns: int = 0

    @property
    def dealt(self) -> list[Dealt]:
        """Everything that will run."""
        return [
            *self.sequential,
            *(dealt for together in self.rounds for dealt in together),
            *self.heavy,
        ]

    @property
    def requests(self) -> int:
        """The approximate number of requests."""
        return sum(self._expected().values())

    @property
    def requests_most(self) -> int:
        """The largest possible number of requests."""
        return min(self.requests + self.spare, self.needed)

    def _expected(self) -> dict[str, int]:
        """Return about how many requests each check sends, the preflight and the cleaning too."""
        requests = {dealt.check.id: dealt.check.requests for dealt in self.dealt}
        made = sum(dealt.check.requests for dealt in self.dealt if not dealt.check.is_probe)
        roles = {role for dealt in self.dealt for role in dealt.check.roles}
        apart = 110 if any(dealt.check.is_probe for dealt in self.dealt) else 0
        return {**requests, PREFLIGHT.id: 10 + 3 * len(roles) + apart, CLEANING.id: made // 2}

    def fit(self, budget: int) -> None:
        """Drop checks that do not fit a budget of requests; reserve what the others usually send.

        A check may need more requests than usual, because answers are slow or a limit is met early.
        It takes them from the part of the budget that is not reserved, which all checks share. So
        no check is dropped for requests that it rarely sends, and all together never exceed the
        budget.
        """
        while sum(self._expected().values()) > budget and self.dealt:
            largest = max(
                self.dealt, key=lambda dealt: (dealt.check.requests, dealt.check.is_probe)
            )
            for together in (self.sequential, *self.rounds, self.heavy):
                if largest in together:
                    together.remove(largest)
            wants = f"its {largest.check.requests} requests do not fit budget.requests = {budget}"
            leave_out(self, largest.check, f"{wants}; raise it", is_cut=True)
        self.reserved = self._expected()
        self.spare = max(0, budget - sum(self.reserved.values()))
        most = {dealt.check.id: dealt.check.requests_most for dealt in self.dealt}
        self.needed = sum(
            max(2 * usual + _SLACK_REQUESTS, most.get(name, 0))
            for name, usual in self.reserved.items()
        )

    @property
    def floor_ns(self) -> int:
        """The shortest possible duration of a run: windows, blocks and retentions."""
        return self.floor_without_ns(())

    def floor_without_ns(
        self, skipped: Container[str], rests: Mapping[str, Rest] | None = None
    ) -> int:
        """Return the floor of a run without some checks, which had nothing to send.

        rests: of the checks whose keys had to rest.
        """

        def takes_ns(check: Check) -> int:
            rest = (rests or {}).get(check.id)
            return check.takes_ns + (0 if rest is None else rest.more_ns)

        longest = [
            max((takes_ns(d.check) for d in together if d.check.id not in skipped), default=0)
            for together in self.rounds
        ]
        pauses = max(0, len([together for together in self.rounds if together]) - 1)
        heavy = [takes_ns(d.check) for d in self.heavy if d.check.id not in skipped]
        return sum(longest) + pauses * self.pause_ns + sum(heavy)

    def warm_ns(self, measurements: int = 1) -> int:
        """Return the duration of a run right after another one, with the same keys and addresses.

        measurements: how often each row is measured.
        """
        rests = {
            check.id: Rest(check.rest_ns + (measurements - 1) * check.takes_ns)
            for check in (dealt.check for dealt in self.dealt)
            if check.is_row
        }
        return self.floor_without_ns((), rests)

    @property
    def durations(self) -> str:
        """How long a run takes, in words."""
        fresh, warm, worst = map(
            span_text, (self.floor_ns, self.warm_ns(), self.warm_ns(MOST_MEASUREMENTS))
        )
        if fresh == worst:  # no limit is measured
            return f"takes at least {fresh}"
        return (
            f"takes at least {fresh} on fresh keys, about {warm} right after another run with the "
            f"same keys, and {worst} at most, if every limit is measured {MOST_MEASUREMENTS} times"
        )

    def rest_beyond(self, skipped: Container[str], rests: Mapping[str, Rest]) -> Rest:
        """Return how much longer than its floor a run takes at least, because keys had to rest."""
        more_ns = self.floor_without_ns(skipped, rests) - self.floor_without_ns(skipped)
        longest = max(dict(rests).values(), default=Rest())
        return Rest(more_ns, longest.is_warm)

    @property
    def short_says(self) -> str | None:
        """What to do where the budget may cut a check short, None where it holds any run."""
        if self.needed <= self.requests + self.spare:
            return None
        return (
            f"a check that would send more than budget.requests allows is skipped; no run of this "
            f"target needs more than budget.requests = {self.needed}"
        )


class _Pool:
    """Keys and addresses not assigned yet; taken from the end."""

    def __init__(self, keys: Mapping[str, Sequence[KeyLabel]], sources: Sequence[Source]) -> None:
        self.keys = {role: list(labels) for role, labels in keys.items()}
        self.sources = list(sources)

    def take(self, check: Check, reserved: Mapping[str, int], kept_sources: int) -> Dealt | None:
        """Return the check with what it asks for, None when too little is left."""
        wanted = Counter(check.roles)
        for role, number in wanted.items():
            if len(self.keys.get(role, ())) - reserved.get(role, 0) < number:
                return None
        if len(self.sources) - kept_sources < check.sources:
            return None
        keys = {}
        for role, number in wanted.items():
            keys[role] = tuple(self.keys[role].pop() for _ in range(number))
        sources = tuple(self.sources.pop() for _ in range(check.sources))
        return Dealt(check, keys, sources or tuple(self.sources[:1]))

    def take_all(
        self, checks: Sequence[Check], reserved: Mapping[str, int], kept_sources: int
    ) -> tuple[list[Dealt], list[Check]]:
        """Return the checks that get what they ask for, and those that too little is left for."""
        taken = [(check, self.take(check, reserved, kept_sources)) for check in checks]
        left = [check for check, dealt in taken if dealt is None]
        return [dealt for _, dealt in taken if dealt is not None], left

    def split(self) -> tuple[_Pool, _Pool]:
        """Return what plain checks share, and what the rows of the limit table share.

        Where there is only one key of a role, or one address, both have it.
        """
        shared, apart = _Pool({}, ()), _Pool({}, ())
        for role, labels in self.keys.items():
            few = 2 if len(labels) >= _SEVERAL else 1
            shared.keys[role] = labels[:few]
            apart.keys[role] = labels[few:] or labels
        few = max(1, len(self.sources) // 4)
        shared.sources = self.sources[:few]
        apart.sources = self.sources[few:] or self.sources
        return shared, apart

    def dealt(self, check: Check) -> Dealt:
        """Return a check with everything that is here."""
        keys = {role: tuple(labels) for role, labels in self.keys.items()}
        return Dealt(check, keys, tuple(self.sources))


def make_plan(
    target: Target,
    limits: LimitTable,
    clauses: Sequence[Clause],
    checks: Iterable[Check],
) -> RunPlan:
    """Return the plan for the checks of some clauses."""
    plan = RunPlan(tuple(clauses))
    plan.pause_ns = max(max(rule.window_ns, rule.block_ns or 0) for rule in limits)
    wanted = {clause.id for clause in clauses}
    plain: list[Check] = []
    probes: list[Check] = []
    for unsized in checks:
        if not wanted.intersection(unsized.clauses):
            continue
        check = _sized(unsized, limits)
        why = _lack(check, target) or _own_limit(check, target, limits)
        if why is not None:
            leave_out(plan, check, why, is_cut=_is_too_long(check, target))
            continue
        (probes if check.is_probe else plain).append(check)
        for clause_id, names in check.clause_needs.items():
            why = missing_need(names, target) if clause_id in wanted else None
            if why is not None:
                plan.left_out.append(Finding(clause_id, check.id, Verdict.SKIPPED, why))
    _deal(plan, target, limits, plain, sorted(probes, key=lambda check: -check.takes_ns))
    plan.fit(target.budget.requests)
    return plan


def _row_of(check: Check, limits: LimitTable) -> tuple[LimitRow, Rule] | None:
    """Return the row that a check measures and its rule in the target's table, if any."""
    row = ROWS.get(check.id.removeprefix("limits."))
    return next(((row, rule) for rule in limits if row and rule.id == row.rule_id), None)


def _sized(check: Check, limits: LimitTable) -> Check:
    """Return the check of a row with the sizes that the target's own table gives it."""
    row = _row_of(check, limits)
    if row is None:
        return check
    _, rule = row
    return dataclasses.replace(check, **sizes_of(rule)._asdict())


def leave_out(plan: RunPlan, check: Check, why: str, *, is_cut: bool = False) -> None:
    """Add a finding for each clause of a check that does not run; is_cut: as in `Finding`."""
    wanted = {clause.id for clause in plan.clauses}
    findings = about_all(check, Verdict.SKIPPED, why, is_cut=is_cut)
    plan.left_out += [finding for finding in findings if finding.clause in wanted]


def _is_too_long(check: Check, target: Target) -> bool:
    """Whether a check takes longer than the budget's minutes."""
    return check.takes_ns > target.budget.minutes * 60 * _SECOND_NS


def _lack(check: Check, target: Target) -> str | None:
    """Return what the target lacks for a check, with the line that adds it."""
    for role, number in Counter(check.roles).items():
        there = len(target.labels(role))
        if there < number:
            have = f"{there} of {number} keys" if number > 1 else "no key"
            return f'the target has {have} of role {role}; add [[keys]] role = "{role}"'
    there = len(target.addresses)
    if there < check.sources:
        return f"the target has {there} of {check.sources} addresses; add sources or forwarded"
    if _is_too_long(check, target):
        takes = span_text(check.takes_ns)
        return f"it takes {takes}, more than budget.minutes = {target.budget.minutes}; raise it"
    pacing = target.pacing
    if pacing is not None and check.is_probe:
        allowed = check.takes_ns * pacing.limit_requests // pacing.window_ns
        if allowed < check.requests:
            return f"pacing = {pacing} is too slow to reach the limit; raise it"
    return None


def _own_limit(check: Check, target: Target, limits: LimitTable) -> str | None:
    """Return why a row cannot be seen with an operation that has a tighter limit of its own."""
    row = _row_of(check, limits)
    if row is None:
        return None
    return tighter(*row, target, limits)


def _timed(pool: _Pool, plain: Sequence[Check], reserved: Mapping[str, int]) -> dict[str, Dealt]:
    """Assign keys and addresses of its own to each check that judges time, while there are any.

    If other checks used them too, a limiter that delays would add its delay to the measured time.
    """
    shared = {role for check in plain if not check.is_timed for role in check.roles}
    assigned = {}
    for check in plain:
        if not check.is_timed:
            continue
        needs = {role: number for role, number in reserved.items() if role in shared}
        own = dataclasses.replace(check, sources=1 + check.requests // _FEW_REQUESTS)
        dealt = pool.take(own, needs, 1)
        if dealt is not None:
            assigned[check.id] = dataclasses.replace(dealt, check=check)
    return assigned


def _deal(
    plan: RunPlan, target: Target, limits: LimitTable, plain: list[Check], probes: list[Check]
) -> None:
    everything = {role: target.labels(role) for role in ROLES if target.labels(role)}
    used = {role for check in plain for role in check.roles}
    # The first key of a role is shared: the preflight has used it.
    reserved = {role: 1 for role, labels in everything.items() if len(labels) > 1 or role in used}
    pool = _Pool(everything, target.addresses)
    rows = [check for check in probes if check.is_row]
    first, later = pool.take_all([check for check in probes if not check.is_row], reserved, 1)
    own = _timed(pool, plain, reserved)
    shared, apart = pool.split()
    for check in plain:
        dealt = own.get(check.id) or shared.dealt(check)
        (first if check.is_concurrent else plan.sequential).append(dealt)
    dealt_rows = [apart.dealt(check) for check in rows]
    is_beside = parties_apart(shared.keys, shared.sources, apart.keys, apart.sources)
    rates = {f"limits.{rule.id}": rule.limit_requests for rule in limits}
    light = [row for row in dealt_rows if rates.get(row.check.id, 0) < HEAVY_REQUESTS]
    plan.heavy = [row for row in dealt_rows if row not in light]
    beside = [row for row in light if not plain or is_beside(row.check.roles)]
    plan.rounds.append([*first, *beside])
    budget_ns = target.budget.minutes * 60 * _SECOND_NS
    alone = [row for row in light if row not in beside]
    while later or alone:
        pool = _Pool(everything, target.addresses)
        now, later = pool.take_all(later, {}, 0)
        plan.rounds.append([*now, *alone])
        alone = []
        if plan.floor_ns > budget_ns:
            dropped = plan.rounds.pop()
            for check in [*(dealt.check for dealt in dropped), *later]:
                why = "too few keys and addresses to fit budget.minutes; add some or raise it"
                leave_out(plan, check, why, is_cut=True)
            return


# --- the schedule ---------------------------------------------------------------------------------

_NONE_NS: Final = 5 * _SECOND_NS
"""Slack below this counts as none."""
_FIRST_NS: Final = _SECOND_NS
"""The head start of the most urgent checks."""
_BULK_REQUESTS: Final = 5_000


def starts_ns(together: Sequence[Dealt]) -> list[int]:
    """Return the start of each check of a round, in nanoseconds after that of the round.

    Probes with slack are spread over the first quarter of it, those with the fewest requests first.
    A probe with very many requests starts after two thirds of its slack. Beside probes, a check
    that may stall the deployment starts after three quarters of the time.
    """
    longest_ns = max((dealt.check.takes_ns for dealt in together), default=0)
    instants = [0] * len(together)
    light = []
    has_probes = any(dealt.check.is_probe for dealt in together)
    for place, dealt in enumerate(together):
        slack_ns = longest_ns - dealt.check.takes_ns
        if dealt.check.load == "stalling" and has_probes:
            instants[place] = longest_ns * 3 // 4
        if not dealt.check.is_probe or slack_ns < _NONE_NS:
            continue
        if dealt.check.requests >= _BULK_REQUESTS:
            instants[place] = slack_ns * 2 // 3
        else:
            light.append((dealt.check.requests, place, slack_ns))
    for turn, (_, place, slack_ns) in enumerate(sorted(light)):
        instants[place] = _FIRST_NS + slack_ns // 4 * turn // len(light)
    return instants


def loads_after_ns(
    together: Sequence[Dealt], beside: Iterable[Dealt], latency_ns: int
) -> dict[Load, int]:
    """Return, by load, how long after the start of a round the checks beside it may start.

    latency_ns: of one request. Checks start sooner where their requests would not be done in time
    otherwise.
    """
    if not any(dealt.check.is_probe for dealt in together):
        return {"light": 0, "computing": 0, "stalling": 0, "closing": 0}
    longest_ns = max(dealt.check.takes_ns for dealt in together)
    needed_ns = 3 * latency_ns * sum(dealt.check.requests for dealt in beside)
    latest_ns = max(0, longest_ns - needed_ns)
    return {
        "light": _FIRST_NS,
        "computing": min(longest_ns // 4, latest_ns),
        "stalling": min(longest_ns * 3 // 4, latest_ns),
        "closing": min(longest_ns * 3 // 4, latest_ns),
    }


_WIDTH: Final = 95
_FEW_ADDRESSES: Final = 3


def unshown(plan: RunPlan) -> list[tuple[str, list[str]]]:
    """Return (reason, clauses) of what a plan cannot show, the reason of most clauses first."""
    by_reason: dict[str, dict[str, None]] = {}
    for finding in plan.left_out:
        by_reason.setdefault(finding.message, {})[finding.clause] = None
    whole = {finding.clause for finding in plan.left_out}
    for clause in plan.clauses:
        if clause.unobservable is not None:
            by_reason.setdefault(clause.unobservable, {})[clause.id] = None
        if clause.masked is not None and clause.id not in whole:
            by_reason.setdefault(clause.masked, {})[f"{clause.id} in part"] = None
    reasons = [(reason, list(clauses)) for reason, clauses in by_reason.items()]
    return sorted(reasons, key=lambda reason: -len(reason[1]))


def blocked_addresses(plan: RunPlan, target: Target, limits: LimitTable | None = None) -> list[str]:
    """Return warnings about the addresses that probes will have refused for a while.

    A rule whose counter is the address alone refuses everybody behind that address.
    """
    warnings = []
    for rule in limits or LimitTable.default():
        probe = next((dealt for dealt in plan.dealt if dealt.check.id == f"limits.{rule.id}"), None)
        if probe is None or rule.counter != "ip" or rule.shadow:
            continue
        lasts_ns = rule.block_ns or rule.window_ns
        lasts = span_text(lasts_ns)
        if target.forwarded is not None:
            header = target.forwarded.partition(":")[0]
            where = f"the addresses that {header} names"
            who = "no real client may use one of these addresses then"
        else:
            named = [source for source in probe.sources if source is not None]
            where = listed(named) or "this machine's own address"
            who = "so is everybody else behind the same address: one NAT, VPN or CI host"
        warnings.append(
            f"the probe of {rule.id} exceeds {rule.rate}: for {lasts} afterwards every request "
            f"from {where} is refused; {who}; --no-limits leaves such probes out"
        )
    return warnings


def listed(addresses: Sequence[str]) -> str:
    """Return addresses as text: all of a few, else the first, the last and how many.

    >>> listed(["127.0.0.2", "127.0.0.3"]), listed([f"127.0.0.{n}" for n in range(2, 9)])
    ('127.0.0.2 and 127.0.0.3', '7 addresses from 127.0.0.2 to 127.0.0.8')
    """
    if len(addresses) <= _FEW_ADDRESSES:
        return " and ".join(addresses)
    return f"{len(addresses)} addresses from {addresses[0]} to {addresses[-1]}"


def outlook(plan: RunPlan, target: Target, limits: LimitTable) -> Iterator[str]:
    """Yield the lines of `check`: what will be judged, what not, why, and how to change that."""
    left = {finding.clause for finding in plan.left_out}
    judged = {clause for dealt in plan.dealt for clause in dealt.check.clauses}
    asked = [clause for clause in plan.clauses if clause.id in judged]
    whole = [clause.id for clause in asked if clause.id not in left]
    part = [clause.id for clause in asked if clause.id in left]
    yield f"{target.base_url}: {len(asked)} of {len(plan.clauses)} clauses can be judged"
    yield from _listed("judged", whole)
    yield from _listed("judged in part", part)
    yield f"a run sends about {plan.requests:,} requests, {plan.requests_most:,} at most"
    if plan.floor_ns:
        yield f"  and {plan.durations}"
        yield "  more keys of a role and more `sources` can shorten it: checks then need not wait"
        yield "  until a key or an address has cooled down"
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
    if target.notes:
        yield ""
        yield from target.notes
    yield ""
    yield "nothing was sent; whether the keys are accepted shows at the start of a run"


def _listed(word: str, ids: Iterable[str]) -> Iterator[str]:
    yield from textwrap.wrap(
        " ".join(ids),
        _WIDTH,
        initial_indent=f"{word}: ",
        subsequent_indent="    ",
        break_on_hyphens=False,
    )


def _missing_roles(target: Target) -> Iterator[str]:
    """Yield what a key of each missing role must hold, and the roles with few keys."""
    missing = [role for name, role in ROLES.items() if not target.labels(name)]
    few = [
        (role, len(target.labels(name)))
        for name, role in ROLES.items()
        if role.many and 0 < len(target.labels(name)) < 8
    ]
    if missing:
        yield ""
        yield "keys that would let a run judge more ([[keys]] role = …):"
        for role in missing:
            yield f"- {role.name}: {role.holds}; shows {role.purpose}"
    if few:
        yield ""
        yield "eight keys of each of these roles measure all limits in one round; there are:"
        for role, number in few:
            yield f"- {role.name}: {number}"
