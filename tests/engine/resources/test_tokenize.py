"""POST /tokenize (sections 1, 2 and 4): mirror, records, atomicity, quota, deduplication."""

import re
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwe import encrypt_compact
from joserfc.jwk import OKPKey

from engine import Engine, Profile
from engine.vault import jwe
from tests.engine.deployment import CARD, EVERY_TOKEN_RIGHT, Deployment

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
MASK = {"number": "XXXXXXXXXXXX4242", "expiration_month": 12, "expiration_year": 2030}


def test_tok_object_a_token_request_object_comes_back_as_one_record(acme: Deployment) -> None:
    """TOK-OBJECT, REC-ID, REC-TENANT, REC-TYPE, REC-CREATED, REC-EXTRAS, REC-TOKEN-DATA."""
    record = acme.tokenize({"type": "token", "data": "Ada"})
    assert set(record) == {"id", "tenant_id", "type", "created_by", "created_at", "_extras"}
    assert UUID.fullmatch(record["id"])
    assert record["tenant_id"] == acme.tenant.id
    assert record["type"] == "token"
    assert record["created_by"] == acme.application.id
    assert record["created_at"] == "2026-01-01T00:00:00.000000+00:00"
    assert record["_extras"] == {"deduplicated": False}


def test_tok_plain_an_object_of_strings_keeps_its_keys(acme: Deployment) -> None:
    """TOK-PLAIN, TOK-LEAF: each value becomes the identifier string of its token."""
    answer = acme.tokenize({"b": "1", "a": "2", "__proto__": "3", "": "4"})
    assert list(answer) == ["b", "a", "__proto__", ""]
    assert all(UUID.fullmatch(value) for value in answer.values())
    assert len(set(answer.values())) == acme.count() == 4


def test_tok_array_keeps_length_and_order(acme: Deployment) -> None:
    """TOK-ARRAY, TOK-TYPES: strings and objects of both types, mixed."""
    answer = acme.tokenize(["a", CARD, {"type": "token", "data": "b"}, "c"])
    assert [type(item) for item in answer] == [str, dict, dict, str]
    assert [answer[1]["type"], answer[2]["type"]] == ["card", "token"]


def test_tok_composite_mirrors_the_structure(acme: Deployment) -> None:
    """TOK-COMPOSITE: any nesting; an empty object or array is echoed (D-EMPTY)."""
    answer = acme.tokenize({"a": [{"b": "x"}, [["y"]], {}, []], "c": {"d": CARD}})
    assert UUID.fullmatch(answer["a"][0]["b"])
    assert UUID.fullmatch(answer["a"][1][0][0])
    assert answer["a"][2:] == [{}, []]
    assert answer["c"]["d"]["type"] == "card"


def test_rec_card_mask_a_card_record_holds_the_mask_and_nothing_more(acme: Deployment) -> None:
    """REC-CARD-MASK, REC-FPEXPR, REC-SECRET, TOK-CARD-DATA."""
    record = acme.tokenize(CARD)
    assert record["mask"] == record["data"] == MASK
    assert record["fingerprint_expression"] == "{{ data.number }}"
    assert re.fullmatch(r"[1-9A-HJ-NP-Za-km-z]{40,44}", record["fingerprint"])
    assert "4242424242424242" not in str(record)
    assert "123" not in [str(value) for value in record.values()]


def test_rec_metadata_and_indexes_are_echoed_when_supplied(acme: Deployment) -> None:
    """REC-METADATA, REC-INDEXES, REC-FINGERPRINT, TOK-METADATA, TOK-INDEXES, TOK-FPEXPR."""
    record = acme.tokenize(
        {
            "type": "token",
            "data": "Ada",
            "metadata": {"k": "v"},
            "search_indexes": ["{{ data }}"],
            "fingerprint_expression": "{{ data }}",
        }
    )
    assert record["metadata"] == {"k": "v"}
    assert record["search_indexes"] == ["{{ data }}"]
    assert record["fingerprint_expression"] == "{{ data }}"
    assert record["fingerprint"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"a": "x", "b": {"type": "token"}}, "/1"),
        ({"a": "x", "b": {"type": "visa", "data": "y"}}, "/1/type"),
        (["x", {"type": "token", "data": 5}], "/1/data"),
        (["x", {"type": "token", "data": "y", "encrypted": "z"}], "/1"),
        (["x", {"type": "card", "data": {"number": "4242424242424241"}}], "/1/data/number"),
        ({"a": "x", "b": 7}, "/1"),
        ({"a": "x", "b": {"type": "token", "data": "y", "metadata": {"k": 1}}}, "/1/metadata/0"),
        ({"a": "x", "b": {"type": "token", "data": "y", "colour": "z"}}, "/1/2"),
        (["x", {"type": "token", "data": "y", "search_indexes": ["data"]}], "/1/search_indexes/0"),
        (["x", {"type": "token", "encrypted": "no.jwe"}], "/1/encrypted"),
        (["x", {"type": "token", "data": "y", "containers": ["pci"]}], "/1/containers/0"),
    ],
)
def test_tok_atomic_one_invalid_token_fails_the_request(
    acme: Deployment, body: Any, pointer: str
) -> None:
    """Nothing is created, and the fault is named by its pointer.

    TOK-ATOMIC, TOK-ONE-OF, TOK-TYPES, TOK-TOKEN-DATA, TOK-CARD-DATA, TOK-METADATA, TOK-INDEXES,
    TOK-ENCRYPTED, TOK-CONTAINER.
    """
    problem = acme.tokenize(body, status=400)
    assert pointer in problem["errors"]
    assert acme.count() == 0


