"""Work: an operation that awaits the world, as begin → await → finish.

Begin and finish each run in a transaction, and none is open across the await, so that a slow
destination blocks no other request. Begin writes an intent to the store; finish, or a failure of
the await, removes it and writes the one log entry (D-LOGS). A kill between the two leaves the
intent, which the next start logs as failed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from msgspec.structs import replace

from engine.messages import Problem, Response
from engine.model import LogEntry
from engine.resources.context import Context, Services

FAILED_STATUS: Final = 500
"""The status of work that has not finished."""

LARGE_BYTES: Final = 16_384
"""Larger bodies are processed in the worker thread (D-BODY-COST): one may take 0.1 s."""

_Plan = TypeVar("_Plan")
_Result = TypeVar("_Result")


async def apart_if_large(context: Context, size_bytes: int, work: Callable[[], _Result]) -> _Result:
    """Run the work; for a large body in the worker thread, so that other requests go on."""
    if size_bytes <= LARGE_BYTES:
        return work()
    whose = context.known_caller or context.request.ip
    return await context.services.world.apart(work, whose)


async def carry_out(
    context: Context,
    entry: LogEntry,
    begin: Callable[[], _Plan],
    wait: Callable[[_Plan], Awaitable[_Result]],
    finish: Callable[[_Result], Response],
) -> Response:
    """Begin, await, finish; returns what finish answers.

    entry: the log entry of work that never finishes, under the work's id.
    begin, finish: each inside a transaction of its own. If begin raises, nothing is recorded.
    wait: with no transaction open. An exception from wait or finish propagates after the intent
        is removed.
    """
    services = context.services
    store = services.store
    with store.transaction():
        plan = begin()
        store.open_work(replace(entry, at_ns=services.world.clock.wall_ns))
    try:
        result = await wait(plan)
        with store.transaction():
            response = finish(result)
            _close(services, entry, response.status)
    except BaseException as error:
        with store.transaction():
            _close(services, entry, error.status if isinstance(error, Problem) else FAILED_STATUS)
        raise
    return response


def _close(services: Services, entry: LogEntry, status: int) -> None:
    services.store.close_work(entry.id)
    services.store.add_log(replace(entry, id=services.new_id(), status=status))
