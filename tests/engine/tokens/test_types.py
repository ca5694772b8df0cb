"""What a token request object may hold (TOK-ONE-OF … TOK-FPEXPR, TOK-ENCRYPTED, TOK-ATOMIC)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson
import pytest
from rich.pretty import pretty_repr

from engine.errors import VaultError
from engine.messages import Json, Problem
from engine.tokens.rules import Rules
from engine.tokens.shapes import NewToken, walk, walk_one
from engine.tokens.types import validate, validate_intent

MakeRules = Callable[..., Rules]


NUMBER = "4242424242424242"


def new_token_of(body: Json, rules: Rules, **options: Any) -> NewToken:
    return validate(walk(body, rules), rules, **options)[0]


def errors_of(body: Json, rules: Rules, **options: Any) -> Mapping[str, list[str]]:
    with pytest.raises(Problem) as caught:
        validate(walk(body, rules), rules, **options)
    assert caught.value.status == 400
    assert re.fullmatch("(D|TOK|REC)-[A-Z-]+", caught.value.clause or "")
    return caught.value.errors or {}


def token(**fields: Json) -> dict[str, Any]:
    return {"type": "token", "data": "secret words", **fields}


def card(**data: Json) -> dict[str, Any]:
    return {"type": "card", "data": {"number": NUMBER, **data}}


def test_a_leaf_is_a_generic_token_of_its_text(rules: Rules) -> None:
    """TOK-LEAF."""
    new_token = new_token_of(["Ada"], rules)
    assert (new_token.type, new_token.container, new_token.plaintext) == (
        "token",
        "/general/high/",
        b'"Ada"',
    )
    assert (new_token.metadata, new_token.fingerprint_expression, new_token.cvc) == (
        None,
        None,
        None,
    )
    assert new_token.is_leaf


def test_tok_card_data_the_cvc_is_kept_apart(rules: Rules) -> None:
    """TOK-CARD-DATA, D-CVC."""
    new_token = new_token_of(card(cvc="123", expiration_month=12, expiration_year=2030), rules)
    kept = {"number": NUMBER, "expiration_month": 12, "expiration_year": 2030}
    assert orjson.loads(new_token.plaintext) == kept
    assert new_token.cvc == "123"
    assert new_token.mask == {**kept, "number": "XXXXXXXXXXXX4242"}
    assert new_token.fingerprint_expression == "{{ data.number }}"
    assert new_token.selected == b'"4242424242424242"'


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"expiration_year": 1000},
        {"expiration_year": 9999, "expiration_month": 1},
        {"cvc": "0123"},
        {"number": "4222222222222"},
        {"number": "6304000000000000000"},
    ],
)
def test_d_card_what_passes(rules: Rules, data: dict[str, Any]) -> None:
    new_token_of(card(**data), rules)


@pytest.mark.parametrize(
    ("data", "pointer", "said"),
    [
        ({"number": "4242424242424241"}, "number", "must have a valid check digit (Luhn)"),
        ({"number": "42424242424"}, "number", "must be a string of 12 to 19 digits"),
        ({"number": "0" * 20}, "number", "must be a string of 12 to 19 digits"),
        ({"number": "4242 4242 4242 4242"}, "number", "must be a string of 12 to 19 digits"),
        ({"number": "٤٢٤٢٤٢٤٢٤٢٤٢٤٢٤٢"}, "number", "must be a string of 12 to 19 digits"),
        ({"number": 4242424242424242}, "number", "must be a string of 12 to 19 digits"),
        ({"number": None}, "number", "must be a string of 12 to 19 digits"),
        ({"expiration_month": 0}, "expiration_month", "must be an integer from 1 to 12"),
        ({"expiration_month": 13}, "expiration_month", "must be an integer from 1 to 12"),
        ({"expiration_month": True}, "expiration_month", "must be an integer from 1 to 12"),
        ({"expiration_month": "12"}, "expiration_month", "must be an integer from 1 to 12"),
        ({"expiration_month": 1.5}, "expiration_month", "must be an integer from 1 to 12"),
        ({"expiration_year": 999}, "expiration_year", "must be an integer from 1000 to 9999"),
        ({"expiration_year": 10**30}, "expiration_year", "must be an integer from 1000 to 9999"),
        ({"cvc": "12"}, "cvc", "must be a string of 3 or 4 digits"),
        ({"cvc": "12345"}, "cvc", "must be a string of 3 or 4 digits"),
        ({"cvc": "١٢٣"}, "cvc", "must be a string of 3 or 4 digits"),
        ({"cvc": 123}, "cvc", "must be a string of 3 or 4 digits"),
        ({"cvv": "123"}, "cvv", "is an unknown field of card data; did you mean 'cvc'?"),
    ],
)
def test_d_card_what_does_not(rules: Rules, data: dict[str, Any], pointer: str, said: str) -> None:
    assert errors_of([card(**data)], rules) == {f"/0/data/{pointer}": [said]}


def test_d_card_an_integer_may_be_written_with_a_zero_fraction(rules: Rules) -> None:
    new_token = new_token_of(card(expiration_month=12.0), rules)
    assert (new_token.mask or {})["expiration_month"] == 12
    assert b"12.0" not in new_token.plaintext


def test_d_card_other_readings(make_rules: MakeRules) -> None:
    new_token_of(card(number="4242424242424241"), make_rules(card_luhn=False))
    errors = errors_of(card(), make_rules(card_all_required=True))
    assert list(errors) == ["/data/expiration_month", "/data/expiration_year", "/data/cvc"]


@pytest.mark.parametrize("data", [None, "4242424242424242", [], 5, True])
def test_tok_card_data_is_an_object(rules: Rules, data: Json) -> None:
    errors = errors_of({"type": "card", "data": data}, rules)
    assert errors == {"/data": ["must be an object: `data` of a `card` is one"]}
    assert list(errors_of({"type": "card", "data": {}}, rules)) == ["/data/number"]


@pytest.mark.parametrize("data", [None, 5, True, {}, ["x"], 1.5])
def test_tok_token_data_is_a_string(rules: Rules, make_rules: MakeRules, data: Json) -> None:
    """TOK-TOKEN-DATA, D-TOKEN-DATA."""
    body = {"type": "token", "data": data}
    assert errors_of(body, rules) == {"/data": ["must be a string: `data` of a `token` is one"]}
    new_token = new_token_of(body, make_rules(token_data="any"))
    assert orjson.loads(new_token.plaintext) == data


def test_d_type_value_data_of_an_extra_type_is_any_json_as_deep_as_the_body(
    make_rules: MakeRules,
) -> None:
    rules = make_rules(extra_types=("bank",))
    deep: Json = "x"
    for _ in range(64):
        deep = {"k": deep}
    new_token_of({"type": "bank", "data": deep}, rules)
    errors = errors_of({"type": "bank", "data": [deep]}, rules)
    assert errors == {"/data": ["must not be nested deeper than 64 levels"]}


def test_tok_one_of_and_d_one_of(rules: Rules, make_rules: MakeRules) -> None:
    assert errors_of([{"type": "token"}], rules) == {
        "/0": ["must hold one of `data` and `encrypted`"]
    }
    both = token(encrypted="e")
    assert errors_of(both, rules) == {"": ["must hold one of `data` and `encrypted`, not both"]}
    decrypt = {"e": b'"sealed words"'}.__getitem__
    new_token = new_token_of(both, make_rules(one_of="data"), decrypt=decrypt)
    assert new_token.plaintext == b'"secret words"'
    new_token = new_token_of(both, make_rules(one_of="encrypted"), decrypt=decrypt)
    assert new_token.plaintext == b'"sealed words"'


def test_tok_encrypted_is_judged_like_data(rules: Rules) -> None:
    """TOK-ENCRYPTED, D-ENCRYPTED."""
    payloads = {
        "good": json.dumps({"number": NUMBER, "cvc": "123"}).encode(),
        "bad": json.dumps({"number": "4242424242424241", "cvv": "1"}).encode(),
        "twice": b'{"number": "4242424242424242", "number": "4242424242424242"}',
        "noise": b"\xff",
    }

    def decrypt(compact: str) -> bytes:
        if compact not in payloads:
            raise VaultError("it does not open: wrong key or changed bytes")
        return payloads[compact]

    def body(compact: Json) -> Json:
        return [{"type": "card", "encrypted": compact}]

    new_token = new_token_of(body("good"), rules, decrypt=decrypt)
    assert (new_token.cvc, new_token.selected) == ("123", b'"4242424242424242"')
    errors = errors_of(body("bad"), rules, decrypt=decrypt)
    assert errors == {
        "/0/encrypted": [
            "is an unknown field of card data; did you mean 'cvc'?",
            "number must have a valid check digit (Luhn)",
        ]
    }
    for name in ("twice", "noise"):
        errors = errors_of(body(name), rules, decrypt=decrypt)
        assert errors == {"/0/encrypted": ["must hold the JSON of `data`"]}
    errors = errors_of(body("other"), rules, decrypt=decrypt)
    assert errors == {
        "/0/encrypted": ["cannot be opened: it does not open: wrong key or changed bytes"]
    }
    assert list(errors_of(body(5), rules, decrypt=decrypt)) == ["/0/encrypted"]
    assert list(errors_of(body("good"), rules)) == ["/0/encrypted"]


def test_d_unknown_a_field_is_named_or_ignored(rules: Rules, make_rules: MakeRules) -> None:
    body = [token(mettadata={}), {"a": card() | {"x/y": 1}}]
    errors = errors_of(body, rules)
    assert errors["/0/mettadata"] == ["is an unknown field; did you mean 'metadata'?"]
    assert list(errors) == ["/0/mettadata", "/1/a/x~1y"]
    lenient = make_rules(unknown_field="ignore")
    validate(walk(body, lenient), lenient)
    new_token = new_token_of(card(cvv="1"), lenient)
    assert orjson.loads(new_token.plaintext) == {"number": NUMBER}


@pytest.mark.parametrize(
    ("metadata", "pointer"),
    [
        (None, "/metadata"),
        ([], "/metadata"),
        ({"k": 1}, "/metadata/k"),
        ({"k": None}, "/metadata/k"),
        ({"k": {"type": "x"}}, "/metadata/k"),
        ({"k": "v" * 501}, "/metadata/k"),
        ({"k" * 101: "v"}, "/metadata/" + "k" * 101),
        ({str(n): "v" for n in range(51)}, "/metadata"),
    ],
)
def test_tok_metadata_what_does_not_pass(rules: Rules, metadata: Json, pointer: str) -> None:
    assert list(errors_of(token(metadata=metadata), rules)) == [pointer]


def test_d_metadata_bounds_are_in_characters_and_inclusive(rules: Rules) -> None:
    """TOK-METADATA, D-METADATA."""
    metadata = {f"{n:0100}": "😀" * 500 for n in range(50)}
    new_token = new_token_of(token(metadata=metadata), rules)
    assert new_token.metadata == metadata
    assert new_token.metadata is not metadata
    assert new_token_of(token(metadata={}), rules).metadata == {}


@pytest.mark.parametrize(
    ("indexes", "pointer"),
    [
        (None, "/search_indexes"),
        ("{{ data }}", "/search_indexes"),
        (["{{ data }}"] * 11, "/search_indexes"),
        (["{{ data }}", 5], "/search_indexes/1"),
        (["data"], "/search_indexes/0"),
        (["{{ data.last4 }}"], "/search_indexes/0"),
    ],
)
def test_tok_indexes_what_does_not_pass(rules: Rules, indexes: Json, pointer: str) -> None:
    assert list(errors_of(token(search_indexes=indexes), rules)) == [pointer]


def test_d_indexes_an_empty_value_is_refused(rules: Rules, make_rules: MakeRules) -> None:
    body = {"type": "token", "data": "", "search_indexes": ["{{ data }}"]}
    said = "must select a value of `data` that is not empty"
    assert errors_of(body, rules) == {"/search_indexes/0": [said]}
    anything = make_rules(token_data="any")
    several = {
        "type": "token",
        "data": {"a": {}, "b": None, "c": [], "d": 0, "e": False},
        "search_indexes": [f"{{{{ data.{key} }}}}" for key in "abcde"],
    }
    assert list(errors_of(several, anything)) == [f"/search_indexes/{n}" for n in range(3)]


def test_tok_indexes_say_what_is_hashed(rules: Rules) -> None:
    """TOK-INDEXES."""
    new_token = new_token_of(token(search_indexes=["{{ data }}"] * 10), rules)
    assert new_token.index_messages == (b"data\0secret words",) * 10
    body = card(expiration_month=7) | {"search_indexes": ["{{ data.expiration_month }}"]}
    assert new_token_of(body, rules).index_messages == (b"data.expiration_month\x007",)


@pytest.mark.parametrize("expression", [None, 5, "", "data", "{{data}}", "{{ data.x }}", []])
def test_tok_fpexpr_what_does_not_pass(rules: Rules, expression: Json) -> None:
    errors = errors_of(token(fingerprint_expression=expression), rules)
    assert list(errors) == ["/fingerprint_expression"]


def test_d_card_fpexpr_a_supplied_one_wins_or_not(rules: Rules, make_rules: MakeRules) -> None:
    body = card(expiration_year=2030) | {"fingerprint_expression": "{{ data.expiration_year }}"}
    new_token = new_token_of(body, rules)
    assert (new_token.selected, new_token.fingerprint_expression) == (
        b"2030",
        "{{ data.expiration_year }}",
    )
    new_token = new_token_of(body, make_rules(card_fpexpr="number"))
    assert new_token.fingerprint_expression == "{{ data.number }}"
    assert new_token.selected == b'"4242424242424242"'


def test_d_fpexpr_default(rules: Rules, make_rules: MakeRules) -> None:
    assert new_token_of(token(), rules).fingerprint_expression is None
    shown = make_rules(fpexpr_default="shown")
    assert new_token_of(token(), shown).fingerprint_expression == "{{ data }}"
    assert new_token_of(["leaf"], shown).fingerprint_expression == "{{ data }}"
    assert (
        new_token_of(["leaf"], shown).selected
        == new_token_of(["leaf"], rules).selected
        == b'"leaf"'
    )


def test_d_cvc_derive(rules: Rules, make_rules: MakeRules) -> None:
    body = card(cvc="123") | {
        "fingerprint_expression": "{{ data.cvc }}",
        "search_indexes": ["{{ data.number }}", "{{ data.cvc }}"],
    }
    said = ["must not be derived from the cvc"]
    assert errors_of(body, rules)["/fingerprint_expression"] == said
    del body["fingerprint_expression"]
    assert errors_of(body, rules) == {"/search_indexes/1": said}
    body["fingerprint_expression"] = "{{ data.cvc }}"
    assert new_token_of(body, make_rules(cvc_derive="allow")).selected == b'"123"'


def test_d_cvc_derive_the_whole_of_a_card_leaves_the_cvc_out(rules: Rules) -> None:
    body = card(cvc="987", expiration_month=1) | {
        "fingerprint_expression": "{{ data }}",
        "search_indexes": ["{{ data }}"],
    }
    new_token = new_token_of(body, rules)
    assert new_token.selected == b'{"expiration_month":1,"number":"4242424242424242"}'
    assert new_token.index_messages == (b"data\0" + new_token.selected,)


def test_d_dedup_the_flag_overrides_the_tenants_setting(
    rules: Rules, make_rules: MakeRules
) -> None:
    for setting in (False, True):
        assert new_token_of(token(), rules, deduplicate=setting).deduplicate is setting
        assert new_token_of(["x"], rules, deduplicate=setting).deduplicate is setting
        for flag in (False, True):
            body = token(deduplicate_token=flag)
            assert new_token_of(body, rules, deduplicate=setting).deduplicate is flag
    for wrong in (None, "true", 1):
        errors = errors_of(token(deduplicate_token=wrong), rules)
        assert errors == {"/deduplicate_token": ["must be true or false"]}
    named = make_rules(dedup={"flag_name": "once"})
    assert new_token_of(token(once=True), named).deduplicate


def test_tok_atomic_every_fault_of_every_element_is_named_at_once(rules: Rules) -> None:
    body = {
        "fine": "x",
        "a": {"type": "token", "metadata": {"k": 1}, "bogus": 1},
        "b": [card(cvc="1", expiration_month=13) | {"search_indexes": ["data"]}],
    }
    assert list(errors_of(body, rules)) == [
        "/a/bogus",
        "/a/metadata/k",
        "/a",
        "/b/0/search_indexes/0",
        "/b/0/data/expiration_month",
        "/b/0/data/cvc",
    ]


def test_no_message_and_no_repr_quotes_a_value(rules: Rules) -> None:
    canary = "5105105105105100"
    body = [
        {"type": "card", "data": {"number": canary[:-1] + "1", "cvc": canary, "cvv": canary}},
        {"type": "card", "data": canary},
        {"type": "token", "data": [canary], "metadata": {"k": [canary]}, "search_indexes": canary},
        {"type": "token", "encrypted": canary, "fingerprint_expression": canary},
    ]
    assert canary[:-1] not in repr(errors_of(body, rules))
    with pytest.raises(Problem) as caught:
        walk([{"type": canary}, {"type": "card", "containers": [canary]}], rules)
    assert canary not in repr(caught.value.errors)
    walked = walk([canary, {"type": "token", "data": canary}], rules)
    assert canary not in repr(walked.elements)
    new_tokens = validate(walked, rules)
    assert canary not in repr(new_tokens) + pretty_repr(
        new_tokens
    )  # rich shows a traceback's locals


def test_d_intent_stands_instead_of_data_and_is_consumed_once(rules: Rules) -> None:
    intents = {"i1": ("token", "words"), "i2": ("card", {"number": NUMBER})}

    def body(intent_id: Json, kind: str = "token", **more: Json) -> dict[str, Any]:
        return {"type": kind, "token_intent_id": intent_id, **more}

    new_token = new_token_of(body("i1"), rules, open_intent=intents.get)
    assert (new_token.intent_id, new_token.plaintext) == ("i1", b'"words"')
    new_token = new_token_of(body("i2", "card"), rules, open_intent=intents.get)
    assert (new_token.cvc, new_token.mask) == (None, {"number": "XXXXXXXXXXXX4242"})
    unknown = ["must be the id of a token intent that has not expired"]
    for wrong in ("i3", 5, None):
        errors = errors_of(body(wrong), rules, open_intent=intents.get)
        assert errors == {"/token_intent_id": unknown}
    errors = errors_of([body("i1"), body("i1")], rules, open_intent=intents.get)
    assert errors == {"/1/token_intent_id": ["must not be consumed twice"]}
    errors = errors_of(body("i2"), rules, open_intent=intents.get)
    assert errors == {"/token_intent_id": ["must be a token intent of the same type"]}
    errors = errors_of(body("i1", data="x"), rules, open_intent=intents.get)
    assert errors == {"/token_intent_id": ["must stand instead of `data` and `encrypted`"]}


def test_d_intent_body_holds_type_and_data_and_loses_its_cvc(rules: Rules) -> None:
    new_token = validate_intent(walk_one(card(cvc="123"), rules), rules)
    assert new_token.cvc is None
    assert b"123" not in new_token.plaintext
    with pytest.raises(Problem) as caught:
        validate_intent(walk_one(token(metadata={}, deduplicate_token=True), rules), rules)
    assert list(caught.value.errors or {}) == ["/metadata", "/deduplicate_token"]
    with pytest.raises(Problem):
        validate_intent(walk_one({"type": "token", "token_intent_id": "i"}, rules), rules)