def test_tok_limit_at_the_quota_and_above(acme: Deployment) -> None:
    """TOK-LIMIT, QUO-TOKENIZE: five pass, six fail as a whole, however they are nested."""
    acme.tokenize({"a": ["1", ["2", {"b": "3"}]], "c": CARD, "d": "5"})
    assert acme.count() == 5
    problem = acme.tokenize(
        {"a": ["1", ["2", {"b": "3"}]], "c": CARD, "d": "5", "e": "6"}, status=400
    )
    assert problem["clause"] == "TOK-LIMIT"
    assert acme.count() == 5


@pytest.mark.parametrize("status", [400, 403, 413, 422, 429])
def test_tok_limit_answers_with_the_status_of_the_profile(
    deploy: Callable[..., Deployment], status: int
) -> None:
    """D-LIMIT-STATUS."""
    deploy(tokens={"limit_status": status}).tokenize(list("abcdef"), status=status)


E8 = {"a": "x", "b": ["x", CARD], "c": CARD, "d": "y", "e": "z"}


def _deduplicating(acme: Deployment) -> Deployment:
    acme.engine.set_setting(acme.tenant, "deduplicate_tokens", on=True)
    return acme


def test_e8_six_elements_create_four_tokens(acme: Deployment) -> None:
    """E8, TOK-DEDUP: inside one request the first creates and later ones are deduplicated."""
    answer = _deduplicating(acme).tokenize(E8)
    assert acme.count() == 4
    assert answer["a"] == answer["b"][0]
    assert answer["c"]["id"] == answer["b"][1]["id"]
    assert answer["b"][1]["_extras"]["deduplicated"] is False
    assert answer["c"]["_extras"]["deduplicated"] is True


def test_e8_counted_by_elements_it_is_over_the_limit(deploy: Callable[..., Deployment]) -> None:
    """E8, D-LIMIT-COUNT."""
    acme = _deduplicating(deploy(tokens={"limit_counts": "elements"}))
    acme.tokenize(E8, status=400)
    assert acme.count() == 0


def test_tok_dedup_an_equal_value_gives_the_existing_token(acme: Deployment) -> None:
    """TOK-DEDUP: across requests, by the tenant's setting or the object's flag (D-DEDUP)."""
    first = acme.tokenize({"type": "token", "data": "x"})
    again = acme.tokenize({"type": "token", "data": "x", "deduplicate_token": True})
    assert (again["id"], again["_extras"]["deduplicated"]) == (first["id"], True)
    acme.clock.advance_ns(1)
    other = acme.tokenize({"type": "token", "data": "x"})
    assert other["id"] != first["id"]
    _deduplicating(acme)
    assert acme.tokenize(["x"]) == [first["id"]], "of several the oldest"
    off = acme.tokenize({"type": "token", "data": "x", "deduplicate_token": False})
    assert off["_extras"]["deduplicated"] is False
    assert acme.count() == 3


def test_tok_dedup_is_by_type_and_container(acme: Deployment) -> None:
    """D-DEDUP-KEY: another container or another tenant is another token."""
    _deduplicating(acme)
    here = acme.tokenize({"type": "token", "data": "x"})
    there = acme.tokenize({"type": "token", "data": "x", "containers": ["/pci/low/"]})
    assert here["id"] != there["id"]
    tenant = acme.engine.create_tenant("Other", settings={"deduplicate_tokens": True})
    key = acme.principal(EVERY_TOKEN_RIGHT, tenant=tenant)[1]
    assert acme.tokenize(["x"], key=key) != [here["id"]]


