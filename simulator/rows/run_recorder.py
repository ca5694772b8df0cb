"""Records one run: connects recorder, sink, tally and checkers, and makes the result.

A simulation, a replay or a compiled loop writes rows to `book.recorder` and calls `close`. This
module defines the content of a summary. `CounterIndex` says which counters a subject is counted in:
the matching is the engine's (`engine.limits.rules`), in an instance of its own, and no counter of
the run's limiter is read here.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from engine.limits import LimitTable
from engine.limits.rules import CounterFamily, RequestClass, RuleSet, Subject, counter_keys
from engine.limits.table import COUNTER_KEYS
from engine.profile import LimitsProfile, NodesProfile
from simulator.rows.invariants import Checker, Violation, checkers
from simulator.rows.parquet import REQUESTS_FILE, CountSink, FileSink, MemorySink
from simulator.rows.record import (
    CHUNK_ROWS,
    Counters,
    Interner,
    Recorder,
    SubjectTable,
    Watcher,
    columns_by,
)
from simulator.rows.result import SUMMARY_FORMAT, Keep, Result
from simulator.rows.statistics import NodesStatistics, RunStatistics, Utilization


class CounterIndex:
    """Finds the counters that a request is counted in.

    tables: limit tables by name, `Default` among them. profile: how they are played. legs: those
    that a subject was counted in, by place; the run's subjects know their counters under each.
    """

    def __init__(self, tables: Mapping[str, LimitTable], profile: LimitsProfile) -> None:
        self._legs = RuleSet(tables, profile)
        self.classifier = self._legs.classifier
        self._of_class: dict[RequestClass, Counters] = {}
        self._places = Interner()
        self.legs: Sequence[CounterFamily] = self._places.known
        rules = [rule for table in tables.values() for rule in table]
        self.clauses = tuple(dict.fromkeys(rule.id for rule in rules))

    def counted(self, subject: Subject) -> tuple[Counters, tuple[Hashable, ...]]:
        """Return the counters that a subject is counted in, and its key in each family."""
        resources = self._legs.classifier.matching(subject.method, subject.path)
        asked = RequestClass.of(subject, resources)
        places = self._of_class.get(asked)
        if places is None:
            legs = self._legs.of_class(asked)
            places = tuple((self._places[leg], leg.key_place) for leg in legs)
            self._of_class[asked] = places
        return places, counter_keys(subject)


@dataclass(frozen=True, slots=True)
class RunHeader:
    """The settings of a run, before it begins; all of it is in the summary.

    start_time_ns: the run's instant 0, ns since the Unix epoch. groups: client group → numbers of
    its clients.
    """

    name: str
    seed: int | None
    fidelity: str
    start_time_ns: int
    duration_ns: int
    warm_up_ns: int = 0
    groups: Mapping[str, range] = field(default_factory=dict)


class RunRecorder:
    """Everything that one run writes to.

    tables, profile: the limits in force, for the table by clause and the checkers.
    folder: where `requests.parquet` is streamed to; None keeps the rows in memory.
    columns: those that the file keeps; all of them for None, and in memory always.
    check: run the invariant checkers. headroom: watch how full counters are, which costs more than
    all checks; for runs that somebody will look at.
    by_client: ties in time go by client number (not in replay).
    known: the subjects of all rows, where they are known before the run. keep: what the run
    keeps. watchers: take the rows too. nodes:
    which nodes are played; `self.nodes` counts what they decide otherwise than one would, None
    where they are exact.
    """

    def __init__(  # noqa: PLR0913 # reason: the parts of a run
        self,
        header: RunHeader,
        tables: Mapping[str, LimitTable],
        profile: LimitsProfile,
        *,
        folder: Path | None = None,
        columns: Collection[str] | None = None,
        check: bool = True,
        headroom: bool = False,
        by_client: bool = True,
        chunk_rows: int = CHUNK_ROWS,
        known: tuple[CounterIndex, SubjectTable] | None = None,
        keep: Keep = "rows",
        watchers: Sequence[Watcher] = (),
        nodes: NodesProfile | None = None,
    ) -> None:
        self.header, self._folder = header, folder
        self._columns = None if folder is None or columns is None else list(columns)
        self.view, subjects = known or (CounterIndex(tables, profile), SubjectTable())
        self.nodes = None
        if nodes is not None and not nodes.is_exact:
            self.nodes = NodesStatistics(nodes, header.groups, header.warm_up_ns, subjects)
        self.tally = RunStatistics(
            self.view.legs,
            self.view.clauses,
            end_ns=header.duration_ns,
            warm_up_ns=header.warm_up_ns,
            groups=header.groups,
            by_subject=keep != "totals" and bool(header.groups),
        )
        if keep != "rows":
            self._sink = CountSink()
        elif folder is None:
            self._sink = MemorySink()
        else:
            self._sink = FileSink(folder / REQUESTS_FILE, self._columns)
        self._checkers: list[Checker] = []
        if check:
            self._checkers = checkers(self.view.legs, profile, nodes, by_client=by_client)
        watchers = [*watchers, self._sink.take, self.tally.take]
        watchers += [checker.take for checker in self._checkers]
        self._headroom: Utilization | None = None
        if header.groups and headroom:
            self._headroom = Utilization(
                self.view.legs, end_ns=header.duration_ns, warm_up_ns=header.warm_up_ns
            )
            watchers.append(self._headroom.take)
        self.recorder = Recorder(
            watchers,
            chunk_rows=chunk_rows,
            subjects=subjects,
            from_ns=header.warm_up_ns,
        )

    def close(self, of_service: Sequence[Violation] | None = None) -> Result:
        """Finish the run; returns its result, with the rows in memory or in the folder's file.

        of_service: broken invariants of the service itself, which no row shows; None where nobody
        looked at them.
        """
        self.recorder.close()
        self._sink.close()
        violations = [v for checker in self._checkers for v in checker.violations]
        violations += [*self._sums(), *(of_service or ())]
        summary = self._summary(violations, looked_inside=of_service is not None)
        return Result(
            summary,
            table=self._sink.table(),
            folder=self._folder,
            violations=tuple(violations),
            check_s=sum(checker.spent_s for checker in self._checkers),
        )

    def _invariants(self, *, looked_inside: bool) -> list[str]:
        if not self._checkers:
            return []
        names = [*(checker.invariant for checker in self._checkers), "sum"]
        return [*names, "tokens"] if looked_inside else names

    def _sums(self) -> list[Violation]:
        """Check the tally's sums: of attempts against the rows, and of requests.

        offered = admitted + refused + pending; requests = succeeded + failed + pending, each of
        them at least 0, and each request has one first attempt at most.
        """
        if not self._checkers:
            return []
        totals = self.tally.totals()
        offered, requests = totals["offered"], totals["requests"]
        parts = totals["admitted"] + totals["refused"] + totals["pending"]
        if offered != parts or (not self.header.warm_up_ns and parts != self._sink.rows):
            return [Violation("sum", f"{self._sink.rows} rows, offered {offered} ≠ {parts}")]
        ended, firsts = totals["succeeded"] + totals["failed"], self.tally.first_attempts
        if not totals["succeeded"] <= ended <= requests:
            return [Violation("sum", f"{requests} requests began, {ended} ended")]
        # One that began in the warm-up may make its first attempt after it.
        if not self.header.warm_up_ns and firsts > requests:
            what = f"{requests} requests began, {firsts} made a first attempt"
            return [Violation("sum", what)]
        return []

    def _summary(self, violations: list[Violation], *, looked_inside: bool) -> dict[str, Any]:
        header = self.header
        return {
            "format": SUMMARY_FORMAT,
            "version": _version(),
            "scenario": header.name,
            "fidelity": header.fidelity,
            "seed": header.seed,
            "start_time": iso_text(header.start_time_ns),
            "start_time_ns": header.start_time_ns,
            "duration_ns": header.duration_ns,
            "warm_up_ns": header.warm_up_ns,
            "rows": self._sink.rows,
            "sha256": self._sink.hexdigest(),
            "decisions_sha256": self._sink.hexdigest(without="status"),
            **({} if self._columns is None else {"columns": self._columns}),
            "totals": self.tally.totals(),
            "windows": self.tally.windows(),
            "clauses": self.tally.clauses(self.recorder.shadow),
            "counters": {
                leg.name: list(columns_by(COUNTER_KEYS[leg.key_place]))
                for leg in self.view.legs
                if leg.rule.block_ns
            },
            "groups": self.tally.groups(),
            **({} if self.nodes is None else {"nodes": self.nodes.summary()}),
            **({} if self._headroom is None else {"headroom": self._headroom.summary()}),
            "checks": {
                "ran": bool(self._checkers),
                "invariants": self._invariants(looked_inside=looked_inside),
                "faults": sum(checker.faults for checker in self._checkers)
                + sum(v.invariant in {"sum", "tokens"} for v in violations),
            },
        }


@functools.cache
def _version() -> str:
    return importlib.metadata.version("tollgate")


def iso_text(instant_ns: int) -> str:
    """Return an instant since the Unix epoch as UTC, with as many decimals as it has."""
    seconds, rest_ns = divmod(instant_ns, 1_000_000_000)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    fraction = f".{rest_ns:09d}".rstrip("0") if rest_ns else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"
