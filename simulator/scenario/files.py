"""Scenarios in and out: files, texts, built-in ones, and one with a value changed.

Every scenario that comes from outside, a text or a changed value, passes the same reader and the
same checks. `check` looks at what must hold between the parts: names that are there, clients that
can act. What holds for one value alone is checked where it is read (`simulator.scenario.model`).
Each fault is one `InputError` at its place; where several values disagree, it names the one at
fault.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
import textwrap
import tomllib
from collections.abc import Iterable, Mapping
from fractions import Fraction
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NoReturn

from engine.errors import InputError, did_you_mean
from engine.files import (
    Document,
    Include,
    from_document,
    json_schema,
    parse_toml,
    path_text,
    read_toml,
    to_plain,
    to_toml,
)
from engine.hosts import is_suffix
from engine.identity import make_grants
from engine.limits import DEFAULT_TABLE
from engine.limits.legs import Legs
from engine.limits.nodes import sets_of_counters
from simulator.arguments import TEXT, Rule, instance, takes
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
from simulator.scenario.model import (
    AddressPool,
    Application,
    Proxy,
    Scenario,
    changed,
    limit_tables_of,
    limits_of,
    profile_of,
)

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
    _check_nodes(scenario, document)
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
            path: Place = (table, index, "name")
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
            path: Place = ("tenants", index, "quotas", "Rate Limit")
            fail(document, path, f"must name one of limit_tables{did_you_mean(name, tables)}")


def _check_tables(scenario: Scenario, document: Document) -> None:
    """Tables that cannot stand beside each other are told here, and not when a run begins."""
    if not scenario.limit_tables:
        return
    try:
        Legs(limit_tables_of(scenario), profile_of(scenario).limits)
    except InputError as error:
        raise InputError(f"{document.where(('limit_tables',))}{error}") from None


def _check_nodes(scenario: Scenario, document: Document) -> None:
    profile = profile_of(scenario)
    if profile.nodes.is_exact:
        return
    if profile.nodes.sharing == "split" and profile.limits.compose == "lowest":
        raise InputError(
            f"{document.where(('nodes',))}nodes.sharing = 'split' must stand with limits.compose = "
            "'all'; a share that is rounded could make another rule the lowest"
        )
    try:
        sets_of_counters(limit_tables_of(scenario), profile.limits, profile.nodes)
    except InputError as error:
        raise InputError(f"{document.where(('nodes',))}{error}") from None


def _check_application(
    application: Application, document: Document, path: Place, scenario: Scenario
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


def _check_pool(pool: AddressPool, document: Document, path: Place) -> None:
    if pool.clients_each is not None and pool.deal != Dealing():
        fail(document, (*path, "clients_each"), "must not stand beside deal; leave one out")
    if pool.network is None:
        return
    try:
        network = ipaddress.ip_network(pool.network)
    except ValueError:
        fail(document, (*path, "network"), 'must be a block such as "203.0.113.0/24"')
    hosts = network.num_addresses
    if hosts > 2:
        hosts -= 2
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
        path: Place = ("proxies", index)
        need_name(document, (*path, "tenant"), proxy.tenant, tenants, "tenants")
        _check_host(proxy, hosts, document, path)
        check_draw(proxy.destination, document, (*path, "destination"))
        check_draw(proxy.request_transform, document, (*path, "request_transform"))
        check_draw(proxy.response_transform, document, (*path, "response_transform"))
    for index, reactor in enumerate(scenario.reactors):
        path = ("reactors", index)
        need_name(document, (*path, "tenant"), reactor.tenant, tenants, "tenants")
        check_draw(reactor.service, document, (*path, "service"))


def _check_host(proxy: Proxy, hosts: list[str], document: Document, path: Place) -> None:
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
                path: Place = ("thresholds", index, "that")
                fail(document, path, f"must name a {label}; there is no {value!r}{hint}")


def check_client(scenario: Scenario, document: Document, index: int) -> None:
    """Raise `InputError` at the first fault of one client group."""
    group = scenario.clients[index]
    path: Place = ("clients", index)
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


def check_draw(draw: Draw | None, document: Document, path: Place) -> None:
    """Raise `InputError` when a distribution's parameters do not fit together."""
    if isinstance(draw, Uniform) and draw.high_ns < draw.low_ns:
        fail(document, (*path, "high"), "must not be below low")
    if isinstance(draw, Discrete) and draw.weights:
        if len(draw.weights) != len(draw.values_ns):
            fail(document, (*path, "weights"), "must have one weight a value")
        if sum(draw.weights) <= 0:
            fail(document, (*path, "weights"), "must have a weight above 0")


