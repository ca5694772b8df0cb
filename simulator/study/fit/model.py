"""The fitted model: groups, the keys and addresses they share, and the scenario file.

The model is written as text, with the evidence for each number as a comment. The `Scenario` to play
is read from that text by `simulator.scenario`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from engine.command_line import schema_line
from engine.files import format_duration, span_text, to_plain, to_toml
from simulator.logs.parties import Owner
from simulator.options import FitOptions
from simulator.rows.record import Numbers, distinct
from simulator.scenario import Scenario, loads
from simulator.scenario.clients import NoRetry, Retry
from simulator.scenario.draws import (
    Arrivals,
    Draw,
    StepArrivals,
)
from simulator.study.fit.observed import PROXIED as _PROXIED
from simulator.study.fit.observed import Grouping, Observed
from simulator.study.fit.series import CountSeries
from simulator.study.fit.traffic import Estimate, Pace, RetryFit, pace_of, retry_of
from simulator.study.replay import run_name
from simulator.traffic.sessions import SessionLog, write_sessions
from simulator.views.text import counted_text

SESSIONS_FILE: Final = ".sessions.csv"
"""What the file of sessions is called, after the scenario's name."""
_SHOWN: Final = 8
"""The most kinds of requests in a group's mix."""
_LEAST_SHARE: Final = 0.01
_UNEVEN: Final = 1.5
_WIDTH: Final = 98
_SEED: Final = 7
_ALWAYS: Final = ("kind", "attempts", "begin", "file", "group", "span_ns")
"""Fields that are written even at their defaults."""


@dataclass(slots=True)
class FittedPool:
    """Addresses that clients share. zipf: exponent, None if they are assigned evenly."""

    name: str
    count: int
    zipf: Estimate | None = None
    per: str = "client"
    clients_each: int | None = None
    evidence: str = ""


@dataclass(slots=True)
class FittedGroup:
    """A client group. seen: its clients in the log; count: how many there are.

    keys_used: how many keys they use. per_request: whether a client changes its key by request.
    mix: method and path → share. rest: how many further kinds of requests the mix leaves out.
    counted_as: kind of request in the log → the kind in the mix that it counts as.
    """

    name: str
    application: str | None
    kind: str
    seen: int
    count: Estimate
    rows: int
    firsts: int
    refused: int
    pace: Pace
    retry: RetryFit
    mix: dict[str, float]
    rest: int = 0
    counted_as: dict[int, int] = field(default_factory=dict)
    keys_used: int = 0
    keys_per: str = "client"
    keys_zipf: Estimate | None = None
    pool: FittedPool | None = None
    sure: float = 1.0

    @property
    def lost(self) -> list[str]:
        """What the log does not show about the group."""
        return [*self.pace.lost, *self.retry.lost]


@dataclass(slots=True)
class Model:
    """All groups, and the scenario. of_client: the group of each client of the log.

    applications: the name of each owner's, None without a key. tenants: the names of the log's.
    sessions: of the groups that send sessions of the log.
    """

    groups: list[FittedGroup]
    owners: list[Owner]
    applications: list[str | None]
    tenants: dict[str, str]
    owner_of: list[int]
    keys: dict[int, int]
    of_client: Numbers
    series: CountSeries
    text: str = ""
    lost: list[str] = field(default_factory=list)
    sessions: dict[str, SessionLog] = field(default_factory=dict)
    scenario: Scenario = field(init=False)

    def save(self, path: Path) -> None:
        """Write the scenario file, and beside it the file of its sessions. Raises `OSError`."""
        text = self.text
        if self.sessions:
            beside = path.with_name(f"{path.stem}{SESSIONS_FILE}")
            write_sessions(self.sessions, beside)
            text = text.replace(f'"{self.scenario.name}{SESSIONS_FILE}"', json.dumps(beside.name))
        head = schema_line("simulator.scenario", "scenario.schema.json")
        path.write_text(head + text, "utf-8")


