"""Sections 5, 7 and 8.1: the rules for all limits.

First, what is limited: kinds of application, legacy keys, and which requests. Then how limits
refuse: the lowest rate, throttle, block, 429.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

from conformance.probes.any_operation import AnyOperation
from conformance.probes.bursts import (
    SECOND_NS,
    Asker,
    Beyond,
    Burst,
    Counter,
    check_accepted,
    check_counted,
    go_beyond,
    refused_in,
    regained,
)
from conformance.probes.families import Rate, seconds
from conformance.probes.measurement import Measured, alternatives, evidence, histories_of
from conformance.probes.procedures import (
    Played,
    exchanges_of,
    play_block,
    play_borders,
    play_together,
)
from conformance.probes.row_findings import check_alike, is_counted_each, measured_row, readings_of
from conformance.probes.rows import border_of, counter_of, rate_of, rest, spare_sources
from conformance.probes.sightings import is_absent, is_of_a_front, odd_statuses
from conformance.runner.answers import text_of
from conformance.runner.bench import Bench
from conformance.runner.registry import Inconclusive, Skip, check
from conformance.runner.verdicts import Finding, Verdict
from conformance.wire.exchange import Ask, Exchange, KeyLabel
from engine.limits import Rule
from engine.messages import Json

# --- whom limits are for --------------------------------------------------------------------------


_PAUSE_NS: Final = 11 * SECOND_NS
_CLASSES: Final = ("LIM-PUBLIC", "LIM-MANAGEMENT", "LIM-LEGACY")
_TURNS: Final = 3
_MARKED: Final = re.compile("_prod_|_test_")
_Judge = TypeVar("_Judge", bound=Callable[..., object])


def _probe(
    check_id: str,
    *clauses: str,
    takes_ns: int = 2 * SECOND_NS,
    **fields: Any,  # noqa: ANN401 # reason: fields of Check
) -> Callable[[_Judge], _Judge]:
    """Register a check that exceeds rates; by default it waits for no window."""
    return check(check_id, *clauses, takes_ns=takes_ns, is_probe=True, **fields)


def _test_tenant(bench: Bench, name: str, ask: Asker | None = None) -> tuple[Counter, Rate]:
    """Return a counter under the row of test tenants, and the rate of that row.

    ask: makes its requests; by default they tokenize.
    """
    _, rate = rate_of(bench, "LIM-TEST-TENANT")
    if ask is not None:
        return Counter(bench, name, ask), rate
    return counter_of(bench, name, "LIM-TEST-TENANT", bench.key("private_test")), rate


@_probe(
    "limits.classes",
    "AUTH-KINDS",
    "AUTH-LEGACY",
    *_CLASSES,
    accepts="public, management and legacy keys each meet a rate that a private key does not meet",
    roles=("private_prod", "public", "management", "legacy"),
    requests=640,
    requests_most=2_440,
    beside=_CLASSES,
)
async def classes(bench: Bench) -> list[Finding]:
    """Keys of each kind of application, and legacy keys, are limited as separate classes."""
    met: dict[str, Beyond] = {}
    told: list[Finding] = []
    for role, rule_id in zip(("public", "management", "legacy"), _CLASSES, strict=True):
        _, rate = rate_of(bench, rule_id)
        size = rate.limit_requests * 5 // 4 + 1 + regained(bench, rate)
        key = bench.key(role)
        counter = counter_of(bench, role, rule_id, key)
        any_of = AnyOperation(bench, rule_id, key, counter)
        await any_of.look()
        # These requests, and those that follow, are fewer than the resource's own row allows.
        met[role] = await go_beyond(
            bench, [counter], rate, f"the {role} key", size, pause_ns=_PAUSE_NS
        )
        told.append(await any_of.finding(met[role]))
    size = rate_of(bench, "LIM-LEGACY")[1].limit_requests * 5 // 4
    counter = counter_of(bench, "private", "LIM-PRIVATE", bench.key("private_prod"))
    private = await counter.send("private", size)
    check_accepted(private, "the private_prod key")
    refused = refused_in(private.exchanges)
    fewest = min(rate_of(bench, rule_id)[1].limit_requests for rule_id in _CLASSES)
    if refused and private.size - len(refused) < fewest // 2:
        raise Inconclusive(
            "requests sent together are refused long before the rate of any class, so the "
            "deployment seems to space requests"
        )
    found = []
    missing = [role for role in ("public", "management") if not met[role].refused]
    if missing or refused:
        says = (
            f"a {' and a '.join(missing)} key met no limit of its class"
            if missing
            else f"a private key is refused within {size} requests, the limit of another class"
        )
        wrong = bench.fails("AUTH-KINDS", says, *private.exchanges[-1:])
        legacy = rate_of(bench, "LIM-LEGACY")[1].limit_requests
        if not missing and abs(private.size - len(refused) - legacy) <= legacy // 20:
            wrong = dataclasses.replace(
                wrong, follows="AUTH-LEGACY"
            )  # it is taken for a legacy key
        found.append(wrong)
    else:
        shown = [met[role].refused[0] for role in ("public", "management")]
        says = f"public and management keys are limited, a private one not in {size} requests"
        found.append(bench.passes("AUTH-KINDS", says, *shown))
    return [*found, *told, *_legacy(bench, met["legacy"], private, size)]


def _legacy(bench: Bench, sent: Beyond, private: Burst, size: int) -> list[Finding]:
    label = bench.key("legacy")
    if _MARKED.search(bench.target.key_labels[label].value):
        raise Inconclusive(f"the key {label} contains _prod_ or _test_, so it is not a legacy key")
    beyond = sent.refused + sent.slowed
    if not beyond:
        says = f"a key without _prod_ or _test_ met no limit in {sent.size} requests"
        return [bench.fails("AUTH-LEGACY", says, *sent.exchanges[-1:])]
    if refused_in(private.exchanges):
        says = f"a key with _prod_ or _test_ is refused within {size} requests, like a legacy key"
        return [bench.fails("AUTH-LEGACY", says, *refused_in(private.exchanges)[:1])]
    says = (
        "a key without _prod_ or _test_ is limited as a legacy key, a key with one of them is not"
    )
    return [bench.passes("AUTH-LEGACY", says, beyond[0])]


@_probe(
    "limits.any",
    "LIM-TEST-TENANT",
    accepts="while its rate is exceeded, a test tenant's key is refused for every operation",
    roles=("private_test",),
    requests=140,
    requests_most=430,
    is_extra=True,
    beside=("LIM-TEST-TENANT",),
)
async def any_operation(bench: Bench) -> list[Finding]:
    """A test tenant's row counts and refuses every method and resource."""
    counter, rate = _test_tenant(bench, "any")
    any_of = AnyOperation(bench, "LIM-TEST-TENANT", bench.key("private_test"), counter)
    await any_of.look()
    return [await any_of.finding(await go_beyond(bench, [counter], rate, "the private_test key"))]


