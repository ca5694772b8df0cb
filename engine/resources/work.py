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
from engine.resources.context import Context

_FAILED_STATUS: Final = 500
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


class Work:
    """One operation on its way, by the columns of its log entry.

    entity: its type and id. actor_id: the application, None where it is unknown (a proxy without
        authentication, the holder of an upload address).
    """

    __slots__ = ("_context", "_entry")

    def __init__(
        self,
        context: Context,
        operation: str,
        entity: tuple[str, str],
        *,
        tenant_id: str,
        actor_id: str | None,
    ) -> None:
        self._context = context
        work_id, wall_ns = context.services.new_id(), context.wall_ns
        self._entry = LogEntry(
            work_id, tenant_id, wall_ns, operation, *entity, actor_id, _FAILED_STATUS
        )

    async def carry_out(
        self,
        begin: Callable[[], _Plan],
        wait: Callable[[_Plan], Awaitable[_Result]],
        finish: Callable[[_Result], Response],
    ) -> Response:
        """Begin, await, finish; returns what finish answers.

        begin, finish: each inside a transaction of its own. If begin raises, nothing is recorded.
        wait: with no transaction open. An exception from wait or finish propagates after the intent
            is removed.
        """
        store = self._context.services.store
        with store.transaction():
            plan = begin()
            self._open()
        try:
            result = await wait(plan)
            with store.transaction():
                response = finish(result)
                self._close(response.status)
        except BaseException as error:
            with store.transaction():
                self._close(error.status if isinstance(error, Problem) else _FAILED_STATUS)
            raise
        return response

    def _open(self) -> None:
        services = self._context.services
        services.store.open_work(replace(self._entry, at_ns=services.world.clock.wall_ns))

    def _close(self, status: int) -> None:
        services, entry = self._context.services, self._entry
        services.store.close_work(entry.id)
        services.store.add_log(replace(entry, id=services.new_id(), status=status))
