"""Reactors as records: their forms, bounds and rights (section 8.9, D-REACTOR)."""

from typing import Any

import pytest

from tests.engine.resources.outside import Outside, Stream


@pytest.fixture
def outside() -> Outside:
    return Outside()


def _reactor(outside: Outside, **more: Any) -> str:
    made = outside.made("/reactors", {"name": "upper", "code": "upper", **more})
    return f"/reactors/{made['id']}"


def _react(outside: Outside, args: Any, **more: Any) -> Any:
    return outside.ask("POST", f"{_reactor(outside)}/react", {"args": args}, **more)


# --- limits of size -----------------------------------------------------------------------------


@pytest.mark.parametrize("character", ["x", "é", "\U0001f511"])
def test_code_is_bounded_in_code_points(outside: Outside, character: str) -> None:
    """RCT-CODE: 50,000 characters whatever their bytes (D-UNITS)."""
    path = _reactor(outside, code=character * 50_000)
    for answer in (
        outside.ask("POST", "/reactors", {"name": "n", "code": character * 50_001}),
        outside.ask("PATCH", path, {"code": character * 50_001}),
    ):
        assert (answer.status, answer.body["clause"]) == (400, "RCT-CODE")
        assert answer.body["errors"] == {"/code": ["must hold at most 50000 characters"]}
    assert outside.ask("PATCH", path, {"code": character * 49_999}).ok


def test_the_payload_is_bounded_in_bytes(outside: Outside) -> None:
    """RCT-PAYLOAD: 10^6 bytes of arguments as compact JSON pass, one more does not (D-SIZE)."""
    assert _react(outside, "x" * 999_998).ok
    assert _react(outside, "é" * 499_999).ok
    for too_long in ("x" * 999_999, "é" * 499_999 + "x"):
        answer = _react(outside, too_long)
        assert (answer.status, answer.body["clause"]) == (413, "RCT-PAYLOAD")
    assert len(outside.runs) == 2


def test_the_payload_is_the_same_however_the_body_is_written(outside: Outside) -> None:
    """RCT-PAYLOAD counts the arguments, not the spaces around them."""
    headers = {"Content-Type": "application/json"}
    path = f"{_reactor(outside)}/react"
    body = b'{"args": "' + b"x" * 999_998 + b'"' + b" " * 1_000 + b"}"
    assert outside.ask("POST", path, body, headers=headers).ok
    body = b'{"args":"' + b"x" * 999_999 + b'"}'
    assert outside.ask("POST", path, body, headers=headers).status == 413


def test_a_body_far_beyond_is_not_read_to_its_end(outside: Outside) -> None:
    """D-SIZE: 4 MB of JSON are read at most."""
    stream = Stream(50_000_000)
    headers = {"Content-Type": "application/json"}
    answer = outside.ask("POST", f"{_reactor(outside)}/react", stream, headers=headers)
    assert answer.status == 413
    assert stream.read_bytes == 4_000_001


# --- definitions --------------------------------------------------------------------------------


def test_a_definition_is_made_shown_changed_listed_and_deleted(outside: Outside) -> None:
    body = {"name": "upper", "code": "x", "configuration": {"a": "1", "b": "2"}}
    answer = outside.ask("POST", "/reactors", body)
    path = answer.headers["Location"]
    shown = {"name": "upper", "code": "x", "configuration_names": ["a", "b"]}
    assert answer.body.items() >= shown.items()
    assert "configuration" not in answer.body, "no value comes back"
    assert outside.ask("GET", path).body == answer.body
    changed = outside.ask("PATCH", path, {"name": "lower", "configuration": {"a": None, "c": "3"}})
    assert changed.body == {
        **answer.body,
        "name": "lower",
        "configuration_names": ["b", "c"],
    }
    assert outside.ask("GET", "/reactors").body["data"] == [changed.body]
    outside.ask("POST", f"{path}/react", {"args": 1})
    assert outside.ask("DELETE", path).status == 204
    assert outside.ask("GET", path).status == 404
    assert outside.ask("POST", f"{path}/react", {"args": 1}).status == 404
    assert not outside.engine.services.running, "a deleted reactor leaves no instances"
    for operation in ("create", "update", "delete"):
        ((entity, _, _),) = outside.logged(f"reactor:{operation}")
        assert entity == answer.body["id"]


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"code": "x"}, "/name"),
        ({"name": "n"}, "/code"),
        ({"name": "n", "code": ""}, "/code"),
        ({"name": "n", "code": 1}, "/code"),
        ({"name": "n", "code": "x", "configuration": {"a": 1}}, "/configuration/0"),
        ({"name": "n", "code": "x", "timeout": 1}, "/2"),
    ],
)
def test_a_definition_that_is_none_is_refused(outside: Outside, body: Any, place: str) -> None:
    answer = outside.ask("POST", "/reactors", body)
    assert (answer.status, list(answer.body["errors"])) == (400, [place])


@pytest.mark.parametrize(
    ("method", "path", "right"),
    [
        ("POST", "/reactors", "reactor:create"),
        ("GET", "/reactors", "reactor:read"),
        ("GET", "/reactors/{id}", "reactor:read"),
        ("PATCH", "/reactors/{id}", "reactor:update"),
        ("DELETE", "/reactors/{id}", "reactor:delete"),
        ("POST", "/reactors/{id}/react", "reactor:invoke"),
    ],
)
def test_each_operation_asks_for_its_right(
    outside: Outside, method: str, path: str, right: str
) -> None:
    """D-PERMISSIONS; and another tenant's reactor is not there."""
    path = path.replace("/reactors/{id}", _reactor(outside))
    bodies: dict[str, Any] = {"POST": {"name": "n", "code": "c"}, "PATCH": {}}
    body = {"args": 1} if path.endswith("react") else bodies.get(method)
    others = {f"reactor:{verb}" for verb in ("create", "read", "update", "delete", "invoke")}
    assert outside.ask(method, path, body, key=outside.key_with(*(others - {right}))).status == 403
    assert outside.ask(method, path, body, key=None).status == 401
    stranger = outside.principal({right}, tenant=outside.engine.create_tenant("Other"))[1]
    if path != "/reactors":
        assert outside.ask(method, path, body, key=stranger).status == 404
    assert outside.ask(method, path, body, key=outside.key_with(right)).ok