@_probe(
    "limits.counted",
    "LIM-TEST-TENANT",
    accepts="whether failed requests count is a reading (D-COUNTED)",
    roles=("private_test",),
    requests=80,
    requests_most=300,
)
async def counted(bench: Bench) -> list[Finding]:
    """Find whether failed requests count (D-COUNTED)."""
    key = bench.key("private_test")

    def invalid(number: int) -> Ask:
        body = {"type": "token", "data": {"number": number}, "encrypted": 7}
        method, path, _ = bench.shaped("tokenize")
        return Ask(method=method, path=path, body=body, key=key, source=bench.sources[0])

    counter, rate = _test_tenant(bench, "counted", invalid)
    sent = await go_beyond(bench, [counter], rate, "the private_test key", may_fail=True)
    answered = [one for one in sent.exchanges if not is_of_a_front(one.status)]
    statuses = {one.status for one in answered if not one.refused}
    if not all(status is not None and 400 <= status < 500 for status in statuses):
        raise Inconclusive("an invalid request got no 4xx, so it does not show what counts")
    if sent.refused:
        apart = await _counted_apart(bench, counter, sent, rate)
        if apart:
            says = (
                "requests that fail are refused again and again, and valid ones of the same key "
                "are answered in between: must be one counter"
            )
            return [bench.fails("LIM-TEST-TENANT", says, *apart)]
    seen = "every" if sent.refused or sent.slowed else "success"
    field = "limits.counted_statuses"
    return [bench.reads("LIM-TEST-TENANT", field, seen, *sent.exchanges[-1:])]


