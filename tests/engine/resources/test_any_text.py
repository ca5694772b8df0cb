"""What a caller or the operator may write anywhere is answered, over both stores.

A lone surrogate, which UTF-8 cannot hold, is refused wherever text is kept: what the operator calls
from Python raises an `InputError` in the form of all others; what a caller sends is 400, as Python
values and as JSON text (D-STRICT-JSON), and changes nothing.
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
from tests.engine.deployment import CARD, Deployment

LONGEST = "36500d"


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


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("start_date=9999-12-31T23:59:59Z", 0),
        ("start_date=0001-01-01", 1),
        ("end_date=0001-01-01", 0),
        ("end_date=9999-12-31T23:59:59Z", 1),
    ],
)
def test_a_date_beyond_64_bits_is_before_or_after_everything(
    acme: Deployment, query: str, count: int
) -> None:
    """D-LOG-LIST: a calendar reaches further than nanoseconds in 64 bits do."""
    acme.tokenize(["x"])
    answer = acme.ask("GET", f"/logs?{query}", key=acme.key_with("log:read"))
    assert (answer.status, len(answer.body["data"])) == (200, count)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/tokens/\ud800", 404),
        ("/tokens?type=\ud800", 200),
        ("/tokens?fingerprint=\ud800", 200),
        ("/tokens?metadata.\ud800=\ud800", 200),
        ("/tokens?start=\ud800", 400),
        ("/\ud800", 404),
    ],
)
def test_a_lone_surrogate_names_nothing(acme: Deployment, path: str, status: int) -> None:
    """No HTTP request can hold one; a Python text can, and no caller's text may raise."""
    assert acme.ask("GET", path).status == status
    assert acme.ask("GET", "/tokens", host="\ud800.example").status == 200


def test_d_size_a_body_given_as_values_is_as_long_as_its_json(acme: Deployment) -> None:
    """D-SIZE, TOK-JSON: in Python and over HTTP the same body has the same answer."""
    most = "x" * (4_000_000 - len(b'["",""]'))
    for body, status in (([most, ""], 200), ([most, "x"], 413), ([most, 10**30], 413)):
        acme.tokenize(body, status=status)
    assert acme.ask("PATCH", "/tokens/none", {"data": most}).status == 413
    deep: Any = "x"
    for _ in range(1020):
        deep = [deep]
    acme.tokenize(deep, status=400)
    for odd in ((1, 2), {1, 2}, object()):
        assert acme.ask("POST", "/tokenize", odd).status == 400
        assert acme.ask("POST", "/tokens", odd).status == 400


def test_quo_tenant_the_longest_quotas_work(acme: Deployment) -> None:
    """QUO-TENANT, QUO-CVC, QUO-INTENT, QUO-LOG: what is accepted as a quota can be kept."""
    for name in ("CVC Retention", "Token Intent Retention", "Log Retention"):
        acme.engine.set_quota(acme.tenant, name, LONGEST)
    acme.engine.set_quota(acme.tenant, "Tokenize Limit", 10**9)
    made: Any = acme.tokenize([CARD, *map(str, range(50))])
    assert acme.ask("POST", "/detokenize", f"{{{{ {made[0]['id']} }}}}").body == CARD["data"]
    rights = acme.key_with("token-intent:create", "log:read")
    assert acme.ask("POST", "/token-intents", CARD, key=rights).status == 201
    assert len(acme.ask("GET", "/logs", key=rights).body["data"]) == 3


@pytest.mark.parametrize("levels", [70, 300, 990, 1_020, 1_100])
def test_d_depth_a_body_of_any_depth_is_answered(acme: Deployment, levels: int) -> None:
    """D-DEPTH, TOK-JSON: what no stack of ours could follow is 400 everywhere."""
    key = acme.principal(set(PERMISSIONS))[1]
    deep = b'{"a":' * levels + b"1" + b"}" * levels
    bodies = (deep, b'{"type":"token","data":%b}' % deep, b'{"name":%b,"query":%b}' % (deep, deep))
    for operation in OPERATIONS:
        if operation.body not in MEDIA_TYPES or operation.authentication != "key":
            continue
        path = operation.path.replace("{id}", _made(acme, operation.path, key))
        for body in bodies:
            headers = {"Content-Type": MEDIA_TYPES[operation.body]}
            answer = acme.ask(operation.method, path, body, key=key, headers=headers)
            assert answer.status == 400, (path, body[:40])


def _made(acme: Deployment, path: str, key: str) -> str:
    made: dict[str, Any] = {
        "tokens": {"type": "token", "data": "x"},
        "reactors": {"name": "r", "code": "c"},
        "proxies": {"name": "p", "destination_url": "https://api.example.com"},
        "applications": {"name": "a", "kind": "private"},
    }
    if "{id}" not in path:
        return ""
    kind = path.split("/")[1]
    identifier: str = acme.ask("POST", f"/{kind}", made[kind], key=key).body["id"]
    return identifier


# --- lone surrogates -----------------------------------------------------------------------------


LONE = "\ud800"


OPERATORS: list[tuple[Callable[[Deployment, str], object], str]] = [
    (
        lambda acme, text: acme.engine.create_tenant(text),
        "tenant name = {} must be Unicode text",
    ),
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
    (
        lambda acme, text: acme.engine.tenant(text),
        "tenant = {} does not exist; create it first",
    ),
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


def test_d_strict_json_what_a_reactor_gives_back_may_not_hold_one(
    acme: Deployment,
) -> None:
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
