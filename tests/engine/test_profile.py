"""Every open choice is a field with a closed list of values."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from engine import Engine
from engine.clauses import CLAUSES, DECISIONS, open_decision
from engine.cli import main
from engine.errors import InputError
from engine.profile import Profile, choices, decisions

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
    for choice in choices():
        for value in (*choice.readings, *choice.study):
            changed = Profile().replace(**{choice.section: {choice.name: value}})
            assert getattr(getattr(changed, choice.section), choice.name) == value


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"limits": {"algorithm": "gcrb"}},
            (
                'profile.limits.algorithm = "gcrb" must be one of "sliding-log", "fixed-window", '
                '"sliding-counter", "token-bucket", "gcra"; did you mean \'gcra\'?'
            ),
        ),
        (
            {"limits": {"algorithmn": "gcra"}},
            "profile.limits has no field 'algorithmn'; did you mean 'algorithm'?",
        ),
        ({"limit": {}}, "profile has no section 'limit'; did you mean 'limits'?"),
        (
            {"limits": {"delay_bound_ns": -1}},
            "profile.limits.delay_bound_ns = -1 must be at least 0",
        ),
        (
            {"limits": {"count_refused": 1}},
            "profile.limits.count_refused = 1 must be true or false",
        ),
        (
            {"tokens": {"depth_limit": 7}},
            "profile.tokens.depth_limit = 7 must be at least 8",
        ),
        (
            {"http": {"key_header": "API key"}},
            "profile.http.key_header = \"API key\" must be a header's name, as 'SVC-API-KEY' is",
        ),
    ],
)
def test_a_value_outside_its_choices_names_the_way_out(sections: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        Profile().replace(**sections)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"tokens": {"container_field": "metadata"}},
            "profile.tokens.container_field = 'metadata' must be a name of its own; ",
        ),
        (
            {"dedup": {"flag_name": "token_intent_id"}},
            "profile.dedup.flag_name = 'token_intent_id' must be a name of its own; ",
        ),
        (
            {"tokens": {"container_field": "c"}, "dedup": {"flag_name": "c"}},
            "profile.dedup.flag_name = 'c' must be a name of its own; ",
        ),
        (
            {"tokens": {"extra_types": ("iban", "b\0nk")}},
            "profile.tokens.extra_types holds 'b\\x00nk'; a type must be of letters, digits, ",
        ),
        (
            {"tokens": {"container_default_card": "pci"}},
            "profile.tokens.container_default_card = 'pci' must start and end with '/'",
        ),
    ],
)
def test_a_profile_that_contradicts_itself_is_refused_with_the_engine(
    sections: Any, message: str
) -> None:
    with pytest.raises(InputError) as error:
        Engine(profile=Profile().replace(**sections))
    assert str(error.value).startswith(message)


def test_a_profile_file_reads_back_and_obeys_the_shipped_schema(
    tmp_path: Path, repository: Path
) -> None:
    """The schema beside the code is the one that the fields make."""
    shipped = json.loads((repository / "engine/profile.schema.json").read_text(encoding="utf-8"))
    assert shipped == Profile.json_schema()
    changed = Profile().replace(
        limits={"algorithm": "gcra", "delay_bound_ns": 90_000_000_000, "burst_requests": 1},
        tokens={"extra_types": ("bank",), "limit_status": 413},
    )
    for profile in (Profile(), changed):
        text = profile.to_toml()
        path = tmp_path / "profile.toml"
        path.write_text(text, encoding="utf-8")
        assert Profile.from_toml(path) == profile
        Draft202012Validator(shipped).validate(tomllib.loads(text))
    assert 'delay_bound = "1m30s"' in changed.to_toml()


def test_a_profile_is_printed_with_every_field_explained(tmp_path: Path) -> None:
    """`engine profile`: decision, question, readings and what is for study, above each field."""
    printed = subprocess.run(
        [sys.executable, "-m", "engine", "profile"], capture_output=True, text=True, check=True
    ).stdout
    path = tmp_path / "profile.toml"
    path.write_text(printed, encoding="utf-8")
    assert Profile.from_toml(path) == Profile()
    words = " ".join(re.sub(r"\n# {3}", " ", printed).split())
    schema = Profile.json_schema()["$defs"]
    for choice in choices():
        assert f"# {choice.decision}: {choice.asks}" in words, choice.path
        for value in (*choice.readings, *choice.study):
            assert json.dumps(value) in words, (choice.path, value)
        name = choice.name.removesuffix("_ns").removesuffix("_bytes")
        section = type(getattr(Profile(), choice.section))
        held = schema[section.__name__]["properties"][name]
        assert held.get("x-study", []) == list(choice.study)
    assert "for study" in words


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[limits]\nalgorithm = "gcrb"\n',
            (
                'profile.toml:2:13: limits.algorithm = "gcrb" must be one of "sliding-log", '
                '"fixed-window", "sliding-counter", "token-bucket", "gcra"; did you mean'
            ),
        ),
        (
            "[limit]\n",
            "profile.toml:1:2: limit is an unknown key; did you mean 'limits'?",
        ),
        (
            '[limits]\ndelay_bound = "soon"\n',
            "profile.toml:2:15: limits.delay_bound",
        ),
    ],
)
def test_a_bad_profile_file_is_named_with_its_place(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "profile.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as error:
        Profile.from_toml(path)
    assert str(error.value).replace(f"{tmp_path}/", "").startswith(message), str(error.value)


# --- open decisions ------------------------------------------------------------------------------


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