def test_tok_dedup_over_containers_where_the_profile_says_so(
    deploy: Callable[..., Deployment],
) -> None:
    """D-DEDUP-KEY, without container."""
    acme = _deduplicating(deploy(dedup={"container_in_key": False}))
    here = acme.tokenize({"type": "token", "data": "x"})
    there = acme.tokenize({"type": "token", "data": "x", "containers": ["/pci/low/"]})
    assert here["id"] == there["id"]


def test_a_deleted_token_is_no_duplicate(acme: Deployment) -> None:
    """D-DEDUP-KEY: the oldest that is not deleted."""
    _deduplicating(acme)
    first = acme.tokenize({"type": "token", "data": "x"})["id"]
    assert acme.ask("DELETE", f"/tokens/{first}").status == 204
    assert acme.tokenize({"type": "token", "data": "x"})["_extras"]["deduplicated"] is False


def _card(month: int, year: int, note: str) -> dict[str, Any]:
    data = {"number": "4242424242424242", "expiration_month": month, "expiration_year": year}
    return {"type": "card", "data": data, "metadata": {"o": note}}


def test_e9_redaction(acme: Deployment) -> None:
    """E9, REC-DEDUP-REDACT, AUTH-READ, D-DEDUP-RECORD."""
    _deduplicating(acme)
    reader = acme.key_with("token:create", "token:read")
    creator = acme.key_with("token:create")
    first = acme.tokenize(_card(12, 2030, "1"), key=reader)
    second = acme.tokenize(_card(1, 2031, "2"), key=creator)
    assert second["id"] == first["id"]
    assert "data" not in second
    assert "metadata" not in second
    assert second["mask"] == MASK
    assert second["_extras"] == {"deduplicated": True}
    third = acme.tokenize(_card(1, 2031, "3"), key=reader)
    assert third["data"] == MASK
    assert third["metadata"] == {"o": "1"}
    assert third["created_by"] == first["created_by"]


def test_auth_read_counts_in_the_stored_tokens_container(acme: Deployment) -> None:
    """AUTH-READ, D-DEDUP-REDACT: token:read elsewhere does not help."""
    _deduplicating(acme)
    application = acme.engine.create_application(
        acme.tenant, "a", grants=[("/", {"token:create"}), ("/general/", {"token:read"})]
    )
    key = acme.engine.create_key(application)
    acme.tokenize(_card(12, 2030, "1"))
    assert "metadata" not in acme.tokenize(_card(12, 2030, "1"), key=key)


def test_narrow_redaction(deploy: Callable[..., Deployment]) -> None:
    """D-DEDUP-REDACT, narrow."""
    acme = _deduplicating(deploy(dedup={"redact": "narrow"}))
    acme.tokenize(CARD)
    record = acme.tokenize(CARD, key=acme.key_with("token:create"))
    assert set(record) == {"id", "type", "tenant_id", "fingerprint", "containers", "_extras"}


def test_update_existing_merges_what_a_duplicate_brings(
    deploy: Callable[..., Deployment],
) -> None:
    """D-DEDUP-RECORD update_existing: metadata merged, also twice in one request."""
    acme = _deduplicating(deploy(dedup={"record": "update_existing"}))
    acme.tokenize({"type": "token", "data": "x", "metadata": {"a": "1"}})
    one, two = acme.tokenize(
        [
            {"type": "token", "data": "x", "metadata": {"b": "2"}},
            {"type": "token", "data": "x", "metadata": {"a": "3"}},
        ]
    )
    assert one["metadata"] == two["metadata"] == {"a": "3", "b": "2"}
    assert acme.ask("GET", f"/tokens/{one['id']}").body["metadata"] == {"a": "3", "b": "2"}


def test_auth_create_on_every_destination_container(acme: Deployment) -> None:
    """AUTH-CREATE, TOK-CONTAINER: named or default; one that is missing fails all."""
    pci = acme.key_with("token:create", container="/pci/")
    acme.tokenize([CARD], key=pci)
    acme.tokenize([{"type": "token", "data": "x", "containers": ["/PCI/Low/"]}], key=pci)
    acme.tokenize([CARD, "x"], key=pci, status=403)
    acme.tokenize([{"type": "token", "data": "x", "containers": ["/pcix/"]}], key=pci, status=403)
    assert acme.count() == 2
    acme.tokenize({}, key=pci)
    acme.tokenize({}, key=acme.key_with("token:read"), status=403)


