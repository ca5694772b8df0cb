"""What the clause checks share: requests whose answers can be judged, generated values, timing.

A deployment may answer 200, HTML, 429 or 5xx to everything, and a key may be wrong or lack the
permission. `ready` detects all of these: it tokenizes one plain string first, so that a refusal
counts only after the same key was accepted.

Every value is generated from the run's seed, so a run repeats and no two checks share a value.

A measured time is an upper bound of the time that the deployment took, because its machine or ours
may be busy. So *too early* is judged as measured. *Too late* is judged after the known delays are
subtracted: how late this process itself woke (`Stalls`), and how long a request with nothing to
wait for took at the same time. Where these delays exceed the margin, the verdict is inconclusive.
"""

from __future__ import annotations

import re
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final

from conformance.runner.bench import Bench
from conformance.runner.registry import Inconclusive, Skip
from conformance.runner.verdicts import Finding
from conformance.wire.exchange import Ask, Exchange, KeyLabel
from engine.messages import Json

__all__ = [
    "UUID",
    "Stalls",
    "accepted",
    "card",
    "card_number",
    "container_of",
    "deduplicated",
    "flag_of",
    "identifiers",
    "is_identifier",
    "is_known",
    "is_refused",
    "is_uuid",
    "member_of",
    "must_be_there",
    "ok_or_unsettled",
    "over_limit",
    "quota",
    "ready",
    "ready_key",
    "record_of",
    "records_of",
    "refusal",
    "seconds",
    "spread_key",
    "text_of",
    "token",
    "tokenize",
    "took_ns",
    "value",
]


UUID: Final = re.compile(
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
)
_NO_ACCESS: Final = frozenset({401, 403, 404, 405, 429})
_MISSING: Final = frozenset({404, 405, 501})
_TRIES: Final = 3
_LUHN_PREFIX: Final = "4242"


# --- values ---------------------------------------------------------------------------------------


def is_uuid(text: object) -> bool:
    """Whether it is a UUID string (REC-ID)."""
    return isinstance(text, str) and UUID.fullmatch(text) is not None


def value(bench: Bench, name: str) -> str:
    """Return a value that no other check uses; every run with this seed has the same."""
    return f"{name} {bench.random(name).getrandbits(64):016x}"


def token(bench: Bench, name: str, **more: Json) -> dict[str, Any]:
    """Return a valid `token` request with a unique value."""
    return {"type": "token", "data": value(bench, name), **more}


def card_number(bench: Bench, name: str, digits: int = 16) -> str:
    """Return a unique, Luhn-valid card number with this many digits."""
    chance = bench.random(f"{name}/{digits}")
    drawn = [str(chance.randrange(10)) for _ in range(digits - len(_LUHN_PREFIX) - 1)]
    front = _LUHN_PREFIX + "".join(drawn)
    doubled = [
        sum(divmod(2 * int(digit), 10)) if place % 2 == 0 else int(digit)
        for place, digit in enumerate(reversed(front))
    ]
    return front + str(-sum(doubled) % 10)


def card(bench: Bench, name: str, **more: Json) -> dict[str, Any]:
    """Return a valid card request with a unique number."""
    data = {
        "number": card_number(bench, name),
        "expiration_month": 12,
        "expiration_year": 2031,
        "cvc": "731",
    }
    return {"type": "card", "data": data, **more}


def container_of(bench: Bench, path: str) -> dict[str, Json]:
    """Return the field that selects a container, as this deployment names it (D-CONTAINER)."""
    choices = bench.profile.tokens
    return {choices.container_field: path if choices.container_form == "string" else [path]}


def quota(bench: Bench, name: str, label: KeyLabel) -> int:
    """Return a quota of the tenant of a key: a count, or nanoseconds."""
    found = bench.target.tenant_of(bench.target.key_labels[label]).quota(name)
    assert isinstance(found, int), "only the Rate Limit quota is not a number"
    return found


# --- asking ---------------------------------------------------------------------------------------


def spread_key(bench: Bench, role: str) -> KeyLabel:
    """Return one of the role's keys, so that checks share the load of the limits."""
    places = len(bench.keys(role))
    return bench.key(role, 1 + sum(bench.check.id.encode()) % places if places else 1)


def tokenize(
    bench: Bench,
    body: Json | bytes,
    key: KeyLabel | None,
    **more: Any,  # noqa: ANN401 # reason: fields of Ask
) -> Exchange:
    """Send a tokenize request; raises `Inconclusive` without an answer, or for 429 every time."""
    if isinstance(body, bytes):
        return bench.call("tokenize", body=body, key=key, **more)
    return bench.call("tokenize", {"value": body}, key=key, **more)


