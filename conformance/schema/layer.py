"""Seed 2 and 4 by generated requests: what every service must accept, and what it must refuse.

The *floor* is a closed schema of what must be accepted, and is run with valid data; the *ceiling*
is an open one whose complement must be refused, and is run with invalid data. A strict service and
a lenient one both pass. Real HTTP only; the runner leaves these checks out in virtual time.

A run in which nothing was accepted would look the same as one without a fault, so each shape has
a floor of accepted requests, and below it nothing is said but *inconclusive*.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from conformance.checks._common import informs, is_refused, quota, ready, unsettled
from conformance.runner.bench import Bench
from conformance.runner.registry import Inconclusive, check
from conformance.runner.verdicts import Finding, Verdict
from conformance.schema.answers import FLOOR_CLAUSES, SHAPES, AnswerJudge
from conformance.schema.bridge import Bridge
from conformance.schema.generated import Explored, Search
from conformance.wire.exchange import Exchange, KeyLabel
from engine.http.openapi import document
from engine.http.openapi.schemas import Kind

__all__ = ["CEILING_CLAUSES"]

CEILING_CLAUSES: Final = (
    "TOK-ATOMIC",
    "TOK-ONE-OF",
    "TOK-CARD-DATA",
    "TOK-METADATA",
    "TOK-INDEXES",
    "TOK-FPEXPR",
)
"""Whose complement the generator reaches in every run."""

_MISSING: Final = frozenset({404, 405, 501})
_LEAST: Final = 5
"""Accepted requests of each shape, or refused ones of each clause, below which nothing is said."""
_FLOOR_EXAMPLES: Final = 80
_PLAIN_EXAMPLES: Final = 20
_CEILING_EXAMPLES: Final = 80
_FORM_EXAMPLES: Final = 40
_LINKED_EXAMPLES: Final = 12
_LINKED_PATHS: Final = ("/tokenize", "/tokens", "/tokens/{id}", "/detokenize")


def _trimmed(bench: Bench, kind: Kind, paths: tuple[str, ...]) -> dict[str, Any]:
    """Return a document of some paths only, its links likewise."""
    found = document(kind, bench.profile)
    found["paths"] = {path: item for path, item in found["paths"].items() if path in paths}
    operations = [operation for item in found["paths"].values() for operation in item.values()]
    known = {operation["operationId"] for operation in operations}
    for operation in operations:
        for response in operation["responses"].values():
            links = response.get("links", {})
            response["links"] = {
                name: link for name, link in links.items() if link.get("operationId") in known
            }
    return found


def _plain_only(whole: dict[str, Any]) -> dict[str, Any]:
    """Return the floor of plain objects alone: the generator hits upon hardly any by itself."""
    schemas = whole["components"]["schemas"]
    plain = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 4,
        "propertyNames": {"pattern": "^[A-Za-su-z][A-Za-z0-9_]{0,11}$"},
        "additionalProperties": {"type": "string", "minLength": 1, "maxLength": 40},
    }
    narrowed = {**schemas, "TokenizeBody": plain}
    return {**whole, "components": {**whole["components"], "schemas": narrowed}}


def _of_form(whole: dict[str, Any], form: int) -> dict[str, Any]:
    """Return the floor of one form of a token request object alone.

    What is made to break it has mostly one fault, and the ceiling says whether that one is any
    service's: of the ceiling's own complement nearly everything has several.
    """
    schemas = whole["components"]["schemas"]
    narrowed = {**schemas, "TokenizeBody": schemas["TokenRequest"]["anyOf"][form]}
    return {**whole, "components": {**whole["components"], "schemas": narrowed}}


def _writers(bench: Bench) -> tuple[KeyLabel, ...]:
    return (*bench.keys("private_prod"), *bench.keys("dedup"))


def _begin(bench: Bench) -> tuple[Bridge, AnswerJudge]:
    keys = bench.keys("private_prod")
    for key in keys[:1]:
        ready(bench, key)
    bridge = Bridge(bench)
    limit = min(quota(bench, "Tokenize Limit", key) for key in _writers(bench))
    return bridge, AnswerJudge(bench, bridge, limit)


def _explore(
    bench: Bench,
    searched: dict[str, Any],
    bridge: Bridge,
    judge: AnswerJudge,
    keys: tuple[KeyLabel, ...],
    search: Search,
) -> Explored:
    from conformance.schema.adapter import explore  # noqa: PLC0415 # reason: slow, and not every run's

    return explore(
        searched,
        bridge,
        judge.judge,
        keys=lambda _: keys,
        key_header=bench.target.key_header,
        search=search,
        seed=bench.seed,
    )


def _failures(bench: Bench, bridge: Bridge, explored: Explored) -> Iterator[Finding]:
    """Yield a failure for each clause that the generator saw broken, the smallest body shown."""
    if bridge.stopped is not None:
        raise bridge.stopped
    seen: dict[tuple[str, str], list[Exchange]] = {}
    for clause, says, number in explored.failures:
        exchange = bridge.exchanges.get(number)
        seen.setdefault((clause, says), []).extend([] if exchange is None else [exchange])
    for (clause, says), shown in seen.items():
        if clause in bench.check.clauses:
            yield bench.fails(clause, says, *sorted(shown, key=_body_bytes)[:1])
    if not explored.failures and explored.errors:
        raise Inconclusive(f"the generator stumbled: {explored.errors[0].splitlines()[0]}")


def _body_bytes(exchange: Exchange) -> int:
    return len(exchange.ask.body) if isinstance(exchange.ask.body, bytes) else 0


def _unbroken(
    bench: Bench, explored: Explored, bridge: Bridge, seen: dict[str, tuple[int, str, int]]
) -> Iterator[Finding]:
    """Yield a pass for each clause that was seen often enough and never broken.

    seen: clause → how often, what, and an exchange that shows it.
    """
    failed = {clause for clause, _, _ in explored.failures}
    for clause in bench.check.clauses:
        if clause in failed:
            continue
        count, what, number = seen.get(clause, (0, "requests", 0))
        shown = [bridge.exchanges[number]] if number in bridge.exchanges else []
        if count >= _LEAST:
            yield bench.passes(clause, f"{count} generated {what}, none of them broken", *shown)
        else:
            says = f"only {count} generated {what}; {_LEAST} are needed to say anything"
            yield bench.finding(clause, Verdict.INCONCLUSIVE, says, *shown)


@check(
    "schema.floor",
    *FLOOR_CLAUSES,
    accepts="2xx and a mirrored answer for every valid body, whatever its shape",
    roles=("private_prod",),
    requests=2 * _FLOOR_EXAMPLES,
    load="computing",
)
def floor(bench: Bench) -> Iterator[Finding]:
    """Generated bodies that every service must accept come back mirrored, with sound records."""
    bridge, judge = _begin(bench)
    explored = Explored()
    whole = _trimmed(bench, "floor", ("/tokenize",))
    for searched, phases, examples in (
        (whole, ("examples", "coverage", "fuzzing"), _FLOOR_EXAMPLES),
        (_plain_only(whole), ("fuzzing",), _PLAIN_EXAMPLES),
    ):
        search = Search("positive", phases, examples)
        explored += _explore(bench, searched, bridge, judge, _writers(bench), search)
    yield from _failures(bench, bridge, explored)
    shapes = {
        clause: (
            judge.accepted[clause],
            "bodies of this shape accepted",
            judge.shown.get(clause, 0),
        )
        for clause in SHAPES
    }
    some = max(judge.shown.values(), default=0)
    records = sum(judge.records.values())
    everything = judge.bodies
    rest = {clause: (records, "records", some) for clause in FLOOR_CLAUSES if "REC-" in clause}
    rest["REC-CARD-MASK"] = (judge.records["card"], "cards", some)
    rest["REC-TOKEN-DATA"] = (judge.records["token"], "tokens", some)
    rest["REC-SECRET"] = rest["TOK-LEAF"] = (everything, "bodies", some)
    yield from _unbroken(bench, explored, bridge, {**shapes, **rest})


@check(
    "schema.ceiling",
    *CEILING_CLAUSES,
    accepts="any 4xx for every body that no service may accept",
    roles=("private_prod",),
    requests=6 * _CEILING_EXAMPLES,
    load="computing",
)
def ceiling(bench: Bench) -> Iterator[Finding]:
    """Generated bodies that no service may accept are refused with a 4xx, never with a 5xx."""
    bridge, judge = _begin(bench)
    explored = Explored()
    forms = _trimmed(bench, "floor", ("/tokenize",))
    for searched, examples in (
        (_trimmed(bench, "ceiling", ("/tokenize",)), _CEILING_EXAMPLES),
        *((_of_form(forms, form), _FORM_EXAMPLES) for form in (0, 1)),
    ):
        search = Search("negative", ("coverage", "fuzzing"), examples)
        explored += _explore(bench, searched, bridge, judge, bench.keys("private_prod"), search)
    yield from _failures(bench, bridge, explored)
    seen = {
        clause: (judge.refused[clause], "invalid bodies refused", judge.shown.get(clause, 0))
        for clause in CEILING_CLAUSES
    }
    yield from _unbroken(bench, explored, bridge, seen)


@check(
    "schema.links",
    "REC-ID",
    "REC-EXTRAS",
    "AUTH-HEADER",
    accepts="what was created is found by its identifier, and nothing of it without a key",
    roles=("private_prod", "private_reader"),
    requests=12 * _LINKED_EXAMPLES,
    load="computing",
)
def links(bench: Bench) -> Iterator[Finding]:
    """What tokenize answers leads, link by link, to sound records, and nowhere without a key."""
    bridge, judge = _begin(bench)
    linked = _trimmed(bench, "floor", _LINKED_PATHS)
    search = Search("positive", ("stateful",), _LINKED_EXAMPLES)
    explored = _explore(bench, linked, bridge, judge, bench.keys("private_reader"), search)
    yield from _failures(bench, bridge, explored)
    followed = [one for one in bridge.exchanges.values() if one.ok and _is_followed(bench, one)]
    seen = {
        clause: (len(followed), "linked requests", followed[0].number if followed else 0)
        for clause in ("REC-ID", "REC-EXTRAS")
    }
    gone = [one for one in bridge.exchanges.values() if _is_followed(bench, one) and not one.ok]
    for finding in _unbroken(bench, explored, bridge, seen):
        if finding.clause == "AUTH-HEADER":
            continue
        if not followed and (not gone or any(one.status in _MISSING for one in gone)):
            says = "no token can be asked for by its identifier here: no link was followed"
            yield informs(bench, finding.clause, says, *gone[:1])
        else:
            yield finding
    yield from _keyless(bench, bridge)


def _is_followed(bench: Bench, exchange: Exchange) -> bool:
    ask = exchange.ask
    path = bench.target.spelling.assumed(ask.method, ask.path)
    return path.startswith(("/tokens/", "/detokenize"))


def _keyless(bench: Bench, bridge: Bridge) -> Iterator[Finding]:
    """Ask again, without a key, for one of each kind of request that was accepted."""
    kinds: dict[tuple[str, str], Exchange] = {}
    for exchange in bridge.exchanges.values():
        if exchange.ok:
            path = bench.target.spelling.assumed(exchange.ask.method, exchange.ask.path)
            place = path.partition("?")[0].split("/")[1]
            kinds.setdefault((exchange.ask.method, place), exchange)
    if not kinds:
        yield unsettled(
            bench, "AUTH-HEADER", "nothing was accepted that a key could be left out of"
        )
    for (method, place), accepted in kinds.items():
        ask = accepted.ask
        exchange = bench.ask(ask.method, ask.path, ask.body, headers=ask.headers)
        what = f"{method} /{place} without a key"
        if is_refused(exchange):
            yield bench.passes("AUTH-HEADER", f"{what}: {exchange.status}", accepted, exchange)
        else:
            says = f"{what} must be refused, got {exchange.status}"
            yield bench.fails("AUTH-HEADER", says, accepted, exchange)
