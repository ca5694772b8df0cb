"""What runs, replays and studies take: each option once, with its rule and its words.

What does not fit together is refused here too. To add an option to a run, add a field here, and use
it where it has its effect (`simulator.arguments` makes parameters and flags of the fields).
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from pathlib import Path
from typing import (
    Any,
    Final,
    Literal,
    TypeAlias,
    get_args,
)

from engine.errors import InputError, did_you_mean
from engine.files import format_duration, parse_duration_ns
from engine.limits import LimitTable
from engine.model import TenantKind
from engine.profile import Profile
from simulator.arguments import (
    DURATION,
    FLAG,
    FOLDER,
    FUNCTION,
    TEXT,
    TEXTS,
    ArgumentRule,
    count_option,
    instance,
    is_number,
    may_be_a_path,
    one_of,
    option,
    optional,
    options,
    seed_of,
    typed,
    whole,
)
from simulator.logs import FORMATS, KINDS, Kind, LogMap
from simulator.play.simulation import FIDELITIES, SEED, Fidelity
from simulator.rows import out_folder
from simulator.rows.parquet import COLUMNS, choose_columns
from simulator.scenario import Scenario, is_toml, load, with_values

# --- what stands in several commands -------------------------------------------------------------

ScenarioLike: TypeAlias = Scenario | str | Path
"""A scenario, the path of its file, the name of a built-in one, or its TOML text."""

_SCENARIO_FILE: Final = instance(
    "a Scenario, a file's path, the name of a built-in one, or TOML text", Scenario, str, Path
)
SCENARIO: Final = ArgumentRule(
    _SCENARIO_FILE.words, lambda value: is_toml(value) or _SCENARIO_FILE.holds(value)
)
_PRECISION: Final = ArgumentRule(
    "above 0 and below 0.5, half the width of a share's interval",
    lambda value: is_number(value) and 0 < value < 0.5,
    float,
)
_COLUMN_NAMES: Final = (
    "columns to write to requests.parquet, such as t_ns,key,outcome; decisions stands for"
    " t_ns,key,outcome,rule,wait_ns (all)"
)


def _ns(duration: str | int | None) -> int | None:
    """Return a duration that an option has in nanoseconds; it was read already, as a rule."""
    return parse_duration_ns(duration) if isinstance(duration, str) else duration


MOST_REPLICATIONS: Final = 1_000
"""Runs that replications may take unless told."""


@dataclass(frozen=True)
class ReplicationBudget:
    """What replications may take: runs, and seconds where they are bounded."""

    most_replications: int = MOST_REPLICATIONS
    most_time_s: float | None = None


@options
class BudgetOptions:
    """What bounds replications."""

    _: KW_ONLY
    most_replications: int | None = count_option(
        "stop after this many runs even if --precision is not reached (1000)", default=None
    )
    most_time: str | int | None = option(
        optional(DURATION, "no bound"),
        "stop after this time, such as 1m30s",
        default=None,
        metavar="D",
    )

    def budget(self, first: int | None = None) -> ReplicationBudget:
        """Return what replications may take. Raises `InputError` for bounds that contradict.

        first: how many runs there are at least.
        """
        time_ns, first = _ns(self.most_time), first or 1
        if time_ns is not None and time_ns <= 0:
            raise InputError(f"most_time = {time_ns} ns must be above 0; take more")
        most = self.most_replications
        most = max(MOST_REPLICATIONS, first) if most is None else most
        if most < first:
            raise InputError(
                f"most_replications = {most} must be at least replications, {first}; take more"
            )
        return ReplicationBudget(most, None if time_ns is None else time_ns / 1e9)


@options
class PrecisionOptions(BudgetOptions):
    """A precision to reach, and what bounds it."""

    _: KW_ONLY
    precision: float | None = option(
        optional(_PRECISION),
        "replicate until every share is known to ± this, such as 0.005; first checked after"
        " --replications runs (10)",
        default=None,
        type=typed(_PRECISION),
        metavar="X",
    )

    def budget(self, first: int | None = None) -> ReplicationBudget:
        """Return what replications may take. Raises `InputError` for bounds that contradict."""
        time_ns = _ns(self.most_time)
        time = None if time_ns is None else format_duration(time_ns)
        for name, value in (("most_replications", self.most_replications), ("most_time", time)):
            if value is not None and self.precision is None:
                raise InputError(f"{name} = {value} must go with precision; leave it out")
        return super().budget(first)


@options
class FolderOptions:
    """Where a run's files go."""

    _: KW_ONLY
    check: bool = option(FLAG, "run the invariant checkers (on)", default=True)
    out: str | Path | None = option(
        optional(FOLDER, "rows in memory"),
        "folder for the rows, the summary and the report",
        default=None,
        metavar="DIR",
    )
    columns: str | Sequence[str] | None = option(
        COLUMNS, _COLUMN_NAMES, default=None, metavar="NAMES"
    )
    force: bool = option(FLAG, "replace the results in that folder", default=False)

    def __post_init__(self) -> None:
        if self.out is None and self.force:
            raise InputError(
                "force = True must go with out, a folder; without one nothing is replaced"
            )
        if self.out is None and self.columns is not None:
            raise InputError(
                f"columns = {self.columns!r} must go with out, a folder; in memory are all of them,"
                " and Result.save takes columns too"
            )

    @property
    def folder(self) -> Path | None:
        """The folder that the files go into, None for memory."""
        return None if self.out is None else Path(self.out)

    def written(self) -> AbstractContextManager[Path | None]:
        """Yield an empty folder that becomes `folder` when the block succeeds."""
        folder = self.folder
        return nullcontext() if folder is None else out_folder(folder, force=self.force)

    @property
    def kept_columns(self) -> tuple[str, ...] | None:
        """The columns that the folder's file keeps, None for all."""
        return choose_columns(self.columns)


