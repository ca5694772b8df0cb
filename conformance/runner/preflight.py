"""The preflight: is there a deployment, which keys does it accept, how long does an answer take?

Without it, a run against a dead target, with a wrong key, or against a server that answers 429, 200
or HTML to everything could pass. It sends a request with the first key of every role in the plan. A
check that depends on a role whose key cannot be used is *inconclusive*, never a pass. It sends
`POST /tokenize`, the only endpoint with a specified shape; a GET through the proxy for the proxy
roles; and `get_tenant` where an answer leaves open whether a key is known.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from conformance.context.check import PREFLIGHT, Inconclusive, Skip
from conformance.context.context import CheckContext, Lane
from conformance.context.session import Session
from conformance.context.verdicts import Finding, Verdict
from conformance.messages.exchange import Exchange, KeyLabel
from conformance.target import Source
from engine.errors import TollgateError
from engine.messages import Json

_BASELINE: Final = 5
_QUICK_NS: Final = 1_000_000_000
_PATIENCE_NS: Final = 12_000_000_000
"""A little more than an ordinary window, where a refusal does not say when to retry."""

_DOUBT: Final = "not known"
_UNKNOWN: Final = "no-key-of-this-deployment"
_LACKS: Final = "lacks the permission"


class Unreachable(TollgateError):
    """The target does not answer; the message contains the error."""

    exit_code = 3


@dataclass(slots=True)
class Preflight:
    """What the preflight found.

    problems: role → why its keys cannot be used. doubts: role → what is uncertain about its keys; a
    failure that needs them becomes inconclusive. fatal: why nothing can be judged. open_says: set
    where a request without a key is accepted. misshapen: what is wrong with the form of an accepted
    answer, and the number of its exchange. apart: whether two addresses were seen to be counted
    separately, None where not known; doubt: why that stays uncertain after the test.
    """

    problems: dict[str, str] = field(default_factory=dict)
    doubts: dict[str, str] = field(default_factory=dict)
    accepted: list[str] = field(default_factory=list)
    fatal: str | None = None
    open_says: str | None = None
    misshapen: tuple[str, int] | None = None
    latency_ns: int = 0
    jitter_ns: int = 0
    apart: bool | None = None
    doubt: str | None = None
    apart_says: str = "not tested: this needs two addresses and two keys of role private_test"

    @property
    def findings(self) -> list[Finding]:
        """The findings about clauses: an accepted answer whose form is not that of its body."""
        if self.misshapen is None:
            return []
        message, number = self.misshapen
        accepts = "2xx with the same keys, each value replaced by an identifier string"
        return [Finding("TOK-PLAIN", PREFLIGHT.id, Verdict.FAIL, message, (number,), accepts)]


def fly(session: Session, roles: Iterable[str], *, with_addresses: bool) -> Preflight:
    """Run the preflight; raises `Unreachable` when there is no answer.

    roles: those that the plan uses. with_addresses: whether limits will be probed, so that
    addresses must be counted separately.
    """
    ctx = CheckContext(PREFLIGHT, session)
    lane = ctx.lane("preflight")
    preflight = Preflight()
    if ctx.transport.run([_knock(ctx, lane)])[0]:
        preflight.open_says = "a request without any key was accepted: see AUTH-HEADER"
    wanted = [role for role in dict.fromkeys(roles) if session.target.labels(role)]
    labels = {role: session.target.labels(role)[0] for role in wanted}
    asking = [_Role(ctx, preflight, role, label).ask() for role, label in labels.items()]
    for role, why in zip(wanted, ctx.transport.run(asking), strict=True):
        if why is None:
            preflight.accepted.append(role)
        else:
            preflight.problems[role] = session.redactor.text(why)  # a header may hold the key
    session.doubts = preflight.doubts
    session.is_misshapen = preflight.misshapen is not None
    # A wrong address answers all keys alike, and the key of a slow destination is not tried here.
    sure = [
        role
        for role in preflight.accepted
        if role not in preflight.doubts and role != "slow_destination"
    ]
    if wanted and not sure and (preflight.problems or not preflight.accepted):
        said = list(dict.fromkeys(preflight.problems.values()))
        preflight.fatal = f"no key of the target got a request accepted: {'; '.join(said[:3])}"
        return preflight
    if preflight.accepted:
        _baseline(ctx, lane, preflight)
        if preflight.fatal is not None:
            return preflight
        session.latency_ns = preflight.latency_ns
        if not with_addresses:
            preflight.apart_says = "not tested: this run measures no limits"
        elif "private_test" in preflight.accepted:
            _addresses(ctx, preflight)
    return preflight


def _tokenize(ctx: CheckContext, body: Json) -> tuple[str, str, Json]:
    """Return method, path and body of a tokenize here."""
    return ctx.shaped("tokenize", {"value": body})


async def _knock(ctx: CheckContext, lane: Lane) -> bool:
    """Send a request without a key; return whether it was accepted, which it must not be."""
    asked = _tokenize(ctx, {"knock": "knock"})
    exchange = await lane.ask(*asked)
    if exchange.status is None and exchange.received_ns - exchange.sent_ns < _QUICK_NS:
        exchange = await lane.ask(*asked)  # a connection may break by chance
    if exchange.status is None:
        raise Unreachable(f"{ctx.target.base_url} gives no answer: {exchange.error}")
    return exchange.ok


class _Role:
    """One role: sends one request that its keys may send."""

    def __init__(self, ctx: CheckContext, preflight: Preflight, role: str, label: KeyLabel) -> None:
        self.ctx = ctx
        self.found = preflight
        self.role = role
        self.label = label
        self.lane = ctx.lane(role)

    async def ask(self) -> str | None:
        """Return what is wrong with the role's first key, None when it can be used."""
        try:
            return await self._asked()
        except (Skip, Inconclusive) as why:
            return str(why)

    async def _asked(self) -> str | None:
        role, label = self.role, self.label
        if role in {"proxy_key", "custom_hostname"}:
            by: dict[str, Any] = {"proxy_key" if role == "proxy_key" else "host": label}
            path = self.ctx.shaped("invoke_proxy", {"path": ""})[1]
            exchange = await self.lane.insist("GET", path, patience_ns=_PATIENCE_NS, **by)
            if exchange.status not in {400, 401, 403, 404}:
                return None
            # The service's own answers; others come from the destination.
            path = exchange.ask.path
            return f"{label} names no proxy of this deployment ({exchange.status} to GET {path})"
        if role == "slow_destination":
            return None  # the check that waits for it sends the only request
        exchange = await self._tokenized(label)
        may_create = self.ctx.target.may(label, "token:create")
        if may_create is False:
            return await self._forbidden(exchange)
        if exchange.ok:
            return self._judged(exchange)
        if may_create is None:
            return await self._unsure(exchange)
        if exchange.status in {401, 403}:
            what = "is not a key of this deployment" if exchange.status == 401 else _LACKS
            return f"{label} {what} ({_answered(exchange)})"
        return f"{label} got {_answered(exchange)}"

    async def _tokenized(self, key: KeyLabel) -> Exchange:
        """Create one token in a container that this role's key may write to."""
        ctx = self.ctx
        body: Any = {"preflight": f"preflight {ctx.random(self.role).getrandbits(64):016x}"}
        if self.role == "private_one_container":
            return await self._tokenized_in_container(body["preflight"], key)
        return await self.lane.tokenize(body, key, patience_ns=_PATIENCE_NS)

    async def _tokenized_in_container(self, value: str, key: KeyLabel) -> Exchange:
        """Create a token in the key's own container, named in the form that is accepted.

        Where the form is not told, the other one is tried, and taken as a discovered choice.
        """
        ctx, path = self.ctx, self.ctx.target.container_of(self.label)
        choices, is_told = ctx.profile.tokens, ctx.knows("tokens.container_form")
        other = "array" if choices.container_form == "string" else "string"
        for form in (choices.container_form, other)[: 1 if is_told else 2]:
            body = {"type": "token", "data": value, **ctx.container_of(path, form)}
            exchange = await self.lane.tokenize(body, key, patience_ns=_PATIENCE_NS)
            if exchange.ok and not is_told:
                ctx.session.learn(("tokens.container_form", form))
            if exchange.ok or exchange.status in {401, 403}:
                break
        return exchange

    async def _forbidden(self, exchange: Exchange) -> str | None:
        """Check that a key without permission gets a 4xx, and one that an unknown key does not get.

        Any 4xx will do (D-STATUSES). But a 401, for example, could also mean that the key is
        unknown, and then its refusals show nothing about permissions.
        """
        label = self.label
        if self.role != "private_no_permission" and exchange.ok:
            return None  # the check of AUTH-CREATE judges that
        if exchange.status is None or not 400 <= exchange.status < 500:
            return f"{label} must have no permission; it got {exchange.status} instead of a 4xx"
        if exchange.status == 403 or (await self._tokenized(_UNKNOWN)).status != exchange.status:
            return None
        stays = "it may not be known there"
        return f"{label} got {exchange.status}, like an unknown key: {stays}"

    async def _unsure(self, exchange: Exchange) -> str | None:
        """Judge a key that may or may not create tokens: is it known to the deployment?

        `get_tenant`, which the specification does not define, is tried last, and may be missing.
        """
        label = self.label
        if exchange.status is None or not 400 <= exchange.status < 500:
            return f"{label} got {_answered(exchange)}"
        if (await self._tokenized(_UNKNOWN)).status != exchange.status:
            return None
        statuses = [
            (await self.lane.call("get_tenant", key=key, patience_ns=_PATIENCE_NS)).status
            for key in (label, _UNKNOWN)
        ]
        if statuses[0] == statuses[1]:
            if exchange.status == 401:
                return f"{label} is not a key of this deployment ({_answered(exchange)})"
            message = f"{label} is answered like an unknown key ({exchange.status})"
            self.found.doubts[self.role] = f"{message}: it may not be known there"
        return None

    def _judged(self, exchange: Exchange) -> str | None:
        """Judge an accepted answer: does it come from the service, and does it mirror the body?"""
        label, body = self.label, exchange.ask.body
        assert isinstance(body, dict), "it was made here"
        try:
            answer = exchange.json
        except ValueError:
            kind = exchange.header("Content-Type") or "no type"
            return self._strange(exchange, f"{label} got an answer that is not JSON ({kind})")
        if self.role == "private_one_container":
            return None
        given = answer.get("preflight") if isinstance(answer, dict) else None
        is_other = isinstance(given, str) and given and given != body["preflight"]
        if is_other and answer.keys() == body.keys():
            return None
        if not isinstance(answer, dict):
            return self._strange(
                exchange, f"{label} got JSON that is not an object to {_asked(exchange)}"
            )
        none = "an answer without an identifier, so it is not from a tokenization service"
        return self._strange(exchange, f"{label} got {none}", names_it="preflight" in answer)

    def _strange(self, exchange: Exchange, message: str, *, names_it: bool = False) -> str | None:
        """Judge an accepted answer that does not mirror: a faulty service, or another server?

        A server that refuses a request without a key and accepts it with the key is the service. A
        server that answers everything alike is not.
        """
        if self.found.open_says is not None and not names_it:
            return message
        begins = exchange.body[:60].decode(errors="replace")
        wanted = "a plain object must come back with the same keys, each value an identifier string"
        self.found.misshapen = (
            f"{wanted}; {exchange.status} came with {begins!r}",
            exchange.number,
        )
        return None


