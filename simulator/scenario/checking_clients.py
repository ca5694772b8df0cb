"""What must hold for a client group: a loop that moves, a mix that can be asked, sane draws."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from engine.files import Document
from simulator.scenario.clients import AimdPacing, Ask, ClientGroup, FixedRetry, NoRetry
from simulator.scenario.draws import (
    Arrivals,
    Constant,
    DailyArrivals,
    Discrete,
    Draw,
    StepArrivals,
    Uniform,
)
from simulator.scenario.faults import Path, fail, need_name
from simulator.scenario.model import Scenario

__all__ = ["check_client", "check_draw"]


def check_client(scenario: Scenario, document: Document, index: int) -> None:
    """Raise `InputError` at the first fault of one client group."""
    group = scenario.clients[index]
    path: Path = ("clients", index)
    _check_references(scenario, group, document, path)
    _check_span(scenario, group, document, path)
    _check_loop(group, document, path)
    _check_behaviour(group, document, path)
    if not group.mix:
        fail(document, (*path, "mix"), "must not be empty")
    if sum(ask.weight for ask in group.mix) <= 0:
        fail(document, (*path, "mix"), "must have a weight above 0")
    for place, ask in enumerate(group.mix):
        _check_ask(ask, document, (*path, "mix", place))
        _check_ask_names(scenario, group, ask, document, (*path, "mix", place))


def check_draw(draw: Draw | None, document: Document, path: Path) -> None:
    """Raise `InputError` when a distribution's parameters do not fit together."""
    if isinstance(draw, Uniform) and draw.high_ns < draw.low_ns:
        fail(document, (*path, "high"), "must not be below low")
    if isinstance(draw, Discrete) and draw.weights:
        if len(draw.weights) != len(draw.values_ns):
            fail(document, (*path, "weights"), "must have one weight a value")
        if sum(draw.weights) <= 0:
            fail(document, (*path, "weights"), "must have a weight above 0")


def _check_references(
    scenario: Scenario, group: ClientGroup, document: Document, path: Path
) -> None:
    known = [application.name for application in scenario.applications]
    for place, name in enumerate(group.applications):
        at: Path = (*path, "application")
        if isinstance(document.spot(*at).value, list | tuple):
            at = (*at, place)
        need_name(document, at, name, known, "applications")
    if group.addresses is not None:
        pools = [pool.name for pool in scenario.addresses]
        need_name(document, (*path, "addresses"), group.addresses, pools, "addresses")


def _check_span(scenario: Scenario, group: ClientGroup, document: Document, path: Path) -> None:
    if group.start_ns >= scenario.duration_ns:
        fail(document, (*path, "start"), "must be below the duration")
    if group.stop_ns is not None and group.stop_ns <= group.start_ns:
        fail(document, (*path, "stop"), "must be after start")


def _check_loop(group: ClientGroup, document: Document, path: Path) -> None:
    if group.loop == "open":
        if group.think is not None:
            fail(document, (*path, "think"), 'must stand with loop = "closed"')
        if group.arrivals is None:
            fail(document, (*path, "arrivals"), "is missing; an open loop needs arrivals")
        _check_arrivals(group.arrivals, document, (*path, "arrivals"))
        return
    if group.arrivals is not None:
        fail(document, (*path, "arrivals"), 'must stand with loop = "open"')
    if _never_above_zero(group.think) and not _passes_time(group):
        rule = (
            "must be above 0 in a closed loop without pacing, or without a service time and a"
            " retry of 429; else its time stands still"
        )
        fail(document, (*path, "think"), rule)
    check_draw(group.think, document, (*path, "think"))


def _passes_time(group: ClientGroup) -> bool:
    """Return whether a loop that does not think takes time whatever it is answered."""
    if group.pacing is not None:
        return True
    retry = group.retry
    retries = not isinstance(retry, NoRetry) and retry.attempts > 1 and 429 in retry.statuses
    return retries and not _never_above_zero(group.service)


def _never_above_zero(draw: Draw | None) -> bool:
    if isinstance(draw, Constant):
        return draw.value_ns == 0
    if isinstance(draw, Uniform):
        return draw.high_ns == 0
    if isinstance(draw, Discrete):
        return not any(draw.values_ns)
    return draw is None


