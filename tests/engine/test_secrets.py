"""REC-SECRET and the canaries: no secret in a repr, log, problem, exception or store file."""

from __future__ import annotations

import dataclasses
import gc
import logging
from pathlib import Path
from typing import Any

import pytest
from rich.pretty import pretty_repr

from engine import (
    Call,
    CallAnswer,
    Engine,
    InputError,
    ManualClock,
    ModelWorld,
    Request,
    Response,
    model,
)
from engine.model import Intent, Key, Proxy, Reactor
from engine.resources.tokens import parse_search
from engine.store import SqliteStore, TokenFilter
from engine.vault import jwe
from tests.engine.deployment import EVERY_TOKEN_RIGHT, Deployment

NUMBER = "5105105105105100"
CVC = "8641"
TEXT = "canary-in-the-data"
CANARIES = (NUMBER, TEXT)
RIGHTS = EVERY_TOKEN_RIGHT | {
    "token-intent:create",
    "token-intent:read",
    "key:create",
    "reactor:create",
    "proxy:create",
    "log:read",
}


def _card(**data: Any) -> dict[str, Any]:
    return {"type": "card", "data": {"number": NUMBER, "cvc": CVC, **data}}


BODIES: tuple[tuple[str, str, Any], ...] = (
    ("POST", "/tokenize", {"a": TEXT, "b": _card(), "c": {"type": "token", "data": TEXT}}),
    ("POST", "/tokenize", [TEXT] * 9),
    ("POST", "/tokenize", {"a": TEXT, "b": _card(expiration_month=13)}),
    ("POST", "/tokenize", {"type": "token", "data": [TEXT]}),
    ("POST", "/tokenize", {"type": TEXT, "data": "x"}),
    ("POST", "/tokenize", {"type": "token", "encrypted": TEXT}),
    ("POST", "/tokenize", {"type": "card", "data": {"number": NUMBER + "1"}}),
    ("POST", "/tokenize", {"type": "token", "data": TEXT, "search_indexes": [TEXT]}),
    ("POST", "/tokenize", {"type": "token", "data": TEXT, "fingerprint_expression": TEXT}),
    ("POST", "/tokenize", {"type": "token", "data": TEXT, "containers": [TEXT]}),
    ("POST", "/tokenize", {"type": "token", "data": TEXT, "metadata": {"k": [TEXT]}}),
    ("POST", "/tokenize", TEXT),
    ("POST", "/tokenize", f'{{"a": "{TEXT}", }}'.encode()),
    ("POST", "/tokenize", f'{{"a": "{TEXT}", "a": "{NUMBER}"}}'.encode()),
    ("POST", "/tokens", {"type": "token", "data": TEXT, "search_indexes": ["{{ data }}"]}),
    ("POST", "/tokens/search", {"query": f"data:{TEXT}"}),
    ("POST", "/tokens/search", {"query": f"{TEXT} {NUMBER}"}),
    ("POST", "/detokenize", f"{{{{ token: {TEXT} }}}}"),
    ("POST", "/token-intents", _card()),
    ("POST", "/token-intents", {"type": "card", "data": TEXT}),
    ("POST", "/reactors", {"name": "r", "code": 5, "configuration": {"secret": TEXT}}),
    ("PATCH", "/tokens/{id}", {"data": [TEXT]}),
    ("PATCH", "/tokens/{id}", {"data": TEXT}),
)


@pytest.fixture
def acme(tmp_path: Path) -> Deployment:
    """A deployment over a file."""
    store = SqliteStore(tmp_path / "tokens.sqlite")
    world = ModelWorld(clock=ManualClock())
    return Deployment(Engine(world=world, store=store, master_key=b"m" * 32))


def _ask_all(acme: Deployment, key: str) -> list[tuple[Request, Response]]:
    token = acme.tokenize({"type": "token", "data": "x"})["id"]
    exchanges = []
    for method, path, body in BODIES:
        headers = {"Content-Type": "application/json"} if isinstance(body, bytes) else None
        request = Request(
            method, path.format(id=token), key=key, ip="::1", body=body, headers=headers
        )
        exchanges.append((request, acme.engine.handle(request)))
    return exchanges


def test_rec_secret_no_answer_but_detokenize_holds_a_secret(acme: Deployment) -> None:
    """REC-SECRET, D-PROBLEM: neither a record nor a problem quotes what was sent."""
    key = acme.principal(RIGHTS)[1]
    statuses = set()
    for request, answer in _ask_all(acme, key):
        statuses.add(answer.status)
        said = f"{answer.body} {answer.headers} {answer!r} {request!r}"
        assert not [c for c in (*CANARIES, CVC, key) if c in said], request
    assert statuses >= {200, 201, 400}


