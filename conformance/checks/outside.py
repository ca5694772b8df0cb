"""Sections 7, 8.5 and 8.9: bounds on a proxy's destination and on a reactor.

A proxy's destination may take 25 s, then the answer is 408. A reactor may run for 30 s. Its code
and the payload of an invocation have a maximum size.

Units of size are read leniently (D-UNITS): 50,000 characters and 10⁶ bytes must be accepted, more
than 51,200 characters and more than 2²⁰ bytes refused. Sizes between the two are a choice.

A measured time is an upper bound of the time that the deployment took, because its machine or ours
may be busy. So *too early* is judged as measured. *Too late* is judged after the known delays are
subtracted: how late this process itself woke (`stalls_beside`), and how long a request with nothing
to wait for took at the same time. Where these delays exceed the margin, the verdict is
inconclusive.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from conformance.context.answers import is_refused, must_be_there, text_of
from conformance.context.check import Inconclusive, Skip, check
from conformance.context.context import CheckContext
from conformance.context.verdicts import Finding, Symptom, Verdict
from conformance.messages.exchange import Exchange, KeyLabel
from engine.messages import Json
from engine.tokens.strict_json import dumps

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


async def stalls_beside(
    ctx: CheckContext, coroutines: Sequence[Coroutine[Any, Any, Any]]
) -> tuple[list[Any], int]:
    """Run coroutines at once; return their results, and for how long this process hung."""
    is_over = False
    late_ns = 0

    async def watched() -> list[Any]:
        nonlocal is_over
        try:
            return await ctx.gather(coroutines)
        finally:
            is_over = True

    async def beat() -> None:
        nonlocal late_ns
        while not is_over:
            due_ns = ctx.transport.now_ns + _BEAT_NS
            await ctx.transport.sleep_until_ns(due_ns)
            late_ns += max(0, ctx.transport.now_ns - due_ns - _BEAT_NS)

    results, _ = await ctx.gather([watched(), beat()])
    # Does not follow from the seed, so it is recorded: a later judgement must use the same.
    return results, int(ctx.make("stalled_ns", lambda: str(late_ns)))


# --- proxies --------------------------------------------------------------------------------------


_PROXY_TIMEOUT_NS: Final = 25 * _SECOND_NS
_EARLY_NS: Final = _SECOND_NS // 2
_LATE_NS: Final = 5 * _SECOND_NS
_DELAY: Final = re.compile(r"/delay/([0-9]+)$")
_JUST_BELOW: Final = 24


@check(
    "proxies.timeout",
    "PRX-TIMEOUT",
    "ERR-408",
    accepts="408 after 25 s for a destination that takes longer; else the destination's answer",
    roles=("slow_destination",),
    requests=12,
    takes_ns=_PROXY_TIMEOUT_NS,
    is_timed=True,
)
async def proxy_timeout(ctx: CheckContext) -> list[Finding]:
    """A proxy request whose destination takes longer than 25 s gets 408, after 25 s."""
    label = ctx.key("slow_destination")
    path = ctx.target.key_labels[label].path
    if path is None:
        raise Skip('the slow destination has no path; add path = "/proxy/…" to its [[keys]]')
    paths = [path]
    delay = _DELAY.search(path)
    if delay is not None:
        front = path[: delay.start()]
        paths += [f"{front}/delay/{_JUST_BELOW}", f"{front}/delay/0"]
    lanes = [ctx.lane(f"destination {place}", proxy_key=label) for place in range(len(paths))]
    asked = [lane.ask("GET", way) for lane, way in zip(lanes, paths, strict=True)]
    asked += _other_ways(ctx, label, path) if delay is not None else []
    (slow, *rest), held_ns = await stalls_beside(ctx, asked)
    quick, others = rest[: len(paths) - 1], rest[len(paths) - 1 :]
    if quick:
        # Right after the slow one has ended, measure how long a request without a wait takes.
        after = await lanes[-1].ask("GET", paths[-1])
        held_ns += max(took_ns(quick[-1]), took_ns(after))
    findings = [_quick(ctx, exchange) for exchange in quick]
    if quick and not any(exchange.ok for exchange in quick):
        message = f"no destination answers through this proxy: {quick[-1].status}"
        return [ctx.unsettled(clause, message, *quick, slow) for clause in ctx.check.clauses]
    by_others = [finding for other in others for finding in _slow(ctx, other, held_ns)]
    findings += [
        finding for finding in by_others if finding.verdict in {Verdict.PASS, Verdict.FAIL}
    ]
    return [*findings, *_slow(ctx, slow, held_ns)]


def _other_ways(
    ctx: CheckContext, label: KeyLabel, path: str
) -> list[Coroutine[Any, Any, Exchange]]:
    """Send to the slow destination by other methods, and by a custom hostname."""
    asked = [
        ctx.lane(method, proxy_key=label).ask(
            method, path, None if method == "HEAD" else {"v": "x"}
        )
        for method in ("POST", "PUT", "PATCH", "DELETE", "HEAD")
    ]
    asked += [ctx.lane("query", proxy_key=label).ask("GET", f"{path}?probe=1")]
    for key in ctx.target.labels("private_prod")[:1]:
        asked += [ctx.lane("keyed", proxy_key=label, key=key).ask("GET", path)]
    hosts = ctx.target.labels("custom_hostname")[:1]
    return asked + [ctx.lane("host", host=host).ask("GET", path) for host in hosts]


def _quick(ctx: CheckContext, exchange: Exchange) -> Finding:
    """Judge a destination that takes less than 25 s by itself."""
    path, took = exchange.ask.path, seconds(took_ns(exchange))
    if exchange.status == 408 and took_ns(exchange) < _PROXY_TIMEOUT_NS:
        message = (
            f"{path}: a destination that takes less than 25 s must not get 408, got it in {took}"
        )
        return ctx.fails("PRX-TIMEOUT", message, exchange)
    if exchange.status == 408:
        message = (
            f"{path}: 408 after {took}; whatever delayed it may have delayed the destination too"
        )
        return ctx.unsettled("PRX-TIMEOUT", message, exchange)
    if not exchange.ok:
        message = f"{path}: the destination did not answer, {exchange.status or exchange.error}"
        return ctx.unsettled("PRX-TIMEOUT", message, exchange)
    return ctx.passes("PRX-TIMEOUT", f"{path}: the destination's answer, after {took}", exchange)


def _slow(ctx: CheckContext, exchange: Exchange, held_ns: int) -> list[Finding]:
    """Judge a destination that takes longer; held_ns: known delay of its answer by other causes."""
    after_ns = took_ns(exchange)
    took = f"after {seconds(after_ns)}"

    def unsaid(message: str) -> list[Finding]:
        return [ctx.unsettled(clause, message, exchange) for clause in ctx.check.clauses]

    if exchange.status in {None, 401, 403, 404, 429}:
        return unsaid(
            f"the slow destination could not be reached: {exchange.status or exchange.error}"
        )
    if exchange.status != 408 and after_ns < _PROXY_TIMEOUT_NS - _EARLY_NS:
        return unsaid(f"the slow destination must take longer than 25 s, but answered {took}")
    if exchange.status != 408:
        message = f"a destination that takes longer than 25 s must get 408, got {exchange.status}"
        symptoms: tuple[Symptom, ...] = ("late-answer",) if exchange.ok else ()
        return [
            ctx.fails(clause, f"{message} {took}", exchange, symptoms=symptoms)
            for clause in ctx.check.clauses
        ]
    findings = [ctx.passes("ERR-408", f"408 {took}", exchange)]
    late_ns = after_ns - _PROXY_TIMEOUT_NS
    if -_EARLY_NS <= late_ns <= _LATE_NS + ctx.session.latency_ns:
        findings.append(ctx.passes("PRX-TIMEOUT", f"408 {took}", exchange))
    elif late_ns < 0 or late_ns - held_ns > _LATE_NS:
        message = f"408 must come after 25 s, but came {took}"
        findings.append(ctx.fails("PRX-TIMEOUT", message, exchange))
    else:
        message = f"408 came {took}, but up to {seconds(held_ns)} of that may have other causes"
        findings.append(ctx.unsettled("PRX-TIMEOUT", message, exchange))
    return findings


# --- reactors -------------------------------------------------------------------------------------


_CODE: Final = "module.exports = async function (req) { return req.args; };\n//"
_CODE_LIMITS: Final = (50_000, 51_200)
_PAYLOAD_LIMITS: Final = (1_000_000, 1_048_576)
_MERGE_PATCH: Final = {"Content-Type": "application/merge-patch+json"}
_ENVELOPE: Final = len(dumps({"args": ""}))
_AT_A_TIME: Final = 6
_REACTOR_TIMEOUT_NS: Final = 30 * _SECOND_NS
_SHORT_NS: Final = 3 * _SECOND_NS
_NO_ID: Final = "00000000-0000-4000-8000-000000000000"
_ANYWHERE: Final = "https://destination.example"


def _code(characters: int, filler: str = "x ") -> str:
    return (_CODE + filler * characters)[: characters - 1] + "x"


def _waiting(for_s: int) -> str:
    return (
        "module.exports = async function (req) {"
        f" await new Promise((done) => setTimeout(done, {for_s}000)); return req.args; }};"
    )


_Send = Callable[[int], Coroutine[Any, Any, Exchange]]
"""Sends a request of a size."""


async def _limit_of(
    ctx: CheckContext, clause: str, setting: str, limits: tuple[int, int], send: _Send
) -> list[Finding]:
    """Judge a bound of size, and find which unit is used."""
    least, most = limits
    small = await send(100)
    must_be_there("create_reactor" if clause == "RCT-CODE" else "invoke_reactor", small)
    if not small.ok:
        raise Inconclusive(
            f"a small request is not accepted ({small.status}); describe its form in [requests]"
        )
    findings = await _sizes(ctx, clause, "a size of {}", limits, send)
    between = await send(least + 1)
    if is_refused(between):
        findings.append(ctx.reads(clause, setting, least, between))
    elif between.ok:
        last = await send(most)
        if last.ok:
            findings.append(ctx.reads(clause, setting, most, last))
    return findings


async def _sizes(
    ctx: CheckContext, clause: str, what: str, limits: tuple[int, int], send: _Send
) -> list[Finding]:
    """Judge a size that must be accepted, and one that must be refused."""
    least, most = limits
    return [
        ctx.acceptance(clause, what.format(least), await send(least)),
        ctx.refusal(clause, what.format(most + 1), await send(most + 1)),
    ]


@check(
    "reactors.code",
    "RCT-CODE",
    accepts="2xx for 50,000 characters, any 4xx for more than 51,200",
    roles=("management",),
    requests=27,
)
async def code(ctx: CheckContext) -> list[Finding]:
    """The code of a reactor or a transform has at most 50,000 characters."""
    key = ctx.spread_key("management")

    async def reactor(characters: int, filler: str = "x") -> Exchange:
        values: dict[str, Json] = {
            "value": ctx.value(f"code {characters}"),
            "code": _code(characters, filler),
        }
        return await ctx.client.call("create_reactor", values, key=key)

    setting = "outside.reactor_code_limit"
    findings = await _limit_of(ctx, "RCT-CODE", setting, _CODE_LIMITS, reactor)
    wide = await reactor(_CODE_LIMITS[0], "\U0001d11e")
    findings.append(ctx.acceptance("RCT-CODE", "50,000 characters of four bytes", wide))
    reactor_id = _reactor_id(await reactor(100))
    proxy_id = text_of(await _proxy(ctx, key, {}), "id") or ""
    names = ("request_transform", "response_transform")
    ways: dict[str, Callable[[Json], Coroutine[Any, Any, Exchange]]] = {
        "code by PATCH": lambda code: _patch(ctx, key, "patch_reactor", reactor_id, {"code": code}),
        "a request_transform": lambda code: _proxy(ctx, key, {names[0]: {"code": code}}),
        "a response_transform": lambda code: _proxy(ctx, key, {names[1]: {"code": code}}),
        "each of two transforms": lambda code: _proxy(
            ctx, key, {name: {"code": code} for name in names}
        ),
        "a request_transform by PATCH": lambda code: _patch(
            ctx, key, "patch_proxy", proxy_id, {names[0]: {"code": code}}
        ),
        "a response_transform by PATCH": lambda code: _patch(
            ctx, key, "patch_proxy", proxy_id, {names[1]: {"code": code}}
        ),
    }
    for what, way in ways.items():

        async def send(characters: int, way: Any = way) -> Exchange:  # noqa: ANN401 # reason: as above
            answer: Exchange = await way(_code(characters))
            return answer

        small = await send(200)
        if small.ok:
            sized = f"{what} of {{}} characters"
            findings += await _sizes(ctx, "RCT-CODE", sized, _CODE_LIMITS, send)
        else:
            message = f"{what} is not accepted here: {small.status}"
            findings.append(ctx.informs("RCT-CODE", message, small))
    return findings


async def _patch(
    ctx: CheckContext, key: KeyLabel, operation: str, made_id: str, fields: dict[str, Json]
) -> Exchange:
    values: dict[str, Json] = {"id": made_id}
    return await ctx.client.call(
        operation, values, body=dumps(fields), key=key, headers=_MERGE_PATCH
    )


async def _proxy(ctx: CheckContext, key: KeyLabel, fields: dict[str, Any]) -> Exchange:
    body: Json = {
        "name": ctx.value("proxy"),
        "destination_url": ctx.target.destination_url or _ANYWHERE,
        **fields,
    }
    return await ctx.client.call("create_proxy", body=body, key=key)


@check(
    "reactors.payload",
    "RCT-PAYLOAD",
    accepts="2xx for a payload of 10^6 bytes, any 4xx for one of more than 2^20",
    roles=("management",),
    requests=16,
)
async def payload(ctx: CheckContext) -> list[Finding]:
    """The payload for a reactor, or for a proxy with a transform, has at most 1 MB."""
    key = ctx.spread_key("management")
    values: dict[str, Json] = {"value": ctx.value("invoked"), "code": _code(100)}
    reactor_id = _reactor_id(await ctx.client.call("create_reactor", values, key=key))

    async def invoke(size_bytes: int) -> Exchange:
        # The payload may mean the body or `args` alone: so count the envelope up to 10⁶ bytes only.
        letters = size_bytes - (_ENVELOPE if size_bytes <= _PAYLOAD_LIMITS[0] else 2)
        args: dict[str, Json] = {"id": reactor_id, "args": "x" * letters}
        return await ctx.client.call("invoke_reactor", args, key=key)

    setting = "outside.reactor_payload_limit_bytes"
    findings = await _limit_of(ctx, "RCT-PAYLOAD", setting, _PAYLOAD_LIMITS, invoke)
    text = "x" * _PAYLOAD_LIMITS[1]
    payloads: dict[str, Json] = {
        "fewer characters than the limit, but more bytes": "\u00e9" * (len(text) * 6 // 10),
        "a payload that is an object": {"a": text},
        "a payload that is an array": [text],
        "a payload of several parts": {"a": [text], "b": {"c": 1}},
    }
    for what, args in payloads.items():
        invocation: dict[str, Json] = {"id": reactor_id, "args": args}
        exchange = await ctx.client.call("invoke_reactor", invocation, key=key)
        findings.append(ctx.refusal("RCT-PAYLOAD", what, exchange))
    return findings + await _proxy_payload(ctx, key)


@check(
    "reactors.fan-out",
    "RCT-HOT",
    accepts="2xx for each of several concurrent invocations, however long it waits",
    roles=("management",),
    requests=_AT_A_TIME + 2,
    takes_ns=_SECOND_NS,
)
async def fan_out(ctx: CheckContext) -> list[Finding]:
    """Concurrent invocations of one reactor are all answered, and none is refused.

    The answers do not show which instance ran or how long a cold start took.
    """
    key = ctx.spread_key("management")
    maker = ctx.lane("maker", key=key)
    values: dict[str, Json] = {"value": ctx.value("busy"), "code": _code(100)}
    reactor_id = _reactor_id(await maker.call("create_reactor", values))
    asked: dict[str, Json] = {"id": reactor_id, "args": "busy"}
    alone = await maker.call("invoke_reactor", asked)
    if not alone.ok:
        raise Inconclusive(f"a single invocation is not accepted: {alone.status}")
    nobody: dict[str, Json] = {"id": _NO_ID, "args": "busy"}
    missing = await maker.call("invoke_reactor", nobody)
    if not is_refused(missing):
        raise Inconclusive(f"invoking a reactor that does not exist got {missing.status}")
    lanes = [ctx.lane(f"caller {number}", key=key) for number in range(_AT_A_TIME)]
    exchanges = await ctx.gather([lane.call("invoke_reactor", asked) for lane in lanes])
    refused = [exchange for exchange in exchanges if not exchange.ok]
    if refused:
        message = (
            f"{_AT_A_TIME} concurrent invocations must all be answered, got {refused[0].status}"
        )
        return [ctx.fails("RCT-HOT", message, alone, *refused)]
    return [ctx.passes("RCT-HOT", f"{_AT_A_TIME} concurrent invocations were answered", *exchanges)]


@check(
    "reactors.timeout",
    "RCT-TIMEOUT",
    accepts="an error of any status 30 s after a synchronous invocation that takes longer",
    roles=("management",),
    requests=6,
    takes_ns=_REACTOR_TIMEOUT_NS,
    is_timed=True,
)
async def reactor_timeout(ctx: CheckContext) -> list[Finding]:
    """An invocation that takes longer than 30 s is answered with an error, after 30 s.

    This needs code that waits. The language of code is not specified, so JavaScript is tried; a
    deployment that does not run it shows nothing. Two more invocations at the same time show
    whether it does: code that waits for 3 s, and code that does not wait.
    """
    key = ctx.spread_key("management")
    maker = ctx.lane("maker", key=key)
    shaped = []
    for name, code in (("slow", _waiting(31)), ("short", _waiting(3)), ("none", _code(100))):
        values: dict[str, Json] = {"value": ctx.value(name), "code": code}
        made = await maker.call("create_reactor", values)
        values = {"id": _reactor_id(made), "args": name}
        shaped.append((ctx.lane(name, key=key), ctx.shaped("invoke_reactor", values)))
    # Made here and not above, where a reactor that cannot be created would drop those before it.
    asked = [lane.ask(*request) for lane, request in shaped]
    (slow, short, none), stalled_ns = await stalls_beside(ctx, asked)
    held_ns = stalled_ns + took_ns(none)
    waited_ns = took_ns(short) - took_ns(none) - stalled_ns
    is_run = short.ok and none.ok and waited_ns >= _SHORT_NS - _EARLY_NS
    return [_timed_out(ctx, slow, held_ns, short, is_run=is_run)]


def _timed_out(
    ctx: CheckContext, slow: Exchange, held_ns: int, short: Exchange, *, is_run: bool
) -> Finding:
    """Judge code that waits for 31 s; is_run: whether the deployment runs code that waits."""
    after_ns = took_ns(slow)
    took = f"{slow.status or slow.error} after {seconds(after_ns)}"
    is_error = slow.status is not None and not slow.ok and not slow.refused
    late_ns = after_ns - _REACTOR_TIMEOUT_NS
    if is_error and -_EARLY_NS <= late_ns <= _LATE_NS:
        return ctx.passes("RCT-TIMEOUT", f"code that waits for 31 s: {took}", slow)
    if slow.status is None or slow.refused:
        return ctx.unsettled("RCT-TIMEOUT", f"the reactor gave no answer: {took}", slow)
    if not is_run:
        seen = f"{short.status or short.error} after {seconds(took_ns(short))}"
        message = f"JavaScript that waits is not run here: {took}; code that waits for 3 s: {seen}"
        return ctx.finding("RCT-TIMEOUT", Verdict.NOT_OBSERVABLE, message, slow, short)
    if slow.ok and late_ns < 0:
        message = f"code that should wait for 31 s did not: {took}"
        return ctx.unsettled("RCT-TIMEOUT", message, slow, short)
    if is_error and 0 < late_ns <= _LATE_NS + held_ns:
        message = f"{took}, but up to {seconds(held_ns)} of that may have other causes"
        return ctx.unsettled("RCT-TIMEOUT", message, slow, short)
    message = f"code that waits for 31 s must end in an error after 30 s, got {took}"
    return ctx.fails("RCT-TIMEOUT", message, slow, short)


async def _proxy_payload(ctx: CheckContext, key: KeyLabel) -> list[Finding]:
    if ctx.target.destination_url is None:
        message = "no destination_url in the target: proxies with a transform were not tried"
        return [ctx.informs("RCT-PAYLOAD", message)]
    fields = {"request_transform": {"code": _code(100)}, "require_auth": False}
    made = await _proxy(ctx, key, fields)
    text = text_of(made, "key")
    if text is None:
        message = f"a proxy with a transform is not accepted here: {made.status}"
        return [ctx.informs("RCT-PAYLOAD", message, made)]
    ctx.learn_key("made.proxy", text)
    headers = {"Content-Type": "application/octet-stream"}

    async def send(size_bytes: int, method: str = "POST") -> Exchange:
        body = b"x" * size_bytes
        return await ctx.client.insist(
            method, "/proxy", body, proxy_key="made.proxy", headers=headers
        )

    small = await send(100)
    if not small.ok:
        message = f"the destination does not answer through a proxy: {small.status}"
        return [ctx.informs("RCT-PAYLOAD", message, small)]
    what = "{} bytes through a proxy with a transform"
    findings = await _sizes(ctx, "RCT-PAYLOAD", what, _PAYLOAD_LIMITS, send)
    put = await send(_PAYLOAD_LIMITS[1] + 1, "PUT")
    return [*findings, ctx.refusal("RCT-PAYLOAD", "PUT through a proxy with a transform", put)]


def _reactor_id(made: Exchange) -> str:
    """Return the id of a new reactor; raises `Skip` or `Inconclusive` if there is none."""
    must_be_there("create_reactor", made)
    reactor_id = text_of(made, "id")
    if reactor_id is None:
        message = f"no reactor can be created ({made.status}); see [requests.create_reactor]"
        raise Inconclusive(message)
    return reactor_id
