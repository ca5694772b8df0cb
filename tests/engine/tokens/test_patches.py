"""Merge patches of tokens (D-PATCH, D-CVC)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import orjson
import pytest

from engine.messages import Json, Problem
from engine.model import Token
from engine.tokens.expressions import index_message
from engine.tokens.rules import Rules
from engine.tokens.shapes import walk
from engine.tokens.stored import (
    apply_change,
    create_tokens,
    cvc_purpose,
    dedup_hashes,
    validate_patch,
)
from engine.tokens.types import Decrypt, validate
from engine.vault import TenantKeys

MakeRules = Callable[..., Rules]


NUMBER = "4242424242424242"
OTHER = "5555555555554444"


@pytest.fixture
def card(keys: TenantKeys, rules: Rules) -> Token:
    return made(
        {
            "type": "card",
            "data": {"number": NUMBER, "expiration_month": 12, "cvc": "123"},
            "metadata": {"a": "1", "b": "2"},
            "search_indexes": ["{{ data.number }}"],
        },
        keys,
        rules,
    )


@pytest.fixture
def words(keys: TenantKeys, rules: Rules) -> Token:
    return made({"type": "token", "data": "words"}, keys, rules)


def made(body: Json, keys: TenantKeys, rules: Rules) -> Token:
    new_tokens = validate(walk(body, rules), rules)
    (token,) = create_tokens(
        new_tokens,
        dedup_hashes(new_tokens, keys, rules),
        keys,
        lambda: "00000000-0000-4000-8000-000000000001",
        tenant_id="t",
        created_by="a",
        created_at_ns=1,
        cvc_until_ns=100,
    )
    return token


def opened(token: Token, keys: TenantKeys) -> Json:
    value: Json = orjson.loads(keys.open(token.container, token.id, token.sealed_data, "data"))
    return value


def cvc_of(token: Token, keys: TenantKeys) -> bytes:
    assert token.sealed_cvc is not None
    return keys.open(token.container, token.id, token.sealed_cvc, cvc_purpose(token.cvc_until_ns))


def patched(
    token: Token,
    body: Json,
    keys: TenantKeys,
    rules: Rules,
    cvc: str | None = "123",
    decrypt: Decrypt | None = None,
) -> Token:
    cvc = cvc if token.sealed_cvc is not None else None
    change = validate_patch(body, token, opened(token, keys), cvc, rules, decrypt=decrypt)
    return apply_change(token, change, keys, rules, cvc_until_ns=999)


def errors_of(
    token: Token, body: Json, keys: TenantKeys, rules: Rules, decrypt: Decrypt | None = None
) -> Mapping[str, list[str]]:
    with pytest.raises(Problem) as caught:
        patched(token, body, keys, rules, decrypt=decrypt)
    assert caught.value.status == 400
    return caught.value.errors or {}


def test_an_empty_patch_changes_nothing(
    card: Token, words: Token, keys: TenantKeys, rules: Rules
) -> None:
    assert patched(card, {}, keys, rules) == card
    assert patched(words, {"type": "token"}, keys, rules) == words


def test_metadata_is_merged_and_null_removes(card: Token, keys: TenantKeys, rules: Rules) -> None:
    assert patched(card, {"metadata": {"b": None, "c": "3"}}, keys, rules).metadata == {
        "a": "1",
        "c": "3",
    }
    assert patched(card, {"metadata": None}, keys, rules).metadata is None
    assert card.metadata == {"a": "1", "b": "2"}
    errors = errors_of(card, {"metadata": {"c": 5, "d": {"e": "f"}}}, keys, rules)
    assert list(errors) == ["/metadata/c", "/metadata/d"]
    assert list(errors_of(card, {"metadata": "x"}, keys, rules)) == ["/metadata"]


def test_d_cvc_a_patched_cvc_starts_its_retention_anew(
    card: Token, keys: TenantKeys, rules: Rules
) -> None:
    changed = patched(card, {"data": {"cvc": "0456"}}, keys, rules)
    assert cvc_of(changed, keys) == b"0456"
    assert changed.cvc_until_ns == 999
    assert opened(changed, keys) == opened(card, keys)
    assert (changed.mask, changed.fingerprint) == (card.mask, card.fingerprint)
    same = patched(card, {"data": {"cvc": "123"}}, keys, rules)
    assert same.cvc_until_ns == 999


def test_d_cvc_another_patch_keeps_its_deadline(
    card: Token, keys: TenantKeys, rules: Rules
) -> None:
    changed = patched(card, {"data": {"expiration_month": 1}}, keys, rules)
    assert changed.cvc_until_ns == 100
    assert cvc_of(changed, keys) == b"123"
    gone = patched(card, {"data": {"cvc": None}}, keys, rules)
    assert (gone.sealed_cvc, gone.cvc_until_ns) == (None, None)
    # An expired cvc is not brought back by a patch of something else.
    late = patched(card, {"data": {"expiration_month": 1}}, keys, rules, cvc=None)
    assert (late.sealed_cvc, late.cvc_until_ns) == (None, None)


def test_card_data_is_merged_and_judged_as_a_whole(
    card: Token, keys: TenantKeys, rules: Rules
) -> None:
    changed = patched(card, {"data": {"number": OTHER, "expiration_month": None}}, keys, rules)
    assert opened(changed, keys) == {"number": OTHER}
    assert changed.mask == {"number": "XXXXXXXXXXXX4444"}
    assert changed.fingerprint != card.fingerprint
    assert changed.dedup_hash != card.dedup_hash
    assert changed.index_hashes == (keys.index(b"data.number\0" + OTHER.encode()),)
    errors = errors_of(card, {"data": {"number": None, "cvc": "1", "x": 1}}, keys, rules)
    assert list(errors) == ["/data/x", "/data/number", "/data/cvc"]
    for wrong in ({"data": None}, {"data": "x"}, {"data": [1]}):
        assert list(errors_of(card, wrong, keys, rules)) == ["/data"]


def test_data_of_a_token_is_replaced(
    words: Token, keys: TenantKeys, rules: Rules, make_rules: MakeRules
) -> None:
    changed = patched(words, {"data": "other"}, keys, rules)
    assert opened(changed, keys) == "other"
    assert changed.dedup_hash != words.dedup_hash
    assert list(errors_of(words, {"data": {"a": "b"}}, keys, rules)) == ["/data"]
    lenient = make_rules(token_data="any")
    thing = made({"type": "token", "data": {"a": {"b": 1, "c": 2}, "d": 3}}, keys, lenient)
    changed = patched(
        thing, {"data": {"a": {"b": None, "e": {"f": None}}, "d": [1]}}, keys, lenient
    )
    assert opened(changed, keys) == {"a": {"c": 2, "e": {}}, "d": [1]}


def test_the_merge_is_rfc_7396s(keys: TenantKeys, make_rules: MakeRules) -> None:
    rules = make_rules(token_data="any")
    cases = [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ]
    for before, patch, after in cases:
        token = made({"type": "token", "data": before}, keys, rules)
        assert opened(patched(token, {"data": patch}, keys, rules), keys) == after


def test_encrypted_stands_for_data(card: Token, keys: TenantKeys, rules: Rules) -> None:
    decrypt = {"jwe": b'{"cvc": "999"}'}.__getitem__
    changed = patched(card, {"encrypted": "jwe"}, keys, rules, decrypt=decrypt)
    assert cvc_of(changed, keys) == b"999"
    both = {"encrypted": "jwe", "data": {}}
    assert list(errors_of(card, both, keys, rules, decrypt=decrypt)) == [""]
    assert list(errors_of(card, {"encrypted": 5}, keys, rules, decrypt=decrypt)) == ["/encrypted"]


def test_expression_and_indexes_are_replaced_or_removed(
    card: Token, words: Token, keys: TenantKeys, rules: Rules
) -> None:
    changed = patched(card, {"fingerprint_expression": "{{ data }}"}, keys, rules)
    assert changed.fingerprint_expression == "{{ data }}"
    assert changed.fingerprint != card.fingerprint
    back = patched(changed, {"fingerprint_expression": None}, keys, rules)
    assert (back.fingerprint_expression, back.fingerprint) == (
        "{{ data.number }}",
        card.fingerprint,
    )
    shown = patched(words, {"fingerprint_expression": "{{ data }}"}, keys, rules)
    assert shown.fingerprint is not None
    assert patched(shown, {"fingerprint_expression": None}, keys, rules) == words
    bare = patched(card, {"search_indexes": None}, keys, rules)
    assert (bare.search_indexes, bare.index_hashes) == (None, ())
    month = patched(card, {"search_indexes": ["{{ data.expiration_month }}"]}, keys, rules)
    assert month.index_hashes == (keys.index(b"data.expiration_month\x0012"),)
    assert list(errors_of(card, {"search_indexes": ["x"]}, keys, rules)) == ["/search_indexes/0"]
    wrong = {"fingerprint_expression": "{{ data.cvc }}"}
    assert list(errors_of(card, wrong, keys, rules)) == ["/fingerprint_expression"]


def test_d_container_a_patch_may_move_a_token(card: Token, keys: TenantKeys, rules: Rules) -> None:
    moved = patched(card, {"containers": ["/PCI/low/"]}, keys, rules)
    assert moved.container == "/pci/low/"
    assert opened(moved, keys) == opened(card, keys)
    assert cvc_of(moved, keys) == b"123"
    assert moved.cvc_until_ns == 100
    assert moved.dedup_hash != card.dedup_hash
    back = patched(moved, {"containers": None}, keys, rules)
    assert (back.container, back.dedup_hash) == (card.container, card.dedup_hash)
    assert list(errors_of(card, {"containers": "/a/"}, keys, rules)) == ["/containers"]


def test_everything_else_is_named_at_once(
    card: Token, keys: TenantKeys, rules: Rules, make_rules: MakeRules
) -> None:
    body = {"type": "token", "id": "x", "mask": {}, "metadata": {"a": 1}, "data": {"cvc": "1"}}
    assert list(errors_of(card, body, keys, rules)) == [
        "/id", "/mask", "/type", "/metadata/a", "/data/cvc",
    ]  # fmt: skip
    for creating in ("token_intent_id", "deduplicate_token"):
        assert list(errors_of(card, {creating: True}, keys, rules)) == [f"/{creating}"]
    assert patched(card, {"id": "x"}, keys, make_rules(unknown_field="ignore")) == card
    no_objects: list[Json] = [None, [], "x"]
    for no_object in no_objects:
        with pytest.raises(Problem, match="merge patch"):
            patched(card, no_object, keys, rules)


def test_d_card_a_cvc_that_is_gone_is_not_asked_for_again(
    keys: TenantKeys, make_rules: MakeRules
) -> None:
    """D-CARD all required, QUO-CVC: a card stays changeable when its cvc has had its time."""
    rules = make_rules(card_all_required=True)
    whole = {"number": NUMBER, "expiration_month": 12, "expiration_year": 2030, "cvc": "123"}
    card = made({"type": "card", "data": whole}, keys, rules)
    data = opened(card, keys)
    change = validate_patch({"data": {"expiration_month": 1}}, card, data, None, rules)
    later = apply_change(card, change, keys, rules, cvc_until_ns=200)
    assert opened(later, keys) == {
        "number": NUMBER,
        "expiration_month": 1,
        "expiration_year": 2030,
    }
    for gone in ({"cvc": None}, {"expiration_year": None}):
        with pytest.raises(Problem):
            validate_patch({"data": gone}, card, data, "123", rules)
    with pytest.raises(Problem):
        validate_patch({"data": {"expiration_year": None}}, card, data, None, rules)


def test_d_cvc_derive_what_was_derived_from_a_cvc_goes_with_it(
    keys: TenantKeys, make_rules: MakeRules
) -> None:
    """D-CVC-DERIVE allow, D-CVC: a card stays changeable, and then says nothing of its old cvc."""
    rules = make_rules(cvc_derive="allow")
    body = {
        "type": "card",
        "data": {"number": NUMBER, "cvc": "123"},
        "search_indexes": ["{{ data.cvc }}", "{{ data.number }}"],
        "fingerprint_expression": "{{ data.cvc }}",
    }
    card = made(body, keys, rules)
    with_cvc = patched(card, {"metadata": {"a": "b"}}, keys, rules)
    assert with_cvc.fingerprint_expression == "{{ data.cvc }}"
    assert len(with_cvc.index_hashes) == 2
    change = validate_patch({"metadata": {"a": "b"}}, card, opened(card, keys), None, rules)
    later = apply_change(card, change, keys, rules, cvc_until_ns=999)
    assert later.fingerprint_expression == "{{ data.number }}"
    assert later.search_indexes == ("{{ data.number }}",)
    assert later.index_hashes == card.index_hashes[1:]
    assert later.fingerprint != card.fingerprint
    change = validate_patch({"data": {"cvc": "456"}}, card, opened(card, keys), None, rules)
    renewed = apply_change(card, change, keys, rules, cvc_until_ns=999)
    assert renewed.fingerprint_expression == "{{ data.cvc }}"
    assert renewed.search_indexes == card.search_indexes
    assert renewed.index_hashes[0] == keys.index(index_message(("cvc",), "456"))
    with pytest.raises(Problem):  # the caller says so, and has to say what becomes of them
        validate_patch({"data": {"cvc": None}}, card, opened(card, keys), "123", rules)


def test_d_patch_a_field_named_cvc_of_other_data_is_like_any_other(
    keys: TenantKeys, make_rules: MakeRules
) -> None:
    """D-CVC is about cards: nothing else loses what is derived from a field of that name."""
    rules = make_rules(token_data="any")
    path = "{{ data.cvc }}"
    body = {
        "type": "token",
        "data": {"cvc": "x"},
        "search_indexes": [path],
        "fingerprint_expression": path,
    }
    token = made(body, keys, rules)
    changed = patched(token, {"metadata": {"a": "b"}}, keys, rules)
    assert (changed.search_indexes, changed.fingerprint_expression) == ((path,), path)
    assert (changed.index_hashes, changed.fingerprint) == (token.index_hashes, token.fingerprint)
