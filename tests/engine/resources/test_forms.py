"""Forms: a schema says once what a body may be (D-UNKNOWN for the operator's resources)."""

import pytest
from jsonschema import Draft202012Validator

from engine.messages import Problem
from engine.resources import OPERATIONS
from engine.resources.forms import BodySchema, object_schema, pointer


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
