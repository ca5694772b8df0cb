"""Seed 5, 7 and 8.1: what holds for all limits: composition, throttle, block, 429, key classes."""

from __future__ import annotations

import re
from typing import Final

from conformance.bench import Bench
from conformance.exchanges import Ask, Exchange, KeyLabel
from conformance.probes.asking import SECOND_NS, Burst, Counter
from conformance.probes.families import Rate
from conformance.probes.measuring import evidence, histories_of, measure
from conformance.probes.playing import play_block
from conformance.probes.rows import ROWS, rate_of, spare_sources
from conformance.probes.saying import check_alike, readings_of
from conformance.probes.sightings import late_after_ns, odd_statuses
from conformance.registry import Inconclusive, check
from conformance.target import Source
from conformance.verdicts import Finding, Verdict

__all__: list[str] = []

_MARGIN_NS: Final = 20_000_000
_MARKED: Final = re.compile("_prod_|_test_")
_WHOLE: Final = re.compile("[0-9]{1,9}")


def _counter(
    bench: Bench,
    name: str,
    operation: str,
    key: KeyLabel,
    rule_id: str,
    sources: tuple[Source, ...] = (),
) -> Counter:
    sources = sources or bench.sources[:1]
    return Counter(bench, name, ROWS[rule_id].asker(bench, operation, key=key, sources=sources))


def _refused(burst: Burst) -> list[Exchange]:
    odd = odd_statuses(burst.exchanges)
    return [one for one in burst.exchanges if one.refused or one.status in odd]


def _slowed(bench: Bench, burst: Burst) -> list[Exchange]:
    """Return what was held back: much later than what the preflight saw."""
    bound_ns = late_after_ns(2 * bench.latency_ns)
    return [one for one in burst.exchanges if one.received_ns - one.sent_ns > bound_ns]


def _accepted(burst: Burst, what: str) -> None:
    first = min(burst.exchanges, key=lambda one: one.number)
    if first.status is None or first.status == 401:
        raise Inconclusive(f"{what} is not accepted: {first.status or first.error}")


@check(
    "limits.lowest",
    "LIM-LOWEST",
    accepts="the lower rate refuses or slows, though other rows allow more",
    roles=("private_test", "legacy"),
    requests=180,
    takes_ns=2 * SECOND_NS,
    is_probe=True,
)
async def lowest(bench: Bench) -> list[Finding]:
    """The lowest available rate binds: the tenant's on POST /tokens, the resource's on a search."""
    _, tenant = rate_of(bench, "LIM-TEST-TENANT")
    _, searches = rate_of(bench, "LIM-SEARCH")
    found = []
    for name, operation, role, rule_id, rate in (
        ("tenant", "create", "private_test", "LIM-TEST-TENANT", tenant),
        ("resource", "search", "legacy", "LIM-LEGACY", searches),
    ):
        counter = _counter(bench, name, operation, bench.key(role), rule_id)
        size = rate.limit_requests * 3 // 2 + _regained(bench, rate)
        burst = await counter.send(name, size)
        _accepted(burst, f"the {role} key")
        beyond = _refused(burst) + _slowed(bench, burst)
        if beyond:
            says = f"{name}: {size - len(beyond)} of {size} answered at once, the rest not"
            found.append(bench.passes("LIM-LOWEST", says, *beyond[:2]))
        else:
            says = (
                f"{size} requests of a {role} key at once and none refused or slowed: "
                f"its {name} allows {rate.limit_requests}, whatever other rows allow"
            )
            found.append(bench.fails("LIM-LOWEST", says, *burst.exchanges[-2:]))
    return found


def _regained(bench: Bench, rate: Rate) -> int:
    """Return how many requests a bucket regains while a burst is under way."""
    return 4 * rate.limit_requests * bench.latency_ns // rate.window_ns


