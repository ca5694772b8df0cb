"""A log under limits, and the plan for a change of them: whom the new table refuses and admits.

A request is gained when the old table refused it and the new one admits it, lost the other way
round. The comparison is request by request, so what cancels out in totals is still seen. The plan
has a line per clause, key and address of those that the new table refuses: how many requests, the
first one's instant, and how long they are locked out; sorted by harm. Two thresholds make it a gate
(`ReplayOptions.allow_newly_refused`).
"""

from __future__ import annotations

import dataclasses
import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from engine.errors import InputError
from engine.limits import LimitTable
from engine.messages import Outcome
from simulator.arguments import takes_options
from simulator.logs import LogMap, LogStream, stream_log
from simulator.logs.arrivals import Arrivals, make_arrivals, read_speed, speed_text
from simulator.logs.parties import RowNumbers
from simulator.options import DEFAULT, ReplayOptions, table_of
from simulator.play.replay import limit_subject, replay_arrivals
from simulator.play.simulation import Fidelity, has_kernel
from simulator.rows import Result, RunHeader, RunRecorder
from simulator.rows.record import (
    NO_STATUS,
    Chunk,
    GrowableArray,
    Numbers,
    Recorder,
    SubjectTable,
    TextColumn,
    clause_of,
    distinct,
    words,
)
from simulator.rows.reducer import BlockedTime, CrossTab
from simulator.rows.run_recorder import CounterIndex, iso_text

SHOWN: Final = 50
"""Keys and addresses that a summary names; the counts are of all."""

_COUNTS: Final = ("refused_old", "refused_new", "gained", "lost")
_CHANGES: Final = 4
_LOST: Final = 2
"""Neither table lets a request in, the newer one alone does, the older one alone, both do."""


class NewlyRefused:
    """What the newer table alone refuses, by the clause that refuses, key and address."""

    def __init__(self, subjects: SubjectTable) -> None:
        self._subjects = subjects
        self._clauses = words()
        self._numbers = RowNumbers(3)
        self._waits = BlockedTime(0, _OPEN_END_NS)
        self._who: list[Numbers] = []
        self._count, self._first_ns, self._shut_ns = (
            GrowableArray("i8"),
            GrowableArray("i8"),
            GrowableArray("i8"),
        )

    def take(self, chunk: Chunk, lost: Numbers) -> None:
        """Take the rows at the places `lost` of the newer table's next rows."""
        if not len(lost):
            return
        clauses = np.array([self._clauses[clause_of(rule or "")] for _, rule in chunk.verdicts])
        subject, t_ns = chunk.subject[lost], chunk.t_ns[lost]
        who = [
            clauses[chunk.verdict[lost]].astype(np.int32),
            *(self._subjects.text(name).codes[subject].astype(np.int32) for name in ("key", "ip")),
        ]
        known = len(self._numbers)
        number = self._numbers.number(who)
        fresh = len(self._numbers) - known
        if fresh:
            first = np.unique(number, return_index=True)[1]
            first = first[number[first] >= known]
            self._who.append(np.array([column[first] for column in who], dtype=np.int64))
            for column in (self._count, self._shut_ns):
                column.extend(np.zeros(fresh, dtype=np.int64))
            self._first_ns.extend(np.full(fresh, _OPEN_END_NS))
        shut = self._waits.take(number, t_ns, chunk.wait_ns[lost])
        np.add.at(self._count.read(), number, 1)
        np.minimum.at(self._first_ns.read(), number, t_ns)
        np.add.at(self._shut_ns.read(), number, shut.lasted_ns)

    def keys(self) -> int:
        """Return how many keys lose requests; an address without a key counts as one."""
        if not self._who:
            return 0
        _, key, ip = np.concatenate(self._who, axis=1)
        return len(np.unique(np.where(key >= 0, key, -1 - ip)))

    def lines(self, start_ns: int, speed: Fraction) -> list[dict[str, Any]]:
        """Return the `SHOWN` lines of most harm: refused requests, then the time locked out."""
        if not self._who:
            return []
        columns = np.concatenate(self._who, axis=1)
        count, shut_ns, first_ns = self._count.read(), self._shut_ns.read(), self._first_ns.read()
        order = np.lexsort((first_ns, -shut_ns, -count))[:SHOWN]
        key, ip = self._subjects.text("key"), self._subjects.text("ip")
        return [
            {
                "clause": self._clauses.known[columns[0, place]],
                "key": key.name(int(columns[1, place])),
                "ip": ip.name(int(columns[2, place])),
                "newly_refused": int(count[place]),
                "first": iso_text(start_ns + int(first_ns[place] * speed)),
                "locked_out_ns": int(shut_ns[place]),
            }
            for place in order.tolist()
        ]


