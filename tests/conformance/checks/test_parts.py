"""What the clause checks are made of: strategies, searches, the oracle."""

from __future__ import annotations

import base64
import importlib
import json
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from conformance.checks.account_updater import batch_file
from conformance.context.answers import is_secret_in, is_uuid, text_in
from conformance.context.verdicts import Verdict
from conformance.messages.exchange import Exchange, HttpRequest
from conformance.model.reference import Reference
from conformance.report.evidence import curl
from conformance.schema.oracle import mirror_faults
from conformance.schema.repeating import BACKEND, repeating
from conformance.wire.in_process import deploy
from conformance.wire.transport import Answer
from engine import Profile
from engine.resources.account_updater import read_batch
from tests.conformance.checks.changed import bench_of, judged, judged_of

_CARD = {"type": "card", "data": {"number": "4242424242424242"}}


def test_the_reference_mirrors_a_body_and_each_change_is_seen() -> None:
    body: Any = {"A": ["x", {"type": "token", "data": "y"}], "b": {"c": "z"}}
    key, target = "private_prod.1", deploy().target
    expected = Reference(target, Profile()).answer("POST", "/tokenize", label=key, body=body)
    answer = expected.body
    assert expected.ok
    assert list(mirror_faults(body, answer)) == []
    assert isinstance(answer, dict)
    swapped = {**answer, "A": answer["A"][::-1]}
    assert [fault.clause for fault in mirror_faults(body, swapped)] == ["TOK-ARRAY"]
    shorter = {**answer, "A": answer["A"][:1]}
    assert [fault.clause for fault in mirror_faults(body, shorter)] == ["TOK-ARRAY"]
    plain = {**answer, "b": answer["b"]["c"]}
    assert [fault.clause for fault in mirror_faults(body, plain)] == ["TOK-PLAIN"]


@pytest.mark.slow
def test_draws_repeat_whatever_modules_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same seed draws the same: a history is recognised by another process."""

    def drawn() -> list[str]:
        texts: list[str] = []

        @hypothesis.settings(max_examples=60, database=None, backend=BACKEND)
        @hypothesis.seed(3)
        @hypothesis.given(st.text())
        def draw(text: str) -> None:
            texts.append(text)

        with repeating():
            draw()
        return texts

    before = drawn()
    names = ", ".join(f"'constant {number}'" for number in range(500))
    (tmp_path / "many_constants.py").write_text(f"NAMES = [{names}]")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("many_constants")
    assert drawn() == before


def _exchange(body: bytes, headers: dict[str, str] | None = None) -> Exchange:
    ask = HttpRequest(method="POST", path="/tokenize")
    return Exchange(1, "c", "l", 1, ask, 0, 1, 200, headers or {}, body)


@pytest.mark.parametrize(
    "answer",
    [
        _exchange(b'{"a": "say s\xc3\xa9cret-1"}'),
        _exchange(b'{"a": ["s\\u00e9cret-1"]}'),
        _exchange(b'{"s\\u00e9cret-1": 1}'),
        _exchange(b"no JSON: s\xc3\xa9cret-1"),
        _exchange(b"{}", {"X-Debug": "sécret-1"}),
        _exchange(b'{"a": "' + base64.b64encode("sécret-1".encode()) + b'"}'),
    ],
)
def test_secrets_are_found_in_every_byte(answer: Exchange) -> None:
    assert is_secret_in(text_in(answer), "sécret-1")
    assert not is_secret_in(text_in(answer), "other")


def test_secrets_are_not_found_where_there_are_none() -> None:
    assert not is_secret_in(text_in(_exchange(b'{"a": "secret"}', {"B": "c"})), "sécret-1")


def test_card_numbers_are_valid_and_their_own() -> None:
    ctx = bench_of("bounds.fields")
    number = ctx.card("n")["data"]["number"]
    assert len(number) == 16
    doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(number))]
    assert sum(sum(divmod(value, 10)) for value in doubled) % 10 == 0
    assert ctx.card("n") == ctx.card("n") != ctx.card("m")


@pytest.mark.parametrize("size_bytes", [10_000, 12_345, 100_001])
def test_batch_files_have_the_size_that_is_asked_for(size_bytes: int) -> None:
    data = batch_file(size_bytes)
    assert len(data) == size_bytes
    assert all(is_uuid(token_id) for token_id, _, _ in read_batch(data))


def _renamed(part: Any) -> Any:
    """Return an answer with the key `TYPE` in lower case, wherever it stands."""
    if isinstance(part, list):
        return [_renamed(one) for one in part]
    if isinstance(part, dict) and "_extras" not in part:
        return {"type" if key == "TYPE" else key: _renamed(one) for key, one in part.items()}
    return part


@pytest.mark.slow
def test_a_failure_is_shrunk_and_shown_as_curl() -> None:
    """A fault of one odd key deep in a body comes out as the smallest body that shows it."""

    def change(ask: HttpRequest, answer: Answer) -> Answer:
        if ask.path != "/tokenize" or answer.status != 200:
            return answer
        raw = json.dumps(_renamed(json.loads(answer.body))).encode()
        return Answer(answer.sent_ns, answer.received_ns, 200, answer.headers, raw)

    ctx = bench_of("model.sequences", change)
    failed = [one for one in judged_of(ctx) if one.verdict is Verdict.FAIL]
    assert [finding.clause for finding in failed if not finding.follows] == ["TOK-PLAIN"]
    asked = ctx.session.exchanges[failed[0].evidence[-1]].ask
    assert """-d '{"TYPE": """ in curl(ctx.target, asked)


def test_the_keys_own_header_is_none_of_the_others() -> None:
    """A deployment whose key header is one of the two was said to accept a key in others too."""
    profile = Profile().replace(http={"key_header": "X-API-Key"})
    found = judged("authentication.header", profile=profile)
    assert {one.verdict for one in found} == {Verdict.PASS}
    assert found[-1].message == "a key in other headers only: refused with 401"
