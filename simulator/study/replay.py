"""Two limit tables over the same arrivals: who gains and who loses by the new one.

A request is gained when the old table refused it and the new one lets it in, lost the other way
round. The comparison is request by request, so what cancels out in totals is still seen.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np
import numpy.typing as npt

from engine.errors import InputError
from engine.limits import LimitTable
from engine.messages import Outcome
from engine.model import TenantKind
from engine.profile import Profile
from simulator.arguments import (
    FLAG,
    FOLDER,
    FUNCTION,
    TEXT,
    TEXTS,
    Rule,
    instance,
    is_number,
    may_be_a_path,
    one_of,
    optional,
    takes,
)
from simulator.logs import FORMATS, KINDS, Format, Kind, LogMap, LogStream, stream_log
from simulator.logs.arrivals import Arrivals, make_arrivals, read_speed, speed_text
from simulator.play import FIDELITIES, Fidelity
from simulator.play.gates import Rows
from simulator.play.replay import limit_subject, replay_arrivals
from simulator.progress import Progress
from simulator.rows import Result, RunBook, RunHeader, out_folder
from simulator.rows.counters import CounterIndex, LimitsView
from simulator.rows.parquet import COLUMNS, columns_to_keep
from simulator.rows.record import (
    NO_STATUS,
    Chunk,
    Recorder,
    SubjectTable,
    TextTable,
    Words,
    distinct,
)
from simulator.rows.reducer import Cells
from simulator.rows.tally import Tally

__all__ = [
    "DEFAULT_KIND",
    "DEFAULT_TENANT",
    "SEED",
    "SHOWN",
    "Comparison",
    "enter_parties",
    "log_summary",
    "replay",
    "run_name",
]

SHOWN: Final = 50
"""Keys and addresses that a summary names; the counts are of all."""

_COUNTS: Final = ("refused_old", "refused_new", "gained", "lost")
_CHANGES: Final = 4
"""Neither table lets a request in, the newer one alone does, the older one alone, both do."""

Numbers = npt.NDArray[np.int64]


class Comparison:
    """Takes what two tables decided about the same arrivals, and counts by subject and by verdict.

    old: what the older table's gate writes to. It is a watcher of the newer one's rows. subjects:
    who asks, in both.
    """

    def __init__(self, subjects: SubjectTable) -> None:
        self._subjects = subjects
        self._per_subject = Cells()
        self._of_verdicts = Cells(), Cells()
        self._verdicts: list[Sequence[tuple[Outcome, str | None]]] = [(), ()]
        self._waiting: tuple[deque[Chunk], deque[Chunk]] = deque(), deque()
        recorder = Recorder([_Side(self, 0)], subjects=subjects)
        self.old = Rows(recorder, Tally(CounterIndex(), (), end_ns=0))

    def take(self, chunk: Chunk) -> None:
        """Take what the newer table decided about the next rows."""
        self._take(1, chunk)

    def _take(self, side: int, chunk: Chunk) -> None:
        """Compare with the other table's chunk of the same rows, when both are there."""
        self._waiting[side].append(chunk)
        olds, news = self._waiting
        while olds and news:
            self._compare(olds.popleft(), news.popleft())

    def _compare(self, old: Chunk, new: Chunk) -> None:
        assert len(old) == len(new), "both tables decide about the same rows"
        change = 2 * old.passed().astype(np.int64) + new.passed()
        self._per_subject.add(new.subject, change, (len(self._subjects), _CHANGES))
        self._verdicts = [old.verdicts, new.verdicts]
        for cells, each in zip(self._of_verdicts, (old, new), strict=True):
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
                    clause = rule.partition(".")[0]
                    line = lines.setdefault(clause, {"clause": clause, **dict.fromkeys(_COUNTS, 0)})
                    line[refused] += counts[0]
                    line[changed] += counts[1]
        return sorted(lines.values(), key=lambda line: line["clause"])

    def _by(self, names: TextTable) -> tuple[list[dict[str, Any]], int]:
        """Count by a subject's name; return the lines that changed most, and how many changed."""
        totals: Numbers = np.zeros((len(_COUNTS), len(names.texts) + 1), dtype=np.int64)
        for total, counts in zip(totals, _counted(self._per_subject), strict=True):
            np.add.at(total, names.of_entry, counts)  # none, −1, is the last place
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


