"""From rows to counters: which rules apply to a class of requests, and what each of them counts.

A row of the table becomes one or more *legs*, each a family of counters with one key: `key|ip` has
a leg by key and one by IP. What the profile says about counters (D-AND-COUNTER, D-OR-COUNTER,
D-OR-RESOURCE), kinds (D-LEGACY-CLASS, D-PROXY-RULES) and composition (D-COMPOSE) is resolved here
once per class of requests, so that a decision only walks a tuple of legs.

Equal rows of two tables share their legs: an IP counter spans tenants, whichever table names the
row (D-COUNTED).

Where only successful requests count (D-COUNTED, only 2xx), charges are given back. A request is
decided at its arrival, before its answer is known, so it is charged then; an answer other than 2xx
gives the charge back. From that moment on the counter is as if the request had never been made:
later charges are undone, last first, and made again without it. Decisions about other requests
meanwhile are not revised, nor are the blocks that they began.

A counter keeps a journal from its oldest unsettled charge on; without requests in flight it is
empty, and a charge that is given back at once costs one undo.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from engine.errors import InputError, did_you_mean
from engine.limits.compiled.algorithms import (
    ALGORITHMS,
    BLOCK,
    LAST,
    LINE_SIZE,
    PLACE,
    PRODUCT_BOUND,
    READY,
    Charge,
    grow_ring,
    rule_row,
)
from engine.limits.subject import PARTS, Headroom, Part, Subject
from engine.limits.table import (
    COUNTER_KINDS,
    DEFAULT_TABLE,
    FAMILIES,
    Classifier,
    LimitTable,
    Rule,
    suffixed,
)
from engine.messages import Decision
from engine.model import ApplicationKind, TenantKind
from engine.profile import Algorithm, LimitsProfile

_FIRST_SLOTS: Final = 4
_ROOMS_LIMIT: Final = 4096
_SHORTEST_HORIZON_NS: Final = 60_000_000_000

By: TypeAlias = tuple[Part, ...]
Charging: TypeAlias = tuple[Charge, list[int], list[int], tuple[int, ...]]
"""The function that charges a counter, and its first three arguments."""

CounterKey: TypeAlias = str | None | tuple[str | None, str | None]


class Counted:
    """One counter: its line and ring (`engine.limits.compiled.algorithms`), its leg, its journal.

    `charging` is what `make_charge` takes.
    """

    __slots__ = ("charging", "journal", "leg", "line", "ring")

    def __init__(self, leg: Leg) -> None:
        self.leg = leg
        self.line: list[int] = [0] * LINE_SIZE
        self.ring: list[int] = [0] * leg.first_slots
        self.charging: Charging = (leg.charge, self.line, self.ring, leg.row)
        self.journal = Journal(self.charging) if leg.settles else None

    def charge(self, t_ns: int) -> None:
        """Charge one request."""
        make_charge(*self.charging, t_ns)

    def is_idle(self, now_ns: int) -> bool:
        """Whether it decides like a fresh counter from now on."""
        if self.line[BLOCK] > now_ns or self.journal:
            return False
        return self.leg.idle_ns(self.line, self.ring, self.leg.row) <= now_ns


class RequestClass(NamedTuple):
    """The properties of a request that decide which rules apply.

    carried: whether it has each of `PARTS`. resources: the patterns that it matches.
    """

    table: str
    tenant_kind: TenantKind | None
    application_kind: ApplicationKind | None
    legacy: bool
    carried: tuple[bool, ...]
    resources: tuple[int, ...]

    def carries(self, part: Part) -> bool:
        """Return whether it has a part."""
        return self.carried[PARTS.index(part)]


def carried(parts: tuple[str | None, ...]) -> tuple[bool, ...]:
    """Return which of a subject's parts it has."""
    return tuple([value is not None for value in parts])


def class_of(subject: Subject, resources: tuple[int, ...]) -> RequestClass:
    """Return the class of a request."""
    return RequestClass(
        subject.table,
        subject.tenant_kind,
        subject.application_kind,
        subject.legacy,
        carried(subject.parts),
        resources,
    )


_KEY_OF: Final = tuple(itemgetter(*map(PARTS.index, by)) for by in FAMILIES)


def counter_keys(subject: Subject) -> tuple[CounterKey, ...]:
    """Return the subject's key in each family of counters; a leg's is at its `key_place`."""
    parts = subject.parts
    return tuple([key_of(parts) for key_of in _KEY_OF])


