"""The context of a check: the interface through which a check works.

It sends requests through the session, provides the keys and source addresses assigned to this
check, and holds what is known: the target, the profile told or discovered so far, the limit table
and the seed.

A deployment may answer 200, HTML, 429 or 5xx to everything, and a key may be wrong or lack the
permission. `ready` detects all of these: it tokenizes one plain string first, so that a refusal
counts only after the same key was accepted. Every value is generated from the run's seed, so a run
repeats and no two checks share a value.

A check is deterministic: the same answers at the same times give the same requests and findings.
So everything random in it comes from `ctx.random(name)`, and time only from exchanges and
`now_ns`.
"""

from __future__ import annotations

import dataclasses
import random
import re
import string
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from conformance.context.answers import accepted, is_identifier, is_refused
from conformance.context.check import Check, Inconclusive, Skip
from conformance.context.choices import line_of
from conformance.context.session import Session
from conformance.context.verdicts import Finding, Symptom, Verdict
from conformance.messages.exchange import Exchange, HttpRequest, KeyLabel
from conformance.messages.shapes import filled
from conformance.target import Source, Target
from conformance.wire.transport import Place, Transport
from engine import LimitTable, Profile
from engine.messages import Json
from engine.tokens.rules import is_luhn_valid

_SECOND_NS: Final = 1_000_000_000
NO_ACCESS: Final = frozenset({401, 403, 404, 405, 429})
_TRIES: Final = 3
_INVOCATIONS: Final = frozenset({"invoke_proxy", "invoke_reactor"})
GATEWAY_STATUSES: Final = frozenset({502, 503, 504})
"""Statuses that a gateway gives when the service does not answer."""
_MUST: Final = re.compile(r" must (not )?(\w+)")


