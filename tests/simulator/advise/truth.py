"""Whether advice is right: six scenarios, and brute force around every value that is advised.

    python -m tests.simulator.advise.truth [--runs 400] [SCENARIO …]

Each advised pace and limit, and the value from which on more is refused, is played under many fresh
seeds; so is every change that claims to lower the refused share. The share of all runs together,
with its standard error by run, is the truth: nothing of `simulator.intervals` or of a search.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, NamedTuple

import numpy as np

import simulator
from simulator.scenario import Scenario, load, with_values
from simulator.study.advice import Advice, Suggestion
from simulator.study.advise import advise

TARGET: Final = 0.01
RUNS: Final = 400
_FIRST_SEED: Final = 50_000_000
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600}
_SURE: Final = 3.0
"""Standard errors beyond which the truth contradicts advice."""

HEAD: Final = """
duration = "{duration}"
tenants = [{{ name = "t" }}]
applications = [{{ name = "a", tenant = "t", kind = "{kind}", keys = {keys} }}]
addresses = [{{ name = "office" }}]
"""


def _head(kind: str = "public", keys: int = 1, duration: str = "10m") -> str:
    return HEAD.format(kind=kind, keys=keys, duration=duration)


def _clients(name: str, count: int, rest: str, request: str = "POST /tokenize") -> str:
    return (
        f'[[clients]]\nname = "{name}"\ncount = {count}\napplication = "a"\n'
        f'mix = [{{ request = "{request}" }}]\n{rest}\n'
    )


def _open(rate: str, *, kind: str = "poisson") -> str:
    return f'loop = "open"\narrivals = {{ kind = "{kind}", rate = "{rate}" }}'


SCENARIOS: Final = {
    # Visitors with addresses of their own: Poisson traffic needs room below 50 a minute.
    "visitors": _head() + _clients("visitors", 5, _open("55/1m")),
    # Behind one address clients share a counter; the sum of many is steadier than one.
    "office": _head() + _clients("desks", 12, 'addresses = "office"\n' + _open("5/1m")),
    # A script fills the counter that slow browsers share with it.
    "script": _head()
    + _clients("browsers", 8, 'addresses = "office"\n' + _open("1/1m"))
    + _clients("script", 1, 'addresses = "office"\n' + _open("3/1s", kind="constant")),
    # Bursts of 20 s.
    "bursts": _head("private", duration="20m")
    + _clients(
        "jobs",
        3,
        'loop = "open"\naddresses = "office"\narrivals = { kind = "on-off", on_rate = "12/1s",'
        ' on = "20s", off = "1m", begin = "either" }',
    ),
    # A closed loop that thinks, and retries without regard to the answer.
    "retries": _head()
    + _clients(
        "hasty",
        4,
        'think = { kind = "exponential", mean = "1s" }\n'
        'retry = { kind = "fixed", delay = "2s", attempts = 4, honour_retry_after = false }',
    ),
    # Heavy-tailed think times, with a key for all and another clause.
    "managers": _head("management", duration="15m")
    + _clients(
        "people",
        30,
        'think = { kind = "lognormal", median = "4s", sigma = 1.2 }',
        "GET /applications",
    ),
}


class Truth(NamedTuple):
    """A refused share, and its standard error."""

    share: float
    error: float


@dataclass(frozen=True)
class Claim:
    """What advice says of a scenario: that the refused share is at most `bound`, or at least."""

    says: str
    group: str
    edits: tuple[tuple[str, Any], ...]
    bound: float
    at_most: bool

    def is_wrong(self, truth: Truth) -> bool:
        """Return whether the truth contradicts it, surely."""
        beyond = truth.share - self.bound if self.at_most else self.bound - truth.share
        return beyond > _SURE * truth.error and beyond > 0


def truth_of(scenario: Scenario, group: str, runs: int) -> Truth:
    """Return the refused share of a group over many fresh runs."""
    played = simulator.run(
        scenario, fidelity="compiled", seed=_FIRST_SEED, replications=runs, check=False
    ).summary["replications"]["runs"]
    counts = np.array([run["shares"][f"refused_share{{client='{group}'}}"][:2] for run in played])
    refused, offered = counts.T
    share = refused.sum() / offered.sum()
    residuals = refused - share * offered
    error = residuals.std(ddof=1) * math.sqrt(len(counts)) / offered.sum() if runs > 1 else 0.0
    return Truth(float(share), float(error))


def claims_of(found: Advice) -> list[Claim]:
    """Return what advice claims: paces, limits, and changes that help."""
    claims = []
    for line in found.pace.to_dict("records"):
        for end, at_most in (("keeps", True), ("breaks", False)):
            if isinstance(pace := line[end], str):
                edits = at_pace(found.scenario, line["group"], pace)
                says = f"{'at most' if at_most else 'more than'} {TARGET:.0%} at {pace}"
                claims.append(Claim(says, line["group"], edits, TARGET, at_most))
    for each in found.suggestions:
        if not each.edits:
            continue
        bound = TARGET if each.target else _before(each)
        if bound is not None:
            claims.append(Claim(each.text, each.group, each.edits, bound, at_most=True))
    for line in found.limit.to_dict("records"):
        if isinstance(line["too_low"], str) and "," not in line["rule"]:
            edits = ((f"rules.{line['rule']}.rate", line["too_low"]),)
            says = f"more than {TARGET:.0%} with {line['too_low']}"
            claims.append(Claim(says, line["group"], edits, TARGET, at_most=False))
    return claims


def _before(suggestion: Suggestion) -> float | None:
    """Return the share that a change claims to lower; None where it does not."""
    if not suggestion.effects:
        return None
    effect = suggestion.effects[0]
    return effect.a if effect.is_sure and effect.change.mean < 0 else None


def at_pace(scenario: Scenario, name: str, pace: str) -> tuple[tuple[str, Any], ...]:
    """Return the changes that give each client of an open group a pace; none of a closed one."""
    group = next(group for group in scenario.clients if group.name == name)
    number, unit = pace.split("/")
    arrivals: Any = group.arrivals
    times = Fraction(1)
    if arrivals is None:
        return ()
    if (field := "on_rate" if arrivals.kind == "on-off" else "rate") == "on_rate":
        times = Fraction(arrivals.on_ns + arrivals.off_ns, arrivals.on_ns)
    rate = Fraction(number) * times / _UNITS_S[unit]
    text = f"{float(rate) * 3_600:.6g}/1h"
    return ((f"clients.{name}.arrivals.{field}", text),)


def checked(name: str, runs: int) -> tuple[Advice, list[str], int]:
    """Return advice on a scenario, the claims that are wrong, and how many were judged."""
    found = advise(load(f'name = "{name}"\n{SCENARIOS[name]}'))
    wrong, judged = [], 0
    for claim in claims_of(found):
        if not claim.edits:
            continue
        truth = truth_of(with_values(found.scenario, claim.edits), claim.group, runs)
        judged += 1
        if claim.is_wrong(truth):
            wrong.append(
                f"{claim.group}: {claim.says}; true are {truth.share:.3%} ± {truth.error:.3%}"
            )
    return found, wrong, judged


def unconfirmed(found: Advice) -> list[str]:
    """Return the targets that fresh runs did not confirm."""
    return [
        f"{each.group}, {each.about}: {each.verified}"
        for each in (*found.suggestions, *found.contradicted)
        if each.target and not each.verified.endswith("the target is met.")
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Print what is wrong; 1 where something is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--runs", type=int, default=RUNS, help=f"fresh runs of a value ({RUNS})")
    args = parser.parse_args(argv)
    failed = False
    for name in args.scenarios or SCENARIOS:
        began_s = time.process_time()
        found, wrong, judged = checked(name, args.runs)
        left = unconfirmed(found)
        failed = failed or bool(wrong or left)
        targets = sum(each.target for each in found.suggestions)
        print(  # noqa: T201 # reason: a script's answer
            f"{name}: {judged} claims, {len(wrong)} wrong; {targets} targets, {len(left)} not"
            f" confirmed ({time.process_time() - began_s:.0f} s of CPU)",
            *wrong,
            *left,
            sep="\n  ",
            flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
