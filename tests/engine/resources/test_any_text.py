"""What a caller may write anywhere outside of a body is answered, over both stores."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import Engine, ManualClock, ModelWorld
from engine.identity import PERMISSIONS
from engine.resources import OPERATIONS
from engine.resources.bodies import MEDIA_TYPES
from engine.store import MemoryStore, SqliteStore, Store
from tests.engine.deployment import CARD, Deployment

LONGEST = "36500d"


@pytest.fixture(params=["memory", "sqlite"])
def acme(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    """A deployment over either store."""
    store: Store = MemoryStore()
    if request.param == "sqlite":
        store = SqliteStore(tmp_path / "any.sqlite")
    world = ModelWorld(clock=ManualClock())
    acme = Deployment(Engine(world=world, store=store, master_key=b"m" * 32))
    yield acme
    acme.engine.close()


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
