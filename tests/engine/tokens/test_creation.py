"""Creation and records (REC-ID … REC-SECRET), deduplication (TOK-DEDUP, D-DEDUP-KEY, E8, E9)."""

from __future__ import annotations

import datetime as dt
import itertools
import re
from collections.abc import Callable, Iterable
from typing import Any

import orjson
import pytest

from engine.errors import VaultError
from engine.messages import Json, Problem
from engine.model import Token
from engine.tokens.expressions import index_message
from engine.tokens.rules import Rules
from engine.tokens.shapes import NewToken, walk
from engine.tokens.stored import (
    check_limit,
    count_limited,
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


def test_a_leaf_is_sealed_and_shows_nothing(make: Make, keys: TenantKeys, rules: Rules) -> None:
    """REC-ID, REC-TENANT, REC-TYPE, REC-NoneD, REC-EXTRAS, REC-TOKEN-DATA."""
    _, (token,) = make(["Ada"])
    assert keys.open(token.container, token.id, token.sealed_data, "data") == b'"Ada"'
    assert record(token, rules) == {
        "id": token.id,
        "tenant_id": TENANT,
        "type": "token",
        "created_by": APPLICATION,
        "created_at": "2026-01-01T00:00:00.123456+00:00",
        "_extras": {"deduplicated": False},
    }


def test_rec_card_mask_metadata_indexes_fingerprint(
    make: Make, keys: TenantKeys, rules: Rules
) -> None:
    """REC-METADATA, REC-INDEXES, REC-FINGERPRINT, REC-FPEXPR."""
    body = card({"o": "1"}, expiration_month=12, expiration_year=2030, cvc="123")
    body["search_indexes"] = ["{{ data.number }}"]
    _, (token,) = make(body)
    mask = {"number": "XXXXXXXXXXXX4242", "expiration_month": 12, "expiration_year": 2030}
    shown = record(token, rules)
    assert shown["data"] == shown["mask"] == mask
    assert shown["metadata"] == {"o": "1"}
    assert shown["search_indexes"] == ["{{ data.number }}"]
    assert shown["fingerprint_expression"] == "{{ data.number }}"
    assert re.fullmatch("[1-9A-HJ-NP-Za-km-z]{40,44}", shown["fingerprint"])
    assert token.index_hashes == (keys.index(b"data.number\0" + NUMBER.encode()),)
    assert (
        keys.open(
            token.container, token.id, token.sealed_cvc or b"", cvc_purpose(token.cvc_until_ns)
        )
        == b"123"
    )
    assert token.cvc_until_ns == AT_NS + 5
    opened = orjson.loads(keys.open(token.container, token.id, token.sealed_data, "data"))
    assert opened == {"number": NUMBER, "expiration_month": 12, "expiration_year": 2030}


def test_rec_secret_nothing_of_a_token_shows_its_data(make: Make, rules: Rules) -> None:
    _, (leaf, token) = make(["very secret", card({"k": "v"}, cvc="987")], deduplicate=True)
    for one, secrets in ((leaf, ["very secret"]), (token, [NUMBER, "987"])):
        text = repr(one) + repr(record(one, rules)) + repr(record(one, rules, with_container=True))
        stored = b"".join(v for v in (one.sealed_data, one.dedup_hash, one.sealed_cvc) if v)
        for secret in secrets:
            assert secret not in text
            assert secret.encode() not in stored


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


def test_rec_dedup_redact_both_forms(make: Make, rules: Rules, make_rules: MakeRules) -> None:
    _, (token,) = make(card({"o": "1"}))
    full = record(token, rules, deduplicated=True, may_read=True)
    assert full["_extras"] == {"deduplicated": True}
    assert {"data", "metadata", "mask"} <= set(full)
    redacted = record(token, rules, deduplicated=True, may_read=False)
    assert set(full) - set(redacted) == {"data", "metadata"}
    narrow = make_rules(dedup={"redact": "narrow"})
    assert set(record(token, narrow, deduplicated=True, may_read=False)) == {
        "id", "type", "tenant_id", "fingerprint", "containers", "_extras",
    }  # fmt: skip
    assert record(token, narrow, deduplicated=True) == full
    # D-RECORD-VIEW: a stored token shows the same where nothing was deduplicated.
    shown = record(token, rules, deduplicated=False, may_read=False)
    assert shown == {**redacted, "_extras": {"deduplicated": False}}
    other = make_rules(record_view="metadata")
    assert set(record(token, other, may_read=False)) - set(shown) == {"metadata"}
    assert record(token, other, deduplicated=True, may_read=False) == redacted


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


def test_e8_six_elements_create_four_tokens(
    keys: TenantKeys, rules: Rules, make_rules: MakeRules
) -> None:
    """TOK-DEDUP, TOK-LIMIT, D-LIMIT-COUNT."""
    body = {"a": "x", "b": ["x", card()], "c": card(), "d": "y", "e": "z"}
    decisions = decided(body, keys, rules)
    assert decisions == [None, 0, None, 2, None, None]
    assert count_limited(decisions, rules) == 4
    check_limit(4, 5, rules)
    elements = make_rules(limit_counts="elements", limit_status=422)
    assert count_limited(decisions, elements) == 6
    check_limit(5, 5, elements)
    with pytest.raises(Problem) as caught:
        check_limit(6, 5, elements)
    assert (caught.value.status, caught.value.clause) == (422, "TOK-LIMIT")


def test_d_dedup_off_creates_every_one(keys: TenantKeys, rules: Rules, make: Make) -> None:
    assert decided(["x", "x"], keys, rules, deduplicate=False) == [None, None]
    _, stored = make(["x"])
    assert decided(["x", "x"], keys, rules, stored, deduplicate=False) == [None, None]


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


def test_d_dedup_key_containers_part_tokens_or_not(
    keys: TenantKeys, rules: Rules, make_rules: MakeRules
) -> None:
    body = [{"type": "token", "data": "x", "containers": [c]} for c in ("/a/", "/A/", "/b/")]
    assert decided(body, keys, rules) == [None, 0, None]
    together = make_rules(dedup={"container_in_key": False})
    assert decided(body, keys, together) == [None, 0, 0]


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


def test_e9_redaction_reads_the_existing_record(keys: TenantKeys, rules: Rules, make: Make) -> None:
    """REC-DEDUP-REDACT, D-DEDUP-RECORD read_existing."""
    _, (stored,) = make(card({"o": "1"}, expiration_month=12, expiration_year=2030))
    again = card({"o": "2"}, expiration_month=1, expiration_year=2031, cvc="123")
    new_tokens = validate(walk(again, rules), rules, deduplicate=True)
    (found,) = decide(
        new_tokens, dedup_hashes(new_tokens, keys, rules), {stored.dedup_hash: stored}.get
    )
    assert found is stored
    assert merge_existing(stored, new_tokens[0], keys, rules, cvc_until_ns=9) is stored
    shown = record(stored, rules, deduplicated=True, may_read=False)
    mask = {"number": "XXXXXXXXXXXX4242", "expiration_month": 12, "expiration_year": 2030}
    assert shown["mask"] == mask
    assert shown["id"] == stored.id
    assert not {"data", "metadata"} & set(shown)
    shown = record(stored, rules, deduplicated=True, may_read=True)
    assert (shown["data"], shown["metadata"]) == (mask, {"o": "1"})


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
