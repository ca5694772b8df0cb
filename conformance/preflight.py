"""The preflight: is there a deployment at all, which keys does it take, how far away is it?

Without it a run against a dead target, with a wrong key, or against a server that says 429, 200 or
HTML to everything would be silently green. One accepted request is asked for with the first key of
every role; what depends on a role that gets none is *inconclusive*, never a pass.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from conformance.bench import Bench, Lane
from conformance.exchanges import Exchange, KeyLabel
from conformance.registry import PREFLIGHT_ID, Check, Inconclusive, Skip
from conformance.session import Session
from conformance.target import Source
from conformance.verdicts import Finding
from engine.messages import Json

__all__ = ["PREFLIGHT", "Preflight", "Unreachable", "fly"]

_BASELINE: Final = 5
_QUICK_NS: Final = 1_000_000_000
_PATIENCE_NS: Final = 12_000_000_000
"""One ordinary window and a little, where a refusal does not say when to come again."""

_DOUBT: Final = "not known"
_UNKNOWN: Final = "no-key-of-this-deployment"


def _no_judge(bench: Bench) -> Iterable[Finding]:  # noqa: ARG001 # reason: a judge's form
    return ()


PREFLIGHT: Final = Check(
    PREFLIGHT_ID, (), "asks once with every kind of key", "an accepted request", _no_judge
)


class Unreachable(Exception):
    """The target gives no answer at all; the message says how."""


@dataclass(slots=True)
class Preflight:
    """What was found.

    problems: role → why its keys cannot be used. fatal: why nothing can be said at all.
    open_says: that a request without key is accepted. apart: whether two addresses were seen to
    count apart; `doubt` where that stays open although it was asked.
    """

    problems: dict[str, str] = field(default_factory=dict)
    accepted: list[str] = field(default_factory=list)
    fatal: str | None = None
    open_says: str | None = None
    latency_ns: int = 0
    jitter_ns: int = 0
    apart: bool | None = None
    doubt: str | None = None
    apart_says: str = "not asked: it takes two addresses and two keys of role private_test"

    def plain(self) -> dict[str, Any]:
        """Return it as JSON."""
        return dataclasses.asdict(self)


def fly(session: Session, roles: Iterable[str], *, with_addresses: bool) -> Preflight:
    """Ask; raises `Unreachable` when there is no answer.

    roles: those that the plan uses. with_addresses: whether limits are going to be probed, so
    that addresses must count apart.
    """
    bench = Bench(PREFLIGHT, session)
    lane = bench.lane("preflight")
    found = Preflight()
    if _knock(bench, lane):
        found.open_says = "a request without any key was accepted: see AUTH-HEADER"
    wanted = [role for role in dict.fromkeys(roles) if session.target.labels(role)]
    labels = {role: session.target.labels(role)[0] for role in wanted}
    asking = [_accepted(bench, bench.lane(role), role, label) for role, label in labels.items()]
    for role, why in zip(wanted, bench.transport.run(asking), strict=True):
        if why is None:
            found.accepted.append(role)
        else:
            found.problems[role] = why
    if wanted and not found.accepted:
        said = list(dict.fromkeys(found.problems.values()))
        found.fatal = f"no key of the target got a request accepted: {'; '.join(said[:3])}"
        return found
    if found.accepted:
        _baseline(bench, lane, found)
        session.latency_ns = found.latency_ns
        if with_addresses and "private_test" in found.accepted:
            _addresses(bench, found)
    return found


def _knock(bench: Bench, lane: Lane) -> bool:
    """Ask without a key; a service that accepts that accepts everything."""
    exchange: Exchange = bench.transport.run([_knocked(bench, lane)])[0]
    if exchange.status is None:
        raise Unreachable(f"{bench.target.base_url} gives no answer: {exchange.error}")
    return exchange.ok


def _tokenize(bench: Bench, body: Json) -> tuple[str, str, Json]:
    """Return method, path and body of a tokenize here."""
    return bench.shaped("tokenize", {"value": body})


async def _knocked(bench: Bench, lane: Lane) -> Exchange:
    asked = _tokenize(bench, {"knock": "knock"})
    found = await lane.ask(*asked)
    if found.status is None and found.received_ns - found.sent_ns < _QUICK_NS:
        found = await lane.ask(*asked)  # one may break by chance
    return found


async def _accepted(bench: Bench, lane: Lane, role: str, label: KeyLabel) -> str | None:
    """Ask once as a role may; returns what is wrong, None when it was accepted."""
    try:
        return await _asked(bench, lane, role, label)
    except Skip as skip:
        return str(skip)
    except Inconclusive as why:
        return str(why)


async def _asked(bench: Bench, lane: Lane, role: str, label: KeyLabel) -> str | None:
    key = bench.target.key_labels[label]
    value = f"preflight {bench.random(role).getrandbits(64):016x}"
    if role == "management":
        method, path, _ = bench.shaped("get_tenant")
        return _judged(await lane.insist(method, path, key=label, patience_ns=_PATIENCE_NS), label)
    if role in {"proxy_key", "custom_hostname"}:
        by = {"proxy_key": label} if role == "proxy_key" else {"host": label}
        path = bench.shaped("invoke_proxy", {"path": ""})[1]
        return _proxied(await lane.insist("GET", path, patience_ns=_PATIENCE_NS, **by), label)
    if role == "slow_destination":
        return None  # it is asked once, by the check that waits for it
    body: Any = {"preflight": value}
    if role == "private_one_container":
        choices, path = bench.profile.tokens, key.container or "/pci/"
        named = path if choices.container_form == "string" else [path]
        body = {"type": "token", "data": value, choices.container_field: named}
    asked = _tokenize(bench, body)
    found = await lane.insist(*asked, key=label, patience_ns=_PATIENCE_NS)
    if role == "private_no_permission":
        return await _unpermitted(lane, found, label)
    if role == "private_one_container":
        return _judged(found, label)
    return _judged(found, label) or _mirrored(found, label, value)


async def _unpermitted(lane: Lane, found: Exchange, label: KeyLabel) -> str | None:
    """A key without permission is refused: with 403, or any 4xx that an unknown key does not get.

    Any 4xx will do (D-STATUSES); but 401, say, could be a key that is not known at all, and then
    no refusal of it shows anything about permissions.
    """
    if found.status == 403:
        return None
    if found.status is None or not 400 <= found.status < 500:
        return f"{label} must have no permission; it got {found.status} instead of a 4xx"
    ask = found.ask
    unknown = await lane.insist(
        ask.method, ask.path, ask.body, key=_UNKNOWN, patience_ns=_PATIENCE_NS
    )
    if unknown.status != found.status:
        return None
    return f"{label} got {found.status}, as an unknown key does: whether it is known stays open"


def _judged(found: Exchange, label: KeyLabel) -> str | None:
    if found.status in {401, 403}:
        what = "is no key of this deployment" if found.status == 401 else "lacks the permission"
        return f"{label} {what} ({found.status} to {found.ask.method} {found.ask.path})"
    if not found.ok:
        return f"{label} got {found.status} to {found.ask.method} {found.ask.path}"
    try:
        answer = found.json
    except ValueError:
        kind = found.header("Content-Type") or "no type"
        return f"{label} got an answer that is no JSON ({kind})"
    if not isinstance(answer, dict):
        return f"{label} got JSON that is no object to {found.ask.method} {found.ask.path}"
    return None


def _mirrored(found: Exchange, label: KeyLabel, value: str) -> str | None:
    answer = found.json
    given = answer.get("preflight")
    if isinstance(given, str) and given != value:
        return None
    return f"{label} got an answer that is none of a tokenization service: no identifier in it"


def _proxied(found: Exchange, label: KeyLabel) -> str | None:
    """A proxy's answer is its destination's; only the service itself says 401, 404 or 400."""
    if found.status in {400, 401, 403, 404}:
        return f"{label} names no proxy of this deployment ({found.status} to GET {found.ask.path})"
    return None


def _baseline(bench: Bench, lane: Lane, found: Preflight) -> None:
    role = next((role for role in found.accepted if role.startswith("private_prod")), None)
    label = bench.target.labels(role or found.accepted[0])[0]

    async def asked() -> list[Exchange]:
        asked = _tokenize(bench, {})
        return [await lane.insist(*asked, key=label) for _ in range(_BASELINE)]

    took = [one.received_ns - one.sent_ns for one in bench.transport.run([asked()])[0]]
    found.latency_ns = int(statistics.median(took))
    found.jitter_ns = max(took) - min(took)


def _addresses(bench: Bench, found: Preflight) -> None:
    """Whether two addresses really have counters of their own (LIM-TEST-TENANT, by key and IP).

    One key exceeds from one address; then it asks from a second one, and another key asks from
    both. Pairs counted apart admit all three; where each address has its own counter the second
    key is admitted from the second address alone. When only the first key is refused from both,
    the two are one address to the deployment, or it counts by key alone: a *doubt*, which a probe
    of LIM-IP can end.
    """
    labels = bench.target.labels("private_test")
    sources = bench.sources
    if len(labels) < 2 or len(sources) < 2:
        return
    try:
        found.apart, found.apart_says = bench.transport.run(
            [_counted_apart(bench, labels[0], labels[1], sources[0], sources[1])]
        )[0]
        if found.apart is None and found.apart_says.startswith(_DOUBT):
            found.doubt = found.apart_says
    except (Skip, Inconclusive) as why:
        found.apart_says = str(why)


async def _counted_apart(
    bench: Bench, key: KeyLabel, other: KeyLabel, here: Source, there: Source
) -> tuple[bool | None, str]:
    rule = next((rule for rule in bench.limits if rule.id == "LIM-TEST-TENANT"), None)
    if rule is None:
        return None, "not asked: the limit table has no LIM-TEST-TENANT"
    lane = bench.lane("addresses", key=key)
    asked = _tokenize(bench, {})
    for _ in range(rule.limit_requests * 2 + 1):
        if (await lane.ask(*asked, source=here)).refused:
            break
    else:
        return None, f"not seen: {rule.limit_requests * 2 + 1} requests were not refused"
    elsewhere = await lane.ask(*asked, source=there)
    fresh = await lane.ask(*asked, key=other, source=there)
    if not elsewhere.refused:
        return True, f"{here} and {there} are counted apart"
    beside = await lane.ask(*asked, key=other, source=here)
    if beside.refused and not fresh.refused:
        return True, f"{here} and {there} are counted apart, whatever the key"
    if not beside.refused and not fresh.refused:
        return None, f"{_DOUBT}: {here} and {there} are one to the deployment, or keys alone count"
    return False, f"{here} and {there} are one address to the deployment"