@pytest.mark.parametrize("kind", ["private", "public"])
def test_auth_create_holds_for_every_kind_that_may_tokenize(acme: Deployment, kind: Any) -> None:
    """AUTH-CREATE, AUTH-KINDS."""
    acme.tokenize(["x"], key=acme.principal({"token:create"}, kind)[1])
    acme.tokenize(["x"], key=acme.principal(set(), kind)[1], status=403)


def test_auth_create_a_management_application_cannot_tokenize(acme: Deployment) -> None:
    """AUTH-CREATE, D-PERMISSIONS."""
    acme.tokenize(["x"], key=acme.principal({"application:read"}, "management")[1], status=403)


def test_tok_encrypted_stands_in_place_of_data(acme: Deployment) -> None:
    """TOK-ENCRYPTED: in a single object and inside arrays; the JWE itself is never stored."""
    keys = acme.key_with("key:create")
    for algorithm in ("ECDH-ES", "RSA-OAEP-256"):
        made = acme.ask("POST", "/keys", {"algorithm": algorithm}, key=keys)
        assert made.status == 201
        card = jwe.encrypt(made.body["public_key"], b'{"number": "4242424242424242"}')
        text = jwe.encrypt(made.body["public_key"], b'"Ada"')
        record = acme.tokenize({"type": "card", "encrypted": card})
        assert record["mask"] == {"number": "XXXXXXXXXXXX4242"}
        one = acme.tokenize([{"type": "token", "encrypted": text}])[0]
        shown = acme.ask("POST", "/detokenize", [f"{{{{ {one['id']} }}}}"])
        assert shown.body == ["Ada"]
        acme.tokenize({"type": "card", "encrypted": text}, status=400)


def test_tok_encrypted_without_a_kid_means_the_only_key(acme: Deployment) -> None:
    """TOK-ENCRYPTED, D-ENCRYPTED: nothing to guess with one key; with none or several, 400."""
    keys = acme.key_with("key:create", "key:delete")
    made = acme.ask("POST", "/keys", key=keys).body
    header = {"alg": "ECDH-ES", "enc": "A256GCM"}
    key = OKPKey.import_key(made["public_key"])
    body = {"type": "token", "encrypted": encrypt_compact(header, b'"Ada"', key)}
    record = acme.tokenize(body)
    shown = acme.ask("POST", "/detokenize", [f"{{{{ {record['id']} }}}}"])
    assert shown.body == ["Ada"]
    second = acme.ask("POST", "/keys", key=keys).body
    problem = acme.tokenize(body, status=400)
    assert "must name by kid" in str(problem["errors"])
    assert acme.ask("DELETE", f"/keys/{made['id']}", key=keys).status == 204
    assert "does not open" in str(acme.tokenize(body, status=400)["errors"])
    assert acme.ask("DELETE", f"/keys/{second['id']}", key=keys).status == 204
    acme.tokenize(body, status=400)


def _strings_and_objects() -> st.SearchStrategy[Any]:
    leaf = st.text(max_size=20) | st.builds(
        lambda data: {"type": "token", "data": data}, st.text(max_size=20)
    )
    keys = st.text(max_size=8).filter(lambda key: key != "type") | st.sampled_from(
        ["", "__proto__", "Type", "data", "a/b", "a~b"]
    )
    return st.recursive(
        leaf,
        lambda inner: st.lists(inner, max_size=6) | st.dictionaries(keys, inner, max_size=6),
        max_leaves=40,
    ).filter(lambda body: isinstance(body, dict | list))


def _mirror(body: Any, answer: Any) -> int:
    """Assert that the answer mirrors the body; returns how many tokens it holds."""
    if isinstance(body, str):
        assert UUID.fullmatch(answer)
        return 1
    if isinstance(body, dict) and "type" in body:
        assert answer["type"] == body["type"]
        return 1
    if isinstance(body, dict):
        assert list(answer) == list(body)
        return sum(_mirror(body[key], answer[key]) for key in body)
    assert isinstance(answer, list)
    assert len(answer) == len(body)
    return sum(_mirror(one, other) for one, other in zip(body, answer, strict=True))


