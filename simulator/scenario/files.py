"""Scenarios in and out: files, texts, built-in ones, and one with a value changed.

Every scenario that comes from outside, a text or a changed value, passes the same reader and the
same checks. `check` looks at what must hold between the parts: names that are there, clients that
can act. What holds for one value alone is checked where it is read (`simulator.scenario.model`).
Each fault is one `InputError` at its place; where several values disagree, it names the one at
fault.
"""

from __future__ import annotations

import dataclasses
import re
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias

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
from engine.limits.nodes import sets_of_counters
from engine.limits.rules import RuleSet
from engine.profile import Profile
from simulator.arguments import TEXT, ArgumentRule, instance, takes
from simulator.scenario.clients import (
    AimdPacing,
    Ask,
    ClientGroup,
    Dealing,
    FixedRetry,
    NoRetry,
)
from simulator.scenario.draws import (
    DailyArrivals,
    Discrete,
    Draw,
    StepArrivals,
    Uniform,
    durations_ns,
)
from simulator.scenario.model import (
    AddressPool,
    Application,
    Proxy,
    Scenario,
    changed,
    hosts_of,
    limit_tables_of,
    limits_of,
    profile_of,
)

_ADDRESSES: Final = 2**24 - 2
_WORD: Final = "[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_HOST: Final = re.compile(rf"(?=.{{1,253}}$){_WORD}(\.{_WORD})*")

Place: TypeAlias = tuple[str | int, ...]
Faults: TypeAlias = Iterator[tuple[Place, str]]
"""Where something is wrong, and the rule that it breaks; only the first is asked for."""


def check(scenario: Scenario, document: Document) -> None:
    """Raise `InputError` at the first place where the scenario's parts do not fit together.

    document: what the scenario was read from. Files that it includes are read too.
    """
    for path, rule in _faults(scenario, document):
        try:
            spot = document.spot(*path)
        except LookupError:  # what the document has left out
            raise InputError(f"{document.where(path)}{path_text(path)} {rule}") from None
        spot.fail(rule)


def _faults(scenario: Scenario, document: Document) -> Faults:
    if scenario.warm_up_ns >= scenario.duration_ns:
        yield ("warm_up",), "must be below the duration"
    for table in ("tenants", "clients"):
        if not getattr(scenario, table):
            yield (table,), f"must have at least one [[{table}]]"
    for table in ("tenants", "applications", "addresses", "proxies", "reactors", "clients"):
        yield from _double_names(scenario, table)
    profile = profile_of(scenario)
    _check_rules(scenario, document)
    yield from _tenant_faults(scenario)
    _check_tables(scenario, profile, document)
    _check_nodes(scenario, profile, document)
    for index, application in enumerate(scenario.applications):
        path: Place = ("applications", index)
        yield from _under(path, _application_faults(scenario, application))
        _check_grants(application, profile, document, path)
    for index, pool in enumerate(scenario.addresses):
        yield from _under(("addresses", index), _pool_faults(pool))
    yield from _room_faults(scenario)
    yield from _outside_faults(scenario)
    for index, group in enumerate(scenario.clients):
        path = ("clients", index)
        yield from _application_names(scenario, group, document, path)
        yield from _under(path, _client_faults(scenario, group))
    yield from _threshold_faults(scenario)


def _under(path: Place, faults: Faults) -> Faults:
    """Yield the faults of a part, which is at `path`."""
    for place, rule in faults:
        yield (*path, *place), rule


