"""One fault has one cause: the clause that is broken; the others say what they follow from."""

from __future__ import annotations

import pytest

from conformance.context.check import all_checks
from conformance.context.verdicts import Finding, Symptom, Verdict
from conformance.faults.registry import fault_of
from conformance.runner.outcome import blamed, settled
from conformance.runner.runner import Options, Run
from conformance.wire.in_process import deploy

SLOW = {"account-updater.file", "proxies.timeout", "reactors.timeout", "reactors.payload"}


def _causes(fault_id: str) -> list[str]:
    """Return the clauses that are named as causes when all checks but those of limits have run."""
    checks = tuple(
        check.id
        for check in all_checks().values()
        if not check.is_probe and not check.id.startswith("schema.") and check.id not in SLOW
    )
    deployment = deploy(engine=fault_of(fault_id).engine)
    run = Run(deployment.target, Options(checks=checks, seed=7), transport=deployment.transport)
    return [one.clause.id for one in run.execute().results if one.is_failed and not one.follows]


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault_id",
    [
        "array-reversed",
        "keys-composed",
        "same-id-twice",
        "nested-flattened",
        "mixed-types-refused",
        "month-as-text",
        "partial-creation",
        "tokenize-one-more",
        "limit-by-objects",
        "quota-of-ten",
        "dedup-with-new-id",
        "id-not-uuid",
        "type-capitalised",
        "mask-last-four-first",
        "extras-as-text",
        "metadata-not-redacted",
        "read-not-asked-for",
        "container-ignored",
        "cvc-lost-early",
        "dedup-between-tenants",
        "sporadic-error",
    ],
)
def test_the_broken_clause_is_the_only_cause(fault_id: str) -> None:
    assert _causes(fault_id) == [fault_of(fault_id).clause]


def _fail(clause: str, check: str, *evidence: int, symptoms: tuple[Symptom, ...] = ()) -> Finding:
    return Finding(clause, check, Verdict.FAIL, "it differs", evidence, symptoms=symptoms)


def test_what_others_saw_refused_follows_from_the_models_cause() -> None:
    cause = _fail("TOK-TYPES", "model.sequences", 7)
    quota = _fail("QUO-TOKENIZE", "quotas.tokenize", 8, symptoms=("refused",))
    form = _fail("TOK-PLAIN", "preflight", 2)
    apart = _fail("AUTH-HEADER", "authentication.header", 9)
    limit = _fail("LIM-PUBLIC", "limits.LIM-PUBLIC", 10, symptoms=("refused",))
    found = {one.clause: one.follows for one in blamed([quota, form, apart, limit, cause])}
    assert found == {
        "TOK-TYPES": None,
        "QUO-TOKENIZE": "TOK-TYPES",
        "TOK-PLAIN": "TOK-TYPES",
        "AUTH-HEADER": None,
        "LIM-PUBLIC": None,
    }


def test_two_faults_are_two_causes() -> None:
    """What nothing explains is a cause of its own, whatever else has failed."""
    found = blamed(
        [
            _fail("TOK-METADATA", "model.sequences", 1),
            _fail("REC-SECRET", "answers.json", 9),
            _fail("QUO-TENANT", "quotas.shown", 3),
            _fail("QUO-CVC", "quotas.retention", 4),
        ]
    )
    assert [one.follows for one in found] == [None, None, "QUO-CVC", None]


def test_passes_are_left_as_they_are() -> None:
    one = Finding("TOK-ARRAY", "model.sequences", Verdict.PASS, "right", (1,))
    assert blamed([one]) == [one]


@pytest.mark.parametrize(
    ("check", "clause", "doubt", "addresses_count", "expected"),
    [
        ("reactors.code", "RCT-CODE", None, False, Verdict.INCONCLUSIVE),  # its key is in doubt
        ("bounds.fields", "TOK-METADATA", None, False, Verdict.FAIL),  # it uses no such key
        ("limits.LIM-PRIVATE", "LIM-PRIVATE", "one proxy", False, Verdict.INCONCLUSIVE),
        ("limits.LIM-PRIVATE", "LIM-PRIVATE", "one proxy", True, Verdict.FAIL),
        ("model.sequences", "TOK-ARRAY", "one proxy", False, Verdict.FAIL),
    ],
)
def test_a_failure_that_rests_on_a_doubt_is_inconclusive(
    check: str, clause: str, doubt: str | None, addresses_count: bool, expected: Verdict
) -> None:
    failed = Finding(clause, check, Verdict.FAIL, "it differs")
    seen = [failed]
    if addresses_count:
        seen.append(Finding("LIM-IP", "limits.LIM-IP", Verdict.PASS, "counted by address"))
    doubts = {"management": "its key may not be known there"}
    found = settled(seen, all_checks(), doubt, doubts)[0]
    assert found.verdict is expected
    assert ("; but " in found.message) == (expected is Verdict.INCONCLUSIVE)