def model_of(
    observed: Observed,
    window: range,
    series: CountSeries,
    grouping: Grouping,
    options: FitOptions,
    *,
    steady: bool,
) -> Model:
    """Return the model of a window of a log. steady: without trends."""
    shared = _Shared(observed, grouping, series)
    owners = list(observed.parties.owners)
    applications = _application_names(owners)
    names = _names(applications, grouping)
    groups: list[FittedGroup] = []
    for number, place in enumerate(grouping.owner):
        owner = owners[place]
        clients = np.flatnonzero(grouping.of_client == number)
        count = _count(series.per_client[clients])
        mix, rest, counted_as = _mix(observed, series, number)
        group = FittedGroup(
            name=names[number],
            application=applications[place],
            kind="legacy" if owner.legacy else str(owner.application_kind or "no key"),
            seen=len(clients),
            count=count,
            rows=int(series.rows[number]),
            firsts=int(series.firsts[number]),
            refused=int(series.refusals[number]),
            pace=pace_of(series, number, count.value, steady=steady),
            retry=retry_of(series, number),
            mix=mix,
            rest=rest,
            counted_as=counted_as,
            sure=grouping.sure[number],
        )
        shared.keys(group, number)
        groups.append(group)
    shared.pools(groups)
    model = Model(
        groups,
        owners,
        applications,
        _tenant_names(owners),
        grouping.owner,
        shared.keys_of_owner(),
        grouping.of_client,
        series,
    )
    model.lost = _lost(observed, model)
    name = _word(run_name(observed.log.name), "log")
    model.text = scenario_text(observed, window, model, name, options)
    model.scenario = loads(model.text, f"{name}.toml")
    return model


# --- groups --------------------------------------------------------------------------------------


def _count(per_client: Numbers) -> Estimate:
    """Return an estimate of the number of clients, including those without a request.

    Requests per client are taken as Poisson, so the share of clients without one is known. Where
    the numbers vary more than Poisson, the clients without a request cannot be estimated.
    """
    seen = len(per_client)
    mean = float(per_client.mean())
    sure = Estimate(seen, seen, seen)
    if seen < 10 or mean > 8:
        return sure
    low, high = 1e-3, mean
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if middle / -math.expm1(-middle) < mean else (low, middle)
    unseen = math.exp(-high)
    if float(per_client.var()) > 1.5 * mean or unseen > 0.7:
        return sure
    total = seen / (1 - unseen)
    spread = 1.96 * math.sqrt(total * unseen / (1 - unseen)) * 1.3
    return Estimate(round(total), max(seen, total - spread), total + spread)


def _mix(
    observed: Observed, series: CountSeries, number: int
) -> tuple[dict[str, float], int, dict[int, int]]:
    """Return the share of each kind of request; rare kinds join one under the same limits.

    The others are how many joined, and the kind that each kind counts as.
    """
    counts = {request: count for (group, request), count in series.mix.items() if group == number}
    counts = {
        request: count
        for request, count in counts.items()
        if "/batch-files/" not in observed.requests[request] or len(counts) == 1
    }
    total = sum(counts.values())
    order = sorted(counts, key=lambda request: -counts[request])
    request_counts: dict[int, int] = {}
    heads: dict[tuple[str, int], int] = {}
    counted_as: dict[int, int] = {}
    for request in order:
        alike = observed.requests[request].split(" ")[0], int(observed.limit_class[request])
        big = len(request_counts) < _SHOWN and counts[request] >= _LEAST_SHARE * total
        if big or alike not in heads:
            request_counts[request] = counts[request]
            heads.setdefault(alike, request)
        else:
            request_counts[heads[alike]] += counts[request]
        counted_as[request] = request if big else heads[alike]
    shares = {
        observed.requests[request]: count / total for request, count in request_counts.items()
    }
    return shares, len(counted_as) - len(request_counts), counted_as


def _names(applications: list[str | None], grouping: Grouping) -> list[str]:
    """Return a name for each group: its application's, numbered where that has several."""
    names: list[str] = []
    for number, owner in enumerate(grouping.owner):
        word = applications[owner] or "no-key"
        several = grouping.owner.count(owner) > 1
        place = grouping.owner[:number].count(owner) + 1
        names.append(f"{word}-{place}" if several else word)
    return _apart(names)


def _application_names(owners: list[Owner]) -> list[str | None]:
    """Return a name for each owner's application; two tenants may have one of the same name."""
    words = [
        _word(owner.application or "", f"application-{place}") for place, owner in enumerate(owners)
    ]
    named = zip(owners, _apart(words), strict=True)
    return [None if owner.application_kind is None else name for owner, name in named]


