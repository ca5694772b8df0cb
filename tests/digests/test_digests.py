"""A sample of the committed digests; `python -m tests.digests` makes them all."""

from __future__ import annotations

import pytest

from tests.digests.__main__ import committed
from tests.digests._cases import cases


def test_the_file_holds_every_case_and_no_other() -> None:
    assert [case.name for case in cases()] == list(committed())


@pytest.mark.slow
@pytest.mark.parametrize(
    "word", ["run", "drawn", "outside", "replay", "session", "openapi", "answers"]
)
def test_runs_and_replays_decide_as_they_did(word: str) -> None:
    chosen = [case for case in cases() if case.quick and case.name.startswith(word)]
    assert {case.name: case.make() for case in chosen} == {
        case.name: committed()[case.name] for case in chosen
    }
