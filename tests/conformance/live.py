"""Runs that are as live ones in everything but the wire: an engine on virtual time answers.

The requests that are generated and the waits of a live run are then tried in seconds; what stands
on the wire itself has its tests in `wire`.
"""

from __future__ import annotations

import contextlib
import random
import uuid
from collections.abc import Iterator
from functools import partial
from unittest import mock

from conformance.messages.exchange import HttpRequest
from conformance.target import Target
from conformance.wire.transport import Answer, EngineTransport, Place
from engine import Engine
from tests.conformance.checks.changed import Change

__all__ = ["in_place_of_http"]


@contextlib.contextmanager
def in_place_of_http(engine: Engine, change: Change | None = None) -> Iterator[None]:
    """Let every transport of the harness end at this engine; its own values are always the same.

    change: alters the answers.
    """
    drawn = random.Random(6)

    class Transport(EngineTransport):
        """Takes the place of `HttpTransport`."""

        def __init__(self, target: Target) -> None:
            super().__init__(engine, target)

        async def send(self, ask: HttpRequest, place: Place) -> Answer:
            answer: Answer = await super().send(ask, place)
            return answer if change is None else change(ask, answer)

    def new_id() -> uuid.UUID:
        return uuid.UUID(int=drawn.getrandbits(128), version=4)

    with (
        mock.patch("conformance.runner.runner.HttpTransport", Transport),
        mock.patch("conformance.starter.HttpTransport", Transport),
        mock.patch("conformance.starter.uuid.uuid4", new_id),
        mock.patch("random.SystemRandom", partial(random.Random, 5)),
    ):
        yield
