"""The documents: valid, complete, true of the engine; what the floor and the ceiling leave open."""

from __future__ import annotations

import json
from collections.abc import Iterator
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from engine.clauses import clause
from engine.cli import main
from engine.http.openapi import KINDS, document
from engine.http.openapi.schemas import SHAPES
from engine.messages import Problem
from engine.profile import Profile
from engine.resources import OPERATIONS
from engine.tokens.rules import SchemaKind
from tests.engine.http.described import check_answer
from tests.engine.http.live import KEY, MANAGER, Live

PROFILES = {
    "default": Profile(),
    "lenient": Profile().replace(
        tokens={
            "non_string_leaf": "pass",
            "scalar_body": "accept",
            "unknown_field": "ignore",
            "extra_types": ("iban",),
            "container_field": "container",
            "container_form": "string",
            "token_data": "any",
            "card_luhn": False,
            "plaintext_reads": True,
        },
        http={"key_header": "X-KEY", "tokenize_status": 201, "rate_limit_fields": False},
    ),
    "strict": Profile().replace(
        tokens={"empty_body": "reject", "limit_status": 422, "card_all_required": True},
        http={"retry_after": False},
        outside={"reactor_timeout_status": 500},
    ),
}


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
@pytest.mark.parametrize("kind", KINDS)
def test_every_document_is_openapi_3_1(kind: SchemaKind, profile: Profile) -> None:
    made = document(kind, profile)
    assert made["openapi"].startswith("3.1")
    validate(made)
    assert json.loads(json.dumps(made)) == made


def _operations(made: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for item in made["paths"].values() for operation in item.values()]


@pytest.mark.parametrize("kind", KINDS)
def test_every_operation_is_there_with_its_clauses_and_tier(kind: SchemaKind) -> None:
    found = {o["operationId"]: o for o in _operations(document(kind, Profile()))}
    for operation in OPERATIONS:
        names = [operation.name]
        if operation.method == "ANY":
            names = [f"{operation.name}_{m}" for m in ("get", "post", "put", "patch", "delete")]
        for name in names:
            assert found[name]["x-tier"] == operation.tier
            assert found[name]["x-clause"] == list(operation.clauses)
            assert bool(found[name]["security"]) == (operation.authentication != "none")
    assert SHAPES.keys() == {operation.name for operation in OPERATIONS}


def test_every_clause_that_a_document_names_exists() -> None:
    for name in chain.from_iterable(
        o["x-clause"] for o in _operations(document("full", Profile()))
    ):
        if name != "PRX-TIMEOUT":  # one clause with ERR-408
            assert clause(name).id == name


def test_the_floor_shows_no_answer_of_an_assumed_endpoint() -> None:
    for operation in _operations(document("floor", Profile())):
        shown = [answer for answer in operation["responses"].values() if "content" in answer]
        assert bool(shown) == (operation["x-tier"] == "specified")


def test_the_profile_decides_what_a_document_says() -> None:
    made = document("full", PROFILES["lenient"])
    assert made["components"]["securitySchemes"]["apiKey"]["name"] == "X-KEY"
    responses = made["paths"]["/tokenize"]["post"]["responses"]
    assert "201" in responses
    assert "200" not in responses
    assert "RateLimit" not in made["components"]["headers"]
    strict = document("full", PROFILES["strict"])
    assert "422" in strict["paths"]["/tokenize"]["post"]["responses"]


def _examples() -> list[Any]:
    return [
        pytest.param(path, method, operation, name, id=f"{operation['operationId']}-{name}")
        for path, item in document("full", Profile())["paths"].items()
        for method, operation in item.items()
        for media in operation.get("requestBody", {}).get("content", {}).values()
        for name in media.get("examples", {})
    ]