async def _counted_apart(
    bench: Bench, failing: Counter, sent: Beyond, rate: Rate
) -> list[Exchange]:
    """Return what shows that valid requests are not refused with those that fail, else nothing.

    Inside one window: what a bucket or a sliding counter regains meanwhile explains less.
    """
    valid, _ = _test_tenant(bench, "valid")
    shown = await _in_turns(failing, valid, lambda one: one.refused, lambda one: one.ok)
    if not shown:
        return []
    lasted_ns = valid.bursts[-1].last_received_ns - min(one.sent_ns for one in sent.exchanges)
    regained_requests = rate.limit_requests * lasted_ns // rate.window_ns + 1
    return shown if regained_requests < 3 * _TURNS else []


async def _in_turns(
    mine: Counter,
    theirs: Counter,
    is_mine: Callable[[Exchange], bool],
    is_theirs: Callable[[Exchange], bool],
) -> list[Exchange]:
    """Send for two counters in turn; returns an exchange of each time and each counter.

    Returns nothing where an answer is not as it is expected of its counter.
    """
    shown: list[Exchange] = []
    for turn in range(_TURNS):
        own = (await mine.send(f"mine {turn}", 3)).exchanges
        other = (await theirs.send(f"theirs {turn}", 3)).exchanges
        if not all(map(is_mine, own)) or not all(map(is_theirs, other)):
            return []
        shown += (own[0], other[0])
    return shown


@_probe(
    "limits.legacy-class",
    "LIM-LEGACY",
    accepts="whether its kind's rate limits a legacy key as well is a reading (D-LEGACY-CLASS)",
    roles=("management",),
    requests=90,
    requests_most=600,
)
async def legacy_class(bench: Bench) -> list[Finding]:
    """Find whether a legacy key of a public application is limited as a public key too."""
    try:
        return await _legacy_class(bench)
    except Inconclusive as why:
        says = f"not decided whether its kind's rate limits a legacy key as well: {why}"
        return [bench.informs("LIM-LEGACY", says)]


async def _legacy_class(bench: Bench) -> list[Finding]:
    _, public = rate_of(bench, "LIM-PUBLIC")
    _, legacy = rate_of(bench, "LIM-LEGACY")
    labels = await _legacy_keys(bench)
    if not labels or legacy.limit_requests < public.limit_requests * 2:
        raise Inconclusive("no legacy key of a public application can be created here")
    counters = [counter_of(bench, label, "LIM-PUBLIC", label) for label in labels]
    sent = await go_beyond(bench, counters, public, "a legacy key of a public application")
    seen = "added" if sent.refused or sent.slowed else "exclusive"
    if seen == "exclusive":
        # Later: so many at once would meet the row of what they ask for.
        await bench.lane("later").sleep_ns(_PAUSE_NS)
        own = await go_beyond(bench, counters, legacy, "a legacy key of a public application")
        if not own.refused and not own.slowed:
            says = (
                f"{own.size} requests of legacy keys of a public application, and none was "
                "refused: must meet the rate of legacy keys"
            )
            return [bench.fails("LIM-LEGACY", says, *own.exchanges[-2:])]
    return [bench.reads("LIM-LEGACY", "limits.legacy_class", seen, *sent.exchanges[-1:])]


