"""How often the refused share of a held-out half lies within its interval of 95 %.

    python -m tests.simulator.fit.holdout [--seeds 5] [KIND …]

Ten kinds of logs under five seeds each: rows of built-in scenarios, and logs of bursts, days, NAT
and retries as a gateway would have written them, without the columns that only a run has. In all of
them the second half follows the law of the first.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

import simulator
from engine.files import parse_toml
from simulator.logs import LogMap
from simulator.scenario import Scenario, load, loads

BURSTS = """
duration = "40m"
tenants = [{ name = "t" }]
applications = [{ name = "a", tenant = "t", kind = "public" }]
[[clients]]
name = "c"
count = 12
application = "a"
loop = "open"
arrivals = { kind = "on-off", on_rate = "3/1s", on = "20s", off = "2m", begin = "either" }
"""
DAYS = """
duration = "4d"
start_time = 2026-03-02T00:00:00Z
tenants = [{ name = "t" }]
applications = [{ name = "a", tenant = "t", kind = "public" }]
[[clients]]
name = "c"
count = 1
application = "a"
loop = "open"
arrivals = { kind = "daily", rate = "20/1m" }
"""
NAT = """
duration = "30m"
tenants = [{ name = "t" }]
applications = [{ name = "a", tenant = "t", kind = "public", keys = 2 }]
addresses = [{ name = "offices", count = 12, deal = { zipf = 1.0 } }]
[[clients]]
name = "people"
count = 120
application = "a"
addresses = "offices"
think = { kind = "exponential", mean = "40s" }
"""
RETRIES = """
duration = "30m"
tenants = [{ name = "t" }]
applications = [{ name = "a", tenant = "t", kind = "public" }]
[[clients]]
name = "hasty"
count = 6
application = "a"
think = { kind = "exponential", mean = "1s" }
retry = { kind = "fixed", delay = "250ms", attempts = 12, honour_retry_after = false }
[[clients]]
name = "patient"
count = 20
application = "a"
think = { kind = "exponential", mean = "15s" }
retry = { kind = "full-jitter", base = "1s", cap = "20s", attempts = 5 }
"""
BUILTIN = (
    *("everyday", "checkout", "shared-office", "legacy-migration", "management-loop"),
    "bulk-import",
)
MADE = {"bursts": BURSTS, "days": DAYS, "nat": NAT, "retries": RETRIES}
KINDS = (*BUILTIN, *MADE)


@dataclass(frozen=True)
class Case:
    """One log that is fitted by its first half. share: of the second half, refused."""

    kind: str
    seed: int
    share: float
    low: float
    high: float
    took_s: float

    @property
    def holds(self) -> bool:
        """Whether the refused share was foretold."""
        return self.low <= self.share <= self.high


def map_of(scenario: Scenario) -> LogMap:
    """Return the map that says whose the keys of a run's rows are."""
    kinds = {app.name: "legacy" if app.legacy_keys else app.kind for app in scenario.applications}
    tenants = {tenant.name: tenant.kind for tenant in scenario.tenants}
    lines = ['time = { field = "t_ns", unit = "ns" }']
    lines += [f'{name} = "{field}"' for name, field in (("address", "ip"), ("key", "key"))]
    lines += [f'{name} = "{name}"' for name in ("method", "path")]
    for name in ("tenant", "application"):
        lines.append(f'{name} = {{ field = "{name}", default = "none" }}')
    for target, field, lookup, other in (
        ("tenant_kind", "tenant", tenants, "production"),
        ("application_kind", "application", kinds, "private"),
    ):
        pairs = ", ".join(f'"{name}" = "{kind}"' for name, kind in lookup.items())
        lines.append(
            f'{target} = {{ field = "{field}", lookup = {{ {pairs} }}, default = "{other}" }}'
        )
    return LogMap.from_document(parse_toml("\n".join(lines), "map.toml"))


def log_of(kind: str, seed: int) -> tuple[pd.DataFrame, LogMap | None]:
    """Return a log of a kind, and its map."""
    scenario = load(kind) if kind in BUILTIN else loads(MADE[kind], f"{kind}.toml")
    rows = simulator.run(scenario, fidelity="compiled", seed=seed, check=False).requests
    if kind in BUILTIN:
        return rows, map_of(scenario)
    rows["time"] = rows["t_ns"] + scenario.start_time_ns
    kept = ["time", "ip", "key", "method", "path"]
    if kind == "retries":
        refused = rows["outcome"].isin(["refused", "blocked"])
        rows["status"] = refused.map({True: 429, False: 201})
        kept.append("status")
    return rows[kept], None


def play(kind: str, seed: int) -> Case:
    """Fit the first half of a log, and predict the second."""
    began_s = time.monotonic()
    rows, log_map = log_of(kind, seed)
    found = simulator.fit(rows, map=log_map, holdout="50%")
    table = found.comparison.to_dict()
    log, low, high = (table[name]["refused share", ""] for name in ("log", "low", "high"))
    took_s = time.monotonic() - began_s
    return Case(kind, seed, log, low, high, took_s)


def cases(kinds: tuple[str, ...] = KINDS, seeds: int = 5) -> Iterator[Case]:
    """Yield every case."""
    for kind in kinds:
        for seed in range(101, 101 + seeds):
            yield play(kind, seed)


def main() -> None:
    """Print every case, and the share that held."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    held = total = 0
    for case in cases(tuple(args.kinds) or KINDS, args.seeds):
        held, total = held + case.holds, total + 1
        print(  # noqa: T201 # reason: a script's answer
            f"{case.kind:<18} seed {case.seed}: {case.share:7.2%} in {case.low:7.2%} to "
            f"{case.high:7.2%} {'' if case.holds else 'MISSED'} ({case.took_s:.1f} s)",
            flush=True,
        )
    print(  # noqa: T201 # reason: as above
        f"{held} of {total} held, {held / total:.0%}"
    )


if __name__ == "__main__":
    main()
