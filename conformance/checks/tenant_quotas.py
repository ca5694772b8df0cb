"""Seed 8.8: quotas are per tenant, and a record is gone when its retention has expired."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Final

from conformance.checks._common import (
    card,
    informs,
    is_refused,
    ok_or_unsettled,
    over_limit,
    quota,
    ready,
    refusal,
    token,
    tokenize,
    unsettled,
    value,
)
from conformance.runner.bench import Bench, Lane
from conformance.runner.registry import check
from conformance.runner.verdicts import Finding, Verdict
from conformance.wire.exchange import Exchange, KeyLabel
from engine.messages import Json

__all__: list[str] = []

_SECOND_NS: Final = 1_000_000_000
_LONGEST_NS: Final = 60 * _SECOND_NS
_CLOCK_SLACK_NS: Final = 50_000_000
_RETENTION: Final = "its retention is over"
_ROLES: Final = ("private_prod", "private_test", "dedup", "short")


# --- a tenant's own -----------------------------------------------------------------------------


@check(
    "quotas.tenants",
    "QUO-TENANT",
    accepts="each tenant is held to its own quota: the default, or what the target says",
    roles=("private_prod",),
    requests=14,
)
def tenants(bench: Bench) -> Iterator[Finding]:
    """Each tenant is held to its own Tokenize Limit, the default unless the operator changed it."""
    seen: set[str | None] = set()
    for role in _ROLES:
        if not bench.keys(role):
            continue
        key = bench.key(role)
        tenant = bench.target.key_labels[key].tenant
        if tenant in seen:
            continue
        seen.add(tenant)
        ready(bench, key, role)
        most = quota(bench, "Tokenize Limit", key)
        values: list[Json] = [value(bench, f"{role} {number}") for number in range(2 * most + 1)]
        below = tokenize(bench, values[:most], key)
        yield ok_or_unsettled(bench, "QUO-TENANT", f"{role}: {most} tokens", below)
        above = over_limit(bench, "tokenize", values[most:], key)
        if above.refused:
            yield bench.passes("QUO-TENANT", f"{role}: {most + 1} tokens refused, 429", above)
        else:
            yield refusal(bench, "QUO-TENANT", f"{role}: {most + 1} tokens", above)


@check(
    "quotas.shown",
    "QUO-TENANT",
    accepts="the quotas that the target names, the defaults else; or no such endpoint",
    roles=("management",),
    requests=1,
    is_extra=True,
)
def shown(bench: Bench) -> Iterator[Finding]:
    """The tenant's own page shows its quotas, where the deployment has one."""
    key = bench.key("management")
    exchange = bench.call("get_tenant", key=key)
    try:
        quotas = exchange.json["quotas"] if exchange.ok else None
    except (ValueError, LookupError, TypeError):
        quotas = None
    if not isinstance(quotas, dict):
        says = f"no page shows the quotas: {exchange.status}"
        yield informs(bench, "QUO-TENANT", says, exchange)
        return
    tenant = bench.target.tenant_of(bench.target.key_labels[key])
    for name, found in quotas.items():
        try:
            wanted = tenant.quota(name)
        except KeyError:
            continue
        is_count = name in {"Tokenize Limit", "Detokenize Limit"}
        if not is_count and isinstance(wanted, int) and isinstance(found, int | float):
            wanted = wanted // _SECOND_NS
        if found == wanted:
            yield bench.passes("QUO-TENANT", f"{name} = {found}", exchange)
        else:
            says = f"{name} must be {wanted}, not {found}; or say so in [[tenants]] quotas"
            yield bench.fails("QUO-TENANT", says, exchange)


# --- retention ----------------------------------------------------------------------------------


