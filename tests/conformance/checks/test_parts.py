"""What the clause checks are made of: strategies, searches, the oracle."""

from __future__ import annotations

import base64
import dataclasses
import importlib
import json
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from conformance.checks._bodies import (
    BACKEND,
    Counterexample,
    bodies,
    repeating,
    smallest,
    tokens_in,
)
from conformance.checks._oracle import Contradiction, Oracle, mirror_faults
from conformance.checks.account_updater import batch_file
from conformance.checks.secrets import secrets_found
from conformance.context.answers import is_uuid
from conformance.context.check import Inconclusive
from conformance.context.verdicts import Verdict
from conformance.messages.exchange import Exchange, HttpRequest
from conformance.model.blame import shape_clause
from conformance.report.evidence import curl
from conformance.runner.outcome import judge_one
from conformance.wire.transport import Answer
from engine import Profile
from engine.resources.account_updater import read_batch
from tests.conformance.checks.changed import bench_of, judged

_CARD = {"type": "card", "data": {"number": "4242424242424242"}}
_LIMIT = 5


def _drawn(count: int) -> list[Any]:
    found: list[Any] = []

    @hypothesis.settings(max_examples=count, database=None, derandomize=True, backend=BACKEND)
    @hypothesis.given(bodies(_LIMIT, [_CARD]))
    def draw(body: Any) -> None:
        found.append(body)

    with repeating():
        draw()
    return found


def _keys(body: Any) -> set[str]:
    if isinstance(body, dict):
        inner = [_keys(one) for one in body.values() if "type" not in body]
        return set(body).union(*inner)
    return set().union(*map(_keys, body)) if isinstance(body, list) else set()


def _levels(body: Any) -> int:
    inner = body.values() if isinstance(body, dict) else body if isinstance(body, list) else ()
    return 1 + max(map(_levels, inner), default=0) if isinstance(body, dict | list) else 0


def test_bodies_are_deep_wide_and_odd_and_the_engine_accepts_them() -> None:
    drawn = _drawn(300)
    oracle = Oracle(Profile(), _LIMIT)
    assert all(oracle.answer(body)[0] for body in drawn)
    assert all(1 <= tokens_in(body) <= _LIMIT for body in drawn)
    assert max(map(_levels, drawn)) >= 6
    assert sum(tokens_in(body) > 1 for body in drawn) > 60
    keys = set().union(*map(_keys, drawn))
    assert {"TYPE", "Name", "NAME", "", "__proto__"} <= keys
    shapes = {"TOK-OBJECT", "TOK-PLAIN", "TOK-ARRAY", "TOK-COMPOSITE"}
    assert set(map(shape_clause, drawn)) == shapes


def test_the_oracle_mirrors_itself_and_sees_each_change() -> None:
    body: Any = {"A": ["x", {"type": "token", "data": "y"}], "b": {"c": "z"}}
    is_valid, answer = Oracle(Profile(), _LIMIT).answer(body)
    assert is_valid
    assert list(mirror_faults(body, answer)) == []
    assert isinstance(answer, dict)
    swapped = {**answer, "A": answer["A"][::-1]}
    assert [fault.clause for fault in mirror_faults(body, swapped)] == ["TOK-ARRAY"]
    shorter = {**answer, "A": answer["A"][:1]}
    assert [fault.clause for fault in mirror_faults(body, shorter)] == ["TOK-ARRAY"]
    plain = {**answer, "b": answer["b"]["c"]}
    assert [fault.clause for fault in mirror_faults(body, plain)] == ["TOK-PLAIN"]


def test_a_search_ends_and_tells_the_smallest() -> None:
    """Also before a deployment that breaks by chance, which no shrinking can rely on."""
    ctx = bench_of("tokenize.mirror")
    turns = iter(range(10_000))

    def by_chance(number: int) -> Counterexample | None:
        return (
            Counterexample(number, [Contradiction("TOK-LEAF", "odd")], ())
            if next(turns) % 3 == 0
            else None
        )

    found = smallest(ctx, st.integers(0, 1000), by_chance, 20)
    assert found is not None
    assert next(turns) <= 3 * 20 + 1

    def large(number: int) -> Counterexample | None:
        return (
            Counterexample(number, [Contradiction("TOK-LEAF", "large")], ())
            if number >= 77
            else None
        )

    found = smallest(ctx, st.integers(0, 1000), large, 40)
    assert found is not None
    assert found.body == 77


def test_a_search_asks_three_times_its_examples_at_most() -> None:
    """Each is a request to the deployment, also where it breaks on nearly everything."""
    asked: list[Any] = []

    def mostly(body: Any) -> Counterexample | None:
        asked.append(body)
        return (
            Counterexample(body, [Contradiction("TOK-LEAF", "odd")], ())
            if sum(body) > 10**6
            else None
        )

    numbers = st.lists(st.integers(0, 10**9), min_size=20)
    found = smallest(bench_of("tokenize.mirror"), numbers, mostly, 4)
    assert found is not None
    assert len(asked) == 3 * 4


