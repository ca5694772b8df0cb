"""The `clause` of a problem is the one that is broken (D-PROBLEM)."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import InputError
from tests.engine.deployment import CARD, Deployment
from tests.engine.resources.outside import Outside

TOKEN = {"type": "token", "data": "x"}


def _card(**changes: Any) -> dict[str, Any]:
    return {"type": "card", "data": {"number": "4242424242424242", **changes}}


@pytest.mark.parametrize(
    ("body", "clause"),
    [
        ({"type": "token"}, "TOK-ONE-OF"),
        ({**TOKEN, "encrypted": "x"}, "TOK-ONE-OF"),
        ({"type": "token", "data": 7}, "TOK-TOKEN-DATA"),
        ({"type": "card", "data": "x"}, "TOK-CARD-DATA"),
        (_card(number="4242424242424241"), "D-CARD"),
        (_card(cvc="1"), "D-CARD"),
        (_card(expiration_month=13), "D-CARD"),
        (_card(colour="red"), "D-UNKNOWN"),
        ({**TOKEN, "colour": "red"}, "D-UNKNOWN"),
        ({"type": "visa"}, "D-TYPE-VALUE"),
        ({"type": 7}, "D-TYPE-VALUE"),
        ({**TOKEN, "containers": ["a b"]}, "D-CONTAINER"),
        ({**TOKEN, "metadata": []}, "TOK-METADATA"),
        ({**TOKEN, "metadata": {"k": "x" * 501}}, "D-METADATA"),
        ({**TOKEN, "search_indexes": "x"}, "TOK-INDEXES"),
        ({**TOKEN, "search_indexes": ["{{ data }}"] * 11}, "D-INDEXES"),
        ({**TOKEN, "fingerprint_expression": "{{data}}"}, "D-EXPR"),
        ({"type": "token", "encrypted": "x"}, "TOK-ENCRYPTED"),
        ({"type": "token", "token_intent_id": "x"}, "D-INTENT"),
        ([1], "D-LEAF"),
        ("x", "D-SCALAR"),
        (["1", "2", "3", "4", "5", "6"], "TOK-LIMIT"),
    ],
)
def test_bad_data_names_its_clause(acme: Deployment, body: Any, clause: str) -> None:
    answer = acme.ask("POST", "/tokenize", body)
    assert (answer.status, answer.body["clause"]) == (400, clause)


def test_a_missing_right_names_its_clause(acme: Deployment) -> None:
    made = acme.ask("POST", "/tokens", CARD).headers["Location"]
    for method, path, body, clause in (
        ("POST", "/tokenize", TOKEN, "AUTH-CREATE"),
        ("GET", made, None, "D-PERMISSIONS"),
        ("PATCH", made, {}, "D-PERMISSIONS"),
        ("POST", "/detokenize", {}, "D-PERMISSIONS"),
        ("GET", "/logs", None, "D-PERMISSIONS"),
    ):
        answer = acme.ask(method, path, body, key=acme.key_with("proxy:read"))
        assert (answer.status, answer.body["clause"]) == (403, clause)


def test_a_refusal_names_its_row(acme: Deployment) -> None:
    manager = acme.principal({"tenant:read"}, "management")[1]
    found = {acme.ask("GET", "/tenants/self", key=manager).body.get("clause") for _ in range(201)}
    assert found == {None, "LIM-MANAGEMENT"}
    for number in range(2_001):
        answer = acme.ask("GET", "/nothing", ip=f"192.0.2.{number % 2}")
    assert answer.body["clause"] == "LIM-PRIVATE"


def test_an_address_is_one_however_it_is_written(acme: Deployment) -> None:
    """D-IP: in process as over HTTP."""
    spellings = ["203.0.113.9", "::ffff:203.0.113.9", "::FFFF:CB00:7109"]
    for number in range(2_000):
        assert acme.ask("GET", "/x", key=None, ip=spellings[number % 3]).status == 404
    for ip in spellings:
        assert acme.ask("GET", "/x", key=None, ip=ip).status == 429
    for ip in ("", "localhost", "1.2.3", "203.0.113.9:80", "a" * 99):
        with pytest.raises(InputError, match="must be an IP address"):
            acme.ask("GET", "/x", key=None, ip=ip)


def test_the_profiles_prefix_holds_in_process_too() -> None:
    for bits, status in ((64, 429), (128, 404)):
        outside = Outside(http={"ipv6_prefix_bits": bits})
        for number in range(2_001):
            answer = outside.ask("GET", "/x", key=None, ip=f"2001:db8::{number:x}")
        assert answer.status == status


def test_an_upload_counts_for_its_address_alone(acme: Deployment) -> None:
    """D-SPLIT: neither the key that comes along nor its tenant says who uploads."""
    right = "account-updater:job:create"
    tenant = acme.engine.create_tenant("Test", kind="test")
    key = acme.principal({right}, tenant=tenant)[1]
    job = acme.ask("POST", "/account-updater/jobs", {}, key=key)
    assert "LIM-TEST-TENANT" in job.decision.counted
    for given in (key, None, acme.key):
        answer = acme.ask("PUT", job.body["upload_url"], b"token\n", key=given)
        assert answer.decision.counted == ("LIM-IP",)