def _check_references(
    scenario: Scenario, group: ClientGroup, document: Document, path: Place
) -> None:
    known = [application.name for application in scenario.applications]
    for place, name in enumerate(group.applications):
        at: Place = (*path, "application")
        if isinstance(document.spot(*at).value, list | tuple):
            at = (*at, place)
        need_name(document, at, name, known, "applications")
    if group.addresses is not None:
        pools = [pool.name for pool in scenario.addresses]
        need_name(document, (*path, "addresses"), group.addresses, pools, "addresses")


def _check_span(scenario: Scenario, group: ClientGroup, document: Document, path: Place) -> None:
    if group.start_ns >= scenario.duration_ns:
        fail(document, (*path, "start"), "must be below the duration")
    if group.stop_ns is not None and group.stop_ns <= group.start_ns:
        fail(document, (*path, "stop"), "must be after start")


def _check_loop(group: ClientGroup, document: Document, path: Place) -> None:
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


def _check_arrivals(arrivals: Arrivals, document: Document, path: Place) -> None:
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


def _check_behaviour(group: ClientGroup, document: Document, path: Place) -> None:
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


def _check_ask(ask: Ask, document: Document, path: Place) -> None:
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
    scenario: Scenario, group: ClientGroup, ask: Ask, document: Document, path: Place
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


Place = tuple[str | int, ...]


def fail(document: Document, path: Place, rule: str) -> NoReturn:
    """Raise `InputError` about the value at `path`, which the document may have left out."""
    try:
        spot = document.spot(*path)
    except LookupError:
        where = document.where(path)
        raise InputError(f"{where}{path_text(path)} {rule}") from None
    spot.fail(rule)


def need_name(document: Document, path: Place, name: str, known: Iterable[str], table: str) -> None:
    """Fail at `path` unless `name` is one of the names of a `[[table]]`."""
    names = list(known)
    if name not in names:
        hint = did_you_mean(name, names) if names else "; there is none"
        fail(document, path, f"must name one of [[{table}]]{hint}")


_STEP: Final = re.compile(r'\.?([A-Za-z0-9_-]+)|\.?"([^"]*)"|\[([0-9]+)\]|\[([A-Za-z0-9_-]+)\]')
_ANSWER: Final = "Answer:"
_WIDTH: Final = 98
_FILE: Final = instance("a file's path, the name of a built-in scenario, or TOML text", str, Path)


def is_toml(given: object) -> bool:
    """Whether a value is a scenario's text: a path and a name hold no line feed."""
    return isinstance(given, str) and "\n" in given


@takes(
    source=Rule(_FILE.words, lambda value: is_toml(value) or _FILE.holds(value)),
)
def load(source: str | Path) -> Scenario:
    """Return a scenario from a file, from its text in TOML, or a built-in one by its name.

    Raises `InputError` with file:line:col at the first fault.
    """
    name = str(source)
    if isinstance(source, str) and "\n" in source:
        return loads(source)
    if name in _builtin_names():
        return _read(parse_toml(_builtin_text(name), name))
    if isinstance(source, str) and not Path(source).exists() and re.fullmatch(r"[\w-]+", source):
        raise InputError(
            f"scenario = {source!r} is neither a file nor a built-in scenario"
            f"{did_you_mean(source, _builtin_names())}"
        )
    return _read(read_toml(source))


def loads(text: str, name: str = "scenario.toml", *, folder: Path | None = None) -> Scenario:
    """Return a scenario from TOML text; `name` is what messages call it.

    folder: where the files that it includes are; None = the working directory.
    """
    return _read(parse_toml(text, name, folder=folder))


def dump(scenario: Scenario, *, absolute: bool = False) -> str:
    """Return the whole scenario as TOML, every default written out; `loads` reads it back equal.

    absolute: write included files with their whole paths, for a text that is put elsewhere.
    """
    if absolute:
        scenario = changed(
            scenario, Include, lambda each: dataclasses.replace(each, path=str(each.file.resolve()))
        )
    plain = to_plain(scenario)
    lines = _comment(scenario.question) + _comment(
        f"{_ANSWER} {scenario.answer}" if scenario.answer else ""
    )
    return "".join(f"{line}\n" for line in lines) + to_toml(plain)


