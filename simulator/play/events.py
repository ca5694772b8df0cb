"""One SimPy event: something happens at an instant, in a stated order among equals.

SimPy's `timeout` carries no priority, so requests at one instant would be decided in the order in
which their timeouts were made. `At` is scheduled with a priority that holds the order of the
simulator: (t_ns, client number, attempt), then the request's serial number within its client.

Time is in whole nanoseconds.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

import simpy

SERVICE: Final = 1
"""The service's own business at an instant (an instance falls idle) comes before any client's."""

ANSWER: Final = 0
"""Used as attempt number of an answer: it reaches its client before the client's next attempt."""

FIRST: Final = 1
"""The first attempt's number."""

FILE: Final = 1 << 40
"""The serials of a client's further files of split jobs begin here, above those of its requests."""

FIRST_OF_CLIENT: Final = 2
"""The order of a client's first event at an instant, where there is only one client."""

NEVER_NS: Final = 1 << 62
"""After every instant of a run."""

_SERIAL_BITS: Final = 64
_ATTEMPT_BITS: Final = 16


class At(simpy.Event):
    """Happens `delay_ns` from now, among events of that instant in order of `order`."""

    _value = None
    _ok = True

    def __init__(self, env: simpy.Environment, delay_ns: int, order: int) -> None:
        self.env = env
        self.callbacks = []
        env.schedule(self, order, delay_ns)  # type: ignore[arg-type] # reason: any whole number orders


def order_of(client: int, attempt: int, serial: int) -> int:
    """Return the order, among events of one instant, of a client's attempt.

    attempt: first is 1, `ANSWER` for an answer. serial: of the request within its client.

    >>> order_of(1, 1, 0) < order_of(1, 2, 0) < order_of(2, 1, 0)
    True
    """
    assert 0 <= attempt < 1 << _ATTEMPT_BITS
    place = client << _ATTEMPT_BITS | attempt
    return (place << _SERIAL_BITS | serial) + FIRST_OF_CLIENT


def spawn(env: simpy.Environment, process: Generator[simpy.Event, object, Any]) -> None:
    """Run a process up to its first event now; give it a SimPy process only if it has one."""
    first = next(process, None)
    if first is not None:
        env.process(_from(first, process))


def _from(
    first: simpy.Event, rest: Generator[simpy.Event, object, Any]
) -> Generator[simpy.Event, object, None]:
    yield first
    yield from rest
