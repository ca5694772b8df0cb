"""What a log shows: its requests in order of time, who sent each, and whether it was refused.

The log is read once, and its rows wait in an `ExternalSort`, as those of a replay do. Paths are
read as templates: what looks like an identifier becomes `{id}`, a query is dropped. So memory
follows the clients and their kinds of requests, and not the lines.

A *client* is what the log's `client` column tells apart; without one it is a key at an address.
Whether a request was refused is its status 429, or the `outcome` of a run's own rows.

Clients form groups: by application where the log tells, then by behaviour. Clients of one
application are a mixture of groups. In each group a client's number of requests is negative
binomial, and each kind of request has a fixed share. The Bayesian information criterion chooses the
number of groups. The search starts with one group and splits one group at a time: at the widest gap
or the middle of the clients' numbers of requests, or by the kind of request that separates the
clients best. It draws nothing at random.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.errors import InputError
from engine.files import format_duration
from engine.limits import Classifier, LimitTable
from simulator.logs import LogStream, stream_log
from simulator.logs.arrivals import Arrivals, make_arrivals
from simulator.logs.parties import LogCallers
from simulator.options import FitOptions
from simulator.quantiles import log_gamma
from simulator.rows.record import Numbers, distinct

Floats = npt.NDArray[np.float64]

_EXTRA: Final = {
    "status": (
        "status",
        "statuscode",
        "httpstatus",
        "scstatus",
        "responsestatus",
        "code",
    ),
    "outcome": ("outcome",),
    "attempt": ("attempt",),
    "client": ("client", "clientid"),
    "tenant": ("tenant",),
    "application": ("application", "app", "applicationname"),
}
_REFUSALS: Final = frozenset({"refused", "blocked"})
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
_ID: Final = re.compile(
    r"[0-9]+|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{12,}"
    r"|(?=[^/]*[0-9])[A-Za-z0-9_-]{20,}"
)
_UPLOAD: Final = re.compile(r"/batch-files/.*")
_PLAIN_PATH: Final = re.compile(r"(?:/[A-Za-z0-9._~{}%+@:,;=&!$'()*-]*)+")
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_LONGEST_PATH: Final = 80
_KINDS: Final = 24
"""The most kinds of requests kept apart; rarer ones join the commonest under the same limits."""

UNKNOWN: Final = -1
PROXIED: Final = "/proxied"
"""In the place of `/proxy`: a scenario must name the proxy, which a log does not."""
MOST_ATTEMPTS: Final = 32
"""The most attempts of one request that are distinguished."""


@dataclass(slots=True)
class Observed:
    """A log that was read. A party is a number into all of its columns.

    counts: each party's requests. client: each party's client, from 0. request: each party's kind
    of request, into `requests`. refused: whether each party's requests were refused: 1 yes, 0 no,
    −1 unknown. attempt: which attempt they were, 0 where the log does not tell.
    limit_class: of each kind of request, equal for those that the limits treat alike. merged: how
    many kinds of requests were too rare to be kept apart. says: what the log tells beside time,
    address, method and path. tick_ns: the step of its clock.
    """

    log: LogStream
    span_ns: int
    arrivals: Arrivals
    counts: Numbers
    client: Numbers
    clients: int
    request: Numbers
    requests: list[str]
    limit_class: Numbers
    refused: Numbers
    attempt: Numbers
    fields: frozenset[str]
    tick_ns: int
    merged: int = 0

    @property
    def parties(self) -> LogCallers:
        """Who asks for what, by names."""
        return self.arrivals.parties


def observe(options: FitOptions, folder: Path) -> Observed:
    """Read a log to its end. folder: for what does not stay in memory.

    Raises `InputError` when it cannot be read, or has too little to be fitted.
    """
    log = stream_log(
        options.source,
        **options.reading,
        extra=_EXTRA,
        changes=_CHANGES,
    )
    arrivals = make_arrivals(
        log,
        kind=options.kind,
        tenant_kind=options.tenant_kind,
        speed=Fraction(1),
        prefix_bits=options.read_profile.http.ipv6_prefix_bits,
        folder=folder,
    )
    try:
        return _observed(log, arrivals, options.table)
    except BaseException:
        arrivals.close()
        raise


def _observed(log: LogStream, arrivals: Arrivals, table: LimitTable) -> Observed:
    parties, span_ns = arrivals.parties, arrivals.end_ns - arrivals.start_ns
    _refuse_little(log.name, len(arrivals), span_ns)
    tick_ns, counts = arrivals.start_ns, np.zeros(len(parties), dtype=np.int64)
    for t_ns, party in arrivals.blocks():
        tick_ns = int(np.gcd.reduce(t_ns, initial=tick_ns))
        counts += np.bincount(party, minlength=len(counts))
    client = parties.others.get("client")
    who = [parties.key.codes, parties.ip.codes] if client is None else [client.codes]
    numbers, first = distinct(who)
    requests, request, classes, merged = _kinds_of(parties, table, counts)
    outcome = _codes_of(parties, "outcome", UNKNOWN)
    fields = {name for name, texts in log.names.items() if any(texts)}
    return Observed(
        log=log,
        span_ns=span_ns + max(1, tick_ns),
        arrivals=arrivals,
        counts=counts,
        client=numbers,
        clients=len(first),
        request=request,
        requests=requests,
        limit_class=classes,
        refused=np.where(outcome == UNKNOWN, _codes_of(parties, "status", UNKNOWN), outcome),
        attempt=_codes_of(parties, "attempt", 0),
        fields=frozenset(fields),
        tick_ns=max(1, tick_ns),
        merged=merged,
    )


def _codes_of(parties: LogCallers, name: str, unknown: int) -> Numbers:
    """Return the number that each party's text of a target stands for (`_CHANGES`)."""
    column = parties.others.get(name)
    if column is None:
        return np.full(len(parties), unknown, dtype=np.int64)
    numbers = [int(text) if text.isdigit() else unknown for text in column.texts]
    return np.array([*numbers, unknown], dtype=np.int64)[column.codes]