@contextmanager
def _told_at(document: Document, *path: str) -> Iterator[None]:
    """Begin an error's message with a place of the document."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{document.where(path)}{error}") from None


def _names(scenario: Scenario, table: str) -> list[str]:
    return [item.name for item in getattr(scenario, table)]


def _no_name(scenario: Scenario, key: str, name: str, table: str) -> Faults:
    """Yield the fault of a name that none of a `[[table]]` has."""
    names = _names(scenario, table)
    if name not in names:
        hint = did_you_mean(name, names) if names else "; there is none"
        yield (key,), f"must name one of [[{table}]]{hint}"


def _double_names(scenario: Scenario, table: str) -> Faults:
    seen: dict[str, int] = {}
    for index, name in enumerate(_names(scenario, table)):
        if name in seen:
            yield (table, index, "name"), f"must be unique; {table}[{seen[name]}] has it too"
        seen[name] = index


def _check_rules(scenario: Scenario, document: Document) -> None:
    known = [rule.id for rule in limits_of(_without_rules(scenario))]
    for rule_id in scenario.rules:
        if rule_id not in known:
            spot = document.spot("rules", rule_id)
            spot.fail_key(f"is no rule of the limit table{did_you_mean(rule_id, known)}")
    with _told_at(document, "rules"):
        limits_of(scenario)


def _without_rules(scenario: Scenario) -> Scenario:
    return dataclasses.replace(scenario, rules={})


def _tenant_faults(scenario: Scenario) -> Faults:
    tables = [DEFAULT_TABLE, *scenario.limit_tables]
    for index, tenant in enumerate(scenario.tenants):
        name = tenant.quotas.rate_limit
        if name is not None and name not in tables:
            rule = f"must name one of limit_tables{did_you_mean(name, tables)}"
            yield ("tenants", index, "quotas", "Rate Limit"), rule


def _check_tables(scenario: Scenario, profile: Profile, document: Document) -> None:
    """Tables that cannot stand beside each other are told here, and not when a run begins."""
    if scenario.limit_tables:
        with _told_at(document, "limit_tables"):
            RuleSet(limit_tables_of(scenario), profile.limits)


def _check_nodes(scenario: Scenario, profile: Profile, document: Document) -> None:
    if profile.nodes.is_exact:
        return
    with _told_at(document, "nodes"):
        if profile.nodes.sharing == "split" and profile.limits.compose == "lowest":
            raise InputError(
                "nodes.sharing = 'split' must stand with limits.compose = 'all'; a share that is "
                "rounded could make another rule the lowest"
            )
        sets_of_counters(limit_tables_of(scenario), profile.limits, profile.nodes)


def _application_faults(scenario: Scenario, application: Application) -> Faults:
    yield from _no_name(scenario, "tenant", application.tenant, "tenants")
    if application.ordinary_keys + application.legacy_keys == 0:
        yield ("keys",), "must be above 0 where there are no legacy keys"


def _check_grants(
    application: Application, profile: Profile, document: Document, path: Place
) -> None:
    for place, grant in enumerate(application.grants or ()):
        at = (*path, "grants", place)
        try:
            limit = profile.tokens.container_limit
            make_grants(application.kind, [(grant.container, grant.permissions)], limit)
        except InputError as error:
            text = str(error).removeprefix("grants[0]")
            raise InputError(f"{document.where(at)}{path_text(at)}{text}") from None


def _pool_faults(pool: AddressPool) -> Faults:
    if pool.clients_each is not None and pool.deal != Dealing():
        yield ("clients_each",), "must not stand beside deal; leave one out"
    if pool.network is None:
        return
    try:
        _, hosts = hosts_of(pool.network)
    except ValueError:
        yield ("network",), 'must be a block such as "203.0.113.0/24"'
        return
    if pool.count > hosts:
        yield ("count",), f"must be at most {hosts}, the hosts of {pool.network}"


def _room_faults(scenario: Scenario) -> Faults:
    """Pools without a network and clients without a pool share 10.0.0.0/8."""
    pooled = sum(pool.count for pool in scenario.addresses if pool.network is None)
    alone = sum(group.count for group in scenario.clients if group.addresses is None)
    if pooled + alone > _ADDRESSES:
        rule = f"must fit in {_ADDRESSES} addresses in all; let clients share a pool"
        yield ("clients",), rule


def _outside_faults(scenario: Scenario) -> Faults:
    hosts: list[str] = []
    for index, proxy in enumerate(scenario.proxies):
        yield from _under(("proxies", index), _proxy_faults(scenario, proxy, hosts))
        if proxy.host is not None:
            hosts.append(proxy.host)
    for index, reactor in enumerate(scenario.reactors):
        path = ("reactors", index)
        yield from _under(path, _no_name(scenario, "tenant", reactor.tenant, "tenants"))
        yield from _under(path, _draw_faults("service", reactor.service))


def _proxy_faults(scenario: Scenario, proxy: Proxy, hosts: list[str]) -> Faults:
    """Yield what is wrong with a proxy. hosts: those of the proxies before it."""
    yield from _no_name(scenario, "tenant", proxy.tenant, "tenants")
    if proxy.host is not None:
        if not _HOST.fullmatch(proxy.host):
            yield ("host",), "must be a hostname in small letters"
        if not is_suffix(proxy.host):
            yield ("host",), "must be no IP address and no name of this machine"
        if proxy.host in hosts:
            yield ("host",), "must be of one proxy only"
    for key in ("destination", "request_transform", "response_transform"):
        yield from _draw_faults(key, getattr(proxy, key))


def _threshold_faults(scenario: Scenario) -> Faults:
    tables = limit_tables_of(_without_rules(scenario))  # a rule that is off is known, too
    rules = [rule for table in tables.values() for rule in table]
    known = {
        "client": _names(scenario, "clients"),
        "tenant": _names(scenario, "tenants"),
        "application": _names(scenario, "applications"),
        "clause": [rule.id for rule in rules],
        "rule": [name for rule in rules for name in rule.counter_names],
    }
    for index, threshold in enumerate(scenario.thresholds):
        for label, value in threshold.that.labels:
            if label in known and value not in known[label]:
                hint = did_you_mean(value, dict.fromkeys(known[label]))
                rule = f"must name a {label}; there is no {value!r}{hint}"
                yield ("thresholds", index, "that"), rule


def _application_names(
    scenario: Scenario, group: ClientGroup, document: Document, path: Place
) -> Faults:
    """Yield what is wrong with a group's `application`: a name, or a list of names."""
    is_list = isinstance(document.value["clients"][path[-1]].get("application"), list | tuple)
    for place, name in enumerate(group.applications):
        for where, rule in _no_name(scenario, "application", name, "applications"):
            yield (*path, *where, *([place] if is_list else [])), rule


