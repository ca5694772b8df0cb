"""Each check fails a deployment that breaks its clause in one small way.

The known-bad deployments of `conformance.faults` change the engine; here the answers and requests
are changed on the way, one case a check at least, so that no check exists that cannot fail.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from conformance.checks._drawing import tokens_in
from conformance.exchanges import Ask
from conformance.judgement import judge_one
from conformance.transport import Answer
from conformance.verdicts import Verdict
from engine import Profile
from tests.conformance.checks.broken import (
    Change,
    PartlyCreating,
    Redirect,
    SixAtMost,
    bench_of,
    changed_json,
    clause_checks,
    judged,
    verdicts,
)

_OTHER_ID = "0b0c8f34-6f0e-4a52-9f3a-2f2f6c1f7f10"


# --- what a deployment may do wrong -------------------------------------------------------------


def _text(ask: Ask) -> str:
    if isinstance(ask.body, bytes):
        return ask.body[:200].decode(errors="replace")
    return json.dumps(ask.body)


def _mapped(change: Callable[[Any], Any]) -> Change:
    """Change the JSON of every accepted answer to tokenize."""

    def changed(ask: Ask, answer: Answer) -> Answer:
        return changed_json(answer, change) if ask.path == "/tokenize" else answer

    return changed


def _walked(change: Callable[[Any], Any]) -> Change:
    """Change every part of every accepted answer to tokenize, the inner ones first."""

    def walk(part: Any) -> Any:
        if isinstance(part, list):
            part = [walk(one) for one in part]
        elif isinstance(part, dict) and "_extras" not in part:
            part = {key: walk(one) for key, one in part.items()}
        return change(part)

    return _mapped(walk)


def _records(change: Callable[[dict[str, Any]], Any]) -> Change:
    """Change every record in every accepted answer to tokenize."""

    def changed(part: Any) -> Any:
        if isinstance(part, dict) and "_extras" in part:
            change(part)
        return part

    return _walked(changed)


def _set(**fields: Any) -> Change:
    return _records(lambda record: record.update(fields))


def _deduplicated(change: Callable[[dict[str, Any]], Any]) -> Change:
    """Change the records of deduplicated tokens."""
    return _records(
        lambda record: change(record) if record["_extras"]["deduplicated"] is True else None
    )


def _answered(status: int, when: Callable[[Ask], bool]) -> Change:
    """Give another status to what is asked so."""

    def changed(ask: Ask, answer: Answer) -> Answer:
        if not when(ask):
            return answer
        return Answer(answer.sent_ns, answer.received_ns, status, {}, b'{"title": "no"}')

    return changed


def _accepted(when: Callable[[Ask], bool]) -> Change:
    """Accept what is asked so, with a record."""

    def changed(ask: Ask, answer: Answer) -> Answer:
        if not when(ask):
            return answer
        raw = json.dumps({"id": _OTHER_ID}).encode()
        return Answer(answer.sent_ns, answer.received_ns, 200, answer.headers, raw)

    return changed


def _as_key(label: str, when: Callable[[Ask], bool] = lambda ask: ask.key is not None) -> Redirect:
    """Answer as if another key had asked."""
    return lambda ask: dataclasses.replace(ask, key=label) if when(ask) else ask


def _reversed(part: Any) -> Any:
    return part[::-1] if isinstance(part, list) else part


def _without_last(part: Any) -> Any:
    return part[:-1] if isinstance(part, list) else part


def _lower_keys(part: Any) -> Any:
    is_plain = isinstance(part, dict) and "_extras" not in part
    return {key.lower(): one for key, one in part.items()} if is_plain else part


def _turned(part: Any) -> Any:
    """Hand each key the value of the next."""
    if not isinstance(part, dict) or "_extras" in part or len(part) < 2:
        return part
    values = list(part.values())
    return dict(zip(part, [*values[1:], values[0]], strict=True))


def _as_record(part: Any) -> Any:
    return {"id": part, "type": "token"} if isinstance(part, str) else part


def _as_identifier(part: Any) -> Any:
    return part["id"] if isinstance(part, dict) and "_extras" in part else part


def _one_identifier(part: Any) -> Any:
    return _OTHER_ID if isinstance(part, str) else part


def _new_identifier(part: Any) -> Any:
    return str(uuid.uuid4()) if isinstance(part, str) else part


def _first_four(record: dict[str, Any]) -> None:
    for name in ("mask", "data"):
        if isinstance(record.get(name), dict):
            number = record[name]["number"]
            record[name]["number"] = "4242" + "X" * (len(number) - 4)


def _with_cvc(record: dict[str, Any]) -> None:
    if isinstance(record.get("mask"), dict):
        record["mask"]["cvc"] = "XXX"


def _naive(record: dict[str, Any]) -> None:
    record["created_at"] = record["created_at"][:19]


def _in_a_header(ask: Ask, answer: Answer) -> Answer:
    """Say in a header what was sent."""
    headers = {**answer.headers, "X-Debug": _text(ask)[:4_000]}
    return Answer(answer.sent_ns, answer.received_ns, answer.status, headers, answer.body)


def _in_the_clear(name: str) -> Change:
    """Show under a name of its own what was sent as `data`."""

    def changed(ask: Ask, answer: Answer) -> Answer:
        data = ask.body.get("data") if isinstance(ask.body, dict) else None
        if not isinstance(data, str | dict):
            return answer
        return changed_json(answer, lambda record: {**record, name: data})

    return changed


def _container_of(path: Callable[[], str]) -> Change:
    """Show another container in every record."""
    return lambda ask, answer: changed_json(
        answer,
        lambda record: {**record, "containers": [path()]} if isinstance(record, dict) else record,
    )


def _quotas_shown(ask: Ask, answer: Answer) -> Answer:
    return changed_json(answer, lambda tenant: {**tenant, "quotas": {"Tokenize Limit": 6}})


def _one_job(ask: Ask, answer: Answer) -> Answer:
    if ask.method != "POST" or ask.path != "/account-updater/jobs":
        return answer
    return changed_json(answer, lambda job: {**job, "id": _OTHER_ID})


def _levels(body: Any) -> int:
    inner = body.values() if isinstance(body, dict) else body if isinstance(body, list) else ()
    return 1 + max(map(_levels, inner), default=0) if isinstance(body, dict | list) else 0


def _has(*parts: str) -> Callable[[Ask], bool]:
    return lambda ask: all(part in _text(ask) for part in parts)


def _after(count: int, when: Callable[[Ask], bool]) -> Callable[[Ask], bool]:
    """True for what is asked so, from the one after `count` on."""
    turn = itertools.count()
    return lambda ask: when(ask) and next(turn) >= count


_places = itertools.cycle(["/a/", "/b/"])


# --- the cases ----------------------------------------------------------------------------------

_CHANGES: list[tuple[str, str, Change]] = [
    ("tokenize.mirror", "TOK-ARRAY", _walked(_reversed)),
    ("tokenize.mirror", "TOK-ARRAY", _walked(_without_last)),
    ("tokenize.mirror", "TOK-PLAIN", _walked(_lower_keys)),
    ("tokenize.mirror", "TOK-COMPOSITE", _walked(_lower_keys)),
    ("tokenize.mirror", "TOK-LEAF", _walked(_as_record)),
    ("tokenize.mirror", "TOK-LEAF", _walked(_one_identifier)),
    ("tokenize.mirror", "TOK-OBJECT", _walked(_as_identifier)),
    ("tokenize.order", "TOK-ARRAY", _walked(_reversed)),
    ("tokenize.order", "TOK-PLAIN", _walked(_turned)),
    ("tokenize.order", "TOK-LEAF", _walked(_one_identifier)),
    ("tokenize.depth", "TOK-COMPOSITE", _answered(400, lambda ask: _levels(ask.body) > 7)),
    ("tokenize.empty", "TOK-COMPOSITE", _answered(500, lambda ask: ask.body == {})),
    ("tokenize.no-string", "TOK-COMPOSITE", _answered(500, _has('"leaf": null'))),
    ("tokenize.type-field", "TOK-OBJECT", _accepted(_has('"type": "visa"'))),
    ("tokenize.type-field", "TOK-PLAIN", _walked(_lower_keys)),
    ("request.valid", "TOK-METADATA", _answered(400, _has('"metadata"'))),
    ("request.valid", "TOK-TYPES", _walked(_reversed)),
    ("request.valid", "TOK-TOKEN-DATA", _answered(400, _has("\\u6c34"))),
    ("request.valid", "TOK-INDEXES", _answered(400, _has("search_indexes"))),
    ("request.valid", "TOK-FPEXPR", _answered(400, _has("fingerprint_expression"))),
    ("request.atomic", "TOK-TYPES", _accepted(_has("no-such-type"))),
    ("request.atomic", "TOK-CARD-DATA", _answered(500, _has('"cvc": 731'))),
    ("request.json", "TOK-JSON", _accepted(lambda ask: ask.body == b"hello")),
    ("request.encrypted", "TOK-ENCRYPTED", _answered(400, _has("encrypted", "[{"))),
    ("request.readings", "TOK-OBJECT", _answered(500, _has("no_such_field"))),
    ("request.both", "TOK-ONE-OF", _answered(500, _has("encrypted", "data"))),
    ("request.bounds", "TOK-METADATA", _answered(400, _has('"metadata"'))),
    (
        "quotas.tokenize-counts",
        "TOK-LIMIT",
        _answered(500, lambda ask: isinstance(ask.body, list) and len(ask.body) > 5),
    ),
    (
        "deduplication.equal",
        "TOK-DEDUP",
        _deduplicated(lambda record: record.update(id=str(uuid.uuid4()))),
    ),
    (
        "deduplication.equal",
        "TOK-DEDUP",
        _records(lambda record: record["_extras"].update(deduplicated=False)),
    ),
    (
        "deduplication.kept",
        "TOK-DEDUP",
        _deduplicated(lambda record: record.update(metadata={"o": "9"})),
    ),
    ("deduplication.leaves", "TOK-DEDUP", _walked(_new_identifier)),
    (
        "deduplication.redaction",
        "REC-DEDUP-REDACT",
        _deduplicated(lambda record: [record.pop(name, None) for name in ("data", "metadata")]),
    ),
    ("record.fields", "REC-ID", _set(id="token-1")),
    ("record.fields", "REC-ID", _set(id=_OTHER_ID)),
    ("record.fields", "REC-TENANT", _set(tenant_id="acme")),
    ("record.fields", "REC-TYPE", _set(type="card")),
    ("record.fields", "REC-CREATED", _records(_naive)),
    ("record.fields", "REC-CREATED", _set(created_by="somebody")),
    ("record.fields", "REC-EXTRAS", _set(_extras={"deduplicated": "false"})),
    ("record.fields", "REC-TOKEN-DATA", _set(data="XXXX")),
    ("record.tenants", "REC-TENANT", _set(tenant_id=_OTHER_ID)),
    ("record.tenants", "REC-CREATED", _set(created_by=_OTHER_ID)),
    ("record.mask", "REC-CARD-MASK", _records(_first_four)),
    ("record.mask", "REC-CARD-MASK", _records(_with_cvc)),
    ("record.echo", "REC-METADATA", _set(metadata={})),
    ("record.echo", "REC-INDEXES", _set(search_indexes=["{{ data }}"])),
    ("record.expression", "REC-FPEXPR", _set(fingerprint_expression="{{ data }}")),
    ("record.fingerprint", "REC-FINGERPRINT", _set(fingerprint="same")),
    ("record.value", "REC-FINGERPRINT", _in_the_clear("fingerprint")),
    ("secrets.answers", "REC-SECRET", _in_a_header),
    ("secrets.deduplicated", "REC-SECRET", _in_the_clear("clear")),
    ("containers.named", "TOK-CONTAINER", _container_of(lambda: "/general/high/")),
    ("containers.default", "TOK-CONTAINER", _container_of(lambda: next(_places))),
    ("containers.form", "TOK-CONTAINER", _answered(500, _has('"containers": 5'))),
    ("quotas.shown", "QUO-TENANT", _quotas_shown),
    ("proxies.timeout", "ERR-408", _answered(504, lambda ask: ask.path.endswith("/26"))),
    ("reactors.fan-out", "RCT-HOT", _answered(409, _after(4, _has("busy")))),
    ("account-updater.jobs", "ACC-SPLIT", _one_job),
]
_REDIRECTS: list[tuple[str, str, Redirect, Profile]] = [
    (
        "deduplication.redaction",
        "AUTH-READ",
        _as_key("dedup_reader.1", lambda ask: ask.key == "dedup.1"),
        Profile(),
    ),
    (
        "secrets.reads",
        "REC-SECRET",
        _as_key("private_reader.1"),
        Profile().replace(tokens={"plaintext_reads": True}),
    ),
    (
        "authentication.header",
        "AUTH-HEADER",
        _as_key("private_prod.1", lambda ask: ask.key is None and not ask.headers),
        Profile(),
    ),
    ("authentication.create", "AUTH-CREATE", _as_key("private_prod.1"), Profile()),
    ("authentication.containers", "AUTH-CREATE", _as_key("private_prod.1"), Profile()),
    (
        "authentication.grants",
        "AUTH-CREATE",
        _as_key("private_reader.1", lambda ask: (ask.key or "").startswith("made.")),
        Profile(),
    ),
    (
        "authentication.grants",
        "AUTH-READ",
        _as_key("private_reader.1", lambda ask: (ask.key or "").startswith("made.")),
        Profile(),
    ),
    (
        "proxies.timeout",
        "PRX-TIMEOUT",
        lambda ask: dataclasses.replace(ask, path=ask.path.replace("/26", "/13")),
        Profile(),
    ),
]
_PROFILES: list[tuple[str, str, Profile]] = [
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


def test_no_check_is_without_a_case() -> None:
    """What cannot fail is no check."""
    named = {case[0] for case in (*_CHANGES, *_REDIRECTS, *_PROFILES, *_ENGINES)}
    assert named == set(clause_checks())


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

    bench = bench_of("tokenize.mirror", _walked(renamed))
    failed = [one for one in judge_one(bench) if one.verdict is Verdict.FAIL]
    assert {finding.clause for finding in failed} == {"TOK-PLAIN"}
    asked = bench.session.exchanges[failed[0].evidence[0]].ask
    assert isinstance(asked.body, dict)
    assert list(asked.body) == ["TYPE"]
    assert """-d '{"TYPE": "under TYPE """ in asked.curl("http://localhost")


def test_a_drawn_failure_is_shrunk() -> None:
    """What is drawn holds up to five tokens in many levels; what shows the fault holds one."""
    change = _answered(400, lambda ask: _levels(ask.body) > 2 and "Ā" in str(ask.body))
    bench = bench_of("tokenize.mirror", change)
    failed = [one for one in judge_one(bench) if one.verdict is Verdict.FAIL]
    assert [finding.clause for finding in failed] == ["TOK-COMPOSITE"]
    asked = bench.session.exchanges[failed[0].evidence[0]].ask
    assert not isinstance(asked.body, bytes)
    assert tokens_in(asked.body) == 1
    assert _levels(asked.body) <= 4
