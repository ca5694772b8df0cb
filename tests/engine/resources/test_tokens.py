"""/tokens and /detokenize, whose shapes are assumed (D-CREATE … D-DETOKENIZE), and the cvc."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.deployment import CARD, Deployment

HOUR_NS = 3_600_000_000_000


def _create(acme: Deployment, **fields: Any) -> dict[str, Any]:
    answer = acme.ask("POST", "/tokens", {"type": "token", "data": "x", **fields})
    assert answer.status == 201, answer.body
    record: dict[str, Any] = answer.body
    return record


def _reveal(acme: Deployment, token_id: str) -> Any:
    answer = acme.ask("POST", "/detokenize", f"{{{{ {token_id} }}}}")
    assert answer.status == 200, answer.body
    return answer.body


def test_a_token_is_created_shown_and_deleted(acme: Deployment) -> None:
    """D-CREATE, D-DELETE, REC-SECRET: 201 with Location; the record never holds plaintext."""
    answer = acme.ask("POST", "/tokens", CARD)
    assert answer.status == 201
    path = answer.headers["Location"]
    assert path == f"/tokens/{answer.body['id']}"
    shown = acme.ask("GET", path)
    assert shown.body == answer.body
    assert shown.body["containers"] == ["/pci/high/"]
    assert acme.ask("DELETE", path).status == 204
    assert acme.ask("GET", path).status == acme.ask("DELETE", path).status == 404


@pytest.mark.parametrize("body", ["x", ["x"], {"a": "x"}, {"type": "visa"}, {}])
def test_post_tokens_takes_one_token_request_object(acme: Deployment, body: Any) -> None:
    """TOK-OBJECT, D-CREATE."""
    assert acme.ask("POST", "/tokens", body).status == 400
    assert acme.count() == 0


def test_plaintext_reads_show_data_to_those_who_may_read(
    deploy: Callable[..., Deployment],
) -> None:
    """D-READ, the reading with plaintext; D-LOGS, one entry an operation that reads it."""
    acme = deploy(tokens={"plaintext_reads": True})
    record, _ = (_create(acme, data="Ada", search_indexes=["{{ data }}"]) for _ in range(2))
    assert acme.ask("GET", f"/tokens/{record['id']}").body["data"] == "Ada"
    reads = 1
    query = {"query": "data:Ada"}
    for method, path, body in (
        ("GET", "/tokens", None),
        ("POST", "/tokens/search", query),
        ("GET", "/tokens?type=card", None),  # nothing to read
    ):
        shown = acme.ask(method, path, body).body["data"]
        assert [each["data"] for each in shown] in ([], ["Ada", "Ada"])
        reads += bool(shown)
    searcher = acme.key_with("token:search", "log:read")
    found = acme.ask("POST", "/tokens/search", query, key=searcher).body["data"]
    assert ["data" in each for each in found] == [False, False]
    logged = acme.ask("GET", "/logs", key=searcher).body["data"]
    assert [entry["operation"] for entry in logged].count("token:read") == reads == 3


def test_a_list_goes_page_by_page_in_order_of_creation(acme: Deployment) -> None:
    """D-LIST: cursor, size, filters; deleting a page does not lose the next."""
    made = []
    for number in range(5):
        made.append(_create(acme, data=str(number), metadata={"n": str(number % 2)})["id"])
        acme.clock.advance_ns(1)
    first = acme.ask("GET", "/tokens?size=2").body
    assert [record["id"] for record in first["data"]] == made[:2]
    assert first["pagination"]["page_size"] == 2
    for token_id in made[:2]:
        acme.ask("DELETE", f"/tokens/{token_id}")
    second = acme.ask("GET", f"/tokens?size=2&start={first['pagination']['next']}").body
    assert [record["id"] for record in second["data"]] == made[2:4]
    last = acme.ask("GET", f"/tokens?size=2&start={second['pagination']['next']}").body
    assert [record["id"] for record in last["data"]] == made[4:]
    assert last["pagination"]["next"] is None
    odd = acme.ask("GET", "/tokens?metadata.n=1").body["data"]
    assert [record["id"] for record in odd] == [made[3]]


@pytest.mark.parametrize(
    "query", ["size=0", "size=101", "size=x", "start=nothing", "container=pci"]
)
def test_a_page_that_does_not_exist_is_400(acme: Deployment, query: str) -> None:
    assert acme.ask("GET", f"/tokens?{query}").status == 400


@pytest.mark.parametrize(
    ("path", "name", "nearest"),
    [
        ("/tokens?fingerprnt=x&size=1", "/0", "fingerprint"),
        ("/tokens?metadata=x", "/metadata", None),
        ("/tokens?a/b~c=1", "/0", None),
        ("/logs?entity-id=x", "/0", "entity_id"),
    ],
)
def test_a_filter_that_a_list_does_not_have_is_400(
    acme: Deployment, path: str, name: str, nearest: str | None
) -> None:
    """D-LIST, D-LOG-LIST: a misspelt filter must not answer with everything."""
    answer = acme.ask("GET", path, key=acme.key_with("token:read", "log:read"))
    assert answer.status == 400
    ((pointer, (said,)),) = answer.body["errors"].items()
    assert pointer == name
    assert said.startswith("is no filter of this list")
    assert nearest is None or f"did you mean '{nearest}'" in said


def test_a_list_shows_what_the_grants_reach(acme: Deployment) -> None:
    """D-GRANT: a list leaves out what the key may not read."""
    _create(acme)
    card = acme.ask("POST", "/tokens", CARD).body["id"]
    pci = acme.key_with("token:read", container="/pci/")
    shown = acme.ask("GET", "/tokens", key=pci).body["data"]
    assert [record["id"] for record in shown] == [card]
    assert acme.ask("GET", "/tokens?container=/general/", key=pci).body["data"] == []
    assert acme.ask("GET", "/tokens?container=/", key=pci).body["data"] == shown
    assert acme.ask("GET", "/tokens", key=acme.key_with("token:create")).status == 403


def test_tok_indexes_search_finds_exact_values(acme: Deployment) -> None:
    """D-SEARCH, TOK-INDEXES: exact and case-sensitive, against the indexes alone."""
    record = _create(acme, data="Ada Lovelace", search_indexes=["{{ data }}"])
    _create(acme, data="Ada Lovelace")
    card = acme.tokenize({**CARD, "search_indexes": ["{{ data.expiration_month }}"]})

    def found(query: str) -> list[str]:
        answer = acme.ask("POST", "/tokens/search", {"query": query})
        assert answer.status == 200, answer.body
        return [one["id"] for one in answer.body["data"]]

    assert found('data:"Ada Lovelace"') == [record["id"]]
    assert found('data:"ada lovelace"') == []
    assert found("data.expiration_month:12") == [card["id"]]
    assert found("data.expiration_month:12 AND container:/pci/") == [card["id"]]
    assert found("data.expiration_month:12 AND container:/general/") == []


@pytest.mark.parametrize(
    "query", ["Ada", "data:Ada Lovelace", "container:/pci/", "data:a AND data:b", 'data:"a', ""]
)
def test_a_query_that_cannot_be_understood_is_400_and_not_quoted(
    acme: Deployment, query: str
) -> None:
    answer = acme.ask("POST", "/tokens/search", {"query": query})
    assert answer.status == 400
    assert "Lovelace" not in str(answer.body)


def test_a_patch_merges_and_a_null_removes(acme: Deployment) -> None:
    """D-PATCH, TOK-METADATA: JSON merge patch."""
    path = f"/tokens/{_create(acme, metadata={'a': '1', 'b': '2'})['id']}"
    answer = acme.ask("PATCH", path, {"metadata": {"a": None, "c": "3"}, "data": "y"})
    assert answer.status == 200
    assert answer.body["metadata"] == {"b": "2", "c": "3"}
    assert _reveal(acme, answer.body["id"]) == "y"
    assert acme.ask("PATCH", path, {"metadata": {"a": 1}}).status == 400
    assert acme.ask("PATCH", path, {"type": "card"}).status == 400
    wrong = acme.ask("PATCH", path, b"{}", headers={"Content-Type": "application/json"})
    assert wrong.status == 415
    right = {"Content-Type": "application/merge-patch+json"}
    assert acme.ask("PATCH", path, b"{}", headers=right).status == 200


def test_a_patch_asks_for_the_right_in_both_containers(acme: Deployment) -> None:
    """D-GRANT."""
    path = f"/tokens/{_create(acme)['id']}"
    general = acme.key_with("token:update", container="/general/")
    assert acme.ask("PATCH", path, {"containers": ["/pci/"]}, key=general).status == 403
    assert acme.ask("PATCH", path, {"containers": ["/general/low/"]}, key=general).status == 200
    assert acme.ask("GET", path).body["containers"] == ["/general/low/"]
    assert _reveal(acme, path.removeprefix("/tokens/")) == "x"


def test_detokenize_replaces_expressions_and_keeps_types(acme: Deployment) -> None:
    """D-DETOKENIZE: whole strings keep the JSON type, embedded ones become text."""
    text = _create(acme, data="Ada")["id"]
    card = acme.tokenize(CARD)["id"]
    body = {"a": f"{{{{ {text} }}}}", "b": [f"Hi {{{{ token: {text} }}}}!", 5, None]}
    answer = acme.ask("POST", "/detokenize", {**body, "c": f"{{{{{card}}}}}"})
    assert answer.body["a"] == "Ada"
    assert answer.body["b"] == ["Hi Ada!", 5, None]
    assert answer.body["c"] == CARD["data"]


def test_detokenize_needs_the_right_where_the_token_is(acme: Deployment) -> None:
    """AUTH-READ, D-DETOKENIZE: unknown id 400, missing right 403."""
    text = _create(acme)["id"]
    asked = f"{{{{ {text} }}}}"
    for key, status in [
        (acme.key_with("token:create"), 403),
        (acme.key_with("token:read", container="/pci/"), 403),
        (acme.key_with("token:read", container="/general/"), 200),
    ]:
        assert acme.ask("POST", "/detokenize", asked, key=key).status == status
    assert (
        acme.ask("POST", "/detokenize", "{{ 0b1e9c4e-0000-4000-8000-000000000000 }}").status == 400
    )


def test_quo_detokenize_at_the_quota_and_above(acme: Deployment) -> None:
    """QUO-DETOKENIZE, D-DETOKENIZE-COUNT: five expressions pass, six fail; repeats count."""
    text = _create(acme)["id"]
    asked = [f"{{{{ {text} }}}}"] * 6
    assert acme.ask("POST", "/detokenize", asked[:5]).status == 200
    refused = acme.ask("POST", "/detokenize", asked)
    assert (refused.status, refused.body["clause"]) == (400, "QUO-DETOKENIZE")
    acme.engine.set_quota(acme.tenant, "Detokenize Limit", 6)
    assert acme.ask("POST", "/detokenize", asked).status == 200


def test_quo_detokenize_may_count_distinct_tokens(deploy: Callable[..., Deployment]) -> None:
    acme = deploy(tokens={"detokenize_counts": "distinct"})
    text = _create(acme)["id"]
    assert acme.ask("POST", "/detokenize", [f"{{{{ {text} }}}}"] * 6).status == 200


def test_quo_cvc_is_readable_until_its_retention_is_over(acme: Deployment) -> None:
    """QUO-CVC, D-CVC: readable in [t, t + R), erased at t + R; the token stays."""
    card = acme.tokenize(CARD)["id"]
    acme.clock.advance_ns(HOUR_NS - 1)
    assert _reveal(acme, card)["cvc"] == "123"
    acme.clock.advance_ns(1)
    assert "cvc" not in _reveal(acme, card)
    assert _reveal(acme, card)["number"] == "4242424242424242"
    store = acme.engine.services.store
    with store.transaction(write=False):
        token = store.token(acme.tenant.id, card)
    assert token is not None
    assert token.sealed_cvc is None


def test_quo_cvc_a_new_cvc_restarts_its_retention(acme: Deployment) -> None:
    """D-CVC: PATCH of the cvc restarts it; a patch of anything else does not."""
    card = acme.tokenize(CARD)["id"]
    acme.clock.advance_ns(HOUR_NS // 2)
    assert acme.ask("PATCH", f"/tokens/{card}", {"data": {"cvc": "999"}}).status == 200
    acme.clock.advance_ns(HOUR_NS // 2)
    assert _reveal(acme, card)["cvc"] == "999"
    assert acme.ask("PATCH", f"/tokens/{card}", {"metadata": {"a": "b"}}).status == 200
    acme.clock.advance_ns(HOUR_NS // 2)
    assert "cvc" not in _reveal(acme, card)


def test_quo_cvc_a_changed_quota_moves_no_deadline(acme: Deployment) -> None:
    """D-QUOTA-CHANGE: deadlines of cvc are fixed at creation."""
    card = acme.tokenize(CARD)["id"]
    acme.engine.set_quota(acme.tenant, "CVC Retention", "1s")
    acme.clock.advance_ns(HOUR_NS - 1)
    assert _reveal(acme, card)["cvc"] == "123"


def test_tokens_of_another_tenant_are_not_there(acme: Deployment) -> None:
    """REC-TENANT: nobody else's token can be read, changed, deleted or revealed."""
    token = _create(acme)["id"]
    tenant = acme.engine.create_tenant("Other")
    rights = {"token:read", "token:update", "token:delete"}
    key = acme.principal(rights, tenant=tenant)[1]
    assert acme.ask("GET", f"/tokens/{token}", key=key).status == 404
    assert acme.ask("PATCH", f"/tokens/{token}", {}, key=key).status == 404
    assert acme.ask("DELETE", f"/tokens/{token}", key=key).status == 404
    assert acme.ask("POST", "/detokenize", f"{{{{ {token} }}}}", key=key).status == 400
    assert acme.ask("GET", "/tokens", key=key).body["data"] == []


