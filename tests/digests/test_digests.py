"""A sample of the committed digests; `python -m tests.digests` makes them all.

Of the numbered series (drawn fits, fits of retries) every sixth is made here, and by the command
with `--quick` all of them.
"""

from __future__ import annotations

import pytest

from tests.digests.__main__ import committed
from tests.digests._cases import Case, cases

_SERIES = ("session fit of drawn ", "session fit of retries ")


def _sampled() -> dict[str, list[Case]]:
    """Return the cases by what makes them, so that several processes share the work."""
    groups: dict[str, list[Case]] = {}
    for case in cases():
        words = case.name.split()
        number = words[-1] if case.name.startswith(_SERIES) and words[-1].isdigit() else "0"
        if case.quick and words[0] != "help" and int(number) % 6 == 0:
            name = " ".join(words[: 2 if words[0] == "session" else 1])
            groups.setdefault(name, []).append(case)
    return groups


SAMPLED = _sampled()


@pytest.mark.slow
def test_the_file_holds_every_case_and_no_other() -> None:
    assert [case.name for case in cases()] == list(committed())


@pytest.mark.slow
@pytest.mark.parametrize("group", SAMPLED)
def test_runs_and_replays_decide_as_they_did(group: str) -> None:
    chosen = SAMPLED[group]
    assert {case.name: case.make() for case in chosen} == {
        case.name: committed()[case.name] for case in chosen
    }
