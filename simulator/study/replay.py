"""Two limit tables over the same arrivals: who gains and who loses by the new one.

A request is gained when the old table refused it and the new one lets it in, lost the other way
round. The comparison is request by request, so what cancels out in totals is still seen.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections import deque
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import numpy as np

from engine.errors import InputError
from engine.limits import LimitTable
from engine.messages import Outcome
from simulator.logs import LogMap, LogStream, stream_log
from simulator.logs.arrivals import Arrivals, make_arrivals, read_speed, speed_text
from simulator.options import DEFAULT, ReplayOptions, table_of, takes_options
from simulator.play.gates import Rows
from simulator.play.replay import limit_subject, replay_arrivals
from simulator.rows import Result, RunBook, RunHeader
from simulator.rows.counters import LimitsView
from simulator.rows.record import (
    NO_STATUS,
    Chunk,
    Numbers,
    Recorder,
    SubjectTable,
    Texts,
    clause_of,
    distinct,
    words,
)
from simulator.rows.reducer import Cells
from simulator.rows.run_writer import iso_text
from simulator.rows.tally import Tally

SHOWN: Final = 50
"""Keys and addresses that a summary names; the counts are of all."""

_COUNTS: Final = ("refused_old", "refused_new", "gained", "lost")
_CHANGES: Final = 4
"""Neither table lets a request in, the newer one alone does, the older one alone, both do."""


class Kept(deque[Chunk]):
    """Keeps rows until somebody takes them out."""

    take = deque.append


class Comparison:
    """Takes what two tables decided about the same arrivals, and counts by subject and by verdict.

    old: what the older table's gate writes to, ahead of the newer one's. It is a watcher of the
    newer one's rows. subjects: who asks, in both.
    """

    def __init__(self, subjects: SubjectTable) -> None:
        self._subjects = subjects
        self._per_subject = Cells()
        self._of_verdicts = Cells(), Cells()
        self._verdicts: list[Sequence[tuple[Outcome, str | None]]] = [(), ()]
        self._olds = Kept()
        recorder = Recorder([self._olds], subjects=subjects)
        self.old = Rows(recorder, Tally((), (), end_ns=0))

    def take(self, chunk: Chunk) -> None:
        """Take what the newer table decided about the next rows."""
        old = self._olds.popleft()
        assert len(old) == len(chunk), "both tables decide about the same rows"
        change = 2 * old.passed().astype(np.int64) + chunk.passed()
        self._per_subject.add(chunk.subject, change, (len(self._subjects), _CHANGES))
        self._verdicts = [old.verdicts, chunk.verdicts]
        for cells, each in zip(self._of_verdicts, (old, chunk), strict=True):
            cells.add(each.verdict, change, (len(each.verdicts), _CHANGES))

    def summary(self) -> dict[str, Any]:
        """Return what `summary.json` says of a comparison.

        `refused_old`, `refused_new`, `gained` and `lost` count requests, in total, by clause (by
        the clause that refused, the reported one where several did), by key and by address; of keys
        and addresses the `SHOWN` with the most changed requests are named, and `keys_changed` and
        `ips_changed` say how many there are.
        """
        keys, keys_changed = self._by(self._subjects.text("key"))
        ips, ips_changed = self._by(self._subjects.text("ip"))
        totals = _counted(self._per_subject).sum(axis=1).tolist()
        return {
            **dict(zip(_COUNTS, totals, strict=True)),
            "clauses": self._by_clause(),
            "keys_changed": keys_changed,
            "keys": keys,
            "ips_changed": ips_changed,
            "ips": ips,
        }

    def _by_clause(self) -> list[dict[str, Any]]:
        """Count by clause: it refused gained requests before, and refuses lost requests now."""
        lines: dict[str, dict[str, Any]] = {}
        for place, (verdicts, cells) in enumerate(
            zip(self._verdicts, self._of_verdicts, strict=True)
        ):
            refused, changed = _COUNTS[place], _COUNTS[place + 2]
            counted = dict(zip(_COUNTS, _counted(cells), strict=True))
            for (_, rule), *counts in zip(
                verdicts, counted[refused].tolist(), counted[changed].tolist(), strict=False
            ):
                if rule and counts[0]:
                    clause = clause_of(rule)
                    line = lines.setdefault(clause, {"clause": clause, **dict.fromkeys(_COUNTS, 0)})
                    line[refused] += counts[0]
                    line[changed] += counts[1]
        return sorted(lines.values(), key=lambda line: line["clause"])

    def _by(self, names: Texts) -> tuple[list[dict[str, Any]], int]:
        """Count by a subject's name; return the lines that changed most, and how many changed."""
        totals: Numbers = np.zeros((len(_COUNTS), len(names.texts) + 1), dtype=np.int64)
        for total, counts in zip(totals, _counted(self._per_subject), strict=True):
            np.add.at(total, names.codes, counts)  # none, −1, is the last place
        known = [*names.texts, None]
        change = totals[2] + totals[3]
        changed = np.flatnonzero(change)
        least = 0 if len(changed) <= SHOWN else np.partition(change, -SHOWN)[-SHOWN]
        # Lines are made of few of them: all of a log's addresses may have changed.
        shown = changed[change[changed] >= least].tolist()
        shown.sort(key=lambda code: (-change[code], known[code] or ""))
        lines = [
            {"name": known[code], **dict(zip(_COUNTS, totals[:, code].tolist(), strict=True))}
            for code in shown[:SHOWN]
        ]
        return lines, len(changed)


