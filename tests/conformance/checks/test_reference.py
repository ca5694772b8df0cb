"""The reference deployment passes every clause that can be seen, whatever its readings."""

from __future__ import annotations

import random
from typing import Any

import pytest

from conformance.context.check import all_checks
from conformance.context.verdicts import Finding, Verdict
from conformance.runner.runner import Options, Run
from conformance.wire.in_process import deploy
from engine import CLAUSES, Profile
from tests.conformance.checks.changed import clause_checks, judged

_LIMITS = {"ERR-429", "AUTH-KINDS", "AUTH-LEGACY"}
_OTHER_READINGS: dict[str, dict[str, Any]] = {
    "tokens": {
        "non_string_leaf": "tokenize",
        "scalar_body": "accept",
        "empty_body": "reject",
        "depth_limit": 10,
        "unknown_field": "ignore",
        "one_of": "data",
        "token_data": "any",
        "card_luhn": False,
        "metadata_entries_limit": 7,
        "metadata_value_limit": 1_000,
        "indexes_limit": 3,
        "limit_counts": "elements",
        "limit_status": 429,
        "detokenize_counts": "distinct",
        "card_view": "mask",
        "fpexpr_default": "shown",
        "card_fpexpr": "number",
        "plaintext_reads": True,
        "cvc_derive": "allow",
        "container_default_token": "/other/high/",
    },
    "dedup": {"container_in_key": False, "record": "update_existing", "redact": "narrow"},
    "http": {"tokenize_status": 201},
}
_MORE_READINGS: dict[str, dict[str, Any]] = {
    "tokens": {
        "card_view": "data",
        "non_string_leaf": "pass",
        "limit_status": 413,
        "one_of": "encrypted",
        "card_all_required": True,
    },
    "outside": {"reactor_code_limit": 51_200, "reactor_payload_limit_bytes": 1_048_576},
}


def _run(
    profile: Profile | None = None,
    *,
    without: tuple[str, ...] = (),
    beside: tuple[str, ...] = (),
    **more: Any,
) -> tuple[Run, list[Finding]]:
    deployment = deploy(profile=profile, **more)
    checks = (*(name for name in clause_checks() if name not in without), *beside)
    run = Run(deployment.target, Options(checks=checks, seed=11), transport=deployment.transport)
    run.execute()
    return run, [finding for finding in run.findings if finding.check in checks]


def test_every_clause_that_can_be_seen_has_a_check() -> None:
    """A clause without a check must say why, or be judged by the probes of limits."""
    judged = {clause for check in all_checks().values() for clause in check.clauses}
    without = {
        clause.id
        for clause in CLAUSES
        if clause.id not in judged and not clause.id.startswith("LIM-") and not clause.unobservable
    }
    assert without <= _LIMITS


@pytest.fixture(scope="module")
def whole() -> tuple[Run, list[Finding]]:
    return _run()


def test_the_reference_passes(whole: tuple[Run, list[Finding]]) -> None:
    _, findings = whole
    assert [finding for finding in findings if finding.verdict > Verdict.INFORMATIONAL] == []
    own = {clause for check in clause_checks().values() for clause in check.clauses}
    assert own == {finding.clause for finding in findings}


def test_every_finding_of_the_reference_leaves_evidence(whole: tuple[Run, list[Finding]]) -> None:
    run, findings = whole
    assert all(finding.evidence and finding.accepts for finding in findings)
    assert all(number in run.session.exchanges for one in findings for number in one.evidence)


@pytest.mark.slow
@pytest.mark.parametrize("readings", [_OTHER_READINGS, _MORE_READINGS], ids=["some", "others"])
def test_readings_are_discovered_and_never_failed(readings: dict[str, dict[str, Any]]) -> None:
    """What DECISIONS.md calls a reading is reported, as a profile that the engine can load."""
    profile = Profile().replace(**readings)
    run, findings = _run(profile, without=("account-updater.file",), beside=("model.sequences",))
    assert [finding for finding in findings if finding.verdict > Verdict.INFORMATIONAL] == []
    assert run.notes == []
    found = run.session.profile
    for section, values in readings.items():
        for name, value in values.items():
            assert getattr(getattr(found, section), name) == value, f"{section}.{name}"


@pytest.mark.slow
def test_the_form_of_the_container_field_is_discovered() -> None:
    profile = Profile().replace(tokens={"container_form": "string"})
    findings = judged("model.sequences", profile=profile)
    assert Verdict.FAIL not in {finding.verdict for finding in findings}
    assert ("tokens.container_form", "string") in {finding.reading for finding in findings}


@pytest.mark.slow
def test_a_told_profile_is_checked_with() -> None:
    """Names of fields cannot be discovered: told, they are used, and nothing is skipped."""
    profile = Profile().replace(
        tokens={"container_field": "place", "unknown_field": "ignore"},
        dedup={"flag_name": "dedupe"},
    )
    deployment = deploy(profile=profile)
    run = Run(
        deployment.target,
        Options(checks=("model.sequences",), seed=11),
        transport=deployment.transport,
        profile=profile,
    )
    run.execute()
    own = [finding for finding in run.findings if finding.check == "model.sequences"]
    assert {finding.verdict for finding in own} <= {Verdict.PASS, Verdict.INFORMATIONAL}


@pytest.mark.slow
def test_an_untold_container_field_is_no_failure() -> None:
    """A deployment that names its field otherwise is not failed, and not passed either."""
    profile = Profile().replace(
        tokens={"container_field": "place", "unknown_field": "ignore"}, dedup={"flag_name": "d"}
    )
    _, findings = _run(profile, without=("account-updater.file", "proxies.timeout"))
    assert Verdict.FAIL not in {finding.verdict for finding in findings}
    assert Verdict.ERROR not in {finding.verdict for finding in findings}
    assert Verdict.INCONCLUSIVE in {f.verdict for f in findings if f.clause == "TOK-CONTAINER"}


@pytest.mark.slow
def test_latency_raises_no_false_alarm() -> None:
    chance = random.Random(4)

    def latency() -> tuple[int, int]:
        return chance.randrange(150_000_000), chance.randrange(150_000_000)

    _, findings = _run(without=("account-updater.file",), latency=latency)
    assert [finding for finding in findings if finding.verdict > Verdict.INFORMATIONAL] == []
