"""Workers in the process of a test, which sees and changes what they play."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from simulator.study.workers import Workers


class InProcess(Workers):
    """Calls at once, and notes how many tasks come together."""

    def __init__(self, *_: object) -> None:
        super().__init__(2)
        self.sizes = list[int]()

    def submit(self, call: Any, *args: Any, **kwargs: Any) -> Future[Any]:
        self.sizes.append(len(args[1]))
        future = Future[Any]()
        future.set_result(call(*args, **kwargs))
        return future

    def close(self) -> None:
        """Nothing is under way after a call."""
