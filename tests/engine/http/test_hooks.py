"""The hooks for schemathesis leave out exactly what no generator of requests can know."""

from __future__ import annotations

import runpy
from types import SimpleNamespace
from typing import Any

import pytest
import schemathesis
from hypothesis import given

from engine.http.openapi import hooks
from engine.tokens.rules import is_luhn_valid

TOKEN = {"type": "token", "data": "Ada"}
SEALED = {"type": "token", "encrypted": "a.b.c.d.e"}
INTENT = {"type": "card", "token_intent_id": "00000000-0000-4000-8000-000000000000"}


def _is_judged(name: str, body: Any, *, is_positive: bool = True) -> bool:
    mode = SimpleNamespace(is_positive=is_positive)
    case = SimpleNamespace(
        body=body,
        meta=SimpleNamespace(generation=SimpleNamespace(mode=mode)),
        operation=SimpleNamespace(definition=SimpleNamespace(raw={"operationId": name})),
    )
    return hooks._can_be_judged(None, case)


@pytest.mark.parametrize(
    ("name", "body", "judged"),
    [
        ("tokenize", TOKEN, True),
        ("tokenize", SEALED, False),
        ("tokenize", {"a": [INTENT]}, False),
        ("tokenize", {"encrypted": "a text of a plain object"}, True),
        ("tokenize", ["a"] * 5, True),
        ("tokenize", ["a"] * 6, False),
        ("tokenize", {"a": ["b", TOKEN, {"c": "d", "e": TOKEN}], "f": "g"}, True),
        ("tokenize", {"a": ["b", TOKEN, {"c": "d", "e": TOKEN}], "f": ["g", "h"]}, False),
        ("tokenize", "a", True),
        ("detokenize", ["a"] * 6, True),
        ("create_token", SEALED, False),
        ("patch_token", {"metadata": {"a": "b"}}, True),
        ("patch_token", {"metadata": None, "search_indexes": None}, True),
        ("patch_token", {"search_indexes": ["{{ data }}"]}, False),
        ("patch_token", {"fingerprint_expression": "{{ data }}"}, False),
        *(("patch_token", {field: "x"}, False) for field in ("data", "encrypted", "type")),
        ("patch_token", None, True),
        ("create_proxy", {"name": "p", "host": None}, True),
        ("create_proxy", {"name": "p", "host": "a.example"}, False),
        ("patch_proxy", {"host": "a.example"}, False),
        ("patch_proxy", None, True),
        ("create_reactor", {"host": "a.example"}, True),
        ("get_token", None, True),
    ],
)
def test_a_valid_request_is_judged_unless_it_depends_on_the_store(
    name: str, body: Any, judged: bool
) -> None:
    assert _is_judged(name, body) is judged
    assert _is_judged(name, body, is_positive=False)


def test_a_case_of_unknown_origin_is_judged() -> None:
    assert hooks._can_be_judged(None, SimpleNamespace(meta=None))


def test_the_idempotency_key_is_no_parameter_that_is_generated() -> None:
    kept = {"name": "size", "in": "query"}
    key = {"name": "Idempotency-Key", "in": "header"}
    document = {"paths": {"/a": {"post": {"parameters": [key, kept]}, "get": {}}}}
    hooks._without_idempotency_keys(None, document)
    assert document == {"paths": {"/a": {"post": {"parameters": [kept]}, "get": {}}}}


@given(hooks._card_numbers())
def test_card_numbers_are_valid(number: str) -> None:
    """D-CARD: 12 to 19 digits, the last of which is the check digit."""
    assert 12 <= len(number) <= 19
    assert is_luhn_valid(number)


@pytest.mark.parametrize(
    ("variable", "is_loaded"), [("", False), ("other", False), ("engine.http.openapi.hooks", True)]
)
def test_the_hooks_are_registered_where_schemathesis_is_told_to(
    variable: str, is_loaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the variable that names the module, as schemathesis documents it."""
    named: list[str] = []

    def hook(name: str) -> Any:
        named.append(name)
        return lambda function: function

    monkeypatch.setenv("SCHEMATHESIS_HOOKS", variable)
    monkeypatch.setattr(schemathesis, "hook", hook)
    monkeypatch.setattr(schemathesis.openapi, "format", lambda name, _: named.append(name))
    runpy.run_path(str(hooks.__file__), run_name=hooks.__name__)
    formats = ["card-number", "jwe-compact", "data-expression"]
    assert named == ([*formats, "before_load_schema", "filter_case"] if is_loaded else [])
