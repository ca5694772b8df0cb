"""Token expressions in any JSON (D-DETOKENIZE, D-DETOKENIZE-COUNT, QUO-DETOKENIZE)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.messages import Json, Problem
from engine.tokens import Rules, read_expressions

MakeRules = Callable[..., Rules]


A = "0b0a4b1e-6c5d-4a60-9d7e-0d8a6d8f3a01"
B = "0b0a4b1e-6c5d-4a60-9d7e-0d8a6d8f3a02"
VALUES: dict[str, Json] = {A: "Ada", B: {"number": "4242424242424242", "month": 12}}
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("ab{} :é", max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=15,
)


def replaced(body: Json, rules: Rules) -> Json:
    return read_expressions(body, rules).rebuild(VALUES.__getitem__)


def test_a_whole_string_keeps_the_json_type(rules: Rules) -> None:
    for text in (f"{{{{ {B} }}}}", f"{{{{ token: {B} }}}}", f"{{{{{B}}}}}", f"{{{{token:{B}}}}}"):
        assert replaced({"k": [text]}, rules) == {"k": [VALUES[B]]}
    assert replaced(f"{{{{ {A.upper()} }}}}", rules) == "Ada"


def test_an_embedded_expression_becomes_text(rules: Rules) -> None:
    body = f"Hi {{{{ {A} }}}}, {{{{ token: {B} }}}}!"
    assert replaced(body, rules) == 'Hi Ada, {"number":"4242424242424242","month":12}!'
    assert replaced(f"{{{{ {A} }}}}{{{{ {A} }}}}", rules) == "AdaAda"
    assert replaced(f" {{{{ {A} }}}}", rules) == " Ada"


def test_a_value_that_looks_like_an_expression_is_not_read_again(rules: Rules) -> None:
    found = read_expressions(f"x {{{{ {A} }}}}", rules)
    assert found.rebuild(lambda _: f"{{{{ {B} }}}}") == f"x {{{{ {B} }}}}"


@given(PLAIN)
def test_what_holds_no_expression_comes_back_as_it_is(rules: Rules, body: Json) -> None:
    try:
        found = read_expressions(body, rules)
    except Problem:
        return
    if not found.token_ids:
        answer = found.rebuild(VALUES.__getitem__)
        assert answer == body
        assert repr(answer) == repr(body)


def test_keys_and_other_leaves_are_left_alone(rules: Rules) -> None:
    body = {f"{{{{ {A} }}}}": 1, "type": None, "n": [1.5, True, "{{ open", "} }}", "{x}"]}
    assert replaced(body, rules) == body
    assert read_expressions(body, rules).token_ids == []


def test_d_detokenize_count_repeats_or_distinct(rules: Rules, make_rules: MakeRules) -> None:
    body = [f"{{{{ {A} }}}}", f"{{{{ {B} }}}} {{{{ {A} }}}}"]
    found = read_expressions(body, rules)
    assert found.token_ids == [A, B, A]
    distinct = make_rules(detokenize_counts="distinct")
    assert (found.count(rules), found.count(distinct)) == (3, 2)
    found.check_limit(3, rules)
    found.check_limit(2, distinct)
    with pytest.raises(Problem) as caught:
        found.check_limit(2, rules)
    assert (caught.value.status, caught.value.clause) == (400, "QUO-DETOKENIZE")


def test_an_unknown_id_is_named_by_its_place(rules: Rules) -> None:
    found = read_expressions({"a": [f"{{{{ {A} }}}}"], "b/c": f"x {{{{ {B} }}}}"}, rules)
    problem = found.unknown([B])
    assert problem.status == 400
    assert problem.errors == {"/b~1c": ["must name tokens that exist"]}


@pytest.mark.parametrize("text", ["{{ }}", "{{}}", "{{ a b }}", "{{ token: }}", "{{ card: x }}"])
def test_braces_that_hold_no_expression_are_400(rules: Rules, text: str) -> None:
    with pytest.raises(Problem) as caught:
        read_expressions({"a": ["fine", f"x {text}"]}, rules)
    assert list(caught.value.errors or {}) == ["/a/1"]


def test_d_depth_holds_here_too(rules: Rules) -> None:
    body: list[Json] = []
    for _ in range(64):
        body = [body]
    with pytest.raises(Problem):
        read_expressions(body, rules)
    assert read_expressions(body[0], rules).rebuild(VALUES.__getitem__) == body[0]


@pytest.mark.timeout(20)
def test_megabytes_of_braces_are_read_in_one_pass(rules: Rules) -> None:
    for text in ("{{" * 1_000_000, "{{ " * 500_000, "{{" + "x" * 2_000_000, "{{ token" * 300_000):
        assert read_expressions(text, rules).token_ids == []