def _refuse_little(name: str, rows: int, span_ns: int) -> None:
    if rows < _FEWEST:
        raise InputError(
            f"log = '{name}' must hold at least {_FEWEST} requests to be fitted; it has {rows}, "
            "take a longer one"
        )
    if span_ns < _SHORTEST_NS:
        raise InputError(
            f"log = '{name}' must span at least {format_duration(_SHORTEST_NS)} to be fitted; all "
            f"its times lie within {format_duration(max(span_ns, 1))}"
        )


_FEWEST: Final = 20
_SHORTEST_NS: Final = 5_000_000_000


def template_of(path: str) -> str:
    """Return a path without its query, identifiers as `{id}`, in a form that a scenario can say.

    >>> template_of("/tokens/3f2a9c1d-0000-4000-8000-000000000000?size=3")
    '/tokens/{id}'
    """
    plain = path.partition("?")[0].partition("#")[0]
    if plain == "/proxy" or plain.startswith("/proxy/"):
        plain = PROXIED + plain.removeprefix("/proxy")
    if _UPLOAD.fullmatch(plain):
        return "/batch-files/{id}"
    text = "/".join("{id}" if _ID.fullmatch(part) else part for part in plain.split("/"))
    if len(text) <= _LONGEST_PATH and _PLAIN_PATH.fullmatch(text):
        return text
    parts: list[str] = []
    for part in text.split("/")[1:3]:
        if not _PLAIN_PATH.fullmatch("/" + part) or len(part) > _LONGEST_PATH // 2:
            break
        parts.append(part)
    return "/" + "/".join([*parts, "other"])


def _by_status(text: str) -> str:
    return str(int(text[:3] == "429")) if text[:3].isdigit() else _unclear(text)


def _by_outcome(text: str) -> str:
    return str(int(text in _REFUSALS)) if text else ""


def _attempt(text: str) -> str:
    return str(min(int(text), MOST_ATTEMPTS)) if _NUMBER.fullmatch(text) else _unclear(text)


