"""The walk and the mirror (TOK-OBJECT, TOK-PLAIN, TOK-ARRAY, TOK-COMPOSITE, TOK-LEAF)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InputError
from engine.messages import Json, Problem
from engine.tokens.rules import Rules
from engine.tokens.shapes import TokenizeBody, walk, walk_one
from engine.tokens.types import validate

MakeRules = Callable[..., Rules]


KEYS = st.sampled_from(["", "__proto__", "a/b", "m~n", "Type", "data", "ключ", "k" * 300]) | (
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6).filter(lambda key: key != "type")
)
STRINGS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.just("x" * 5_000)
OBJECTS = st.fixed_dictionaries(
    {"type": st.just("token"), "data": STRINGS},
    optional={
        "metadata": st.just({"type": "is data here"}),
        "containers": st.sampled_from([[], ["/A/b/"]]),
    },
) | st.fixed_dictionaries(
    {"type": st.just("card"), "data": st.just({"number": "4242424242424242"})}
)
BODIES = st.recursive(
    STRINGS | OBJECTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=40,
).filter(lambda body: not isinstance(body, str))


def oracle(body: Any, pointer: str = "") -> list[tuple[str, Json]]:
    """Every element as (pointer, value), by the plainest recursion there is."""
    if isinstance(body, str) or (isinstance(body, dict) and "type" in body):
        return [(pointer, body)]
    found = []
    for key, value in body.items() if isinstance(body, dict) else enumerate(body):
        step = str(key).replace("~", "~0").replace("/", "~1")
        found += oracle(value, f"{pointer}/{step}")
    return found


def mirror(body: Any, results: Iterator[Json]) -> Json:
    if isinstance(body, str) or (isinstance(body, dict) and "type" in body):
        return next(results)
    if isinstance(body, dict):
        return {key: mirror(value, results) for key, value in body.items()}
    return [mirror(value, results) for value in body]


def pointers_of(call: Callable[[], object]) -> list[str]:
    with pytest.raises(Problem) as caught:
        call()
    assert caught.value.status == 400
    return list(caught.value.errors or {})


def rebuilt(walked: TokenizeBody, results: list[Json]) -> Json:
    """Return the answer with these results, one an element."""
    for element, result in zip(walked.elements, results, strict=True):
        element.slot[element.key] = result
    answer: Json = walked.root[0]
    return answer


@given(BODIES)
def test_tok_composite_the_walk_finds_what_the_oracle_finds(rules: Rules, body: Json) -> None:
    """One element a string leaf and a token request object, in document order."""
    walked = walk(body, rules)
    assert [(e.pointer, e.value) for e in walked.elements] == oracle(body)
    assert [e.is_leaf for e in walked.elements] == [isinstance(v, str) for _, v in oracle(body)]
    assert len(validate(walked, rules)) == len(oracle(body))


@given(BODIES)
def test_tok_composite_the_answer_mirrors_the_body_exactly(rules: Rules, body: Json) -> None:
    walked = walk(body, rules)
    results: list[Json] = [f"result {place}" for place in range(len(walked.elements))]
    answer = rebuilt(walked, results)
    expected = mirror(body, iter(results))
    assert answer == expected
    assert repr(answer) == repr(expected)  # the order of keys too


@given(BODIES, st.data())
def test_tok_atomic_an_invalid_one_anywhere_is_named_by_its_pointer(
    rules: Rules, body: Json, data: st.DataObject
) -> None:
    found = oracle(body)
    if not found:
        return
    at, _ = data.draw(st.sampled_from(found))
    broken = _replaced(body, at, {"type": "card", "data": {"number": "4242424242424241"}})
    assert pointers_of(lambda: validate(walk(broken, rules), rules)) == [f"{at}/data/number"]


@given(BODIES, st.data(), st.sampled_from([None, True, 1, 2.5]))
def test_d_leaf_a_leaf_that_is_no_string_is_named_by_its_pointer(
    rules: Rules, body: Json, data: st.DataObject, leaf: Json
) -> None:
    found = oracle(body)
    if not found or found[0][0] == "":
        return
    at, _ = data.draw(st.sampled_from(found))
    assert pointers_of(lambda: walk(_replaced(body, at, leaf), rules)) == [at]


def _replaced(body: Any, at: str, value: Json, pointer: str = "") -> Json:
    if pointer == at:
        return value
    if isinstance(body, str) or (isinstance(body, dict) and "type" in body):
        return body
    steps = {k: str(k).replace("~", "~0").replace("/", "~1") for k in _places(body)}
    if isinstance(body, dict):
        return {k: _replaced(v, at, value, f"{pointer}/{steps[k]}") for k, v in body.items()}
    return [_replaced(v, at, value, f"{pointer}/{k}") for k, v in enumerate(body)]


def _places(body: Any) -> Iterable[Any]:
    return body if isinstance(body, dict) else range(len(body))


@pytest.mark.parametrize("body", [{}, [], {"a": {}, "b": [[], {}]}])
def test_d_empty_a_body_without_a_token_is_echoed_or_refused(
    rules: Rules, make_rules: MakeRules, body: Json
) -> None:
    walked = walk(body, rules)
    assert walked.containers == ()
    assert rebuilt(walked, []) == body
    with pytest.raises(Problem):
        walk(body, make_rules(empty_body="reject"))


@pytest.mark.parametrize("body", ["x", 1, None, True, 1.5])
def test_d_scalar_a_bare_scalar_is_none_of_the_four_shapes(rules: Rules, body: Json) -> None:
    with pytest.raises(Problem, match="object or an array"):
        walk(body, rules)


def test_d_scalar_accepted_a_bare_string_is_one_leaf(make_rules: MakeRules) -> None:
    rules = make_rules(scalar_body="accept")
    walked = walk("x", rules)
    assert (len(walked.elements), rebuilt(walked, ["id"])) == (1, "id")
    assert walked.elements[0].is_leaf
    with pytest.raises(Problem):
        walk(5, rules)
    assert walk(5, make_rules(scalar_body="accept", non_string_leaf="pass")).root == [5]
    walked = walk(5, make_rules(scalar_body="accept", non_string_leaf="tokenize"))
    assert rebuilt(walked, ["id"]) == "id"


def test_d_leaf_passed_or_tokenized(make_rules: MakeRules) -> None:
    body = {"a": 1, "b": [None, "x"], "c": True}
    walked = walk(body, make_rules(non_string_leaf="pass"))
    assert rebuilt(walked, ["id"]) == {"a": 1, "b": [None, "id"], "c": True}
    rules = make_rules(non_string_leaf="tokenize")
    walked = walk(body, rules)
    assert [d.plaintext for d in validate(walked, rules)] == [b"1", b"null", b'"x"', b"true"]
    assert rebuilt(walked, [1, 2, 3, 4]) == {"a": 1, "b": [2, 3], "c": 4}


def _nested(levels: int, inner: Json = "x") -> Json:
    for _ in range(levels):
        inner = [inner]
    return inner


def test_d_depth_counts_objects_and_arrays(rules: Rules) -> None:
    walk(_nested(64), rules)
    assert pointers_of(lambda: walk(_nested(65), rules)) == ["/0" * 64]
    request = {"type": "token", "data": "x", "metadata": {"k": "v"}}
    walk(_nested(63, request), rules)
    assert pointers_of(lambda: walk(_nested(64, request), rules)) == ["/0" * 64]
    assert pointers_of(lambda: walk(_nested(900), rules)) == ["/0" * 64]


def test_d_depth_another_bound_is_kept_too(make_rules: MakeRules) -> None:
    walk(_nested(2_000), make_rules(depth_limit=2_000))
    assert pointers_of(lambda: walk(_nested(9), make_rules(depth_limit=8))) == ["/0" * 8]


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({"kind": {"type": "visa"}}, ["/kind/type"]),
        ({"type": "Card"}, ["/type"]),
        ({"type": None}, ["/type"]),
        ([{"type": ["card"]}, "x", {"type": {}}], ["/0/type", "/2/type"]),
        ({"a/b": {"type": 5}}, ["/a~1b/type"]),
    ],
)
def test_d_type_value_an_object_holding_type_is_a_token_request_object(
    rules: Rules, body: Json, pointers: list[str]
) -> None:
    assert pointers_of(lambda: walk(body, rules)) == pointers


def test_d_type_value_is_case_sensitive_and_may_have_more_types(
    rules: Rules, make_rules: MakeRules
) -> None:
    assert [e.pointer for e in walk({"Type": "x"}, rules).elements] == ["/Type"]
    walked = walk({"type": "bank"}, make_rules(extra_types=("bank",)))
    assert walked.elements[0].container == "/general/high/"


def test_tok_container_named_default_and_lower_cased(rules: Rules) -> None:
    """TOK-CONTAINER, D-CONTAINER, D-CONTAINER-DEFAULT."""
    body = [
        "x",
        {"type": "card"},
        {"type": "token", "containers": ["/PCI/Low_1/"]},
        {"type": "card", "containers": []},
        {"type": "token", "containers": ["/"]},
    ]
    walked = walk(body, rules)
    assert [e.container for e in walked.elements] == [
        "/general/high/", "/pci/high/", "/pci/low_1/", "/pci/high/", "/",
    ]  # fmt: skip
    assert walked.containers == ("/general/high/", "/pci/high/", "/pci/low_1/", "/")


@pytest.mark.parametrize(
    ("containers", "pointer"),
    [
        ("/a/", "/containers"),
        (None, "/containers"),
        (["/a/", "/b/"], "/containers"),
        ([None], "/containers/0"),
        (["a/"], "/containers/0"),
        (["/a"], "/containers/0"),
        (["/a//b/"], "/containers/0"),
        (["/ä/"], "/containers/0"),
        (["/a/\n"], "/containers/0"),
        ([""], "/containers/0"),
    ],
)
def test_d_container_what_is_no_path_is_named(rules: Rules, containers: Json, pointer: str) -> None:
    body = {"type": "token", "data": "x", "containers": containers}
    assert pointers_of(lambda: walk(body, rules)) == [pointer]


def test_d_container_another_name_and_form(make_rules: MakeRules) -> None:
    rules = make_rules(container_field="vault", container_form="string")
    walked = walk({"type": "token", "data": "x", "vault": "/A/"}, rules)
    assert walked.containers == ("/a/",)
    validate(walked, rules)
    body = {"type": "token", "data": "x", "vault": ["/a/"]}
    assert pointers_of(lambda: walk(body, rules)) == ["/vault"]


def test_d_container_default_of_the_profile_must_be_a_path(make_rules: MakeRules) -> None:
    with pytest.raises(InputError, match=r"^profile.tokens.container_default_card = 'pci' must"):
        make_rules(container_default_card="pci")


def test_d_order_every_fault_of_the_walk_is_named_at_once(rules: Rules) -> None:
    body = {
        "a": 1,
        "b": {"type": "visa"},
        "c": {"type": "token", "data": 5, "containers": "x"},
        "d": _nested(64),
    }
    # `data` of c is judged only after permissions.
    expected = ["/a", "/b/type", "/c/containers", "/d" + "/0" * 63]
    assert pointers_of(lambda: walk(body, rules)) == expected


def test_faults_are_bounded_and_counted(rules: Rules) -> None:
    with pytest.raises(Problem) as caught:
        walk([None] * 5_000, rules)
    assert len(caught.value.errors or {}) == 1_000
    assert caught.value.detail == "The body has 5000 faults. The first 1000 are named."


def test_d_create_one_token_request_object_only(rules: Rules) -> None:
    assert len(walk_one({"type": "token", "data": "x"}, rules).elements) == 1
    for body in ("x", [], [{"type": "token", "data": "x"}], None):
        with pytest.raises(Problem, match="token request object"):
            walk_one(body, rules)
    assert pointers_of(lambda: walk_one({"data": "x"}, rules)) == ["/type"]
