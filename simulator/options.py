"""What runs, replays and studies can be told: each option once, with its rule and its words.

An option is a field of a frozen dataclass, and its metadata say the rest: the rule of its value, a
line about it, and its flag. All else is made of these: `takes_options` makes the fields the
parameters of a function, checked and described; `add_flags` fills a command's parser, `given` reads
what was typed, and `repeated` writes it again. What does not fit together is refused here too.

To add an option to a run, add a field here, and use it where it has its effect.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import KW_ONLY, MISSING, Field, dataclass, field, fields
from fractions import Fraction
from pathlib import Path
from typing import (
    Any,
    Final,
    Literal,
    ParamSpec,
    TypeAlias,
    TypeVar,
    dataclass_transform,
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
    instance,
    is_number,
    may_be_a_path,
    one_of,
    optional,
    reads,
    whole,
)
from simulator.logs import FORMATS, KINDS, Kind, LogMap
from simulator.play.simulation import FIDELITIES, SEED, Fidelity
from simulator.rows import out_folder
from simulator.rows.parquet import COLUMNS, choose_columns
from simulator.scenario import Scenario, is_toml, load, with_values

P = ParamSpec("P")
Told = TypeVar("Told")
R = TypeVar("R")

_SAYS: Final = "{options}"
"""The line of a docstring in whose place the options are described."""


@dataclass(frozen=True, slots=True)
class _Option:
    """rule: of the value. text: what the option does. flag: what argparse takes, None for no flag.

    python: what Python takes beside, which a command line cannot. name: of the flag, where it is
    not the field's. apart: goes with no other such option.
    """

    rule: ArgumentRule
    text: str
    flag: dict[str, Any] | None = None
    python: str = ""
    name: str = ""
    apart: bool = False


def option(  # reason: what there is to say of an option
    rule: ArgumentRule,
    text: str,
    *,
    default: Any = MISSING,  # noqa: ANN401 # reason: of any option
    python: str = "",
    name: str = "",
    apart: bool = False,
    flag: bool = True,
    **taken: Any,  # noqa: ANN401 # reason: what argparse takes
) -> Any:  # noqa: ANN401 # reason: a dataclass's field, as `dataclasses.field` types it
    """Return the field of an option. taken: what argparse takes of its flag, if it has one."""
    if isinstance(default, bool):
        taken["action"] = argparse.BooleanOptionalAction if default else "store_true"
    definition = _Option(rule, text, taken if flag else None, python, name, apart)
    return field(default=default, metadata={"option": definition})


def count_option(text: str, *, default: int | None, rule: ArgumentRule | None = None) -> Any:  # noqa: ANN401 # reason: as above
    """Return the field of an option that is a count, 1 or more; one without a default may be None.

    rule: another one.
    """
    rule = rule or (optional(whole(1)) if default is None else whole(1))
    return option(rule, text, default=default, type=count_of, metavar="N")


@dataclass_transform(frozen_default=True, field_specifiers=(option, count_option))
def options(kind: type[Told]) -> type[Told]:
    """Make a class a frozen dataclass of options; type checkers know which have no default."""
    return dataclass(frozen=True)(kind)


def _options(kind: Any) -> dict[str, tuple[Field[Any], _Option]]:  # noqa: ANN401 # reason: a dataclass
    """Return the options of a dataclass by name, in the order of its parameters."""
    described = {item.name: (item, item.metadata["option"]) for item in fields(kind)}
    return {name: described[name] for name in inspect.signature(kind).parameters}


def read_options(kind: Callable[P, Told], name: str = "") -> Callable[P, Told]:
    """Return what makes the options of a dataclass, each read by its rule; name: for messages."""
    rules = {field_name: definition.rule for field_name, (_, definition) in _options(kind).items()}
    return reads(kind, rules, name or getattr(kind, "__name__", ""))


def takes_options(kind: Callable[P, Told]) -> Callable[[Callable[[Told], R]], Callable[P, R]]:
    """Return a decorator that makes a dataclass's options the parameters of a function.

    Where the function's docstring has a line `{options}`, it gets a line about each of them.
    """

    def decorate(function: Callable[[Told], R]) -> Callable[P, R]:
        make = read_options(kind, function.__name__)

        @functools.wraps(function)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
            return function(make(*args, **kwargs))

        returns = inspect.signature(function).return_annotation
        taken = inspect.signature(kind).replace(return_annotation=returns)
        wrapped.__signature__ = taken  # type: ignore[attr-defined] # reason: `inspect` reads it
        wrapped.__doc__ = (function.__doc__ or "").replace(_SAYS, _described(kind))
        return wrapped

    return decorate


def _described(kind: Any) -> str:  # noqa: ANN401 # reason: a dataclass
    """Return a paragraph of a docstring: a line, or two, about each option."""
    lines = [
        textwrap.fill(
            f"{name}: {definition.text}{definition.python}.", 92, subsequent_indent=" " * 8
        )
        for name, (_, definition) in _options(kind).items()
    ]
    return "\n    ".join(lines)


# --- on a command line ---------------------------------------------------------------------------


def add_flags(parser: argparse.ArgumentParser, kind: Any, **texts: str) -> None:  # noqa: ANN401 # reason: a dataclass
    """Give a parser the flags of a dataclass's options; texts: a command's own."""
    known = _options(kind)
    apart = (
        any(definition.apart for _, definition in known.values())
        and parser.add_mutually_exclusive_group()
    )
    for name, (item, definition) in known.items():
        if definition.flag is None:
            continue
        about = {"help": texts.get(name, definition.text).replace("%", "%%"), **definition.flag}
        if not item.kw_only:
            parser.add_argument(name, **about)
            continue
        about |= {"required": True} if item.default is MISSING else {"default": item.default}
        ((definition.apart and apart) or parser).add_argument(
            _flag(name, definition), dest=name, **about
        )


def given(args: argparse.Namespace, kind: Any) -> dict[str, Any]:  # noqa: ANN401 # reason: a dataclass
    """Return the options that a command line has, as a function takes them."""
    return {name: getattr(args, name) for name in _options(kind) if hasattr(args, name)}


def repeated(args: argparse.Namespace, kind: Any, **changed: Any) -> list[str]:  # noqa: ANN401 # reason: a dataclass, any option
    """Return the words of a command line that say the same again, some of it changed."""
    words = []
    for name, (item, definition) in _options(kind).items():
        value = changed.get(name, getattr(args, name, item.default))
        if value == item.default:
            continue
        if not item.kw_only:
            words.append(str(value))
        elif isinstance(value, list):
            words += [word for item in value for word in (_flag(name, definition), str(item))]
        elif isinstance(value, bool):
            words.append(_flag(name, definition) if value else _flag(f"no_{name}", definition))
        else:
            words += [_flag(name, definition), str(value)]
    return words


def _flag(name: str, definition: _Option) -> str:
    return "--" + (definition.name or name).replace("_", "-")


def typed(rule: ArgumentRule, read: Callable[[str], Any] = float) -> Callable[[str], Any]:
    """Return what reads a value of a command line that a rule holds for."""

    def value_of(text: str) -> Any:  # noqa: ANN401 # reason: what `read` returns
        with suppress(ValueError):
            if rule.holds(value := read(text)):
                return value
        raise argparse.ArgumentTypeError(f"{text!r} must be {rule.words}")

    return value_of


def _digits(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)


seed_of: Final = typed(whole(0, "a whole number from 0 to 2^63 - 1", below=1 << 63), _digits)
count_of: Final = typed(whole(1, "a whole number from 1 to 100000", below=100_001), _digits)


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