class RefusedFile:
    """Writes the refused requests: line, instant in the log, key, address, clause and wait.

    A file called `.parquet` is Parquet, any other CSV. places: instants and lines of all arrivals.
    """

    def __init__(
        self, file: Path, subjects: SubjectTable, places: Iterator[tuple[Numbers, Numbers]]
    ) -> None:
        self._subjects = subjects
        self._places = places
        self._held: tuple[Numbers, Numbers] = (np.empty(0, "i8"), np.empty(0, "i8"))
        self._out: Any = None
        self._file = file
        try:
            is_parquet = file.suffix == ".parquet"
            writer = pq.ParquetWriter if is_parquet else pa_csv.CSVWriter
            self._out = writer(file, _REFUSED_SCHEMA)
        except OSError as error:
            why = (error.strerror or "it cannot be opened").lower()
            raise InputError(f"--refused = {file} must be a file to write; {why}") from error

    def take(self, chunk: Chunk) -> None:
        """Write the refused ones among the next rows."""
        while len(self._held[0]) < len(chunk):
            more = next(self._places)
            self._held = (
                np.concatenate([self._held[0], more[0]]),
                np.concatenate([self._held[1], more[1]]),
            )
        count = len(chunk)
        refused = np.flatnonzero(~chunk.passed())
        if len(refused):
            self._write(chunk, refused, self._held[0][refused], self._held[1][refused])
        self._held = (self._held[0][count:], self._held[1][count:])

    def _write(self, chunk: Chunk, rows: Numbers, t_ns: Numbers, line: Numbers) -> None:
        subject = chunk.subject[rows]
        texts = [
            pa.DictionaryArray.from_arrays(
                pa.array(column.codes[subject], mask=column.codes[subject] < 0),
                pa.array(column.texts, pa.string()),
            ).cast(pa.string())
            for column in map(self._subjects.text, ("key", "ip", "method", "path"))
        ]
        clauses = pa.array(
            [None if rule is None else clause_of(rule) for _, rule in chunk.verdicts]
        )
        columns = [
            pa.array(line),
            pa.array(t_ns).cast(pa.timestamp("ns", "UTC")),
            *texts,
            clauses.take(pa.array(chunk.verdict[rows])).cast(pa.string()),
            pa.array(chunk.wait_ns[rows]),
        ]
        self._out.write_batch(pa.RecordBatch.from_arrays(columns, schema=_REFUSED_SCHEMA))

    def close(self) -> None:
        """End the file."""
        self._out.close()


_REFUSED_SCHEMA: Final = pa.schema(
    [
        ("line", pa.int64()),
        ("time", pa.timestamp("ns", "UTC")),
        ("key", pa.string()),
        ("address", pa.string()),
        ("method", pa.string()),
        ("path", pa.string()),
        ("clause", pa.string()),
        ("wait_ns", pa.int64()),
    ]
)


class ReplayComparison:
    """Takes what two tables decided about the same arrivals, and counts by subject and by verdict.

    old: what the older table's backend writes to, ahead of the newer one's. It is a watcher of the
    newer one's rows. subjects: who asks, in both.
    """

    def __init__(self, subjects: SubjectTable) -> None:
        self._subjects = subjects
        self._per_subject = CrossTab()
        self._of_verdicts = CrossTab(), CrossTab()
        self._verdicts: list[Sequence[tuple[Outcome, str | None]]] = [(), ()]
        self._olds: deque[Chunk] = deque()
        self.newly_refused = NewlyRefused(subjects)
        self.old = Recorder([self._olds.append], subjects=subjects)

    def take(self, chunk: Chunk) -> None:
        """Take what the newer table decided about the next rows."""
        old = self._olds.popleft()
        assert len(old) == len(chunk), "both tables decide about the same rows"
        change = 2 * old.passed().astype(np.int64) + chunk.passed()
        self.newly_refused.take(chunk, np.flatnonzero(change == _LOST))
        self._per_subject.add(chunk.subject, change, (len(self._subjects), _CHANGES))
        self._verdicts = [old.verdicts, chunk.verdicts]
        for cells, rows in zip(self._of_verdicts, (old, chunk), strict=True):
            cells.add(rows.verdict, change, (len(rows.verdicts), _CHANGES))

    def summary(self, start_ns: int, speed: Fraction) -> dict[str, Any]:
        """Return what `summary.json` has of a comparison of a log that began at `start_ns`.

        `refused_old`, `refused_new`, `gained` and `lost` count requests, in total, by clause (by
        the clause that refused, the reported one where several did), by key and by address; of keys
        and addresses the `SHOWN` with the most changed requests are named, and `keys_changed` and
        `ips_changed` say how many there are. `newly_refused` is the plan, and
        `keys_newly_refused` how many keys it is about.
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
            "keys_newly_refused": self.newly_refused.keys(),
            "newly_refused": self.newly_refused.lines(start_ns, speed),
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

    def _by(self, names: TextColumn) -> tuple[list[dict[str, Any]], int]:
        """Count by a subject's name; return the lines that changed most, and how many changed."""
        totals: Numbers = np.zeros((len(_COUNTS), len(names.texts) + 1), dtype=np.int64)
        for total, counts in zip(totals, _counted(self._per_subject), strict=True):
            np.add.at(total, names.codes, counts)  # none, −1, is the last place
        known = [*names.texts, None]
        change = totals[2] + totals[3]
        changed = np.flatnonzero(change)
        least = 0 if len(changed) <= SHOWN else np.partition(change, -SHOWN)[-SHOWN]
        # Lines are made of few of them: all of a log's addresses may have changed.
        most = changed[change[changed] >= least].tolist()
        most.sort(key=lambda code: (-change[code], known[code] or ""))
        lines = [
            {"name": known[code], **dict(zip(_COUNTS, totals[:, code].tolist(), strict=True))}
            for code in most[:SHOWN]
        ]
        return lines, len(changed)