def test_a_search_repeats_whatever_modules_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same seed draws the same: a history is recognised by another process.

    This holds for what is tried to make a broken body smaller as well.
    """

    def drawn(broken_from: int) -> list[Any]:
        found: list[Any] = []

        def judge(body: Any) -> Counterexample | None:
            found.append(body)
            return Counterexample(body, [], ()) if len(str(body)) > broken_from else None

        smallest(bench_of("tokenize.mirror"), bodies(_LIMIT, [_CARD]), judge, 60)
        return found

    cases = (10_000_000, 30, 60, 90)

    before = list(map(drawn, cases))
    names = ", ".join(f"'constant {number}'" for number in range(500))
    (tmp_path / "many_constants.py").write_text(f"NAMES = [{names}]")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("many_constants")
    assert list(map(drawn, cases)) == before


def test_a_search_hands_on_why_nothing_can_be_said() -> None:
    def judge(_: int) -> Counterexample | None:
        raise Inconclusive("no answer")

    with pytest.raises(Inconclusive, match="no answer"):
        smallest(bench_of("tokenize.mirror"), st.integers(), judge, 10)


def test_a_listing_shows_named_tokens_and_no_strings() -> None:
    """TOK-ATOMIC: without deduplication, whether a string was tokenized stays unseen."""

    def change(ask: HttpRequest, answer: Answer) -> Answer:
        if "deduplicate" in str(ask.body) or ask.key == "dedup.1":
            answer.status, answer.body = 422, b"{}"
        return answer

    def reading(ask: HttpRequest) -> HttpRequest:
        is_it = (ask.key or "").startswith("private_prod.")
        return dataclasses.replace(ask, key="private_reader.1") if is_it else ask

    last = judged("request.atomic-leaf", change, reading)[-1]
    assert last.verdict is Verdict.NOT_OBSERVABLE
    assert last.says == "whether strings are tokenized cannot be seen: a listing shows no values"


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
    assert secrets_found(answer, ["sécret-1", "other"]) == ["sécret-1"]


def test_secrets_are_not_found_where_there_are_none() -> None:
    assert secrets_found(_exchange(b'{"a": "secret"}', {"B": "c"}), ["sécret-1"]) == []


def test_card_numbers_are_valid_and_their_own() -> None:
    ctx = bench_of("record.mask")
    numbers = [ctx.card_number("n", digits) for digits in range(12, 20)]
    for digits, number in zip(range(12, 20), numbers, strict=True):
        assert len(number) == digits
        doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(number))]
        assert sum(sum(divmod(one, 10)) for one in doubled) % 10 == 0
    assert ctx.card_number("n") == ctx.card_number("n") != ctx.card_number("m")


@pytest.mark.parametrize("size_bytes", [10_000, 12_345, 100_001])
def test_batch_files_have_the_size_that_is_asked_for(size_bytes: int) -> None:
    data = batch_file(size_bytes)
    assert len(data) == size_bytes
    assert all(is_uuid(row.token_id) for row in read_batch(data))


def _renamed(part: Any) -> Any:
    """Return an answer with the key `TYPE` in lower case, wherever it stands."""
    if isinstance(part, list):
        return [_renamed(one) for one in part]
    if isinstance(part, dict) and "_extras" not in part:
        return {"type" if key == "TYPE" else key: _renamed(one) for key, one in part.items()}
    return part


def test_a_failure_is_shrunk_and_shown_as_curl() -> None:
    """A fault of one odd key deep in a body comes out as the smallest body that shows it."""

    def change(ask: HttpRequest, answer: Answer) -> Answer:
        if ask.path != "/tokenize" or answer.status != 200:
            return answer
        raw = json.dumps(_renamed(json.loads(answer.body))).encode()
        return Answer(answer.sent_ns, answer.received_ns, 200, answer.headers, raw)

    ctx = bench_of("tokenize.mirror", change)
    failed = [one for one in judge_one(ctx) if one.verdict is Verdict.FAIL]
    assert {finding.clause for finding in failed} == {"TOK-PLAIN"}
    asked = ctx.session.exchanges[failed[0].evidence[0]].ask
    assert isinstance(asked.body, dict)
    assert list(asked.body) == ["TYPE"]
    assert """-d '{"TYPE": "under TYPE """ in curl(ctx.target, asked)


def test_a_drawn_failure_is_shrunk() -> None:
    """What is drawn holds up to five tokens in many levels; what shows the fault holds one."""

    def change(ask: HttpRequest, answer: Answer) -> Answer:
        if _levels(ask.body) <= 2 or "Ā" not in str(ask.body):
            return answer
        return Answer(answer.sent_ns, answer.received_ns, 400, {}, b'{"title": "no"}')

    ctx = bench_of("tokenize.mirror", change)
    failed = [one for one in judge_one(ctx) if one.verdict is Verdict.FAIL]
    assert [finding.clause for finding in failed] == ["TOK-COMPOSITE"]
    asked = ctx.session.exchanges[failed[0].evidence[0]].ask
    assert not isinstance(asked.body, bytes)
    assert tokens_in(asked.body) == 1
    assert _levels(asked.body) <= 4


def test_the_keys_own_header_is_none_of_the_others() -> None:
    """A deployment whose key header is one of the two was said to accept a key in others too."""
    profile = Profile().replace(http={"key_header": "X-API-Key"})
    found = judge_one(bench_of("authentication.header", profile=profile))
    assert {one.verdict for one in found} == {Verdict.PASS}
    assert found[-1].says == "a key in other headers only: refused with 401"