async def _legacy_keys(bench: Bench) -> list[KeyLabel]:
    """Create a public application with two legacy keys; returns no keys if that is not possible."""
    lane = bench.lane("making", key=bench.key("management"))
    body: Json = {
        "name": "conformance legacy class",
        "kind": "public",
        "grants": [{"container": "/", "permissions": ["token:create"]}],
    }
    method, path, _ = bench.shaped("create_application")
    made_id = text_of(await lane.ask(method, path, body), "id")
    if made_id is None:
        return []
    labels: list[KeyLabel] = []
    method, path, _ = bench.shaped("create_application_key", {"id": made_id})
    for place in (1, 2):
        text = text_of(await lane.ask(method, path, {"legacy": True}), "key")
        if text is not None and not _MARKED.search(text):
            labels.append(f"made.legacy-{place}")
            bench.learn_key(labels[-1], text)
    return labels if len(labels) == 2 else []


# --- how limits refuse ----------------------------------------------------------------------------


_MARGIN_NS: Final = 20_000_000
_WHOLE: Final = re.compile("[0-9]{1,9}")


@_probe(
    "limits.lowest",
    "LIM-LOWEST",
    accepts="the lower rate refuses or slows, though other rows allow more",
    roles=("private_test", "legacy", "legacy"),
    requests=180,
    requests_most=540,
)
async def lowest(bench: Bench) -> list[Finding]:
    """The lowest rate applies: the tenant's on POST /tokens, the resource's on a search."""
    _, tenant = rate_of(bench, "LIM-TEST-TENANT")
    _, searches = rate_of(bench, "LIM-SEARCH")
    key = bench.key("private_test")
    creating = [counter_of(bench, "tenant", "LIM-TEST-TENANT", key, operation="create")]
    if is_absent((await creating[0].send("there", 1)).exchanges):
        creating = [counter_of(bench, "tenant too", "LIM-TEST-TENANT", key)]
    # Several keys: one legacy key would reach LIM-LEGACY, which allows more than LIM-SEARCH.
    keys = [bench.key("legacy", place) for place in (1, 2)]
    searching = [
        counter_of(bench, f"resource {place}", "LIM-LEGACY", one, operation="search")
        for place, one in enumerate(keys, 1)
    ]
    found = []
    for name, role, counters, rate in (
        ("tenant", "private_test", creating, tenant),
        ("resource", "legacy", searching, searches),
    ):
        if is_absent((await counters[0].send("there too", 1)).exchanges):
            continue  # no row limits an operation that does not exist
        sent = await go_beyond(bench, counters, rate, f"the {role} key")
        beyond = sent.refused + sent.slowed
        if beyond:
            at_once = sent.size - len(beyond)
            says = (
                f"{name}: {at_once} of {sent.size} answered at once, the others refused or slowed"
            )
            found.append(bench.passes("LIM-LOWEST", says, *beyond[:2]))
        else:
            says = (
                f"none of {sent.size} requests of {role} keys at once was refused or slowed: "
                f"the row of its {name} allows {rate.limit_requests}, whatever other rows allow"
            )
            found.append(bench.fails("LIM-LOWEST", says, *sent.exchanges[-2:]))
    if not found:
        raise Skip("the deployment has none of the operations that have a row of their own")
    return found


