"""Which answers show a stored record's plaintext, metadata and mask (D-READ, D-RECORD-VIEW)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine import Engine, Profile
from tests.engine.deployment import CARD, Deployment

DOORS = ("tokenize", "tokens", "patch", "search")
RIGHTS = ("token:create", "token:update", "token:search")
BODY = {**CARD, "metadata": {"a": "b"}, "search_indexes": ["{{ data.number }}"]}


def _seen(door: str, key: str, acme: Deployment) -> dict[str, Any]:
    """Return the record of a token that is there already, as one door shows it."""
    acme.engine.set_setting(acme.tenant, "deduplicate_tokens", on=True)
    made = acme.ask("POST", "/tokens", BODY).body
    again = acme.ask("POST", "/tokens", BODY, key=key)
    answers = {
        "tokenize": lambda: acme.ask("POST", "/tokenize", BODY, key=key).body,
        "tokens": lambda: again.body,
        "patch": lambda: acme.ask("PATCH", f"/tokens/{made['id']}", {}, key=key).body,
        "search": lambda: acme.ask(
            "POST", "/tokens/search", {"query": "data.number:4242424242424242"}, key=key
        ).body["data"][0],
    }
    shown: dict[str, Any] = answers[door]()
    assert shown["id"] == made["id"]
    return shown


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("redact", ["data_metadata", "narrow"])
def test_a_key_without_token_read_sees_the_same_at_every_door(door: str, redact: str) -> None:
    profile = Profile().replace(dedup={"redact": redact})
    acme = Deployment(Engine(profile=profile, seed=1))
    shown = _seen(door, acme.key_with(*RIGHTS), acme)
    assert not {"data", "metadata"} & shown.keys()
    assert ("mask" in shown) is (redact != "narrow")
    shown = _seen(door, acme.key_with(*RIGHTS, "token:read"), acme)
    assert {"data", "metadata", "mask"} <= shown.keys()


@pytest.mark.parametrize("door", DOORS)
def test_the_other_reading_shows_metadata_outside_of_deduplication(door: str) -> None:
    profile = Profile().replace(tokens={"record_view": "metadata"})
    acme = Deployment(Engine(profile=profile, seed=1))
    shown = _seen(door, acme.key_with(*RIGHTS), acme)
    assert ("metadata" in shown) is (door in {"patch", "search"})
    assert "data" not in shown


# --- plaintext -----------------------------------------------------------------------------------


ADA = {"type": "token", "data": "Ada"}
MASKED = {"number": "XXXXXXXXXXXX4242", "expiration_month": 12, "expiration_year": 2030}


@pytest.fixture
def open_desk(deploy: Callable[..., Deployment]) -> Deployment:
    """A deployment that shows plaintext to whoever may read."""
    return deploy(tokens={"plaintext_reads": True})


def _logged(acme: Deployment) -> list[str]:
    entries: Any = acme.ask("GET", "/logs?size=100", key=acme.key_with("log:read")).body["data"]
    return [entry["operation"] for entry in entries]


@pytest.mark.parametrize(("body", "hidden"), [(ADA, None), (CARD, MASKED)])
def test_every_record_of_tokens_shows_it_to_those_who_may_read(
    open_desk: Deployment, body: dict[str, Any], hidden: Any
) -> None:
    """D-READ: POST, GET, PATCH and search on /tokens, with token:read where the token is."""
    blind = open_desk.key_with("token:create", "token:update")
    elsewhere = open_desk.key_with("token:create", "token:read", container="/other/")
    for key, sent, shown in (
        (open_desk.key, body, body["data"]),
        (blind, body, hidden),
        (elsewhere, {**body, "containers": ["/other/"]}, body["data"]),
    ):
        made = open_desk.ask("POST", "/tokens", sent, key=key)
        assert made.status == 201
        assert made.body.get("data") == shown
    path = made.headers["Location"]
    assert open_desk.ask("GET", path, key=elsewhere).body == made.body
    patch = {"metadata": {"a": "b"}}
    assert open_desk.ask("PATCH", path, patch).body["data"] == body["data"]
    assert "data" not in open_desk.ask("PATCH", path, patch, key=blind).body  # D-RECORD-VIEW


@pytest.mark.parametrize(("body", "hidden"), [(ADA, None), (CARD, MASKED)])
def test_rec_secret_tokenize_shows_it_to_nobody(
    open_desk: Deployment, body: dict[str, Any], hidden: Any
) -> None:
    """REC-SECRET: no record that tokenize returns holds the input, in any reading."""
    assert open_desk.tokenize(body).get("data") == hidden
    assert open_desk.tokenize([body])[0].get("data") == hidden


def test_rec_dedup_redact_a_duplicate_shows_it_to_those_who_may_read(
    open_desk: Deployment,
) -> None:
    """REC-DEDUP-REDACT, D-LOGS: to ask for what is there is to read it, and is logged so."""
    open_desk.engine.set_setting(open_desk.tenant, "deduplicate_tokens", on=True)
    blind = open_desk.key_with("token:create")
    assert open_desk.ask("POST", "/tokens", ADA).body["data"] == "Ada"
    assert _logged(open_desk) == ["token:create"]
    again = open_desk.ask("POST", "/tokens", ADA).body
    assert again["_extras"]["deduplicated"] is True
    assert again["data"] == "Ada"
    assert _logged(open_desk) == ["token:create", "token:read"]
    assert "data" not in open_desk.ask("POST", "/tokens", ADA, key=blind).body
    assert _logged(open_desk) == ["token:create", "token:read"]


def test_d_read_nothing_of_it_is_in_the_default_reading(acme: Deployment) -> None:
    """D-READ: plaintext only through POST /detokenize."""
    assert "data" not in acme.ask("POST", "/tokens", ADA).body
    assert acme.ask("POST", "/tokens", CARD).body["data"] == MASKED
    assert _logged(acme) == ["token:create", "token:create"]