def _client_faults(scenario: Scenario, group: ClientGroup) -> Faults:
    if group.addresses is not None:
        yield from _no_name(scenario, "addresses", group.addresses, "addresses")
    if group.start_ns >= scenario.duration_ns:
        yield ("start",), "must be below the duration"
    if group.stop_ns is not None and group.stop_ns <= group.start_ns:
        yield ("stop",), "must be after start"
    yield from _open_faults(group) if group.loop == "open" else _closed_faults(group)
    yield from _behaviour_faults(group)
    if not group.mix:
        yield ("mix",), "must not be empty"
    if sum(ask.weight for ask in group.mix) <= 0:
        yield ("mix",), "must have a weight above 0"
    for place, ask in enumerate(group.mix):
        yield from _under(("mix", place), _ask_faults(ask))
        yield from _under(("mix", place), _ask_name_faults(scenario, group, ask))


def _draw_faults(key: str, draw: Draw | None) -> Faults:
    """Yield how the parameters of a distribution do not fit together."""
    if isinstance(draw, Uniform) and draw.high_ns < draw.low_ns:
        yield (key, "high"), "must not be below low"
    if isinstance(draw, Discrete) and draw.weights:
        if len(draw.weights) != len(draw.values_ns):
            yield (key, "weights"), "must have one weight a value"
        if sum(draw.weights) <= 0:
            yield (key, "weights"), "must have a weight above 0"


def _open_faults(group: ClientGroup) -> Faults:
    if group.think is not None:
        yield ("think",), 'must stand with loop = "closed"'
    arrivals = group.arrivals
    if arrivals is None:
        yield ("arrivals",), "is missing; an open loop needs arrivals"
    if isinstance(arrivals, StepArrivals):
        if not arrivals.steps:
            yield ("arrivals", "steps"), "must not be empty"
        for place, (before, after) in enumerate(pairwise(arrivals.steps)):
            if after.at_ns <= before.at_ns:
                yield ("arrivals", "steps", place + 1, "at"), "must be after the step before"
    if isinstance(arrivals, DailyArrivals):
        if len(arrivals.hours) != 24:
            yield ("arrivals", "hours"), "must have 24 weights"
        if sum(arrivals.hours) <= 0:
            yield ("arrivals", "hours"), "must have a weight above 0"