@_probe(
    "limits.throttle",
    "LIM-THROTTLE",
    accepts="requests beyond the rate are refused or slowed, and admitted after the window's end",
    roles=("private_test",),
    requests=90,
    requests_most=280,
    takes_ns=20 * SECOND_NS,
)
async def throttle(bench: Bench) -> list[Finding]:
    """A throttle slows or refuses requests beyond the rate, until the window has passed."""
    counter, rate = _test_tenant(bench, "throttle")
    sent = await go_beyond(bench, [counter], rate, "the private_test key")
    refused, slowed = sent.refused, sent.slowed
    if not refused and not slowed:
        says = f"of {sent.size} requests none beyond {rate.limit_requests} was refused or slowed"
        return [bench.fails("LIM-THROTTLE", says, *sent.exchanges[-2:])]
    # Twice the window: a sliding counter weighs the window before, and a queue takes time to empty.
    again_ns = sent.last_received_ns + 2 * rate.window_ns + _MARGIN_NS
    again = await counter.send("room", 2, at_ns=again_ns)
    if len(refused_in(again.exchanges)) == again.size:
        if sent.size - len(refused) <= 1:
            raise Inconclusive("refused from the second request on: LIM-IP may block the address")
        says = "refused long after the window had passed: a throttle does not block"
        return [bench.fails("LIM-THROTTLE", says, *refused[:1], *again.exchanges)]
    says = (
        f"of {sent.size} requests {len(refused)} were refused and {len(slowed)} slowed; once the "
        "window had passed, requests were answered again"
    )
    found = [bench.passes("LIM-THROTTLE", says, *(refused + slowed)[:2], *again.exchanges)]
    if slowed and not refused:
        # A refusal may mean a wait above the bound; the checks of the rows decide that.
        found.append(bench.reads("LIM-THROTTLE", "limits.throttle", "delay"))
    return found


@_probe(
    "limits.block",
    "LIM-BLOCK",
    accepts="from the first request beyond the rate, everything is refused until the block ends",
    roles=("public", "public"),
    requests=160,
    requests_most=1_060,
    takes_ns=61 * SECOND_NS,
)
async def block(bench: Bench) -> list[Finding]:
    """Once the rate is exceeded, requests are blocked for the time the row states, no longer."""
    rule, rate = rate_of(bench, "LIM-PUBLIC")
    played = await _play_twins(bench, rate, "", None, is_rested=False)
    before: list[Played] = []
    measured = await bench.aside(lambda: _twins_measured(bench, rule, played, before))
    if measured is None or measured.fault is not None or _alike_blocks(measured):
        # The keys may be warm from an earlier run, or a window's edge may hide the block's end:
        # let them rest, and measure again.
        await rest(bench, rate, is_warm=any(each.is_warm for each in played))
        border_ns = await border_of(bench, rate)
        before, played = played, await _play_twins(bench, rate, " again", border_ns, is_rested=True)
        measured = await bench.aside(lambda: _twins_measured(bench, rule, played, before))
    if measured is None:
        raise Inconclusive(
            "not decided: the key is refused before it has reached its rate, so other keys seem to "
            "count in its counter (D-AND-COUNTER each); add sources"
        )
    shown = evidence(played)
    if not measured.refused and measured.fault is None:
        raise Inconclusive(
            "not decided: the requests came too slowly to exceed the rate; run closer to the server"
        )
    if measured.fault is not None and is_counted_each(bench):
        raise Inconclusive(
            "not decided: each address has its own counter, and other requests use these addresses "
            "too; see LIM-PUBLIC"
        )
    if measured.fault is not None:
        if not measured.refused:
            check_counted(exchanges_of(played), "the public keys")
        return [bench.fails("LIM-BLOCK", measured.fault, *shown)]
    check_alike(bench, "LIM-BLOCK's rule", measured)
    alike = _alike_blocks(measured)
    if alike or not measured.families:
        seen = measured.summary
        if alike:
            seen = f"{alternatives(alike)} would have looked the same"
            seen += f" (resolution {measured.resolution})"
        raise Inconclusive(
            f"not decided: {seen}; run closer to the server or with less load, or rerun"
        )
    says = measured.summary + _lasted(played[0].counters[0].exchanges())
    return [
        bench.passes("LIM-BLOCK", says, *shown),
        *readings_of(bench, "LIM-BLOCK", rule, measured),
    ]