@check(
    "limits.throttle",
    "LIM-THROTTLE",
    accepts="requests beyond the rate are refused or slowed, and the window's end gives room",
    roles=("private_test",),
    requests=90,
    takes_ns=20 * SECOND_NS,
    is_probe=True,
)
async def throttle(bench: Bench) -> list[Finding]:
    """A throttle slows or refuses what is beyond the rate, and no longer than the window."""
    _, rate = rate_of(bench, "LIM-TEST-TENANT")
    key = bench.key("private_test")
    counter = _counter(bench, "throttle", "tokenize", key, "LIM-TEST-TENANT")
    size = rate.limit_requests * 3 // 2 + _regained(bench, rate)
    burst = await counter.send("beyond", size)
    _accepted(burst, "the private_test key")
    refused, slowed = _refused(burst), _slowed(bench, burst)
    if not refused and not slowed:
        says = f"{size} requests at once and none refused or slowed beyond {rate.limit_requests}"
        return [bench.fails("LIM-THROTTLE", says, *burst.exchanges[-2:])]
    # Twice the window: a sliding counter weighs an earlier window, and a queue has its turns.
    again_ns = burst.last_received_ns + 2 * rate.window_ns + _MARGIN_NS
    again = await counter.send("room", 2, at_ns=again_ns)
    if len(_refused(again)) == again.size:
        says = "refused long after the window had passed: a throttle does not block"
        return [bench.fails("LIM-THROTTLE", says, *refused[:1], *again.exchanges)]
    says = f"{len(refused)} refused and {len(slowed)} slowed of {size}; answered again afterwards"
    found = [bench.passes("LIM-THROTTLE", says, *(refused + slowed)[:2], *again.exchanges)]
    if slowed and not refused:
        # A refusal may be a wait beyond the bound: whether it is, the rows tell.
        reading = ("limits.throttle", "delay")
        says = "reading: limits.throttle = 'delay'"
        found.append(bench.finding("LIM-THROTTLE", Verdict.PASS, says, reading=reading))
    return found


@check(
    "limits.block",
    "LIM-BLOCK",
    accepts="from the first request beyond the rate on everything is refused for the block's time",
    roles=("public", "public"),
    requests=160,
    takes_ns=61 * SECOND_NS,
    is_probe=True,
)
async def block(bench: Bench) -> list[Finding]:
    """Once the rate is exceeded requests are blocked for the time the row says, and no longer."""
    rule, rate = rate_of(bench, "LIM-PUBLIC")
    first, second = spare_sources(bench, 1, after=2), spare_sources(bench, 1, after=3)
    probing = _counter(bench, "probing", "tokenize", bench.key("public"), "LIM-PUBLIC", first)
    silent = _counter(bench, "silent", "tokenize", bench.key("public", 2), "LIM-PUBLIC", second)
    played = await bench.gather([play_block(probing, rate), play_block(silent, rate, silent=True)])
    histories = histories_of(played)
    if any(one.outcome == "refused" for each in histories for one in each[0]):
        raise Inconclusive(
            "the key is refused before it has met its rate: other keys seem to count in its "
            "counter (D-AND-COUNTER each), which needs more addresses"
        )
    measured = measure(histories, rate)
    shown = evidence(played)
    if not measured.refused and measured.fault is None:
        raise Inconclusive("the rate was never exceeded: the requests came too slowly")
    if measured.fault is not None:
        return [bench.fails("LIM-BLOCK", measured.fault, *shown)]
    check_alike(bench, "LIM-BLOCK's rule", measured)
    refused_to_ns = max(
        (one.received_ns for one in played[0].before_end.exchanges if one.refused)
        if played[0].before_end
        else (),
        default=0,
    )
    admitted_ns = min(
        (
            one.sent_ns
            for each in played
            if each.after_end
            for one in each.after_end.exchanges
            if not one.refused
        ),
        default=0,
    )
    length = ""
    if refused_to_ns and admitted_ns:
        begun_ns = min(one.sent_ns for one in probing.exchanges() if one.refused)
        length = (
            f"; refused {(refused_to_ns - begun_ns) / SECOND_NS:.2f} s after it began, "
            f"answered after {(admitted_ns - begun_ns) / SECOND_NS:.2f} s"
        )
    return [
        bench.passes("LIM-BLOCK", measured.summary + length, *shown),
        *readings_of(bench, "LIM-BLOCK", rule, measured),
    ]