class _Kept(ABC):
    """Something that a tenant retains: made once, then asked for before and after its time."""

    def __init__(self, bench: Bench, lane: Lane, clause: str, name: str) -> None:
        self.bench = bench
        self.lane = lane
        self.clause = clause
        self.name = name
        self.key: KeyLabel = lane.defaults["key"]
        self.retained_ns = quota(bench, name, self.key)
        self.made: Exchange | None = None
        self.made_id = ""

    async def call(self, operation: str, values: dict[str, Json], body: Json = None) -> Exchange:
        """Ask for an operation by its name."""
        method, path, shaped = self.bench.shaped(operation, values)
        return await self.lane.insist(method, path, shaped if body is None else body)

    @abstractmethod
    async def make(self) -> bool:
        """Make it; false when the deployment does not."""

    @abstractmethod
    async def is_there(self) -> tuple[bool | None, Exchange]:
        """Return whether it is readable, None when nothing can be said, and what shows it."""

    def _unsaid(self, says: str, *shown: Exchange) -> Finding:
        """Say that nothing can be seen: a deployment need not have what is not specified."""
        if shown[-1].status in {404, 405, 501}:
            asked = f"{shown[-1].ask.method} {shown[-1].ask.path.partition('?')[0]}"
            says = f"{says} to {asked}, which is not specified; if it has it otherwise, say how "
            says += "in [requests]"
            return self.bench.finding(self.clause, Verdict.SKIPPED, says, *shown)
        return unsettled(self.bench, self.clause, says, *shown)

    async def judge(self) -> list[Finding]:
        """Make it, ask before its retention has expired, and after."""
        bench, clause = self.bench, self.clause
        if self.retained_ns > _LONGEST_NS:
            says = (
                f"the tenant of role short keeps its {self.name} for "
                f"{self.retained_ns // _SECOND_NS} s; set it to seconds, in [[tenants]] too"
            )
            return [bench.finding(clause, Verdict.SKIPPED, says)]
        if not await self.make():
            assert self.made is not None, "making it was asked for"
            says = f"{self.name}: nothing to retain could be made, {self.made.status}"
            return [self._unsaid(says, self.made)]
        assert self.made is not None, "it was made"
        found: list[Finding] = []
        for part in (0, 3):
            await self.lane.sleep_until_ns(
                self.made.received_ns + part * self.retained_ns // 5, _RETENTION
            )
            there, exchange = await self.is_there()
            if exchange.received_ns >= self.made.sent_ns + self.retained_ns:
                continue  # too late to say anything: the deadline may have passed
            if there is None:
                says = f"{self.name}: it cannot be read at all, {exchange.status}"
                return [self._unsaid(says, self.made, exchange)]
            if not there:
                says = f"must be readable until its {self.name} is over"
                return [*found, bench.fails(clause, says, self.made, exchange)]
            says = f"readable before its {self.name} is over"
            found.append(bench.passes(clause, says, self.made, exchange))
        if not found:
            says = f"answers are slower than a {self.name} of {self.retained_ns} ns"
            return [unsettled(bench, clause, says, self.made)]
        await self.lane.sleep_until_ns(
            self.made.received_ns + self.retained_ns + _CLOCK_SLACK_NS, _RETENTION
        )
        there, exchange = await self.is_there()
        if there is None:
            says = f"{self.name}: the answer afterwards says nothing, {exchange.status}"
            found.append(unsettled(bench, clause, says, self.made, exchange))
        elif there:
            says = f"must not be readable after its {self.name}"
            found.append(bench.fails(clause, says, self.made, exchange))
        else:
            says = f"not readable after its {self.name}"
            found.append(bench.passes(clause, says, self.made, exchange))
        return found


def _id_of(exchange: Exchange) -> str | None:
    try:
        found = exchange.json["id"] if exchange.ok else None
    except (ValueError, LookupError, TypeError):
        return None
    return found if isinstance(found, str) else None


class _Cvc(_Kept):
    async def make(self) -> bool:
        body = card(self.bench, "kept cvc")
        self.made = await self.call("tokenize", {"value": body})
        self.made_id = _id_of(self.made) or ""
        return bool(self.made_id)

    async def is_there(self) -> tuple[bool | None, Exchange]:
        body: Json = {"value": f"{{{{ {self.made_id} }}}}"}
        exchange = await self.call("detokenize", {"id": self.made_id}, body)
        try:
            data: Any = exchange.json["value"] if exchange.ok else None
        except (ValueError, LookupError, TypeError):
            data = None
        if not isinstance(data, dict) or "number" not in data:
            return None, exchange  # the card itself must stay readable, before and after
        return "cvc" in data, exchange


class _Intent(_Kept):
    async def make(self) -> bool:
        body = token(self.bench, "kept intent")
        self.made = await self.call("create_token_intent", {}, body)
        self.made_id = _id_of(self.made) or ""
        return bool(self.made_id)

    async def is_there(self) -> tuple[bool | None, Exchange]:
        exchange = await self.call("get_token_intent", {"id": self.made_id})
        if exchange.ok:
            return True, exchange
        return (False if is_refused(exchange) else None), exchange


class _Log(_Kept):
    async def make(self) -> bool:
        self.made = await self.call("tokenize", {"value": token(self.bench, "kept log")})
        self.made_id = _id_of(self.made) or ""
        return bool(self.made_id)

    async def is_there(self) -> tuple[bool | None, Exchange]:
        method, path, _ = self.bench.shaped("list_logs")
        exchange = await self.lane.insist(method, f"{path}?entity_id={self.made_id}")
        try:
            entries = exchange.json["data"] if exchange.ok else None
        except (ValueError, LookupError, TypeError):
            entries = None
        if not isinstance(entries, list):
            return None, exchange
        return bool(entries), exchange


@check(
    "quotas.retention",
    "QUO-CVC",
    "QUO-INTENT",
    "QUO-LOG",
    accepts="readable in [t, t + R), not after, R being the quota of the tenant of role short",
    roles=("short",),
    requests=14,
    takes_ns=3 * _SECOND_NS + _CLOCK_SLACK_NS,
)
async def retention(bench: Bench) -> list[Finding]:
    """A cvc, a token intent and a log entry are readable until their retention is over."""
    key = bench.key("short")
    kept = [
        made(bench, bench.lane(clause, key=key), clause, name)
        for made, clause, name in (
            (_Cvc, "QUO-CVC", "CVC Retention"),
            (_Intent, "QUO-INTENT", "Token Intent Retention"),
            (_Log, "QUO-LOG", "Log Retention"),
        )
    ]
    found = await bench.gather([one.judge() for one in kept])
    return [finding for each in found for finding in each]
