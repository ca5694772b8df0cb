"""`python -m simulator check`: what a scenario holds, and warnings of what cannot be meant."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from engine.errors import did_you_mean
from engine.files import format_duration
from engine.messages import Problem
from engine.model import DEFAULT_QUOTAS
from engine.resources import OPERATIONS
from engine.service import Router
from simulator.scenario import limit_tables_of, profile_of
from simulator.scenario.files import document_of, read_scenario
from simulator.study.run_size import expected_requests, largest_group, size_warning
from simulator.views.text import counted_text

if TYPE_CHECKING:
    from engine.files import Document
    from simulator.scenario import Scenario
    from simulator.scenario.clients import Ask, ClientGroup
    from simulator.scenario.files import Place

_QUOTAS: Final = {"POST /tokenize": "Tokenize Limit", "POST /detokenize": "Detokenize Limit"}
"""The quotas of the tokens in one request."""


def add_check(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `check`."""
    parser.description = "Check a scenario file, and summarize it."
    parser.add_argument(
        "file", metavar="FILE", help="a scenario file, or a built-in scenario's name"
    )


def run_check(args: argparse.Namespace) -> int:
    """Check a file; returns 0. Raises `InputError` for what is wrong in it."""
    document = document_of(args.file)
    scenario = read_scenario(document)
    tables = limit_tables_of(scenario)
    profile_of(scenario)
    clients = sum(group.count for group in scenario.clients)
    keys = sum(app.ordinary_keys + app.legacy_keys for app in scenario.applications)
    print(
        f"{args.file}: fine; scenario {scenario.name!r}, {format_duration(scenario.duration_ns)}, "
        f"{counted_text(len(scenario.tenants), 'tenant')}, {counted_text(keys, 'key')}, "
        f"{counted_text(clients, 'client')} in {counted_text(len(scenario.clients), 'group')}, "
        f"{counted_text(sum(len(table.rules) for table in tables.values()), 'limit rule')}, "
        f"about {expected_requests(scenario):,} requests"
    )
    for place, warning in _warnings(scenario):
        print(f"simulator: warning: {_where(document, place)}{warning}", file=sys.stderr)
    return 0


def _where(document: Document, place: Place) -> str:
    """Return `file:line:col: ` of a place, or of what holds it where the file leaves it out."""
    value, known = document.value, 0
    for step in place:
        try:
            value = value[step]  # type: ignore[index] # reason: TOML's tables and arrays
        except (LookupError, TypeError):
            break
        known += 1
    return document.where(place[:known])


def _warnings(scenario: Scenario) -> Iterator[tuple[Place, str]]:
    """Yield what the reader takes and a person cannot mean, with its place."""
    router = Router(OPERATIONS)
    for number, group in enumerate(scenario.clients):
        for entry, ask in enumerate(group.mix):
            place = ("clients", number, "mix", entry)
            if (warning := _path_warning(router, ask)) is not None:
                yield (*place, "request"), warning
            if (warning := _quota_warning(scenario, group, ask)) is not None:
                yield (*place, "tokens" if ask.tokens_max is None else "tokens_max"), warning
    if (warning := size_warning(scenario)) is not None:
        group = largest_group(scenario)
        yield ("clients", scenario.clients.index(group), "arrivals", "rate"), warning


def _path_warning(router: Router, ask: Ask) -> str | None:
    """Return what is wrong with a request that the service cannot know."""
    method, _, path = ask.request.partition(" ")
    try:
        router.find(method, path.partition("?")[0])
    except Problem as problem:
        known = [f"{operation.method} {operation.path}" for operation in OPERATIONS]
        hint = did_you_mean(ask.request, known, otherwise="")
        return (
            f"request = {ask.request!r} must be of an endpoint; the service answers it"
            f" {problem.status}{hint}"
        )
    return None


def _quota_warning(scenario: Scenario, group: ClientGroup, ask: Ask) -> str | None:
    """Return what is wrong with a request that holds more tokens than a tenant's quota."""
    quota = _QUOTAS.get(ask.request.partition("?")[0])
    most = ask.tokens if ask.tokens_max is None else ask.tokens_max
    tenants = {app.tenant for app in scenario.applications if app.name in group.applications}
    for tenant in scenario.tenants:
        if quota is None or tenant.name not in tenants:
            continue
        allowed = int(tenant.quotas.by_name().get(quota, DEFAULT_QUOTAS[quota]))
        if most > allowed:
            return (
                f"{most} tokens in a request are more than {allowed}, the {quota} of tenant"
                f" {tenant.name!r}: the engine refuses them, and the limits alone do not;"
                f' send fewer, or raise quotas."{quota}"'
            )
    return None
