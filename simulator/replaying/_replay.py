"""Replay: a real log through the limit layers, from the source to the result."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from engine.errors import InputError, did_you_mean
from engine.limits import LimitTable
from engine.model import TenantKind
from engine.profile import Profile
from simulator.replaying._arrivals import Arrivals, make_arrivals, read_speed, speed_text
from simulator.replaying._comparing import compare_decisions
from simulator.replaying._deciding import Decisions, Fidelity, Progress, decide, limit_subject
from simulator.replaying._summing import log_summary, run_name
from simulator.results import Result, RunBook, RunHeader, out_folder
from simulator.results.recorder import CHUNK_ROWS
from simulator.results.rows import Subject
from simulator.traffic.logs import KINDS, Format, Kind, Log, LogMap, read_log

__all__ = ["DEFAULT_KIND", "SEED", "replay"]

DEFAULT_KIND: Final[Kind] = "public"
"""Many addresses behind one key is what a public key in a web page looks like."""

SEED: Final = 0
"""A replay draws nothing; with the whole engine, its identifiers come from this seed."""

_PSEUDONYM_KEY_BYTES: Final = 32


def replay(  # noqa: PLR0913 # reason: the command's own options
    source: Any,  # noqa: ANN401 # reason: a path, or any frame that Arrow can take
    *,
    limits: LimitTable | str | Path | None = None,
    against: LimitTable | str | Path | None = None,
    profile: Profile | str | Path | None = None,
    as_kind: Kind | None = None,
    map: LogMap | str | Path | None = None,  # noqa: A002 # reason: the command's own word for it
    format: Format | None = None,  # noqa: A002 # reason: the command's own word for it
    tenant: TenantKind = "production",
    time_column: str | None = None,
    speed: str | int | Fraction = 1,
    pseudonymise: bool = False,
    fidelity: Fidelity = "limits",
    check: bool = True,
    out: str | Path | None = None,
    force: bool = False,
    progress: Callable[[str, int], None] | None = None,
    command: Sequence[str] = (),
) -> Result:
    """Put the requests of a log through the limits: who would have been refused?

    source: a path (plain or gzip), a pandas frame, an Arrow table or the like.
    limits, profile: what is in force; the specification's own unless given.
    against: an older table; `summary["against"]` then says who gains and who loses by `limits`.
    as_kind: the kind of every key of which the log says nothing; `public` unless given.
    map: which field of the log says what (`simulator.traffic.logs.LogMap`).
    tenant: kind of the tenant of which the log says nothing.
    speed: instants are floor((t − t0) / speed), exactly.
    pseudonymise: addresses and keys become keyed hashes, under a key that nobody keeps.
    fidelity: `limits` decides alone, `compiled` alike in one pass, `engine` runs each whole.
    check: run the invariant checkers. out: a folder for the files; else the rows stay in memory.
    progress: told now and then what is done (`reading`, `deciding`) and how many requests so far.

    Raises `InputError` for a log, a map or limits that cannot be used.
    """
    setting = _Setting(
        limits=_table(limits),
        old_limits=None if against is None else _table(against),
        profile=_profile(profile),
        log_map=map if isinstance(map, LogMap | None) else LogMap.read(map),
        as_kind=as_kind,
        tenant=tenant,
        speed=read_speed(speed),
        pseudonymise=pseudonymise,
        fidelity=fidelity,
    )
    setting.check()
    reading, deciding = _stages(progress)
    log = read_log(
        source, format=format, map=setting.log_map, time_column=time_column, progress=reading
    )
    arrivals = setting.arrivals(log)
    decisions = setting.decide(arrivals, setting.limits, deciding)
    extra = {
        "command": list(command),
        "limits": _name(limits),
        "replay": {**log_summary(log, arrivals), **setting.summary()},
    }
    if setting.old_limits is not None:
        old = setting.decide(arrivals, setting.old_limits)
        compared = compare_decisions(arrivals, old, decisions)
        extra["against"] = {"limits": _name(against), **compared}
    place = nullcontext() if out is None else out_folder(Path(out), force=force)
    with place as folder:
        book = setting.book(run_name(log.name), arrivals, decisions, folder, check=check)
        result = _finish(book, arrivals, decisions, extra, folder)
    result.folder = None if out is None else Path(out)
    return result


@dataclass(frozen=True, slots=True)
class _Setting:
    """What a replay is played with."""

    limits: LimitTable
    old_limits: LimitTable | None
    profile: Profile
    log_map: LogMap | None
    as_kind: Kind | None
    tenant: TenantKind
    speed: Fraction
    pseudonymise: bool
    fidelity: Fidelity

    def _mapped(self, target: str) -> bool:
        return self.log_map is not None and target in self.log_map.sources

    def check(self) -> None:
        """Raise `InputError` where the options do not fit together."""
        kind = self.as_kind
        if kind is not None and kind not in KINDS:
            raise InputError(
                f"as_kind = {kind!r} must be one of {', '.join(KINDS)}{did_you_mean(kind, KINDS)}"
            )
        if self.fidelity != "engine" and self.profile.limits.counted_statuses == "success":
            raise InputError(
                'counted_statuses = "success" must go with fidelity engine; the limits alone know'
                " no status"
            )
        if self._mapped("application_kind") and kind is not None:
            raise InputError(f"as_kind = {kind!r} must be left out; the map says application_kind")

    def arrivals(self, log: Log) -> Arrivals:
        """Return the log's requests as this replay takes them."""
        key = secrets.token_bytes(_PSEUDONYM_KEY_BYTES) if self.pseudonymise else None
        return make_arrivals(
            log,
            kind=self.as_kind or DEFAULT_KIND,
            tenant_kind=self.tenant,
            speed=self.speed,
            pseudonym_key=key,
        )

    def decide(
        self, arrivals: Arrivals, limits: LimitTable, progress: Progress | None = None
    ) -> Decisions:
        """Return what `limits` decide."""
        return decide(
            arrivals, limits, self.profile, fidelity=self.fidelity, seed=SEED, progress=progress
        )

    def summary(self) -> dict[str, Any]:
        """Return what the run's summary says of it."""
        return {
            "as": None if self._mapped("application_kind") else self.as_kind or DEFAULT_KIND,
            "map": None if self.log_map is None else self.log_map.name,
            "tenant": None if self._mapped("tenant_kind") else self.tenant,
            "speed": speed_text(self.speed),
            "pseudonymised": self.pseudonymise,
        }

    def book(
        self,
        name: str,
        arrivals: Arrivals,
        decisions: Decisions,
        folder: Path | None,
        *,
        check: bool,
    ) -> RunBook:
        """Open the book that the result is written to."""
        last = np.max(arrivals.t_ns + np.maximum(decisions.wait_ns, decisions.latency_ns))
        header = RunHeader(
            name=name,
            seed=SEED,
            fidelity=self.fidelity,
            start_time_ns=arrivals.start_ns,
            # A replay is over after its last request, and the last wait that it caused.
            duration_ns=int(last) + 1,
        )
        tables = {"Default": self.limits}
        return RunBook(
            header, tables, self.profile.limits, folder=folder, check=check, by_client=False
        )