@check(
    "limits.status",
    "ERR-429",
    accepts="429 for every request that is refused beyond the rate",
    roles=("private_test",),
    requests=140,
    takes_ns=2 * SECOND_NS,
    is_probe=True,
)
async def status(bench: Bench) -> list[Finding]:
    """A rate-limited request gets 429, and its headers say when to come back."""
    _, rate = rate_of(bench, "LIM-TEST-TENANT")
    key = bench.key("private_test")
    counter = _counter(bench, "status", "tokenize", key, "LIM-TEST-TENANT")
    # More than a throttle that slows may hold for its bound: two windows' worth and a half.
    size = rate.limit_requests * 5 // 2
    burst = await counter.send("beyond", size)
    _accepted(burst, "the private_test key")
    odd = odd_statuses(burst.exchanges)
    wrong = [one for one in burst.exchanges if one.status in odd]
    if wrong:
        says = f"beyond the rate the answer is {wrong[0].status}: must be 429"
        return [bench.fails("ERR-429", says, *wrong[:2])]
    refused = [one for one in burst.exchanges if one.refused]
    if not refused:
        if _slowed(bench, burst):
            says = "requests beyond the rate are slowed and none is refused"
            return [bench.finding("ERR-429", Verdict.NOT_APPLICABLE, says)]
        raise Inconclusive(f"none of {size} requests was refused: no rate limit was met")
    says = f"{len(refused)} of {size} were refused, all with 429"
    found = [bench.passes("ERR-429", says, *refused[:2])]
    return [*found, *await _headers(bench, counter, refused)]


async def _headers(bench: Bench, counter: Counter, refused: list[Exchange]) -> list[Finding]:
    """Say which headers a refusal carries (D-429-HEADERS), and whether they can be believed."""
    texts = [one.header("Retry-After") for one in refused]
    fields = [one.header("RateLimit") for one in refused]
    found = [
        bench.finding(
            "ERR-429",
            Verdict.PASS,
            f"reading: http.{name} = {seen}",
            refused[0],
            reading=(f"http.{name}", seen),
        )
        for name, seen in (
            ("retry_after", all(text is not None for text in texts)),
            ("rate_limit_fields", all(text is not None for text in fields)),
        )
    ]
    for text, field in zip(texts, fields, strict=True):
        if text is not None and (not _WHOLE.fullmatch(text) or int(text) < 1):
            says = f"Retry-After = {text!r} is no whole number of seconds from 1 on"
            return [*found, bench.finding("ERR-429", Verdict.INFORMATIONAL, says, refused[0])]
        if field is not None and "r=0" not in re.split("[;,] *", field):
            says = f"RateLimit = {field!r} on a refusal: the remaining quota must be r=0"
            return [*found, bench.finding("ERR-429", Verdict.INFORMATIONAL, says, refused[0])]
    if texts[-1] is not None:
        last = max(refused, key=lambda one: one.received_ns)
        wait_ns = int(last.header("Retry-After") or 0) * SECOND_NS
        again = await counter.send("again", 1, at_ns=last.received_ns + wait_ns + _MARGIN_NS)
        if again.exchanges[0].refused:
            says = f"still refused after the Retry-After of {texts[-1]} s had passed"
            shown = (last, again.exchanges[0])
            found.append(bench.finding("ERR-429", Verdict.INFORMATIONAL, says, *shown))
    return found