def _tenant_names(owners: list[Owner]) -> dict[str, str]:
    tenants = dict.fromkeys(owner.tenant for owner in owners if owner.tenant is not None)
    return dict(zip(tenants, _apart([_word(tenant, "tenant") for tenant in tenants]), strict=True))


def _apart(words: list[str]) -> list[str]:
    """Return words that differ: one that stood before gets the number of its place."""
    distinct_words: list[str] = []
    for place, word in enumerate(words):
        while word in distinct_words:
            word += f"-{place}"  # noqa: PLW2901 # reason: until nobody has it
        distinct_words.append(word)
    return distinct_words


# --- what is shared ------------------------------------------------------------------------------


class _Shared:
    """Keys and addresses of groups."""

    def __init__(self, observed: Observed, grouping: Grouping, series: CountSeries) -> None:
        parties = observed.parties
        self._observed = observed
        self._names_clients = "client" in observed.fields
        asked = series.per_client[observed.client] > 0
        group = grouping.of_client[observed.client]
        self._rows = np.flatnonzero(asked & (group >= 0))
        self._group = group
        self._key, self._ip = parties.key.codes, parties.ip.codes
        self._client = observed.client

    def keys_of_owner(self) -> dict[int, int]:
        """Return how many keys each owner has, of those that asked."""
        owner = self._observed.parties.owner[self._rows]
        keys = self._key[self._rows]
        return {
            number: len(np.unique(keys[(owner == number) & (keys >= 0)]))
            for number in np.unique(owner).tolist()
        }

    def keys(self, group: FittedGroup, number: int) -> None:
        """Set how the clients of a group use keys."""
        rows = self._rows[self._group[self._rows] == number]
        rows = rows[self._key[rows] >= 0]
        if not len(rows):
            return
        _, first = distinct([self._client[rows], self._key[rows]])
        keys = self._key[rows][first]
        group.keys_used = len(np.unique(keys))
        if len(first) > 1.2 * len(np.unique(self._client[rows])) and group.keys_used > 1:
            group.keys_per = "request"
        elif group.keys_used > 1:
            counts = np.sort(np.unique(keys, return_counts=True)[1])[::-1]
            group.keys_zipf = _zipf(counts)[0]

    def pools(self, groups: list[FittedGroup]) -> None:
        """Set which addresses the groups share, and how."""
        ips: list[Numbers] = []
        for number, group in enumerate(groups):
            rows = self._rows[self._group[self._rows] == number]
            ips.append(np.unique(self._ip[rows]))
            group.pool = self._pool(group, rows)
        order = sorted(range(len(groups)), key=lambda number: -len(ips[number]))
        for place, number in enumerate(order):
            for other in order[:place]:
                if self._join(groups, ips, number, other):
                    break

    def _join(self, groups: list[FittedGroup], ips: list[Numbers], number: int, other: int) -> bool:
        """Let a group share another's pool if that has more than half of its addresses."""
        common = len(np.intersect1d(ips[number], ips[other], assume_unique=True))
        if 2 * common <= len(ips[number]):
            return False
        mine, theirs = groups[number], groups[other]
        if not self._names_clients and mine.application == theirs.application:
            return False  # a client is a key at an address: no two are alike
        if theirs.pool is None:
            theirs.pool = FittedPool(f"{theirs.name}-addresses", len(ips[other]))
        pool = theirs.pool
        if mine.pool is not None and (mine.pool.per, mine.pool.zipf) != (pool.per, pool.zipf):
            return False
        ips[other] = np.union1d(ips[other], ips[number])
        pool.count = max(pool.count, len(ips[other]))
        pool.evidence += f"{'; ' if pool.evidence else ''}{mine.name} has {common} of them"
        mine.pool = pool
        return True

    def _pool(self, group: FittedGroup, rows: Numbers) -> FittedPool | None:
        _, first = distinct([self._client[rows], self._ip[rows]])
        clients, addresses = self._client[rows][first], self._ip[rows][first]
        seen, number = len(np.unique(clients)), len(np.unique(addresses))
        name = f"{group.name}-addresses"
        if len(first) > 1.2 * seen:
            return self._per_request(rows, name, number)
        counts = np.sort(np.unique(addresses, return_counts=True)[1])[::-1]
        if counts[0] == 1:
            return None
        if not self._names_clients:
            clients_each = max(2, round(seen / number))
            words = f"{counted_text(seen, 'key')} at {counted_text(number, 'address', 'addresses')}"
            return FittedPool(
                name, -(-seen // clients_each), clients_each=clients_each, evidence=words
            )
        zipf, count = _zipf(counts)
        words = f"{counted_text(seen, 'client')} at {counted_text(number, 'address', 'addresses')}"
        words += f", {counts[0]:,} at the busiest"
        if zipf is not None and count > number:
            words += f"; {count - number:,} more that none of them used"
        return FittedPool(name, count, zipf, evidence=words)

    def _per_request(self, rows: Numbers, name: str, number: int) -> FittedPool:
        weights = np.zeros(int(self._ip.max()) + 1)
        np.add.at(weights, self._ip[rows], self._counts(rows))
        counts = np.sort(weights[weights > 0])[::-1].astype(np.int64)
        zipf, count = _zipf(counts)
        words = f"a client changes its address from request to request, among {number:,}"
        return FittedPool(name, count, zipf, "request", evidence=words)

    def _counts(self, rows: Numbers) -> Numbers:
        return np.asarray(np.where(self._observed.attempt <= 1, self._observed.counts, 0)[rows])


def _zipf(counts: Numbers) -> tuple[Estimate | None, int]:
    """Return the exponent of an uneven assignment (None if even), and the number of members.

    counts: requests of each member that had any, the largest first. The exponent and the number of
    members are chosen so that the expected share of the top tenth and the expected number of
    members with a request are those of `counts`.
    """
    total, seen = int(counts.sum()), len(counts)
    if seen < 2 or counts[0] - counts[-1] <= 1:
        return None, seen
    mean = total / seen
    if float(counts.var()) < _UNEVEN * mean:
        return None, seen
    top = max(1, seen // 10)
    share = float(counts[:top].sum()) / total
    value, members = _zipf_of(share, top, total, seen)
    error = 1.96 * math.sqrt(share * (1 - share) / total)
    low, _ = _zipf_of(max(1e-6, share - error), top, total, seen)
    high, _ = _zipf_of(min(1 - 1e-6, share + error), top, total, seen)
    return Estimate(round(value, 2), low - 0.05, high + 0.05), members


def _zipf_of(share: float, top: int, total: int, seen: int) -> tuple[float, int]:
    """Return the exponent and members at which the top have this share and `seen` are drawn."""
    low, high, members = 0.0, 4.0, seen
    for _ in range(30):
        middle = (low + high) / 2
        members = _members(middle, total, seen)
        weights = np.arange(1, members + 1) ** -middle
        top_share = float(weights[:top].sum() / weights.sum())
        low, high = (middle, high) if top_share < share else (low, middle)
    return (low + high) / 2, members


def _members(exponent: float, total: int, seen: int) -> int:
    """Return how many members a pool has if `total` draws are expected to reach `seen` of them."""

    def met(members: int) -> float:
        weights = np.arange(1, members + 1) ** -exponent
        return float(-np.expm1(total * np.log1p(-weights / weights.sum() * (1 - 1e-12))).sum())

    low, high = seen, seen
    while high < 50 * seen and met(high) < seen - 0.5:
        low, high = high, high * 2
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (middle, high) if met(middle) < seen - 0.5 else (low, middle)
    return high


def _lost(observed: Observed, model: Model) -> list[str]:
    lost = ["how long answers take: think times include it, and `service` is 0"]
    if "client" not in observed.fields:
        lost.append("how many clients share one key at one address: they count as one client")
    if "key" not in observed.fields:
        lost.append("keys: the log has none, so all requests count as one key's")
    if "status" not in observed.fields and "outcome" not in observed.fields:
        lost.append("refusals: the log has no status, so retries cannot be recognized")
    if observed.tick_ns >= 1_000_000:
        lost.append(
            f"the order within {span_text(observed.tick_ns)}: times are no finer, so requests are "
            "spread evenly over it (`replay` decides them at its start)"
        )
    if observed.merged:
        lost.append(
            f"{observed.merged:,} rare kinds of requests: each counts as the most common kind that "
            "the limits treat alike"
        )
    if any(_PROXIED in text for group in model.groups for text in group.mix):
        lost.append(f"proxies: which one a request names; {_PROXIED} replaces their paths")
    for group in model.groups:
        lost += [f"{group.name}: {words}" for words in group.lost]
    return lost


# --- the file ------------------------------------------------------------------------------------


def scenario_text(
    observed: Observed, window: range, model: Model, name: str, options: FitOptions
) -> str:
    """Return the scenario file."""
    files = {"limits": options.limits, "profile": options.profile}
    said = [
        f"{field} = {json.dumps(str(path), ensure_ascii=False)}"
        for field, path in files.items()
        if isinstance(path, str | Path)
    ]
    parts = ["\n".join([*_head(observed, window, model, name), *said, ""])]
    parts += [*_tenants(model), *_applications(model), *_pools(model)]
    parts += [_client(group, window) for group in model.groups]
    return "\n".join(parts)


def _head(observed: Observed, window: range, model: Model, name: str) -> list[str]:
    rows = int(model.series.rows.sum())
    clients = counted_text(sum(group.seen for group in model.groups), "client")
    question = (
        f"What {observed.log.name} shows: {rows:,} requests of {clients}. The comments "
        "give the evidence for each number, with its 95 % interval."
    )
    lines = textwrap.wrap(question, _WIDTH - 2)
    start = _instant(observed.arrivals.start_ns + window.start)
    return [
        *(f"# {line}" for line in lines),
        f'name = "{name}"',
        f'duration = "{format_duration(round_ns(len(window)))}"',
        f"seed = {_SEED}",
        f"start_time = {start}",
    ]


def _tenants(model: Model) -> list[str]:
    tenants: dict[str, str] = {}
    for number in model.owner_of:
        owner = model.owners[number]
        if owner.tenant is not None:
            tenants[model.tenants[owner.tenant]] = str(owner.tenant_kind)
    tenants = tenants or {"tenant": "production"}
    return [f'[[tenants]]\nname = "{name}"\nkind = "{kind}"\n' for name, kind in tenants.items()]


def _applications(model: Model) -> list[str]:
    parts = []
    for number in dict.fromkeys(model.owner_of):
        owner, name = model.owners[number], model.applications[number]
        if name is None:
            continue
        keys = max(1, model.keys.get(number, 1))
        tenant = model.tenants.get(owner.tenant or "", "tenant")
        field_name = "legacy_keys" if owner.legacy else "keys"
        parts.append(
            f'[[applications]]\nname = "{name}"\ntenant = "{tenant}"\n'
            f'kind = "{owner.application_kind}"\n{field_name} = {keys}\n'
        )
    return parts


def _pools(model: Model) -> list[str]:
    pools: dict[str, FittedPool] = {}
    for group in model.groups:
        if group.pool is not None:
            pools.setdefault(group.pool.name, group.pool)
    parts = []
    for pool in pools.values():
        lines = ["[[addresses]]", f'name = "{pool.name}"']
        lines.append(_commented(f"count = {pool.count}", pool.evidence))
        inner = []
        if pool.clients_each is not None:
            lines.append(f"clients_each = {pool.clients_each}")
        if pool.zipf is not None:
            inner.append(f"zipf = {pool.zipf.value:g}")
        if pool.per == "request":
            inner.append('per = "request"')
        if inner:
            evidence = "" if pool.zipf is None else f"zipf {_between(pool.zipf, '')}"
            lines.append(_commented(f"deal = {{ {', '.join(inner)} }}", evidence))
        parts.append("\n".join([*lines, ""]))
    return parts


def _client(group: FittedGroup, window: range) -> str:
    pace = group.pace
    lines = ["[[clients]]", f'name = "{group.name}"']
    seen = f"{group.seen:,} seen"
    if group.count.high > group.count.low:
        low, high = group.count.low, group.count.high
        seen += f", {low:,.0f} to {high:,.0f} with those that sent nothing"
    if group.sure < 0.95:
        seen += f"; each belongs here with probability {group.sure:.2f}"
    lines.append(_commented(f"count = {group.count.value:.0f}", seen))
    if group.application is not None:
        lines.append(f'application = "{group.application}"')
    lines += _keys(group)
    if group.pool is not None:
        lines.append(f'addresses = "{group.pool.name}"')
    if pace.loop == "open":
        lines.append('loop = "open"')
    lines += _evidence(pace)
    parts = ("arrivals", pace.arrivals), ("think", pace.think)
    lines += [_line(name, part) for name, part in parts if part is not None]
    if pace.concurrency > 1:
        lines.append(f"concurrency = {pace.concurrency}")
    lines += _weights(group)
    lines += _times(pace, window)
    if not isinstance(group.retry.retry, NoRetry):
        words = "; ".join(
            [group.retry.evidence]
            + [
                f"{name} {_between(estimate, 's' if name != 'attempts' else '')}"
                for name, estimate in group.retry.parameters.items()
                if estimate.high > estimate.low
            ]
        )
        lines += _wrapped(words)
        lines.append(_line("retry", group.retry.retry))
    elif group.retry.evidence:
        lines += _wrapped(f"no retry: {group.retry.evidence}")
    return "\n".join([*lines, ""])


def _times(pace: Pace, window: range) -> list[str]:
    lines = []
    if pace.start_ns:
        lines.append(f'start = "{format_duration(pace.start_ns)}"')
    if pace.stop_ns is not None and pace.stop_ns < len(window):
        lines.append(f'stop = "{format_duration(pace.stop_ns)}"')
    return lines


def _keys(group: FittedGroup) -> list[str]:
    if group.keys_per == "request":
        return ['keys = { per = "request" }']
    if group.keys_zipf is not None:
        return [
            _commented(
                f"keys = {{ zipf = {group.keys_zipf.value:g} }}",
                f"{group.keys_used} keys, zipf {_between(group.keys_zipf, '')}",
            )
        ]
    return []


def _weights(group: FittedGroup) -> list[str]:
    lines = []
    if group.rest:
        lines += _wrapped(
            f"{group.rest} rarer kinds of requests count as the most common kind that the "
            "limits treat alike"
        )
    entries = []
    for text, share in group.mix.items():
        weight = "" if len(group.mix) == 1 else f", weight = {100 * share:.3g}"
        entries.append(f'{{ request = "{text}"{weight} }}')
    if len(entries) == 1:
        return [*lines, f"mix = [{entries[0]}]"]
    return [*lines, "mix = [", *(f"    {entry}," for entry in entries), "]"]


def _evidence(pace: Pace) -> list[str]:
    words = [pace.evidence] if pace.evidence else []
    for name, estimate in pace.parameters.items():
        if name.endswith("rate"):
            unit = unit_of(estimate.value)
            words.append(f"{name} {_between(estimate.scaled(unit[0]), unit[1])}")
        else:
            words.append(f"{name} {_between(estimate, 's')}")
    return _wrapped("; ".join(words))


def unit_of(per_second: float) -> tuple[float, str]:
    """Return the unit of time in which a rate is 1 or more: its seconds, and the unit's name."""
    for factor, word in ((1, "/s"), (60, "/min"), (3_600, "/h"), (86_400, "/d")):
        if per_second * factor >= 1:
            return factor, word
    return 86_400, "/d"


def _wrapped(words: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(words, _WIDTH - 2)] if words else []


def _commented(line: str, words: str) -> str:
    if not words:
        return line
    if len(line) + len(words) + 4 <= _WIDTH:
        return f"{line.ljust(34)} # {words}" if len(words) < 60 else f"{line}  # {words}"
    return "\n".join([*_wrapped(words), line])


def _between(estimate: Estimate, unit: str) -> str:
    return f"{estimate.value:.3g}{unit} ({estimate.low:.3g} to {estimate.high:.3g})"


def _word(text: str, otherwise: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-") or otherwise


def _instant(at_ns: int) -> str:
    moment = np.datetime64(max(0, at_ns) // 1_000_000_000, "s")
    return f"{moment}Z"


def round_ns(duration_ns: int) -> int:
    """Return a length of time in whole seconds from a minute on, else in whole milliseconds."""
    unit = 1_000_000_000 if duration_ns >= 60_000_000_000 else 1_000_000
    return -(-duration_ns // unit) * unit


def _line(name: str, part: Arrivals | Draw | Retry) -> str:
    """Return a field of a client group, without what stands at its default; a step is a line."""
    values = {
        key: value
        for parameter, (key, value) in zip(
            dataclasses.fields(part), to_plain(part).items(), strict=True
        )
        if parameter.name in _ALWAYS or getattr(part, parameter.name) != parameter.default
    }
    text = to_toml({"clients": {name: values}}).splitlines()[1]
    if isinstance(part, StepArrivals):
        text = text.replace("[{", "[\n    {").replace("}, {", "},\n    {").replace("}]", "},\n]")
    return text
