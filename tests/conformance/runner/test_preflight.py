"""The preflight: which keys can be believed before anything is judged with them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from conformance.context.check import all_checks
from conformance.context.session import Session
from conformance.context.verdicts import Finding, Symptom, Verdict
from conformance.faults.registry import fault_of
from conformance.messages.exchange import HttpRequest
from conformance.runner.outcome import blamed, settled
from conformance.runner.preflight import Preflight, fly
from conformance.runner.runner import Options, Run
from conformance.wire.in_process import deploy
from conformance.wire.transport import Answer, Place
from engine import LimitTable, Profile
from engine.files import Rate
from tests.conformance.limits.measured import SECOND_NS

ROLE = "private_no_permission"


def _flown(status: int | None) -> Preflight:
    """Fly over a deployment that answers so to a key without permission; None: as it does."""
    deployment = deploy(keys_a_role=1)
    send = deployment.transport.send

    async def answering(ask: HttpRequest, place: Place) -> Answer:
        found = await send(ask, place)
        if ask.key == f"{ROLE}.1" and status is not None:
            found.status = status
        return found

    deployment.transport.send = answering  # type: ignore[method-assign] # reason: a service of its own
    session = Session(deployment.target, deployment.transport, seed=1)
    return fly(session, ["private_prod", ROLE], with_addresses=False)


@pytest.mark.parametrize("status", [None, 403, 404, 400, 422])
def test_a_key_without_permission_may_get_any_4xx_that_an_unknown_one_does_not(
    status: int | None,
) -> None:
    """D-STATUSES: any 4xx for 4xx."""
    found = _flown(status)
    assert found.accepted == ["private_prod", ROLE]
    assert found.apart_says == "not tested: this run measures no limits"


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (401, "got 401, like an unknown key: it may not be known there"),
        (200, "must have no permission; it got 200 instead of a 4xx"),
        (500, "must have no permission; it got 500 instead of a 4xx"),
    ],
)
def test_else_nothing_is_judged_with_it(status: int, says: str) -> None:
    found = _flown(status)
    assert found.accepted == ["private_prod"]
    assert says in found.problems[ROLE]


def test_a_key_that_a_header_gives_back_is_not_shown() -> None:
    deployment = deploy(keys_a_role=1)
    secret = deployment.target.key_texts["private_prod.1"]

    async def echoing(ask: HttpRequest, place: Place) -> Answer:
        return Answer(1, 2, 200, {"Content-Type": f"text/html; for={secret}"}, b"<p>")

    deployment.transport.send = echoing  # type: ignore[method-assign] # reason: a service of its own
    session = Session(deployment.target, deployment.transport, seed=1)
    found = fly(session, ["private_prod"], with_addresses=False)
    assert "text/html; for=<private_prod.1>" in found.problems["private_prod"]
    assert secret not in repr(found)


@pytest.mark.parametrize("lost", [{1}, {4}, {8}, {4, 5, 7, 8}, {4, 5, 6, 7, 8}])
def test_a_lost_answer_ends_no_run_and_no_answer_at_all_does(lost: set[int]) -> None:
    """The fourth to the eighth request show how long an answer takes; the first is repeated."""
    deployment = deploy(keys_a_role=1, latency=lambda: (1_000_000, 2_000_000))
    send, turns = deployment.transport.send, itertools.count(1)

    async def losing(ask: HttpRequest, place: Place) -> Answer:
        found = await send(ask, place)
        if next(turns) in lost:
            found.status, found.error = None, "cut off"
        return found

    deployment.transport.send = losing  # type: ignore[method-assign] # reason: a network of its own
    session = Session(deployment.target, deployment.transport, seed=1)
    found = fly(session, ["private_prod", "private_test"], with_addresses=False)
    assert found.accepted == ["private_prod", "private_test"]
    if len(lost) < 5:
        assert (found.fatal, found.latency_ns, found.jitter_ns) == (None, 3_000_000, 0)
    else:
        assert found.fatal == "no answer to POST /tokenize: cut off"


SEED = LimitTable.default()
ROW = "LIM-TEST-TENANT"


@pytest.mark.parametrize(
    ("changes", "limits", "is_one_address", "apart", "says"),
    [
        ({}, {}, False, True, "are counted separately"),
        ({"counter": "ip"}, {}, False, True, "are counted separately"),
        ({}, {"and_counter": "each"}, False, True, "are counted separately, whatever the key"),
        ({"counter": "key"}, {}, False, None, "are seen as one address, or only keys count"),
        ({}, {}, True, None, "are seen as one address, or only keys count"),
        ({"counter": "ip"}, {}, True, False, "as one address"),
        ({"shadow": True}, {}, False, None, "not seen: 101 requests were not refused"),
    ],
)
def test_two_addresses_are_told_apart_by_who_is_refused_where(
    changes: dict[str, Any],
    limits: dict[str, Any],
    is_one_address: bool,
    apart: bool | None,
    says: str,
) -> None:
    """LIM-TEST-TENANT, by key and address: what a front or another counter makes of it is said."""
    table = SEED.replace_rule(ROW, **changes)
    profile = Profile().replace(limits=limits)
    deployment = deploy(keys_a_role=2, limits=table, profile=profile)
    request = deployment.transport._request

    def sent(ask: HttpRequest) -> Any:
        found = request(ask)
        found.ip = "198.51.100.1" if is_one_address else found.ip
        return found

    deployment.transport._request = sent  # type: ignore[method-assign] # reason: a proxy in front
    session = Session(deployment.target, deployment.transport, seed=1)
    found = fly(session, ["private_test"], with_addresses=True)
    assert found.apart is apart
    assert found.apart_says.endswith(says)
    assert found.doubt == (found.apart_says if "or only keys count" in says else None)


@pytest.mark.parametrize("stays", [True, False])
def test_a_full_second_address_is_counted_apart_unless_its_refusals_may_have_ended(
    *, stays: bool
) -> None:
    """Other clients have blocked the second address: the first one still admits the other key."""
    table = SEED.replace_rule("LIM-IP", rate=Rate(150, 10 * SECOND_NS))
    deployment = deploy(keys_a_role=2, limits=table)
    transport, there = deployment.transport, deployment.target.sources[1]
    send, turns, of_other = transport.send, itertools.count(1), itertools.count(1)

    async def sent(ask: HttpRequest, place: Place) -> Answer:
        if next(turns) == 20:  # while the first address is filled
            theirs = HttpRequest(
                method="POST", path="/tokenize", key="private_prod.1", source=there
            )
            for _ in range(151):
                await send(theirs, place)
        if not stays and ask.key == "private_test.2" and next(of_other) == 2:
            await transport.sleep_until_ns(transport.now_ns + 60 * SECOND_NS)
        return await send(ask, place)

    transport.send = sent  # type: ignore[method-assign] # reason: other clients, and time
    session = Session(deployment.target, transport, seed=1)
    found = fly(session, ["private_test"], with_addresses=True)
    assert found.apart is (True if stays else None)
    is_said = "are counted separately, whatever the key" if stays else "ended during the test"
    assert found.apart_says.endswith(is_said)
    assert found.doubt == (None if stays else found.apart_says)


def test_addresses_are_not_told_apart_where_the_table_lacks_the_row() -> None:
    deployment = deploy(keys_a_role=2)
    told = LimitTable(tuple(rule for rule in SEED if rule.id != ROW))
    session = Session(deployment.target, deployment.transport, seed=1, limits=told)
    found = fly(session, ["private_test"], with_addresses=True)
    assert found.apart is None
    assert found.apart_says == "not tested: the limit table has no LIM-TEST-TENANT"


# --- causes --------------------------------------------------------------------------------------


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