def _lasted(exchanges: list[Exchange]) -> str:
    """Return words on how long a block was seen to last, empty where its end was not seen.

    Once it is over, requests that exceed the rate are refused again.
    """
    refused = refused_in(exchanges)
    first = min(refused, key=lambda one: one.sent_ns, default=None)
    if first is None:
        return ""
    odd = odd_statuses(exchanges)
    after = [
        one.sent_ns
        for one in exchanges
        if one.sent_ns > first.received_ns
        and not (one.refused or one.status in odd or is_of_a_front(one.status))
    ]
    if not after:
        return ""
    last_ns = max(one.received_ns for one in refused if one.sent_ns < min(after))
    return (
        f"; still refused {(last_ns - first.sent_ns) / SECOND_NS:.2f} s after the block began "
        f"and answered again after {(min(after) - first.sent_ns) / SECOND_NS:.2f} s"
    )


def _alike_blocks(measured: Measured) -> list[str]:
    """Return the blocks of another length that would have looked the same."""
    return [name for name in measured.unseen if name.startswith("a block")]


async def _play_twins(
    bench: Bench, rate: Rate, mark: str, border_ns: int | None, *, is_rested: bool
) -> list[Played]:
    """Exceed the rate with two keys: one asks inside the block, the other stays silent.

    border_ns: about when a fixed window begins; the block then lies across that instant.
    """
    plays = []
    for place, name in enumerate(("probing", "silent")):
        key, sources = bench.key("public", place + 1), spare_sources(bench, 1, after=place + 2)
        counter = counter_of(bench, f"{name}{mark}", "LIM-PUBLIC", key, sources=sources)
        is_silent = name == "silent"
        if border_ns is None:
            plays.append(play_block(counter, rate, silent=is_silent, is_rested=is_rested))
        else:
            plays.append(play_borders(counter, rate, border_ns, silent=is_silent))
    return await play_together(bench, rate, plays)


def _twins_measured(
    bench: Bench, rule: Rule, played: list[Played], before: list[Played]
) -> Measured | None:
    """Return what the twins show, None if even their first requests were refused."""
    histories = histories_of(played)
    if any(each.is_warm for each in played):
        return None
    if any(one.outcome == "refused" for each in histories for one in each[0]):
        return None
    measured, _, _ = measured_row(bench, rule, played, before)
    return measured


@_probe(
    "limits.status",
    "ERR-429",
    accepts="429 for every request that is refused beyond the rate",
    roles=("private_test",),
    requests=140,
    requests_most=300,
)
async def status(bench: Bench) -> list[Finding]:
    """A rate-limited request gets 429, and its headers say when to retry."""
    counter, rate = _test_tenant(bench, "status")
    # More than a delaying throttle can hold back within its bound: two and a half windows' worth.
    size = rate.limit_requests * 5 // 2
    sent = await go_beyond(bench, [counter], rate, "the private_test key", size, until_lost=True)
    if not sent.refused:
        instead = await _said_instead(bench, counter)
        if instead:
            says = (
                f"beyond the rate the answer must be 429, got {instead[0].status}; another key was "
                "answered meanwhile"
            )
            return [bench.fails("ERR-429", says, *instead)]
    found = _judge_status(bench, sent)
    refused = [one for one in sent.exchanges if one.refused]
    if not refused or any(one.verdict is Verdict.FAIL for one in found):
        return found
    return [*found, *await _headers(bench, counter, refused)]


@_probe(
    "limits.status-blocked",
    "ERR-429",
    accepts="429 for every request that a block refuses",
    roles=("public",),
    requests=80,
    requests_most=280,
)
async def status_blocked(bench: Bench) -> list[Finding]:
    """A request that a block refuses gets 429 as well, the first one and those after it."""
    _, rate = rate_of(bench, "LIM-PUBLIC")
    counter = counter_of(bench, "blocked", "LIM-PUBLIC", bench.key("public"))
    sent = await go_beyond(bench, [counter], rate, "the public key")
    later = await counter.send("inside the block", 3)
    sent.exchanges += later.exchanges
    return _judge_status(bench, sent)


