"""D-BODY-COST: what one body may cost is bounded before anything is decrypted or looked up."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.messages import Problem
from engine.resources import bodies, reactors, tokenize, tokens
from engine.tokens import types
from engine.tokens.expressions import splice
from engine.tokens.stored import dedup_hashes
from engine.tokens.strict_json import check_values, parse
from engine.vault import jwe
from engine.world import CallAnswer, ModelWorld
from tests.engine.deployment import CARD, Deployment
from tests.engine.resources.outside import Outside
from tests.memory import STATUS

OBJECT = {"type": "token", "data": "x"}


@pytest.fixture
def bounded(deploy: Callable[..., Deployment]) -> Deployment:
    """A deployment whose bodies may hold 8 elements and 6 encrypted payloads."""
    found = deploy(tokens={"elements_limit": 8, "encrypted_limit": 6})
    found.engine.set_setting(found.tenant, "deduplicate_tokens", on=True)
    return found


@pytest.mark.parametrize(
    "body",
    [
        ["x"] * 9,
        [""] * 9,
        [1] * 9,
        [[]] * 9,
        [{}] * 9,
        [OBJECT] * 9,
        [{"type": "none such"}] * 9,
        {"a": ["x"] * 4, "b": [{"c": "x"}] * 4, "d": "x"},
        [[["x"]]] * 9,
    ],
)
def test_a_body_of_more_elements_is_refused_by_the_bound_alone(
    bounded: Deployment, body: Any
) -> None:
    problem = bounded.tokenize(body, status=400)
    assert problem["detail"] == "The body must hold at most 8 elements."
    assert "errors" not in problem


@pytest.mark.parametrize(
    "body", [["x"] * 8, [[["x"]]] * 8, {"a": ["x"] * 4, "b": [{"c": "x"}] * 4}, [[]] * 8]
)
def test_what_holds_elements_is_none_itself(bounded: Deployment, body: Any) -> None:
    bounded.tokenize(body)


def test_no_bound_lies_below_the_tenants_quota(bounded: Deployment) -> None:
    bounded.engine.set_quota(bounded.tenant, "Tokenize Limit", 9)
    bounded.tokenize([str(number) for number in range(9)])
    problem = bounded.tokenize(["x"] * 10, status=400)
    assert problem["detail"] == "The body must hold at most 9 elements."


def test_too_many_payloads_are_refused_before_one_is_opened(
    bounded: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    decrypt = jwe.decrypt

    def counted(compact: str, find_private: Any) -> bytes:
        opened.append(compact)
        return decrypt(compact, find_private)

    monkeypatch.setattr(jwe, "decrypt", counted)
    key = bounded.key_with("token:create", "key:create")
    public = bounded.ask("POST", "/keys", {"algorithm": "ECDH-ES"}, key=key).body["public_key"]
    sealed = {"type": "token", "encrypted": jwe.encrypt(public, b'"x"')}
    assert bounded.ask("POST", "/tokenize", [sealed] * 6, key=key).status == 200
    assert len(opened) == 6
    refused = bounded.ask("POST", "/tokenize", [sealed] * 7, key=key)
    assert refused.status == 400
    assert refused.body["detail"] == "The body must hold at most 6 encrypted payloads."
    assert len(opened) == 6


@pytest.mark.parametrize("as_bytes", [True, False])
def test_json_values_are_counted_before_they_are_parsed(
    deploy: Callable[..., Deployment], *, as_bytes: bool
) -> None:
    """As bytes and as Python values alike; 400 are what the quota of five may need."""
    acme = deploy(tokens={"values_limit": 400})
    for size, status in ((190, 200), (250, 400)):
        body: Any = [[]] * size
        headers = {"Content-Type": "application/json"} if as_bytes else None
        sent = json.dumps(body).encode() if as_bytes else body
        answer = acme.ask("POST", "/tokenize", sent, headers=headers)
        assert answer.status == status
    assert answer.body["detail"] == "The body must hold at most 400 JSON values."


def test_expressions_are_bounded_before_a_token_is_looked_up(bounded: Deployment) -> None:
    bounded.engine.set_quota(bounded.tenant, "Detokenize Limit", 3)
    expressions = ["{{ 00000000-0000-4000-8000-000000000000 }}"] * 9
    answer = bounded.ask("POST", "/detokenize", expressions)
    assert answer.status == 400
    assert answer.body["detail"] == "The body must hold at most 8 expressions."
    bounded.engine.set_quota(bounded.tenant, "Detokenize Limit", 9)
    assert "errors" in bounded.ask("POST", "/detokenize", expressions).body


JSON = st.recursive(
    st.none() | st.integers(-9, 9) | st.text('ab"\\,[{', max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('"\\,', max_size=3), inner),
    max_leaves=20,
)


def _values(value: Any) -> int:
    """Count as the docstring says: an empty object or array is two."""
    if isinstance(value, list | dict):
        inner = value.values() if isinstance(value, dict) else value
        return 1 + (sum(map(_values, inner)) if value else 1)
    return 1


@pytest.mark.slow
@given(JSON)
def test_the_count_is_that_of_the_parsed_values(value: Any) -> None:
    raw = json.dumps(value).encode()
    count = _values(value) if isinstance(value, list | dict) else 1
    check_values(raw, count)
    if count > 1:
        with pytest.raises(Problem) as refused:
            check_values(raw, count - 1)
        assert refused.value.status == 400


@given(st.text('ab"\\', max_size=6), st.text('ab"\\/', max_size=6))
def test_a_repeated_key_is_found_whatever_is_escaped(key: str, text: str) -> None:
    one, held = json.dumps(key), json.dumps(text)
    assert parse(f"[{{{one}:{held}}}]".encode()) == [{key: text}]
    with pytest.raises(Problem, match="repeat a key"):
        parse(f"[{{{one}:{held},{one}:{held}}}]".encode())


def test_an_intent_that_is_consumed_meanwhile_makes_no_token(
    acme: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-INTENT, TOK-ATOMIC: a body is read before its transaction; another may come between."""
    key = acme.key_with("token:create", "token-intent:create", "token-intent:delete")
    intent = acme.ask("POST", "/token-intents", OBJECT, key=key).body["id"]
    validated = types.validate

    def slowly(*arguments: Any) -> Any:
        found = validated(*arguments)
        assert acme.ask("DELETE", f"/token-intents/{intent}", key=key).status == 204
        return found

    monkeypatch.setattr(tokenize, "validate", slowly)
    body = [{"type": "token", "token_intent_id": intent}, "x"]
    refused = acme.ask("POST", "/tokenize", body, key=key)
    assert refused.status == 400
    fault = "must be the id of a token intent that has not expired"
    assert refused.body["errors"] == {"/0/token_intent_id": [fault]}
    assert acme.ask("GET", "/tokens").body["data"] == []