class _Side:
    """Takes the rows of one table."""

    def __init__(self, comparison: Comparison, side: int) -> None:
        self._comparison = comparison
        self._side = side

    def take(self, chunk: Chunk) -> None:
        self._comparison._take(self._side, chunk)  # noqa: SLF001 # reason: a part of it


def _counted(cells: Cells) -> Numbers:
    """Return a line of each of `_COUNTS`, from the counts of each change."""
    neither, gained, lost, _ = cells.counts.T if cells.counts.size else np.zeros((_CHANGES, 0), int)
    return np.array([neither + gained, neither + lost, gained, lost], dtype=np.int64)


DEFAULT_KIND: Final[Kind] = "public"
"""From this many addresses on, a key looks like a public key in a web page."""

DEFAULT_TENANT: Final[TenantKind] = "production"

DEFAULT: Final = "default"
"""The built-in limit table, wherever a replay names or takes one."""

SEED: Final = 0
"""A replay has no random draws, except the engine's identifiers, which use this seed."""

_PSEUDONYM_KEY_BYTES: Final = 32

_TABLE: Final = instance(f"a LimitTable, a file's path or {DEFAULT!r}", LimitTable, str, Path)
_PROFILE: Final = instance("a Profile or a file's path", Profile, str, Path)
_MAP: Final = instance("a LogMap or a file's path", LogMap, str, Path)
_LOG: Final = Rule(
    "a log's path, or a frame that Arrow can read",
    lambda log: not isinstance(log, str | Path) or may_be_a_path(log),
)
_TOO_FAST: Final = 10**12
_SPEED: Final = Rule(
    "a decimal number above 0 and below 10^12, such as 1000 or 0.5",
    lambda speed: isinstance(speed, str) or (is_number(speed) and 0 < speed < _TOO_FAST),
)


@takes(
    source=_LOG,
    limits=optional(_TABLE),
    against=optional(_TABLE),
    profile=optional(_PROFILE),
    as_kind=optional(one_of(KINDS)),
    map=optional(_MAP),
    format=optional(one_of(FORMATS)),
    tenant=optional(one_of(get_args(TenantKind))),
    time_column=optional(TEXT),
    speed=_SPEED,
    pseudonymise=FLAG,
    fidelity=one_of(FIDELITIES),
    check=FLAG,
    out=optional(FOLDER),
    columns=COLUMNS,
    force=FLAG,
    progress=optional(FUNCTION),
    command=TEXTS,
)
def replay(  # noqa: PLR0913 # reason: the command's own options
    source: Any,  # noqa: ANN401 # reason: a path, or any frame that Arrow can take
    *,
    limits: LimitTable | str | Path | None = None,
    against: LimitTable | str | Path | None = None,
    profile: Profile | str | Path | None = None,
    as_kind: Kind | None = None,
    map: LogMap | str | Path | None = None,  # noqa: A002 # reason: the command's own word for it
    format: Format | None = None,  # noqa: A002 # reason: the command's own word for it
    tenant: TenantKind | None = None,
    time_column: str | None = None,
    speed: str | int | Fraction = 1,
    pseudonymise: bool = False,
    fidelity: Fidelity = "limits",
    check: bool = True,
    out: str | Path | None = None,
    columns: str | Sequence[str] | None = None,
    force: bool = False,
    progress: Callable[[str, int], None] | None = None,
    command: Sequence[str] = (),
) -> Result:
    """Put the requests of a log through the limits: who would have been refused?

    source: a path (plain or gzip), `-` (standard input), a pandas frame, an Arrow table or such.
    limits, profile: what is in force; the specification's own unless given, and for limits
        `"default"` too.
    against: an older table, or `"default"`; `summary["against"]` then says who gains and who
        loses under `limits`.
    as_kind: the kind of every key of which the log says nothing; `public` unless given.
    map: which field of the log says what (`simulator.logs.LogMap`).
    tenant: kind of the tenant of which the log says nothing; `production` unless given.
    speed: instants are floor((t − t0) / speed), exactly.
    pseudonymise: addresses and keys become keyed hashes, under a key that nobody keeps.
    fidelity: `limits` decides alone, `compiled` alike in one pass, `engine` runs each whole.
    check: run the invariant checkers. out: a folder for the files; else the rows stay in memory.
    columns: those of the rows that the folder's file keeps, as `simulator.run` says.
    progress: told now and then what is done (`reading`, `deciding`) and how many requests so far.

    Raises `InputError` for a log, a map, limits or columns that cannot be used.
    """
    if force and out is None:
        raise InputError("force = True must go with out, a folder; without one nothing is replaced")
    setting = _Setting(
        limits=_table(limits),
        old_limits=None if against is None else _table(against),
        profile=_profile(profile),
        log_map=_log_map(map),
        as_kind=as_kind,
        tenant=tenant,
        speed=read_speed(speed),
        pseudonymise=pseudonymise,
        fidelity=fidelity,
        columns=columns_to_keep(columns, out),
    )
    setting.check()
    reading, deciding = _stages(progress)
    log = stream_log(
        source, format=format, map=setting.log_map, time_column=time_column, progress=reading
    )
    extra: dict[str, Any] = {"command": list(command), "limits": _name(limits)}
    place = nullcontext() if out is None else out_folder(Path(out), force=force)
    with place as folder, setting.arrivals(log, folder) as arrivals:
        extra["replay"] = {**log_summary(log, arrivals), **setting.summary()}
        book, compared = setting.play(run_name(log.name), arrivals, folder, deciding, check=check)
        if compared is not None:
            extra["against"] = {"limits": _name(against), **compared.summary()}
        result = _finish(book, extra, folder)
    result.folder = None if out is None else Path(out)
    return result


