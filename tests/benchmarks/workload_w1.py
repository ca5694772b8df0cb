"""Workload W1: open-loop traffic that meets nearly every row of the limit table, from a seed.

5,000 keys (Zipf 1.1) of three application kinds, a quarter of the tenants test tenants, a tenth
of the keys legacy, 2,000 IPs, seven resources, 2,004 requests a virtual second. Of 10^6 requests
each meets three to six counters, 3.98 on average, of 77 228 in 84 classes; 35.5 % are refused, and
12 of 15 rules bind: all but the two of proxies and LIM-PRIVATE's by IP, which LIM-IP masks. A key
comes mostly from one IP and asks mostly for one resource; some IPs are shared by many keys, and
the busiest key is a farm of machines.

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
    ("POST", "/detokenize"),
    ("POST", "/tokenize"),
    ("GET", "/tokens"),
    ("POST", "/tokens/search"),
    ("PATCH", "/tokens/6f2c"),
    ("POST", "/account-updater/jobs"),
    ("DELETE", "/tokens/6f2c"),
)
KINDS: Final[tuple[ApplicationKind, ...]] = ("private", "public", "management")
PERIOD_NS: Final = 499_000
"""Mean time between two requests: 10^6 of them take 499 s."""

_KIND_PATTERN: Final = (0, 0, 0, 1, 0, 2)
_FARM: Final = range(16, 46)
_OFFICE: Final = 0


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
    numbers = np.arange(KEYS)
    kind = np.array(_KIND_PATTERN)[numbers % len(_KIND_PATTERN)]
    homes = _homes(chance, kind)
    home = chance.choice(4, requests, p=(0.6, 0.2, 0.15, 0.05))
    favourite = (chance.random(requests) < 0.55) & (key > 0)
    elsewhere = chance.integers(0, len(RESOURCES), requests)
    gaps_ns = chance.exponential(PERIOD_NS, requests)
    machine = chance.integers(_FARM.start, _FARM.stop, requests)
    return Workload(
        t_ns=np.cumsum(gaps_ns).astype(np.int64),
        key=key.astype(np.int32),
        ip=np.where(key == 0, machine, homes[key, home]).astype(np.int32),
        resource=np.where(favourite, key % len(RESOURCES), elsewhere).astype(np.int8),
        key_kind=kind.astype(np.int8),
        key_is_test=numbers // 6 % 4 == 2,
        key_is_legacy=numbers % 10 == (numbers // 10 + 9) % 10,
    )


def _homes(chance: np.random.Generator, kind: NDArray[np.int64]) -> NDArray[np.int64]:
    """Draw each key's four IPs: a third of them are among thirty shared ones, some much."""
    shape = (KEYS, 4)
    shared = (30 * chance.random(shape) ** 2).astype(np.int64)
    alone = chance.integers(0, IPS, shape)
    homes = np.where(chance.random(shape) < 0.3, shared, alone)
    homes[1:12] = np.arange(5, 16)[:, None]  # some busy keys come from one place each,
    numbers = np.arange(KEYS)
    office = (numbers >= 12) & (numbers < 70) & (kind == 0) & (numbers % 2 == 0)
    homes[office] = _OFFICE  # and many private ones from one office
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