class ApartWorld(ModelWorld):
    """A world that knows whether what is done now is done apart."""

    is_apart = False

    async def apart(self, work: Callable[[], Any], whose: object) -> Any:
        """Work at once, and remember that others would go on meanwhile."""
        assert whose is not None
        self.is_apart = True
        try:
            return await super().apart(work, whose)
        finally:
            self.is_apart = False


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> tuple[Outside, set[str]]:
    """A deployment, and the names of the long walks that it has made apart.

    One that is made on the event loop, or while a transaction is open, fails at once.
    """
    outside = Outside(world_class=ApartWorld)
    world, store = outside.engine.services.world, outside.engine.services.store
    assert isinstance(world, ApartWorld)
    walked: set[str] = set()

    def watch(module: Any, name: str) -> None:
        real = getattr(module, name)

        def walk(value: Any, *more: Any) -> Any:
            if len(value if isinstance(value, bytes) else json.dumps(value)) > 16_384:
                assert world.is_apart, f"{name} holds others up"
                with store.transaction(write=False):
                    walked.add(name)
            return real(value, *more)

        monkeypatch.setattr(module, name, walk)

    for module, name in (
        (bodies, "parse"),
        (tokens, "read_expressions"),
        (tokens, "splice"),
        (reactors, "check_value"),
        (reactors, "walk"),
    ):
        watch(module, name)
    return outside, walked


HEADERS = {"Content-Type": "application/json"}


def test_a_large_detokenize_body_is_walked_apart(watched: tuple[Outside, set[str]]) -> None:
    outside, walked = watched
    body = json.dumps([outside.expression("x"), *["y"] * 10_000]).encode()
    answer = outside.ask("POST", "/detokenize", body, headers=HEADERS)
    assert answer.body.startswith(b'["x", "y", "y"')
    assert walked == {"parse", "read_expressions", "splice"}


def test_a_large_proxied_body_is_walked_apart(watched: tuple[Outside, set[str]]) -> None:
    outside, walked = watched
    body = json.dumps([outside.expression("x"), *["y"] * 10_000]).encode()
    assert outside.through(outside.proxy(), body, headers=HEADERS).status == 200
    assert outside.calls[0].body.startswith(b'["x", "y", "y"')
    assert walked == {"parse", "read_expressions", "splice"}


def test_what_a_transform_reads_is_walked_apart(watched: tuple[Outside, set[str]]) -> None:
    outside, walked = watched
    content = CallAnswer(200, HEADERS, json.dumps(["y"] * 10_000).encode())
    outside.destination = lambda _call: (0, content)
    proxy = outside.proxy(response_transform={"code": "c"})
    assert outside.through(proxy, method="GET").status == 200
    assert walked == {"parse", "check_value"}


def test_large_arguments_and_results_of_a_reactor_are_walked_apart(
    watched: tuple[Outside, set[str]],
) -> None:
    outside, walked = watched
    outside.runtime = lambda _code, args: {"tokenize": ["z" * 20_000], "raw": args}
    reactor = outside.made("/reactors", {"name": "r", "code": "c"})["id"]
    body = json.dumps({"args": [outside.expression("x"), *["y"] * 10_000]}).encode()
    answer = outside.ask("POST", f"/reactors/{reactor}/react", body, headers=HEADERS)
    assert answer.body["raw"][:2] == ["x", "y"]
    assert len(answer.body["tokens"]) == 1
    assert walked == {"parse", "read_expressions", "check_value", "walk"}


