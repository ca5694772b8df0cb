"""Forms: a schema says once what a body may be (D-UNKNOWN for the operator's resources).

A request of any size is answered at once, and by an answer that is not much larger: four million
bytes hold a million permissions that are none, or half a million fields.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from jsonschema import Draft202012Validator

from engine.errors import did_you_mean
from engine.identity import PERMISSIONS
from engine.messages import Problem
from engine.resources import OPERATIONS, operation
from engine.resources.operation import BodySchema, object_schema, pointer
from tests.engine.deployment import Deployment


def test_every_form_of_an_operation_is_a_valid_schema() -> None:
    forms = [operation.form for operation in OPERATIONS if operation.form is not None]
    assert len(forms) >= 5
    for form in forms:
        Draft202012Validator.check_schema(form.schema)


def test_every_fault_is_named_at_its_place_and_quotes_no_value() -> None:
    form = BodySchema(
        object_schema(
            {"a": {"type": "string", "maxLength": 3}, "b": {"type": "array", "maxItems": 1}},
            required=("a", "b"),
        ),
        "D-REACTOR",
        {"b": "D-CORS"},
    )
    with pytest.raises(Problem) as raised:
        form.check({"a": "secret value", "c/d": 1})
    assert raised.value.status == 400
    assert raised.value.errors == {
        "/a": ["must hold at most 3 characters"],
        "/b": ["is required"],
        "/c~1d": ["is an unknown field"],
    }
    assert raised.value.clause == "D-REACTOR"
    with pytest.raises(Problem) as raised:
        form.check({"a": "x", "b": ["y", "z"]})
    assert raised.value.clause == "D-CORS"
    with pytest.raises(Problem) as raised:
        form.check(["secret value"])
    assert raised.value.errors == {"": ["must be object"]}
    assert form.check({"a": "x", "b": []}) == {"a": "x", "b": []}


def test_a_pointer_escapes_its_steps() -> None:
    assert pointer("a/b", 0, "~") == "/a~1b/0/~0"


# --- forms of any size ---------------------------------------------------------------------------


MANY = 5_000


class Watched(list[Any]):
    """An array that counts how often something of it is looked at."""

    looked = 0

    def __getitem__(self, place: Any) -> Any:
        self.looked += 1
        return super().__getitem__(place)


def _application(**more: Any) -> dict[str, Any]:
    return {"name": "a", "kind": "private", **more}


def _grants(*permissions: str) -> list[dict[str, Any]]:
    return [{"container": "/", "permissions": list(permissions)}]


@pytest.mark.parametrize("right", [True, False])
def test_d_permissions_an_array_that_is_too_long_is_not_looked_into(*, right: bool) -> None:
    """D-PERMISSIONS, D-PROBLEM: its length is the fault, whatever stands in it."""
    items = {"type": "array", "maxItems": 32, "items": {"enum": ["x"]}}
    form = BodySchema(object_schema({"a": items}), "D-REACTOR")
    array = Watched(["x" if right else "y"] * MANY)
    with pytest.raises(Exception, match="not of the form") as caught:
        form.check({"a": array})
    assert getattr(caught.value, "errors", {}) == {"/a": ["must hold at most 32 items"]}
    assert array.looked == 0


def test_d_permissions_many_wrong_ones_are_told_apart_from_nothing(
    acme: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-PERMISSIONS: what was meant is not looked for, and the answer is small."""
    asked: list[str] = []
    monkeypatch.setattr(difflib, "get_close_matches", lambda word, *_, **__: asked.append(word))
    key = acme.principal({"application:create"}, "management")[1]
    wrong = [f"token:creat{number}" for number in range(MANY)]
    answer = acme.ask("POST", "/applications", _application(grants=_grants(*wrong)), key=key)
    assert answer.status == 400
    assert answer.body["errors"] == {
        "/grants/0/permissions": [f"must hold at most {len(PERMISSIONS)} items"]
    }
    assert asked == []


