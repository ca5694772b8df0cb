"""Every open choice is a field with a closed list of values."""

import dataclasses
from typing import Any

import pytest

from engine.clauses import CLAUSES
from engine.errors import InputError
from engine.profile import Profile, decisions

WITHOUT_CHOICE = {
    "D-BLOCK-OWN",
    "D-CLOCK",
    "D-CVC",
    "D-ENCRYPTED",
    "D-EXPR",
    "D-FINGERPRINT",
    "D-GRANT",
    "D-LOGS",
    "D-ORDER",
    "D-PERMISSIONS",
    "D-QUOTA-CHANGE",
    "D-SPLIT",
    "D-STRICT-JSON",
}


def test_every_decision_that_a_clause_names_is_a_field_or_has_one_answer_only() -> None:
    named = {decision for clause in CLAUSES for decision in clause.decisions}
    assert named - set(decisions()) == WITHOUT_CHOICE


def test_every_alternative_is_accepted_and_nothing_else() -> None:
    for section in dataclasses.fields(Profile):
        for item in dataclasses.fields(type(getattr(Profile(), section.name))):
            for value in (*item.metadata["readings"], *item.metadata["study"]):
                changed = Profile().replace(**{section.name: {item.name: value}})
                assert getattr(getattr(changed, section.name), item.name) == value


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"limits": {"algorithm": "gcrb"}},
            (
                "profile.limits.algorithm = 'gcrb' must be one of 'sliding-log', 'fixed-window', "
                "'sliding-counter', 'token-bucket', 'gcra'"
            ),
        ),
        (
            {"limits": {"algorithmn": "gcra"}},
            "profile.limits has no field 'algorithmn'; did you mean 'algorithm'?",
        ),
        ({"limit": {}}, "profile has no section 'limit'; did you mean 'limits'?"),
        (
            {"limits": {"delay_bound_ns": -1}},
            "profile.limits.delay_bound_ns = -1 must be a whole number of at least 0",
        ),
        (
            {"limits": {"count_refused": 1}},
            "profile.limits.count_refused = 1 must be one of False, True",
        ),
        (
            {"tokens": {"depth_limit": 7}},
            "profile.tokens.depth_limit = 7 must be a whole number of at least 8",
        ),
    ],
)
def test_a_value_outside_its_choices_names_the_way_out(sections: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        Profile().replace(**sections)
    assert str(error.value) == message