class Lane:
    """One sender: its own defaults, such as key and source address, and its own request counter.

    Lanes run in parallel inside `ctx.gather`. A check that needs one alone has `ctx.client`.
    """

    def __init__(self, ctx: CheckContext, name: str, **defaults: Any) -> None:  # noqa: ANN401 # reason: fields of HttpRequest
        self._ctx = ctx
        self.name = name
        self.defaults = defaults
        self.turn = 0

    @property
    def now_ns(self) -> int:
        """The suite's clock."""
        return self._ctx.transport.now_ns

    async def ask(self, method: str, path: str, body: Json | bytes = None, **more: Any) -> Exchange:  # noqa: ANN401 # reason: fields of HttpRequest
        """Send one request; returns its exchange, whatever comes back."""
        return await self.send(
            HttpRequest(method=method, path=path, body=body, **{**self.defaults, **more})
        )

    async def call(
        self,
        name: str,
        values: Mapping[str, Json] | None = None,
        *,
        body: Json | bytes = None,
        query: str = "",
        **more: Any,  # noqa: ANN401 # reason: fields of HttpRequest
    ) -> Exchange:
        """Send an operation by its name, in the shape that the target gives it, as `insist` does.

        `await lane.call("search", {"value": "x"}, key=…)`; `body` replaces the shape's own.
        """
        method, path, shaped = self._ctx.shaped(name, values)
        return await self.insist(method, path + query, shaped if body is None else body, **more)

    async def tokenize(
        self,
        body: Json,
        key: KeyLabel | None,
        **more: Any,  # noqa: ANN401 # reason: fields of HttpRequest
    ) -> Exchange:
        """Send a tokenize request with a key, or with none."""
        return await self.call("tokenize", {"value": body}, key=key, **more)

    async def insist(
        self,
        method: str,
        path: str,
        body: Json | bytes = None,
        *,
        patience_ns: int | None = None,
        retry: bool = True,
        **more: Any,  # noqa: ANN401 # reason: fields of HttpRequest
    ) -> Exchange:
        """Send one request; where a limit refuses it, wait and retry.

        It paces itself to stay below the limits. Raises `Inconclusive` when there is no answer, or
        only 429s. patience_ns: how long to retry where no `Retry-After` is given.

        retry: a tokenize request that is answered 5xx is sent once more. Where the second answer is
        not 5xx, the first was sporadic. It stays in the history, where the check of steadiness
        judges how often this happens; no other check sees it.
        """
        ask = HttpRequest(method=method, path=path, body=body, **{**self.defaults, **more})
        session = self._ctx.session
        is_tokenize = session.target.shape("tokenize").path == ask.path
        began_ns = self.now_ns
        longest_ns = session.patience_ns + 5 * _SECOND_NS
        backoff_ns = _SECOND_NS
        while True:
            exchange = await self.once(ask)
            if exchange.status is not None and not exchange.refused:
                if not (retry and is_tokenize and exchange.status >= 500):  # reason: 5xx
                    return evidence_of(session.target, exchange)
                second = await self.once(ask)
                is_sporadic = second.status is not None and second.status < 500
                is_usable = is_sporadic and not second.refused
                return evidence_of(session.target, second if is_usable else exchange)
            evidence_of(session.target, exchange)
            told_ns = retry_after_ns(exchange)
            wait_ns = max(told_ns, backoff_ns)
            patient_ns = longest_ns if told_ns or patience_ns is None else patience_ns
            if self.now_ns + wait_ns > began_ns + patient_ns:
                raise Inconclusive(f"{ask.method} {_short(ask.path)} is refused (429) all the time")
            await self.sleep_ns(wait_ns)
            backoff_ns *= 2

    async def once(self, ask: HttpRequest) -> Exchange:
        """Send a request once the known limits leave room, from the address that may send first."""
        ctx = self._ctx
        sources = ctx.sources if ask.source is None else (ask.source,)
        while True:
            now_ns = self.now_ns
            source, wait_ns = ctx.session.pacer.admit(now_ns, ask, sources)
            if not wait_ns:
                return await self.send(dataclasses.replace(ask, source=source))
            await ctx.transport.sleep_until_ns(now_ns + wait_ns)

    async def send(self, ask: HttpRequest) -> Exchange:
        """Send a request as it is; from this check's first address when it names none."""
        self.turn += 1
        if ask.source is None:
            ask = dataclasses.replace(ask, source=self._ctx.sources[0])
        place = Place(self._ctx.check.id, self.name, self.turn)
        session, transport = self._ctx.session, self._ctx.transport
        await session.admit(place, ask)
        return session.record(place, ask, await transport.send(ask, place))

    async def sleep_until_ns(self, at_ns: int, why: str = "") -> None:
        """Wait until an instant of the suite's clock; why: what ends then, for progress output.

        Raises `Skip` at once where the budget's minutes end before it.
        """
        self._ctx.session.check_time(at_ns, self._ctx.check.id)
        with self._ctx.session.waiting(self._ctx.check.id, at_ns, why):
            await self._ctx.transport.sleep_until_ns(at_ns)

    async def sleep_ns(self, for_ns: int, why: str = "") -> None:
        """Wait for a duration."""
        await self.sleep_until_ns(self.now_ns + for_ns, why)


