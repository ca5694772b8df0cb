"""A deployment in this process, on virtual time: the demo's tenants and keys in one engine.

The suite's own tests and the self-test use it. It offers what `python -m engine serve --demo`
offers over HTTP, behind an `EngineTransport` and without real waiting.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from conformance.target import Budget, Target
from conformance.wire.transport import EngineTransport, Latency
from engine import Call, CallAnswer, Engine, LimitTable, ManualClock, ModelWorld, Profile
from engine.files import Document, from_document
from engine.http.demo import demo_lines, target_of
from engine.messages import Json
from engine.tokens.strict_json import dumps

_DESTINATION: Final = "https://destination.example"
_DELAY: Final = re.compile(r"/delay/([0-9]{1,2})(?:\?|$)")
_WAITS: Final = re.compile(r"setTimeout\(\w+, ([0-9]{1,6})\)")
_SECOND_NS: Final = 1_000_000_000
_SERVICE_NS: Final = 20_000_000
"""The run time of reactor code here, so that concurrent invocations overlap."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """An engine, the target that describes it, and the transport to it."""

    engine: Engine
    target: Target
    transport: EngineTransport


def deploy(
    *,
    profile: Profile | None = None,
    limits: LimitTable | None = None,
    seed: int = 7,
    latency: Latency | None = None,
    keys_a_role: int = 8,
    engine: Callable[..., Engine] = Engine,
    **target: Any,  # noqa: ANN401 # reason: fields of Target
) -> Deployment:
    """Return a new deployment with the demo's keys of every role.

    engine: what creates the engine, where another class than `Engine` is wanted. target: fields of
    the target that differ (`sources=()`, `budget=Budget(minutes=60)`, …).
    """
    made = engine(
        profile=profile,
        limits=limits,
        world=ModelWorld(
            clock=ManualClock(),
            seed=seed,
            destination=_destination,
            service_ns=_service_ns,
        ),
    )
    lines = list(demo_lines(made, b"in process" * 4, keys_a_role, _DESTINATION))
    demo = from_document(Target, Document(target_of("http://in-process.example", made, lines)))
    own: dict[str, Any] = {
        "proxy_key_header": made.profile.http.proxy_key_header,
        "budget": Budget(requests=1_000_000, minutes=100_000),
    }
    described = dataclasses.replace(demo, **own | target)
    return Deployment(made, described, EngineTransport(made, described, latency))


def _service_ns(code: str, args: Json) -> int:  # noqa: ARG001 # reason: the port's form
    """Return how long reactor code runs here: a base time and the wait of its `setTimeout`."""
    waits = _WAITS.search(code)
    return _SERVICE_NS + (int(waits[1]) * 1_000_000 if waits else 0)


def _destination(call: Call) -> tuple[int, CallAnswer | None]:
    """Echo as the demo's own destination does, after the delay that the path names."""
    asked = _DELAY.search(call.url)
    echoed = {"method": call.method, "headers": dict(call.headers), "body_bytes": len(call.body)}
    answer = CallAnswer(200, {"Content-Type": "application/json"}, dumps(echoed))
    return (int(asked[1]) * _SECOND_NS if asked else 0), answer