def _unclear(text: str) -> str:
    return text and "?"


_CHANGES: Final[Mapping[str, Callable[[str], str]]] = {
    "path": template_of,
    "status": _by_status,
    "outcome": _by_outcome,
    "attempt": _attempt,
}
"""What becomes of a log's texts: whether a request was refused is 1 or 0, `?` is unclear."""


def _kinds_of(
    parties: LogCallers, table: LimitTable, counts: Numbers
) -> tuple[list[str], Numbers, Numbers, int]:
    """Return the kinds of requests, each party's, what limits treat alike, and how many merged."""
    classifier = Classifier(pattern for rule in table for pattern in rule.match.resource)
    pair, first = distinct([parties.method.codes, parties.path.codes])
    texts, classes = [], []
    for place in first.tolist():
        method, path = parties.method.name(place) or "", parties.path.name(place) or "/"
        method = method if method in _METHODS else "OPTIONS"
        texts.append(f"{method} {path}")
        classes.append((method, classifier.group(method, path)))
    weights = np.bincount(pair, counts, minlength=len(first))
    numbers: dict[str, int] = {}
    number_of_alike: dict[tuple[str, int], int] = {}
    to = np.zeros(len(first), dtype=np.int64)
    merged = 0
    for place in np.argsort(-weights, kind="stable").tolist():
        text, alike = texts[place], classes[place]
        if text not in numbers and len(numbers) >= _KINDS and alike in number_of_alike:
            to[place] = number_of_alike[alike]
            merged += 1
            continue
        to[place] = numbers.setdefault(text, len(numbers))
        number_of_alike.setdefault(alike, int(to[place]))
    places = {text: place for place, text in reversed(list(enumerate(texts)))}
    alike_numbers: dict[tuple[str, int], int] = {}
    limit_class = [
        alike_numbers.setdefault(classes[places[text]], len(alike_numbers)) for text in numbers
    ]
    return list(numbers), to[pair], np.array(limit_class, dtype=np.int64), merged


# --- groups of clients ---------------------------------------------------------------------------

