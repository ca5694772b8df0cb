"""A lone surrogate, which UTF-8 cannot hold, is refused wherever text is kept, by both stores.

What the operator calls from Python raises an `InputError` in the form of all others; what a caller
sends is 400, as Python values and as JSON text (D-STRICT-JSON), and changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from engine import Engine, LimitTable, ManualClock, ModelWorld, Profile
from engine.errors import InputError, StoreError
from engine.identity import PERMISSIONS
from engine.model import Reactor
from engine.resources import OPERATIONS
from engine.resources.bodies import MEDIA_TYPES
from engine.store import MemoryStore, SqliteStore, Store
from tests.engine.deployment import Deployment

LONE = "\ud800"


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Either store."""
    opened: Store = MemoryStore()
    if request.param == "sqlite":
        opened = SqliteStore(tmp_path / "any.sqlite")
    yield opened
    opened.close()


@pytest.fixture
def acme(store: Store) -> Deployment:
    """A deployment over it."""
    world = ModelWorld(clock=ManualClock())
    return Deployment(Engine(world=world, store=store, master_key=b"m" * 32))


OPERATORS: list[tuple[Callable[[Deployment, str], object], str]] = [
    (lambda acme, text: acme.engine.create_tenant(text), "tenant name = {} must be Unicode text"),
    (
        lambda acme, text: acme.engine.create_application(acme.tenant, text),
        "application name = {} must be Unicode text; take out the surrogate",
    ),
    (
        lambda acme, text: acme.engine.create_application(acme.tenant, "a", grants=[(text, [])]),
        r"grants\[0\].container = {} must start and end with '/'",
    ),
    (
        lambda acme, text: acme.engine.create_application(acme.tenant, "a", grants=[("/", [text])]),
        r"grants\[0\].permissions holds {}, which does not exist; known: token:create",
    ),
    (
        lambda acme, text: acme.engine.create_key(acme.application, text=text * 20),
        "a key's own text must hold at least 16 printable ASCII characters",
    ),
    (lambda acme, text: acme.engine.tenant(text), "tenant = {} does not exist; create it first"),
    (
        lambda acme, text: acme.engine.set_quota(text, "Tokenize Limit", 1),
        "tenant = {} does not exist; create it first",
    ),
    (
        lambda acme, text: acme.engine.set_quota(acme.tenant, text, 1),
        "quota = {} does not exist; known: Rate Limit",
    ),
    (
        lambda acme, text: acme.engine.set_quota(acme.tenant, "Rate Limit", text),
        "quota Rate Limit = {} must name a limit table; known: Default",
    ),
    (
        lambda acme, text: acme.engine.set_quota(acme.tenant, "CVC Retention", text),
        "duration = {} must be a duration such as",
    ),
    (
        lambda acme, text: acme.engine.set_setting(acme.tenant, text, on=True),
        "setting = {} does not exist; known: deduplicate_tokens",
    ),
    (
        lambda _acme, text: Engine(limits={"Default": LimitTable.default(), text: LimitTable(())}),
        "limits table = {} must be Unicode text; take out the surrogate",
    ),
    (
        lambda _acme, text: Engine(region=text),
        "region = {} must be at most 16 lower-case letters and digits, such as 'us'",
    ),
    (
        lambda _acme, text: Profile().replace(dedup={"setting_name": text}),
        "profile.dedup.setting_name = {} must be Unicode text; take out the surrogate",
    ),
    (
        lambda _acme, text: Engine(profile=Profile().replace(tokens={"extra_types": (text,)})),
        "profile.tokens.extra_types holds {}; a type must be of letters",
    ),
]


@pytest.mark.parametrize(("call", "said"), OPERATORS)
def test_what_the_operator_names_so_is_refused_in_one_line(
    acme: Deployment, call: Callable[[Deployment, str], object], said: str
) -> None:
    """QUO-TENANT, D-KEY: both stores refuse it, in one line that names what to do."""
    with pytest.raises(InputError, match="^" + said.format(r"'\\ud800'")) as caught:
        call(acme, LONE)
    assert str(caught.value).isascii()
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="key = <hidden> does not exist"):
        acme.engine.delete_key(LONE)


@pytest.mark.parametrize("name", [7, None, b"bytes"])
def test_a_name_is_a_text(acme: Deployment, name: Any) -> None:
    """QUO-TENANT: SQLite would give another type back than was put in."""
    with pytest.raises(InputError, match=r"^tenant name = .* must be a text; write it in quotes$"):
        acme.engine.create_tenant(name)


def test_a_store_file_keeps_what_it_has_when_a_record_is_not_unicode(tmp_path: Path) -> None:
    """A record that nobody checked is the store's own error, and its transaction is undone."""
    store = SqliteStore(tmp_path / "any.sqlite")
    reactor = Reactor("id", "tenant", LONE, b"code", b"names")
    with pytest.raises(StoreError, match=r"^a record's texts must be Unicode"), store.transaction():
        store.put(reactor)
    with store.transaction(write=False):
        assert store.list(Reactor, "tenant") == []
        assert store.list(Reactor, LONE) == []
        assert store.get(Reactor, LONE) is None
    store.close()