@given(body=_strings_and_objects(), data=st.data())
def test_tok_composite_any_body_comes_back_as_its_mirror(body: Any, data: st.DataObject) -> None:
    """TOK-COMPOSITE, TOK-ATOMIC: as many tokens as leaves and objects, or none at all."""
    acme = Deployment(Engine(profile=Profile(), seed=1))
    acme.engine.set_quota(acme.tenant, "Tokenize Limit", 1000)
    created = _mirror(body, acme.tokenize(body))
    assert acme.count() == created
    places = list(_places(body))
    if places:
        holder, key = data.draw(st.sampled_from(places))
        holder[key] = data.draw(st.sampled_from([{"type": "visa"}, 7, None, {"type": "card"}]))
        acme.tokenize(body, status=400)
        assert acme.count() == created


def _places(body: Any) -> Any:
    if isinstance(body, dict) and "type" not in body:
        for key, value in body.items():
            yield body, key
            yield from _places(value)
    elif isinstance(body, list):
        for index, value in enumerate(body):
            yield body, index
            yield from _places(value)


# --- what a request leaves behind ----------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        lambda text: {"containers": [f"/a{text}/"]},
        lambda text: {"containers": [f"b{text}"]},
        lambda text: {"fingerprint_expression": f"{{{{ data.c{text} }}}}"},
        lambda text: {"fingerprint_expression": f"d{text}"},
        lambda text: {"search_indexes": [f"{{{{ data.e{text} }}}}"]},
        lambda text: {"search_indexes": [f"f{text}"]},
        lambda text: {f"g{text}": 1},
    ],
)
def test_d_size_no_text_of_a_refused_body_is_kept(
    acme: Deployment, fields: Callable[[str], dict[str, Any]]
) -> None:
    """D-SIZE: what is remembered of each request must not fill the memory."""

    def status(number: int) -> int:
        body = {"type": "token", "data": "x", **fields(str(number) * 500_000)}
        answer: int = acme.ask("POST", "/tokenize", body).status
        return answer

    assert status(0) == 400
    tracemalloc.start()
    try:
        assert {status(number) for number in range(1, 4)} == {400}
        assert tracemalloc.get_traced_memory()[0] < 500_000
    finally:
        tracemalloc.stop()


def _logged(acme: Deployment) -> list[tuple[str, str]]:
    entries = acme.ask("GET", "/logs", key=acme.key_with("log:read")).body["data"]
    return [(entry["operation"], entry["entity_id"]) for entry in entries]


@pytest.mark.parametrize("record", ["read_existing", "update_existing"])
def test_d_logs_what_a_duplicate_changes_is_logged_and_what_it_does_not_is_not(
    deploy: Callable[..., Deployment], record: str
) -> None:
    """D-LOGS, D-DEDUP-RECORD: an entry an operation that changes state, though it made no token."""
    acme = _deduplicating(deploy(dedup={"record": record}))
    bare = {"number": "4242424242424242"}
    token = acme.tokenize({"type": "token", "data": "x"})["id"]
    card = acme.tokenize({"type": "card", "data": bare})["id"]
    nothing: tuple[dict[str, Any], ...] = (
        {"type": "token", "data": "x"},
        {"type": "token", "data": "x", "metadata": {}},
        {"type": "card", "data": bare},
    )
    for body in nothing:
        acme.tokenize([body, "x"])
        assert "metadata" not in acme.ask("GET", f"/tokens/{token}").body
    assert _logged(acme) == [("token:create", token), ("token:create", card)]
    brings: tuple[dict[str, Any], ...] = (
        {"type": "token", "data": "x", "metadata": {"a": "1"}},
        {"type": "token", "data": "x", "search_indexes": ["{{ data }}"]},
        {"type": "card", "data": {**bare, "cvc": "123"}},
    )
    for body in brings:
        acme.tokenize([body, "x"])
    changed = [("token:update", id_) for id_ in (token, token, card)]
    assert _logged(acme)[2:] == (changed if record == "update_existing" else [])


def test_d_logs_an_intent_that_is_consumed_is_logged_though_it_made_no_token(
    deploy: Callable[..., Deployment],
) -> None:
    """D-LOGS, D-INTENT: it is gone, whatever becomes of its data."""
    acme = _deduplicating(deploy())
    token = acme.tokenize({"type": "token", "data": "x"})["id"]
    key = acme.key_with("token-intent:create", "token:create")
    intent = acme.ask("POST", "/token-intents", {"type": "token", "data": "x"}, key=key).body["id"]
    record = acme.tokenize({"type": "token", "token_intent_id": intent}, key=key)
    assert (record["id"], record["_extras"]["deduplicated"]) == (token, True)
    assert _logged(acme)[1:] == [("token-intent:create", intent), ("token-intent:delete", intent)]