def ready(bench: Bench, key: KeyLabel, name: str = "ready") -> Exchange:
    """Tokenize one plain string; raises `Inconclusive` unless an identifier comes back.

    If the preflight has already reported that accepted answers have a wrong form, a 2xx is enough.
    """
    sent = value(bench, f"{name} {key}")
    exchange = tokenize(bench, {"ready": sent}, key)
    if bench.session.is_misshapen and exchange.ok:
        return exchange
    answer = accepted(exchange)
    given = answer.get("ready") if isinstance(answer, dict) else None
    if not is_identifier(given, sent):
        raise Inconclusive("tokenizing a plain string returned no identifier")
    return exchange


def ready_key(bench: Bench, role: str) -> KeyLabel:
    """Return one of the role's keys, once a plain token has come back for it.

    Raises `Inconclusive` where it does not (`ready`).
    """
    key = spread_key(bench, role)
    ready(bench, key)
    return key


def is_identifier(answer: object, sent: object) -> bool:
    """Whether an answer can be the identifier of a value: a string other than the value itself.

    Only the checks of REC-ID require a UUID.
    """
    return isinstance(answer, str) and bool(answer) and answer != sent


def accepted(exchange: Exchange) -> Json:
    """Return the answer's JSON; raises `Inconclusive` if the request was not accepted."""
    if not exchange.ok:
        raise Inconclusive(f"a request that should be accepted got {exchange.status}")
    try:
        found: Json = exchange.json
    except ValueError:
        raise Inconclusive("the answer to an accepted request is not JSON") from None
    return found


def record_of(exchange: Exchange) -> dict[str, Any]:
    """Return the record in an answer; raises `Inconclusive` if the answer is not a record."""
    found = accepted(exchange)
    if not isinstance(found, dict) or not isinstance(found.get("id"), str):
        raise Inconclusive("the answer to a token request object is not a record")
    return found


def records_of(exchange: Exchange, count: int) -> list[dict[str, Any]]:
    """Return the records of an array; raises `Inconclusive` unless there are `count`."""
    found = accepted(exchange)
    if not isinstance(found, list) or len(found) != count:
        raise Inconclusive(
            f"the answer to {count} token request objects is not an array of {count}"
        )
    if not all(isinstance(one, dict) and isinstance(one.get("id"), str) for one in found):
        raise Inconclusive("the answer to token request objects has elements that are not records")
    return found


def identifiers(exchange: Exchange, count: int) -> list[str]:
    """Return the identifiers in an answer; raises `Inconclusive` unless there are `count`."""
    found = accepted(exchange)
    if not isinstance(found, list) or len(found) != count:
        raise Inconclusive(f"the answer to {count} strings is not an array of {count} identifiers")
    if not all(isinstance(one, str) for one in found):
        raise Inconclusive(f"the answer to {count} strings is not an array of {count} identifiers")
    return [str(one) for one in found]


def member_of(exchange: Exchange, name: str) -> Any:  # noqa: ANN401 # reason: any JSON
    """Return a member of the object in an accepted answer, None where there is none."""
    try:
        return exchange.json[name] if exchange.ok else None
    except (ValueError, LookupError, TypeError):
        return None


def text_of(exchange: Exchange, name: str) -> str | None:
    """Return a member of the object in an accepted answer if it is a string, else None."""
    found = member_of(exchange, name)
    return found if isinstance(found, str) else None


def flag_of(record: Mapping[str, Any]) -> bool | None:
    """Return `_extras.deduplicated` of a record, None where it does not hold a boolean."""
    extras = record.get("_extras")
    found = extras.get("deduplicated") if isinstance(extras, dict) else None
    return found if isinstance(found, bool) else None


def is_known(record: Mapping[str, Any]) -> bool:
    """Whether a record says that its token existed before."""
    return flag_of(record) is True


def is_refused(exchange: Exchange) -> bool:
    """Whether the answer refuses the request: any 4xx but 429 (D-STATUSES)."""
    return exchange.status is not None and 400 <= exchange.status < 500 and not exchange.refused


def must_be_there(name: str, exchange: Exchange) -> None:
    """Raise `Skip` if the deployment does not have the operation.

    That is not a failure: the specification gives method and path of `POST /tokenize` only.
    """
    if exchange.status in _MISSING:
        asked = f"{exchange.ask.method} {exchange.ask.path.partition('?')[0]}"
        raise Skip(
            f"the deployment answers {exchange.status} to {asked}, whose method and path are not "
            f"specified; if it offers this under another path, describe it in [requests.{name}]"
        )


