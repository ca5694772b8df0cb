"""The adapter: all use of schemathesis, whose engine is not documented as stable.

`explore` runs its engine over a document and tells the bridge plain data. A run is repeatable: no
cache, no database of examples, no constants read out of sources, no feedback from errors, a fixed
seed. It always has its own configuration, because the library would otherwise use any configuration
file in a parent directory.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal

import schemathesis
from schemathesis.checks import CHECKS
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema
from schemathesis.generation.hypothesis.examples import default_settings

from conformance.messages.exchange import KeyLabel
from conformance.schema.bridge import NUMBER_HEADER, Bridge, GeneratedCase
from conformance.schema.oracle import Contradiction
from conformance.schema.repeating import repeating

_CHECK: Final = "tollgate_clauses"
_PHASES: Final = ("examples", "coverage", "fuzzing", "stateful")


def explore(
    document: dict[str, Any],
    bridge: Bridge,
    judge: Callable[[GeneratedCase], Iterable[Contradiction]],
    *,
    keys: Sequence[KeyLabel],
    mode: Literal["positive", "negative"],
    phases: Sequence[str],
    examples: int,
    seed: int,
) -> None:
    """Generate requests from a document and judge every answer; the bridge keeps what is wrong.

    keys: taken in turn. mode: of the data. examples: the most per operation.
    """

    def tollgate_clauses(ctx: Any, response: Any, case: Any) -> None:  # noqa: ANN401, ARG001 # reason: the library's form
        asked = _asked(response, case)
        bridge.failures += [(fault, asked.number) for fault in judge(asked)]

    generation = {
        "mode": mode,
        "max-examples": examples,
        "database": "none",
        "deterministic": False,
        "with-security-parameters": False,
    }
    config = _config(generation, phases, seed)
    schema = schemathesis.openapi.from_dict(document, config=config)
    schema.app = bridge
    bridge.keys = itertools.cycle(keys)
    CHECKS.register(tollgate_clauses)
    try:
        with repeating(), _fresh_settings():
            for event in from_schema(schema).execute():
                if bridge.stopped is not None:
                    break
                if isinstance(event, events.NonFatalError):
                    bridge.errors.append(f"{event.label}: {event.value}")
                elif isinstance(event, events.FatalError):
                    bridge.errors.append(str(event.exception))
    finally:
        CHECKS.unregister(_CHECK)


@contextlib.contextmanager
def _fresh_settings() -> Iterator[None]:
    """Clear the cached settings before and after, so that single examples use the current ones.

    The library caches those of the first example that it draws in this process.
    """
    default_settings.cache_clear()
    try:
        yield
    finally:
        default_settings.cache_clear()


def _config(generation: dict[str, Any], phases: Sequence[str], seed: int) -> SchemathesisConfig:
    quiet = {"extra-data-sources": {"responses": False}}
    configured: dict[str, Any] = {name: {"enabled": name in phases} for name in _PHASES}
    configured["fuzzing"] |= {**quiet, "error-feedback": {"enabled": False}}
    configured["coverage"] |= {**quiet, "unexpected-methods": []}
    configured["examples"] |= quiet
    configured["stateful"] |= {"inference": {"algorithms": []}, "max-steps": 4}
    return SchemathesisConfig.from_dict(
        {
            "base-url": "http://localhost",
            "seed": seed,
            "workers": 1,
            "cache": {"enabled": False},
            "continue-on-failure": True,
            "suppress-health-check": ["all"],
            "analysis": {"constants": {"enabled": False}},
            "generation": generation,
            "phases": configured,
            "checks": {"enabled": False, _CHECK: {"enabled": True}},
        }
    )


def _asked(response: Any, case: Any) -> GeneratedCase:  # noqa: ANN401 # reason: no stable types
    return GeneratedCase(
        str(case.operation.definition.raw["operationId"]),
        case.meta is not None and case.meta.generation.mode.is_negative,
        None if isinstance(case.body, schemathesis.core.NotSet) else case.body,
        int(response.headers.get(NUMBER_HEADER.lower(), ["0"])[0]),
    )
