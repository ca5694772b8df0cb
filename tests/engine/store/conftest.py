"""The stores that every shared test runs on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.store import MemoryStore, SqliteStore, Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tollgate.db"


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, path: Path) -> Iterator[Store]:
    opened: Store = MemoryStore() if request.param == "memory" else SqliteStore(path)
    yield opened
    opened.close()
