"""A kept store: threads, processes and kills (TOK-ATOMIC, TOK-DEDUP over SQLite)."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from engine import Engine, InputError, LimitTable, ManualClock, ModelWorld, Profile, Request
from engine.errors import StoreError, VaultError
from engine.messages import Json
from engine.store import SqliteStore, Store, TokenFilter
from tests.engine.resources.outside import SECOND_NS, Outside

MASTER = bytes(32)  # as `Outside` has it
TOKENS = 3


def _engine(path: Path) -> Engine:
    return Engine(world=ModelWorld(clock=ManualClock()), store=SqliteStore(path), master_key=MASTER)


def _found(path: Path) -> tuple[str, str]:
    """Make a tenant with an application; returns (tenant id, key text)."""
    engine = _engine(path)
    tenant = engine.create_tenant("A", settings={"deduplicate_tokens": True})
    app = engine.create_application(tenant, "a", grants=[("/", {"token:create", "token:read"})])
    text = str(engine.create_key(app))
    engine.close()
    return tenant.id, text


def _ask(engine: Engine, key: str, body: Json) -> tuple[int, Any]:
    # Limits are not what is shown here: each request comes a minute later.
    assert isinstance(engine.clock, ManualClock)
    engine.clock.advance_ns(60_000_000_000)
    request = Request("POST", "/tokenize", key=key, ip="::1", body=body)
    answer = engine.handle(request)
    return answer.status, answer.body


def _tokens_by_request(store: Store, tenant_id: str) -> Counter[str]:
    """Return how many tokens each request has left, by its metadata."""
    with store.transaction(write=False):
        tokens = store.find_tokens(tenant_id, TokenFilter(), size=1_000_000)
    return Counter((token.metadata or {})["request"] for token in tokens)


def _body(request: str) -> Json:
    return [
        {"type": "token", "data": f"{request}/{part}", "metadata": {"request": request}}
        for part in range(TOKENS)
    ]


def _write_until_killed(path: Path, key: str, acknowledged: int, life: int) -> None:
    engine = _engine(path)
    for number in range(1_000_000):
        request = f"{life}-{number}"
        status, _ = _ask(engine, key, _body(request))
        assert status == 200
        os.write(acknowledged, f"{request}\n".encode())


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_kill_at_any_moment_leaves_whole_requests_or_none(tmp_path: Path) -> None:
    """TOK-ATOMIC: after each of 80 kills what was answered is there whole, and no other half."""
    path = tmp_path / "tokens.sqlite"
    tenant_id, key = _found(path)
    chance = random.Random(5)
    answered: set[str] = set()
    for life in range(80):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(reading)
                _write_until_killed(path, key, writing, life)
            finally:
                os._exit(1)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            first = [pipe.readline() for _ in range(chance.randrange(4))]
            time.sleep(chance.uniform(0, 0.02))  # how far it comes by then, nobody can say
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            answered.update(line.strip() for line in [*first, *pipe])
        if life % 20 == 19:
            _check(path, tenant_id, answered)
    assert len(answered) > 80


def _check(path: Path, tenant_id: str, answered: set[str]) -> None:
    store = SqliteStore(path)
    found = _tokens_by_request(store, tenant_id)
    store.close()
    assert set(found.values()) <= {TOKENS}, "a request is there in part"
    assert answered <= set(found), "an answered request is not there"


def _race(path: Path, key: str, values: list[str], seed: int) -> dict[str, str]:
    engine = _engine(path)
    order = values.copy()
    random.Random(seed).shuffle(order)
    found = {}
    for value in order:
        status, body = _ask(engine, key, [value])
        assert status == 200
        found[value] = body[0]
    engine.close()
    return found


@pytest.mark.parametrize("kept", [False, True])
def test_tok_dedup_many_threads_on_one_engine(tmp_path: Path, kept: bool) -> None:
    """TOK-DEDUP, TOK-ATOMIC: racing threads create one token a value."""
    world = ModelWorld(clock=ManualClock())
    store = SqliteStore(tmp_path / "tokens.sqlite") if kept else None
    engine = Engine(world=world, store=store, master_key=MASTER)
    tenant = engine.create_tenant("A", settings={"deduplicate_tokens": True})
    app = engine.create_application(tenant, "a", grants=[("/", {"token:create"})])
    keys = [str(engine.create_key(app)) for _ in range(8)]
    seen: list[list[str]] = []

    def work(key: str) -> None:
        found = []
        for number in range(25):
            ip = f"192.0.2.{keys.index(key)}"
            request = Request("POST", "/tokenize", key=key, ip=ip, body=[f"v{number}", "w"])
            answer = engine.handle(request)
            assert answer.status == 200
            found.append(answer.body[0])
        seen.append(found)

    threads = [threading.Thread(target=work, args=(key,)) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == len(keys)
    assert all(found == seen[0] for found in seen)
    with engine.services.store.transaction(write=False):
        assert engine.services.store.count_tokens(tenant.id) == 26


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    """Keys, tokens, quotas and data survive; limit counters do not (D-COUNTERS-LIFE)."""
    path = tmp_path / "tokens.sqlite"
    tenant_id, key = _found(path)
    first = _engine(path)
    first.set_quota(tenant_id, "Tokenize Limit", 1)
    _, body = _ask(first, key, ["Ada"])
    first.close()
    again = _engine(path)
    assert _ask(again, key, ["x", "y"])[0] == 400
    asked = Request("POST", "/detokenize", key=key, ip="::1", body=f"{{{{ {body[0]} }}}}")
    assert again.handle(asked).body == "Ada"
    assert _ask(again, key, ["Ada"])[1] == body
    again.close()


def test_a_rotated_master_key_opens_everything_and_the_old_one_nothing(tmp_path: Path) -> None:
    """Key rotation re-wraps the tenants' keys; tokens stay as they are."""
    path = tmp_path / "tokens.sqlite"
    _, key = _found(path)
    first = _engine(path)
    _, body = _ask(first, key, ["Ada"])
    first.rotate_master_key(b"n" * 32)
    assert _ask(first, key, ["Ada"])[1] == body
    with pytest.raises(InputError, match="of 5 bytes must have 32"):
        first.rotate_master_key(b"short")
    with (
        mock.patch.object(SqliteStore, "commit", side_effect=StoreError("the disk is full")),
        pytest.raises(StoreError),
    ):
        first.rotate_master_key(b"o" * 32)
    first.services.store.rollback()
    first.create_tenant("Made under the key in force")
    first.close()
    asked = Request("POST", "/detokenize", key=key, ip="::1", body=f"{{{{ {body[0]} }}}}")
    world = ModelWorld(clock=ManualClock())
    again = Engine(world=world, store=SqliteStore(path), master_key=b"n" * 32)
    assert again.handle(asked).body == "Ada"
    again.close()
    stale = SqliteStore(path)
    with pytest.raises(VaultError, match="does not open: wrong key"):
        Engine(world=world, store=stale, master_key=MASTER)  # before it can make a tenant
    stale.close()


