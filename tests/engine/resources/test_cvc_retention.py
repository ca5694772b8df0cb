"""What was derived from a cvc goes with it, where the profile lets anything be derived from one.

D-CVC-DERIVE `allow` against D-CVC: the cvc is gone at the end of its retention, in every store, and
a keyed hash of three digits would say it to whoever has the key and tries a thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from engine import Engine, ManualClock, ModelWorld, Profile
from engine.model import Token
from engine.store import MemoryStore, SqliteStore, Store
from tests.engine.deployment import Deployment

HOUR_NS = 3_600_000_000_000
NUMBER = "4242424242424242"
CARD = {"type": "card", "data": {"number": NUMBER, "cvc": "123"}}
OVER_CVC = {
    **CARD,
    "search_indexes": ["{{ data.cvc }}", "{{ data.number }}"],
    "fingerprint_expression": "{{ data.cvc }}",
}
MASTER = b"m" * 32
Open = Callable[..., Deployment]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cards.sqlite"


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, path: Path) -> Iterator[Store]:
    """Either store."""
    opened: Store = MemoryStore() if request.param == "memory" else SqliteStore(path)
    yield opened
    opened.close()


def _open(store: Store, **sections: Any) -> Deployment:
    sections = {"tokens": {"cvc_derive": "allow"}, **sections}
    world = ModelWorld(clock=ManualClock())
    profile = Profile().replace(**sections)
    return Deployment(Engine(profile=profile, world=world, store=store, master_key=MASTER))


def _search(acme: Deployment, query: str) -> list[str]:
    found: Any = acme.ask("POST", "/tokens/search", {"query": query}).body
    return [each["id"] for each in found["data"]]


def _stored(acme: Deployment, token_id: str) -> Token:
    store = acme.engine.services.store
    with store.transaction(write=False):
        token = store.token(acme.tenant.id, token_id)
    assert token is not None
    return token


def test_quo_cvc_what_was_derived_from_a_cvc_goes_with_it(store: Store) -> None:
    """QUO-CVC, D-CVC: there until the deadline; gone from search, record and lists at it."""
    acme = _open(store)
    made = acme.tokenize(OVER_CVC)
    acme.clock.advance_ns(HOUR_NS - 1)
    assert _search(acme, "data.cvc:123") == _search(acme, f"data.number:{NUMBER}") == [made["id"]]
    assert acme.ask("GET", f"/tokens?fingerprint={made['fingerprint']}").body["data"]
    acme.clock.advance_ns(1)
    assert _search(acme, "data.cvc:123") == []
    assert _search(acme, f"data.number:{NUMBER}") == [made["id"]]
    shown = acme.ask("GET", f"/tokens/{made['id']}").body
    assert shown["search_indexes"] == ["{{ data.number }}"]
    assert shown["fingerprint_expression"] == "{{ data.number }}"
    assert shown["fingerprint"] == acme.tokenize(CARD)["fingerprint"] != made["fingerprint"]
    assert acme.ask("GET", f"/tokens?fingerprint={made['fingerprint']}").body["data"] == []
    found = acme.ask("GET", f"/tokens?fingerprint={shown['fingerprint']}").body["data"]
    assert made["id"] in [each["id"] for each in found]
    logs = acme.ask("GET", f"/logs?entity_id={made['id']}", key=acme.key_with("log:read")).body
    assert [each["operation"] for each in logs["data"]] == ["token:create"]


def test_quo_cvc_a_patch_afterwards_changes_no_more(store: Store) -> None:
    """QUO-CVC, D-PATCH: the retention comes to what a patch of such a card comes to."""
    acme = _open(store)
    token_id = acme.tokenize(OVER_CVC)["id"]
    acme.clock.advance_ns(HOUR_NS)
    before = acme.ask("GET", f"/tokens/{token_id}").body
    stored = _stored(acme, token_id)
    assert (stored.sealed_cvc, stored.cvc_until_ns) == (None, None)
    patched = acme.ask("PATCH", f"/tokens/{token_id}", {"metadata": {"a": "b"}})
    assert patched.body == {**before, "metadata": {"a": "b"}}
    after = _stored(acme, token_id)
    assert after == replace(stored, metadata={"a": "b"})


def test_tok_dedup_a_card_without_its_cvc_is_a_duplicate_by_its_number(store: Store) -> None:
    """TOK-DEDUP, D-DEDUP-KEY: what is equal is what the fingerprint in force selects."""
    acme = _open(store)
    acme.engine.set_setting(acme.tenant, "deduplicate_tokens", on=True)
    first = acme.tokenize(OVER_CVC)["id"]
    assert acme.tokenize(OVER_CVC)["id"] == first
    acme.clock.advance_ns(HOUR_NS)
    assert acme.tokenize(CARD)["id"] == first
    other = acme.tokenize(OVER_CVC)
    assert other["id"] != first
    assert other["_extras"]["deduplicated"] is False


def test_quo_cvc_nothing_else_changes(store: Store) -> None:
    """QUO-CVC: a card from whose cvc nothing was derived, and data that has a cvc by name only."""
    acme = _open(store, tokens={"cvc_derive": "allow", "token_data": "any"})
    plain = {**CARD, "search_indexes": ["{{ data }}"], "metadata": {"a": "data.cvc"}}
    alike = {**OVER_CVC, "type": "token", "search_indexes": ["{{ data.cvc }}"]}
    made = [acme.tokenize(body)["id"] for body in (plain, alike)]
    before = [_stored(acme, token_id) for token_id in made]
    acme.clock.advance_ns(HOUR_NS)
    acme.engine.expire()
    after = [_stored(acme, token_id) for token_id in made]
    assert after == [replace(before[0], sealed_cvc=None, cvc_until_ns=None), before[1]]


def test_quo_cvc_nothing_of_it_is_in_the_file(path: Path) -> None:
    """QUO-CVC: really gone; and whichever profile the store is opened with by then."""
    store = SqliteStore(path)
    acme = _open(store)
    token_id = acme.tokenize(OVER_CVC)["id"]
    token = _stored(acme, token_id)
    assert token.fingerprint is not None
    derived = [token.fingerprint.encode(), token.index_hashes[0], token.dedup_hash]
    derived += [b"h" + token.index_hashes[0], token.sealed_cvc or b""]
    content = b"".join(each.read_bytes() for each in path.parent.glob(path.name + "*"))
    assert all(each in content for each in derived)
    clock = ManualClock(HOUR_NS, wall_start_ns=acme.clock.wall_ns + HOUR_NS)
    acme.engine.close()
    again = SqliteStore(path)
    Engine(world=ModelWorld(clock=clock), store=again, master_key=MASTER).expire()
    content = b"".join(each.read_bytes() for each in path.parent.glob(path.name + "*"))
    assert [each for each in derived if each in content] == []
    again.close()


def test_quo_cvc_a_card_that_does_not_open_keeps_no_other_cvc(store: Store) -> None:
    """QUO-CVC: a retention that failed at one damaged card would fail for every tenant."""
    acme = _open(store)
    damaged, whole = (acme.tokenize(OVER_CVC)["id"] for _ in range(2))
    with store.transaction():
        store.update_token(replace(_peek(store, acme, damaged), sealed_data=b"damaged"))
    acme.clock.advance_ns(HOUR_NS)
    assert acme.ask("GET", "/tokens").status == 200
    shown = acme.ask("GET", f"/tokens/{damaged}").body
    assert not {"fingerprint", "fingerprint_expression"} & shown.keys()
    for token_id in (damaged, whole):
        assert _stored(acme, token_id).sealed_cvc is None
    assert _search(acme, "data.cvc:123") == []
    assert acme.ask("GET", f"/tokens/{whole}").body["fingerprint_expression"] == "{{ data.number }}"


def _peek(store: Store, acme: Deployment, token_id: str) -> Token:
    token = store.token(acme.tenant.id, token_id)
    assert token is not None
    return token


def test_quo_cvc_an_expiry_that_is_undone_is_undone_whole(store: Store) -> None:
    """QUO-CVC, TOK-ATOMIC: a transaction that fails leaves the card as it was, found as it was."""
    acme = _open(store)
    token_id = acme.tokenize(OVER_CVC)["id"]
    before = _stored(acme, token_id)
    store.begin()
    assert store.expire(acme.clock.wall_ns + HOUR_NS, acme.engine._without_cvc) == 1
    store.rollback()
    assert _stored(acme, token_id) == before
    assert _search(acme, "data.cvc:123") == [token_id]


def test_quo_cvc_d_throttle_what_waits_past_a_deadline_does_not_find_by_it(store: Store) -> None:
    """QUO-CVC, D-THROTTLE delay: a request is carried out at its release, not at its arrival."""
    acme = _open(store, limits={"throttle": "delay"})
    acme.engine.set_quota(acme.tenant, "CVC Retention", "5s")
    token_id = acme.tokenize(OVER_CVC)["id"]
    for _ in range(50):
        assert _search(acme, "data.cvc:123") == [token_id]
    answer = acme.ask("POST", "/tokens/search", {"query": "data.cvc:123"})
    assert answer.decision.outcome == "delayed"
    assert answer.decision.wait_ns > 5_000_000_000
    assert answer.body["data"] == []