class CheckContext:
    """What one check of one run works with.

    keys: the labels that it may use, by role; sources: the addresses, at least one (None: the
    machine's own choice).
    """

    def __init__(
        self,
        check: Check,
        session: Session,
        *,
        keys: Mapping[str, Sequence[KeyLabel]] | None = None,
        sources: Sequence[Source] | None = None,
    ) -> None:
        self.check = check
        self.session = session
        self.target: Target = session.target
        self.transport: Transport = session.transport
        self.limits: LimitTable = session.limits
        self.seed: int = session.seed
        self.sources: tuple[Source, ...] = tuple(sources or session.target.addresses)
        self._keys = keys
        self._lanes: dict[str, Lane] = {}
        self.client = self.lane("main")

    def __repr__(self) -> str:
        return f"<CheckContext of {self.check.id}>"

    @property
    def profile(self) -> Profile:
        """The choices of the deployment: told, discovered so far, else the defaults."""
        return self.session.profile

    def knows(self, choice: str) -> bool:
        """Whether a choice (`section.field` of the profile) was told or discovered."""
        return choice in self.session.known

    # --- asking ---------------------------------------------------------------------------------

    def shaped(self, name: str, values: Mapping[str, Json] | None = None) -> tuple[str, str, Json]:
        """Return method, path and body of an operation here; for lanes."""
        return filled(self.target.shape(name), values or {})

    def lane(self, name: str, **defaults: Any) -> Lane:  # noqa: ANN401 # reason: fields of HttpRequest
        """Return a sender with defaults of its own; names are unique within the check."""
        assert name not in self._lanes, f"{self.check.id} has two lanes called {name}"
        self._lanes[name] = Lane(self, name, **defaults)
        return self._lanes[name]

    async def gather(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Run coroutines of lanes at the same time; results in order."""
        return await self.transport.gather(coroutines)

    # --- keys, addresses, chance ----------------------------------------------------------------

    def keys(self, role: str) -> tuple[KeyLabel, ...]:
        """Return the labels of a role's keys that this check may use."""
        if self._keys is None:
            return self.target.labels(role)
        return tuple(self._keys.get(role, ()))

    def key(self, role: str, place: int = 1) -> KeyLabel:
        """Return the label of a role's key, by place from 1; raises `Skip` if there are fewer."""
        labels = self.keys(role)
        if not 1 <= place <= len(labels):
            raise Skip(f"needs {place} key(s) of role {role}; add [[keys]] role = {role!r}")
        return labels[place - 1]

    def learn_key(self, label: KeyLabel, text: str) -> None:
        """Register a key that this check has created; requests can then name its label."""
        self.session.redactor.learn(label, text)
        self.transport.learn_key(label, text)

    def random(self, name: str) -> random.Random:
        """Return a random generator, seeded by seed, nonce, check and name."""
        return random.Random(f"{self.seed}{self.session.nonce}/{self.check.id}/{name}")  # noqa: S311 # reason: must repeat

    def make(self, name: str, maker: Callable[[], str]) -> str:
        """Return a text that no seed determines, such as an encrypted one; `judge` uses the same.

        name: unique within the check. The text is written to the history, so it must not be secret.
        """
        return self.session.make(self.check.id, name, maker)

    # --- values -----------------------------------------------------------------------------------

    def value(self, name: str) -> str:
        """Return a value that no other check uses; every run with this seed has the same."""
        return f"{name} {self.random(name).getrandbits(64):016x}"

    def token(self, name: str, **more: Json) -> dict[str, Any]:
        """Return a valid `token` request with a unique value."""
        return {"type": "token", "data": self.value(name), **more}

    def card(self, name: str, digits: int = 16) -> dict[str, Any]:
        """Return a valid card request with a unique number of so many digits."""
        drawn = self.random(name).randrange(10 ** (digits - 5))
        front = f"4242{drawn:0{digits - 5}}"
        number = next(front + digit for digit in string.digits if is_luhn_valid(front + digit))
        data = {"number": number, "expiration_month": 12, "expiration_year": 2031, "cvc": "731"}
        return {"type": "card", "data": data}

    @property
    def year(self) -> int:
        """The year in which the run began, by this machine's clock."""
        return datetime.fromtimestamp(self.session.wall_start_ns / 1e9, UTC).year

    def container_of(self, path: str, form: str | None = None) -> dict[str, Json]:
        """Return the field that selects a container, as this deployment names it (D-CONTAINER).

        form: of its value, `string` or `array`; the deployment's unless given.
        """
        choices = self.profile.tokens
        is_text = (form or choices.container_form) == "string"
        return {choices.container_field: path if is_text else [path]}

    def quota(self, name: str, label: KeyLabel) -> int:
        """Return a quota of the tenant of a key: a count, or nanoseconds."""
        value = self.target.tenant_of(self.target.key_labels[label]).quota(name)
        assert isinstance(value, int), "only the Rate Limit quota is not a number"
        return value

    def spread_key(self, role: str) -> KeyLabel:
        """Return one of the role's keys, so that checks share the load of the limits."""
        places = len(self.keys(role))
        return self.key(role, 1 + sum(self.check.id.encode()) % places if places else 1)

    # --- tokens -----------------------------------------------------------------------------------

    async def ready(self, key: KeyLabel, name: str = "ready") -> Exchange:
        """Tokenize one plain string; raises `Inconclusive` unless an identifier comes back.

        Where the preflight has reported that accepted answers have a wrong form, a 2xx is enough.
        """
        sent = self.value(f"{name} {key}")
        exchange = await self.client.tokenize({"ready": sent}, key)
        if self.session.is_misshapen and exchange.ok:
            return exchange
        answer = accepted(exchange)
        given = answer.get("ready") if isinstance(answer, dict) else None
        if not is_identifier(given, sent):
            raise Inconclusive("tokenizing a plain string returned no identifier")
        return exchange

    async def ready_key(self, role: str) -> KeyLabel:
        """Return one of the role's keys, once a plain token has come back for it.

        Raises `Inconclusive` where it does not (`ready`).
        """
        key = self.spread_key(role)
        await self.ready(key)
        return key

    async def over_limit(self, body: Json, key: KeyLabel) -> Exchange:
        """Send a request over a token quota; returns a 429 only if no rate limit can cause it.

        D-LIMIT-STATUS permits 429 here, but a rate limit gives the same answer. So a small request
        must be accepted right before and right after; otherwise raises `Inconclusive`.
        """

        async def once(value: Json) -> Exchange:
            method, path, shaped = self.shaped("tokenize", {"value": value})
            ask = HttpRequest(method=method, path=path, body=shaped, key=key)
            return evidence_of(self.target, await self.client.once(ask))

        for _ in range(_TRIES):
            exchange = await once(body)
            if not exchange.refused or (await once({"after": self.value("after")})).ok:
                return exchange
            await self.ready(key, "before")  # waits for as long as the rate limit says
        raise Inconclusive(
            "a rate limit hides how a request over the quota is answered; add keys or sources"
        )

    # --- saying ---------------------------------------------------------------------------------

    def finding(
        self,
        clause: str,
        verdict: Verdict,
        message: str,
        *exchanges: Exchange,
        reading: tuple[str, object] | None = None,
    ) -> Finding:
        """Return a finding of this check with its evidence."""
        assert clause in self.check.clauses, f"{self.check.id} does not judge {clause}"
        evidence = tuple(exchange.number for exchange in exchanges)
        return Finding(
            clause, self.check.id, verdict, message, evidence, self.check.accepts, reading
        )

    def passes(self, clause: str, message: str, *evidence: Exchange) -> Finding:
        """Return a finding that the clause holds."""
        return self.finding(clause, Verdict.PASS, message, *evidence)

    def fails(
        self,
        clause: str,
        message: str,
        *evidence: Exchange,
        symptoms: tuple[Symptom, ...] = (),
    ) -> Finding:
        """Return a finding that the deployment breaks the clause; symptoms: as in `Finding`.

        An answer of 5xx among the evidence is a symptom by itself.
        """
        if any((exchange.status or 0) >= 500 for exchange in evidence):
            symptoms = (*symptoms, "crashed")
        finding = self.finding(clause, Verdict.FAIL, message, *evidence)
        return dataclasses.replace(finding, symptoms=symptoms)

    def judges(
        self,
        clause: str,
        is_so: bool,  # noqa: FBT001 # reason: always a computed condition
        seen: str,
        message: str,
        *evidence: Exchange,
    ) -> Finding:
        """Return a pass with the text `seen`, or a failure with the rule that `message` states."""
        if is_so:
            return self.passes(clause, seen, *evidence)
        return self.fails(clause, message, *evidence)

    def rule(self, clause: str, message: str, *evidence: Exchange, is_so: bool) -> Finding:
        """Judge a rule about one thing, "… must be …"; the text of a pass says "… is …"."""
        return self.judges(clause, is_so, _MUST.sub(_kept, message), message, *evidence)

    def reads(self, clause: str, field: str, seen: object, *evidence: Exchange) -> Finding:
        """Report which reading of an open choice the deployment follows; every reading passes."""
        message = f"reading: {line_of(field, seen)}"
        return self.finding(clause, Verdict.PASS, message, *evidence, reading=(field, seen))

    def informs(self, clause: str, message: str, *evidence: Exchange) -> Finding:
        """Report what the specification leaves open and no profile field describes."""
        return self.finding(clause, Verdict.INFORMATIONAL, message, *evidence)

    def unsettled(self, clause: str, message: str, *evidence: Exchange) -> Finding:
        """Report that this part of the clause could not be judged."""
        return self.finding(clause, Verdict.INCONCLUSIVE, message, *evidence)

    def ok_or_unsettled(self, clause: str, what: str, exchange: Exchange) -> Finding:
        """Judge a request that must be accepted; a status such as 403 leaves it undecided."""
        if exchange.status in NO_ACCESS:
            return self.unsettled(clause, f"{what}: no access, {exchange.status}", exchange)
        return self.acceptance(clause, what, exchange)

    def acceptance(self, clause: str, what: str, exchange: Exchange) -> Finding:
        """Judge a request that must be accepted; one like it was accepted before."""
        if exchange.ok:
            return self.passes(clause, f"{what}: accepted", exchange)
        message = f"{what} must be accepted, got {exchange.status}"
        return self.fails(clause, message, exchange, symptoms=("refused",))

    def refusal(
        self, clause: str, what: str, exchange: Exchange, *, is_quota: bool = False
    ) -> Finding:
        """Judge a request that must be refused; the same key was accepted before (`ready`).

        is_quota: whether it is over a quota, where 429 is a reading too (D-LIMIT-STATUS).
        """
        seen = f"{what}: refused with {exchange.status}"
        message = f"{what} must be refused with a 4xx, got {exchange.status}"
        is_so = is_refused(exchange) or (is_quota and exchange.refused)
        return self.judges(clause, is_so, seen, message, exchange)


def evidence_of(target: Target, exchange: Exchange) -> Exchange:
    """Return an exchange that shows what the service does; else raises `Inconclusive`.

    No answer, a reset connection and the statuses of a gateway show nothing of the service, unless
    it is a gateway itself: where it invokes a proxy or a reactor.
    """
    asked = f"{exchange.ask.method} {_short(exchange.ask.path)}"
    if exchange.status is None:
        raise Inconclusive(f"no answer to {asked}: {exchange.error}")
    known = target.spelling.operation(exchange.ask.method, exchange.ask.path)
    is_invocation = known is not None and known[0] in _INVOCATIONS
    if exchange.status in GATEWAY_STATUSES and not is_invocation:
        raise Inconclusive(f"a gateway answered {asked} with {exchange.status}, not the service")
    return exchange


def _kept(rule: re.Match[str]) -> str:
    """Return the words that say that a rule is kept."""
    is_not, verb = rule.groups()
    if is_not:
        return " is not" if verb == "be" else f" does not {verb}"
    return {"be": " is", "have": " has"}.get(verb, f" {verb}s")


def retry_after_ns(exchange: Exchange) -> int:
    """Return what an answer's `Retry-After` asks for, 0 without one."""
    text = exchange.header("Retry-After") or ""
    return int(text) * _SECOND_NS if text.isascii() and text.isdigit() else 0


def _short(path: str) -> str:
    return path.partition("?")[0]
