"""What must hold between the parts of a scenario: names that are there, clients that can act.

Each fault is one `InputError` at its place. What holds for one value alone is checked where it is
read (`simulator.scenario.model`). A check that spans several values names the
one at fault.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise
from typing import Final, NoReturn

from engine.errors import InputError, did_you_mean
from engine.files import Document, path_text
from engine.hosts import is_suffix
from engine.identity import make_grants
from engine.limits import DEFAULT_TABLE
from engine.limits.legs import Legs
from simulator.scenario.clients import AimdPacing, Ask, ClientGroup, Dealing, FixedRetry, NoRetry
from simulator.scenario.draws import (
    Arrivals,
    Constant,
    DailyArrivals,
    Discrete,
    Draw,
    StepArrivals,
    Uniform,
)
from simulator.scenario.in_force import limit_tables_of, limits_of, profile_of
from simulator.scenario.model import AddressPool, Application, Proxy, Scenario

__all__ = ["Path", "check", "check_client", "check_draw", "fail", "need_name"]

_ADDRESSES: Final = 2**24 - 2
_WORD: Final = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_HOST: Final = re.compile(rf"(?=.{{1,253}}$){_WORD}(\.{_WORD})*")


def check(scenario: Scenario, document: Document) -> None:
    """Raise `InputError` at the first place where the scenario's parts do not fit together.

    document: what the scenario was read from. Files that it includes are read too.
    """
    _check_times(scenario, document)
    for table in ("tenants", "clients"):
        if not getattr(scenario, table):
            fail(document, (table,), f"must have at least one [[{table}]]")
    for table in ("tenants", "applications", "addresses", "proxies", "reactors", "clients"):
        _check_unique(document, table, [item.name for item in getattr(scenario, table)])
    profile_of(scenario)
    _check_rules(scenario, document)
    _check_tenants(scenario, document)
    _check_tables(scenario, document)
    for index, application in enumerate(scenario.applications):
        _check_application(application, document, ("applications", index), scenario)
    for index, pool in enumerate(scenario.addresses):
        _check_pool(pool, document, ("addresses", index))
    _check_room(scenario, document)
    _check_outside(scenario, document)
    for index in range(len(scenario.clients)):
        check_client(scenario, document, index)
    _check_thresholds(scenario, document)


def _check_times(scenario: Scenario, document: Document) -> None:
    if scenario.warm_up_ns >= scenario.duration_ns:
        fail(document, ("warm_up",), "must be below the duration")


def _check_unique(document: Document, table: str, names: Iterable[str]) -> None:
    seen: dict[str, int] = {}
    for index, name in enumerate(names):
        if name in seen:
            path: Path = (table, index, "name")
            fail(document, path, f"must be unique; {table}[{seen[name]}] has it too")
        seen[name] = index


def _check_rules(scenario: Scenario, document: Document) -> None:
    limits_only = limits_of(_without_rules(scenario))
    known = [rule.id for rule in limits_only]
    for rule_id in scenario.rules:
        if rule_id not in known:
            spot = document.spot("rules", rule_id)
            spot.fail_key(f"is no rule of the limit table{did_you_mean(rule_id, known)}")
    try:
        limits_of(scenario)
    except InputError as error:
        raise InputError(f"{document.where(('rules',))}{error}") from None


def _without_rules(scenario: Scenario) -> Scenario:
    return dataclasses.replace(scenario, rules={})


def _check_tenants(scenario: Scenario, document: Document) -> None:
    tables = [DEFAULT_TABLE, *scenario.limit_tables]
    for index, tenant in enumerate(scenario.tenants):
        name = tenant.quotas.rate_limit
        if name is not None and name not in tables:
            path: Path = ("tenants", index, "quotas", "Rate Limit")
            fail(document, path, f"must name one of limit_tables{did_you_mean(name, tables)}")


def _check_tables(scenario: Scenario, document: Document) -> None:
    """Tables that cannot stand beside each other are told here, and not when a run begins."""
    if not scenario.limit_tables:
        return
    try:
        Legs(limit_tables_of(scenario), profile_of(scenario).limits)
    except InputError as error:
        raise InputError(f"{document.where(('limit_tables',))}{error}") from None


def _check_application(
    application: Application, document: Document, path: Path, scenario: Scenario
) -> None:
    tenants = [tenant.name for tenant in scenario.tenants]
    need_name(document, (*path, "tenant"), application.tenant, tenants, "tenants")
    if application.ordinary_keys + application.legacy_keys == 0:
        fail(document, (*path, "keys"), "must be above 0 where there are no legacy keys")
    for place, grant in enumerate(application.grants or ()):
        try:
            limit = profile_of(scenario).tokens.container_limit
            make_grants(application.kind, [(grant.container, grant.permissions)], limit)
        except InputError as error:
            where = document.where((*path, "grants", place))
            text = str(error).removeprefix("grants[0]")
            raise InputError(f"{where}{path[0]}[{path[1]}].grants[{place}]{text}") from None


def _check_pool(pool: AddressPool, document: Document, path: Path) -> None:
    if pool.clients_each is not None and pool.deal != Dealing():
        fail(document, (*path, "clients_each"), "must not stand beside deal; leave one out")
    if pool.network is None:
        return
    try:
        network = ipaddress.ip_network(pool.network)
    except ValueError:
        fail(document, (*path, "network"), 'must be a block such as "203.0.113.0/24"')
    hosts = max(network.num_addresses - 2, 1)
    if network.num_addresses <= 2:
        hosts = network.num_addresses
    if pool.count > hosts:
        fail(document, (*path, "count"), f"must be at most {hosts}, the hosts of {pool.network}")


def _check_room(scenario: Scenario, document: Document) -> None:
    """Pools without a network and clients without a pool share 10.0.0.0/8."""
    pooled = sum(pool.count for pool in scenario.addresses if pool.network is None)
    alone = sum(group.count for group in scenario.clients if group.addresses is None)
    if pooled + alone > _ADDRESSES:
        rule = f"must fit in {_ADDRESSES} addresses in all; let clients share a pool"
        fail(document, ("clients",), rule)


def _check_outside(scenario: Scenario, document: Document) -> None:
    tenants = [tenant.name for tenant in scenario.tenants]
    hosts: list[str] = []
    for index, proxy in enumerate(scenario.proxies):
        path: Path = ("proxies", index)
        need_name(document, (*path, "tenant"), proxy.tenant, tenants, "tenants")
        _check_host(proxy, hosts, document, path)
        check_draw(proxy.destination, document, (*path, "destination"))
        check_draw(proxy.request_transform, document, (*path, "request_transform"))
        check_draw(proxy.response_transform, document, (*path, "response_transform"))
    for index, reactor in enumerate(scenario.reactors):
        path = ("reactors", index)
        need_name(document, (*path, "tenant"), reactor.tenant, tenants, "tenants")
        check_draw(reactor.service, document, (*path, "service"))


def _check_host(proxy: Proxy, hosts: list[str], document: Document, path: Path) -> None:
    if proxy.host is None:
        return
    if not _HOST.fullmatch(proxy.host):
        fail(document, (*path, "host"), "must be a hostname in small letters")
    if not is_suffix(proxy.host):
        fail(document, (*path, "host"), "must be no IP address and no name of this machine")
    if proxy.host in hosts:
        fail(document, (*path, "host"), "must be of one proxy only")
    hosts.append(proxy.host)


def _check_thresholds(scenario: Scenario, document: Document) -> None:
    tables = limit_tables_of(
        _without_rules(scenario)
    )  # a rule that is off refuses none, and is known
    rules = [rule for table in tables.values() for rule in table]
    known = {
        "client": [group.name for group in scenario.clients],
        "tenant": [tenant.name for tenant in scenario.tenants],
        "application": [application.name for application in scenario.applications],
        "clause": [rule.id for rule in rules],
        "rule": [name for rule in rules for name in rule.counter_names],
    }
    for index, threshold in enumerate(scenario.thresholds):
        for label, value in threshold.that.labels:
            if label in known and value not in known[label]:
                hint = did_you_mean(value, dict.fromkeys(known[label]))
                path: Path = ("thresholds", index, "that")
                fail(document, path, f"must name a {label}; there is no {value!r}{hint}")


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


Path = tuple[str | int, ...]


def fail(document: Document, path: Path, rule: str) -> NoReturn:
    """Raise `InputError` about the value at `path`, which the document may have left out."""
    try:
        spot = document.spot(*path)
    except LookupError:
        where = document.where(path)
        raise InputError(f"{where}{path_text(path)} {rule}") from None
    spot.fail(rule)


def need_name(document: Document, path: Path, name: str, known: Iterable[str], table: str) -> None:
    """Fail at `path` unless `name` is one of the names of a `[[table]]`."""
    names = list(known)
    if name not in names:
        hint = did_you_mean(name, names) if names else "; there is none"
        fail(document, path, f"must name one of [[{table}]]{hint}")