def _closed_faults(group: ClientGroup) -> Faults:
    if group.arrivals is not None:
        yield ("arrivals",), 'must stand with loop = "open"'
    if not _takes_time(group.think) and not _passes_time(group):
        rule = (
            "must be above 0 in a closed loop without pacing, or without a service time and a"
            " retry of 429; else its time stands still"
        )
        yield ("think",), rule
    yield from _draw_faults("think", group.think)


def _passes_time(group: ClientGroup) -> bool:
    """Return whether a loop that does not think takes time whatever it is answered."""
    if group.pacing is not None:
        return True
    retry = group.retry
    retries = not isinstance(retry, NoRetry) and retry.attempts > 1 and 429 in retry.statuses
    return retries and _takes_time(group.service)


def _takes_time(draw: Draw | None) -> bool:
    """Return whether a distribution has a duration above 0."""
    return draw is not None and any(durations_ns(draw))


def _behaviour_faults(group: ClientGroup) -> Faults:
    yield from _draw_faults("service", group.service)
    retry = group.retry
    if not isinstance(retry, NoRetry | FixedRetry) and retry.cap_ns < retry.base_ns:
        yield ("retry", "cap"), "must not be below base"
    pacing = group.pacing
    if isinstance(pacing, AimdPacing):
        least, start, most = (
            Fraction(limit_requests * 10**9, window_ns)
            for limit_requests, window_ns in (pacing.minimum, pacing.start, pacing.maximum)
        )
        if not least <= start <= most:
            yield ("pacing", "start"), "must be from minimum to maximum"
        if least < Fraction(1, 1000):
            yield ("pacing", "minimum"), "must be at least 1/1000s"


def _ask_faults(ask: Ask) -> Faults:
    if ask.tokens_max is not None and ask.tokens_max < ask.tokens:
        yield ("tokens_max",), "must not be below tokens"
    if ask.types.token + ask.types.card <= 0:
        yield ("types",), "must have a weight above 0"
    most = ask.tokens if ask.tokens_max is None else ask.tokens_max
    if ask.shape == "object" and (ask.tokens, most) != (1, 1):
        yield ("shape",), "must hold exactly one token; set tokens = 1"
    if ask.shape == "plain" and ask.types.card > 0:
        yield ("shape",), 'must hold no cards; choose "array" or "composite"'


def _ask_name_faults(scenario: Scenario, group: ClientGroup, ask: Ask) -> Faults:
    asked = ask.request.partition(" ")[2].partition("?")[0]
    at_proxy = asked == "/proxy" or asked.startswith("/proxy/")
    tenants = [app.tenant for app in scenario.applications if app.name in group.applications]
    if at_proxy and ask.proxy is None:
        yield ("proxy",), "is missing; name one of [[proxies]]"
    if ask.proxy is not None:
        if not at_proxy:
            yield ("proxy",), 'must stand with a path that begins with "/proxy"'
        yield from _no_name(scenario, "proxy", ask.proxy, "proxies")
        proxy = scenario.proxy_of(ask)
        assert proxy is not None, "its name is known"
        if ask.via == "host" and proxy.host is None:
            yield ("via",), f'must be "key"; proxy {proxy.name!r} has no host'
        if proxy.require_auth and proxy.tenant not in tenants:
            rule = f"must be of the clients' own tenant; {proxy.name!r} needs an API key of its own"
            yield ("proxy",), rule
    if ask.reactor is not None:
        if asked != "/reactors/{id}/react":
            yield ("reactor",), 'must stand with "POST /reactors/{id}/react"'
        yield from _no_name(scenario, "reactor", ask.reactor, "reactors")
        reactor = scenario.reactor_of(ask)
        if reactor is not None and reactor.tenant not in tenants:
            yield ("reactor",), "must be of the clients' own tenant"


