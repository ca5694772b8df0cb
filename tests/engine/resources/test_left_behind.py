"""What POST /tokenize leaves behind: log entries of what it changed, and no caller's text."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.deployment import Deployment


def _deduplicating(acme: Deployment) -> Deployment:
    acme.engine.set_setting(acme.tenant, "deduplicate_tokens", on=True)
    return acme


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