@pytest.mark.parametrize(
    "body",
    [
        _application(**{f"field {number}": 1 for number in range(MANY)}),
        _application(grants=[{f"field {number}": 1 for number in range(MANY)}]),
    ],
)
def test_d_unknown_so_many_faults_are_looked_for_as_are_named(
    acme: Deployment, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any]
) -> None:
    """D-PROBLEM, D-UNKNOWN: a thousand are named, and one more tells that there are others."""
    found: list[object] = []
    faults = operation._faults

    def counted(*given: Any) -> Iterator[Any]:
        for fault in faults(*given):
            found.append(fault[0])
            yield fault

    monkeypatch.setattr(operation, "_faults", counted)
    key = acme.principal({"application:create"}, "management")[1]
    answer = acme.ask("POST", "/applications", body, key=key)
    assert answer.status == 400
    assert answer.body["detail"].endswith(" The first 1000 faults are named.")
    assert len(answer.body["errors"]) == 1_000
    assert len(set(found)) == 1_001


def test_d_reactor_values_of_another_type_are_named(acme: Deployment) -> None:
    """D-REACTOR, D-SIZE: by their places, among five thousand others."""
    values = {f"v{number}": "x" for number in range(MANY)}
    key = acme.key_with("reactor:create")
    body = {"name": "r", "code": "c", "configuration": {**values, "odd": 1, "a/b": None}}
    errors = acme.ask("POST", "/reactors", body, key=key).body["errors"]
    assert errors == {
        f"/configuration/{MANY}": ["must be string"],
        f"/configuration/{MANY + 1}": ["must be string"],
    }


def test_d_list_filters_that_are_none_are_named_a_thousand_times(acme: Deployment) -> None:
    """D-LIST, within what a target may hold (D-SIZE)."""
    query = "&".join(f"f{number}=" for number in range(2_000))
    answer = acme.ask("GET", f"/tokens?{query}")
    assert answer.status == 400
    assert len(answer.body["errors"]) == 1_000


def test_d_problem_each_field_that_is_missing_is_named(acme: Deployment) -> None:
    """D-PROBLEM: the first that was missing was named as often as there were others."""
    key = acme.principal({"application:create"}, "management")[1]
    answer = acme.ask("POST", "/applications", {"grants": [{}]}, key=key)
    assert answer.body["errors"] == {
        "/grants/0/container": ["is required"],
        "/grants/0/permissions": ["is required"],
        "/kind": ["is required"],
        "/name": ["is required"],
    }
    assert len(orjson.dumps(answer.body)) < 500


def test_d_unknown_a_word_that_is_far_too_long_is_compared_with_nothing(
    acme: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-UNKNOWN, D-LIST: a name of four million characters cost what a thousand tokens do."""
    asked: list[int] = []
    nearest = difflib.get_close_matches

    def counted(word: str, *more: Any, **options: Any) -> list[str]:
        asked.append(len(word))
        return nearest(word, *more, **options)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    long = "metadata" * 1_000
    acme.tokenize({"type": "token", "data": "x", long: 1}, status=400)
    acme.tokenize({"type": "card", "data": {"number": "4242424242424242", long: 1}}, status=400)
    assert acme.ask("GET", f"/tokens?{long}=1").status == 400
    assert asked == []
    said = acme.tokenize({"type": "token", "data": "x", "metadatas": 1}, status=400)["errors"]
    assert said == {"/2": ["is an unknown field; did you mean 'metadata'?"]}


def test_what_is_meant_is_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """D-PROBLEM: not to compare changes no hint: so long a word was near to nothing."""
    known = ["data", "metadata", "x"]
    words = [
        name[:cut] + pad * count
        for name in known
        for cut in range(9)
        for pad in "ad-"
        for count in range(40)
    ]
    for word in words:
        near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
        hint = f"; did you mean {near[0]!r}?" if near else "; known: data, metadata, x"
        assert did_you_mean(word, known) == hint
    monkeypatch.setattr(difflib, "get_close_matches", lambda *_, **__: ["never"])
    assert did_you_mean("x" * 25, known) == "; known: data, metadata, x"
    assert did_you_mean("x", []) == "; known: "
