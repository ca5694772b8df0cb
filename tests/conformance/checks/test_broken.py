"""Each check fails a deployment that breaks its clause in one small way.

The known-bad deployments of `conformance.faults` change the engine; here the answers and requests
are changed on the way, one case a check at least, so that no check exists that cannot fail.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from conformance.checks._bodies import tokens_in
from conformance.report.evidence import curl
from conformance.runner.outcome import judge_one
from conformance.runner.verdicts import Verdict
from engine import Profile
from tests.conformance.checks.broken import (
    Change,
    PartlyCreating,
    Redirect,
    SixAtMost,
    bench_of,
    clause_checks,
    judged,
    verdicts,
)
from tests.conformance.checks.changes import (
    OTHER_ID,
    accepted,
    after,
    answered,
    as_identifier,
    as_key,
    as_record,
    backwards,
    container_of,
    deduplicated,
    first_four,
    has,
    in_a_header,
    in_the_clear,
    levels,
    lower_keys,
    naive,
    new_identifier,
    one_identifier,
    one_job,
    places,
    quotas_shown,
    records,
    turned,
    walked,
    with_cvc,
    with_fields,
    without_last,
)

# --- the cases ----------------------------------------------------------------------------------

_CHANGES: list[tuple[str, str, Change]] = [
    ("tokenize.mirror", "TOK-ARRAY", walked(backwards)),
    ("tokenize.mirror", "TOK-ARRAY", walked(without_last)),
    ("tokenize.mirror", "TOK-PLAIN", walked(lower_keys)),
    ("tokenize.mirror", "TOK-COMPOSITE", walked(lower_keys)),
    ("tokenize.mirror", "TOK-LEAF", walked(as_record)),
    ("tokenize.mirror", "TOK-LEAF", walked(one_identifier)),
    ("tokenize.mirror", "TOK-OBJECT", walked(as_identifier)),
    ("tokenize.order", "TOK-ARRAY", walked(backwards)),
    ("tokenize.order", "TOK-PLAIN", walked(turned)),
    ("tokenize.order", "TOK-LEAF", walked(one_identifier)),
    ("tokenize.depth", "TOK-COMPOSITE", answered(400, lambda ask: levels(ask.body) > 7)),
    ("tokenize.empty", "TOK-COMPOSITE", answered(500, lambda ask: ask.body == {})),
    ("tokenize.no-string", "TOK-COMPOSITE", answered(500, has('"leaf": null'))),
    ("tokenize.type-field", "TOK-OBJECT", accepted(has('"type": "visa"'))),
    ("tokenize.type-field", "TOK-PLAIN", walked(lower_keys)),
    ("request.valid", "TOK-METADATA", answered(400, has('"metadata"'))),
    ("request.valid", "TOK-TYPES", walked(backwards)),
    ("request.valid", "TOK-TOKEN-DATA", answered(400, has("\\u6c34"))),
    ("request.valid", "TOK-INDEXES", answered(400, has("search_indexes"))),
    ("request.valid", "TOK-FPEXPR", answered(400, has("fingerprint_expression"))),
    ("request.atomic", "TOK-TYPES", accepted(has("no-such-type"))),
    ("request.atomic", "TOK-CARD-DATA", answered(500, has('"cvc": 731'))),
    ("request.json", "TOK-JSON", accepted(lambda ask: ask.body == b"hello")),
    ("request.encrypted", "TOK-ENCRYPTED", answered(400, has("encrypted", "[{"))),
    ("request.readings", "TOK-OBJECT", answered(500, has("no_such_field"))),
    ("request.both", "TOK-ONE-OF", answered(500, has("encrypted", "data"))),
    ("request.bounds", "TOK-METADATA", answered(400, has('"metadata"'))),
    (
        "quotas.tokenize-counts",
        "TOK-LIMIT",
        answered(500, lambda ask: isinstance(ask.body, list) and len(ask.body) > 5),
    ),
    (
        "deduplication.equal",
        "TOK-DEDUP",
        deduplicated(lambda record: record.update(id=str(uuid.uuid4()))),
    ),
    (
        "deduplication.equal",
        "TOK-DEDUP",
        records(lambda record: record["_extras"].update(deduplicated=False)),
    ),
    (
        "deduplication.kept",
        "TOK-DEDUP",
        deduplicated(lambda record: record.update(metadata={"o": "9"})),
    ),
    ("deduplication.leaves", "TOK-DEDUP", walked(new_identifier)),
    (
        "deduplication.redaction",
        "REC-DEDUP-REDACT",
        deduplicated(lambda record: [record.pop(name, None) for name in ("data", "metadata")]),
    ),
    ("record.fields", "REC-ID", with_fields(id="token-1")),
    ("record.fields", "REC-ID", with_fields(id=OTHER_ID)),
    ("record.fields", "REC-TENANT", with_fields(tenant_id="acme")),
    ("record.fields", "REC-TYPE", with_fields(type="card")),
    ("record.fields", "REC-CREATED", records(naive)),
    ("record.fields", "REC-CREATED", with_fields(created_by="somebody")),
    ("record.fields", "REC-EXTRAS", with_fields(_extras={"deduplicated": "false"})),
    ("record.fields", "REC-TOKEN-DATA", with_fields(data="XXXX")),
    ("record.tenants", "REC-TENANT", with_fields(tenant_id=OTHER_ID)),
    ("record.tenants", "REC-CREATED", with_fields(created_by=OTHER_ID)),
    ("record.mask", "REC-CARD-MASK", records(first_four)),
    ("record.mask", "REC-CARD-MASK", records(with_cvc)),
    ("record.echo", "REC-METADATA", with_fields(metadata={})),
    ("record.echo", "REC-INDEXES", with_fields(search_indexes=["{{ data }}"])),
    ("record.expression", "REC-FPEXPR", with_fields(fingerprint_expression="{{ data }}")),
    ("record.fingerprint", "REC-FINGERPRINT", with_fields(fingerprint="same")),
    ("record.value", "REC-FINGERPRINT", in_the_clear("fingerprint")),
    ("secrets.answers", "REC-SECRET", in_a_header),
    ("secrets.deduplicated", "REC-SECRET", in_the_clear("clear")),
    ("containers.named", "TOK-CONTAINER", container_of(lambda: "/general/high/")),
    ("deduplication.tenants", "TOK-DEDUP", with_fields(_extras={"deduplicated": True})),
    ("deduplication.at-once", "TOK-DEDUP", with_fields(_extras={"deduplicated": False})),
    ("containers.default", "TOK-CONTAINER", container_of(lambda: next(places))),
    ("containers.form", "TOK-CONTAINER", answered(500, has('"containers": 5'))),
    ("quotas.shown", "QUO-TENANT", quotas_shown),
    ("proxies.timeout", "ERR-408", answered(504, lambda ask: ask.path.endswith("/26"))),
    ("reactors.fan-out", "RCT-HOT", answered(409, after(4, has("busy")))),
    ("account-updater.jobs", "ACC-SPLIT", one_job),
    ("account-updater.jobs", "ACC-SPLIT", answered(409, lambda ask: ask.path.endswith("/jobs"))),
]
_REDIRECTS: list[tuple[str, str, Redirect, Profile]] = [
    (
        "deduplication.redaction",
        "AUTH-READ",
        as_key("dedup_reader.1", lambda ask: ask.key == "dedup.1"),
        Profile(),
    ),
    (
        "secrets.reads",
        "REC-SECRET",
        as_key("private_reader.1"),
        Profile().replace(tokens={"plaintext_reads": True}),
    ),
    (
        "authentication.header",
        "AUTH-HEADER",
        as_key("private_prod.1", lambda ask: ask.key is None and not ask.headers),
        Profile(),
    ),
    ("authentication.create", "AUTH-CREATE", as_key("private_prod.1"), Profile()),
    ("authentication.containers", "AUTH-CREATE", as_key("private_prod.1"), Profile()),
    (
        "authentication.grants",
        "AUTH-CREATE",
        as_key("private_reader.1", lambda ask: (ask.key or "").startswith("made.")),
        Profile(),
    ),
    (
        "authentication.grants",
        "AUTH-READ",
        as_key("private_reader.1", lambda ask: (ask.key or "").startswith("made.")),
        Profile(),
    ),
]
_PROFILES: list[tuple[str, str, Profile]] = [
    (
        "proxies.timeout",
        "PRX-TIMEOUT",
        Profile().replace(outside={"destination_timeout_ns": 27_000_000_000}),
    ),
    (
        "reactors.code",
        "RCT-CODE",
        Profile().replace(outside={"reactor_code_limit": 51_201}),
    ),
    (
        "reactors.code",
        "RCT-CODE",
        Profile().replace(outside={"reactor_code_limit": 49_999}),
    ),
    (
        "reactors.payload",
        "RCT-PAYLOAD",
        Profile().replace(outside={"reactor_payload_limit_bytes": 1_048_577}),
    ),
    (
        "reactors.timeout",
        "RCT-TIMEOUT",
        Profile().replace(outside={"reactor_timeout_ns": 60_000_000_000}),
    ),
    (
        "reactors.timeout",
        "RCT-TIMEOUT",
        Profile().replace(outside={"reactor_timeout_ns": 20_000_000_000}),
    ),
    (
        "account-updater.file",
        "ACC-FILE",
        Profile().replace(account_updater={"file_limit_bytes": 29_999_999}),
    ),
]
_ENGINES: list[tuple[str, str, type[PartlyCreating | SixAtMost]]] = [
    ("request.atomic", "TOK-ATOMIC", PartlyCreating),
    ("request.atomic-leaf", "TOK-ATOMIC", PartlyCreating),
    ("quotas.tokenize-whole", "TOK-LIMIT", PartlyCreating),
    ("quotas.tokenize", "TOK-LIMIT", SixAtMost),
    ("quotas.tokenize", "QUO-TOKENIZE", SixAtMost),
    ("quotas.detokenize", "QUO-DETOKENIZE", SixAtMost),
    ("quotas.tenants", "QUO-TENANT", SixAtMost),
    ("quotas.retention", "QUO-CVC", SixAtMost),
    ("quotas.retention", "QUO-INTENT", SixAtMost),
    ("quotas.retention", "QUO-LOG", SixAtMost),
]
_TOLD: list[tuple[str, str, Profile]] = [
    (
        "containers.field",
        "TOK-CONTAINER",
        Profile().replace(tokens={"container_field": "vault"}),
    ),
]


@pytest.mark.parametrize(("check_id", "clause", "change"), _CHANGES)
def test_changed_answers_are_caught(check_id: str, clause: str, change: Change) -> None:
    assert Verdict.FAIL in verdicts(judged(check_id, change), clause)


@pytest.mark.parametrize(("check_id", "clause", "redirect", "profile"), _REDIRECTS)
def test_rights_of_others_are_caught(
    check_id: str, clause: str, redirect: Redirect, profile: Profile
) -> None:
    findings = judged(check_id, redirect=redirect, profile=profile)
    assert Verdict.FAIL in verdicts(findings, clause)


@pytest.mark.parametrize(("check_id", "clause", "profile"), _PROFILES)
def test_wrong_bounds_are_caught(check_id: str, clause: str, profile: Profile) -> None:
    assert Verdict.FAIL in verdicts(judged(check_id, profile=profile), clause)


@pytest.mark.parametrize(("check_id", "clause", "engine"), _ENGINES)
def test_wrong_engines_are_caught(
    check_id: str, clause: str, engine: type[PartlyCreating | SixAtMost]
) -> None:
    assert Verdict.FAIL in verdicts(judged(check_id, engine=engine), clause)


@pytest.mark.parametrize(("check_id", "clause", "told"), _TOLD)
def test_a_profile_that_is_not_followed_is_caught(
    check_id: str, clause: str, told: Profile
) -> None:
    assert Verdict.FAIL in verdicts(judged(check_id, told=told), clause)


def test_no_check_is_without_a_case() -> None:
    """What cannot fail is no check."""
    cases = (*_CHANGES, *_REDIRECTS, *_PROFILES, *_ENGINES, *_TOLD)
    named = {case[0] for case in cases}
    # They judge what the others have got, and are broken in test_steadiness.
    assert named == set(clause_checks()) - {"tokenize.steady", "tokenize.read-back"}


def test_no_clause_is_without_a_case() -> None:
    named = {case[1] for case in (*_CHANGES, *_REDIRECTS, *_PROFILES, *_ENGINES)}
    own = {clause for check in clause_checks().values() for clause in check.clauses}
    assert own - named == set()


def test_a_failure_is_shrunk_and_shown_as_curl() -> None:
    """A fault of one odd key deep in a body comes out as the smallest body that shows it."""

    def renamed(part: Any) -> Any:
        if isinstance(part, dict) and "TYPE" in part:
            return {{"TYPE": "type"}.get(key, key): one for key, one in part.items()}
        return part

    bench = bench_of("tokenize.mirror", walked(renamed))
    failed = [one for one in judge_one(bench) if one.verdict is Verdict.FAIL]
    assert {finding.clause for finding in failed} == {"TOK-PLAIN"}
    asked = bench.session.exchanges[failed[0].evidence[0]].ask
    assert isinstance(asked.body, dict)
    assert list(asked.body) == ["TYPE"]
    assert """-d '{"TYPE": "under TYPE """ in curl(bench.target, asked)


def test_a_drawn_failure_is_shrunk() -> None:
    """What is drawn holds up to five tokens in many levels; what shows the fault holds one."""
    change = answered(400, lambda ask: levels(ask.body) > 2 and "Ā" in str(ask.body))
    bench = bench_of("tokenize.mirror", change)
    failed = [one for one in judge_one(bench) if one.verdict is Verdict.FAIL]
    assert [finding.clause for finding in failed] == ["TOK-COMPOSITE"]
    asked = bench.session.exchanges[failed[0].evidence[0]].ask
    assert not isinstance(asked.body, bytes)
    assert tokens_in(asked.body) == 1
    assert levels(asked.body) <= 4
