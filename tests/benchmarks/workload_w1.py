"""Workload W1: open-loop traffic that meets nearly every row of the limit table, from a seed.

5 000 keys (Zipf 1.1) of three application kinds, a quarter of the tenants test tenants, a tenth
of the keys legacy, 2 000 IPs, seven resources, 2 004 requests a virtual second: two to six
counters a request, about a third refused, and all rows bind but the two of proxies. A key comes
mostly from one IP and asks mostly for one resource; some IPs are shared by many keys.

Columns are arrays of small integers, so that a compiled contestant can read them as they are;
`subjects` makes the engine's records of them.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.limits import Subject
from engine.model import ApplicationKind, TenantKind

KEYS: Final = 5_000
IPS: Final = 2_000
RESOURCES: Final = (
    ("GET", "/reactors"),
    ("POST", "/tokenize"),
    ("GET", "/tokens"),
    ("POST", "/tokens/search"),
    ("PATCH", "/tokens/6f2c"),
    ("POST", "/account-updater/jobs"),
    ("DELETE", "/tokens/6f2c"),
)
KINDS: Final[tuple[ApplicationKind, ...]] = ("private", "private", "public", "management")
PERIOD_NS: Final = 499_000
"""Mean time between two requests: 10^6 of them take 499 s."""


@dataclass(frozen=True)
class Workload:
    """W1 in columns: a row a request, in order of time; `key` columns index by key."""

    t_ns: NDArray[np.int64]
    key: NDArray[np.int32]
    ip: NDArray[np.int32]
    resource: NDArray[np.int8]
    key_kind: NDArray[np.int8]
    key_is_test: NDArray[np.bool_]
    key_is_legacy: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.t_ns)


def w1(requests: int, seed: int = 1) -> Workload:
    """Return W1 with so many requests; the same seed gives the same workload."""
    chance = np.random.Generator(np.random.Philox(seed))
    weights = 1.0 / np.arange(1, KEYS + 1) ** 1.1
    key = chance.choice(KEYS, requests, p=weights / weights.sum())
    homes = _homes(chance)
    home = chance.choice(4, requests, p=(0.6, 0.2, 0.15, 0.05))
    favourite = chance.random(requests) < 0.75
    elsewhere = chance.integers(0, len(RESOURCES), requests)
    gaps_ns = chance.exponential(PERIOD_NS, requests)
    numbers = np.arange(KEYS)
    return Workload(
        t_ns=np.cumsum(gaps_ns).astype(np.int64),
        key=key.astype(np.int32),
        ip=homes[key, home].astype(np.int32),
        resource=np.where(favourite, key % len(RESOURCES), elsewhere).astype(np.int8),
        key_kind=(numbers % len(KINDS)).astype(np.int8),
        key_is_test=numbers // 4 % 4 == 2,
        key_is_legacy=numbers % 10 == 9,
    )


def _homes(chance: np.random.Generator) -> NDArray[np.int64]:
    """Draw each key's four IPs: a third of them are among thirty shared ones, some much."""
    shape = (KEYS, 4)
    shared = (30 * chance.random(shape) ** 2).astype(np.int64)
    alone = chance.integers(0, IPS, shape)
    homes = np.where(chance.random(shape) < 0.3, shared, alone)
    homes[0] = (1, 2, 3, 4)  # the busiest key comes from several places,
    homes[1:12] = np.arange(5, 16)[:, None]  # some busy ones from one place each,
    homes[12:300:4] = 0  # and many private keys from one office
    return homes


def subjects(workload: Workload) -> list[Subject]:
    """Return a subject a request, as a service makes them."""
    kinds: tuple[TenantKind, TenantKind] = ("production", "test")
    names = [f"key-{number:04d}" for number in range(KEYS)]
    addresses = [f"10.{number >> 8}.{number & 255}.1" for number in range(IPS)]
    found = []
    columns = (workload.key.tolist(), workload.ip.tolist(), workload.resource.tolist())
    for key, ip, resource in zip(*columns, strict=True):
        method, path = RESOURCES[resource]
        found.append(
            Subject(
                method,
                path,
                addresses[ip],
                key_id=names[key],
                tenant_kind=kinds[int(workload.key_is_test[key])],
                application_kind=KINDS[workload.key_kind[key]],
                legacy=bool(workload.key_is_legacy[key]),
            )
        )
    return found
