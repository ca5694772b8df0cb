"""The keys of an application, page by page, among those of all the tenant's applications."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import Engine, ManualClock, ModelWorld
from engine.model import Application, Key
from engine.resources import applications
from engine.store import MemoryStore, SqliteStore, Store
from tests.engine.deployment import Deployment


@pytest.fixture(params=["memory", "sqlite"])
def acme(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployment]:
    """A deployment over either store."""
    store: Store = MemoryStore()
    if request.param == "sqlite":
        store = SqliteStore(tmp_path / "keys.sqlite")
    world = ModelWorld(clock=ManualClock())
    acme = Deployment(Engine(world=world, store=store, master_key=b"m" * 32))
    yield acme
    acme.engine.close()


def _pages(acme: Deployment, application: Application, size: int, key: str) -> Iterator[list[str]]:
    start = ""
    while start is not None:
        query = f"size={size}" + (f"&start={start}" if start else "")
        answer: Any = acme.ask("GET", f"/applications/{application.id}/keys?{query}", key=key).body
        yield [each["id"] for each in answer["data"]]
        start = answer["pagination"]["next"]
        acme.clock.advance_ns(10_000_000_000)


@pytest.mark.parametrize("looked_at", [1, 2, 3, 7, 200])
@pytest.mark.parametrize("size", [1, 4, 100])
def test_d_list_each_key_is_on_one_page(
    acme: Deployment, monkeypatch: pytest.MonkeyPatch, looked_at: int, size: int
) -> None:
    """D-LIST: in order of creation, whatever stands between, and though a page is deleted."""
    monkeypatch.setattr(applications, "_LOOKED_AT", looked_at)
    key = acme.principal({"key:read", "key:delete"}, "management")[1]
    two = [acme.engine.create_application(acme.tenant, name) for name in ("a", "b")]
    made: dict[str, list[str]] = {each.id: [] for each in two}
    for number in range(14):
        application = two[number % 5 == 0]
        made[application.id].append(acme.engine.create_key(application).key_id)
        acme.clock.advance_ns(number % 2)  # some are of one instant
    for application in two:
        pages = list(_pages(acme, application, size, key))
        found = [each for page in pages for each in page]
        assert sorted(found) == sorted(made[application.id])
        assert [len(page) for page in pages[:-1]] == [size] * (len(pages) - 1)
    found = []
    for page in _pages(acme, two[0], size, key):
        found += page
        for key_id in page:
            path = f"/applications/{two[0].id}/keys/{key_id}"
            assert acme.ask("DELETE", path, key=key).status == 204
    assert sorted(found) == sorted(made[two[0].id])


def test_d_list_a_page_looks_at_no_more_keys_than_it_needs(
    acme: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-LIST: each page of a tenant with many keys was a walk over all of them."""
    key = acme.principal({"key:read"}, "management")[1]
    store = acme.engine.services.store
    with store.transaction():
        for number in range(2_000):
            at_ns = acme.clock.wall_ns + number
            ours = acme.application.id
            store.put(Key(f"{number:036}", acme.tenant.id, ours, False, b"%d" % number, at_ns))
    looked: list[int] = []
    usual = store.list

    def counted(*asked: Any, **more: Any) -> Any:
        found = usual(*asked, **more)
        looked.append(len(found))
        return found

    monkeypatch.setattr(store, "list", counted)
    answer = acme.ask("GET", f"/applications/{acme.application.id}/keys?size=10", key=key)
    assert len(answer.body["data"]) == 10
    assert sum(looked) <= 200
