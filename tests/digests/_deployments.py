"""What a whole run asks of deployments of many kinds, and what it says of each.

Conforming and not, well and poorly described, fast and slow: a digest is of every request (when,
by whom, its size), every finding, and what the run has learned. Of many more targets a digest is
of the plan, which sends nothing.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from unittest import mock

from conformance.report.terminal import Terminal
from conformance.runner.plan import Dealt, loads_after_ns, make_plan, outlook, starts_ns
from conformance.runner.registry import Check, all_checks
from conformance.runner.runner import Options, Run
from conformance.runner.verdicts import Finding
from conformance.target import Budget, RequestShape, Target
from conformance.wire.exchange import Ask
from conformance.wire.in_process import deploy
from conformance.wire.shapes import SHAPES
from conformance.wire.transport import Answer
from engine import Engine, LimitTable, Profile
from engine.clauses import select
from engine.files import parse_rate
from engine.profile import Choice, choices
from tests.conformance.checks.changed import Changed
from tests.conformance.field import MEASURING
from tests.conformance.probes.measured import (
    Stalling,
    at_random,
    by_address,
    in_turn,
    jittery,
    nodes_of,
)
from tests.digests._verdicts import CHANGES, finding_line, recorded, swapped
from tests.drawn import Seeded

__all__ = ["DEPLOYMENTS", "TARGETS", "planned_text", "played_text"]

_SLOW: Final = ("account-updater.file", "limits.LIM-IP", "limits.LIM-MANAGEMENT")
"""Checks that take long; each is played once here."""


class _Kind(NamedTuple):
    """A deployment, and what of it is asked; limits: of its profile."""

    limits: Mapping[str, Any] = {}
    sections: Mapping[str, Any] = {}
    checks: Sequence[str] = MEASURING
    latency: Callable[[], Any] | None = None
    engine: Callable[..., Engine] = Engine
    rates: Mapping[str, str] = {}
    """Rule → another rate."""
    told: bool = False
    """Whether the target tells the other rates."""
    change: Callable[[], Any] | None = None
    """What alters its answers."""
    keys: int = 1
    target: Mapping[str, Any] = {}


def _of(*rule_ids: str) -> tuple[str, ...]:
    return tuple(f"limits.{rule_id}" for rule_id in rule_ids)


def _readings(place: int) -> dict[str, dict[str, Any]]:
    """Return sections of a profile with the reading of this place of every choice that has one."""
    found: dict[str, dict[str, Any]] = {}
    for one in choices():
        others = _others(one)
        if place < len(others):
            found.setdefault(one.section, {})[one.name] = others[place]
    return found


def _others(choice: Choice) -> tuple[Any, ...]:
    is_node = choice.section == "nodes"
    return () if is_node else (*choice.readings, *choice.study)


_PLAIN: Final = tuple(
    sorted({one.id for one in all_checks().values() if not one.is_generated} - {*MEASURING, *_SLOW})
)
_ROWS: Final = _of("LIM-SEARCH", "LIM-PUBLIC", "LIM-CREATE")
_FEW: Final = (*_ROWS, *_of("block", "lowest", "throttle", "any"))
_MORE: Final = _of(
    "LIM-READ", "LIM-LEGACY", "LIM-PROXY-KEY", "classes", "counted", "status", "block"
)
_LESS: Final = tuple(sorted({*MEASURING} - {*_SLOW, "limits.LIM-PRIVATE"}))
_REFUSED: Final = (
    *("proxies.timeout", "reactors.timeout"),
    *_of("block", "throttle", "lowest", "counted", "status", "status-blocked", "legacy-class"),
)
_PREFLIGHT: Final = 100
_SOURCES: Final = tuple(f"127.0.0.{number}" for number in range(2, 12))


def _later(change: Callable[[], Any]) -> Callable[[], Any]:
    """Let a change begin after the preflight, which would end the run."""

    def made() -> Callable[[Ask, Answer], Answer]:
        count, changed = itertools.count(), change()
        return lambda ask, answer: changed(ask, answer) if next(count) > _PREFLIGHT else answer

    return made


def _changes() -> dict[str, Callable[[], Any]]:
    """Return changes of answers that limits meet: what refuses them, and what is lost."""
    return {
        "429 as 503": swapped(429, 503),
        "429 as 403": swapped(429, 403),
        "429 as nothing": swapped(429, None),
        "429 as success": swapped(429, 200),
        "lost answers": _later(CHANGES["cut off, every fifth"]),
        "lost refusals": _later(swapped(429, None)),
        "late answers": CHANGES["late, every fifth"],
        "errors of a front": CHANGES["status 503, every second"],
        "refused keys": CHANGES["status 401, every second"],
        "denied keys": CHANGES["status 403, all"],
        "absent operations": CHANGES["status 404, every second"],
    }


_RATES: Final = {"LIM-SEARCH": "30/7s", "LIM-PUBLIC": "90/1m", "LIM-READ": "150/5s"}
_TOKEN_BUCKET: Final = {"algorithm": "token-bucket"}
DEPLOYMENTS: Final[Mapping[str, _Kind]] = {
    "of the reference": _Kind(checks=_LESS, keys=8, latency=lambda: jittery(1, 40, 10)),
    "with a key a role": _Kind(checks=(*_LESS, "limits.LIM-PRIVATE")),
    "without addresses": _Kind(checks=_LESS, target={"sources": ()}),
    "of long windows": _Kind(checks=_SLOW[1:], latency=lambda: jittery(2, 9, 4)),
    "by fixed windows": _Kind({"algorithm": "fixed-window"}, checks=_FEW, keys=4),
    "by sliding counters": _Kind({"algorithm": "sliding-counter"}, checks=_MORE, keys=4),
    "by buckets": _Kind(
        {**_TOKEN_BUCKET, "burst_requests": 20},
        checks=(*_FEW, *_MORE),
        latency=lambda: jittery(2, 9, 4),
    ),
    "that delays": _Kind({"throttle": "delay"}, checks=_LESS),
    "that delays by buckets": _Kind({**_TOKEN_BUCKET, "throttle": "delay"}, checks=_FEW),
    "that stops": _Kind(checks=_FEW, keys=4, latency=lambda: Stalling(3, 1.5, 0.6)),
    "that stops and has buckets": _Kind(
        _TOKEN_BUCKET, checks=_ROWS, latency=lambda: Stalling(3, 1.5, 0.6)
    ),
    **{
        f"of {count} nodes {name}": _Kind(
            checks=_of("LIM-SEARCH", "LIM-PUBLIC")[: count % 2 + 1],
            keys=4,
            engine=nodes_of(count, balance),
            latency=lambda: jittery(4, 2, 1),
        )
        for count, name, balance in (
            (2, "in turn", in_turn),
            (3, "by address", by_address),
            (4, "by chance", at_random),
        )
    },
    **{
        f"of reading {place}": _Kind(sections=_readings(place), checks=(*_PLAIN, *_FEW), keys=4)
        for place in range(4)
    },
    **{
        f"of {name}": _Kind(
            checks=(*_of("LIM-SEARCH", "LIM-PUBLIC", "LIM-READ", "any", "classes"), *_REFUSED),
            change=change,
            keys=4,
            target={"sources": _SOURCES},
        )
        for name, change in _changes().items()
    },
    "of other rates": _Kind(rates=_RATES, checks=(*_FEW, *_MORE), keys=4),
    "of told rates": _Kind(rates=_RATES, checks=(*_FEW, *_MORE), keys=4, told=True),
}
TARGETS: Final = {"described well": 3, "described poorly": 9}
"""Name → the first seed of the targets that are drawn for it."""

_DRAWN: Final = 40
_LIMITED: Final = ("search", "create", "tokenize", "list_logs", "get")


def planned_text(name: str) -> str:
    """Return the plans for drawn targets, and what `check` says of them."""
    keys = 8 if name.endswith("well") else 3
    made = deploy(keys_a_role=keys)
    kept = {one.id: one for one in all_checks().values()}
    lines: list[str] = []
    for seed in range(TARGETS[name], TARGETS[name] + _DRAWN):
        choose = Seeded(seed)
        target = _drawn_target(made.target, choose, keys)
        table = LimitTable.default()
        if choose.whole(0, 2) == 0:
            table = table.replace_rule(
                "LIM-PUBLIC", rate=f"{choose.whole(2, 900)}/{choose.whole(1, 99)}s"
            )
        clauses = select(choose.one(([], [], ["TOK-"], ["LIM-"], ["QUO-", "AUTH-"])))
        plan = make_plan(target, table, clauses, kept.values())
        lines += outlook(plan, target, table)
        lines += map(_dealt_line, plan.one_by_one)
        for together in plan.rounds:
            lines += [str(starts_ns(together)), *map(_dealt_line, together)]
        latency_ns = choose.whole(0, 300) * 1_000_000
        after = loads_after_ns(plan.rounds[0], plan.one_by_one, latency_ns)
        lines += [
            str(plan.allowances),
            str(after),
            str(plan.pause_ns),
            str(sorted(map(str, plan.crowded))),
        ]
    return "\n".join(lines)


def _dealt_line(dealt: Dealt) -> str:
    check = dealt.check
    sizes = (check.requests, check.requests_most, check.takes_ns)
    return f"{check.id} {sizes} {dealt.keys} {dealt.sources}"


def _drawn_target(whole: Target, choose: Seeded, keys: int) -> Target:
    """Return a target that lacks some keys, addresses and words of the whole one."""
    roles = dict.fromkeys(key.role for key in whole.keys)
    most = {role: choose.whole(0, keys) if choose.either() else keys for role in roles}
    limited = choose.one(("", *_LIMITED))
    own = {} if not limited else {limited: _limited(limited, choose)}
    return dataclasses.replace(
        whole,
        keys=tuple(
            key
            for role in roles
            for key in [one for one in whole.keys if one.role == role][: most[role]]
        ),
        sources=whole.sources[: choose.one((0, 1, 2, 5, 14, 32))],
        budget=Budget(
            requests=choose.one((90, 4_000, 25_000, 60_000, 500_000)),
            minutes=choose.one((1, 10, 30)),
        ),
        pacing=choose.one((None, None, parse_rate("20/1s"), parse_rate("300/1s"))),
        forbidden=choose.one(((), (), ("DELETE /tokens/{id}",), ("POST /tokens/search",))),
        always=choose.one(((), ("deduplication",))),
        encryption_jwk=choose.one((None, whole.encryption_jwk)),
        container_names=choose.one(((), ("main", "cards"))),
        fields=choose.one((None, {"containers": "vault"})),
        requests=own,
    )


def _limited(name: str, choose: Seeded) -> RequestShape:
    """Return the operation with a limit of its own."""
    limit = parse_rate(choose.one(("20/10s", "50/10s", "199/10s", "500/1m")))
    return dataclasses.replace(SHAPES[name], limit=limit)


class _Watching(Terminal):
    """Keeps what a log shows of a run, and what it would say after each check."""

    def __init__(self) -> None:
        self.text = io.StringIO()
        super().__init__(self.text, beat_s=3_600)
        self.states: list[str] = []

    def began(self, check: Check) -> None:
        super().began(check)
        self.states.append(self._state())

    def ended(self, check: Check, findings: Sequence[Finding]) -> None:
        super().ended(check, findings)
        self.states.append(self._state())


def played_text(name: str) -> str:
    """Return what a run found about a deployment, what it learned, and what it sent."""
    kind = DEPLOYMENTS[name]
    sections = {**kind.sections, "limits": {**kind.sections.get("limits", {}), **kind.limits}}
    table = LimitTable.default()
    for rule_id, rate in kind.rates.items():
        table = table.replace_rule(rule_id, rate=rate)
    latency = None if kind.latency is None else kind.latency()
    made = deploy(
        profile=Profile().replace(**sections),
        limits=table,
        latency=latency,
        keys_a_role=kind.keys,
        engine=kind.engine,
        **kind.target,
    )
    if isinstance(latency, Stalling):
        latency.clock = made.engine.clock
    options = Options(checks=tuple(kind.checks), seed=5)
    transport = made.transport if kind.change is None else Changed(made, kind.change())

    def now_s() -> float:
        return transport.now_ns / 1e9

    watching = _Watching()
    with (
        recorded() as sent,
        mock.patch("conformance.report.terminal.time.monotonic", now_s),
    ):
        run = Run(
            made.target,
            options,
            transport=transport,
            limits=table if kind.told else None,
            progress=watching,
        )
        report = run.execute()
    watching.close()
    lines = [watching.text.getvalue(), *watching.states]
    lines += [finding_line(one) for one in run.findings]
    told = (report.preflight, report.rest, report.took_ns, report.floor_ns, report.cleaned)
    lines += [*report.notes, str(told), report.verdict_line, run.session.profile.to_toml()]
    return "\n".join([*lines, str(sent)])