def _counted(cells: Cells) -> Numbers:
    """Return a line of each of `_COUNTS`, from the counts of each change."""
    neither, gained, lost, _ = cells.counts.T if cells.counts.size else np.zeros((_CHANGES, 0), int)
    return np.array([neither + gained, neither + lost, gained, lost], dtype=np.int64)


SEED: Final = 0
"""A replay has no random draws, except the engine's identifiers, which use this seed."""

_PSEUDONYM_KEY_BYTES: Final = 32


@takes_options(ReplayOptions)
def replay(options: ReplayOptions) -> Result:
    """Put the requests of a log through the limits: who would have been refused?

    {options}

    `summary["against"]` says who gains and who loses under `limits`, compared with an older table.
    Instants are floor((t − t0) / speed), exactly. Without a folder the rows stay in memory.

    Raises `InputError` for a log, a map, limits or columns that cannot be used.
    """
    limits, old = options.table, options.against
    old = None if old is None else table_of(old)
    profile, log_map, speed = options.read_profile, options.read_map(), read_speed(options.speed)
    _check(options)
    log = stream_log(
        options.source,
        format=options.format,
        map=log_map,
        time_column=options.time_column,
        progress=options.stage("reading"),
    )
    extra: dict[str, Any] = {"command": list(options.command), "limits": _name(options.limits)}
    key = secrets.token_bytes(_PSEUDONYM_KEY_BYTES) if options.pseudonymise else None
    with options.written() as folder:
        taken = make_arrivals(
            log,
            kind=options.kind,
            tenant_kind=options.tenant_kind,
            speed=speed,
            pseudonym_key=key,
            prefix_bits=profile.http.ipv6_prefix_bits,
            folder=folder,
        )
        with taken as arrivals:
            extra["replay"] = {**log_summary(log, arrivals), **_told(options, log_map, speed)}
            book, compared = _decided(options, limits, old, run_name(log.name), arrivals, folder)
            if compared is not None:
                extra["against"] = {"limits": _name(options.against), **compared.summary()}
            result = book.close()
            result.summary.update(extra)
            if folder is not None:
                result.write_to(folder)
    result.folder = options.folder
    return result


def _check(options: ReplayOptions) -> None:
    """Raise `InputError` where the options do not fit together."""
    profile = options.read_profile
    if options.fidelity != "engine" and profile.limits.counted_statuses == "success":
        raise InputError(
            'counted_statuses = "success" must go with fidelity engine; the limits alone know'
            " no status"
        )
    if not profile.nodes.is_exact:
        raise InputError(
            f"nodes.sharing = {profile.nodes.sharing!r} must be 'exact' in a replay; play "
            'nodes in a scenario, whose arrivals may be those of a file (kind = "replay")'
        )


def _told(options: ReplayOptions, log_map: LogMap | None, speed: Fraction) -> dict[str, Any]:
    """Return the replay's part of the run's summary."""
    mapped = () if log_map is None else log_map.sources
    return {
        "as": None if "application_kind" in mapped else options.kind,
        "map": None if log_map is None else log_map.name,
        "tenant": None if "tenant_kind" in mapped else options.tenant_kind,
        "speed": speed_text(speed),
        "pseudonymised": options.pseudonymise,
    }