@pytest.mark.parametrize(("path", "method", "operation", "name"), _examples())
def test_every_example_is_accepted_and_answered_as_described(
    live: Live,
    full: dict[str, Any],
    path: str,
    method: str,
    operation: dict[str, Any],
    name: str,
) -> None:
    ((media_type, media),) = operation["requestBody"]["content"].items()
    value = media["examples"][name]["value"]
    schema = {**media["schema"], "components": full["components"]}
    Draft202012Validator(schema).validate(value)
    if "{id}" in path:
        path = path.replace("{id}", _made_for(live, full, path))
    headers = {"Content-Type": media_type}
    key = MANAGER if operation["operationId"] == "create_application_key" else KEY
    content = json.dumps(value)
    answer = live.ask(method.upper(), path, key=key, content=content, headers=headers)
    assert answer.is_success, answer.text
    check_answer(full, operation["operationId"], answer)


def _made_for(live: Live, full: dict[str, Any], path: str) -> str:
    collection = "/" + path.split("/")[1]
    content = full["paths"][collection]["post"]["requestBody"]["content"]["application/json"]
    example = next(iter(content["examples"].values()))["value"]
    made = live.ask("POST", collection, json=example)
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def test_problems_are_described_member_by_member(full: dict[str, Any]) -> None:
    """D-PROBLEM: a member that is added to errors alone fails here, not at a client."""
    schema = full["components"]["schemas"]["Problem"]
    whole = Problem(400, "No.", errors={"/a": ["is required"]}, clause="D-LEAF").response().body
    assert set(schema["properties"]) == set(whole)
    check = Draft202012Validator(schema).validate
    check(whole)
    for response in full["components"]["responses"].values():
        check(response["content"]["application/problem+json"]["example"])


@pytest.mark.parametrize("kind", ["full", "floor"])
def test_every_link_leads_to_an_operation_with_its_parameters(kind: SchemaKind) -> None:
    made = document(kind, Profile())
    operations = {o["operationId"]: o for o in _operations(made)}
    links = _all_links(made)
    assert {"get_token", "patch_token", "delete_token", "tokenize"} <= {
        link["operationId"] for link in links
    }
    for link in links:
        target = operations[link["operationId"]]
        names = {parameter["name"] for parameter in target.get("parameters", [])}
        assert set(link.get("parameters", {})) <= names


def _entered(schema: Any) -> Iterator[str]:
    """Return the names that a schema refers to, but for those behind `then`."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2]
        for word, inner in schema.items():
            if word != "then":
                yield from _entered(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _entered(inner)


def _arrays(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if schema.get("type") == "array":
            yield schema
        for inner in schema.values():
            yield from _arrays(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _arrays(inner)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())
def test_generators_of_clients_understand_the_document(profile: Profile) -> None:
    """What stops them: a schema that holds itself, an array of who knows what, a link's body."""
    made = document("full", profile)
    schemas = made["components"]["schemas"]
    order = TopologicalSorter({name: set(_entered(each)) for name, each in schemas.items()})
    assert len(list(order.static_order())) == len(schemas)
    for array in _arrays(made["paths"]):
        assert "items" in array
    for array in _arrays(schemas):
        assert "items" in array
    for link in _all_links(made):
        assert isinstance(link.get("requestBody", ""), str)


def _all_links(made: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        link
        for operation in _operations(made)
        for answer in operation["responses"].values()
        for link in answer.get("links", {}).values()
    ]


def test_the_server_shows_the_full_document(live: Live, full: dict[str, Any]) -> None:
    answer = live.ask("GET", "/openapi.json", key=None)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == full


def test_the_command_writes_each_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for kind in KINDS:
        assert main(["openapi", "--kind", kind, "--out", str(tmp_path / kind)]) == 0
        assert json.loads((tmp_path / kind).read_text("utf-8")) == document(kind, Profile())
    assert main(["openapi"]) == 0
    assert json.loads(capsys.readouterr().out) == document("full", Profile())


def test_the_command_takes_a_profile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "profile.toml"
    file.write_text(PROFILES["lenient"].to_toml(), encoding="utf-8")
    assert main(["openapi", "--profile", str(file)]) == 0
    assert json.loads(capsys.readouterr().out) == document("full", PROFILES["lenient"])


def test_the_command_says_where_it_cannot_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["openapi", "--out", str(tmp_path)]) == 2
    said = f"engine: --out = {tmp_path} must be a file to write: is a directory\n"
    assert capsys.readouterr().err == said
