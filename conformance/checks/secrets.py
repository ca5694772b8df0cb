"""Section 2.1: the sensitive input is never returned in the clear, in any byte of any answer."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, Final

from hypothesis import strategies as st

from conformance.checks._bodies import Counterexample, smallest, texts
from conformance.checks._oracle import Contradiction
from conformance.context.answers import record_of
from conformance.context.check import check
from conformance.context.context import CheckContext
from conformance.context.verdicts import Finding
from conformance.messages.exchange import Exchange, KeyLabel, parsed_or_none
from engine.messages import Json

_EXAMPLES: Final = 15
_LEAST: Final = 6
"""Shorter texts, such as a cvc, occur in answers by chance; they are looked for by field name."""


def secrets_found(exchange: Exchange, secrets: list[str]) -> list[str]:
    """Return which secrets an answer contains: in its body, decoded or not, or in a header.

    Each is looked for in plain text, with JSON escapes and in base64.
    """
    raw = exchange.body.decode(errors="replace")
    heads = "\n".join(f"{name}: {text}" for name, text in exchange.headers.items())
    parts = (one for part in _parts(parsed_or_none(exchange.content)) for one in part)
    strings = "\n".join(one for one in parts if isinstance(one, str))
    seen = f"{raw}\n{heads}\n{strings}"
    found = []
    for secret in secrets:
        encoded = base64.b64encode(secret.encode()).decode().rstrip("=")
        if secret in seen or (len(secret) >= _LEAST and encoded in seen):
            found.append(secret)
    return found


def _parts(answer: Any, name: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401 # reason: any JSON
    """Yield each part of an answer, at any depth, after the name of its field."""
    yield name, answer
    if isinstance(answer, dict):
        for key, one in answer.items():
            yield from _parts(one, key)
    elif isinstance(answer, list):
        for one in answer:
            yield from _parts(one)


def _is_clean(exchange: Exchange, secrets: list[str], cvc: str | None) -> bool:
    """Whether an answer holds no secret, and no field `cvc` of it holds the cvc."""
    parts = _parts(parsed_or_none(exchange.content))
    shown = [str(one) for name, one in parts if name == "cvc"]
    is_cvc_shown = cvc is not None and any(cvc in one for one in shown)
    return not is_cvc_shown and not secrets_found(exchange, secrets)


@check(
    "secrets.answers",
    "REC-SECRET",
    accepts="no sensitive value in any byte of an answer, headers included",
    requests=_EXAMPLES + 12,
)
def answers(ctx: CheckContext) -> Iterator[Finding]:
    """No answer to tokenize, accepted or refused, contains the sensitive input in plain text."""
    key = ctx.ready_key("private_prod")
    failed = False
    for what, body, secrets, cvc in _cases(ctx):
        exchange = ctx.tokenize(body, key)
        is_clean = _is_clean(exchange, secrets, cvc)
        failed |= not is_clean
        says = f"{what}: the answer must hold no sensitive value ({exchange.status})"
        yield ctx.rule("REC-SECRET", says, exchange, is_so=is_clean)
    if not failed:
        yield from _drawn(ctx, key)


def _cases(ctx: CheckContext) -> Iterator[tuple[str, Json, list[str], str | None]]:
    """Yield a name, the body, the secrets in it, and a cvc to look for by field name."""
    text, number, cvc = ctx.value("secret"), ctx.card_number("secret"), "7319"
    data = {**ctx.card("secret")["data"], "cvc": cvc}
    one: dict[str, Json] = {"type": "token", "data": text}
    both: dict[str, Json] = {"type": "card", "data": data}
    extra: dict[str, Json] = {
        "metadata": {"a": "b"},
        "search_indexes": ["{{ data }}"],
        "fingerprint_expression": "{{ data }}",
    }
    wrong: Json = {"type": "no-such-type", "data": text}
    long = ctx.value("long cvc") + "x"
    yield "a token", one, [text], None
    yield "a token with all its fields", {**one, **extra}, [text], None
    yield "a card", both, [number, number[:12]], cvc
    yield "a string", {"a": text}, [text], None
    yield "an array of everything", [text, one, both], [text, number], cvc
    yield "an unknown type", wrong, [text], None
    yield (
        "a card with a bad month",
        {**both, "data": {**data, "expiration_month": "x"}},
        [number],
        cvc,
    )
    yield "a card with a cvc of text", {**both, "data": {**data, "cvc": long}}, [number, long], cvc
    yield "bad metadata beside data", {**one, "metadata": {"a": 5}}, [text], None
    bad = ctx.card_number("bad digit")
    bad = bad[:-1] + str((int(bad[-1]) + 1) % 10)
    yield "a number with a wrong digit", {"type": "card", "data": {"number": bad}}, [bad], None


def _drawn(ctx: CheckContext, key: KeyLabel) -> Iterator[Finding]:
    """Draw values of many scripts, so that escapes cannot hide a leak."""
    seen = 0

    def judge(drawn: tuple[str, bool]) -> Counterexample | None:
        nonlocal seen
        text, as_object = f"s3cret-{drawn[0]}-s3cret", drawn[1]
        body: Json = {"type": "token", "data": text} if as_object else [text]
        exchange = ctx.tokenize(body, key)
        seen += exchange.ok
        if secrets_found(exchange, [text]):
            fault = Contradiction("REC-SECRET", "the answer contains the value")
            return Counterexample(body, [fault], (exchange,))
        return None

    broken = smallest(ctx, st.tuples(texts(), st.booleans()), judge, _EXAMPLES)
    if broken is not None:
        yield ctx.fails("REC-SECRET", broken.faults[0].message, *broken.shown)
    elif seen < _EXAMPLES // 3:
        says = f"only {seen} drawn values were accepted"
        yield ctx.unsettled("REC-SECRET", says)


@check(
    "secrets.reads",
    "REC-SECRET",
    accepts="a record without the value; with it only for a key that holds token:read",
    roles=("private_reader", "private_prod"),
    requests=6,
    is_extra=True,
)
def reading(ctx: CheckContext) -> Iterator[Finding]:
    """Find whether reading a token shows its plaintext to a key with token:read (D-READ)."""
    key = ctx.ready_key("private_reader")
    made = ctx.token("read back")
    token_id = record_of(ctx.tokenize(made, key))["id"]
    exchange = ctx.call("get", {"id": token_id}, key=key)
    if not exchange.ok:
        says = f"a token cannot be read back: {exchange.status}"
        yield ctx.informs("REC-SECRET", says, exchange)
        return
    is_plain = bool(secrets_found(exchange, [made["data"]]))
    yield ctx.reads("REC-SECRET", "tokens.plaintext_reads", is_plain, exchange)
    blind = ctx.call("get", {"id": token_id}, key=ctx.spread_key("private_prod"))
    says = "a key without token:read must not see the value"
    yield ctx.rule("REC-SECRET", says, blind, is_so=not secrets_found(blind, [made["data"]]))


@check(
    "secrets.deduplicated",
    "REC-SECRET",
    accepts="no sensitive value in the record of a deduplicated token",
    roles=("dedup_reader",),
    requests=5,
    is_extra=True,
)
def deduplicated_record(ctx: CheckContext) -> Iterator[Finding]:
    """A deduplicated record contains no plaintext, whatever the key's permissions."""
    key = ctx.ready_key("dedup_reader")
    token, card = ctx.token("again"), ctx.card("again")
    for what, body, secret, cvc in (
        ("a token", token, token["data"], None),
        ("a card", card, card["data"]["number"], card["data"]["cvc"]),
    ):
        ctx.tokenize(body, key)
        exchange = ctx.tokenize(body, key)
        record_of(exchange)
        says = f"{what}, deduplicated: the answer must hold no sensitive value"
        is_so = _is_clean(exchange, [secret], cvc)
        yield ctx.rule("REC-SECRET", says, exchange, is_so=is_so)