def test_an_identifier_is_one_whatever_the_case_of_its_letters(acme: Deployment) -> None:
    """REC-ID: a UUID is read without regard to case (RFC 9562)."""
    token = _create(acme)["id"]
    for path in (f"/tokens/{token.upper()}", f"/tokens/{token}"):
        assert acme.ask("GET", path).body["id"] == token
    assert _reveal(acme, token.upper()) == "x"


def test_detokenize_of_nothing_is_the_body_and_nobodys_secret(acme: Deployment) -> None:
    """D-DETOKENIZE, D-LOGS: no expression, no change and no log entry; the right is asked for.

    QUO-DETOKENIZE: nothing counts.
    """
    acme.engine.set_quota(acme.tenant, "Detokenize Limit", 0)
    bodies: tuple[Any, ...] = ({}, [], {"a": ["{ x }", 1, None]}, "plain", 5)
    for body in bodies:
        assert acme.ask("POST", "/detokenize", body).body == body
        assert acme.ask("POST", "/detokenize", body, key=acme.key_with("token:use")).status == 403
    assert acme.ask("GET", "/logs", key=acme.key_with("log:read")).body["data"] == []


def test_d_order_a_token_that_may_not_be_read_comes_before_one_that_is_not_there(
    acme: Deployment,
) -> None:
    """D-ORDER: 403 before the 400 that names the unknown, which comes before the quota."""
    card = acme.tokenize(CARD)["id"]
    both = [f"{{{{ {card} }}}}", "{{ 0b1e9c4e-0000-4000-8000-000000000000 }}"]
    reader = acme.key_with("token:read", container="/general/")
    assert acme.ask("POST", "/detokenize", both, key=reader).status == 403
    refused = acme.ask("POST", "/detokenize", both * 4)
    assert (refused.status, set(refused.body["errors"])) == (400, {"/1", "/3", "/5", "/7"})


def test_quo_cvc_a_delayed_request_comes_too_late_at_its_release(
    deploy: Callable[..., Deployment],
) -> None:
    """QUO-CVC, D-THROTTLE delay: a request is carried out at its release, not at its arrival."""
    acme = deploy(limits={"throttle": "delay"})
    tenant = acme.engine.create_tenant("T", kind="test", quotas={"CVC Retention": "10s"})
    key = acme.principal({"token:create", "token:read"}, tenant=tenant)[1]
    card = acme.tokenize(CARD, key=key)["id"]
    asked = f"{{{{ {card} }}}}"
    for _ in range(49):
        assert acme.ask("POST", "/detokenize", asked, key=key).body["cvc"] == "123"
    late = acme.ask("POST", "/detokenize", asked, key=key)
    assert (late.decision.outcome, late.decision.wait_ns) == ("delayed", HOUR_NS // 360)
    assert "cvc" not in late.body