DEFAULT: Final = "default"
"""The built-in limit table, wherever an option names or takes one."""


def resolve(scenario: ScenarioLike) -> Scenario:
    """Return the scenario. Raises `InputError` with file:line:col where a file has a fault."""
    return scenario if isinstance(scenario, Scenario) else load(scenario)


@options
class ScenarioOptions:
    """What is played, and under which seed."""

    scenario: ScenarioLike = option(
        SCENARIO,
        "a file, or a built-in scenario's name",
        python=", a `Scenario`, or TOML text",
        metavar="SCENARIO",
    )
    _: KW_ONLY
    seed: int | None = option(
        SEED, "random seed; default: the scenario's", default=None, type=seed_of, metavar="N"
    )
    limits: str | Path | None = option(
        optional(instance(f"a file's path or {DEFAULT!r}", str, Path), "the scenario's"),
        "limit table to use instead of the scenario's; `default` names the built-in one",
        default=None,
        metavar="FILE",
    )
    profile: str | Path | None = option(
        optional(instance("a file's path", str, Path), "the scenario's"),
        "profile: how limits count; default: the scenario's",
        default=None,
        metavar="FILE",
    )

    @functools.cached_property
    def played(self) -> Scenario:
        """The scenario, under the limits and the profile that are given in place of its own.

        Its `rules` and `choices` change those. Raises `InputError` with file:line:col where a file
        has a fault.
        """
        scenario, files = resolve(self.scenario), {"limits": self.limits, "profile": self.profile}
        if is_default(self.limits):
            scenario, files["limits"] = dataclasses.replace(scenario, limits=None), None
        for name, file in files.items():
            if file is not None and not Path(file).is_file():
                raise InputError(f"{name} = {str(file)!r} must be a file; there is none")
        edits = {name: str(Path(file).resolve()) for name, file in files.items() if file}
        return with_values(scenario, edits.items())


