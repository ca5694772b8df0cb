"""What naming faults costs: an answer in proportion to its request, and no work for what it omits.

A body of four million bytes may hold two million faults, 64 levels deep or below a name of three
million characters. To word each where it stands took a minute, and an answer of gigabytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from engine.tokens import expressions, rules, shapes, strict_json, types
from engine.tokens.shapes import PathNode
from tests.engine.deployment import Deployment

MANY = 3_000
LONG = "k" * 20_000
NOBODY = "{{ 00000000-0000-4000-8000-000000000000 }}"

FAULTY: dict[str, Any] = {
    "leaf": 1,
    "type": {"type": 1},
    "unknown type": {"type": "x"},
    "container": {"type": "token", "data": "x", "containers": "/a"},
    "container path": {"type": "token", "data": "x", "containers": ["a"]},
    "neither": {"type": "token"},
    "both": {"type": "token", "data": "x", "encrypted": "x"},
    "flag": {"type": "token", "data": "x", "deduplicate_token": 1},
    "data": {"type": "token", "data": 1},
    "card": {"type": "card", "data": 1},
    "card field": {"type": "card", "data": {"number": "1"}},
    "unknown field": {"type": "token", "data": "x", "dat": 1},
    "encrypted": {"type": "token", "encrypted": "x"},
    "intent": {"type": "token", "token_intent_id": "x"},
    "metadata": {"type": "token", "data": "x", "metadata": 1},
    "metadata value": {"type": "token", "data": "x", "metadata": {"a": 1}},
    "indexes": {"type": "token", "data": "x", "search_indexes": 1},
    "index": {"type": "token", "data": "x", "search_indexes": ["x"]},
    "index of nothing": {"type": "token", "data": "x", "search_indexes": ["{{ data.a }}"]},
    "expression": {"type": "token", "data": "x", "fingerprint_expression": "x"},
    "braces": "{{ token: x }}",
    "no token": NOBODY,
}
DETOKENIZED = {"braces", "no token"}


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The length of every pointer that was put together."""
    lengths: list[int] = []
    put: Callable[[PathNode, str | int], str] = shapes.pointer_to

    def counted(parent: PathNode, key: str | int) -> str:
        pointer = put(parent, key)
        lengths.append(len(pointer))
        return pointer

    for module in (shapes, expressions):
        monkeypatch.setattr(module, "pointer_to", counted)
    return lengths


def _ask(acme: Deployment, body: Any, *, detokenizes: bool) -> dict[str, Any]:
    acme.engine.set_quota(acme.tenant, "Tokenize Limit", MANY)  # D-BODY-COST lets as much through
    path = "/detokenize" if detokenizes else "/tokenize"
    answer = acme.ask("POST", path, body)
    assert answer.status == 400
    found: dict[str, Any] = answer.body
    return found


@pytest.fixture
def stepped(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every field that was put behind a pointer."""
    names: list[str] = []
    step = strict_json.escaped

    def counted(name: str) -> str:
        names.append(name)
        return step(name)

    for module in (types, rules):
        monkeypatch.setattr(module, "escaped", counted)
    return names


@pytest.mark.parametrize("name", FAULTY)
def test_d_problem_what_is_not_named_is_not_placed(
    acme: Deployment, placed: list[int], name: str
) -> None:
    """D-PROBLEM, TOK-ATOMIC: all faults are counted, a thousand are worded, no more are placed."""
    problem = _ask(acme, [FAULTY[name]] * MANY, detokenizes=name in DETOKENIZED)
    assert problem["detail"] == f"The body has {MANY} faults. The first 1000 are named."
    assert len(problem["errors"]) == 1_000
    assert len(placed) <= 1_001


@pytest.mark.parametrize("name", FAULTY)
def test_d_problem_a_long_name_is_not_said_for_all_that_stands_below_it(
    acme: Deployment, placed: list[int], name: str
) -> None:
    """D-PROBLEM, D-SIZE: an answer is not much larger than its request, nor is the work for it."""
    body = {LONG: [FAULTY[name]] * MANY}
    problem = _ask(acme, body, detokenizes=name in DETOKENIZED)
    assert len(orjson.dumps(problem)) < 300_000
    assert sum(placed) < 300_000
    named = len(problem["errors"])
    assert problem["detail"] == f"The body has {MANY} faults. The first {named} are named."
    assert 0 < named < 20
    assert all(pointer.startswith("/0/") for pointer in problem["errors"])


@pytest.mark.parametrize("kind", ["object", "card", "depth", "detokenized depth"])
def test_d_problem_fields_and_levels_below_a_long_name(
    acme: Deployment, placed: list[int], stepped: list[str], kind: str
) -> None:
    """D-UNKNOWN, D-DEPTH, D-PROBLEM: also where one object holds all the faults."""
    fields = {f"field {number}": 1 for number in range(MANY)}
    deep: Any = [[] for _ in range(MANY)]
    for _ in range(62):
        deep = [deep]
    bodies: dict[str, Any] = {
        "object": {LONG: {"type": "token", "data": "x", **fields}},
        "card": {LONG: {"type": "card", "data": {"number": "4242424242424242", **fields}}},
        "depth": {LONG: deep},
        "detokenized depth": {LONG: deep},
    }
    problem = _ask(acme, bodies[kind], detokenizes="detokenized" in kind)
    assert problem["detail"].startswith(f"The body has {MANY} faults. The first ")
    assert len(orjson.dumps(problem)) < 300_000
    assert sum(placed) < 300_000
    assert len(stepped) < 20


def test_d_problem_what_is_right_is_not_placed(acme: Deployment, placed: list[int]) -> None:
    """AUTH-CREATE, D-CONTAINER: to say where an object stands is work for one that is wrong."""
    key = acme.key_with("token:create", "token-intent:create")
    intent = acme.ask("POST", "/token-intents", {"type": "token", "data": "x"}, key=key).body["id"]
    body = [
        {"type": "token", "data": "x", "containers": ["/pci/"], "metadata": {"a": "b"}},
        {"type": "token", "token_intent_id": intent, "search_indexes": ["{{ data }}"]},
        FAULTY["card field"] | {"data": {"number": "4242424242424242", "cvc": "123"}},
        "leaf",
    ]
    acme.tokenize(body, key=key)
    assert placed == []
