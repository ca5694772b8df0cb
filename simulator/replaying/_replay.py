"""Replay: a real log through the limit layers, from the source to the result."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np

from engine.errors import InputError, did_you_mean
from engine.limits import LimitTable
from engine.model import TenantKind
from engine.profile import Profile
from simulator.replaying._arrivals import Arrivals, Party, make_arrivals, read_speed
from simulator.replaying._comparing import compare_decisions
from simulator.replaying._deciding import Decisions, Fidelity, Progress, decide, limit_subject
from simulator.report import write_report
from simulator.results import Result, RunBook, RunHeader, out_folder
from simulator.results.rows import Subject
from simulator.traffic.logs import KINDS, Format, Kind, Log, LogMap, read_log

__all__ = ["DEFAULT_KIND", "SEED", "replay", "run_name"]

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
    progress: Progress | None = None,
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
    fidelity: `limits` decides alone, `engine` runs every request through the whole engine.
    check: run the invariant checkers over the result.
    out: a folder for the result's files; without it the rows stay in memory.

    Raises `InputError` for a log, a map or limits that cannot be used.
    """
    if as_kind is not None and as_kind not in KINDS:
        raise InputError(
            f"as_kind = {as_kind!r} must be one of {', '.join(KINDS)}{did_you_mean(as_kind, KINDS)}"
        )
    ratio = read_speed(speed)
    table = _table(limits)
    old_table = None if against is None else _table(against)
    played = profile if isinstance(profile, Profile) else _profile(profile)
    if fidelity == "limits" and played.limits.counted_statuses == "success":
        raise InputError(
            'counted_statuses = "success" must go with fidelity engine; the limits alone know no'
            " status"
        )
    log_map = map if isinstance(map, LogMap) or map is None else LogMap.read(map)
    if log_map is not None and as_kind is not None and "application_kind" in log_map.sources:
        raise InputError(f"as_kind = {as_kind!r} must be left out; the map says application_kind")
    log = read_log(source, format=format, map=log_map, time_column=time_column)
    arrivals = make_arrivals(
        log,
        kind=as_kind or DEFAULT_KIND,
        tenant_kind=tenant,
        speed=ratio,
        pseudonym_key=secrets.token_bytes(_PSEUDONYM_KEY_BYTES) if pseudonymise else None,
    )
    decisions = decide(arrivals, table, played, fidelity=fidelity, seed=SEED, progress=progress)
    extra: dict[str, Any] = {
        "command": list(command),
        "limits": _name(limits),
        "replay": {
            **_log_summary(log, arrivals),
            "as": None if log_map and "application_kind" in log_map.sources else _kind(as_kind),
            "map": None if log_map is None else log_map.name,
            "tenant": tenant,
            "speed": str(ratio),
            "pseudonymised": pseudonymise,
        },
    }
    if old_table is not None:
        old = decide(arrivals, old_table, played, fidelity=fidelity, seed=SEED)
        extra["against"] = {
            "limits": _name(against),
            **compare_decisions(arrivals, old, decisions),
        }
    header = RunHeader(
        name=run_name(log.name),
        seed=SEED,
        fidelity=fidelity,
        start_time_ns=arrivals.start_ns,
        duration_ns=_duration_ns(arrivals, decisions),
    )
    place = nullcontext() if out is None else out_folder(Path(out), force=force)
    with place as folder:
        book = RunBook(
            header,
            {"Default": table},
            played.limits,
            folder=folder,
            check=check,
            by_client=False,
        )
        _write(book, arrivals, decisions)
        result = book.close()
        result.summary.update(extra)
        if folder is not None:
            result.write_to(folder)
            write_report(folder)
    if out is not None:
        result.folder = Path(out)
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
    verdicts = [recorder.verdicts.number(*pair) for pair in decisions.verdicts]
    for t_ns, party, verdict, wait_ns, latency_ns, status in zip(
        arrivals.t_ns.tolist(),
        arrivals.party.tolist(),
        decisions.verdict.tolist(),
        decisions.wait_ns.tolist(),
        decisions.latency_ns.tolist(),
        decisions.status.tolist(),
        strict=True,
    ):
        recorder.add(t_ns, subjects[party], 1, verdicts[verdict], wait_ns, latency_ns, status)
    for rule, count in decisions.shadow.items():
        book.tally.add_shadow(0, [rule] * count)


def _duration_ns(arrivals: Arrivals, decisions: Decisions) -> int:
    """Return when the replay is over: after the last request, and the last wait that it caused."""
    last = np.max(arrivals.t_ns + np.maximum(decisions.wait_ns, decisions.latency_ns))
    return int(last) + 1


def _log_summary(log: Log, arrivals: Arrivals) -> dict[str, Any]:
    parties: tuple[Party, ...] = arrivals.parties
    return {
        "log": log.name,
        "format": log.format,
        "requests": len(log),
        "unparsed": log.unparsed,
        "unparsed_first": list(log.unparsed_first),
        "log_start": _utc(int(log.t_ns.min())),
        "log_end": _utc(int(log.t_ns.max())),
        "log_span_ns": int(log.t_ns.max()) - int(log.t_ns.min()),
        "addresses": len({who.ip for who in parties}),
        "keys": len({who.key for who in parties} - {None}),
    }


def _utc(at_ns: int) -> str:
    seconds, rest_ns = divmod(at_ns, 10**9)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    fraction = f".{rest_ns:09d}".rstrip("0") if rest_ns else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _kind(as_kind: Kind | None) -> Kind:
    return as_kind or DEFAULT_KIND


def _table(limits: LimitTable | str | Path | None) -> LimitTable:
    if limits is None:
        return LimitTable.default()
    return limits if isinstance(limits, LimitTable) else LimitTable.from_toml(limits)


def _profile(profile: str | Path | None) -> Profile:
    return Profile() if profile is None else Profile.from_toml(profile)


def _name(limits: LimitTable | str | Path | None) -> str:
    if limits is None:
        return "default"
    return "given" if isinstance(limits, LimitTable) else str(limits)


def run_name(log_name: str) -> str:
    """Return the log's name without what says how it is written."""
    return log_name.removesuffix(".gz").rsplit(".", 1)[0] or log_name
