"""Texts of small scenarios, for tests that draw them: by hypothesis, or by a seed alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar, get_args

from engine.profile import Algorithm

__all__ = ["Choices", "Seeded", "outside_scenario_text", "scenario_text"]

_Value = TypeVar("_Value")


class Choices(Protocol):
    """Makes the choices of which a scenario is drawn."""

    def one(self, values: Sequence[_Value]) -> _Value:
        """Return one of the values."""

    def some(self, values: Sequence[str], *, least: int = 0) -> set[str]:
        """Return at least so many of the values."""

    def whole(self, low: int, high: int) -> int:
        """Return a whole number, both ends included."""

    def either(self) -> bool:
        """Return true or false."""


class Seeded:
    """Choices that follow from a seed, the same with every version of Python."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def one(self, values: Sequence[_Value]) -> _Value:
        """Return one of the values."""
        return values[self.whole(0, len(values) - 1)]

    def some(self, values: Sequence[str], *, least: int = 0) -> set[str]:
        """Return at least so many of the values."""
        kept = {value for value in values if self.either()}
        return kept if len(kept) >= least else {self.one(values)}

    def whole(self, low: int, high: int) -> int:
        """Return a whole number, both ends included."""
        return low + self._random.getrandbits(64) % (high - low + 1)

    def either(self) -> bool:
        """Return true or false."""
        return self._random.getrandbits(1) == 1


_SHORT_RATES = ("3/1s", "5/2s", "2/500ms", "4/3s")
_KINDS = ("private", "public", "management")


def scenario_text(choose: Choices) -> str:
    """Return the text of a small scenario with low limits, so that much is refused."""
    on = choose.some(["retry", "pacing", "delay", "mix", "zipf", "slow", "bound"])
    lines = ['duration = "8s"', f"seed = {choose.whole(0, 2**63 - 1)}"]
    if choose.either():
        lines.append('warm_up = "2s"')
    lines += ["[choices.limits]", *_choices(choose, on)]
    for rule, action in (("LIM-TEST-TENANT", ""), ("LIM-CREATE", ""), ("LIM-PRIVATE", "")):
        lines.append(f'[rules.{rule}]\nrate = "{choose.one(_SHORT_RATES)}"\n{action}')
    for rule in ("LIM-PUBLIC", "LIM-MANAGEMENT", "LIM-IP"):
        block = choose.one(["300ms", "1s", "2500ms"])
        lines.append(f'[rules.{rule}]\nrate = "{choose.one(_SHORT_RATES)}"\nblock = "{block}"')
    for name, kind in (("a", "production"), ("b", "test")):
        lines.append(f'[[tenants]]\nname = "{name}"\nkind = "{kind}"')
    for place in range(choose.whole(1, 3)):
        lines += [
            "[[applications]]",
            f'name = "app{place}"',
            f'tenant = "{choose.one("ab")}"',
            f'kind = "{choose.one(_KINDS)}"',
            f"keys = {choose.whole(1, 2)}",
            f"legacy_keys = {choose.whole(0, 1)}",
        ]
    lines.append(f'[[addresses]]\nname = "nat"\ncount = {choose.whole(1, 2)}')
    apps = sum(line == "[[applications]]" for line in lines)
    for place in range(choose.whole(1, 3)):
        lines += _group(choose, on, place, apps)
    return "\n".join(lines)


def _choices(choose: Choices, on: set[str]) -> list[str]:
    lines = [f'algorithm = "{choose.one(get_args(Algorithm))}"']
    if "delay" in on:
        bound = choose.one(["0s", "700ms", "3s"])
        lines += ['throttle = "delay"', f'delay_bound = "{bound}"']
    for name, value in (
        ("count_refused", "true"),
        ("block_reset", '"clear"'),
        ("block_extends", "true"),
        ("compose", '"lowest"'),
        ("and_counter", '"each"'),
    ):
        if choose.whole(0, 5) == 0:
            lines.append(f"{name} = {value}")
    return lines


def _group(choose: Choices, on: set[str], place: int, apps: int) -> list[str]:
    lines = ["[[clients]]", f'name = "g{place}"', f"count = {choose.whole(1, 3)}"]
    if choose.whole(0, 4):
        lines.append(f'application = "app{choose.whole(0, apps - 1)}"')
    if choose.either():
        lines.append('addresses = "nat"')
    if choose.either():
        lines += ['loop = "open"', f"arrivals = {choose.one(_ARRIVALS)}"]
    else:
        lines.append(f"think = {choose.one(_DRAWS)}")
    for feature, name, values in (
        ("zipf", "keys", _DEALINGS),
        ("bound", "concurrency", ("1", "2", "3")),
        ("mix", "mix", (_MIX,)),
        ("retry", "retry", _RETRIES),
        ("pacing", "pacing", _PACINGS),
        ("slow", "service", _DRAWS),
    ):
        if feature in on:
            lines.append(f"{name} = {choose.one(values)}")
    if choose.whole(0, 2) == 0:
        lines.append(f'deadline = "{choose.one(["400ms", "1500ms", "3s"])}"')
    if choose.whole(0, 3) == 0:
        lines += ['start = "1s"', f'stop = "{choose.one(["2500ms", "6s"])}"']
    return lines


