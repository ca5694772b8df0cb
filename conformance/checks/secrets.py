"""Section 2.1: the sensitive input is never returned in the clear, in any byte of any answer."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, Final

from conformance.context.check import check
from conformance.context.context import CheckContext
from conformance.context.verdicts import Finding
from conformance.messages.exchange import Exchange, parsed_or_none
from engine.messages import Json

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
    requests=12,
)
async def answers(ctx: CheckContext) -> list[Finding]:
    """No answer to tokenize, accepted or refused, contains the sensitive input in plain text."""
    key = await ctx.ready_key("private_prod")
    findings = []
    for what, body, secrets, cvc in _cases(ctx):
        exchange = await ctx.tokenize(body, key)
        is_clean = _is_clean(exchange, secrets, cvc)
        rule = f"{what}: the answer must hold no sensitive value ({exchange.status})"
        findings.append(ctx.rule("REC-SECRET", rule, exchange, is_so=is_clean))
    return findings


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