def _asked(exchange: Exchange) -> str:
    return f"{exchange.ask.method} {exchange.ask.path}"


def _answered(exchange: Exchange) -> str:
    return f"{exchange.status} to {_asked(exchange)}"


def _baseline(ctx: CheckContext, lane: Lane, preflight: Preflight) -> None:
    role = next((role for role in preflight.accepted if role.startswith("private_prod")), None)
    label = ctx.target.labels(role or preflight.accepted[0])[0]

    took: list[int] = []

    async def several() -> None:
        for _ in range(_BASELINE):
            try:
                sent = await lane.tokenize({}, label)
                took.append(sent.received_ns - sent.sent_ns)
            except Inconclusive as why:
                preflight.fatal = str(why)

    ctx.transport.run([several()])
    if not took:
        return
    preflight.fatal = None  # a connection may break by chance
    preflight.latency_ns = int(statistics.median(took))
    preflight.jitter_ns = max(took) - min(took)


def _addresses(ctx: CheckContext, preflight: Preflight) -> None:
    """Test whether two addresses are counted separately (LIM-TEST-TENANT, by key and IP).

    One key exceeds the limit from one address. Then it sends from a second address, and another key
    sends from both. If the first key is admitted from the second address, the addresses are counted
    separately. They are, too, if the other key is refused from one of them only; from the second
    one, where an earlier run has filled it. If only the first key is refused from both, the
    deployment sees one address or counts by key alone: a *doubt*, which the probe of LIM-IP can
    settle.
    """
    labels = ctx.target.labels("private_test")
    sources = ctx.sources
    if len(labels) < 2 or len(sources) < 2:
        return
    try:
        preflight.apart, preflight.apart_says = ctx.transport.run(
            [_counted_apart(ctx, labels[0], labels[1], sources[0], sources[1])]
        )[0]
        if preflight.apart is None and preflight.apart_says.startswith(_DOUBT):
            preflight.doubt = preflight.apart_says
    except (Skip, Inconclusive) as why:
        preflight.apart_says = str(why)


