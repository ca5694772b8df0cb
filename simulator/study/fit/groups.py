"""Client groups: by application where the log tells, then by behaviour.

Clients of one application are a mixture of groups. In each group a client's number of requests is
negative binomial, and each kind of request has a fixed share. The Bayesian information criterion
chooses the number of groups. The search starts with one group and splits one group at a time: at
the widest gap or the middle of the clients' numbers of requests, or by the kind of request that
separates the clients best. It draws nothing at random.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from simulator.quantiles import log_gamma
from simulator.rows.record import Numbers
from simulator.study.fit.observed import Observed
from simulator.study.fit.series import Floats

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


@dataclass(slots=True)
class _Group:
    """What clients of one group have in common."""

    weight: float
    mean: float
    shape: float
    log_mix: Floats

    def log_likelihood(self, totals: Floats, mix: Floats) -> Floats:
        """Return each client's log-likelihood. mix: its requests by kind, weighted as evidence."""
        shape, mean = self.shape, self.mean
        count = (
            log_gamma(totals + shape)
            - math.lgamma(shape)
            - log_gamma(totals + 1)
            + shape * np.log(shape / (shape + mean))
            + totals * np.log(mean / (shape + mean))
        )
        return np.asarray(np.log(self.weight) + count + mix @ self.log_mix)


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
        groups = [_group_of(column, totals, mix) for column in parts.T if column.sum() >= 0.5]
        logs = np.column_stack([group.log_likelihood(totals, mix) for group in groups])
        top = logs.max(axis=1, keepdims=True)
        parts = np.exp(logs - top)
        sums = parts.sum(axis=1, keepdims=True)
        parts /= sums
        now = float((top + np.log(sums)).sum())
        if now - score < 1e-4 * max(1.0, abs(now)) / 100:
            score = now
            break
        score = now
    parameters = parts.shape[1] * (2 + _kinds(mix)) - 1
    return parts, 2 * score - parameters * float(np.log(len(totals) + 1))


def _kinds(mix: Floats) -> int:
    return int((mix.sum(axis=0) > 0).sum())


def _group_of(part: Floats, totals: Floats, mix: Floats) -> _Group:
    """Return a group's parameters; each client is weighted by its membership probability."""
    weight = float(part.sum())
    mean = float(part @ totals) / weight
    variance = float(part @ (totals - mean) ** 2) / max(weight - 1, 1.0)
    shape = mean * mean / (variance - mean) if variance > mean * 1.0001 else _LARGEST_SHAPE
    shares = part @ mix + 0.5 * (mix.sum(axis=0) > 0)
    with np.errstate(divide="ignore"):
        log_mix = np.log(shares / shares.sum())
    log_mix[~np.isfinite(log_mix)] = -700.0
    return _Group(weight / len(part), max(mean, 1e-9), min(shape, _LARGEST_SHAPE), log_mix)