def test_a_store_that_was_kept_is_opened_with_other_choices(tmp_path: Path) -> None:
    """D-DEDUP, D-TYPE-VALUE: what the profile of today does not have stands in no one's way."""
    path = tmp_path / "tokens.sqlite"
    _found(path)
    world, profile = ModelWorld(clock=ManualClock()), Profile()
    more = profile.replace(tokens={"extra_types": ("iban",)})
    first = Engine(world=world, profile=more, store=SqliteStore(path), master_key=MASTER)
    rights = {"token:create", "token:read", "token:update"}
    tenant = first.tenant(_found_tenant(first))
    key = str(first.create_key(first.create_application(tenant, "b", grants=[("/", rights)])))
    body = {"type": "iban", "data": {"a": 1}, "containers": ["/b/"]}
    made = _ask(first, key, body)[1]
    first.close()
    renamed = profile.replace(dedup={"setting_name": "once"})
    later = Engine(world=world, profile=renamed, store=SqliteStore(path), master_key=MASTER)
    one, two = _ask(later, key, ["x"]), _ask(later, key, ["x"])
    assert (one[0], two[0]) == (200, 200)
    assert one[1] != two[1], "the setting of today's name was never turned on"
    token = f"/tokens/{made['id']}"
    moved = later.handle(Request("PATCH", token, key=key, ip="::1", body={"containers": None}))
    assert (moved.status, moved.body["containers"]) == (200, ["/general/high/"])
    later.close()


