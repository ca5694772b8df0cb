"""From decisions to the rows of a result, block by block; a client is one key at one address."""

from __future__ import annotations

import dataclasses
from typing import Final

import numpy as np
import numpy.typing as npt

from simulator.replaying._arrivals import Arrivals
from simulator.replaying._deciding import Decisions, Told, limit_subject
from simulator.replaying._numbering import distinct
from simulator.results import Result, RunBook
from simulator.results.rows import NO_STATUS
from simulator.results.subjects import TextTable, Words

__all__ = ["OPEN_END_NS", "Writer"]

OPEN_END_NS: Final = (1 << 63) - 1
"""The provisional end of a replay until its last row is written: later than any event."""
_OK: Final = 200
_ABOVE_OK: Final = 300


class Writer:
    """Writes rows to a book, and learns meanwhile how long the replay lasts."""

    def __init__(self, book: RunBook, arrivals: Arrivals) -> None:
        self._book = book
        self._subjects = _subjects(book, arrivals)
        self._verdicts: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._told = Told()
        self._last_ns = 0
        self._requests = self._well = 0

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
        status = decisions.status
        good = (status == NO_STATUS) | ((status >= _OK) & (status < _ABOVE_OK))
        self._requests += len(decisions)
        self._well += int(np.count_nonzero(decisions.passed & good))

    def close(self) -> Result:
        """Close the book. A replay is over after its last request, and the last wait it caused."""
        book = self._book
        book.tally.add_requests(self._requests, self._requests, self._well)
        for clause, count in self._told.shadow.items():
            book.tally.add_shadow_requests(clause, count)
        book.header = dataclasses.replace(book.header, duration_ns=self._last_ns + 1)
        return book.close()


def _subjects(book: RunBook, arrivals: Arrivals) -> npt.NDArray[np.int64]:
    """Return the number that each party has in the book."""
    parties = arrivals.parties
    key, ip, method, path = parties.key, parties.ip, parties.method, parties.path
    kind, one_of_each = parties.kinds()
    counted = [book.view.counted(limit_subject(who)).counters for who in one_of_each]
    # Nobody's key is of two owners; texts that were told apart may have become one label.
    numbers, first = distinct([key.codes, ip.codes, method.codes, path.codes])
    clients, _ = distinct([key.codes[first], ip.codes[first]])
    owner = parties.owner[first]
    tenants, applications = Words(), Words()
    tenant = np.array([tenants.number(each.tenant) for each in parties.owners])
    application = np.array([applications.number(each.application) for each in parties.owners])
    book.recorder.subjects.adopt(
        clients,
        {
            "tenant": TextTable(tenant[owner], tenants.texts),
            "application": TextTable(application[owner], applications.texts),
            "key": TextTable(key.codes[first], key.texts),
            "ip": TextTable(ip.codes[first], ip.texts),
            "method": TextTable(method.codes[first], method.texts),
            "path": TextTable(path.codes[first], path.texts),
        },
        counted,
        kind[first],
        # As `engine.limits.table.FAMILIES` begins: a client is a key at an address.
        (clients, key.codes[first], ip.codes[first]),
    )
    return numbers