@options
class CompiledOptions(ScenarioOptions):
    """Of a study that plays many runs."""

    _: KW_ONLY
    fidelity: Fidelity = option(
        one_of(FIDELITIES),
        "compiled: limit decisions alone, many times as fast (default); limits: the same decisions"
        " under SimPy; engine: every request runs whole",
        default="compiled",
        choices=FIDELITIES,
    )


@options
class RunOptions(FolderOptions, PrecisionOptions, ScenarioOptions):
    """The options of a run of a scenario."""

    _: KW_ONLY
    fidelity: Fidelity = option(
        one_of(FIDELITIES),
        "engine: every request runs whole (default); limits: limit decisions alone; compiled: the"
        " decisions of limits, many times as fast",
        default="engine",
        choices=FIDELITIES,
    )
    replications: int | None = count_option(
        "number of runs, with consecutive seeds (1)", default=None
    )
    warm_up: str | int | None = option(
        optional(DURATION, "the scenario's"),
        "leave out the first part of results, such as 1m30s",
        default=None,
        metavar="D",
    )
    progress: bool | None = option(
        optional(FLAG), "show a bar; left out, in notebooks only", default=None, flag=False
    )

    @property
    def warm_up_ns(self) -> int | None:
        """How long results are left out; None for the scenario's."""
        return _ns(self.warm_up)

    @property
    def are_several(self) -> bool:
        """Whether more than one run is asked for."""
        return self.precision is not None or (self.replications or 1) > 1


# --- logs ----------------------------------------------------------------------------------------

DEFAULT_KIND: Final[Kind] = "public"
"""From this many addresses on, a key looks like a public key in a web page."""
DEFAULT_TENANT: Final[TenantKind] = "production"
_TENANTS: Final = get_args(TenantKind)
_TABLE: Final = instance(f"a LimitTable, a file's path or {DEFAULT!r}", LimitTable, str, Path)
_LOG: Final = ArgumentRule(
    "a log's path, or a frame that Arrow can read",
    lambda log: not isinstance(log, str | Path) or may_be_a_path(log),
)
_FORMAT: Final = ArgumentRule(
    "the name of a format; `replay --formats` lists them",
    lambda name: isinstance(name, str) and name in FORMATS,
    hint=lambda name: did_you_mean(str(name)[:40], tuple(FORMATS), otherwise=""),
)
_TOO_FAST: Final = 10**12
_SPEED: Final = ArgumentRule(
    "a decimal number above 0 and below 10^12, such as 1000 or 0.5",
    lambda speed: isinstance(speed, str) or (is_number(speed) and 0 < speed < _TOO_FAST),
)


@options
class LogReadingOptions:
    """What is stated about a log."""

    _: KW_ONLY
    format: str | None = option(
        optional(_FORMAT),
        "format of the log; by default it is detected; `replay --formats` lists all",
        default=None,
        metavar="NAME",
    )
    as_kind: Kind | None = option(
        optional(one_of(KINDS)),
        "kind of every key whose kind the log does not state (public)",
        default=None,
        choices=KINDS,
        name="as",
        apart=True,
    )
    map: LogMap | str | Path | None = option(
        optional(instance("a LogMap or a file's path", LogMap, str, Path)),
        "map file: which field of the log is the key, the tenant, a kind and so on",
        default=None,
        metavar="FILE",
        apart=True,
    )
    tenant: TenantKind | None = option(
        optional(one_of(_TENANTS)),
        "kind of the tenant if the log does not state it (production)",
        default=None,
        choices=("production", "test"),
    )
    time_column: str | None = option(
        optional(TEXT), "the field that holds the time", default=None, metavar="NAME"
    )
    zone: str | None = option(
        optional(TEXT),
        "time zone of times that state none, such as Europe/Berlin or +02:00 (UTC)",
        default=None,
        metavar="Z",
    )
    client: str | None = option(
        optional(TEXT),
        "which of several forwarded addresses is the client's: first, last or trusted:N, the one"
        " before N proxies (first)",
        default=None,
        metavar="RULE",
    )
    assume: Mapping[str, str] | Sequence[str] | None = option(
        optional(instance("FIELD=VALUE, such as 'path=POST /tokenize'", Mapping, list, tuple)),
        "a field that the log lacks: address, key, method or path, such as 'path=POST /tokenize'",
        default=None,
        action="append",
        metavar="FIELD=VALUE",
    )


