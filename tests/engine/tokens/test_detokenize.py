"""Token expressions in any JSON (D-DETOKENIZE, D-DETOKENIZE-COUNT, QUO-DETOKENIZE)."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.messages import Json, Problem
from engine.tokens.expressions import read_expressions, splice
from engine.tokens.rules import Rules
from engine.tokens.strict_json import dumps

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


@pytest.mark.parametrize(
    "text", ["{{ }}", "{{}}", "{{ name }}", "{{ a b }}", "{{ token: }}", "{{ card: x }}", "{{{a}}}"]
)
def test_braces_that_hold_no_expression_pass(rules: Rules, text: str) -> None:
    """D-PASS-THROUGH: they are somebody else's template, beside an expression too."""
    body: Json = {"a": [text, f"x {text}"]}
    assert replaced(body, rules) == body
    assert replaced(f"{text} {{{{ {A} }}}} {text}", rules) == f"{text} Ada {text}"


def test_what_names_a_token_that_cannot_be_is_unknown(rules: Rules) -> None:
    assert read_expressions(["{{ token: name }}"], rules).token_ids == ["name"]


SENT = (
    b' { "n" : 12345678901234567.89 , "m":[1.10,1e2,-0.0,123456789012345678901234567890],\n'
    b'"t":"{{ name }} \\u00e9\\/","%s" : "x", "a":%s , "b": "\\u0041 %s" } '
)


@pytest.mark.parametrize("form", ["{{ %s }}", "{{token:%s}}", "\\u007b\\u007b %s \\u007d\\u007D"])
def test_every_other_byte_is_what_was_sent(rules: Rules, form: str) -> None:
    """D-PASS-THROUGH: digits, blanks, escapes and keys."""
    a, b = (form % value for value in (A, B))
    raw = SENT % (b"{{ %s }}" % A.encode(), f'"{b}"'.encode(), a.encode())
    assert read_expressions(orjson.loads(raw), rules).token_ids == [B, A]
    whole = b'{"number":"4242424242424242","month":12}'
    expected = SENT % (b"{{ %s }}" % A.encode(), whole, b"Ada")
    assert splice(raw, VALUES.__getitem__) == expected.replace(b"\\u0041 Ada", b"A Ada")


@given(PLAIN, st.integers(0, 3))
def test_a_text_without_an_expression_is_byte_for_byte_itself(body: Json, indent: int) -> None:
    raw = json.dumps(body, indent=indent or None).encode()
    assert splice(raw, VALUES.__getitem__) == raw


@given(PLAIN)
def test_both_ways_replace_alike(rules: Rules, body: Json) -> None:
    """A Python value and its text come to the same."""
    sent: Json = [body, f"{{{{ {B} }}}}", {"k": f"a {{{{ {A} }}}} b", f"{{{{ {A} }}}}": body}]
    assert orjson.loads(splice(dumps(sent), VALUES.__getitem__)) == replaced(sent, rules)


@pytest.mark.timeout(20)
def test_megabytes_of_braces_are_read_in_one_pass(rules: Rules) -> None:
    for text in ("{{" * 1_000_000, "{{ " * 500_000, "{{" + "x" * 2_000_000, "{{ token" * 300_000):
        assert read_expressions(text, rules).token_ids == []
