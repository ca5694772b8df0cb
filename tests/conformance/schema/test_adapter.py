"""What the generator draws does not depend on what else its process has drawn."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
from schemathesis.generation.hypothesis.examples import default_settings

from conformance.schema.adapter import explore
from conformance.schema.oracle import Contradiction


class _Asks:
    """A bridge that answers everything, and remembers by which settings examples are drawn."""

    stopped = None
    key_header = "SVC-API-KEY"

    def __init__(self) -> None:
        self.fixed: set[bool] = set()
        self.failures: list[tuple[Contradiction, int]] = []
        self.errors: list[str] = []

    def __call__(self, environ: Any, start_response: Any) -> list[bytes]:
        self.fixed.add(default_settings().derandomize)
        start_response("200 OK", [("Content-Type", "application/json")])
        return [b"{}"]


@pytest.mark.slow
def test_settings_of_an_earlier_user_of_the_library_are_not_kept() -> None:
    """The library keeps the settings that held when it drew its first single example."""
    document = {
        "openapi": "3.1.0",
        "info": {"title": "t", "version": "1"},
        "paths": {"/a": {"get": {"operationId": "a", "responses": {"200": {"description": "a"}}}}},
    }
    before = hypothesis.settings.get_current_profile_name()
    hypothesis.settings.register_profile("of the user", derandomize=True)
    hypothesis.settings.load_profile("of the user")
    try:
        default_settings.cache_clear()
        assert default_settings().derandomize
        asks = _Asks()
        explore(
            document,
            asks,  # type: ignore[arg-type] # reason: all that it needs of a bridge
            lambda asked: [],
            keys=[],
            mode="positive",
            phases=("fuzzing",),
            examples=1,
            seed=1,
        )
        assert (asks.fixed, asks.errors) == ({False}, [])
        assert default_settings().derandomize
    finally:
        hypothesis.settings.load_profile(before)
        default_settings.cache_clear()
