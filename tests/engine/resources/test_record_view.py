"""What a key without token:read sees of a stored record: one rule at every door (D-RECORD-VIEW)."""

from __future__ import annotations

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