def _counted(cells: CrossTab) -> Numbers:
    """Return a line of each of `_COUNTS`, from the counts of each change."""
    neither, gained, lost, _ = cells.counts.T if cells.counts.size else np.zeros((_CHANGES, 0), int)
    return np.array([neither + gained, neither + lost, gained, lost], dtype=np.int64)


SEED: Final = 0
"""A replay has no random draws, except the engine's identifiers, which use this seed."""

_PSEUDONYM_KEY_BYTES: Final = 32


@takes_options(ReplayOptions)
def replay(options: ReplayOptions) -> Result:
    """Apply the limits to the requests of a log: which would have been refused?

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
        **options.reading,
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
            has_lines=options.refused is not None,
        )
        with taken as arrivals:
            extra["replay"] = {**log_summary(log, arrivals), **_told(options, log_map, speed)}
            book, compared = _decided(options, limits, old, run_name(log.name), arrivals, folder)
            if compared is not None:
                against = compared.summary(arrivals.start_ns, speed)
                extra["against"] = {"limits": _name(options.against), **against}
                extra["against"] |= _gate(options, extra["against"], len(arrivals))
            result = book.close()
            result.summary.update(extra)
            if folder is not None:
                result.write_to(folder)
    result.folder = options.folder
    return result


def _gate(options: ReplayOptions, against: dict[str, Any], offered: int) -> dict[str, Any]:
    """Return the thresholds of a change of limits, and whether it keeps them."""
    share, keys = options.newly_refused_limit, options.allow_newly_refused_keys
    if share is None and keys is None:
        return {}
    broken = []
    if share is not None and against["lost"] > share * offered:
        broken.append(
            f"{against['lost']} of {offered} requests are newly refused,"
            f" {options.allow_newly_refused} allowed"
        )
    if keys is not None and against["keys_newly_refused"] > keys:
        broken.append(f"{against['keys_newly_refused']} keys are newly refused, {keys} allowed")
    allowed = {"allow_newly_refused": options.allow_newly_refused, "allow_newly_refused_keys": keys}
    return {"gate": {**allowed, "broken": broken}}


def _check(options: ReplayOptions) -> None:
    """Raise `InputError` where the options do not fit together."""
    profile = options.read_profile
    thresholds = (options.allow_newly_refused, options.allow_newly_refused_keys)
    if options.against is None and thresholds != (None, None):
        raise InputError(
            "--allow-newly-refused and --allow-newly-refused-keys must go with --against, the"
            " limits of today"
        )
    if options.fidelity != "engine" and profile.limits.counted_statuses == "success":
        raise InputError(
            'counted_statuses = "success" must go with fidelity engine; the limits alone know'
            " no status"
        )
    if not profile.nodes.is_exact and options.fidelity == "engine":
        raise InputError(
            f"fidelity = 'engine' is one node, and nodes.sharing = {profile.nodes.sharing!r} takes"
            " several; choose limits"
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
) -> tuple[RunRecorder, ReplayComparison | None]:
    """Decide and write every row; compare with the older limits, where there are any."""
    tables, profile = {"Default": limits}, options.read_profile
    fidelity = _fidelity(options, [limits] if old is None else [limits, old], len(arrivals))
    view, subjects = CounterIndex(tables, profile.limits), SubjectTable()
    numbers = enter_parties(subjects, arrivals, view)
    requests = _Requests()
    refused = (
        None
        if options.refused is None
        else RefusedFile(Path(options.refused), subjects, arrivals.places())
    )
    compared = None if old is None else ReplayComparison(subjects)
    book = RunRecorder(
        RunHeader(name, SEED, fidelity, arrivals.start_ns, _OPEN_END_NS),
        tables,
        profile.limits,
        folder=folder,
        columns=options.kept_columns,
        check=options.check,
        by_client=False,
        known=(view, subjects),
        watchers=[w.take for w in (requests, compared, refused) if w is not None],
        nodes=profile.nodes,
    )
    if book.nodes is not None:
        book.nodes = dataclasses.replace(book.nodes, groups={"all": range(_OPEN_END_NS)})
    decide = partial(
        replay_arrivals,
        arrivals,
        profile=profile,
        subjects=numbers,
        fidelity=fidelity,
        seed=SEED,
    )
    progress = options.stage("deciding", len(arrivals))
    passes = [decide(limits, recorder=book.recorder, nodes=book.nodes, progress=progress)]
    if compared is not None:
        assert old is not None
        unread = None if book.nodes is None else dataclasses.replace(book.nodes)
        passes.insert(0, decide(old, recorder=compared.old, nodes=unread))
    for _ in zip_longest(*passes):
        pass  # side by side, so that neither table's rows wait long for the other's
    if compared is not None:
        compared.old.close()
    book.recorder.close()
    if refused is not None:
        refused.close()
    requests.tell(book)
    return book, compared


_COMPILED_FROM: Final = 100_000
"""Requests from which compiled code decides, in half the time: it takes a second to load."""
_MOST_RULES: Final = 15
"""Of two counters each, which compiled code has room for in any case."""


def _fidelity(options: ReplayOptions, tables: Sequence[LimitTable], requests: int) -> Fidelity:
    """Return the fidelity that is stated, or else the faster one; both decide alike."""
    if not options.read_profile.nodes.is_exact:
        return "limits"
    if options.fidelity is not None:
        return options.fidelity
    fits = all(
        len(rules) <= _MOST_RULES and all(rule.limit_requests < 1 << 31 for rule in rules)
        for rules in map(list, tables)
    )
    return "compiled" if requests >= _COMPILED_FROM and fits and has_kernel() else "limits"


def _name(limits: LimitTable | str | Path | None) -> str:
    if limits is None:
        return DEFAULT
    return "given" if isinstance(limits, LimitTable) else str(limits)


def log_summary(log: LogStream, arrivals: Arrivals) -> dict[str, Any]:
    """Return what a summary says of the log that was replayed."""
    parties = arrivals.parties
    return {
        "log": log.name,
        "reading": log.reading,
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

    It ends well as it does in a simulation: admitted and, where a body was run, answered 2xx. A
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

    def tell(self, book: RunRecorder) -> None:
        """Enter the counts and the end of the replay."""
        book.tally.add_requests(self._requests, self._requests, self._well)
        book.header = dataclasses.replace(book.header, duration_ns=self._last_ns + 1)


def enter_parties(subjects: SubjectTable, arrivals: Arrivals, view: CounterIndex) -> Numbers:
    """Enter all parties as subjects; return each one's number."""
    parties = arrivals.parties
    key, ip, method, path = parties.key, parties.ip, parties.method, parties.path
    kind, one_of_each = parties.kinds(view.classifier.kind)
    counted = [view.counted(limit_subject(who))[0] for who in one_of_each]
    # No key has two owners; several texts of the log may have become one label.
    numbers, first = distinct([key.codes, ip.codes, method.codes, path.codes])
    owner = parties.owner[first]
    tenants, applications = words(), words()
    tenant = np.array([tenants[owner.tenant] for owner in parties.owners])
    application = np.array([applications[owner.application] for owner in parties.owners])
    subjects.adopt(
        {
            "tenant": TextColumn(tenant[owner], tenants.known),
            "application": TextColumn(application[owner], applications.known),
            "key": TextColumn(key.codes[first], key.texts),
            "ip": TextColumn(ip.codes[first], ip.texts),
            "method": TextColumn(method.codes[first], method.texts),
            "path": TextColumn(path.codes[first], path.texts),
        },
        counted,
        kind[first],
    )
    return numbers