class Leg:
    """A family of counters of one rule: how they count, and those that are active."""

    def __init__(self, name: str, rule: Rule, by: By, profile: LimitsProfile) -> None:
        self.name = name
        self.names = (name,)
        self.rule = rule
        self.algorithm: Algorithm = rule.algorithm or profile.algorithm
        burst = rule.burst_requests or profile.burst_requests
        method = ALGORITHMS[self.algorithm]
        if method.takes_burst and burst and burst * rule.window_ns >= PRODUCT_BOUND:
            raise InputError(
                f"burst_requests = {burst} must be lower for {rule.id}: "
                "burst × nanoseconds of the window must stay below 2^62"
            )
        closed = profile.edges == "closed"
        self.charge = method.charge
        self.remaining = method.remaining
        self.idle_ns = method.idle_ns
        self.row = rule_row(
            self.algorithm,
            rule.limit_requests,
            rule.window_ns,
            burst_requests=burst,
            closed=closed,
            anchored=profile.fixed_anchor == "first",
        )
        self.block_ns = 0 if rule.block_ns is None else rule.block_ns + closed
        self.key_place = FAMILIES.index(by)
        self.key_of = _KEY_OF[self.key_place]
        self.settles = profile.counted_statuses == "success"
        self.first_slots = min(_FIRST_SLOTS, rule.limit_requests) if method.has_ring else 0
        self.counters: dict[CounterKey, Counted] = {}
        # A log that was just charged has one of N states; None where N is too large to cache them.
        few = method.has_ring and rule.limit_requests <= _ROOMS_LIMIT
        self.rooms: dict[int, Headroom] | None = {} if few else None
        self.horizon_ns = max(2 * rule.window_ns, self.block_ns, _SHORTEST_HORIZON_NS)
        self.sweep_at_ns = 0
        self.unswept: list[CounterKey] = []

    def sweep(self, now_ns: int, size: int) -> bool:
        """Forget the counters that decide like fresh ones; return whether there were any.

        size: how many to check in one call; call again while `unswept` holds others. Counters that
        stay were charged within the horizon, so a sweep per horizon costs constant time per charge.
        """
        counters = self.counters
        if not self.unswept:
            self.unswept = list(counters)
        count = len(counters)
        for key in self.unswept[-size:]:
            if counters[key].is_idle(now_ns):
                del counters[key]
        del self.unswept[-size:]
        if not self.unswept:
            self.sweep_at_ns = now_ns + self.horizon_ns
            self.counters = dict(counters)  # a new dict frees the memory of the forgotten ones
        return len(counters) < count


class Legs:
    """The legs of some tables under a profile, and which of them apply to a class of requests.

    A rule by IP alone with no match, such as LIM-IP, counts everybody and stands in `Default`
    only. Raises `InputError` when another table holds such a rule that `Default` does not have,
    or another rule of its name.
    """

    def __init__(self, tables: Mapping[str, LimitTable], profile: LimitsProfile) -> None:
        if DEFAULT_TABLE not in tables:
            raise InputError(f"limits hold no table {DEFAULT_TABLE!r}; name one of them so")
        self._profile = profile
        self._tables = dict(tables)
        rules = [rule for table in tables.values() for rule in table]
        patterns = dict.fromkeys(pattern for rule in rules for pattern in rule.match.resource)
        self.classifier = Classifier(patterns, profile.get_tokens)
        self._places = {pattern: place for place, pattern in enumerate(patterns)}
        self._legs: dict[tuple[Rule, str, By, int], Leg] = {}
        self._rules = {name: self._in_force(name) for name in tables}

    def all(self) -> tuple[Leg, ...]:
        """Return every leg that a request has met so far."""
        return tuple(self._legs.values())

    def _in_force(self, name: str) -> tuple[Rule, ...]:
        """Return a table's rules, and those of `Default` that count everybody."""
        everybody = tuple(rule for rule in self._tables[DEFAULT_TABLE] if rule.is_global)
        own = self._tables[name].rules
        taken = {rule.id for rule in everybody}
        for rule in own:
            if (rule.is_global or rule.id in taken) and rule not in everybody:
                raise InputError(
                    f"table {name!r}: {rule.id} counts every request by IP, which is in no "
                    f"tenant's table; change it in {DEFAULT_TABLE!r}"
                )
        return own + tuple(rule for rule in everybody if rule not in own)

    def of_class(self, asked: RequestClass) -> tuple[Leg, ...]:
        """Return the legs that count a class of requests, in table order."""
        if asked.table not in self._rules:
            near = did_you_mean(asked.table, self._rules)
            raise InputError(f"limits hold no table {asked.table!r}{near}")
        legs = [
            leg
            for rule in self._rules[asked.table]
            if self._applies(rule, asked)
            for leg in self._legs_of(rule, asked)
        ]
        if self._profile.compose == "lowest":
            legs = _lowest(legs, [leg for leg in legs if not leg.rule.shadow] or legs)
        return tuple(legs)

    def _applies(self, rule: Rule, asked: RequestClass) -> bool:
        match = rule.match
        if match.tenant is not None and match.tenant != asked.tenant_kind:
            return False
        if match.legacy is not None and match.legacy != asked.legacy:
            return False
        if match.application is not None:
            if match.application != asked.application_kind:
                return False
            if asked.legacy and self._profile.legacy_class == "exclusive" and not match.legacy:
                return False
        if match.resource and self._resource(rule, asked) is None:
            return False
        if match.proxy is None:
            return True
        if asked.carries("key_id") and self._profile.proxy_rules == "unkeyed":
            return False
        return asked.carries("proxy_key_id" if match.proxy == "key" else "host_id")

    def _resource(self, rule: Rule, asked: RequestClass) -> int | None:
        """Return the index of the first of a rule's resources that a class falls under."""
        for own_place, pattern in enumerate(rule.match.resource):
            if self._places[pattern] in asked.resources:
                return own_place
        return None

    def _legs_of(self, rule: Rule, asked: RequestClass) -> list[Leg]:
        apart = self._profile.or_resource == "separate" and rule.match.resource
        place = (self._resource(rule, asked) or 0) if apart else 0
        return [
            self._leg(rule, suffix, by, place)
            for suffix, by in _counters_of(rule, asked, self._profile)
        ]

    def _leg(self, rule: Rule, suffix: str, by: By, place: int) -> Leg:
        found = self._legs.get((rule, suffix, by, place))
        if found is None:
            found = Leg(rule.id + suffix, rule, by, self._profile)
            self._legs[rule, suffix, by, place] = found
        return found


