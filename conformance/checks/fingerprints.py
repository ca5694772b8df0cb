"""Section 2.1: the fingerprint of a token, and the expression that selects its input."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.runner.answers import record_of, records_of
from conformance.runner.bench import Bench
from conformance.runner.registry import Inconclusive, check
from conformance.runner.verdicts import Finding
from conformance.wire.exchange import Exchange, KeyLabel
from engine.messages import Json


@check(
    "record.expression",
    "REC-FPEXPR",
    accepts="the expression supplied; `{{ data.number }}` for a card without one",
    requests=6,
)
def expression(bench: Bench) -> Iterator[Finding]:
    """`fingerprint_expression` is the expression in force."""
    key = bench.ready_key("private_prod")
    number: Json = "{{ data.number }}"
    for what, body, wanted in (
        ("a card without it", bench.card("none"), number),
        ("a card that supplies it", bench.card("own", fingerprint_expression=number), number),
        ("a token that supplies it", bench.token("t", fingerprint_expression="{{ data }}"), None),
    ):
        exchange = bench.tokenize(body, key)
        found = record_of(exchange).get("fingerprint_expression")
        expected = wanted or "{{ data }}"
        says = f"{what}: `fingerprint_expression` must be {expected}"
        yield bench.rule("REC-FPEXPR", says, exchange, is_so=found == expected)
    yield from _expression_readings(bench, key)


def _expression_readings(bench: Bench, key: KeyLabel) -> Iterator[Finding]:
    """D-FPEXPR-DEFAULT and D-CARD-FPEXPR."""
    bare = bench.tokenize(bench.token("bare"), key)
    record = record_of(bare)
    found = record.get("fingerprint_expression")
    if found is None:
        yield bench.reads("REC-FPEXPR", "tokens.fpexpr_default", "hidden", bare)
    elif found == "{{ data }}":
        yield bench.reads("REC-FPEXPR", "tokens.fpexpr_default", "shown", bare)
    else:
        yield bench.fails("REC-FPEXPR", "a token's default expression must be {{ data }}", bare)
    year: Json = "{{ data.expiration_year }}"
    other = bench.tokenize(bench.card("year", fingerprint_expression=year), key)
    if not other.ok:
        return
    found = record_of(other).get("fingerprint_expression")
    seen = {year: "supplied", "{{ data.number }}": "number"}.get(found)
    if seen is None:
        says = "a card's expression must be the one supplied or {{ data.number }}"
        yield bench.fails("REC-FPEXPR", says, other)
    else:
        yield bench.reads("REC-FPEXPR", "tokens.card_fpexpr", seen, other)


@check(
    "record.fingerprint",
    "REC-FINGERPRINT",
    accepts="equal for equal selected values, different for different ones",
    requests=6,
)
def fingerprint(bench: Bench) -> Iterator[Finding]:
    """A fingerprint depends on the value that the expression selects, and on nothing else."""
    key = bench.ready_key("private_prod")
    one, other = bench.card("printed"), bench.card("printed otherwise")
    later = {**one, "data": {**one["data"], "expiration_year": 2040, "cvc": "111"}}
    cards = bench.tokenize([one, later, other], key)
    yield from _prints(bench, "a card's number", cards)
    whole: dict[str, Json] = {"fingerprint_expression": "{{ data }}"}
    same = bench.token("printed", **whole)
    strings = bench.tokenize(
        [same, {**same, "metadata": {"a": "b"}}, bench.token("printed otherwise", **whole)],
        key,
    )
    yield from _prints(bench, "a token's string", strings)


def _prints(bench: Bench, what: str, exchange: Exchange) -> Iterator[Finding]:
    """Judge three records: the selected values of the first two are equal, the third differs."""
    found = [record.get("fingerprint") for record in records_of(exchange, 3)]
    if not all(isinstance(one, str) and one for one in found):
        yield bench.fails("REC-FINGERPRINT", f"{what}: `fingerprint` must be a string", exchange)
        return
    says = f"{what}: equal values must have equal fingerprints"
    yield bench.rule("REC-FINGERPRINT", says, exchange, is_so=found[0] == found[1])
    says = f"{what}: different values must have different fingerprints"
    yield bench.rule("REC-FINGERPRINT", says, exchange, is_so=found[0] != found[2])


@check(
    "record.value",
    "REC-FINGERPRINT",
    accepts="a fingerprint that does not contain the value",
    requests=3,
)
def not_the_value(bench: Bench) -> Iterator[Finding]:
    """A fingerprint is derived from the value and does not contain it."""
    key = bench.ready_key("private_prod")
    secret = bench.value("derived")
    body: Json = {"type": "token", "data": secret, "fingerprint_expression": "{{ data }}"}
    exchange = bench.tokenize(body, key)
    found = record_of(exchange).get("fingerprint")
    if not isinstance(found, str):
        raise Inconclusive("the record shows no fingerprint")
    says = "`fingerprint` must be derived from the value, without containing it"
    yield bench.rule("REC-FINGERPRINT", says, exchange, is_so=secret not in found)
