"""What a limiter decides about drawn requests, and which counters it holds meanwhile.

Each trace has a drawn profile and drawn tables, with shadow rules and algorithms of rules among
them; a low bound on counters; many addresses and keys; pauses from nothing to longer than any
horizon, so that counters are forgotten; and answers that come late, in another order or not at
all. Every other trace looks at few counters at a time, as a limiter with many thousands does.
"""

from __future__ import annotations

import itertools
from typing import Any, Final, NamedTuple, get_args
from unittest import mock

from engine.limits import CountersFull, Limiter, LimitTable, Subject, limiter
from engine.messages import Decision
from engine.profile import Algorithm, LimitsProfile, Profile, choices
from tests.drawn import Seeded

__all__ = ["LIMITERS", "decided_text"]

LIMITERS: Final = 30
_STEPS: Final = 260
_MS: Final = 1_000_000
_GAPS_NS: Final = (0, 0, 0, 1, 1, 999_999, 20 * _MS, 20 * _MS, 90 * _MS, 250 * _MS)
_PAUSES_NS: Final = tuple(ms * _MS for ms in (500, 999, 1_000, 2_500, 10_000, 60_000, 121_000))
_ASKED: Final = (
    ("POST", "/tokenize"),
    ("POST", "/tokenize"),
    ("POST", "/tokens"),
    ("GET", "/tokens"),
    ("GET", "/tokens/a"),
    ("PATCH", "/tokens/a"),
    ("DELETE", "/tokens/a"),
    ("POST", "/tokens/search"),
    ("POST", "/detokenize"),
    ("GET", "/account-updater/jobs"),
    ("PUT", "/batch-files/a"),
    ("GET", "/proxy/x"),
)


def _profile(choose: Seeded) -> LimitsProfile:
    changes: dict[str, Any] = {}
    for choice in choices():
        if choice.section == "limits" and len(choice.listed) > 1 and choose.whole(0, 3) == 0:
            changes[choice.name] = choose.one(choice.listed)
    changes["throttle"] = choose.one(("refuse", "delay"))
    changes["delay_bound_ns"] = choose.one((0, 300 * _MS, 4_000 * _MS))
    changes["counters_limit"] = choose.one((20, 26, 500_000))
    changes["burst_requests"] = choose.one((None, None, 1, 3))
    return Profile().replace(limits=changes).limits


def _table(choose: Seeded, table: LimitTable, *, with_global: bool) -> LimitTable:
    for rule in table.rules:
        if rule.is_global and not with_global:
            continue
        if choose.whole(0, 2) == 0:
            continue
        changes: dict[str, Any] = {
            "rate": choose.one(("1/1s", "3/1s", "5/2s", "4/10s", "30/10s", "9/90s"))
        }
        if rule.block_ns and choose.either():
            changes["block_ns"] = choose.one(("1ns", "700ms", "3s"))
        if choose.whole(0, 3) == 0:
            changes["algorithm"] = choose.one(get_args(Algorithm))
        if choose.whole(0, 5) == 0:
            changes["shadow"] = True
        table = table.replace_rule(rule.id, **changes)
    return table


def _subject(choose: Seeded) -> Subject:
    method, path = choose.one(_ASKED)
    ip = f"203.0.113.{choose.whole(1, 3) if choose.whole(0, 5) else choose.whole(1, 40)}"
    key = choose.whole(0, 5)
    more: dict[str, Any] = {}
    if key:
        kind = choose.one(("private", "public", "management"))
        more = {"key_id": f"{kind} {key}", "application_kind": kind, "legacy": key == 3}
        more["tenant_kind"] = "test" if key == 1 else "production"
        more["table"] = "Other" if key == 2 else "Default"
    if path.startswith("/proxy"):
        more["proxy_key_id"] = choose.one((None, "p", "q"))
        more["host_id"] = choose.one((None, None, "h"))
    return Subject(method, path, ip, **more)


def _decided(choose: Seeded) -> list[str]:
    table = _table(choose, LimitTable.default(), with_global=choose.either())
    tables = {"Default": table, "Other": _table(choose, table, with_global=False)}
    limits = Limiter(tables, _profile(choose), is_bounded=True)
    lines, now_ns = [repr(limits.profile)], 0
    subjects = [_subject(choose) for _ in range(9)]
    unanswered: list[Decision] = []
    for _ in range(_STEPS):
        now_ns += choose.one(_GAPS_NS if choose.whole(0, 14) else _PAUSES_NS)
        subject = choose.one(subjects) if choose.whole(0, 4) else _subject(choose)
        try:
            if choose.either():
                decision, room = limits.decide_with_status(now_ns, subject)
            else:
                decision = limits.decide(now_ns, subject)
                room = limits.status(now_ns, subject)
        except CountersFull:
            lines.append(f"{now_ns} {subject} full at {limits.counter_count}")
            continue
        lines.append(f"{now_ns} {subject} {decision} {room} {limits.counter_count}")
        unanswered.append(decision)
        while unanswered and choose.either():
            answered = unanswered.pop(choose.whole(0, len(unanswered) - 1))
            limits.settle(answered, choose.one((200, 299, 199, 300, 429)))
        if choose.whole(0, 19) == 0:
            counted = tuple(own.settings.name for own in limits.match(subject).counters)
            lines.append(f"{_blocks(limits, now_ns)} {counted}")
    return lines


class Block(NamedTuple):
    """A block in force."""

    rule: str
    counter: object
    until_ns: int


def _blocks(limits: Limiter, now_ns: int) -> tuple[Block, ...]:
    return tuple(
        Block(family.name, key, counter.blocked_until_ns)
        for family in limits._rules.families()
        for key, counter in family.counters.items()
        if counter.blocked_until_ns > now_ns
    )


def decided_text() -> str:
    """Return what limiters decide in all traces, a request a line."""
    traces = []
    for seed in range(LIMITERS):
        at_once = 3 if seed % 2 else 5_000
        with mock.patch.object(limiter, "_SWEPT_AT_ONCE", at_once):
            traces.append(_decided(Seeded(seed)))
    return "\n".join(itertools.chain.from_iterable(traces))
