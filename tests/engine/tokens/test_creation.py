"""What is stored, and what is decided about duplicates, beside what an answer shows of it."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from engine.errors import VaultError
from engine.messages import Json, Problem
from engine.model import Token
from engine.tokens.expressions import index_message
from engine.tokens.rules import Rules
from engine.tokens.shapes import NewToken, walk
from engine.tokens.stored import (
    create_tokens,
    cvc_purpose,
    decide,
    dedup_hashes,
    merge_existing,
    record,
    timestamp,
)
from engine.tokens.types import validate
from engine.vault import TenantKeys

MakeRules = Callable[..., Rules]
Made = tuple[list[NewToken], list[Token]]
Make = Callable[..., Made]


TENANT = "11111111-1111-4111-8111-111111111111"
APPLICATION = "33333333-3333-4333-8333-333333333333"
NUMBER = "4242424242424242"
AT_NS = 1_767_225_600_123_456_789


@pytest.fixture
def make(keys: TenantKeys, rules: Rules) -> Make:
    """Create the tokens of a body as a service without deduplication would."""
    count = itertools.count(1)

    def make(
        body: Json, at_ns: int = AT_NS, rules: Rules = rules, deduplicate: bool = False
    ) -> Made:
        new_tokens = validate(walk(body, rules), rules, deduplicate=deduplicate)
        return new_tokens, create_tokens(
            new_tokens,
            dedup_hashes(new_tokens, keys, rules),
            keys,
            lambda: f"00000000-0000-4000-8000-{next(count):012}",
            tenant_id=TENANT,
            created_by=APPLICATION,
            created_at_ns=at_ns,
            cvc_until_ns=at_ns + 5,
        )

    return make


def card(metadata: dict[str, str] | None = None, **data: Json) -> dict[str, Any]:
    body = {"type": "card", "data": {"number": NUMBER, **data}}
    return body if metadata is None else {**body, "metadata": metadata}


def test_a_record_shares_nothing_with_the_stored_token(make: Make, rules: Rules) -> None:
    _, (token,) = make(card({"o": "1"}) | {"search_indexes": ["{{ data.number }}"]})
    shown = record(token, rules)
    for name in ("data", "mask", "metadata"):
        shown[name].clear()
    shown["search_indexes"].clear()
    assert record(token, rules)["metadata"] == {"o": "1"}
    assert record(token, rules)["mask"] == {"number": "XXXXXXXXXXXX4242"}
    assert record(token, rules)["search_indexes"] == ["{{ data.number }}"]


def test_d_card_view(make: Make, rules: Rules, make_rules: MakeRules) -> None:
    _, (token,) = make(card())
    for view, names in (("both", {"data", "mask"}), ("mask", {"mask"}), ("data", {"data"})):
        shown = record(token, make_rules(card_view=view))
        assert names == {"data", "mask"} & set(shown)


def test_d_read_plaintext_only_where_the_profile_says(
    make: Make, rules: Rules, make_rules: MakeRules
) -> None:
    _, (token,) = make(["Ada"])
    shown = record(token, rules, with_container=True, plaintext="Ada")
    assert "data" not in shown
    assert shown["containers"] == ["/general/high/"]
    assert record(token, make_rules(plaintext_reads=True), plaintext="Ada")["data"] == "Ada"


@pytest.mark.parametrize("at_ns", [0, 1, 999_999_999, AT_NS, 253_402_300_799_999_999_999])
def test_rec_created_is_iso_8601_with_utc_offset(at_ns: int) -> None:
    moment = dt.datetime.fromisoformat(timestamp(at_ns))
    assert moment.utcoffset() == dt.timedelta(0)
    since = moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert since // dt.timedelta(microseconds=1) == at_ns // 1000


def test_d_fingerprint_equal_values_of_a_type_and_tenant(
    make: Make, rules: Rules, keys: TenantKeys, other_keys: TenantKeys
) -> None:
    whole = {"fingerprint_expression": "{{ data }}"}
    body = [card(), card(expiration_month=1), {"type": "token", "data": NUMBER, **whole}]
    new_tokens, (one, two, token) = make(body)
    assert one.fingerprint == two.fingerprint != token.fingerprint
    assert other_keys.fingerprint("token", b"x") != keys.fingerprint("token", b"x")
    assert dedup_hashes(new_tokens, keys, rules) != dedup_hashes(new_tokens, other_keys, rules)


def decided(
    body: Json,
    keys: TenantKeys,
    rules: Rules,
    stored: Iterable[Token] = (),
    deduplicate: bool = True,
) -> list[int | Token | None]:
    new_tokens = validate(walk(body, rules), rules, deduplicate=deduplicate)
    by_hash = {token.dedup_hash: token for token in stored}
    return decide(new_tokens, dedup_hashes(new_tokens, keys, rules), by_hash.get)


def test_d_dedup_key_a_flagged_one_finds_what_an_unflagged_one_creates(
    keys: TenantKeys, rules: Rules, make: Make
) -> None:
    plain = {"type": "token", "data": "x"}
    flagged = {**plain, "deduplicate_token": True}
    decisions = decided([plain, flagged, plain, flagged], keys, rules, deduplicate=False)
    assert decisions == [None, 0, None, 0]
    assert decided([flagged, plain, "x"], keys, rules, deduplicate=False) == [None] * 3
    _, (stored,) = make(["x"])
    # The stored one is older than what this request creates.
    assert decided([plain, flagged], keys, rules, [stored], deduplicate=False) == [None, stored]


def test_d_dedup_an_expression_makes_other_values_equal(keys: TenantKeys, rules: Rules) -> None:
    year = {"fingerprint_expression": "{{ data.expiration_year }}"}
    one = card(expiration_year=2030) | year
    two = {**card(expiration_year=2030), "data": {"number": "5555555555554444"}}
    two["data"]["expiration_year"] = 2030
    assert decided([one, two | year], keys, rules) == [None, 0]
    assert decided([one, two], keys, rules) == [None, None]


def test_the_store_is_asked_once_a_value_and_only_where_it_is_on(
    keys: TenantKeys, rules: Rules
) -> None:
    asked: list[bytes] = []

    def find(digest: bytes) -> None:
        asked.append(digest)

    new_tokens = validate(walk(["x", "x", "y"], rules), rules, deduplicate=True)
    decide(new_tokens, dedup_hashes(new_tokens, keys, rules), find)
    assert len(asked) == len(set(asked)) == 2


def test_d_dedup_record_update_existing_merges(
    keys: TenantKeys, make: Make, make_rules: MakeRules
) -> None:
    rules = make_rules(dedup={"record": "update_existing"}, metadata_entries_limit=2)
    _, (stored,) = make(card({"o": "1"}, cvc="111"))
    brings = card({"o": "2", "p": "3"}, cvc="222") | {"search_indexes": ["{{ data.number }}"]}
    (new_token,) = validate(walk(brings, rules), rules)
    merged = merge_existing(stored, new_token, keys, rules, cvc_until_ns=AT_NS + 99)
    assert merged.metadata == {"o": "2", "p": "3"}
    assert merged.search_indexes == ("{{ data.number }}",)
    assert len(merged.index_hashes) == 1
    assert (
        keys.open(
            merged.container, merged.id, merged.sealed_cvc or b"", cvc_purpose(merged.cvc_until_ns)
        )
        == b"222"
    )
    assert merged.cvc_until_ns == AT_NS + 99
    assert (merged.created_at_ns, merged.sealed_data) == (AT_NS, stored.sealed_data)
    # What the request does not bring stays, the old cvc's deadline too.
    (new_token,) = validate(walk(card(), rules), rules)
    assert merge_existing(stored, new_token, keys, rules, cvc_until_ns=1) == stored
    (new_token,) = validate(walk(card({"x": "1", "y": "2"}), rules), rules)
    with pytest.raises(Problem, match="more than 2 entries"):
        merge_existing(stored, new_token, keys, rules, cvc_until_ns=1)


def test_d_dedup_record_what_is_merged_is_found_by_what_is_stored(
    keys: TenantKeys, make: Make, make_rules: MakeRules
) -> None:
    """An equal number with another month: the index is of the month that is stored."""
    rules = make_rules(dedup={"record": "update_existing"})
    month = {"search_indexes": ["{{ data.expiration_month }}"]}
    _, (stored,) = make(card(expiration_month=12))
    (new_token,) = validate(walk(card(expiration_month=1) | month, rules), rules)
    merged = merge_existing(stored, new_token, keys, rules, cvc_until_ns=1)
    assert merged.index_hashes == (keys.index(index_message(("expiration_month",), 12)),)
    _, (bare,) = make(card())
    with pytest.raises(Problem, match="selects nothing of the token that exists"):
        merge_existing(bare, new_token, keys, rules, cvc_until_ns=1)


def test_d_cvc_derive_a_card_is_found_by_the_cvc_that_it_has_now(
    keys: TenantKeys, make: Make, make_rules: MakeRules
) -> None:
    """D-DEDUP-RECORD update_existing, D-CVC-DERIVE allow: a new cvc takes the old one's place."""
    rules = make_rules(dedup={"record": "update_existing"}, cvc_derive="allow")
    indexed = {"search_indexes": ["{{ data.cvc }}", "{{ data.number }}"]}
    _, (stored,) = make(card(cvc="111") | indexed, rules=rules)
    (new_token,) = validate(walk(card(cvc="222"), rules), rules)
    merged = merge_existing(stored, new_token, keys, rules, cvc_until_ns=1)
    assert merged.search_indexes == stored.search_indexes
    assert merged.index_hashes[0] == keys.index(index_message(("cvc",), "222"))
    assert merged.index_hashes[1] == stored.index_hashes[1]


def test_d_leaf_equal_numbers_are_one_token_and_each_is_kept_as_it_was_sent(
    keys: TenantKeys, make: Make, make_rules: MakeRules
) -> None:
    """D-LEAF tokenize, D-DEDUP-KEY: 1 and 1.0 are one JSON value in two texts."""
    new_tokens, (one, same, other) = make([1, 1.0, 2], rules=make_rules(non_string_leaf="tokenize"))
    assert [new_token.plaintext for new_token in new_tokens] == [b"1", b"1.0", b"2"]
    assert one.dedup_hash == same.dedup_hash != other.dedup_hash


def test_a_token_sealed_for_one_place_opens_nowhere_else(make: Make, keys: TenantKeys) -> None:
    _, (one, two) = make(["x", card(cvc="123")])
    assert isinstance(one, Token)
    for container, token_id, purpose in (
        (one.container, two.id, "data"),
        ("/other/", one.id, "data"),
        (one.container, one.id, cvc_purpose(one.cvc_until_ns)),
    ):
        with pytest.raises(VaultError):
            keys.open(container, token_id, one.sealed_data, purpose)
