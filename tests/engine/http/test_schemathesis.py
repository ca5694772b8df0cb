"""schemathesis with all its default checks finds nothing on full, floor and ceiling, over HTTP.

*full* is run with valid and invalid data, *floor* with valid, *ceiling* with invalid. What a schema
say stands in `engine.http.openapi.hooks`, which users of schemathesis can load: README shows how.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema

from engine.http.openapi import document, hooks
from engine.profile import Profile
from engine.tokens.rules import SchemaKind
from tests.engine.http.live import KEY, Live, served

MODES = {"full": "all", "floor": "positive", "ceiling": "negative"}
EXAMPLES = {"full": 5, "floor": 5, "ceiling": 10}
LEAST_ACCEPTED = {"full": 300, "floor": 150, "ceiling": 0}
PHASES = {"examples", "coverage", "fuzzing", "stateful"}


@pytest.fixture(autouse=True)
def _what_schemas_cannot_say() -> Any:
    hooks.load()
    yield
    schemathesis.hooks.unregister_all()


def _keep_own_application(live: Live) -> None:
    """Let no request that finds the application of the run's own key change or delete it."""
    own = {row["id"] for row in live.ask("GET", "/applications").json()["data"]}

    @schemathesis.hook
    def before_call(context: Any, case: Any, kwargs: Any) -> None:
        if case.path_parameters and case.path_parameters.get("id") in own:
            case.path_parameters["id"] = str(uuid4())


def _run(live: Live, kind: SchemaKind) -> tuple[set[str], set[str], Counter[int]]:
    """Return the findings, the phases that ran, and how often each status was answered."""
    config = SchemathesisConfig.from_dict(
        {
            "base-url": live.url,
            "seed": 7,
            "headers": {"SVC-API-KEY": KEY},
            "cache": {"enabled": False},
            "continue-on-failure": True,
            "suppress-health-check": ["all"],
            "generation": {
                "mode": MODES[kind],
                "max-examples": EXAMPLES[kind],
                "database": "none",
                "deterministic": True,
            },
        }
    )
    schema = schemathesis.openapi.from_dict(document(kind, Profile()), config=config)
    findings: set[str] = set()
    phases: set[str] = set()
    statuses: Counter[int] = Counter()
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            for interaction in event.recorder.interactions.values():
                if interaction.response is not None:
                    statuses[interaction.response.status_code] += 1
            findings.update(_failures(event))
        elif isinstance(event, events.NonFatalError):
            findings.add(f"{event.label}: {event.value}")
        elif isinstance(event, events.FatalError):
            findings.add(f"the run broke off: {event.exception}")
        elif isinstance(event, events.PhaseFinished) and event.status != "skip":
            phases.add(event.phase.name.value.lower())
    return findings, phases, statuses


def _failures(event: events.ScenarioFinished) -> set[str]:
    failures = [
        check.failure_info.failure
        for checks in event.recorder.checks.values()
        for check in checks
        if check.failure_info is not None
    ]
    return {f"{found.operation}: {found.title}: {found.message}" for found in failures}


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODES)
def test_schemathesis_finds_nothing(kind: SchemaKind, tmp_path: Path) -> None:
    with served(tmp_path) as live:
        _keep_own_application(live)
        findings, phases, statuses = _run(live, kind)
        assert findings == set()
        # A run that is refused throughout would be as silent.
        assert (
            sum(count for status, count in statuses.items() if status < 300)
            >= (LEAST_ACCEPTED[kind])
        ), statuses
        assert statuses[400] >= (0 if kind == "floor" else 300), statuses
        assert phases >= PHASES
        assert live.stop() == (0, "")
