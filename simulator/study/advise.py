"""Advice: what binds each group of clients, what would help it, and what a change would cost.

Every line rests on runs of the scenario. The same seeds play it as it is and with one change, so
that their difference is due to the change, and its interval says how sure it is. The largest pace,
and the smallest limit that meets a target, are searches as `capacity` makes them.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY
from fractions import Fraction
from typing import Any, Final, NamedTuple

import pandas as pd

from engine.errors import InputError, did_you_mean
from engine.files import Rate, to_plain
from engine.limits import Rule
from engine.limits.counters import ALGORITHMS
from engine.limits.table import COUNTER_KINDS
from engine.model import DEFAULT_QUOTAS
from simulator.arguments import (
    FLAG,
    FUNCTION,
    TEXTS,
    ArgumentRule,
    count_option,
    is_number,
    option,
    optional,
    options,
    takes_options,
    typed,
)
from simulator.intervals import Interval, Verdict, interval_of, judged, pooled, spent
from simulator.options import ReplicationBudget, ScenarioOptions
from simulator.play.simulation import seed_in_force, simulate, warm_up
from simulator.progress import TimeLeft, keeps_what_is_known
from simulator.scenario import Condition, Scenario, limits_of, profile_of, with_values
from simulator.scenario.clients import ClientGroup, Dealing
from simulator.scenario.model import draws_at_random, hosts_of, needs_bodies
from simulator.study.advice import About, Advice, Suggestion
from simulator.study.capacity import (
    Capacity,
    LoweredLimits,
    Search,
    Trial,
    Values,
    scenario_player,
)
from simulator.study.comparison import Difference, Observed, echoes, observe, paces, paired
from simulator.study.run_size import Edits, at_pace, stated_pace
from simulator.study.runs import Replicator, replicator
from simulator.views.text import counted_text, fair_share_text, percent_text

REPLICATIONS: Final = 20
MOST_REPLICATIONS: Final = 60
"""Default limit of runs to decide one value of a pace or a limit."""
_FIRST: Final = 3
_TOLERANCE: Final = 0.04
_SLOWEST, _FASTEST = Fraction(1, 32), 4
_MOST_CLAUSES: Final = 3
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600}
_LEAST_A_UNIT: Final = Fraction(1, 10)
_TARGET: Final[Mapping[Verdict, str]] = {
    "met": "the target is met",
    "not met": "the target is not met",
}
_ON_AVERAGE: Final = {
    True: "the target is met on average",
    False: "the target is missed on average, not surely",
}
_SPREAD: Final[dict[str, About]] = {"key_id": "keys", "ip": "addresses"}
"""What a counter counts by, and what clients could have more of."""
_FRESH: Final = 1_000_000
"""What verification adds to the seeds, so that it plays other runs than the advice rests on."""
_FRESH_RUNS: Final = 10
"""Runs that verify a suggestion; `--verify` plays as many as each change has."""
_MORE_FRESH_RUNS: Final = (30, 60)
"""Runs at the further looks at one that claims to meet the target."""
_MARGINS: Final = (2.5, 5.0, 10.0)
"""How far from the border a value is tried, in half-widths of the border's interval: at one of them
fresh runs, no more than told where the border is, seldom see the target met."""
_SHARE: Final = ArgumentRule(
    "above 0 and below 1, such as 0.01", lambda v: is_number(v) and 0 < v < 1
)


def _share(text: str) -> float:
    """Return a share of a command line, `1%` or `0.01`."""
    return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)


class _Verified(NamedTuple):
    """What fresh runs say of a suggestion, and whether they contradict it."""

    text: str
    verdict: Verdict
    observed: Sequence[Observed] = ()


@options
class AdviseOptions(ScenarioOptions):
    """The options of advice."""

    _: KW_ONLY
    refused: float = option(
        _SHARE,
        "the share of a group's attempts that may be refused, as 1% or 0.01 (1%)",
        default=0.01,
        type=typed(
            ArgumentRule("a share above 0 and below 1, such as 1% or 0.01", _SHARE.holds), _share
        ),
        metavar="SHARE",
    )
    groups: Sequence[str] | None = option(
        optional(TEXTS, "every group"),
        "advise this client group alone; may be repeated",
        default=None,
        name="for",
        action="append",
        metavar="GROUP",
    )
    replications: int = count_option("runs of each change (20)", default=REPLICATIONS)
    most_replications: int = count_option(
        "most runs to decide one pace or one limit (60)", default=MOST_REPLICATIONS
    )
    verify: bool = option(
        FLAG, "verify each suggestion in --replications fresh runs instead of 10", default=False
    )
    progress: Callable[[str], None] | None = option(
        optional(FUNCTION), "hears what is being played", default=None, flag=False
    )
    suggested: Callable[[Suggestion], None] | None = option(
        optional(FUNCTION), "hears each suggestion once it is verified", default=None, flag=False
    )


@takes_options(AdviseOptions)
def advise(options: AdviseOptions) -> Advice:
    """Report what limits each client group, and what its clients or the operator should change.

    {options}

    Raises `InputError` for a scenario that cannot be or that compiled code cannot play, and for a
    group that it does not have. Ctrl-C raises `simulator.progress.Interrupted`, which has what is
    known so far.
    """
    base = options.played
    if reason := needs_bodies(base):
        raise InputError(f"advise is compiled, limits alone, and {reason}")
    known = [group.name for group in base.clients]
    for name in options.groups or ():
        if name not in known:
            raise InputError(f"groups: {name!r} must be a client group{did_you_mean(name, known)}")
    warm_up()
    with replicator() as runner:
        work = _Work(options, base, runner)
        with keeps_what_is_known(work.advice):
            work.find()
    return work.advice


class _Work:
    """Advice in the making."""

    def __init__(self, options: AdviseOptions, scenario: Scenario, runner: Replicator) -> None:
        seed = seed_in_force(scenario, options.seed)
        self._is_exact = not draws_at_random(scenario)
        runs = 1 if self._is_exact else options.replications
        self.scenario, self.runner, self.refused = scenario, runner, options.refused
        self.groups = list(options.groups or [group.name for group in scenario.clients])
        self.seeds = range(seed, seed + runs)
        self.budget = ReplicationBudget(options.most_replications)
        self.advice = Advice(scenario, options.refused, runs)
        self.progress = options.progress or (lambda _: None)
        self.suggested = options.suggested or (lambda _: None)
        self.fresh_runs = options.replications if options.verify else _FRESH_RUNS
        self._left, self._time_left = TimeLeft(), ""
        self._known: dict[str, list[Observed]] = {}
        self._fresh: list[Observed] = []
        self._senders: dict[str, Mapping[str, Any]] = {}

    def find(self) -> None:
        """Fill every frame, and suggest what helps."""
        self._binding()
        summary = self._headroom()
        for name in self.groups:
            self._cause(name, summary)
            self._retry(name)
            self._spread(name)
            self._batch(name)
        searches = [(search, name) for search in (self._pace, self._limit) for name in self.groups]
        for number, (search, name) in enumerate(searches):
            self._time_left = self._left.text(number, len(searches))
            search(name)

    # --- runs --------------------------------------------------------------------------------

    def _observed(self, edits: Edits = ()) -> list[Observed]:
        """Return what each run shows with some changes made, under the same seeds."""
        key = repr(edits)
        if key not in self._known:
            self.progress(_words_of(edits))
            scenario = with_values(self.scenario, edits)
            details = () if edits else (paces, echoes)
            self._known[key] = observe(self.runner, scenario, self.seeds, details)
        return self._known[key]

    def _values(self, metric: str, edits: Edits = ()) -> list[float]:
        return [run.get(metric, 0.0) for run in self._observed(edits)]

    def _mean(self, metric: str, edits: Edits = ()) -> float:
        return pooled(self._values(metric, edits))

    def _interval(self, metric: str) -> Interval:
        return interval_of(self._values(metric), metric, exact=self._is_exact)

    def _effects(self, group: str, edits: Edits) -> tuple[Difference, ...]:
        """Return what a change does to a group: what is refused, and what succeeds."""
        return self._differences(group, self._observed(), self._observed(edits))

    def _differences(
        self, group: str, before: Sequence[Observed], after: Sequence[Observed]
    ) -> tuple[Difference, ...]:
        return tuple(
            paired(f"{metric}{{client='{group}'}}", before, after, exact=self._is_exact)
            for metric in ("refused_share", "goodput_per_s")
        )

    def _suggest(
        self,
        group: str,
        about: About,
        text: str,
        *edits: tuple[str, Any],
        target: _Verified | None = None,
    ) -> None:
        """Add a suggestion that fresh runs do not contradict.

        target: what they say of one that claims to meet the target.
        """
        effects: tuple[Difference, ...] = ()
        verified = _Verified("", "met")
        if target is not None:
            verified = target
            effects = self._fresh_effects(group, target.observed) if edits else ()
        elif edits and about != "batch":  # a fuller request changes no refused share
            effects = self._effects(group, edits)
            verified = self._verified_effect(group, edits, effects[0])
        suggestion = Suggestion(
            group, about, text, edits, effects, target is not None, verified.text
        )
        if verified.verdict == "not met":
            self.advice.contradicted.append(suggestion)
        else:
            self.advice.suggestions.append(suggestion)
            self.suggested(suggestion)

    def _played_fresh(self, edits: Edits, first: int, end: int) -> list[Observed]:
        """Return what fresh runs show with a change, from a place among their seeds to another."""
        start = self.seeds.start + _FRESH
        seeds = range(start + first, start + end)
        return observe(self.runner, with_values(self.scenario, edits), seeds)

    def _fresh_effects(self, group: str, after: Sequence[Observed]) -> tuple[Difference, ...]:
        """Return what a change does to a group, by fresh runs, as many as each change has."""
        count = min(len(after), len(self.seeds))
        self._fresh += self._played_fresh((), len(self._fresh), count)
        return self._differences(group, self._fresh[:count], after[:count])

    def _verified_effect(self, group: str, edits: Edits, before: Difference) -> _Verified:
        """Return what fresh runs say of a change; where it claims to lower the share, it must."""
        self.progress(f"verify: {group}, {_words_of(edits)}")
        name = self._condition(group).subject
        observed = self._played_fresh(edits, 0, 1 if self._is_exact else self.fresh_runs)
        shares = [run.get(name, math.nan) for run in observed]
        share = interval_of(shares, name, exact=self._is_exact)
        claims_less = before.is_sure and before.change.mean < 0
        is_contradicted = claims_less and share.low >= before.a
        verdict: Verdict = "not met" if is_contradicted else "met"
        return _Verified(_verified_text(share) + ".", verdict, observed)

    def _verified_target(
        self, group: str, edits: Edits, looks: Iterator[int], *, is_still: bool
    ) -> _Verified:
        """Return whether fresh runs with a change meet the target, as many as decide it.

        looks: numbers the looks at fresh runs, which share the error. is_still: the search saw no
        draw change the share. Then, or after all runs, a share that is the same in all of them is
        taken for what it is: no interval bounds what was never seen.
        """
        self.progress(f"verify: {group}, {_words_of(edits)}")
        condition, observed = self._condition(group), list[Observed]()
        name = condition.subject
        more = [count for count in _MORE_FRESH_RUNS if count > self.fresh_runs]
        counts = [1] if self._is_exact else [self.fresh_runs, *more]
        most = counts[-1]
        for count in counts:
            observed += self._played_fresh(edits, len(observed), count)
            shares = [run.get(name, math.nan) for run in observed]
            share = interval_of(shares, name, exact=self._is_exact, error=spent(next(looks)))
            verdict = judged(condition, share)
            if share.low < share.high and len(set(shares)) == 1 and (is_still or count >= most):
                verdict = "met" if condition.holds(share.mean) else "not met"
            if not share.runs:
                return _Verified("Fresh runs made no request.", "not decided", observed)
            if verdict != "not decided":
                break
        is_met = share.mean <= self.refused
        outcome = _TARGET[verdict] if verdict != "not decided" else _ON_AVERAGE[is_met]
        return _Verified(f"{_verified_text(share)}, {outcome}.", verdict, observed)

    def _confirmed(
        self, group: str, scale: Values, capacity: Capacity, edits: Callable[[str], Edits]
    ) -> _Verified | None:
        """Make the value of a search one that fresh runs show to meet the target, near the border.

        None where there is no value. Return what they say of the last value that was tried.
        """
        looks, border = itertools.count(1), capacity.border
        if border is None and capacity.keeps is not None:
            is_still = capacity.breaks is not None
            return self._verified_target(group, edits(capacity.keeps), looks, is_still=is_still)
        if border is not None:
            middle, half_width = border.mean, border.half_width
        elif capacity.place is not None:  # the coarse search knows it alone
            middle, half_width = capacity.place, _TOLERANCE * scale.size(capacity.place)
        else:
            return None
        for margins in _MARGINS:
            careful = middle - margins * half_width
            capacity.keeps = scale.text(scale.rounded(careful, up=False))
            verified = self._verified_target(group, edits(capacity.keeps), looks, is_still=False)
            if verified.verdict == "met":
                break
        return verified

    def _add(self, name: str, line: dict[str, Any]) -> None:
        """Add a line to a frame at once, since an interrupt may follow."""
        lines = [*getattr(self.advice, name).to_dict("records"), line]
        setattr(self.advice, name, pd.DataFrame(lines))

    def _place(self, name: str) -> tuple[str, ClientGroup]:
        groups = {group.name: place for place, group in enumerate(self.scenario.clients)}
        return f"clients[{groups[name]}]", self.scenario.clients[groups[name]]

    # --- what binds --------------------------------------------------------------------------

    def _clauses_of(self, group: str, edits: Edits = ()) -> list[str]:
        """Return the clauses that refuse a group, the one that refuses most first."""
        start, end = f"refused_share{{client='{group}',clause='", "'}"
        names = dict.fromkeys(
            name for run in self._observed(edits) for name in run if name.startswith(start)
        )
        shares = {name: self._mean(name, edits) for name in names}
        ordered = sorted((name for name in names if shares[name]), key=lambda name: -shares[name])
        return [name.removeprefix(start).removesuffix(end) for name in ordered]

    def _without(self, clauses: Sequence[str]) -> Edits:
        """Return the change that takes the rules of some clauses away."""
        rules = [rule.id for rule in limits_of(self.scenario)]
        return tuple((f"rules.{clause}.off", True) for clause in clauses if clause in rules)

    def _binding(self) -> None:
        for group in self.groups:
            for clause in self._clauses_of(group):
                share = self._interval(f"refused_share{{client='{group}',clause='{clause}'}}")
                line = {"group": group, "clause": clause, "refused_share": share.mean}
                line |= {"low": share.low, "high": share.high}
                if edits := self._without([clause]):
                    less = self._effects(group, edits)[0].change
                    line |= {
                        "explains": -less.mean,
                        "explains_low": -less.high,
                        "explains_high": -less.low,
                    }
                self._add("binding", line)

    def _headroom(self) -> dict[str, Any]:
        """Fill the frame of how full counters were; return the summary of that run."""
        self.progress("how full counters are")
        result = simulate(
            self.scenario,
            seed=self.seeds[0],
            fidelity="compiled",
            check=False,
            headroom=True,
        )
        for rule in result.summary["headroom"]["rules"]:
            most = pd.Series([held for held in rule["most"] if held >= 0])
            share = most / rule["limit_requests"]
            line = {
                "rule": rule["rule"],
                "limit": f"{Rate(rule['limit_requests'], rule['window_ns'])}",
                "counters": rule["counters"],
                "median": float(share.median()),
                "p99": float(share.quantile(0.99)),
                "most": float(share.max()),
            }
            self._add("headroom", line)
        return result.summary

    def _cause(self, name: str, summary: Mapping[str, Any]) -> None:
        """Say which counter refuses a group, and who fills it."""
        row = next(row for row in summary["groups"] if row["name"] == name)
        if row["binds"] is None:
            return
        share = self._mean(f"refused_share{{client='{name}'}}")
        text = f"{row['binds']['clause']} refuses {percent_text(share)}: "
        self._senders[name] = row["binds"]["senders"]
        self._suggest(name, "cause", text + fair_share_text(row["binds"], summary))

    def _others_fill(self, name: str) -> list[str]:
        """Return the groups that send more to the counter that refuses a group than it does."""
        senders = self._senders.get(name, {})
        mine = senders.get(name, {}).get("offered", 0)
        return [other for other, row in senders.items() if row["offered"] > mine]

    # --- clients -----------------------------------------------------------------------------

    def _retry(self, name: str) -> None:
        """Say what a group's retries cost, and whether another policy does better."""
        place, group = self._place(name)
        label = f"{{client='{name}'}}"
        if self._mean(f"refused{label}") == 0:
            return
        line = {
            "group": name,
            "retry": group.retry.kind,
            "attempts_per_success": self._mean(f"attempts_per_success{label}"),
            "refused_after_a_block": self._mean(f"echo{label}"),
        }
        self._add("retry", line)
        if group.retry.kind == "none":
            return
        if not group.retry.honour_retry_after:
            kinder = to_plain(dataclasses.replace(group.retry, honour_retry_after=True))
            edits = ((f"{place}.retry", kinder),)
            self._suggest_if_less(name, "retry", "honour Retry-After: ", edits)
        edits = ((f"{place}.retry", {"kind": "none"}),)
        self._suggest_if_less(name, "retry", "without retries: ", edits)

    def _suggest_if_less(self, group: str, about: About, text: str, edits: Edits) -> None:
        """Suggest a change under which less is refused; name one that changes nothing or harms."""
        share, _ = self._effects(group, edits)
        helps = share.is_sure and share.change.mean < 0
        self._suggest(
            group, about, text + self._in_words(group, edits), *edits[: len(edits) * helps]
        )

    def _in_words(self, group: str, edits: Edits) -> str:
        """Return what a change does, as the end of a sentence."""
        share, goodput = self._effects(group, edits)
        text = f"refused share {percent_text(share.a)} → {percent_text(share.b)}"
        text += "" if share.is_sure else f" (difference not significant in {self.advice.runs} runs)"
        text += f", successes per second {goodput.a:.3g} → {goodput.b:.3g}"
        return text + ("" if goodput.is_sure else " (difference not significant)")

    def _spread(self, name: str) -> None:
        """Say whether more keys or addresses would help, and whether the clause counts by them."""
        _, group = self._place(name)
        clauses = self._clauses_of(name)
        rules = [rule for rule in limits_of(self.scenario) if rule.id in clauses[:1]]
        for rule in rules:
            parts = {part for by in COUNTER_KINDS[rule.counter].fields for part in by}
            counted_by = COUNTER_KINDS[rule.counter].description
            for part, about in _SPREAD.items():
                if part not in parts:
                    text = f"{rule.id} counts each {counted_by}: more {about} add no counter"
                    self._suggest(name, about, text)
                elif edits := self._each_its_own(group, about):
                    text = f"{rule.id} counts each {counted_by}: with {edits[0][1]} {about}: "
                    self._suggest_if_less(name, about, text, edits)

    def _each_its_own(self, group: ClientGroup, about: str) -> Edits:
        """Return the change that gives the clients more keys, or more addresses, evenly.

        One for each client, or as many as the pool's network has.
        """
        place, _ = self._place(group.name)
        even = to_plain(Dealing())
        if about == "addresses":
            for number, pool in enumerate(self.scenario.addresses):
                most = group.count
                if pool.network is not None:
                    most = min(most, hosts_of(pool.network)[1])
                if pool.name == group.addresses and pool.count < most:
                    path = f"addresses[{number}]"
                    one_each = (f"{path}.clients_each", 1), (f"{path}.deal", even)
                    return (f"{path}.count", most), one_each[pool.clients_each is None]
            return ()
        for number, application in enumerate(self.scenario.applications):
            if application.name not in group.applications or application.legacy_keys:
                continue
            if application.ordinary_keys < group.count:
                return (f"applications[{number}].keys", group.count), (f"{place}.keys", even)
        return ()

    def _batch(self, name: str) -> None:
        """Suggest the batch with the most tokens per request (QUO-TOKENIZE)."""
        place, group = self._place(name)
        tenants = {
            application.tenant
            for application in self.scenario.applications
            if application.name in group.applications
        }
        quotas = [
            tenant.quotas.by_name().get("Tokenize Limit", DEFAULT_QUOTAS["Tokenize Limit"])
            for tenant in self.scenario.tenants
            if tenant.name in tenants
        ]
        if not quotas:
            return
        most = min(int(quota) for quota in quotas)
        for number, ask in enumerate(group.mix):
            if ask.request != "POST /tokenize" or not ask.weight:
                continue
            mean = (ask.tokens + (ask.tokens_max or ask.tokens)) / 2
            if mean == most and ask.tokens_max is None:
                continue
            text = (
                f"put {most} tokens into a request, the most that the Tokenize Limit allows:"
                f" {most / mean:.3g} times as many tokens at the same pace, because limits count"
                " requests, not tokens"
                if mean < most
                else f"{mean:g} tokens per request exceed the Tokenize Limit of {most}: put {most}"
            )
            full = dataclasses.replace(ask, tokens=most, tokens_max=None)
            self._suggest(name, "batch", text, (f"{place}.mix[{number}]", to_plain(full)))

    def _pace(self, name: str) -> None:
        """Find the largest pace at which the refused share of a group meets the target."""
        place, group = self._place(name)
        if not self._mean(f"offered{{client='{name}'}}"):
            return
        now = stated_pace(group) or Fraction(f"{self._mean(f'pace{{client={name!r}}}'):.4g}")
        if now <= 0 or not at_pace(place, group, now, now):
            return
        self.progress(f"the pace of {name}{self._time_left}")
        unit = next((u for u, s in _UNITS.items() if now * s >= _LEAST_A_UNIT), "h")
        low, high = (
            f"{float(now * _UNITS[unit] * times):.4g}/{unit}" for times in (_SLOWEST, _FASTEST)
        )
        now_text = f"{float(now * _UNITS[unit]):.4g}/{unit}"
        scale = Values(low, high, lambda _: True)

        def at(value: str) -> Edits:
            return at_pace(place, group, _pace_of(value), now)

        capacity = self._searched(name, scale, at)
        verified = self._confirmed(name, scale, capacity, at)
        ends = {"keeps": capacity.keeps, "breaks": capacity.breaks, "estimate": capacity.estimate}
        self._add("pace", {"group": name, "now": now_text, **ends})
        text = self._pace_in_words(name, capacity, now_text)
        best = capacity.keeps
        is_less = best is not None and _pace_of(best) < now
        edits = at(best) if best and is_less else ()
        self._suggest(name, "pace", text, *edits, target=verified)

    def _pace_in_words(self, name: str, capacity: Capacity, now: str) -> str:
        at_most = f"at most {percent_text(self.refused)} refused"
        trials = capacity.trials
        if capacity.keeps is None and capacity.estimate is None:
            if trials and all(trial.interval.mean > self.refused for trial in trials):
                if others := self._others_fill(name):
                    fill = "fills" if len(others) == 1 else "fill"
                    return f"slowing down does not help: {' and '.join(others)} {fill} the counter"
                return (
                    f"more than {percent_text(self.refused)} are refused even at {trials[0].value}"
                    f" each, a {int(1 / _SLOWEST)}nd of today's pace"
                )
            return f"{at_most} at {_FASTEST} times today's pace of {now} each"
        if capacity.keeps is not None and capacity.breaks is not None:
            return (
                f"{at_most} up to {capacity.keeps} each, more from {capacity.breaks} on (now {now})"
            )
        if capacity.keeps is not None:
            return f"{at_most} at {capacity.keeps} each and below (now {now})"
        decided = [trial for trial in trials if not trial.is_coarse]
        runs = "; ".join(f"{trial.value}: {percent_text(trial.interval.mean)}" for trial in decided)
        return (
            f"{at_most} up to about {capacity.estimate} each (now {now}); not decided in"
            f" {self.budget.most_replications} runs" + (f" ({runs})" if runs else "")
        )

    # --- the operator ------------------------------------------------------------------------

    def _limit(self, name: str) -> None:
        """Find the smallest limits of the clauses that bind a group which meet the target."""
        metric = f"refused_share{{client='{name}'}}"
        if not self._mean(metric) > self.refused:
            return
        clauses: list[str] = []
        while self._mean(metric, self._without(clauses)) > self.refused:
            left = [c for c in self._clauses_of(name, self._without(clauses)) if c not in clauses]
            if not left or len(clauses) == _MOST_CLAUSES or not self._without(left[:1]):
                return
            clauses.append(left[0])
        table = limits_of(self.scenario)
        first = table[clauses[0]]
        self.progress(f"the limits that bind {name}{self._time_left}")

        def edits(value: str) -> Edits:
            limit = int(value.partition("/")[0])
            return tuple(
                (f"rules.{rule.id}.rate", str(Rate(raised, rule.window_ns)))
                for rule in (table[clause] for clause in clauses)
                for raised in [-(-rule.limit_requests * limit // first.limit_requests)]
            )

        scale = LoweredLimits(first)
        capacity = self._searched(name, scale, edits)
        verified = self._confirmed(name, scale, capacity, edits)
        best = capacity.keeps
        for trial in capacity.trials:
            self._add("tradeoff", self._traded(name, first, trial))
        line = {
            "group": name,
            "rule": ", ".join(clauses),
            "now": str(first.rate),
            "enough": capacity.keeps,
            "too_low": capacity.breaks,
            "estimate": capacity.estimate,
            "price_now": self._price(first),
            "price": None if best is None else self._price(first, int(best.partition("/")[0])),
        }
        self._add("limit", line)
        if best is None:
            return
        text = (
            f"raise {line['rule']} from {first.rate} to {best} for at most"
            f" {percent_text(self.refused)} refused"
        )
        if line["price"] is not None:
            text += f"; one caller can then send {line['price']} in a window, today"
            text += f" {line['price_now']}"
        self._suggest(name, "limit", text, *edits(best), target=verified)

    def _traded(self, group: str, rule: Rule, trial: Trial) -> dict[str, Any]:
        limit = int(trial.value.partition("/")[0])
        return {
            "group": f"{group}, {rule.id}",
            "limit": limit,
            "price": self._price(rule, limit),
            "refused_share": trial.interval.mean,
            "low": trial.interval.low,
            "high": trial.interval.high,
            "runs": trial.interval.runs,
            "verdict": "" if trial.is_coarse else trial.verdict,
        }

    def _price(self, rule: Rule, limit: int | None = None) -> int | None:
        """Return the most that one caller can send within a window (D-ALGORITHM).

        Nodes with counters of their own add up. None where a slow counter bounds nothing.
        """
        nodes = profile_of(self.scenario).nodes
        if nodes.sharing == "shared-slow" and not nodes.is_exact:
            return None
        counters = nodes.count if nodes.sharing in {"none", "synced"} else 1
        profile = profile_of(self.scenario).limits
        algorithm = ALGORITHMS[rule.algorithm or profile.algorithm]
        limit = rule.limit_requests if limit is None else limit
        most = algorithm.most_windows * limit
        if algorithm.has_burst:
            burst = rule.burst_requests or profile.burst_requests or limit
            most += (burst if algorithm.takes_burst else limit) - 1
        return most * counters

    # --- searches ----------------------------------------------------------------------------

    def _condition(self, group: str) -> Condition:
        return Condition(
            metric="refused_share", labels=(("client", group),), compare="<=", bound=self.refused
        )

    def _searched(self, group: str, scale: Values, edits: Callable[[str], Edits]) -> Capacity:
        """Search among values, each of which stands for some changes of the scenario."""
        condition = self._condition(group)
        return Search(
            scenario_player(
                lambda value: with_values(self.scenario, edits(value)), condition, self.runner
            ),
            scale,
            condition,
            first=_FIRST,
            budget=self.budget,
            seed=self.seeds[0],
            tolerance=0.002 if self._is_exact else _TOLERANCE,
            exact=lambda _: self._is_exact,
        ).run()


def _pace_of(text: str) -> Fraction:
    number, _, unit = text.partition("/")
    return Fraction(number) / _UNITS[unit]


def _verified_text(share: Interval) -> str:
    text = (
        f"Verified in {counted_text(share.runs, 'fresh run')}: {percent_text(share.mean)} refused"
    )
    return (
        f"{text} ({percent_text(share.low)} to {percent_text(share.high)})" if share.mean else text
    )


def _words_of(edits: Edits) -> str:
    """Return some changes as text; the members of a table one by one."""
    parts = []
    for path, value in edits:
        if isinstance(value, Mapping):
            parts += [f"{path}.{name} = {member}" for name, member in value.items()]
        else:
            parts.append(f"{path} = {value}")
    return ", ".join(parts) or "as it is"