def _found_tenant(engine: Engine) -> str:
    with engine.services.store.transaction(write=False):
        return engine.services.store.tenants()[0].id


def test_quo_rate_a_kept_tenants_table_has_to_be_there(tmp_path: Path) -> None:
    """QUO-RATE: told at the start, not to the tenant's callers."""
    path = tmp_path / "tokens.sqlite"
    tenant_id, _ = _found(path)
    tables = {"Default": LimitTable.default(), "Slow": LimitTable.default()}
    engine = Engine(limits=tables, store=SqliteStore(path), master_key=MASTER)
    engine.set_quota(tenant_id, "Rate Limit", "Slow")
    engine.close()
    store = SqliteStore(path)
    said = f"tenant {tenant_id} of the store: quota Rate Limit = 'Slow' must name a limit table"
    with pytest.raises(InputError, match=said):
        Engine(store=store, master_key=MASTER)
    store.close()


# --- two engines on one file ---------------------------------------------------------------------


class Busy:
    """Another process, in the middle of a reactor's invocation until it is told to go on."""

    def __init__(self, path: Path) -> None:
        heard, answers = os.pipe()
        orders, self._orders = os.pipe()
        self.process = os.fork()
        if not self.process:
            try:
                os.close(heard)
                os.close(self._orders)
                _be_busy(path, answers, orders)
            finally:
                os._exit(0)
        os.close(answers)
        os.close(orders)
        self._heard = os.fdopen(heard)
        self.key = self._heard.readline().strip()

    def finish(self) -> None:
        """Let it go on to its end."""
        os.write(self._orders, b"go\n")
        assert self._heard.readline() == "200\n"

    def kill(self) -> None:
        """End it where it stands."""
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        self.process = 0

    def close(self) -> None:
        if self.process:
            self.kill()
        self._heard.close()
        os.close(self._orders)


def _be_busy(path: Path, answers: int, orders: int) -> None:
    outside = Outside(SqliteStore(path))
    outside.service_ns = SECOND_NS
    reactor = outside.made("/reactors", {"name": "r", "code": "code"})
    task = outside.at(0, "POST", f"/reactors/{reactor['id']}/react", {"args": 1})
    outside.loop.run(until_ns=SECOND_NS // 2)
    os.write(answers, f"{outside.key}\n".encode())
    os.read(orders, 3)
    outside.loop.run()
    os.write(answers, f"{task.result.status}\n".encode())
    os.read(orders, 3)  # stay until killed


@contextmanager
def busy(path: Path) -> Iterator[Busy]:
    process = Busy(path)
    try:
        yield process
    finally:
        process.close()


def _logged(path: Path, key: str) -> list[int]:
    """Start an engine on the file; return the statuses of the invocations in its log."""
    world = ModelWorld(clock=ManualClock())
    engine = Engine(world=world, store=SqliteStore(path), master_key=MASTER)
    found = _statuses(engine, key)
    engine.close()
    return found


def _statuses(engine: Engine, key: str) -> list[int]:
    body = engine.handle(Request("GET", "/logs?size=100", key=key, ip="::1")).body
    return [e["status"] for e in body["data"] if e["operation"] == "reactor:invoke"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens.sqlite"


def test_the_work_of_a_killed_engine_is_failed_at_the_next_start(path: Path) -> None:
    with busy(path) as other:
        other.kill()
        assert _logged(path, other.key) == [500]
        assert _logged(path, other.key) == [500]
    assert [file.name for file in path.parent.iterdir() if "owner" in file.name] == []


def test_what_was_abandoned_is_logged_as_it_would_have_been(path: Path) -> None:
    """D-LOGS: with the entity and the actor, so that whoever looks for either finds it."""
    with busy(path) as other:
        other.kill()
        engine = Engine(
            world=ModelWorld(clock=ManualClock()), store=SqliteStore(path), master_key=MASTER
        )
        body = engine.handle(Request("GET", "/logs?size=100", key=other.key, ip="::1")).body
        engine.close()
    made, failed = (e for e in body["data"] if e["entity_type"] == "reactor")
    assert (made["operation"], failed["operation"]) == ("reactor:create", "reactor:invoke")
    assert (failed["entity_id"], failed["actor_id"]) == (made["entity_id"], made["actor_id"])
    assert failed["id"] != made["id"]
