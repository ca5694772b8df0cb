"""Whether a scenario draws anything at random; one that does not has exact metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from simulator.scenario.clients import Ask, ClientGroup, Dealing, DecorrelatedJitter, FullJitter
from simulator.scenario.draws import (
    Constant,
    ConstantArrivals,
    DailyArrivals,
    Discrete,
    Exponential,
    Lognormal,
    OnOffArrivals,
    Pareto,
    PoissonArrivals,
    RampArrivals,
    ReplayArrivals,
    StepArrivals,
    Uniform,
)
from simulator.scenario.model import Proxy, Scenario

__all__ = ["draws_at_random"]

_RANDOM = (
    *(Uniform, Exponential, Lognormal, Pareto, Discrete),
    *(PoissonArrivals, StepArrivals, RampArrivals, DailyArrivals, OnOffArrivals),
    *(FullJitter, DecorrelatedJitter),
)
_FIXED = (Constant, ConstantArrivals, ReplayArrivals)


def draws_at_random(scenario: Scenario) -> bool:
    """Return whether runs under two seeds may differ.

    What is drawn to no effect counts too, so that False means: all runs are the same.
    """
    return any(
        _is_random(part) for part in (scenario.clients, scenario.proxies, scenario.reactors)
    ) or any(pool.deal.zipf is not None for pool in scenario.addresses)


def _is_random(part: Any) -> bool:  # noqa: ANN401 # reason: any part of a scenario
    if isinstance(part, tuple | list):
        return any(map(_is_random, part))
    if isinstance(part, Mapping):
        return any(map(_is_random, part.values()))
    if not dataclasses.is_dataclass(part) or isinstance(part, _FIXED):
        return False
    return (
        isinstance(part, _RANDOM)
        or (isinstance(part, Dealing) and part.zipf is not None)
        or (isinstance(part, ClientGroup) and len(part.mix) > 1)
        or (isinstance(part, Proxy) and part.unreachable_share > 0)
        or (isinstance(part, Ask) and _body_is_random(part))
        or any(_is_random(getattr(part, each.name)) for each in dataclasses.fields(part))
    )


def _body_is_random(ask: Ask) -> bool:
    return (
        ask.tokens_max is not None
        or ask.pick == "uniform"
        or (ask.types.token > 0 and ask.types.card > 0)
        or ask.duplicate_share > 0
        or ask.invalid_share > 0
    )