def test_values_of_a_proxied_body_are_counted_where_it_is_walked() -> None:
    """D-BODY-COST: a body without an expression is not read at all."""
    outside = Outside(tokens={"values_limit": 400})
    proxy = outside.proxy()
    for first, status in (("{{ x }}", 400), ("x", 200)):
        body = json.dumps([first, *[[]] * 500]).encode()
        answer = outside.through(proxy, body, headers=HEADERS)
        assert answer.status == status
    outside.destination = lambda _call: (0, CallAnswer(200, HEADERS, body))
    transformed = outside.proxy(response_transform={"code": "c"})
    assert outside.through(transformed, method="GET").status == 502


@given(text=st.text('ab"\\/{}u07b\n\u00e9', max_size=12), is_ascii=st.booleans())
def test_d_pass_through_a_string_is_found_whatever_is_escaped(
    text: str, is_ascii: bool
) -> None:  # reason: drawn
    token = "01234567-89ab-cdef-0123-456789abcdef"
    sent = json.dumps([text, f"{{{{ {token} }}}}", text], ensure_ascii=is_ascii).encode()
    spliced = splice(sent, {token: 7}.__getitem__)
    assert json.loads(spliced) == [text, 7, text]
    assert spliced == sent.replace(json.dumps(f"{{{{ {token} }}}}").encode(), b"7")


def test_a_compact_body_is_read_once_and_another_one_exactly() -> None:
    """D-STRICT-JSON: what is written back byte for byte lost no key and rounded no number."""
    for raw in (b'{"a":[1,-2.5,"\xc3\xa9"],"b":18446744073709551615}', b"[]", b'"x"'):
        assert json.dumps(parse(raw), separators=(",", ":"), ensure_ascii=False).encode() == raw
    assert parse(b'{"a": 123456789012345678901234}') == {"a": 123456789012345678901234}
    assert parse(b'{"a":123456789012345678901234}') == {"a": 123456789012345678901234}
    for raw in (b'{"a":1,"a":1}', b'{"a":{"b":1,"b":1}}', b'{"a":1, "a":1}'):
        with pytest.raises(Problem, match="repeat a key"):
            parse(raw)


# --- the Tokenize Limit --------------------------------------------------------------------------


_SCRIPT = """
import sys
from engine import Engine, Profile, Request
from tests.memory import peak_kb

engine = Engine(seed=7, profile=Profile().replace(tokens={"non_string_leaf": "tokenize"}))
tenant = engine.create_tenant("Acme", settings={"deduplicate_tokens": sys.argv[2] == "on"})
app = engine.create_application(tenant, "a", grants=[("/", {"token:create"})])
key = engine.create_key(app)
parts = {  # all are different, or they would be duplicates of the first
    "leaf": [f"{number}" for number in range(100_000)],
    "number": [*range(100_000)],
    "object": [{"type": "token", "data": f"{number}"} for number in range(100_000)],
}
limited = parts[sys.argv[1]]
fine = limited[:1]
kilobytes, statuses = [], []
for body in (fine, limited):
    request = Request("POST", "/tokenize", key=key, ip="203.0.113.7", body=body)
    statuses.append(engine.handle(request).status)
    kilobytes.append(peak_kb())
print(*statuses, kilobytes[1] - kilobytes[0])
"""


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="only Linux says what was held")
@pytest.mark.parametrize("kind", ["leaf", "number", "object"])
@pytest.mark.parametrize("setting", ["off", "on"])
def test_tok_limit_a_body_over_the_limit_takes_two_kilobytes_an_element_at_most(
    kind: str, setting: str
) -> None:
    """TOK-LIMIT, D-SIZE: each took four, and a body of four megabytes four gigabytes."""
    command = [sys.executable, "-c", _SCRIPT, kind, setting]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout
    fine, refused, kilobytes = map(int, said.split())
    assert (fine, refused) == (200, 400)
    assert kilobytes < 200_000


@pytest.mark.parametrize("body", [["x"] * 6, [CARD] * 6])
def test_tok_limit_nothing_is_compared_where_nothing_can_be_a_duplicate(
    acme: Deployment, monkeypatch: pytest.MonkeyPatch, body: list[Any]
) -> None:
    """TOK-LIMIT, D-ORDER: the count is known before a million values are hashed for a look-up."""
    hashed: list[int] = []

    def counted(drafts: Any, *rest: Any) -> Any:
        hashed.append(len(drafts))
        return dedup_hashes(drafts, *rest)

    monkeypatch.setattr(tokenize, "dedup_hashes", counted)
    problem = acme.tokenize(body, status=400)
    assert problem["detail"].startswith("The request would create 6 tokens")
    assert problem["clause"] == "TOK-LIMIT"
    assert hashed == []
    acme.tokenize([*body[:5], 1], status=400)
    acme.engine.set_setting(acme.tenant, "deduplicate_tokens", on=True)
    acme.tokenize(body)
    assert hashed == [6]
