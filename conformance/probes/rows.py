"""How each row of the limit table is tested from outside: resource, key and address.

Each row is tested on a resource where no other row has a lower rate, so that the refusals are its
own: a limit of 2000 on a resource that section 8.3 does not limit, and one of 100 or 200 on a
production tenant. Where possible, requests create nothing (the body `{}` has no token in it).
"""

from __future__ import annotations

import dataclasses
import functools
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from conformance.probes.bursts import Asker, Counter
from conformance.probes.families import Rate
from conformance.probes.signature import (
    ANY,
    APART,
    BOTH_OTHER,
    CONTROL,
    OTHER_RESOURCE,
    TWIN,
    TWIN_BY_ID,
    Probes,
)
from conformance.runner.bench import Bench
from conformance.runner.registry import Skip
from conformance.target import Source
from conformance.wire.exchange import Ask, KeyLabel
from engine.limits import Rule
from engine.limits.table import COUNTER_KINDS
from engine.messages import Json

_MANY_ADDRESSES: Final = 12
MOST_ADDRESSES: Final = 3
"""How many other addresses another key uses when a row is measured again."""
_REST_SPREAD_NS: Final = 2_000_000_000
_LOOK_NS: Final = 1_000_000_000
_SHARP: Final = 20
"""A border is known if it lies inside this part of a window."""
_MERGE_PATCH: Final = {"Content-Type": "application/merge-patch+json"}