TOKEN = {
    "type": "token",
    "data": "secret",
    "metadata": {"o": "1"},
    "search_indexes": ["{{ data }}"],
    "fingerprint_expression": "{{ data }}",
    "containers": ["/pci/"],
    "deduplicate_token": True,
}
CARD = {
    "type": "card",
    "data": {
        "number": "4242424242424242",
        "expiration_month": 12,
        "expiration_year": 2030,
        "cvc": "123",
    },
}
PROXY = {
    "name": "payments",
    "destination_url": "https://api.example.com/v1",
    "request_transform": {"code": "a"},
    "response_transform": {"code": "b"},
    "host": "pay.example",
}
REACTOR = {"name": "r", "code": "c", "configuration": {"k": "v"}}
APPLICATION = {
    "name": "a",
    "kind": "private",
    "grants": [{"container": "/", "permissions": ["token:read"]}],
}
BODIES: dict[str, list[Any]] = {
    "tokenize": [
        {"a": "x", "b": ["y", TOKEN]},
        CARD,
        {"type": "token", "encrypted": "a.b.c.d.e"},
        {"type": "token", "token_intent_id": "i"},
    ],
    "create_token": [TOKEN, CARD],
    "search_tokens": [{"query": "data:secret", "start": "s"}],
    "patch_token": [
        {"data": "x", "metadata": {"o": "2"}, "search_indexes": ["{{ data }}"]},
        {"fingerprint_expression": "{{ data }}", "containers": ["/pci/"]},
    ],
    "detokenize": [{"a": ["{{ x }}"]}],
    "create_token_intent": [{"type": "token", "data": "x"}, CARD],
    "create_application": [APPLICATION],
    "patch_application": [{"name": "b", "grants": APPLICATION["grants"]}],
    "create_application_key": [{"legacy": True}],
    "create_encryption_key": [{"algorithm": "ECDH-ES"}],
    "create_reactor": [REACTOR],
    "patch_reactor": [REACTOR],
    "invoke_reactor": [{"args": {"a": ["b"]}}],
    "create_proxy": [PROXY],
    "patch_proxy": [PROXY],
}
MADE: dict[str, Any] = {
    "tokens": {"type": "token", "data": "x"},
    "reactors": REACTOR,
    "proxies": {**PROXY, "host": "other.example"},
    "applications": {"name": "a", "kind": "private"},
}


def _spoilt(value: Any, put: str) -> Iterator[Any]:
    """Yield the value with each of its texts, keys too, replaced or ended by a text in turn."""
    if isinstance(value, str):
        yield from (put, value + put)
    elif isinstance(value, dict):
        for key, item in value.items():
            rest = {name: other for name, other in value.items() if name != key}
            yield from ({**rest, key + put: item}, {**value, put: item})
            yield from ({**value, key: spoilt} for spoilt in _spoilt(item, put))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            for spoilt in _spoilt(item, put):
                yield [*value[:place], spoilt, *value[place + 1 :]]


def test_every_body_of_json_is_looked_at() -> None:
    """D-STRICT-JSON: an operation that is added has to stand in this file too."""
    json_operations = {each.name for each in OPERATIONS if each.body in MEDIA_TYPES}
    assert json_operations == set(BODIES)


@pytest.mark.parametrize("name", BODIES)
def test_d_strict_json_no_text_of_any_body_may_hold_one(acme: Deployment, name: str) -> None:
    """D-STRICT-JSON, TOK-JSON, TOK-ATOMIC: 400 everywhere, whichever store, and nothing is kept."""
    (operation,) = [each for each in OPERATIONS if each.name == name]
    key = acme.principal(set(PERMISSIONS))[1]
    path = operation.path
    if "{id}" in path:
        kind = path.split("/")[1]
        path = path.replace("{id}", acme.ask("POST", f"/{kind}", MADE[kind], key=key).body["id"])
    headers = {"Content-Type": MEDIA_TYPES[operation.body]}
    before = acme.count()
    asked = 0
    for body in BODIES[name]:
        for spoilt in _spoilt(body, LONE):
            for sent in (spoilt, json.dumps(spoilt).encode()):
                acme.clock.advance_ns(60_000_000_000)  # no limit is in the way
                answer = acme.ask(operation.method, path, sent, key=key, headers=headers)
                assert answer.status == 400, (sent, answer.body)
                orjson.dumps(answer.body)  # can be sent
                asked += 1
    assert asked > 0
    assert acme.count() == before


def test_d_strict_json_what_a_reactor_gives_back_may_not_hold_one(acme: Deployment) -> None:
    """RCT-PAYLOAD, D-STRICT-JSON: neither what goes to a caller nor what is to be tokenized."""
    given: list[Any] = [{"raw": LONE}, {"tokenize": [LONE]}, {"tokenize": {LONE: "x"}}, LONE]
    world = acme.engine.services.world
    assert isinstance(world, ModelWorld)
    key = acme.principal(set(PERMISSIONS))[1]
    made = acme.ask("POST", "/reactors", REACTOR, key=key).body
    for result in given:
        world.runtime = lambda *_asked, result=result: result
        answer = acme.ask("POST", f"/reactors/{made['id']}/react", {"args": 1}, key=key)
        assert answer.status == 502, answer.body
        orjson.dumps(answer.body)
    assert acme.count() == 0