async def _counted_apart(
    ctx: CheckContext, key: KeyLabel, other: KeyLabel, here: Source, there: Source
) -> tuple[bool | None, str]:
    rule = next((rule for rule in ctx.limits if rule.id == "LIM-TEST-TENANT"), None)
    if rule is None:
        return None, "not tested: the limit table has no LIM-TEST-TENANT"
    lane = ctx.lane("addresses", key=key)
    asked = _tokenize(ctx, {})
    most = rule.limit_requests * 2 + 1
    for _ in range(most):
        if (await lane.ask(*asked, source=here)).refused:
            break
    else:
        return None, f"not seen: {most} requests were not refused"
    elsewhere = await lane.ask(*asked, source=there)
    fresh = await lane.ask(*asked, key=other, source=there)
    if not elsewhere.refused:
        return True, f"{here} and {there} are counted separately"
    # What the first key has sent from elsewhere fills its own counter, and not that of an address.
    for _ in range(_BASELINE + 2):
        beside = await lane.ask(*asked, key=other, source=here)
        if beside.refused:
            break
    if beside.refused and fresh.refused:
        return False, f"the deployment sees {here} and {there} as one address"
    if not beside.refused and not fresh.refused:
        return None, f"{_DOUBT}: {here} and {there} are seen as one address, or only keys count"
    if fresh.refused and not (await lane.ask(*asked, key=other, source=there)).refused:
        return None, f"{_DOUBT}: refusals from {here} and {there} ended during the test"
    return True, f"{here} and {there} are counted separately, whatever the key"