@dataclass(frozen=True, slots=True)
class _Setting:
    """The options of a replay."""

    limits: LimitTable
    old_limits: LimitTable | None
    profile: Profile
    log_map: LogMap | None
    as_kind: Kind | None
    tenant: TenantKind | None
    speed: Fraction
    pseudonymise: bool
    fidelity: Fidelity
    columns: tuple[str, ...] | None

    def _mapped(self, target: str) -> bool:
        return self.log_map is not None and target in self.log_map.sources

    def check(self) -> None:
        """Raise `InputError` where the options do not fit together."""
        if self.fidelity != "engine" and self.profile.limits.counted_statuses == "success":
            raise InputError(
                'counted_statuses = "success" must go with fidelity engine; the limits alone know'
                " no status"
            )
        for name, given, target in (
            ("as_kind", self.as_kind, "application_kind"),
            ("tenant", self.tenant, "tenant_kind"),
        ):
            if given is not None and self._mapped(target):
                raise InputError(f"{name} = {given!r} must be left out; the map says {target}")

    def arrivals(self, log: LogStream, folder: Path | None) -> Arrivals:
        """Read the log; return its requests as this replay takes them."""
        key = secrets.token_bytes(_PSEUDONYM_KEY_BYTES) if self.pseudonymise else None
        return make_arrivals(
            log,
            kind=self.as_kind or DEFAULT_KIND,
            tenant_kind=self.tenant or DEFAULT_TENANT,
            speed=self.speed,
            pseudonym_key=key,
            prefix_bits=self.profile.http.ipv6_prefix_bits,
            folder=folder,
        )

    def summary(self) -> dict[str, Any]:
        """Return the replay's part of the run's summary."""
        return {
            "as": None if self._mapped("application_kind") else self.as_kind or DEFAULT_KIND,
            "map": None if self.log_map is None else self.log_map.name,
            "tenant": None if self._mapped("tenant_kind") else self.tenant or DEFAULT_TENANT,
            "speed": speed_text(self.speed),
            "pseudonymised": self.pseudonymise,
        }

    def play(
        self,
        name: str,
        arrivals: Arrivals,
        folder: Path | None,
        progress: Progress | None,
        *,
        check: bool,
    ) -> tuple[RunBook, Comparison | None]:
        """Decide and write every row; compare with the older limits, where there are any."""
        tables = {"Default": self.limits}
        view, subjects = LimitsView(tables, self.profile.limits), SubjectTable()
        numbers = enter_parties(subjects, arrivals, view)
        requests = _Requests()
        compared = None if self.old_limits is None else Comparison(subjects)
        book = RunBook(
            RunHeader(name, SEED, self.fidelity, arrivals.start_ns, _OPEN_END_NS),
            tables,
            self.profile.limits,
            folder=folder,
            columns=self.columns,
            check=check,
            by_client=False,
            known=(view, subjects),
            watchers=[requests] if compared is None else [requests, compared],
        )
        decide = partial(
            replay_arrivals,
            arrivals,
            profile=self.profile,
            subjects=numbers,
            fidelity=self.fidelity,
            seed=SEED,
        )
        rows = Rows(book.recorder, book.tally)
        passes = [decide(self.limits, rows=rows, progress=progress)]
        if compared is not None:
            assert self.old_limits is not None
            passes.insert(0, decide(self.old_limits, rows=compared.old))
        for _ in zip_longest(*passes):
            pass  # side by side, so that neither table's rows wait long for the other's
        if compared is not None:
            compared.old.recorder.close()
        book.recorder.close()
        requests.tell(book)
        return book, compared