def _check_arrivals(arrivals: Arrivals, document: Document, path: Path) -> None:
    if isinstance(arrivals, StepArrivals):
        if not arrivals.steps:
            fail(document, (*path, "steps"), "must not be empty")
        for place, (before, after) in enumerate(pairwise(arrivals.steps)):
            if after.at_ns <= before.at_ns:
                fail(document, (*path, "steps", place + 1, "at"), "must be after the step before")
    if isinstance(arrivals, DailyArrivals):
        if len(arrivals.hours) != 24:
            fail(document, (*path, "hours"), "must have 24 weights")
        if sum(arrivals.hours) <= 0:
            fail(document, (*path, "hours"), "must have a weight above 0")


def _check_behaviour(group: ClientGroup, document: Document, path: Path) -> None:
    check_draw(group.service, document, (*path, "service"))
    retry = group.retry
    if not isinstance(retry, NoRetry | FixedRetry) and retry.cap_ns < retry.base_ns:
        fail(document, (*path, "retry", "cap"), "must not be below base")
    pacing = group.pacing
    if isinstance(pacing, AimdPacing):
        least, start, most = (
            Fraction(limit_requests * 10**9, window_ns)
            for limit_requests, window_ns in (pacing.minimum, pacing.start, pacing.maximum)
        )
        if not least <= start <= most:
            fail(document, (*path, "pacing", "start"), "must be from minimum to maximum")
        if least < Fraction(1, 1000):
            fail(document, (*path, "pacing", "minimum"), "must be at least 1/1000s")


def _check_ask(ask: Ask, document: Document, path: Path) -> None:
    if ask.tokens_max is not None and ask.tokens_max < ask.tokens:
        fail(document, (*path, "tokens_max"), "must not be below tokens")
    if ask.types.token + ask.types.card <= 0:
        fail(document, (*path, "types"), "must have a weight above 0")
    most = ask.tokens if ask.tokens_max is None else ask.tokens_max
    if ask.shape == "object" and (ask.tokens, most) != (1, 1):
        fail(document, (*path, "shape"), "must hold exactly one token; set tokens = 1")
    if ask.shape == "plain" and ask.types.card > 0:
        fail(document, (*path, "shape"), 'must hold no cards; choose "array" or "composite"')


def _check_ask_names(
    scenario: Scenario, group: ClientGroup, ask: Ask, document: Document, path: Path
) -> None:
    asked = ask.request.partition(" ")[2].partition("?")[0]
    at_proxy = asked == "/proxy" or asked.startswith("/proxy/")
    if at_proxy and ask.proxy is None:
        fail(document, (*path, "proxy"), "is missing; name one of [[proxies]]")
    if ask.proxy is not None:
        if not at_proxy:
            fail(document, (*path, "proxy"), 'must stand with a path that begins with "/proxy"')
        known = {proxy.name: proxy for proxy in scenario.proxies}
        need_name(document, (*path, "proxy"), ask.proxy, known, "proxies")
        proxy = known[ask.proxy]
        if ask.via == "host" and proxy.host is None:
            fail(document, (*path, "via"), f'must be "key"; proxy {proxy.name!r} has no host')
        if proxy.require_auth and proxy.tenant not in _tenants_of(scenario, group):
            rule = f"must be of the clients' own tenant; {proxy.name!r} needs an API key of its own"
            fail(document, (*path, "proxy"), rule)
    if ask.reactor is not None:
        if asked != "/reactors/{id}/react":
            fail(document, (*path, "reactor"), 'must stand with "POST /reactors/{id}/react"')
        reactors = {reactor.name: reactor for reactor in scenario.reactors}
        need_name(document, (*path, "reactor"), ask.reactor, reactors, "reactors")
        if reactors[ask.reactor].tenant not in _tenants_of(scenario, group):
            fail(document, (*path, "reactor"), "must be of the clients' own tenant")


def _tenants_of(scenario: Scenario, group: ClientGroup) -> list[str]:
    return [
        application.tenant
        for application in scenario.applications
        if application.name in group.applications
    ]
