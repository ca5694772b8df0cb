"""Seed 5 and 8.1: whom limits are for: kinds of application, legacy keys, and which requests."""

from __future__ import annotations

import dataclasses
import re
from typing import Final

from conformance.probes.any_operation import AnyOperation
from conformance.probes.bursts import SECOND_NS, Burst, Counter
from conformance.probes.excess import (
    Beyond,
    check_accepted,
    go_beyond,
    refused_in,
    regained,
)
from conformance.probes.rows import ROWS, counter_of, rate_of
from conformance.probes.sightings import is_of_a_front
from conformance.runner.bench import Bench
from conformance.runner.registry import Inconclusive, check
from conformance.runner.verdicts import Finding, Verdict
from conformance.wire.exchange import Ask, KeyLabel
from engine.messages import Json

__all__: list[str] = []

_PAUSE_NS: Final = 11 * SECOND_NS
_CLASSES: Final = ("LIM-PUBLIC", "LIM-MANAGEMENT", "LIM-LEGACY")
_MARKED: Final = re.compile("_prod_|_test_")


@check(
    "limits.classes",
    "AUTH-KINDS",
    "AUTH-LEGACY",
    "LIM-PUBLIC",
    "LIM-MANAGEMENT",
    "LIM-LEGACY",
    accepts="public, management and legacy keys meet a rate of their own, a private key none of it",
    roles=("private_prod", "public", "management", "legacy"),
    requests=640,
    requests_most=2_440,
    takes_ns=2 * SECOND_NS,
    is_probe=True,
    beside=("LIM-PUBLIC", "LIM-MANAGEMENT", "LIM-LEGACY"),
)
async def classes(bench: Bench) -> list[Finding]:
    """Each kind of application, and legacy keys, are limited as a class of their own."""
    met: dict[str, Beyond] = {}
    told: list[Finding] = []
    for role, rule_id, operation in (
        ("public", "LIM-PUBLIC", "tokenize"),
        ("management", "LIM-MANAGEMENT", "get_tenant"),
        ("legacy", "LIM-LEGACY", "tokenize"),
    ):
        _, rate = rate_of(bench, rule_id)
        size = rate.limit_requests * 5 // 4 + 1 + regained(bench, rate)
        counter = counter_of(bench, role, operation, role, rule_id)
        any_of = AnyOperation(bench, rule_id, bench.key(role), counter)
        await any_of.look()
        # What goes out is less than the resource's own row allows, and so is what follows.
        met[role] = await go_beyond(
            bench, [counter], rate, f"the {role} key", size, pause_ns=_PAUSE_NS
        )
        told += await any_of.findings(met[role])
    size = rate_of(bench, "LIM-LEGACY")[1].limit_requests * 5 // 4
    counter = counter_of(bench, "private", "list_logs", "private_prod", "LIM-PRIVATE")
    private = await counter.send("private", size)
    check_accepted(private, "the private_prod key")
    refused = refused_in(private.exchanges)
    free = not refused
    fewest = min(rate_of(bench, rule_id)[1].limit_requests for rule_id in _CLASSES)
    if refused and private.size - len(refused) < fewest // 2:
        raise Inconclusive("requests at once are refused long before any class's rate: spaced ones")
    found = []
    missing = [role for role in ("public", "management") if not met[role].refused]
    if missing or not free:
        says = (
            f"a {' and a '.join(missing)} key met no limit of its class"
            if missing
            else f"a private key is refused within {size} requests: that is another class's limit"
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
        says = f"public and management keys are refused at their rates, a private one not at {size}"
        found.append(bench.passes("AUTH-KINDS", says, *shown))
    return [*found, *told, *_legacy(bench, met["legacy"], private, size)]


def _legacy(bench: Bench, sent: Beyond, private: Burst, size: int) -> list[Finding]:
    label = bench.key("legacy")
    if _MARKED.search(bench.target.key_labels[label].value):
        raise Inconclusive(f"the text of {label} holds _prod_ or _test_: that is no legacy key")
    beyond = sent.refused + sent.slowed
    if not beyond:
        says = f"a key whose text holds neither marker met no limit in {sent.size} requests"
        return [bench.fails("AUTH-LEGACY", says, *sent.exchanges[-1:])]
    if refused_in(private.exchanges):
        says = f"a key whose text holds a marker is refused within {size} requests, as legacy ones"
        return [bench.fails("AUTH-LEGACY", says, *refused_in(private.exchanges)[:1])]
    says = "a key without _prod_ and _test_ in its text is limited as legacy, one with it is not"
    return [bench.passes("AUTH-LEGACY", says, beyond[0])]


@check(
    "limits.any",
    "LIM-TEST-TENANT",
    accepts="while its rate is exceeded a test tenant's key is refused whatever it asks for",
    roles=("private_test",),
    requests=140,
    requests_most=430,
    takes_ns=2 * SECOND_NS,
    is_probe=True,
    is_extra=True,
    beside=("LIM-TEST-TENANT",),
)
async def any_operation(bench: Bench) -> list[Finding]:
    """A test tenant's row counts and refuses every method and resource."""
    _, rate = rate_of(bench, "LIM-TEST-TENANT")
    counter = counter_of(bench, "any", "tokenize", "private_test", "LIM-TEST-TENANT")
    any_of = AnyOperation(bench, "LIM-TEST-TENANT", bench.key("private_test"), counter)
    await any_of.look()
    return await any_of.findings(await go_beyond(bench, [counter], rate, "the private_test key"))


@check(
    "limits.counted",
    "LIM-TEST-TENANT",
    accepts="whether failed requests count is a reading (D-COUNTED)",
    roles=("private_test",),
    requests=80,
    requests_most=280,
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
    sent = await go_beyond(bench, [counter], rate, "the private_test key")
    answered = [one for one in sent.exchanges if not is_of_a_front(one.status)]
    statuses = {one.status for one in answered if not one.refused}
    if not all(status is not None and 400 <= status < 500 for status in statuses):
        raise Inconclusive("an invalid request is not answered 4xx: nothing says what counts")
    seen = "every" if sent.refused or sent.slowed else "success"
    return [
        bench.finding(
            "LIM-TEST-TENANT",
            Verdict.PASS,
            f"reading: limits.counted_statuses = {seen!r}",
            *sent.exchanges[-1:],
            reading=("limits.counted_statuses", seen),
        )
    ]


@check(
    "limits.legacy-class",
    "LIM-LEGACY",
    accepts="whether a legacy key meets the rate of its kind as well is a reading (D-LEGACY-CLASS)",
    roles=("management",),
    requests=90,
    requests_most=260,
    takes_ns=2 * SECOND_NS,
    is_probe=True,
)
async def legacy_class(bench: Bench) -> list[Finding]:
    """Whether a legacy key of a public application is limited as any public key, too."""
    _, public = rate_of(bench, "LIM-PUBLIC")
    _, legacy = rate_of(bench, "LIM-LEGACY")
    labels = await _legacy_keys(bench)
    if not labels or legacy.limit_requests < public.limit_requests * 2:
        return [_untold(bench, "no legacy key of a public application can be made here")]
    askers = [
        ROWS["LIM-PUBLIC"].asker(bench, "tokenize", key=label, sources=bench.sources[:1])
        for label in labels
    ]
    counters = [Counter(bench, label, asker) for label, asker in zip(labels, askers, strict=True)]
    try:
        sent = await go_beyond(bench, counters, public, "a legacy key of a public application")
    except Inconclusive as why:
        return [_untold(bench, str(why))]
    seen = "added" if sent.refused or sent.slowed else "exclusive"
    says = f"reading: limits.legacy_class = {seen!r}"
    reading = ("limits.legacy_class", seen)
    shown = sent.exchanges[-1:]
    return [bench.finding("LIM-LEGACY", Verdict.PASS, says, *shown, reading=reading)]


def _untold(bench: Bench, why: str) -> Finding:
    says = f"whether it meets its kind's rate as well is not told: {why}"
    return bench.finding("LIM-LEGACY", Verdict.INFORMATIONAL, says)


async def _legacy_keys(bench: Bench) -> list[KeyLabel]:
    """Make a public application with two legacy keys; returns none where that is not offered."""
    lane = bench.lane("making", key=bench.key("management"))
    body: Json = {
        "name": "conformance legacy class",
        "kind": "public",
        "grants": [{"container": "/", "permissions": ["token:create"]}],
    }
    method, path, _ = bench.shaped("create_application")
    made = await lane.ask(method, path, body)
    labels: list[KeyLabel] = []
    try:
        method, path, _ = bench.shaped("create_application_key", {"id": made.json["id"]})
        for place in (1, 2):
            text = (await lane.ask(method, path, {"legacy": True})).json["key"]
            if isinstance(text, str) and not _MARKED.search(text):
                labels.append(f"made.legacy-{place}")
                bench.learn_key(labels[-1], text)
    except (ValueError, LookupError, TypeError):
        return []
    return labels if len(labels) == 2 else []
