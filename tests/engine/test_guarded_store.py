"""A store file that somebody without the master key has written to: nothing of it is believed."""

# reason: the statements are constants here

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine import Engine, ManualClock, Request, Response
from engine.errors import StoreError, VaultError
from engine.store import SqliteStore
from tests.engine.deployment import CARD, EVERY_TOKEN_RIGHT

MASTER = b"m" * 32
SECRET = "hunter2-of-the-configuration"
CODE = "return call(password)  # hunter2-of-the-code"
RIGHTS = {
    *EVERY_TOKEN_RIGHT,
    *(f"{kind}:{verb}" for kind in ("reactor", "proxy") for verb in ("create", "read", "invoke")),
    "token-intent:create",
    "token-intent:read",
}


class Desk:
    """An engine on a file, with one application of every right on `/pci/`."""

    def __init__(self, path: Path, key: str | None = None) -> None:
        self.path = path
        self.engine = Engine(store=SqliteStore(path), master_key=MASTER, clock=ManualClock())
        if key is None:
            tenant = self.engine.create_tenant("Acme")
            app = self.engine.create_application(tenant, "shop", grants=[("/pci/", RIGHTS)])
            key = str(self.engine.create_key(app))
        self.key = key

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Response:
        request = Request(method, path, key=self.key, ip="192.0.2.1", body=body, **more)
        return self.engine.handle(request)

    def restart(self) -> Desk:
        self.engine.close()
        return Desk(self.path, self.key)

    def close(self) -> None:
        self.engine.close()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with closing(Desk(tmp_path / "tokens.sqlite")) as desk:
        yield desk


def _write(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def _after_restart(desk: Desk, body: Any) -> Response:
    desk.engine.close()
    with closing(Desk(desk.path, desk.key)) as again:
        return again.ask("POST", "/tokenize", body)


@pytest.mark.parametrize(
    ("statement", "table"),
    [
        ("""UPDATE applications SET grants = '[["/",["token:create"]]]'""", "applications"),
        ("UPDATE applications SET kind = 'management', mac = NULL", "applications"),
        ("UPDATE api_keys SET text_hash = zeroblob(32), mac = zeroblob(32)", None),
        ("UPDATE api_keys SET legacy = 1", "api_keys"),
        ("UPDATE tenants SET quotas = replace(quotas, '5', '500')", "tenants"),
        ("UPDATE tenants SET host_suffixes = '[\".com\"]'", "tenants"),
    ],
)
def test_a_row_that_another_program_has_changed_is_refused(
    desk: Desk, statement: str, table: str | None
) -> None:
    """Whatever it says: nobody gains a right, a rate, a name or a longer retention by it."""
    assert desk.ask("POST", "/tokenize", {"type": "token", "data": "x"}).status == 403
    _write(desk.path, statement)
    body = {"type": "token", "data": "x", "containers": ["/pci/"]}
    if table is None:
        assert _after_restart(desk, body).status == 401
        return
    message = f"in table {table} was changed by another program"
    with pytest.raises(StoreError, match=message):
        _after_restart(desk, body)


def test_a_key_that_another_program_has_added_opens_nothing(desk: Desk) -> None:
    copied = "'stranger', tenant_id, application_id, legacy, zeroblob(32), created_at_ns, mac"
    _write(desk.path, f"INSERT INTO api_keys SELECT {copied} FROM api_keys")
    store = desk.engine.services.store
    message = "row of id stranger in table api_keys"
    with store.transaction(write=False), pytest.raises(StoreError, match=message):
        store.key_by_hash(bytes(32))


def test_quo_cvc_a_longer_deadline_in_the_file_shows_no_cvc(desk: Desk) -> None:
    card = {**CARD, "containers": ["/pci/"]}
    made = desk.ask("POST", "/tokens", card).body["id"]
    shown = desk.ask("POST", "/detokenize", f"{{{{ {made} }}}}").body
    assert shown["cvc"] == "123"
    _write(desk.path, "UPDATE tokens SET cvc_until_ns = cvc_until_ns + 1")
    with pytest.raises(VaultError):
        desk.ask("POST", "/detokenize", f"{{{{ {made} }}}}")


def test_quo_intent_a_longer_deadline_in_the_file_shows_no_intent(desk: Desk) -> None:
    body = {"type": "token", "data": "x"}
    made = desk.ask("POST", "/token-intents", body)
    assert made.status == 201
    _write(desk.path, "UPDATE intents SET until_ns = until_ns + 1")
    with pytest.raises(StoreError, match="in table intents"):
        desk.ask("GET", made.headers["Location"])


def _reactor_and_proxy(desk: Desk) -> tuple[str, str]:
    configuration = {"password": SECRET}
    reactor = desk.ask(
        "POST", "/reactors", {"name": "r", "code": CODE, "configuration": configuration}
    )
    transform = {"code": CODE}
    body = {"name": "p", "destination_url": "https://a.example", "request_transform": transform}
    proxy = desk.ask("POST", "/proxies", body)
    return reactor.headers["Location"], proxy.headers["Location"]


def _bytes(path: Path) -> bytes:
    return b"".join(part.read_bytes() for part in sorted(path.parent.iterdir()))


def test_code_and_configuration_lie_sealed_and_no_value_comes_back(desk: Desk) -> None:
    reactor, proxy = _reactor_and_proxy(desk)
    assert b"hunter2" not in _bytes(desk.path)
    again = desk.restart()
    shown = again.ask("GET", reactor).body
    assert (shown["code"], shown["configuration_names"]) == (CODE, ["password"])
    assert SECRET not in str(shown)
    assert again.ask("GET", proxy).body["request_transform"] == {"code": CODE}
    assert again.ask("POST", f"{reactor}/react", {"args": 1}).body["raw"] == 1