def over_limit(bench: Bench, name: str, body: Json, key: KeyLabel) -> Exchange:
    """Send a request over a token quota; returns a 429 only if no rate limit can have caused it.

    D-LIMIT-STATUS permits 429 here, but a rate limit gives the same answer. So a small request
    must be accepted right before and right after; otherwise raises `Inconclusive`.
    """
    asked = bench.shaped(name, {"value": body})
    if name != "tokenize":
        asked = (*asked[:2], body)
    after = bench.shaped("tokenize", {"value": {"after": value(bench, "after")}})
    for _ in range(_TRIES):
        exchange = _once(bench, asked, key)
        if not exchange.refused or _once(bench, after, key).ok:
            return exchange
        ready(bench, key, "before")  # waits for as long as the rate limit says
    raise Inconclusive(
        "a rate limit hides how a request over the quota is answered; add keys or sources"
    )


def _once(bench: Bench, asked: tuple[str, str, Json], key: KeyLabel) -> Exchange:
    """Send a request once the known limits leave room; a 429 is returned, not retried."""
    method, path, body = asked
    while True:
        now_ns = bench.transport.now_ns
        ask = Ask(method=method, path=path, body=body, key=key)
        source, wait_ns = bench.session.pacer.admit(now_ns, ask, bench.sources)
        if not wait_ns:
            return bench.ask(method, path, body, patient=False, key=key, source=source)
        bench.transport.run([bench.transport.sleep_until_ns(now_ns + wait_ns)])


def deduplicated(
    bench: Bench, request: dict[str, Any], key: KeyLabel, *, flag: bool = True
) -> tuple[bool, Exchange]:
    """Return whether an equal value existed before, and the exchange that shows it.

    Tokenizes with deduplication on (D-DEDUP): an existing token comes back with
    `_extras.deduplicated` true.
    flag: whether the request turns deduplication on; without it the tenant's setting decides.
    """
    field: dict[str, Json] = {bench.profile.dedup.flag_name: True} if flag else {}
    exchange = tokenize(bench, {**request, **field}, key)
    said = flag_of(record_of(exchange))
    if said is None:
        raise Inconclusive("the deployment does not say whether a token was deduplicated")
    return said, exchange


# --- findings -------------------------------------------------------------------------------------


def ok_or_unsettled(bench: Bench, clause: str, what: str, exchange: Exchange) -> Finding:
    """Judge a request that must be accepted; a status such as 403 leaves it undecided."""
    if exchange.ok:
        return bench.passes(clause, f"{what}: accepted", exchange)
    if exchange.status in _NO_ACCESS:
        return bench.unsettled(clause, f"{what}: no access, {exchange.status}", exchange)
    return bench.fails(clause, f"{what} must be accepted, got {exchange.status}", exchange)


def refusal(bench: Bench, clause: str, what: str, exchange: Exchange) -> Finding:
    """Judge a request that must be refused; the same key was accepted before (`ready`)."""
    seen = f"{what}: refused with {exchange.status}"
    says = f"{what} must be refused with a 4xx, got {exchange.status}"
    return bench.judges(clause, is_refused(exchange), seen, says, exchange)


# --- timing ---------------------------------------------------------------------------------------


_SECOND_NS: Final = 1_000_000_000
_BEAT_NS: Final = 50_000_000


def took_ns(exchange: Exchange) -> int:
    """Return how long an answer took, from its first byte sent to its first byte here."""
    return exchange.received_ns - exchange.sent_ns


def seconds(duration_ns: int) -> str:
    """Return a duration as text.

    >>> seconds(25_004_000_000)
    '25.00 s'
    """
    return f"{duration_ns / _SECOND_NS:.2f} s"


class Stalls:
    """Measures for how long this process could not run while it waited for answers."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._is_over = False
        self._late_ns = 0
        self.stalled_ns = 0

    async def beside(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Run coroutines concurrently; `stalled_ns` then says for how long this process hung."""

        async def watched() -> list[Any]:
            try:
                return await self._bench.gather(coroutines)
            finally:
                self._is_over = True

        found, _ = await self._bench.gather([watched(), self._beat()])
        # Does not follow from the seed, so it is recorded: a later judgement must use the same.
        self.stalled_ns = int(self._bench.make("stalled_ns", lambda: str(self._late_ns)))
        return list(found)

    async def _beat(self) -> None:
        transport = self._bench.transport
        while not self._is_over:
            due_ns = transport.now_ns + _BEAT_NS
            await transport.sleep_until_ns(due_ns)
            self._late_ns += max(0, transport.now_ns - due_ns - _BEAT_NS)