def test_no_repr_of_anything_alive_holds_a_secret(acme: Deployment) -> None:
    """Every object of the engine's own classes, as a debugger or a traceback would show it."""
    key = acme.principal(RIGHTS)[1]
    exchanges = _ask_all(acme, key)
    alive = [one for one in gc.get_objects() if str(type(one).__module__).startswith("engine.")]
    whole = set()
    for one in alive:
        try:
            shown = repr(one)
        except AttributeError:  # another thread, or a test before this one, has not built it whole
            continue
        whole.add(type(one))
        assert not [c for c in (*CANARIES, key) if c in shown], type(one)
    assert {Request, Response, Engine} <= whole
    assert exchanges


def test_what_lives_for_one_call_only_shows_no_secret() -> None:
    """A traceback with local variables is a log too."""
    pair = jwe.generate("ECDH-ES", "kid")
    call = Call("POST", "https://api.example.com", {"Authorization": TEXT}, TEXT.encode())
    query = parse_search(f"data:{TEXT}", 400)
    shown = f"{query} {call!r} {CallAnswer(200, {'a': TEXT}, TEXT.encode())}"
    assert TEXT not in shown
    assert repr(pair.private) not in repr(pair)


def test_the_records_of_the_store_show_no_secret(acme: Deployment) -> None:
    key = acme.principal(RIGHTS)[1]
    _ask_all(acme, key)
    store, tenant_id = acme.engine.services.store, acme.tenant.id
    with store.transaction(write=False):
        records = [
            store.find_tokens(tenant_id, TokenFilter(), size=100),
            store.list(Intent, tenant_id),
            store.list(Key, tenant_id),
            store.list(Reactor, tenant_id),
            store.list(Proxy, tenant_id),
        ]
    shown = repr(records) + pretty_repr(records, max_width=10_000)
    assert "<Token " in shown
    assert "Token(id='" in shown
    assert "sealed" not in shown
    assert not [c for c in (*CANARIES, CVC, key) if c in shown]


def test_no_record_shows_bytes_which_are_sealed_or_hashes() -> None:
    records = [record for record in vars(model).values() if dataclasses.is_dataclass(record)]
    held = [field for record in records for field in dataclasses.fields(record)]
    of_bytes = [field for field in held if "bytes" in str(field.type).split(" | ")]
    assert len(of_bytes) > 8
    assert not [field.name for field in of_bytes if field.repr]


def test_the_store_file_holds_no_secret_in_the_clear(acme: Deployment, tmp_path: Path) -> None:
    """The SQLite file and what stands beside it, byte by byte, before and after closing."""
    key = acme.principal(RIGHTS)[1]
    _ask_all(acme, key)
    secrets = [text.encode() for text in (*CANARIES, key, key.rsplit("_", 1)[1])]
    for _ in range(2):
        files = [path for path in tmp_path.iterdir() if path.is_file()]
        assert sum(path.stat().st_size for path in files) > 10_000
        for path in files:
            raw = path.read_bytes()
            assert not [secret for secret in secrets if secret in raw], path
        acme.engine.close()


def test_quo_cvc_an_expired_cvc_is_really_gone_from_the_file(
    acme: Deployment, tmp_path: Path
) -> None:
    """QUO-CVC: not even its ciphertext remains."""
    card = acme.tokenize(_card())["id"]
    store = acme.engine.services.store
    with store.transaction(write=False):
        token = store.token(acme.tenant.id, card)
    assert token is not None
    sealed = token.sealed_cvc
    assert sealed is not None
    held = [path for path in tmp_path.iterdir() if sealed in path.read_bytes()]
    assert held, "the ciphertext is there until the deadline"
    acme.clock.advance_ns(3_600_000_000_000)
    acme.engine.expire()
    assert not [path for path in tmp_path.iterdir() if sealed in path.read_bytes()]


def test_no_exception_and_no_log_record_holds_a_secret(
    acme: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    key = acme.principal(RIGHTS)[1]
    _ask_all(acme, key)
    with pytest.raises(InputError) as error:
        acme.engine.create_key(acme.application, text=key)
    assert key not in str(error.value)
    with pytest.raises(InputError) as error:
        acme.engine.create_key(acme.application, text="short-secret")
    assert "short-secret" not in str(error.value)
    pair = jwe.generate("ECDH-ES", "kid")
    assert not [c for c in (*CANARIES, key) if c in caplog.text + repr(pair)]
    assert pair.private not in repr(pair).encode()