_DEALINGS = ('{ zipf = 1.1, per = "client" }', '{ zipf = 1.1, per = "request" }')
_MIX = """[
    { request = "POST /tokenize", weight = 2 },
    { request = "GET /tokens" },
    { request = "DELETE /tokens/{id}" },
]"""
_ARRIVALS = (
    '{ kind = "constant", rate = "4/1s" }',
    '{ kind = "poisson", rate = "5/1s" }',
    '{ kind = "on-off", on_rate = "20/1s", off_rate = "1/1s", on = "1s", off = "1s" }',
    '{ kind = "ramp", from = "0/1s", to = "9/1s", over = "6s" }',
)
_DRAWS = (
    '{ kind = "constant", value = "250ms" }',
    '{ kind = "exponential", mean = "300ms" }',
    '{ kind = "lognormal", median = "200ms", sigma = 0.7 }',
    '{ kind = "uniform", low = "1ms", high = "500ms" }',
)
_RETRIES = (
    '{ kind = "fixed", delay = "250ms", attempts = 3, honour_retry_after = false }',
    '{ kind = "exponential", base = "100ms", cap = "1s", attempts = 4 }',
    '{ kind = "full-jitter", base = "90ms", cap = "2s", attempts = 4, honour_retry_after = false }',
    '{ kind = "decorrelated-jitter", base = "100ms", cap = "2s", attempts = 3 }',
    '{ kind = "fixed", delay = "3s", attempts = 3 }',
)
_PACINGS = (
    '{ kind = "token-bucket", rate = "3/1s", burst = 2 }',
    '{ kind = "token-bucket", rate = "1/1s" }',
    '{ kind = "aimd", start = "5/1s", maximum = "9/1s", increase = 0.5 }',
    '{ kind = "aimd", start = "1/1s", minimum = "1/3s", maximum = "2/1s", decrease_percent = 80 }',
)


def outside_scenario_text(choose: Choices) -> str:
    """Return the text of a small scenario whose clients invoke proxies and reactors, and upload."""
    latency = [*_DRAWS, *_WHOLE_SECONDS]
    lines = ['duration = "60s"', f"seed = {choose.whole(0, 2**63 - 1)}"]
    lines += ["[choices.outside]", f"hot_concurrency = {choose.whole(0, 2)}"]
    lines.append(f'cold_start = "{choose.one(["0s", "700ms", "1s", "29s", "29500ms"])}"')
    if choose.either():
        lines.append(f"instances_cap = {choose.whole(1, 3)}")
    if choose.either():
        lines.append('keep_hot = "2s"')
    lines.append('[choices.account_updater]\nfile_limit = "1KB"')
    if choose.either():
        lines += ["[choices.limits]", 'throttle = "delay"', 'delay_bound = "9s"']
    lines += ['[rules.LIM-ACCOUNT-UPDATER]\nrate = "4/4s"', '[rules.LIM-IP]\nrate = "40/4s"']
    lines += ['[rules.LIM-PROXY-KEY]\nrate = "5/4s"', '[rules.LIM-PROXY-HOST]\nrate = "4/4s"']
    lines += ['[[tenants]]\nname = "t"', '[[applications]]\nname = "a"\ntenant = "t"']
    lines += ['[[addresses]]\nname = "nat"', '[[proxies]]\nname = "p"\ntenant = "t"']
    lines += ['host = "pay.example.com"', f"destination = {choose.one(latency)}"]
    lines.append(f"unreachable_share = {choose.one([0.0, 0.3])}")
    lines.append(f"require_auth = {choose.one(['true', 'false'])}")
    for part in ("request_transform", "response_transform"):
        if choose.either():
            lines.append(f"{part} = {choose.one(latency)}")
    lines.append(f'[[reactors]]\nname = "r"\ntenant = "t"\nservice = {choose.one(latency)}')
    for place in range(2):
        retry = choose.one(_OUTSIDE_RETRIES)
        lines += ["[[clients]]", f'name = "g{place}"\ncount = 2\naddresses = "nat"']
        lines.append('application = "a"')
        lines.append(choose.one(_OUTSIDE_LOOPS))
        for name, values in (
            ("pacing", _PACINGS),
            ("deadline", ('"1500ms"', '"20s"', '"27s"')),
            ("stop", ('"33s"', '"50s"')),
            ("service", (*_DRAWS, '{ kind = "constant", value = "1s" }')),
        ):
            if choose.whole(0, 2) == 0:
                lines.append(f"{name} = {choose.one(values)}")
        entries = choose.some(_OUTSIDE_MIX, least=1)
        lines.append(f"retry = {retry}\nmix = [{', '.join(sorted(entries))}]")
    return "\n".join(lines)


_WHOLE_SECONDS = (
    '{ kind = "discrete", values = ["0s", "24s", "25s", "26s", "40s"] }',
    '{ kind = "discrete", values = ["0s", "500ms", "1s", "2s", "29s", "30s"] }',
    '{ kind = "constant", value = "1s" }',
)
_OUTSIDE_MIX = (
    '{ request = "GET /proxy/pay", proxy = "p" }',
    '{ request = "POST /proxy/pay", proxy = "p", via = "host" }',
    '{ request = "POST /reactors/{id}/react", reactor = "r" }',
    '{ request = "POST /account-updater/jobs", size = "2500B", split = true }',
    '{ request = "POST /account-updater/jobs", size = "900B" }',
)
_OUTSIDE_LOOPS = (
    'think = { kind = "exponential", mean = "500ms" }',
    'think = { kind = "constant", value = "1s" }\nconcurrency = 3',
    'loop = "open"\narrivals = { kind = "poisson", rate = "2/1s" }',
    'loop = "open"\narrivals = { kind = "constant", rate = "1/1s" }\nconcurrency = 2',
)
_OUTSIDE_RETRIES = (
    '{ kind = "none" }',
    '{ kind = "full-jitter", base = "100ms", cap = "2s", attempts = 3, on = [429, 408, 502] }',
    '{ kind = "fixed", delay = "1s", attempts = 2, on = [504, 429] }',
)
