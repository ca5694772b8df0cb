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


def test_what_shares_an_exchange_with_a_sporadic_failure_follows_from_it() -> None:
    sporadic = _fail("TOK-PLAIN", "tokenize.steady", 7, symptoms=("once",))
    other = _fail("TOK-CONTAINER", "containers.named", 7, 8)
    apart = _fail("REC-ID", "record.fields", 9)
    found = {one.clause: one.follows for one in blamed([other, sporadic, apart])}
    assert found == {"TOK-PLAIN": None, "TOK-CONTAINER": "TOK-PLAIN", "REC-ID": None}


def test_two_faults_are_two_causes() -> None:
    """What nothing explains is a cause of its own, whatever else has failed."""
    found = blamed(
        [
            _fail("TOK-METADATA", "request.atomic", 1),
            _fail("TOK-ATOMIC", "request.atomic", 1, 2),
            _fail("TOK-ATOMIC", "request.atomic", 5, 6),
            _fail("REC-SECRET", "secrets.answers", 9),
        ]
    )
    assert [one.follows for one in found] == [None, "TOK-METADATA", None, None]


def test_an_answer_of_500_has_no_form_that_explains_what_others_hold() -> None:
    """Encrypted payloads in arrays crash, a mask is wrong, and spaces are trimmed."""
    found = blamed(
        [
            _fail("REC-CARD-MASK", "record.mask", 1),
            _fail("TOK-ARRAY", "tokenize.steady", 2, symptoms=("crashed",)),
            _fail("TOK-ENCRYPTED", "request.encrypted", 3, symptoms=("refused", "crashed")),
            _fail("TOK-DEDUP", "deduplication.equal", 4, symptoms=("shared-id",)),
        ]
    )
    assert {one.clause: one.follows for one in found} == {
        "REC-CARD-MASK": None,
        "TOK-ARRAY": "TOK-ENCRYPTED",
        "TOK-ENCRYPTED": None,
        "TOK-DEDUP": None,
    }


def test_causes_never_go_in_a_circle() -> None:
    found = blamed(
        [_fail(clause, "tokenize.mirror", 1) for clause in ("TOK-ARRAY", "TOK-LEAF")]
        + [_fail("REC-TYPE", "record.fields", 2)]
        + [_fail("TOK-OBJECT", "tokenize.mirror", 3)]
    )
    follows = {one.clause: one.follows for one in found}
    assert None in follows.values()
    for clause in follows:
        seen = []
        at: str | None = clause
        while at is not None:
            assert at not in seen
            seen.append(at)
            at = follows[at]


def test_passes_are_left_as_they_are() -> None:
    one = Finding("TOK-ARRAY", "tokenize.mirror", Verdict.PASS, "right", (1,))
    assert blamed([one]) == [one]


@pytest.mark.parametrize(
    ("check", "clause", "doubt", "addresses_count", "expected"),
    [
        ("reactors.code", "RCT-CODE", None, False, Verdict.INCONCLUSIVE),  # its key is in doubt
        ("tokenize.mirror", "TOK-ARRAY", None, False, Verdict.FAIL),  # it uses no such key
        ("limits.LIM-PRIVATE", "LIM-PRIVATE", "one proxy", False, Verdict.INCONCLUSIVE),
        ("limits.LIM-PRIVATE", "LIM-PRIVATE", "one proxy", True, Verdict.FAIL),
        ("tokenize.mirror", "TOK-ARRAY", "one proxy", False, Verdict.FAIL),
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
    assert ("; but " in found.says) == (expected is Verdict.INCONCLUSIVE)
