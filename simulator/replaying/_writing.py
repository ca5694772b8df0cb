"""From decisions to the rows of a result, block by block; a client is one key at one address."""

from __future__ import annotations

import dataclasses
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from simulator.replaying._arrivals import Arrivals
from simulator.replaying._deciding import Decisions, Told, limit_subject
from simulator.results import Result, RunBook
from simulator.results.rows import NO_STATUS, Subject

__all__ = ["OPEN_END_NS", "Writer"]

OPEN_END_NS: Final = (1 << 63) - 1
"""The end of a replay until its last row is written: after all that can happen in it."""
_OK: Final = 200
_ABOVE_OK: Final = 300

Counts: TypeAlias = npt.NDArray[np.int64]


class Writer:
    """Writes rows to a book, and learns meanwhile how long the replay lasts."""

    def __init__(self, book: RunBook, arrivals: Arrivals) -> None:
        self._book = book
        self._subjects = _subjects(book, arrivals)
        self._verdicts: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._told = Told()
        self._last_ns = 0
        size = max(self._subjects, default=-1) + 1
        self._requests: Counts = np.zeros(size, dtype=np.int64)
        self._well: Counts = np.zeros(size, dtype=np.int64)

    def take(self, decisions: Decisions) -> None:
        """Write the next rows."""
        recorder = self._book.recorder
        block, told = decisions.block, decisions.told
        if len(told.verdicts) != len(self._verdicts):
            self._verdicts = np.array([recorder.verdicts.number(*pair) for pair in told.verdicts])
        self._told = told
        over_ns = block.t_ns + np.maximum(decisions.wait_ns, decisions.latency_ns)
        self._last_ns = max(self._last_ns, int(over_ns.max()))
        self._count(decisions)
        recorder.take(
            {
                "t_ns": block.t_ns,
                "subject": self._subjects[block.party],
                "attempt": np.ones_like(block.t_ns),
                "verdict": self._verdicts[decisions.verdict],
                "wait_ns": decisions.wait_ns,
                "latency_ns": decisions.latency_ns,
                "status": decisions.status,
            }
        )

    def _count(self, decisions: Decisions) -> None:
        """Count requests: each row is one, which ends with its only attempt.

        It ends well as it does in a simulation: let in and, where a body was run, answered 2xx.
        """
        subject, status = self._subjects[decisions.block.party], decisions.status
        good = (status == NO_STATUS) | ((status >= _OK) & (status < _ABOVE_OK))
        size = len(self._requests)
        self._requests += np.bincount(subject, minlength=size)
        self._well += np.bincount(subject[decisions.passed & good], minlength=size)

    def close(self) -> Result:
        """Close the book. A replay is over after its last request, and the last wait it caused."""
        book = self._book
        for subject, count in enumerate(self._requests.tolist()):
            if count:
                book.tally.requests_ended(subject, count, int(self._well[subject]))
        for clause, count in self._told.shadow.items():
            book.tally.add_shadow_requests(clause, count)
        book.header = dataclasses.replace(book.header, duration_ns=self._last_ns + 1)
        return book.close()


def _subjects(book: RunBook, arrivals: Arrivals) -> npt.NDArray[np.int64]:
    """Return the number that each party has in the book."""
    clients: dict[tuple[str | None, str], int] = {}
    numbers = [
        book.recorder.subjects.number(
            Subject(
                clients.setdefault((who.key, who.ip), len(clients)),
                who.tenant,
                who.application,
                who.key,
                who.ip,
                who.method,
                who.path,
                book.view.counters(limit_subject(who)),
            )
        )
        for who in arrivals.parties
    ]
    return np.array(numbers, dtype=np.int64)