@takes(
    scenario=instance("a Scenario; `load` makes one", Scenario),
    path=TEXT,
    value=Rule("what a scenario's file can hold", lambda _: True),
)
def with_value(scenario: Scenario, path: str, value: object) -> Scenario:
    """Return the scenario with one value changed, read and checked like any other.

    path: as in the file, an element of an array by its index or by its name:
    `clients[0].count`, `clients.browsers.count`, `rules.LIM-PUBLIC.rate`,
    `choices.limits.algorithm`, `tenants.acme.quotas."Tokenize Limit"`.
    value: what the file would hold (`"50/10s"`, 3, `{"kind": "none"}`); `value_of` makes one from a
    command line's text. Raises `InputError` for a path that leads nowhere or a value that cannot
    be.
    """
    plain = to_plain(scenario)
    steps = _steps(path)
    target: Any = plain
    done: list[str | int] = []
    for step in steps[:-1]:
        key = _entered(target, step, done)
        if isinstance(target, dict) and key not in target:
            target[key] = {}
        target = target[key]
        done.append(key)
    key = _entered(target, steps[-1], done)
    target[key] = value
    document = Document(plain, folder=scenario.folder)
    return _finished(document, plain, question=scenario.question, answer=scenario.answer)


def with_values(scenario: Scenario, changes: Iterable[tuple[str, object]]) -> Scenario:
    """Return the scenario with several values changed, one after another, by their paths."""
    for path, value in changes:
        scenario = with_value(scenario, path, value)
    return scenario


def value_of(text: str) -> object:
    """Return what a text of a command line stands for: TOML where it is some, else itself.

    >>> value_of("3"), value_of("50/10s"), value_of("true"), value_of('{ kind = "none" }')
    (3, '50/10s', True, {'kind': 'none'})
    """
    try:
        found = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    value = found.get("value")
    return value if len(found) == 1 and isinstance(value, int | float | str | list | dict) else text


def builtin() -> dict[str, str]:
    """Return the built-in scenarios: name → the question that it answers."""
    return {name: _question(_builtin_text(name))[0] for name in _builtin_names()}


def starter() -> str:
    """Return the text that `init` writes: a small scenario to edit, with its comments."""
    return resources.files("simulator.scenario").joinpath("starter.toml").read_text("utf-8")


def schema() -> dict[str, Any]:
    """Return the JSON Schema of scenario files, which ships as `scenario.schema.json`."""
    return json_schema(Scenario, title="Tollgate scenario")


def _read(document: Document) -> Scenario:
    plain = dict(document.value)
    plain.setdefault("name", re.sub(r"[^A-Za-z0-9_-]+", "-", Path(document.name).stem))
    question, answer = _question(document.text or "")
    return _finished(document, plain, question=question, answer=answer)


def _finished(
    document: Document, plain: Mapping[str, Any], *, question: str, answer: str
) -> Scenario:
    document.value = plain
    found = from_document(Scenario, document)
    scenario = dataclasses.replace(found, question=question, answer=answer, folder=document.folder)
    check(scenario, document)
    return scenario


def _question(text: str) -> tuple[str, str]:
    """Return the comment that opens a text: what it asks, and what stands after `Answer:`."""
    parts: tuple[list[str], list[str]] = ([], [])
    place = 0
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        words = line[1:].strip()
        if line.startswith("#:"):
            continue
        if words.startswith(_ANSWER):
            place, words = 1, words.removeprefix(_ANSWER)
        parts[place].append(words)
    question, answer = (" ".join(" ".join(part).split()) for part in parts)
    return question, answer


def _comment(text: str) -> list[str]:
    lines = textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return [f"# {line}" for line in lines]


def _builtin_names() -> list[str]:
    folder = resources.files("simulator.scenario").joinpath("builtin")
    names = [item.name.removesuffix(".toml") for item in folder.iterdir()]
    return sorted(names, key=lambda name: (name != "everyday", name))


def _builtin_text(name: str) -> str:
    folder = resources.files("simulator.scenario").joinpath("builtin")
    return folder.joinpath(f"{name}.toml").read_text("utf-8")


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    at = 0
    while at < len(path):
        match = _STEP.match(path, at)
        if match is None or (at == 0) != (path[at] not in ".["):
            raise InputError(f'path = {path!r} must be such as "clients.browsers.count"')
        word = next(group for group in match.groups() if group is not None)
        steps.append(int(word) if match[3] is not None else word)
        at = match.end()
    if not steps:
        raise InputError('path = "" must be such as "clients.browsers.count"')
    return steps


def _entered(target: Any, step: str | int, done: list[str | int]) -> str | int:  # noqa: ANN401 # reason: any TOML value
    """Return the key or index that a step of a path means within `target`."""
    here = path_text(tuple(done))
    if isinstance(target, dict):
        return str(step)
    if not isinstance(target, list):
        raise InputError(f"{here} has no parts; there is no {path_text((*done, step))}")
    if isinstance(step, int):
        if step >= len(target):
            raise InputError(f"{here} has {len(target)} elements; the last is {len(target) - 1}")
        return step
    names = [item.get("name") for item in target if isinstance(item, dict)]
    if step not in names:
        known = [name for name in names if isinstance(name, str)]
        raise InputError(f"{here} has no element {step!r}{did_you_mean(step, known)}")
    return names.index(step)