_AND_COUNTERS: Final[dict[str, tuple[By, ...]]] = {
    "pair": (("ip", "key_id"),),
    "each": (("key_id",), ("ip",)),
    "key": (("key_id",),),
    "ip": (("ip",),),
}
"""D-AND-COUNTER: what a rule by IP and key counts by."""


def _counters_of(
    rule: Rule, asked: RequestClass, profile: LimitsProfile
) -> tuple[tuple[str, By], ...]:
    """Return the counters that a rule has for a class: the suffix of its name, and its parts.

    A counter that needs what the request does not carry does not count it (D-UNKEYED).
    """
    by = COUNTER_KINDS[rule.counter].by
    found = tuple(each for each in suffixed(by) if all(map(asked.carries, each[1])))
    if rule.counter == "ip+key" and found:
        return suffixed(_AND_COUNTERS[profile.and_counter])
    return found[:1] if profile.or_counter == "key-else-ip" else found  # D-OR-COUNTER


def _lowest(legs: list[Leg], among: list[Leg]) -> list[Leg]:
    """Return the legs whose rate is not above the lowest rate of `among` (D-COMPOSE lowest).

    A shadow rule never excludes other rules; it counts where its own rate would be the lowest.
    """
    return [
        leg
        for leg in legs
        if all(
            leg.rule.limit_requests * other.rule.window_ns
            <= other.rule.limit_requests * leg.rule.window_ns
            for other in among
        )
    ]


class Entry:
    """One charge: its instant, what it overwrote, and whether its answer is a known success."""

    __slots__ = ("line", "settled", "slot_ns", "t_ns")

    def __init__(self, t_ns: int) -> None:
        self.t_ns = t_ns
        self.line: list[int] = []
        self.slot_ns = 0
        self.settled = False


@dataclass(frozen=True, slots=True)
class PendingDecision(Decision):
    """A decision whose charges may still be given back: hand it to `Limiter.settle`."""

    settle_with: tuple[Any, ...] = field(default=(), repr=False, compare=False)


def make_charge(
    charge: Charge, line: list[int], ring: list[int], row: tuple[int, ...], t_ns: int
) -> None:
    """Charge one request, growing the ring where the algorithm asks for a slot more."""
    try:
        charge(line, ring, row, t_ns)
    except IndexError:
        grow_ring(ring, row[0])
        charge(line, ring, row, t_ns)


class Journal:
    """The charges of one counter from its oldest unsettled one on."""

    __slots__ = ("_charging", "_entries")

    def __init__(self, charging: Charging) -> None:
        self._charging = charging
        self._entries: deque[Entry] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        """Forget all: the counter was cleared, and there is nothing left to give back."""
        self._entries.clear()

    def charge(self, t_ns: int) -> Entry:
        """Charge one request and remember how to undo it."""
        entry = Entry(t_ns)
        self._charge(entry)
        return entry

    def keep(self, entry: Entry) -> None:
        """The answer was a success: the charge stays."""
        entry.settled = True
        self._trim()

    def give_back(self, entry: Entry) -> None:
        """The answer was no success: undo this charge and those after it, and redo the latter."""
        place = next((i for i, each in enumerate(self._entries) if each is entry), None)
        if place is None:
            return  # the counter was cleared since
        _, line, ring, _ = self._charging
        block_until_ns = line[BLOCK]
        undone = [self._entries.pop() for _ in range(len(self._entries) - place)]
        for each in undone:
            line[:] = each.line
            if line[PLACE] < len(ring):
                ring[line[PLACE]] = each.slot_ns
        for each in undone[-2::-1]:
            self._charge(each)
        line[BLOCK] = block_until_ns
        line[READY] = max(line[READY], block_until_ns)
        self._trim()

    def _charge(self, entry: Entry) -> None:
        _, line, ring, _ = self._charging
        entry.line = line.copy()
        entry.slot_ns = ring[line[PLACE]] if line[PLACE] < len(ring) else 0
        make_charge(*self._charging, entry.t_ns)
        line[LAST] = entry.t_ns
        self._entries.append(entry)

    def _trim(self) -> None:
        while self._entries and self._entries[0].settled:
            self._entries.popleft()