_MOST_GROUPS: Final = 6
"""The most groups of one application."""
_ROUNDS: Final = 40
_EVIDENCE: Final = 60.0
"""The most requests of a client that count as evidence of its mix: they are not independent."""
_LARGEST_SHAPE: Final = 1e4
_GAIN: Final = 6.0
"""The least improvement of the criterion that justifies another group."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """Which client belongs to which group.

    of_client: the group of each client, −1 of one without requests. owner: of each group, its place
    in the log's owners. sure: the mean probability with which clients of a group belong to it.
    """

    of_client: Numbers
    owner: list[int]
    sure: list[float]


def group_clients(observed: Observed, counts: Numbers) -> Grouping:
    """Assign clients to groups. counts: first attempts of each party in the fitted window."""
    owner_of = _owner_of_clients(observed, counts)
    classes = observed.limit_class[observed.request]
    per_class = np.zeros((observed.clients, int(observed.limit_class.max()) + 1))
    np.add.at(per_class, (observed.client, classes), counts)
    of_client = np.full(observed.clients, -1, dtype=np.int64)
    owners: list[int] = []
    sure: list[float] = []
    met = per_class.sum(axis=1) > 0
    for owner in np.unique(owner_of[met]).tolist():
        clients = np.flatnonzero(met & (owner_of == owner))
        parts = _mixture(per_class[clients])
        best = parts.argmax(axis=1)
        used = [group for group in range(parts.shape[1]) if (best == group).any()]
        used.sort(key=lambda group: -float(per_class[clients[best == group]].sum()))
        for group in used:
            of_client[clients[best == group]] = len(owners)
            sure.append(float(parts[best == group, group].mean()))
            owners.append(owner)
    return Grouping(of_client, owners, sure)


def _owner_of_clients(observed: Observed, counts: Numbers) -> Numbers:
    """Return the owner of the key that each client uses most."""
    owners = len(observed.parties.owners)
    weights = np.zeros((observed.clients, owners), dtype=np.int64)
    np.add.at(weights, (observed.client, observed.parties.owner), counts)
    return np.asarray(weights.argmax(axis=1))


def _mixture(per_class: Floats) -> Floats:
    """Return the probability that each client belongs to each group."""
    totals = per_class.sum(axis=1)
    mix = per_class * np.minimum(1.0, _EVIDENCE / totals)[:, None]
    clients = len(totals)
    best = _settled(np.ones((clients, 1)), totals, mix)
    while best[0].shape[1] < min(_MOST_GROUPS, clients):
        tries = [
            _settled(start, totals, mix)
            for group in range(best[0].shape[1])
            for start in _splits(best[0], group, totals, mix)
        ]
        better = max(tries, key=lambda division: division[1], default=best)
        if better[1] < best[1] + _GAIN:
            break
        best = better
    return best[0]


def _splits(parts: Floats, group: int, totals: Floats, mix: Floats) -> list[Floats]:
    """Return some ways to divide one group in two."""
    members = np.flatnonzero(parts.argmax(axis=1) == group)
    if len(members) < 2:
        return []
    logs = np.log(totals[members])
    order = np.sort(logs)
    gaps = np.diff(order)
    shares = (mix[members] + 0.5) / (mix[members] + 0.5).sum(axis=1, keepdims=True)
    widest = shares[:, int(shares.var(axis=0).argmax())]
    cuts = [
        (logs, float(order[gaps.argmax()] + gaps.max() / 2)),
        (logs, float(np.median(logs))),
        (widest, float((widest.min() + widest.max()) / 2)),
    ]
    splits = []
    for values, cut in cuts:
        above = values > cut
        if above.any() and not above.all():
            split = np.column_stack([parts, np.zeros(len(parts))])
            split[members[above], -1] = split[members[above], group]
            split[members[above], group] = 0.0
            splits.append(split)
    return splits


def _settled(parts: Floats, totals: Floats, mix: Floats) -> tuple[Floats, float]:
    """Return the groups to which a first division converges, and their information criterion."""
    score = -np.inf
    for _ in range(_ROUNDS):
        logs = np.column_stack(
            [_log_likelihood(part, totals, mix) for part in parts.T if part.sum() >= 0.5]
        )
        top = logs.max(axis=1, keepdims=True)
        parts = np.exp(logs - top)
        sums = parts.sum(axis=1, keepdims=True)
        parts /= sums
        now = float((top + np.log(sums)).sum())
        if now - score < 1e-4 * max(1.0, abs(now)) / 100:
            score = now
            break
        score = now
    kinds = int((mix.sum(axis=0) > 0).sum())
    parameters = parts.shape[1] * (2 + kinds) - 1
    return parts, 2 * score - parameters * float(np.log(len(totals) + 1))


def _log_likelihood(part: Floats, totals: Floats, mix: Floats) -> Floats:
    """Return each client's log-likelihood in a group. part: how probably each belongs to it.

    mix: requests of each client by kind, weighted as evidence.
    """
    weight = float(part.sum())
    mean = float(part @ totals) / weight
    variance = float(part @ (totals - mean) ** 2) / max(weight - 1, 1.0)
    shape = mean * mean / (variance - mean) if variance > mean * 1.0001 else _LARGEST_SHAPE
    mean, shape = max(mean, 1e-9), min(shape, _LARGEST_SHAPE)
    count = (
        log_gamma(totals + shape)
        - math.lgamma(shape)
        - log_gamma(totals + 1)
        + shape * np.log(shape / (shape + mean))
        + totals * np.log(mean / (shape + mean))
    )
    return np.asarray(np.log(weight / len(part)) + count + mix @ _log_mix(part, mix))


def _log_mix(part: Floats, mix: Floats) -> Floats:
    """Return the logarithm of the share of each kind of request in a group."""
    shares = part @ mix + 0.5 * (mix.sum(axis=0) > 0)
    with np.errstate(divide="ignore"):
        log_mix = np.log(shares / shares.sum())
    log_mix[~np.isfinite(log_mix)] = -700.0
    return np.asarray(log_mix)