async def _said_instead(bench: Bench, counter: Counter) -> list[Exchange]:
    """Return the answers, such as 503, that the limiter gives in place of 429.

    An overloaded front end gives such answers too. But only a limiter gives them to one key
    repeatedly while it answers another key each time in between.
    """
    roles = ("private_no_permission", "private_prod")
    spare = [label for role in roles for label in bench.target.labels(role)]
    if not spare:
        return []
    other = counter_of(bench, "another key", "LIM-TEST-TENANT", spare[0])
    shown = await _in_turns(
        counter,
        other,
        lambda one: one.status is not None and is_of_a_front(one.status),
        lambda one: not is_of_a_front(one.status),
    )
    said = shown[::2]
    return said if len({one.status for one in said}) == 1 else []


def _judge_status(bench: Bench, sent: Beyond) -> list[Finding]:
    """Judge whether everything beyond the rate is refused with 429; all requests are alike."""
    odd = odd_statuses(sent.exchanges)
    # A front end's own answer may come from an overloaded server, so it is not taken for a refusal.
    answered = [one for one in sent.exchanges if not is_of_a_front(one.status)]
    calm = min(answered, key=lambda one: one.number).status or 0 if answered else 0
    other = [one for one in answered if calm < 400 <= (one.status or 0)]
    wrong = [one for one in sent.exchanges if one.status in odd]
    wrong += [one for one in other if not one.refused]
    if wrong:
        says = f"beyond the rate the answer must be 429, got {wrong[0].status}"
        return [bench.fails("ERR-429", says, *wrong[:2])]
    refused = [one for one in sent.exchanges if one.refused]
    if refused:
        says = f"{len(refused)} of {sent.size} were refused, all with 429"
        return [bench.passes("ERR-429", says, *refused[:2])]
    if sent.slowed:
        says = "requests beyond the rate are slowed and none is refused"
        return [bench.finding("ERR-429", Verdict.NOT_APPLICABLE, says)]
    raise Inconclusive(f"none of {sent.size} requests was refused: no rate limit was reached")


async def _headers(bench: Bench, counter: Counter, refused: list[Exchange]) -> list[Finding]:
    """Report which headers a refusal has (D-429-HEADERS), and whether they are true."""
    texts = [one.header("Retry-After") for one in refused]
    fields = [one.header("RateLimit") for one in refused]
    found = [
        bench.reads("ERR-429", f"http.{name}", None not in given, refused[0])
        for name, given in (("retry_after", texts), ("rate_limit_fields", fields))
    ]
    for text, field in zip(texts, fields, strict=True):
        if text is not None and (not _WHOLE.fullmatch(text) or int(text) < 1):
            says = f"Retry-After = {text!r} must be a whole number of seconds, at least 1"
            return [*found, bench.informs("ERR-429", says, refused[0])]
        if field is not None and "r=0" not in re.split("[;,] *", field):
            says = f"RateLimit = {field!r} on a refusal: the remaining quota must be r=0"
            return [*found, bench.informs("ERR-429", says, refused[0])]
    last = max(refused, key=lambda one: one.received_ns)
    told = last.header("Retry-After")
    if told is not None:
        wait_ns = int(told) * SECOND_NS
        longest_ns = 2 * bench.session.patience_ns  # a sliding counter weighs the window before
        if wait_ns > longest_ns:
            says = f"Retry-After = {wait_ns // SECOND_NS} s is longer than any row may refuse"
            return [*found, bench.informs("ERR-429", f"{says} ({seconds(longest_ns)})", last)]
        again = await counter.send("again", 1, at_ns=last.received_ns + wait_ns + _MARGIN_NS)
        if again.exchanges[0].refused:
            says = f"still refused after the Retry-After of {told} s had passed"
            found.append(bench.informs("ERR-429", says, last, again.exchanges[0]))
    return found
