"""The registry of checks: each one bound to the clauses that it judges.

A check is a coroutine of a `CheckContext` that returns its findings. It sends through lanes
(`ctx.client`, `ctx.lane(…)`), which stay below the limits. Checks that wait for windows, blocks
or retentions run at the same time as all others, and probes of limits have keys and addresses of
their own. The others share keys and addresses, and run one after another.

Whatever a check raises is an *error* of its clauses, except `Skip` and `Inconclusive`, which say
why there is no verdict. Ids are stable words: `model.sequences`, `limits.LIM-PUBLIC`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, TypeVar

from conformance.context.verdicts import Finding, Verdict
from conformance.target import ROLES, Target
from engine.clauses import clause

Judge: TypeAlias = Callable[..., Coroutine[Any, Any, list[Finding]]]
"""Judges over a `CheckContext`, which holds its check: its module imports this one."""
Load: TypeAlias = Literal["light", "computing", "stalling", "closing"]
_Judge = TypeVar("_Judge", bound=Callable[..., object])


class Skip(Exception):
    """The target or the budget does not allow the check; the message says what to change."""


class OutOfBudget(Skip):
    """The budget's requests or minutes end before the check does."""


class Absent(Skip):
    """The deployment does not have what the check needs, and the specification does not ask it."""


class Inconclusive(Exception):
    """What was seen allows no verdict; the message says why."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    id: a stable word. clauses: what it judges. description: what it shows, in a sentence. accepts:
    the outcomes that pass. roles: key roles that the target must have, else *skipped*; a role named
    twice asks for two keys. sources: addresses of its own (concurrent ones only; 0 = shared).
    requests: about how many it sends; requests_most: the most, retries included, where that is more
    than twice as many. takes_ns: its shortest duration (windows, blocks). rest_ns: how much longer
    it takes right after another run, for its counters rest. is_probe: it measures limits, and
    `--no-limits` leaves it out. load: its effect on checks beside it: `computing` needs
    much processor time here; `stalling` sends bodies of megabytes, which a deployment may read
    before it answers others; `closing` reviews what the other checks received. is_timed: it judges
    response times, and has keys and an address of its own where the target has enough. beside:
    those of its clauses that other checks judge as a whole: it can fail them; where it has no
    verdict on them, that is a remark.
    clause_needs: what some clauses need of the target besides, roles of keys or fields; without it
    they are skipped.
    """

    id: str
    clauses: tuple[str, ...]
    description: str
    accepts: str
    judge: Judge
    roles: tuple[str, ...] = ()
    sources: int = 0
    requests: int = 10
    takes_ns: int = 0
    is_probe: bool = False
    load: Load = "light"
    requests_most: int = 0
    is_timed: bool = False
    beside: tuple[str, ...] = ()
    rest_ns: int = 0
    clause_needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def is_concurrent(self) -> bool:
        """Whether it runs at the same time as all others; they wait for nothing it waits for."""
        return self.is_probe or self.takes_ns > 0 or self.load == "stalling"

    @property
    def is_row(self) -> bool:
        """Whether it measures a row of the limit table; all rows share keys and addresses."""
        return self.is_probe and self.id.startswith("limits.LIM-")

    @property
    def is_generated(self) -> bool:
        """Whether it is one of the schema layer, which runs over HTTP alone."""
        return self.id.startswith("schema.")


def missing_need(names: Iterable[str], target: Target) -> str | None:
    """Return what a target lacks of some roles and fields, with the line that adds it."""
    for name in names:
        if name in ROLES and not target.labels(name):
            return f'the target has no key of role {name}; add [[keys]] role = "{name}"'
        if name not in ROLES and not getattr(target, name):
            return f"the target has no {name}; add it"
    return None


def about_all(
    check: Check,
    verdict: Verdict,
    message: str,
    evidence: tuple[int, ...] = (),
    *,
    is_cut: bool = False,
    is_absent: bool = False,
) -> list[Finding]:
    """Return a finding on each clause of a check; on those that others judge, it is a remark.

    A fault of the harness is one for every clause. is_cut, is_absent: as in `Finding`.
    """
    beside = () if verdict is Verdict.ERROR else check.beside
    return [
        Finding(
            clause_id,
            check.id,
            Verdict.INFORMATIONAL if clause_id in beside else verdict,
            message,
            evidence,
            check.accepts,
            is_cut=is_cut,
            is_absent=is_absent,
        )
        for clause_id in check.clauses
    ]


async def _no_judge(_: object) -> list[Finding]:
    return []


CLEANING: Final = Check(
    "cleaning", (), "deletes what the run created", "an answer to every deletion", _no_judge
)
PREFLIGHT: Final = Check(
    "preflight", (), "sends one request with every kind of key", "an accepted request", _no_judge
)
"""Two parts of a run that send requests as checks do, and judge no clause."""

CHECKS: Final[dict[str, Check]] = {}
"""Every check that has been imported, by its id, in the order of definition."""


def check(
    check_id: str,
    *clauses: str,
    roles: tuple[str, ...] = ("private_prod",),
    **fields: Any,  # noqa: ANN401 # reason: fields of Check, `accepts` among them
) -> Callable[[_Judge], _Judge]:
    """Register a check; its docstring's first line says what it shows.

    roles: of the keys that it needs; most checks need the one that every target has.
    """
    for clause_id in clauses:
        clause(clause_id)
    assert check_id not in CHECKS, f"two checks are called {check_id}"

    def register(judge: _Judge) -> _Judge:
        description = (judge.__doc__ or "").strip().partition("\n")[0]
        assert description, f"{check_id} must say what it shows"
        CHECKS[check_id] = Check(
            check_id,
            clauses,
            description,
            roles=roles,
            judge=judge,  # type: ignore[arg-type] # reason: a decorator keeps the function's own type
            **fields,
        )
        return judge

    return register


def all_checks() -> dict[str, Check]:
    """Import every module that holds checks; returns `CHECKS`."""
    package = importlib.import_module("conformance.checks")
    for module in sorted(entry.name for entry in pkgutil.iter_modules(package.__path__)):
        if not module.startswith("_"):
            importlib.import_module(f"{package.__name__}.{module}")
    importlib.import_module("conformance.model.check")
    importlib.import_module("conformance.schema.layer")
    return CHECKS


def checks_of(clause_ids: Iterable[str]) -> list[Check]:
    """Return the checks that judge any of the clauses, in order of definition."""
    wanted = set(clause_ids)
    return [registered for registered in CHECKS.values() if wanted.intersection(registered.clauses)]