@options
class LogOptions(LogReadingOptions):
    """A log, and the limits that its requests are put through."""

    source: Any = option(
        _LOG,
        "the log, plain or compressed; - is standard input",
        python="; or a frame or an Arrow table",
        metavar="LOG",
    )
    _: KW_ONLY
    limits: LimitTable | str | Path | None = option(
        optional(_TABLE), "limit table; default is the built-in one", default=None, metavar="FILE"
    )
    profile: Profile | str | Path | None = option(
        optional(instance("a Profile or a file's path", Profile, str, Path)),
        "profile: how limits count; default is the built-in one",
        default=None,
        metavar="FILE",
    )
    progress: Callable[[str, int, int | None], None] | None = option(
        optional(FUNCTION),
        "told now and then what is done (`reading`, `deciding` …), how much of it so far, and of "
        "how much (None where that is not known)",
        default=None,
        flag=False,
    )

    @functools.cached_property
    def table(self) -> LimitTable:
        """The limits in force."""
        return table_of(self.limits)

    @functools.cached_property
    def read_profile(self) -> Profile:
        """The profile in force."""
        if isinstance(self.profile, Profile):
            return self.profile
        return Profile() if self.profile is None else Profile.from_toml(self.profile)

    @property
    def kind(self) -> Kind:
        """The kind of every key whose kind the log does not state."""
        return self.as_kind or DEFAULT_KIND

    @property
    def tenant_kind(self) -> TenantKind:
        """The kind of the tenant if the log does not state it."""
        return self.tenant or DEFAULT_TENANT

    @property
    def reading(self) -> dict[str, Any]:
        """What is stated about the log, as `stream_log` takes it."""
        return {
            "format": self.format,
            "map": self.read_map(),
            "time_column": self.time_column,
            "zone": self.zone,
            "client": self.client,
            "assume": self.assumed,
            "progress": self.stage("reading"),
        }

    @property
    def assumed(self) -> Mapping[str, str]:
        """What stands in for fields that the log lacks, by field."""
        if self.assume is None or isinstance(self.assume, Mapping):
            return self.assume or {}
        pairs = [str(text).partition("=") for text in self.assume]
        for name, sign, value in pairs:
            if not name or not sign or not value:
                raise InputError("--assume must be FIELD=VALUE, such as 'path=POST /tokenize'")
        return {name: value for name, _, value in pairs}

    def read_map(self) -> LogMap | None:
        """Return the map; raises `InputError` where an option says what it says too."""
        log_map = self.map if isinstance(self.map, LogMap | None) else LogMap.read(self.map)
        for name, value, target in (
            ("as_kind", self.as_kind, "application_kind"),
            ("tenant", self.tenant, "tenant_kind"),
        ):
            if value is not None and log_map is not None and target in log_map.sources:
                raise InputError(f"{name} = {value!r} must be left out; the map says {target}")
        return log_map

    def stage(self, name: str, whole: int | None = None) -> Callable[[int], None] | None:
        """Return what is told how much of a stage is done. whole: how much there is to do."""
        progress = self.progress
        return None if progress is None else lambda done: progress(name, done, whole)


def is_default(limits: LimitTable | str | Path | None) -> bool:
    """Return whether an option names the built-in limit table."""
    return limits == DEFAULT and not Path(DEFAULT).exists()


def table_of(limits: LimitTable | str | Path | None) -> LimitTable:
    """Return a limit table; `DEFAULT` is the built-in one, unless a file has that name."""
    if limits is None or is_default(limits):
        return LimitTable.default()
    return limits if isinstance(limits, LimitTable) else LimitTable.from_toml(limits)


