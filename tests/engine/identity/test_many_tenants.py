"""What an operation of one tenant costs does not grow with the others.

A service holds thousands of tenants; were each to pay for a walk over all of them, the last one to
come would wait for seconds. Told by counting calls and steps of SQLite, never by a clock.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from engine import Engine, ManualClock, ModelWorld, Request
from engine.model import Tenant
from engine.store import MemoryStore, SqliteStore
from engine.vault import Vault

FEW, MANY = 10, 300
MASTER = b"m" * 32
EVERYTHING = {"tenant:read", "application:create", "key:create", "application:read"}
IPS = (f"203.0.{each >> 8}.{each & 255}" for each in itertools.count())


class Wrapped:
    """Wrapped keys that count how many of them were looked at."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.seen = 0

    def secret(self, name: str) -> bytes | None:
        self.seen += 1
        return self.kept.get(name)

    def put_secret(self, name: str, wrapped: bytes) -> None:
        self.kept[name] = wrapped

    def secrets(self) -> dict[str, bytes]:
        self.seen += len(self.kept)
        return dict(self.kept)


class Name(str):
    """A tenant's id that counts how often any was looked up or put into a set."""

    __slots__ = ()
    hashed = 0

    def __hash__(self) -> int:
        Name.hashed += 1
        return super().__hash__()


class Steps:
    """A store and how many steps its work takes: calls of Python's, and of SQLite's machine."""

    def __init__(self, path: Path | None) -> None:
        self.store = MemoryStore() if path is None else SqliteStore(path)
        self._count = 0
        if isinstance(self.store, SqliteStore):
            connection: Any = self.store._connection
            connection.set_progress_handler(self._step, 1)

    def _step(self) -> int:
        self._count += 1
        return 0

    def _call(self, _frame: FrameType, event: str, _given: object) -> None:
        self._count += event in {"call", "c_call"}

    def of(self, work: Callable[[], object]) -> int:
        """Return the steps of some work: the fewest of five, since chance is drawn in batches."""
        counts = []
        for _ in range(5):
            self._count, before = 0, sys.getprofile()
            sys.setprofile(self._call)
            try:
                work()
            finally:
                sys.setprofile(before)
            counts.append(self._count)
        return min(counts)


@pytest.fixture(params=["memory", "sqlite"])
def steps(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Steps]:
    """Steps over either store."""
    counted = Steps(None if request.param == "memory" else tmp_path / "many.sqlite")
    yield counted
    counted.store.close()


def _come(engine: Engine, kind: Any = "private") -> tuple[Tenant, str]:
    """Let one more tenant come, with an application and a key."""
    tenant = engine.create_tenant("Another")
    rights = EVERYTHING if kind == "management" else {"token:create"}
    application = engine.create_application(tenant, "a", kind, grants=[("/", rights)])
    return tenant, str(engine.create_key(application))


def _asks(engine: Engine, key: str) -> Iterator[Callable[[], object]]:
    """Yield what a tenant's own key asks, each time from elsewhere: no limit is in the way."""
    application = {"name": "b", "kind": "private"}
    asked: list[tuple[str, str, Any]] = [
        ("GET", "/tenants/self", None),
        ("GET", "/applications", None),
        ("POST", "/applications", application),
    ]
    for method, path, body in asked:

        def ask(method: str = method, path: str = path, body: Any = body) -> None:
            request = Request(method, path, key=key, ip=next(IPS), body=body)
            assert engine.handle(request).status in {200, 201}

        yield ask


def _costs(steps: Steps, engine: Engine, others: int) -> list[int]:
    """Return what one tenant's operations cost beside so many others."""
    for _ in range(others):
        _come(engine)
    tenant, key = _come(engine, "management")
    application = engine.create_application(tenant, "c")
    works: list[Callable[[], object]] = [
        lambda: engine.create_tenant("Another"),
        lambda: engine.create_application(tenant, "c"),
        lambda: engine.create_key(application),
        lambda: engine.set_quota(tenant, "Tokenize Limit", 9),
        lambda: engine.tenant(tenant),
        lambda: engine.handle(Request("GET", "/tenants/self", key="unknown", ip=next(IPS))),
    ]
    return [steps.of(work) for work in [*works[:4], *_asks(engine, key), *works[4:]]]


def test_quo_tenant_d_key_no_operation_of_a_tenant_grows_with_the_others(steps: Steps) -> None:
    """QUO-TENANT, D-KEY: a tenant, an application, a key, made and found, among few and many."""
    world = ModelWorld(clock=ManualClock())
    engine = Engine(world=world, store=steps.store, master_key=MASTER)
    few = _costs(steps, engine, FEW)
    many = _costs(steps, engine, MANY)
    # A drawn key text takes a step more or less; a walk takes one for each of the others at least.
    grown = [after - before for before, after in zip(few, many, strict=True)]
    assert max(grown) < (MANY - FEW) / 10, (few, many)


@pytest.mark.parametrize("undone", [False, True])
def test_quo_tenant_a_new_tenants_key_looks_at_no_more_of_the_others(*, undone: bool) -> None:
    """QUO-TENANT: also beside a tenant whose making was rolled back."""
    store = Wrapped()
    vault = Vault(MASTER, os.urandom, store)
    vault.make(Name("first"))
    if undone:
        store.kept.clear()  # and nobody asks for that one again
    costs = []
    for number in range(1_000):
        tenant_id = Name(f"tenant {number}")
        store.seen = Name.hashed = 0
        vault.make(tenant_id)
        vault.of(tenant_id)
        costs.append(store.seen + Name.hashed)
    assert costs[-1] == max(costs[1:]) <= 20
