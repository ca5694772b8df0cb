"""A configuration of many rows is brought to a store row by row, not each with a walk over all."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from engine import Engine, InputError, ManualClock, ModelWorld
from engine.http.configuration import loads, provision
from engine.model import Application, Key, Tenant
from engine.store import SqliteStore

ROWS = 60


def _text(*, tenants: int, applications: int) -> str:
    lines = [f'[[tenants]]\nname = "t{number}"' for number in range(tenants)]
    lines += [
        f'[[applications]]\nname = "a{number}"\ntenant = "t{number % tenants}"'
        for number in range(applications)
    ]
    return "\n".join(lines)


@pytest.mark.parametrize("tenants", [1, ROWS])
def test_quo_tenant_a_tenants_rows_are_asked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tenants: int
) -> None:
    """QUO-TENANT: two thousand applications would hold a server's start up for a minute."""
    store = SqliteStore(tmp_path / "store.sqlite")
    engine = Engine(world=ModelWorld(clock=ManualClock()), store=store, master_key=b"m" * 32)
    lists: Counter[type] = Counter()
    usual = store.list

    def counted(kind: Any, *rest: Any, **more: Any) -> Any:
        lists[kind] += 1
        return usual(kind, *rest, **more)

    monkeypatch.setattr(store, "list", counted)
    made = []
    for _ in range(2):  # the second time everything is there
        lists.clear()
        made.append(len(provision(engine, *loads(_text(tenants=tenants, applications=ROWS)))))
        del lists[Tenant]  # all at once
        assert lists == {Application: tenants, Key: tenants}
    assert made == [ROWS, 0]
    engine.close()


def test_an_application_whose_name_is_there_twice_is_the_oldest() -> None:
    """Names are unique in a file, not in a store; the file's means the one that was first."""
    engine = Engine(seed=7)
    provision(engine, *loads(_text(tenants=1, applications=1)))
    with engine.services.store.transaction(write=False):
        (tenant,) = engine.services.store.tenants()
    second = engine.create_application(tenant, "a0", "public")
    assert provision(engine, *loads(_text(tenants=1, applications=1))) == []
    with engine.services.store.transaction(write=False):
        kinds = [each.kind for each in engine.services.store.list(Application, tenant.id)]
        assert sorted(kinds) == ["private", "public"]
        assert engine.services.store.get(Application, second.id) == second


def test_a_tenant_that_is_there_twice_is_named_with_its_place() -> None:
    text = _text(tenants=3, applications=1) + '\n[[tenants]]\nname = "t1"\n'
    with pytest.raises(InputError, match=r"^serve\.toml:11:8: .*must be unique"):
        loads(text)
