"""Every choice of the profile is discovered by a check, or it is said why it is not."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import conformance
from conformance.runner.choices import NOT_DISCOVERED, known_to_toml, read_profile
from conformance.runner.runner import Options, Run
from conformance.runner.verdicts import Verdict
from conformance.wire.in_process import deploy
from engine import Profile

_CODE = Path(conformance.__file__).parent


def choices() -> set[str]:
    """Return every choice as `section.field`."""
    return {
        f"{section.name}.{field.name}"
        for section in dataclasses.fields(Profile)
        for field in dataclasses.fields(getattr(Profile(), section.name))
    }


def reported() -> set[str]:
    """Return the choices that some check names in a reading; those of rows by the field alone."""
    files = [*(_CODE / "checks").glob("*.py"), _CODE / "probes" / "row_findings.py"]
    text = "\n".join(file.read_text("utf-8") for file in files)
    return {
        choice
        for choice in choices()
        if f'"{choice}"' in text or f'yield "{choice.partition(".")[2]}"' in text
    } | {f"http.{name}" for name in ("retry_after", "rate_limit_fields") if f'("{name}"' in text}


def test_a_choice_is_discovered_or_it_is_said_why_not() -> None:
    assert choices() - reported() <= set(NOT_DISCOVERED)
    assert set(NOT_DISCOVERED) <= choices()


def test_what_is_discovered_is_not_said_to_be_hidden() -> None:
    assert reported() & set(NOT_DISCOVERED) == set()


def test_a_discovered_profile_says_what_it_cannot_hold_and_loads(tmp_path: Path) -> None:
    file = tmp_path / "profile.toml"
    file.write_text(known_to_toml(Profile(), {"limits.algorithm"}), "utf-8")
    assert "# limits.edges: the readings differ in one nanosecond" in file.read_text("utf-8")
    profile, told = read_profile(file)
    assert (profile, told) == (Profile(), {"limits.algorithm"})


@pytest.mark.parametrize(
    ("name", "form"), [("containers", "array"), ("container", "array"), ("vault", "string")]
)
def test_what_the_container_field_is_called_is_discovered(name: str, form: str) -> None:
    """D-CONTAINER, TOK-CONTAINER: several names are tried, in both forms."""
    choices = {"container_field": name, "container_form": form, "unknown_field": "ignore"}
    made = deploy(profile=Profile().replace(tokens=choices))
    checks = ("containers.field", "containers.named")
    options = Options(checks=checks, select=("TOK-CONTAINER",), seed=3)
    run = Run(made.target, options, transport=made.transport)
    run.execute()
    assert {one.verdict for one in run.findings} == {Verdict.PASS}
    found = run.session.profile.tokens
    assert (found.container_field, found.container_form) == (name, form)


def test_requests_that_fail_and_need_not_count_fail_no_clause() -> None:
    """D-EMPTY, D-COUNTED: bursts of `{}` are then refused, and reach no rate."""
    readings = {"tokens": {"empty_body": "reject"}, "limits": {"counted_statuses": "success"}}
    made = deploy(profile=Profile().replace(**readings))
    names = ("throttle", "block", "lowest", "classes", "any", "counted", "status", "status-blocked")
    options = Options(checks=tuple(f"limits.{name}" for name in names), seed=3)
    run = Run(made.target, options, transport=made.transport)
    run.execute()
    said = {(one.clause, one.verdict) for one in run.findings}
    assert Verdict.FAIL not in {verdict for _, verdict in said}, said
    assert ("LIM-THROTTLE", Verdict.INCONCLUSIVE) in said
    assert ("LIM-BLOCK", Verdict.INCONCLUSIVE) in said
    assert run.session.profile.limits.counted_statuses == "success"