def _decided(
    options: ReplayOptions,
    limits: LimitTable,
    old: LimitTable | None,
    name: str,
    arrivals: Arrivals,
    folder: Path | None,
) -> tuple[RunBook, Comparison | None]:
    """Decide and write every row; compare with the older limits, where there are any."""
    tables, profile = {"Default": limits}, options.read_profile
    view, subjects = LimitsView(tables, profile.limits), SubjectTable()
    numbers = enter_parties(subjects, arrivals, view)
    requests = _Requests()
    compared = None if old is None else Comparison(subjects)
    book = RunBook(
        RunHeader(name, SEED, options.fidelity, arrivals.start_ns, _OPEN_END_NS),
        tables,
        profile.limits,
        folder=folder,
        columns=options.kept,
        check=options.check,
        by_client=False,
        known=(view, subjects),
        watchers=[requests] if compared is None else [requests, compared],
    )
    decide = partial(
        replay_arrivals,
        arrivals,
        profile=profile,
        subjects=numbers,
        fidelity=options.fidelity,
        seed=SEED,
    )
    rows = Rows(book.recorder, book.tally)
    passes = [decide(limits, rows=rows, progress=options.stage("deciding"))]
    if compared is not None:
        assert old is not None
        passes.insert(0, decide(old, rows=compared.old))
    for _ in zip_longest(*passes):
        pass  # side by side, so that neither table's rows wait long for the other's
    if compared is not None:
        compared.old.recorder.close()
    book.recorder.close()
    requests.tell(book)
    return book, compared


def _name(limits: LimitTable | str | Path | None) -> str:
    if limits is None:
        return DEFAULT
    return "given" if isinstance(limits, LimitTable) else str(limits)


def log_summary(log: LogStream, arrivals: Arrivals) -> dict[str, Any]:
    """Return what a summary says of the log that was replayed."""
    parties = arrivals.parties
    return {
        "log": log.name,
        "format": log.format,
        "requests": len(arrivals),
        "unparsed": log.unparsed,
        "unparsed_first": list(log.unparsed_first),
        "log_start": iso_text(arrivals.start_ns),
        "log_end": iso_text(arrivals.end_ns),
        "log_span_ns": arrivals.end_ns - arrivals.start_ns,
        "addresses": len(parties.ip.texts),
        "keys": len(set(parties.key.texts)),
    }


def run_name(log_name: str) -> str:
    """Return the log's name without what says how it is written."""
    return log_name.removesuffix(".gz").rsplit(".", 1)[0] or log_name


_OPEN_END_NS: Final = (1 << 63) - 1
"""The provisional end of a replay until its last row is written: later than any event."""
_OK: Final = 200
_ABOVE_OK: Final = 300


class _Requests:
    """Counts requests: each row is one, which ends with its only attempt.

    It ends well as it does in a simulation: let in and, where a body was run, answered 2xx. A
    replay is over after its last request, and the last wait it caused.
    """

    def __init__(self) -> None:
        self._last_ns = 0
        self._requests = self._well = 0

    def take(self, chunk: Chunk) -> None:
        """Count the next rows."""
        over_ns = chunk.t_ns + np.maximum(chunk.wait_ns, chunk.latency_ns)
        self._last_ns = max(self._last_ns, int(over_ns.max()))
        status = chunk.status
        good = (status == NO_STATUS) | ((status >= _OK) & (status < _ABOVE_OK))
        self._requests += len(chunk)
        self._well += int(np.count_nonzero(chunk.passed() & good))

    def tell(self, book: RunBook) -> None:
        """Enter the counts and the end of the replay."""
        book.tally.add_requests(self._requests, self._requests, self._well)
        book.header = dataclasses.replace(book.header, duration_ns=self._last_ns + 1)


def enter_parties(subjects: SubjectTable, arrivals: Arrivals, view: LimitsView) -> Numbers:
    """Enter all parties as subjects; return each one's number."""
    parties = arrivals.parties
    key, ip, method, path = parties.key, parties.ip, parties.method, parties.path
    kind, one_of_each = parties.kinds()
    counted = [view.counted(limit_subject(who)).counters for who in one_of_each]
    # No key has two owners; several texts of the log may have become one label.
    numbers, first = distinct([key.codes, ip.codes, method.codes, path.codes])
    owner = parties.owner[first]
    tenants, applications = words(), words()
    tenant = np.array([tenants[each.tenant] for each in parties.owners])
    application = np.array([applications[each.application] for each in parties.owners])
    subjects.adopt(
        {
            "tenant": Texts(tenant[owner], tenants.known),
            "application": Texts(application[owner], applications.known),
            "key": Texts(key.codes[first], key.texts),
            "ip": Texts(ip.codes[first], ip.texts),
            "method": Texts(method.codes[first], method.texts),
            "path": Texts(path.codes[first], path.texts),
        },
        counted,
        kind[first],
    )
    return numbers
