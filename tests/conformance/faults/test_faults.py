"""Known-bad deployments: one for each observable clause, each different from the engine."""

from __future__ import annotations

import pytest

from conformance.faults import all_faults, fault_of
from conformance.faults.trial import try_fault
from conformance.wire.in_process import deploy
from engine import InputError, ManualClock, Request
from engine.clauses import CLAUSES
from engine.service import Engine

SUBTLE = (
    "strings-rotated",
    "array-sorted",
    "values-swapped",
    "same-id-twice",
    "strings-before-invalid",
    "limit-by-top-level",
    "first-five-created",
    "dedup-not-in-one-request",
    "mask-fixed-length",
    "metadata-not-redacted",
    "redaction-wrong-way",
    "naive-timestamp",
    "secret-in-header",
    "first-container-only",
    "key-cut-short-accepted",
    "tokenize-one-more",
)


def test_every_observable_clause_has_a_fault() -> None:
    broken = {fault.clause for fault in all_faults().values()}
    missing = {clause.id for clause in CLAUSES if clause.unobservable is None} - broken
    assert missing == set()


def test_there_are_subtle_faults_beside() -> None:
    observable = sum(clause.unobservable is None for clause in CLAUSES)
    assert len(all_faults()) >= observable + 20


def test_each_says_what_is_wrong_in_one_sentence() -> None:
    for fault in all_faults().values():
        assert fault.description.endswith("."), fault.id
        assert len(fault.description) < 120, fault.id


def test_an_unknown_fault_is_named_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'array-reversed'"):
        fault_of("array-reverse")


@pytest.mark.slow
@pytest.mark.parametrize("fault_id", SUBTLE)
def test_subtle_faults_are_caught_by_their_own_clause(fault_id: str) -> None:
    trial = try_fault(fault_id)
    assert trial.is_killed, trial.message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault_id", "check_id"),
    [
        ("container-field-not-as-told", "model.sequences"),
        ("default-container-alternates", "model.sequences"),
        ("number-as-container-crashes", "model.sequences"),
        ("fingerprint-is-the-value", "model.sequences"),
        ("failures-counted-apart", "limits.counted"),
        ("public-legacy-unlimited", "limits.legacy-class"),
        ("unknown-field-crashes", "model.sequences"),
        ("data-and-encrypted-crash", "model.sequences"),
        ("metadata-crashes", "bounds.fields"),
        ("refused-read-shows-value", "model.sequences"),
        ("known-values-crash", "model.sequences"),
        ("deep-body-refused", "bounds.depth"),
        ("empty-body-crashes", "model.sequences"),
        ("null-crashes", "model.sequences"),
        ("updater-jobs-only", "limits.LIM-ACCOUNT-UPDATER"),
    ],
)
def test_checks_of_what_is_left_open_can_fail(fault_id: str, check_id: str) -> None:
    """They report readings; each still fails its clause where the deployment breaks it."""
    trial = try_fault(fault_id)
    assert check_id in trial.killers, trial.message
    assert trial.is_blamed, trial.causes


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault_id",
    ["data-empty-as-space", "sql-forbidden", "cvc-of-this-year-kept", "read-elsewhere-shows"],
)
def test_what_is_wrong_for_one_value_or_one_key_alone_is_blamed_on_its_clause(
    fault_id: str,
) -> None:
    trial = try_fault(fault_id)
    assert trial.is_blamed, trial.causes


def test_a_fault_changes_its_own_engine_only() -> None:
    faulty = deploy(engine=fault_of("array-reversed").engine)
    good = deploy()
    key = good.target.labels("private_prod")[0]
    answers = []
    for deployment in (faulty, good):
        assert isinstance(deployment.engine.clock, ManualClock)
        text = deployment.target.key_labels[key].value
        body = [{"type": "token", "data": "a"}, "b"]
        asked = Request("POST", "/tokenize", key=text, ip="192.0.2.1", body=body)
        answer = deployment.engine.handle(asked).body
        answers.append([type(one) for one in answer])
    assert answers == [[str, dict], [dict, str]]


def test_the_fault_of_a_mask_shows_one_digit_more_than_allowed_and_changes_no_more() -> None:
    """A check that caught it by anything else would not prove that it counts the digits."""
    faulty = deploy(engine=fault_of("sporadic-mask").engine)
    key = faulty.target.key_labels[faulty.target.labels("private_prod")[0]].value
    card = {"number": "4242424242424242", "expiration_month": 12, "expiration_year": 2031}
    body = {"type": "card", "data": card}
    asked = Request("POST", "/tokenize", key=key, ip="192.0.2.1", body=body)
    masks = [faulty.engine.handle(asked).body["mask"]["number"] for _ in range(50)]
    assert masks[:49] == [masks[0]] * 49
    assert masks[49] == masks[0][:-5] + "24242"
    assert sum(map(str.isdigit, masks[0])) == 4


def test_the_good_deployment_is_the_engine_itself() -> None:
    assert type(deploy().engine) is Engine


@pytest.mark.slow
def test_a_finding_on_a_retention_says_what_is_retained() -> None:
    trial = try_fault("log-lost-early")
    assert trial.message == "a log entry must be readable until its Log Retention has expired"


@pytest.mark.slow
def test_equal_objects_that_share_an_identifier_are_no_deduplication() -> None:
    trial = try_fault("equal-objects-one-id")
    assert trial.is_blamed, trial.causes
