"""Every open decision can be chosen in the profile, or the list says that it cannot be and why."""

from __future__ import annotations

import pytest

from engine.clauses import CLAUSES, DECISIONS, open_decision
from engine.cli import main
from engine.errors import InputError
from engine.profile import choices, decisions

BY_ID = {decision.id: decision for decision in DECISIONS}


def test_the_list_and_the_profile_name_the_same_fields() -> None:
    assert len(BY_ID) == len(DECISIONS)
    listed = {each.id: set(each.fields) for each in DECISIONS if each.fields}
    assert listed == {name: set(fields) for name, fields in decisions().items()}


def test_a_decision_is_chosen_by_a_field_or_says_why_it_is_fixed() -> None:
    for decision in DECISIONS:
        assert bool(decision.fields) is not bool(decision.fixed), decision.id
        assert decision.question, decision.id
        assert decision.default, decision.id


def test_every_decision_that_a_clause_names_is_listed() -> None:
    named = {decision for clause in CLAUSES for decision in clause.decisions}
    assert named <= BY_ID.keys()


def test_a_field_with_readings_belongs_to_a_decision_with_alternatives() -> None:
    for choice in choices():
        decision = BY_ID[choice.decision]
        if choice.readings or choice.study:
            assert decision.alternatives or decision.id == "D-EDGES", choice.path
        if choice.study:
            assert decision.study, choice.path


def test_the_command_prints_a_decision(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clauses", "D-COMPOSE", "D-ORDER"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("D-COMPOSE  LIM-LOWEST\n  default: `all`")
    assert "  alternatives, for study: `lowest`" in said
    assert "  profile: limits.compose\n" in said
    assert "D-ORDER  order of checks\n" in said
    assert "  fixed: " in said
    with pytest.raises(InputError, match="did you mean 'D-ORDER'"):
        open_decision("D-ORDR")