_PROXY_METHODS: Final = tuple(
    f"invoke_proxy/{method}" for method in ("method", "PUT", "PATCH", "DELETE")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How one row is tested.

    says: what its check shows. role: the role of its key; None for requests without a key. keys,
    sources: how many it needs for itself. operation: what is sent. other: an operation that no
    other row limits to fewer requests during the probe. twins: further operations of the same row.
    apart: operations of other rows, which must have separate counters. single: an operation that
    may or may not belong to the row (D-GET-TOKENS). any_of: operations that a row for any resource
    must also refuse, where the deployment has them. more_keys, more_sources: further ones, if the
    target has spare ones.

    The name of an operation may end in `/other` (another path), in `/method` (another method), or
    in the name of a method.
    """

    rule_id: str
    says: str
    role: str | None = "private_prod"
    keys: int = 1
    sources: int = 1
    operation: str
    other: str = "search"
    twins: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    single: str | None = None
    any_of: tuple[str, ...] = ()
    more_keys: int = 0
    more_sources: int = 0

    @property
    def other_role(self) -> str:
        """The role of the other key, which must be of the same class."""
        if self.role is None or self.keys < 2:  # reason: it has no second key of its own
            return "private_no_permission"
        return self.role

    def asker(
        self, bench: Bench, operation: str, *, key: KeyLabel | None, sources: tuple[Source, ...]
    ) -> Asker:
        """Return a maker of requests for an operation, with one key, from addresses in turn."""
        names = {} if key is None else {_field(key): key}
        salt = bench.random(f"{self.rule_id} {operation}").getrandbits(64)

        def make(number: int) -> Ask:
            values: Mapping[str, Json] = {
                "id": str(uuid.UUID(int=(salt << 64) + number, version=4)),
                "value": f"probe-{number}",
                "path": "" if operation == self.operation else "/other",
            }
            name, _, changed = operation.partition("/")
            method, path, body = bench.shaped(name, values)
            if changed == "method":
                method = "POST" if method == "GET" else "GET"
            elif changed.isupper():
                method = changed
            if operation == "tokenize":
                body = {}
            headers = _MERGE_PATCH if operation == "patch" else {}
            return Ask(
                method=method,
                path=path,
                body=body,
                headers=headers,
                source=sources[number % len(sources)],
                **names,
            )

        return make

    def probes(
        self,
        bench: Bench,
        rule: Rule,
        key: KeyLabel | None,
        sources: tuple[Source, ...],
        *,
        addresses: int = 1,
        known: Sequence[str] = (),
    ) -> Probes:
        """Return the signature probes that the target's keys and addresses allow.

        addresses: how many other addresses another key uses; other checks may use one of them too.
        known: identifiers of existing tokens, one for each of `any_of`.
        """
        others = spare_sources(bench, addresses)
        if not others:
            others = tuple(one for one in bench.target.addresses if one not in sources)[:1]
        own = functools.partial(self.asker, bench, key=key, sources=sources)
        found = {CONTROL: own(self.operation), OTHER_RESOURCE: own(self.other)}
        for operation in self.twins:
            # An unknown id gives 404, which does not show whether the operation exists.
            kind = TWIN_BY_ID if operation.startswith("get_") else TWIN
            found[kind + operation] = own(operation)
        for operation in self.apart:
            found[APART + operation] = own(operation)
        for operation, token in zip(self.any_of, known, strict=False):
            found[ANY + operation] = of_token(bench, operation, own(operation), token)
        found = {name: ask for name, ask in found.items() if name == CONTROL or _may(bench, ask)}
        if self.single is not None:
            found["one token"] = own(self.single)
        if rule.counter == "proxy-key+ip":
            found |= self._with_key(bench, found[CONTROL])
        found |= self._elsewhere(bench, rule, key, sources, others)
        return Probes(found, _own_probes(rule, found))

    def _elsewhere(
        self,
        bench: Bench,
        rule: Rule,
        key: KeyLabel | None,
        sources: tuple[Source, ...],
        others: tuple[Source, ...],
    ) -> dict[str, Asker]:
        """Return the probes with another key, from another address, and with both."""
        found = {}
        other_key = self._other_key(bench, key)
        if other_key is not None:
            mine = sources[:1]
            found["other key"] = self.asker(bench, self.operation, key=other_key, sources=mine)
        if others:
            found["other address"] = self.asker(bench, self.operation, key=key, sources=others[:1])
        if others and other_key is not None and rule.counter != "ip":
            for place, other in enumerate(others[: _addresses(rule)], 1):
                both = self.asker(bench, self.operation, key=other_key, sources=(other,))
                found[BOTH_OTHER + (f" {place}" if place > 1 else "")] = both
        return found

    def most_probes(self, rule: Rule) -> int:
        """Return the most signature probes, the control included, `any_of` and `apart` not."""
        named = (CONTROL, OTHER_RESOURCE, "other key", "other address", *self.twins)
        more = (self.single is not None) + (rule.counter == "proxy-key+ip")
        return len(named) + _addresses(rule) + more

    def _with_key(self, bench: Bench, plain: Asker) -> dict[str, Asker]:
        """Return the probe that shows an API key beside the proxy key (D-PROXY-RULES)."""
        labels = bench.target.labels("private_no_permission")
        if not labels:
            return {}
        return {"with an API key": lambda number: dataclasses.replace(plain(number), key=labels[0])}

    def _other_key(self, bench: Bench, key: KeyLabel | None) -> KeyLabel | None:
        role = self.other_role
        dealt = [label for label in bench.keys(role) if label != key]
        labels = dealt or [label for label in bench.target.labels(role) if label != key]
        return labels[-1] if dealt else labels[0] if labels else None


def _own_probes(rule: Rule, names: Iterable[str]) -> frozenset[str]:
    """Return those of the signature probes that a row counts in the same counter."""
    own = {name for name in names if name.startswith((TWIN, ANY))}
    if not rule.match.resource:
        own.add(OTHER_RESOURCE)
    if "ip" not in COUNTER_KINDS[rule.counter].fields[0]:
        own.add("other address")
    if rule.counter == "ip":
        own.add("other key")
    return frozenset(own)


def _addresses(rule: Rule) -> int:
    """Return how many other addresses another key may be tried at; D-AND-COUNTER needs several."""
    return MOST_ADDRESSES if rule.counter == "ip+key" else 1


def of_token(bench: Bench, operation: str, plain: Asker, token: str) -> Asker:
    """Return a maker of requests for a given token, instead of one that does not exist."""

    def make(number: int) -> Ask:
        _, path, body = bench.shaped(operation, {"id": token, "value": "probe"})
        return dataclasses.replace(plain(number), path=path, body=body)

    return make


def _may(bench: Bench, ask: Asker) -> bool:
    """Whether the target permits an operation and sets no limit of its own for it."""
    one = ask(0)
    found = bench.target.spelling.operation(one.method, one.path)
    own = None if found is None else bench.target.shape(found[0]).limit
    return own is None and bench.session.forbids(one.method, one.path) is None


def _field(key: KeyLabel) -> str:
    role = key.rpartition(".")[0]
    return {"proxy_key": "proxy_key", "custom_hostname": "host"}.get(role, "key")


ROWS: Final[Mapping[str, Row]] = {
    row.rule_id: row
    for row in (
        Row(
            rule_id="LIM-TEST-TENANT",
            says="A test tenant's key is limited to 50 per 10 s at one address, whatever it asks.",
            keys=2,
            role="private_test",
            operation="tokenize",
        ),
        Row(
            rule_id="LIM-SEARCH",
            says="A search is limited to 50 per 10 s for a key at one address.",
            operation="search",
            other="tokenize",
            apart=("list", "list_account_updater_jobs"),
        ),
        Row(
            rule_id="LIM-READ",
            says="Listing tokens and detokenizing share 100 per 10 s for a key at one address.",
            operation="list",
            other="tokenize",
            twins=("detokenize",),
            apart=("search", "list_account_updater_jobs"),
            single="get",
        ),
        Row(
            rule_id="LIM-CREATE",
            says="POST /tokens and /tokenize share 200 per 10 s for a key at one address.",
            operation="tokenize",
            twins=("create",),
            apart=("list", "patch", "delete", "list_account_updater_jobs"),
        ),
        Row(
            rule_id="LIM-PATCH",
            says="Patching is limited to 200 per 10 s for a key at one address, all ids together.",
            operation="patch",
            apart=("tokenize", "list", "delete", "list_account_updater_jobs"),
        ),
        Row(
            rule_id="LIM-DELETE",
            says="Deleting is limited to 200 per 10 s for a key at one address, all ids together.",
            operation="delete",
            apart=("tokenize", "list", "patch", "list_account_updater_jobs"),
        ),
        Row(
            rule_id="LIM-ACCOUNT-UPDATER",
            says="The account updater is limited to 10 per 10 s for a key at one address.",
            role="legacy",
            operation="list_account_updater_jobs",
            twins=("get_account_updater_job", "create_account_updater_job"),
        ),
        Row(
            rule_id="LIM-PRIVATE",
            says="A private application's key is limited to 2000 per 10 s, all addresses together.",
            sources=2,
            more_sources=2,
            operation="list_logs",
            any_of=("create", "list", "get", "patch", "delete", "detokenize"),
        ),
        Row(
            rule_id="LIM-PUBLIC",
            says="A public key is limited to 50 per minute at one address, then blocked 10 s.",
            keys=3,
            role="public",
            operation="tokenize",
        ),
        Row(
            rule_id="LIM-MANAGEMENT",
            says="A management key is limited to 200 per minute, then blocked for a minute.",
            keys=2,
            more_keys=3,
            role="management",
            operation="get_tenant",
            other="list_applications",
        ),
        Row(
            rule_id="LIM-PROXY-KEY",
            says="A proxy named by its key is limited to 50 per 10 s at one address.",
            keys=2,
            role="proxy_key",
            operation="invoke_proxy",
            other="invoke_proxy/other",
            twins=_PROXY_METHODS,
        ),
        Row(
            rule_id="LIM-PROXY-HOST",
            says="A proxy named by a custom hostname is limited to 50 per 10 s at one address.",
            keys=2,
            role="custom_hostname",
            operation="invoke_proxy",
            other="invoke_proxy/other",
            twins=_PROXY_METHODS,
        ),
        Row(
            rule_id="LIM-IP",
            says="An address is limited to 2000 per 10 s, whatever it asks, then blocked for 30 s.",
            more_sources=1,
            role=None,
            operation="list",
            other="tokenize",
            any_of=("search", "get", "patch", "delete"),
        ),
        Row(
            rule_id="LIM-LEGACY",
            says="A legacy key is limited to 100 per minute at one address.",
            keys=2,
            role="legacy",
            operation="tokenize",
        ),
    )
}
"""Every row of the specification by its id."""


def spare_sources(bench: Bench, number: int, *, after: int = 0) -> tuple[Source, ...]:
    """Return addresses for a few more requests, as many as there are; none for a small target.

    Other probes may use them too, but not those that send thousands: LIM-IP counts every request.
    """
    addresses = bench.target.addresses
    if len(addresses) < _MANY_ADDRESSES:
        return ()
    taken = {*bench.sources, *bench.session.crowded}
    free = [one for one in addresses[1:] if one not in taken]
    return tuple(free[after : after + number])


def rate_of(bench: Bench, rule_id: str) -> tuple[Rule, Rate]:
    """Return a row of the target's table; raises `Skip` if it has none or only a shadow rule."""
    for rule in bench.limits:
        if rule.id == rule_id and not rule.shadow:
            return rule, Rate(rule.limit_requests, rule.window_ns, rule.block_ns or 0)
    raise Skip(f"the target's limit table has no {rule_id} in force; add the row")


async def rest(bench: Bench, rate: Rate, *, is_warm: bool, is_empty: bool = False) -> None:
    """Wait until no earlier request counts any more and no block lasts.

    is_warm: the keys were used shortly before, by an unknown client. A sliding counter also weighs
    the window before, so it forgets only after two windows. Unless another row has shown by then
    that the deployment counts otherwise, this waits for two. is_empty: wait as long as for a warm
    key, because what follows needs a counter without any weight.
    """
    name = "rest again" if "rest" in bench.lane_names else "rest"
    lane = bench.lane(name)
    bench.is_warm = False
    takes_ns = max(rate.window_ns, rate.block_ns)
    again_ns = 0 if is_warm else bench.check.takes_ns
    bench.session.note_rest(bench.check.id, takes_ns + again_ns, is_warm=is_warm)
    more_ns = bench.random(name).randrange(_REST_SPREAD_NS)
    await lane.sleep_ns(takes_ns + more_ns, "its keys have rested")
    if not (is_warm or is_empty):
        return
    is_known = bench.knows("limits.algorithm")
    if not is_known or bench.profile.limits.algorithm == "sliding-counter":
        bench.session.note_rest(bench.check.id, rate.window_ns, is_warm=is_warm)
        await lane.sleep_ns(rate.window_ns, "its keys have rested")


def is_fixed(bench: Bench) -> bool:
    """Whether the deployment is known to count in windows fixed on a clock."""
    limits = bench.profile.limits
    is_anchored = bench.knows("limits.fixed_anchor") and limits.fixed_anchor == "first"
    is_known = bench.knows("limits.algorithm") and limits.algorithm == "fixed-window"
    return is_known and not is_anchored


async def border_of(bench: Bench, rate: Rate) -> int | None:
    """Return about when a window begins, if windows are fixed on a clock; None if not known.

    A throttle row with the same window shows it, because its keys are never blocked; this waits
    for that row.
    """
    if not is_fixed(bench):
        return None
    lane = bench.lane("border")
    until_ns = lane.now_ns + rate.window_ns * 12 // 10
    window_ns, borders = rate.window_ns, bench.session.borders

    def seen() -> int | None:
        low_ns, high_ns = borders.get(window_ns, (0, window_ns))
        return (low_ns + high_ns) // 2 if high_ns - low_ns <= window_ns // _SHARP else None

    while seen() is None and lane.now_ns < until_ns:
        await lane.sleep_ns(_LOOK_NS, "another row shows when its window begins")
    told = bench.make("border", lambda: str(seen() or ""))
    return int(told) if told else None


def counter_of(
    bench: Bench,
    name: str,
    rule_id: str,
    key: KeyLabel | None,
    *,
    operation: str = "",
    sources: tuple[Source, ...] = (),
) -> Counter:
    """Return a new counter: a row's requests, with one key.

    operation: what is sent; the row's own unless given. sources: the addresses; the check's first
    unless given.
    """
    row, sources = ROWS[rule_id], sources or bench.sources[:1]
    asker = row.asker(bench, operation or row.operation, key=key, sources=sources)
    return Counter(bench, name, asker)