_STEP: Final = re.compile(r'\.?([A-Za-z0-9_-]+)|\.?"([^"]*)"|\[([0-9]{1,9})\]|\[([A-Za-z0-9_-]+)\]')
_ANSWER: Final = "Answer:"
_TEXT_NAME: Final = "scenario.toml"
"""What messages call a text without a file."""
_WIDTH: Final = 98
_FILE: Final = instance("a file's path, the name of a built-in scenario, or TOML text", str, Path)


def is_toml(given: object) -> bool:
    """Whether a value is a scenario's text: a path and a name hold no line feed."""
    return isinstance(given, str) and "\n" in given


@takes(
    source=ArgumentRule(_FILE.words, lambda value: is_toml(value) or _FILE.holds(value)),
)
def load(source: str | Path) -> Scenario:
    """Return a scenario from a file, from its text in TOML, or a built-in one by its name.

    Raises `InputError` with file:line:col at the first fault.
    """
    return read_scenario(document_of(source))


def document_of(source: str | Path) -> Document:
    """Return what `load` reads, before it is checked as a scenario."""
    name = str(source)
    if is_toml(source):
        return parse_toml(name, _TEXT_NAME)
    if name in _builtin_names():
        return parse_toml(_builtin_text(name), name)
    if isinstance(source, str) and not Path(source).exists() and re.fullmatch(r"[\w-]+", source):
        raise InputError(
            f"scenario = {source!r} is neither a file nor a built-in scenario"
            f"{did_you_mean(source, _builtin_names())}"
        )
    return read_toml(source)


def loads(text: str, name: str = _TEXT_NAME, *, folder: Path | None = None) -> Scenario:
    """Return a scenario from TOML text; `name` is what messages call it.

    folder: where the files that it includes are; None = the working directory.
    """
    return read_scenario(parse_toml(text, name, folder=folder))


def dump(scenario: Scenario, *, absolute: bool = False) -> str:
    """Return the whole scenario as TOML, every default written out; `loads` reads it back equal.

    absolute: write included files with their whole paths, for a text that is put elsewhere.
    """
    if absolute:
        scenario = changed(
            scenario,
            Include,
            lambda include: dataclasses.replace(include, path=str(include.file.resolve())),
        )
    plain = to_plain(scenario)
    lines = _comment(scenario.question) + _comment(
        f"{_ANSWER} {scenario.answer}" if scenario.answer else ""
    )
    return "".join(f"{line}\n" for line in lines) + to_toml(plain)


@takes(
    scenario=instance("a Scenario; `load` makes one", Scenario),
    path=TEXT,
    value=ArgumentRule("what a scenario's file can hold", lambda _: True),
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
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # no TOML, a number beyond all bounds, or too deep
        return text
    value = table.get("value")
    return value if len(table) == 1 and isinstance(value, int | float | str | list | dict) else text


def builtin() -> dict[str, str]:
    """Return the built-in scenarios: name → the question that it answers."""
    return {name: _question(_builtin_text(name))[0] for name in _builtin_names()}


def starter() -> str:
    """Return the text that `init` writes: a small scenario to edit, with its comments."""
    return resources.files("simulator.scenario").joinpath("starter.toml").read_text("utf-8")


def schema() -> dict[str, Any]:
    """Return the JSON Schema of scenario files, which ships as `scenario.schema.json`."""
    return json_schema(Scenario, title="Tollgate scenario")


def read_scenario(document: Document) -> Scenario:
    """Return the scenario that a document holds. Raises `InputError` at the first fault."""
    plain = dict(document.value)
    plain.setdefault("name", re.sub(r"[^A-Za-z0-9_-]+", "-", Path(document.name).stem))
    question, answer = _question(document.text or "")
    return _finished(document, plain, question=question, answer=answer)


def _finished(
    document: Document, plain: Mapping[str, Any], *, question: str, answer: str
) -> Scenario:
    document.value = plain
    scenario = from_document(Scenario, document)
    scenario = dataclasses.replace(
        scenario, question=question, answer=answer, folder=document.folder
    )
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