@check(
    "limits.classes",
    "AUTH-KINDS",
    "AUTH-LEGACY",
    accepts="public, management and legacy keys meet a rate of their own, a private key none of it",
    roles=("private_prod", "public", "management", "legacy"),
    requests=500,
    takes_ns=2 * SECOND_NS,
    is_probe=True,
)
async def classes(bench: Bench) -> list[Finding]:
    """Each kind of application, and legacy keys, are limited as a class of their own."""
    bursts = {}
    for role, rule_id, operation in (
        ("public", "LIM-PUBLIC", "tokenize"),
        ("management", "LIM-MANAGEMENT", "get_tenant"),
        ("legacy", "LIM-LEGACY", "tokenize"),
    ):
        _, rate = rate_of(bench, rule_id)
        size = rate.limit_requests * 5 // 4 + 1 + _regained(bench, rate)
        counter = _counter(bench, role, operation, bench.key(role), rule_id)
        bursts[role] = await counter.send(role, size)
        _accepted(bursts[role], f"the {role} key")
    key = bench.key("private_prod")
    size = rate_of(bench, "LIM-LEGACY")[1].limit_requests * 5 // 4
    counter = _counter(bench, "private", "list_logs", key, "LIM-PRIVATE")
    private = await counter.send("private", size)
    _accepted(private, "the private_prod key")
    free = not _refused(private)
    found = []
    missing = [role for role in ("public", "management") if not _refused(bursts[role])]
    if missing or not free:
        says = (
            f"a {' and a '.join(missing)} key met no limit of its class"
            if missing
            else f"a private key is refused within {size} requests: that is another class's limit"
        )
        found.append(bench.fails("AUTH-KINDS", says, *private.exchanges[-1:]))
    else:
        shown = [_refused(bursts[role])[0] for role in ("public", "management")]
        says = f"public and management keys are refused at their rates, a private one not at {size}"
        found.append(bench.passes("AUTH-KINDS", says, *shown))
    return [*found, *_legacy(bench, bursts["legacy"], private, size)]


def _legacy(bench: Bench, burst: Burst, private: Burst, size: int) -> list[Finding]:
    label = bench.key("legacy")
    if _MARKED.search(bench.target.key_labels[label].value):
        raise Inconclusive(f"the text of {label} holds _prod_ or _test_: that is no legacy key")
    refused = _refused(burst)
    if not refused:
        says = f"a key whose text holds neither marker met no limit in {burst.size} requests"
        return [bench.fails("AUTH-LEGACY", says, *burst.exchanges[-1:])]
    if _refused(private):
        says = f"a key whose text holds a marker is refused within {size} requests, as legacy ones"
        return [bench.fails("AUTH-LEGACY", says, *_refused(private)[:1])]
    says = "a key without _prod_ and _test_ in its text is limited as legacy, one with it is not"
    return [bench.passes("AUTH-LEGACY", says, refused[0])]


@check(
    "limits.counted",
    "LIM-TEST-TENANT",
    accepts="whether failed requests count is a reading (D-COUNTED)",
    roles=("private_test",),
    requests=80,
    takes_ns=2 * SECOND_NS,
    is_probe=True,
)
async def counted(bench: Bench) -> list[Finding]:
    """Whether requests that fail count too."""
    _, rate = rate_of(bench, "LIM-TEST-TENANT")
    key = bench.key("private_test")

    def invalid(number: int) -> Ask:
        body = {"type": "token", "data": {"number": number}, "encrypted": 7}
        method, path, _ = bench.shaped("tokenize")
        return Ask(method=method, path=path, body=body, key=key, source=bench.sources[0])

    counter = Counter(bench, "counted", invalid)
    burst = await counter.send("invalid", rate.limit_requests * 3 // 2 + _regained(bench, rate))
    statuses = {one.status for one in burst.exchanges if not one.refused}
    if not all(status is not None and 400 <= status < 500 for status in statuses):
        raise Inconclusive("an invalid request is not answered 4xx: nothing says what counts")
    seen = "every" if _refused(burst) or _slowed(bench, burst) else "success"
    return [
        bench.finding(
            "LIM-TEST-TENANT",
            Verdict.PASS,
            f"reading: limits.counted_statuses = {seen!r}",
            *burst.exchanges[-1:],
            reading=("limits.counted_statuses", seen),
        )
    ]
