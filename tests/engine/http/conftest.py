"""One server for the tests that only ask, one that is hurried and strict, and the document."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.http.openapi import document
from engine.profile import Profile
from tests.engine.http.live import Live, served

HURRIED = """
[outside]
destination_timeout = "1s"
reactor_timeout = "100ms"
cold_start = "500ms"
hot_concurrency = 0
"""


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A server with one key that may do everything, and limits out of the way."""
    with served(tmp_path_factory.mktemp("live")) as server:
        yield server


@pytest.fixture(scope="session")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A demo whose destinations and reactors may take next to no time, with the real limits."""
    profile = tmp_path_factory.mktemp("hurried") / "profile.toml"
    profile.write_text(HURRIED, encoding="utf-8")
    with Live("--demo", "--demo-keys", "2", "--profile", str(profile)) as server:
        yield server


@pytest.fixture(scope="session")
def full() -> dict[str, Any]:
    """The document of what the engine does."""
    return document("full", Profile())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of the test's own."""
    return tmp_path