def _finish(book: RunBook, extra: Mapping[str, Any], folder: Path | None) -> Result:
    """Write the summary and, into a folder, the files."""
    result = book.close()
    result.summary.update(extra)
    if folder is not None:
        from simulator.views import write_report  # noqa: PLC0415 # reason: charts load only where a page is written

        result.write_to(folder)
        write_report(folder)
    return result


def _table(limits: LimitTable | str | Path | None) -> LimitTable:
    """Return a limit table; `DEFAULT` is the built-in one, unless a file has that name."""
    if limits is None or (limits == DEFAULT and not Path(DEFAULT).exists()):
        return LimitTable.default()
    if isinstance(limits, LimitTable):
        return limits
    return LimitTable.from_toml(limits)


def _profile(profile: Profile | str | Path | None) -> Profile:
    if profile is None:
        return Profile()
    if isinstance(profile, Profile):
        return profile
    return Profile.from_toml(profile)


def _log_map(log_map: LogMap | str | Path | None) -> LogMap | None:
    if isinstance(log_map, LogMap | None):
        return log_map
    return LogMap.read(log_map)


def _stages(
    progress: Callable[[str, int], None] | None,
) -> tuple[Progress | None, Progress | None]:
    if progress is None:
        return None, None
    return partial(progress, "reading"), partial(progress, "deciding")


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
        "log_start": _utc(arrivals.start_ns),
        "log_end": _utc(arrivals.end_ns),
        "log_span_ns": arrivals.end_ns - arrivals.start_ns,
        "addresses": len(parties.ip.texts),
        "keys": len(set(parties.key.texts)),
    }


def _utc(at_ns: int) -> str:
    seconds, rest_ns = divmod(at_ns, 10**9)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    fraction = f".{rest_ns:09d}".rstrip("0") if rest_ns else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


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


def enter_parties(
    subjects: SubjectTable, arrivals: Arrivals, view: LimitsView
) -> npt.NDArray[np.int64]:
    """Enter all parties as subjects; return each one's number."""
    parties = arrivals.parties
    key, ip, method, path = parties.key, parties.ip, parties.method, parties.path
    kind, one_of_each = parties.kinds()
    counted = [view.counted(limit_subject(who)).counters for who in one_of_each]
    # No key has two owners; several texts of the log may have become one label.
    numbers, first = distinct([key.codes, ip.codes, method.codes, path.codes])
    owner = parties.owner[first]
    tenants, applications = Words(), Words()
    tenant = np.array([tenants.number(each.tenant) for each in parties.owners])
    application = np.array([applications.number(each.application) for each in parties.owners])
    subjects.adopt(
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
    )
    return numbers