def _finish(
    book: RunBook,
    arrivals: Arrivals,
    decisions: Decisions,
    extra: Mapping[str, Any],
    folder: Path | None,
) -> Result:
    """Write the rows, the summary and, into a folder, the files."""
    _write(book, arrivals, decisions)
    result = book.close()
    result.summary.update(extra)
    if folder is not None:
        from simulator.report import write_report  # noqa: PLC0415 # reason: charts load only where a page is written

        result.write_to(folder)
        write_report(folder)
    return result


def _write(book: RunBook, arrivals: Arrivals, decisions: Decisions) -> None:
    """Write every row to the book; a client is one key at one address."""
    recorder = book.recorder
    clients: dict[tuple[str | None, str], int] = {}
    subjects = [
        recorder.subjects.number(
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
    verdicts = np.array([recorder.verdicts.number(*pair) for pair in decisions.verdicts])
    numbers = np.array(subjects, dtype=np.int64)
    for first in range(0, len(arrivals), CHUNK_ROWS):
        rows = slice(first, first + CHUNK_ROWS)
        t_ns = arrivals.t_ns[rows]
        recorder.take(
            {
                "t_ns": t_ns,
                "subject": numbers[arrivals.party[rows]],
                "attempt": np.ones_like(t_ns),
                "verdict": verdicts[decisions.verdict[rows]],
                "wait_ns": decisions.wait_ns[rows],
                "latency_ns": decisions.latency_ns[rows],
                "status": decisions.status[rows],
            }
        )
    for rule, count in decisions.shadow.items():
        book.tally.add_shadow(0, [rule] * count)


def _table(limits: LimitTable | str | Path | None) -> LimitTable:
    if limits is None:
        return LimitTable.default()
    return limits if isinstance(limits, LimitTable) else LimitTable.from_toml(limits)


def _profile(profile: Profile | str | Path | None) -> Profile:
    if profile is None:
        return Profile()
    return profile if isinstance(profile, Profile) else Profile.from_toml(profile)


def _stages(
    progress: Callable[[str, int], None] | None,
) -> tuple[Progress | None, Progress | None]:
    if progress is None:
        return None, None
    return partial(progress, "reading"), partial(progress, "deciding")


def _name(limits: LimitTable | str | Path | None) -> str:
    if limits is None:
        return "default"
    return "given" if isinstance(limits, LimitTable) else str(limits)