_SHARE: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]+)?)%")


def _share_of(value: Any) -> float:  # noqa: ANN401 # reason: whatever a cell hands in
    """Return a share such as 0.1% or 0.001; −1 where the value is none. A bare 0 is a share."""
    if isinstance(value, str):
        if value.strip() == "0":
            return 0.0
        share = _SHARE.fullmatch(value.strip())
        return float(share[1]) / 100 if share else -1.0
    return float(value) if is_number(value) and 0 <= value <= 1 else -1.0


ALLOWED_SHARE: Final = ArgumentRule(
    "a share from 0% to 100%, such as 0.1%", lambda v: 0 <= _share_of(v) <= 1
)


@options
class ReplayOptions(FolderOptions, LogOptions):
    """The options of a replay of a log."""

    _: KW_ONLY
    against: LimitTable | str | Path | None = option(
        optional(_TABLE),
        "limit table to compare with; reports who gains and who loses",
        default=None,
        metavar="FILE",
    )
    speed: str | int | Fraction = option(
        _SPEED, "how many times faster than the log (1)", default=1, metavar="X"
    )
    allow_newly_refused: str | float | None = option(
        optional(ALLOWED_SHARE),
        "with --against: exit 1 where more of the requests are newly refused, such as 0.1%",
        default=None,
        metavar="SHARE",
    )
    allow_newly_refused_keys: int | None = option(
        optional(whole(0)),
        "with --against: exit 1 where more keys have requests newly refused",
        default=None,
        type=typed(whole(0), int),
        metavar="N",
    )
    refused: str | Path | None = option(
        optional(instance("a file's path", str, Path)),
        "file for the refused requests, CSV or .parquet: line, time, key, address, method, path,"
        " clause, wait_ns",
        default=None,
        metavar="FILE",
    )
    pseudonymise: bool = option(
        FLAG,
        "replace addresses and keys by keyed hashes; the hash key is not kept",
        default=False,
    )
    fidelity: Fidelity | None = option(
        optional(one_of(FIDELITIES)),
        "limits: decide by the limits alone; compiled: likewise in one pass; engine: run each"
        " request whole (limits; compiled from 100,000 requests on)",
        default=None,
        choices=("limits", "compiled", "engine"),
    )

    @property
    def newly_refused_limit(self) -> Fraction | None:
        """The share of requests that a change may newly refuse, exactly as it is written."""
        if self.allow_newly_refused is None:
            return None
        text = str(self.allow_newly_refused).strip()
        return Fraction(text.removesuffix("%")) / (100 if text.endswith("%") else 1)

    command: Sequence[str] = option(TEXTS, "what repeats the replay", default=(), flag=False)


HOLDOUT: Final = optional(
    ArgumentRule(
        "a share from 10% to 90%, such as 50%",
        lambda value: 0.1 <= _share_of(value) <= 0.9,
        _share_of,
    )
)


Form: TypeAlias = Literal["auto", "parametric", "sessions"]
FORMS: Final[tuple[Form, ...]] = get_args(Form)


@options
class FitOptions(LogOptions):
    """The options of a fit."""

    _: KW_ONLY
    holdout: str | float | None = option(
        HOLDOUT,
        "predict the last part of the time, such as 50%, from what comes before it",
        default=None,
        metavar="SHARE",
    )
    form: Form = option(
        one_of(FORMS),
        "traffic model: parametric if it refuses as the log does, else sessions of the log"
        " (auto), or the one named",
        default="auto",
        choices=FORMS,
    )
    runs: int | None = count_option(
        "runs of the scenario to compare with the log; default: 39, or 9 if a run is large",
        default=None,
        rule=optional(whole(3)),
    )
    judged: bool = option(FLAG, "False skips the judge", default=True, flag=False)
