"""What chapters 01 to 07 state about data holds for drawn bodies, keys and times.

Each test is named after its chapter; more of them are in `test_general_statements`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import Engine, ManualClock, MemoryStore, Profile, encrypt
from tests.notebooks._drawn import FEW

SECRETS = st.text("xyzQ", min_size=8, max_size=20)
"""Values that stand in no identifier, time or name of a field."""
names = st.text("abc", min_size=1, max_size=3)
CONTAINERS = ("/pci/high/", "/pci/low/", "/general/high/", "/a/")


def service(*rights: str, **settings: Any) -> tuple[Engine, str]:
    """Return an engine and a key of a tenant."""
    engine = Engine(seed=7, clock=ManualClock())
    acme = engine.create_tenant("Acme", settings=settings)
    engine.set_quota(acme, "Tokenize Limit", 100)
    return engine, engine.key_for(acme, "token:create", *rights)


def with_check_digit(digits: str) -> str:
    """Return a card number: the digits and the one that Luhn's rule asks for."""
    doubled = [int(digit) * (2 - place % 2) for place, digit in enumerate(reversed(digits))]
    return digits + str(-sum(number // 10 + number % 10 for number in doubled) % 10)


card_numbers = st.text("0123456789", min_size=14, max_size=15).map(
    lambda digits: with_check_digit("4" + digits[1:])
)


@FEW
@given(text=SECRETS, is_nested=st.booleans())
def test_01_an_encrypted_value_makes_the_token_of_its_plaintext(text: str, is_nested: bool) -> None:
    engine, key = service("encryption-key:create", deduplicate_tokens=True)
    public = engine.ask("POST", "/keys", {"algorithm": "ECDH-ES"}, key=key).body["public_key"]
    sealed = {"type": "token", "encrypted": encrypt(public, json.dumps(text).encode())}
    plain = {"type": "token", "data": text}

    def identifier(body: Any) -> str:
        answer = engine.ask("POST", "/tokenize", [body] if is_nested else body, key=key)
        assert answer.status == 200, answer.body
        return str((answer.body[0] if is_nested else answer.body)["id"])

    assert identifier(sealed) == identifier(plain)


@FEW
@given(
    data=st.one_of(
        st.none(), st.booleans(), st.integers(), st.lists(names), st.dictionaries(names, names)
    ),
    key_there=st.booleans(),
)
def test_01_the_data_of_a_generic_token_is_a_string(data: Any, key_there: bool) -> None:
    engine, key = service("token:read")
    body = {"type": "token", **({"data": data} if key_there else {})}
    assert engine.ask("POST", "/tokenize", body, key=key).status == 400
    assert engine.ask("GET", "/tokens", key=key).body["data"] == []


@FEW
@given(
    declared=st.sampled_from(["application/json", "text/plain", "application/xml", ""]),
    text=st.one_of(st.binary(max_size=8), st.just(b'{"name": "Ada"}')),
)
def test_01_a_body_is_json_and_says_so(declared: str, text: bytes) -> None:
    engine, key = service()
    try:
        is_body = isinstance(json.loads(text), dict | list)
    except ValueError:
        is_body = False
    headers = {"Content-Type": declared}
    status = engine.ask("POST", "/tokenize", text, key=key, headers=headers).status
    if declared != "application/json":
        assert status in {400, 415}
    else:
        assert status == 400 or is_body


@FEW
@given(number=card_numbers, month=st.integers(1, 12), year=st.integers(2026, 2060))
def test_02_a_mask_hides_all_but_four_digits_and_keeps_the_expiry(
    number: str, month: int, year: int
) -> None:
    engine, key = service()
    data = {"number": number, "expiration_month": month, "expiration_year": year, "cvc": "987"}
    record = engine.ask("POST", "/tokenize", {"type": "card", "data": data}, key=key).body
    mask = {
        "number": "X" * (len(number) - 4) + number[-4:],
        "expiration_month": month,
        "expiration_year": year,
    }
    assert record["mask"] == record["data"] == mask
    assert number not in json.dumps(record)


@FEW
@given(
    text=SECRETS,
    metadata=st.none() | st.dictionaries(names, names, min_size=1),
    indexes=st.none() | st.just(["{{ data }}"]),
)
def test_02_no_record_shows_the_value_and_only_what_was_supplied_is_echoed(
    text: str, metadata: dict[str, str] | None, indexes: list[str] | None
) -> None:
    store = MemoryStore()
    engine = Engine(seed=7, store=store)
    acme = engine.create_tenant("Acme")
    key = engine.key_for(acme, "token:create")
    more = {"metadata": metadata, "search_indexes": indexes}
    more = {name: value for name, value in more.items() if value is not None}
    record = engine.ask("POST", "/tokenize", {"type": "token", "data": text, **more}, key=key).body
    assert text not in json.dumps(record)
    assert {name: record[name] for name in ("metadata", "search_indexes") if name in record} == more
    with store.transaction(write=False):
        stored = store.token(acme.id, record["id"])
    assert stored is not None
    assert text.encode() not in stored.sealed_data
    assert text not in repr(stored)


@FEW
@given(
    path=st.sampled_from(["/tokenize", "/nowhere"]),
    method=st.sampled_from(["POST", "PUT"]),
    key=st.sampled_from([None, "", "unknown", "key_prod_us_pvt_unknown"]),
    body=st.binary(max_size=8),
)
def test_03_without_a_known_key_the_body_does_not_matter(
    path: str, method: str, key: str | None, body: bytes
) -> None:
    engine, _ = service()
    status = engine.ask(method, path, body, key=key).status
    assert status == (404 if path == "/nowhere" else 405 if method == "PUT" else 401)


@FEW
@given(grants=st.lists(st.sampled_from(CONTAINERS), min_size=1, max_size=3), what=st.data())
def test_03_what_names_no_container_goes_to_the_default_of_its_type(
    grants: list[str], what: st.DataObject
) -> None:
    engine = Engine(seed=7)
    acme = engine.create_tenant("Acme")
    granted = [(path, {"token:create"}) for path in dict.fromkeys(grants)]
    key = engine.create_key(engine.create_application(acme, "app", grants=granted))
    card = {"type": "card", "data": {"number": "4242424242424242"}}
    default = {"card": "/pci/high/", "string": "/general/high/"}
    sent = what.draw(st.lists(st.sampled_from(["card", "string"]), min_size=1, max_size=4))
    body = [card if name == "card" else "x" for name in sent]
    covered = all(default[name] in grants for name in sent)
    assert engine.ask("POST", "/tokenize", body, key=key).status == (200 if covered else 403)


@given(kind=st.sampled_from(["production", "test"]), is_legacy=st.booleans())
def test_03_a_key_is_legacy_by_its_text_whatever_its_tenant(kind: Any, is_legacy: bool) -> None:
    engine = Engine(seed=7)
    tenant = engine.create_tenant("Acme", kind)
    key = engine.key_for(tenant, "token:create", legacy=is_legacy)
    assert is_legacy == ("_prod_" not in key and "_test_" not in key)
    counted = engine.ask("POST", "/tokenize", ["x"], key=key).decision.counted
    assert is_legacy == ("LIM-LEGACY" in counted)
    assert "LIM-PRIVATE.key" in counted


tokens = st.fixed_dictionaries(
    {
        "type": st.just("token"),
        "data": st.sampled_from(["x", "y"]),
        "containers": st.sampled_from([["/a/"], ["/b/"]]),
    }
)


@FEW
@given(sent=st.lists(tokens, min_size=2, max_size=8), at_once=st.booleans())
def test_04_equal_values_in_one_container_are_one_token_and_the_first_creates_it(
    sent: list[dict[str, Any]], at_once: bool
) -> None:
    engine, key = service("token:read", deduplicate_tokens=True)
    requests = [sent] if at_once else [[token] for token in sent]
    records = [
        record
        for body in requests
        for record in engine.ask("POST", "/tokenize", body, key=key).body
    ]
    what = [(token["data"], token["containers"][0]) for token in sent]
    firsts = [what.index(item) for item in what]
    assert [record["id"] for record in records] == [records[first]["id"] for first in firsts]
    assert len({record["id"] for record in records}) == len(set(what))
    repeats = [first != place for place, first in enumerate(firsts)]
    assert [record["_extras"]["deduplicated"] for record in records] == repeats


@FEW
@given(
    expression=st.tuples(
        st.sampled_from(["{{", "{{ ", "{", ""]),
        st.sampled_from(["data", "data.number", "number", "data.cvc", "data.number.x", "Data"]),
        st.sampled_from(["}}", " }}", "}", ""]),
    )
)
def test_05_an_expression_has_two_forms(expression: tuple[str, str, str]) -> None:
    engine, key = service()
    card = {"type": "card", "data": {"number": "4242424242424242"}}
    body = {**card, "fingerprint_expression": "".join(expression)}
    is_form = expression in {("{{ ", path, " }}") for path in ("data", "data.number")}
    assert engine.ask("POST", "/tokenize", body, key=key).status == (200 if is_form else 400)


@FEW
@given(
    stored=st.lists(st.tuples(st.sampled_from(["x", "y", "xy"]), st.booleans()), max_size=6),
    query=st.sampled_from(["x", "y", "xy"]),
)
def test_05_a_search_finds_the_indexed_tokens_with_the_exact_value(
    stored: list[tuple[str, bool]], query: str
) -> None:
    engine, key = service("token:search", "token:read")
    for text, is_indexed in stored:
        index = {"search_indexes": ["{{ data }}"]} if is_indexed else {}
        body = {"type": "token", "data": text, **index}
        assert engine.ask("POST", "/tokenize", body, key=key).status == 200
    answer = engine.ask("POST", "/tokens/search", {"query": f'data:"{query}"'}, key=key)
    assert len(answer.body["data"]) == stored.count((query, True))


FAULTS = ("path", "method", "key", "header", "JSON", "shape", "permission", "data", "quota")
STATUSES = (404, 405, 401, 415, 400, 400, 403, 400, 400)


@given(faults=st.sets(st.sampled_from(FAULTS)))
def test_06_the_first_step_that_finds_a_fault_answers(faults: set[str]) -> None:
    engine = Engine(seed=7)
    acme = engine.create_tenant("Acme")
    key = engine.key_for(acme, "token:create", container="/pci/")
    card = {"type": "card", "data": {"number": "4242424242424242"}}
    wrong = {"type": "card", "data": {"number": "4242424242424241"}}
    body = [card] * (6 if "quota" in faults else 1)
    body += [wrong] if "data" in faults else []
    body += ["x"] if "permission" in faults else []  # type: ignore[list-item] # reason: a fault
    body += [1] if "shape" in faults else []  # type: ignore[list-item] # reason: a fault
    answer = engine.ask(
        "PUT" if "method" in faults else "POST",
        "/nowhere" if "path" in faults else "/tokenize",
        b"{" if "JSON" in faults else json.dumps(body).encode(),
        key=None if "key" in faults else key,
        headers={"Content-Type": "text/plain" if "header" in faults else "application/json"},
    )
    first = next((place for place, name in enumerate(FAULTS) if name in faults), None)
    assert answer.status == (200 if first is None else STATUSES[first])


@FEW
@given(items=st.lists(st.sampled_from(["x", 1, None, {"type": "visa"}]), min_size=1, max_size=6))
def test_06_one_step_names_every_fault_that_it_finds(items: list[Any]) -> None:
    engine, key = service()
    answer = engine.ask("POST", "/tokenize", items, key=key)
    places = [
        f"/{place}/type" if isinstance(item, dict) else f"/{place}"
        for place, item in enumerate(items)
        if item != "x"
    ]
    assert answer.status == (400 if places else 200)
    assert not places or list(answer.body["errors"]) == places


@FEW
@given(limits=st.tuples(st.integers(1, 6), st.integers(1, 6)), count=st.integers(1, 7))
def test_06_a_quota_is_its_tenants_and_repeated_expressions_count(
    limits: tuple[int, int], count: int
) -> None:
    engine = Engine(seed=7)
    for name, limit in zip(("Acme", "Other"), limits, strict=True):
        tenant = engine.create_tenant(name)
        engine.set_quota(tenant, "Detokenize Limit", limit)
        key = engine.key_for(tenant, "token:create", "token:read")
        token = engine.ask("POST", "/tokenize", ["Ada"], key=key).body[0]
        answer = engine.ask("POST", "/detokenize", [f"Dear {{{{ {token} }}}}"] * count, key=key)
        assert answer.status == (200 if count <= limit else 400)
        assert count > limit or answer.body == ["Dear Ada"] * count


@FEW
@given(retention=st.integers(1, 20), later=st.integers(1, 20), age=st.integers(0, 22))
def test_07_an_intent_is_gone_at_the_deadline_that_it_was_made_with(
    retention: int, later: int, age: int
) -> None:
    clock = ManualClock()
    engine = Engine(clock=clock, seed=7)
    acme = engine.create_tenant("Acme")
    engine.set_quota(acme, "Token Intent Retention", f"{retention}s")
    key = engine.key_for(
        acme, "token:create", "token:read", "token-intent:create", "token-intent:read"
    )
    intent = engine.ask("POST", "/token-intents", {"type": "token", "data": "x"}, key=key).body[
        "id"
    ]
    engine.set_quota(acme, "Token Intent Retention", f"{later}s")
    clock.advance_ns(f"{age}s")
    answer = engine.ask("GET", f"/token-intents/{intent}", key=key)
    never = engine.ask("GET", "/token-intents/8a0f3f5e-0d5c-4f0e-9d0c-2b8c7b6d5e4f", key=key)
    assert answer.status == (200 if age < retention else 404)
    assert age < retention or answer.body == never.body
    made = engine.ask("POST", "/tokenize", {"type": "token", "token_intent_id": intent}, key=key)
    assert (made.status == 200) == (age < retention)
    if age < retention:
        clock.advance_ns("1h")
        expression = f"{{{{ {made.body['id']} }}}}"
        assert engine.ask("POST", "/detokenize", [expression], key=key).body == ["x"]


@pytest.mark.parametrize("value", ["both", "mask"])
@given(number=card_numbers)
def test_02_where_a_mask_is_shown_is_a_choice_and_nothing_else_is_there(
    value: str, number: str
) -> None:
    engine = Engine(seed=7, profile=Profile().replace(tokens={"card_view": value}))
    key = engine.key_for(engine.create_tenant("Acme"), "token:create")
    record = engine.ask(
        "POST", "/tokenize", {"type": "card", "data": {"number": number}}, key=key
    ).body
    views = {"both": {"mask", "data"}, "mask": {"mask"}}[value]
    assert views == {"mask", "data"} & set(record)
    assert {record[view]["number"] for view in views} == {"X" * (len(number) - 4) + number[-4:]}
