"""What must hold between the parts of a scenario: names that are there, clients that can act.

Each fault is one `InputError` at its place. What holds for one value alone is checked where it is
read (`simulator.scenario.model`).
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from engine.errors import InputError, did_you_mean
from engine.files import Document
from engine.hosts import is_suffix
from engine.identity import make_grants
from engine.limits import DEFAULT_TABLE
from engine.limits.legs import Legs
from simulator.scenario.checking_clients import check_client, check_draw
from simulator.scenario.clients import Dealing
from simulator.scenario.faults import Path, fail, need_name
from simulator.scenario.model import AddressPool, Application, Proxy, Scenario
from simulator.scenario.resolving import limit_tables_of, limits_of, profile_of

__all__ = ["check"]

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
