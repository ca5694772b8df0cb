"""Seed 8.2 to 8.7: every row of the limit table, measured from outside.

One check a row. What it may not be (a refusal too early, more than the rate, a wrong counter, a
block too short) fails the row's clause; how the deployment counts is a reading.
"""

from __future__ import annotations

from typing import Final

from conformance.bench import Bench
from conformance.exchanges import Ask, KeyLabel
from conformance.probes.asking import SECOND_NS, Counter
from conformance.probes.playing import (
    LONG_NS,
    Played,
    play_block,
    play_block_row,
    play_throttle_row,
    play_window,
)
from conformance.probes.rows import ROWS, Row, rate_of, spare_sources
from conformance.probes.saying import own_probes, row_findings
from conformance.registry import Inconclusive, check
from conformance.verdicts import Finding

__all__: list[str] = []

_ACCEPTS: Final = (
    "no refusal that fewer admissions than the rate excuse, no more than the rate in any window "
    "unless a fixed window or a bucket of that rate would admit as many, and the row's counter"
)
_STAGGER_NS: Final = 2 * SECOND_NS


async def _staggered(bench: Bench, name: str) -> None:
    """Begin at an instant that no window begins at."""
    lane = bench.lane(f"{name} start")
    await lane.sleep_ns(bench.random("start").randrange(_STAGGER_NS))


async def _throttle_row(bench: Bench, rule_id: str) -> list[Finding]:
    row = ROWS[rule_id]
    rule, rate = rate_of(bench, rule_id)
    key = None if row.role is None else bench.key(row.role)
    if rate.window_ns < LONG_NS:
        await _staggered(bench, rule_id)
    counter = Counter(
        bench, rule_id, row.asker(bench, row.operation, key=key, sources=bench.sources)
    )
    probes = row.probes(bench, rule, key, bench.sources)
    played = await play_throttle_row(counter, rate, probes, own_probes(rule))
    await _check_failures_count(bench, row, key, counter)
    return list(row_findings(bench, rule_id, row, rule, [played]))


async def _check_failures_count(
    bench: Bench, row: Row, key: KeyLabel | None, counter: Counter
) -> None:
    """Raise `Inconclusive` where nothing was refused because failed requests do not count.

    Where only successes count (D-COUNTED) a row whose requests are answered 4xx here meets no
    limit. Invalid searches show it: more of them than any row allows.
    """
    calm = counter.exchanges()[0].status or 0
    seen = [one for cluster in counter.clusters() for one in cluster]
    if any(one.outcome == "refused" or one.is_late for one in seen) or not 400 <= calm < 500:
        return
    labels = [key] if row.role in {"private_prod", "legacy"} else []
    labels += bench.target.labels("private_no_permission")
    rate = next((rule for rule in bench.limits if rule.id == "LIM-SEARCH"), None)
    if not labels or rate is None:
        return
    method, path, _ = bench.shaped("search")
    invalid = Ask(method=method, path=path, body=[], key=labels[0], source=bench.sources[0])
    failing = Counter(bench, f"{row.rule_id} failing", lambda _: invalid)
    burst = await failing.send("failing", rate.limit_requests * 2)
    if not any(one.refused for one in burst.exchanges):
        raise Inconclusive(
            f"{row.rule_id}'s requests are answered {calm} and failures seem not to count: "
            "give the key the right to them"
        )


async def _block_row(bench: Bench, rule_id: str) -> list[Finding]:
    row = ROWS[rule_id]
    rule, rate = rate_of(bench, rule_id)
    key = None if row.role is None else bench.key(row.role)
    counter = Counter(
        bench, rule_id, row.asker(bench, row.operation, key=key, sources=bench.sources)
    )
    probes = row.probes(bench, rule, key, bench.sources)
    own = own_probes(rule)
    if rule.counter == "ip":
        # The preflight has asked from this address: let its requests leave the window first.
        await bench.lane("quiet").sleep_ns(rate.window_ns + SECOND_NS)
    played: list[Played]
    if rate.block_ns > rate.window_ns:
        played = [await play_block_row(counter, rate, probes, own)]
    elif rate.block_ns == rate.window_ns or row.role is None:
        played = [await play_block(counter, rate, probes, own)]
    else:
        apart = spare_sources(bench, 1, after=1) or bench.sources
        second = row.asker(bench, row.operation, key=bench.key(row.role, 2), sources=apart)
        quiet = Counter(bench, f"{rule_id} window", second)
        played = await bench.gather(
            [play_block(counter, rate, probes, own), play_window(quiet, rate)]
        )
    return list(row_findings(bench, rule_id, row, rule, played))


@check(
    "limits.LIM-TEST-TENANT",
    "LIM-TEST-TENANT",
    accepts=_ACCEPTS,
    roles=("private_test", "private_test"),
    sources=1,
    requests=200,
    takes_ns=16 * SECOND_NS,
    is_probe=True,
)
async def test_tenant(bench: Bench) -> list[Finding]:
    """A test tenant's key is limited to 50 per 10 s at one address, whatever it asks."""
    return await _throttle_row(bench, "LIM-TEST-TENANT")


@check(
    "limits.LIM-SEARCH",
    "LIM-SEARCH",
    accepts=_ACCEPTS,
    roles=("private_prod",),
    sources=1,
    requests=200,
    takes_ns=16 * SECOND_NS,
    is_probe=True,
)
async def search(bench: Bench) -> list[Finding]:
    """A search is limited to 50 per 10 s for a key at one address."""
    return await _throttle_row(bench, "LIM-SEARCH")


@check(
    "limits.LIM-READ",
    "LIM-READ",
    accepts=_ACCEPTS,
    roles=("private_prod",),
    sources=1,
    requests=350,
    takes_ns=16 * SECOND_NS,
    is_probe=True,
)
async def read(bench: Bench) -> list[Finding]:
    """Listing tokens and detokenizing share 100 per 10 s for a key at one address."""
    return await _throttle_row(bench, "LIM-READ")


@check(
    "limits.LIM-CREATE",
    "LIM-CREATE",
    accepts=_ACCEPTS,
    roles=("private_prod",),
    sources=1,
    requests=700,
    takes_ns=16 * SECOND_NS,
    is_probe=True,
)
async def create(bench: Bench) -> list[Finding]:
    """POST /tokens and /tokenize share 200 per 10 s for a key at one address."""
    return await _throttle_row(bench, "LIM-CREATE")


@check(
    "limits.LIM-PATCH",
    "LIM-PATCH",
    accepts=_ACCEPTS,
    roles=("private_prod",),
    sources=1,
    requests=700,
    takes_ns=16 * SECOND_NS,
    is_probe=True,
)
async def patch(bench: Bench) -> list[Finding]:
    """Patching tokens is limited to 200 per 10 s for a key at one address, all ids together."""
    return await _throttle_row(bench, "LIM-PATCH")


@check(
    "limits.LIM-DELETE",
    "LIM-DELETE",
    accepts=_ACCEPTS,
    roles=("private_prod",),
    sources=1,
    requests=700,
    takes_ns=16 * SECOND_NS,
    is_probe=True,
)
async def delete(bench: Bench) -> list[Finding]:
    """Deleting tokens is limited to 200 per 10 s for a key at one address, all ids together."""
    return await _throttle_row(bench, "LIM-DELETE")


@check(
    "limits.LIM-ACCOUNT-UPDATER",
    "LIM-ACCOUNT-UPDATER",
    accepts=_ACCEPTS,
    roles=("legacy",),
    sources=1,
    requests=70,
    takes_ns=16 * SECOND_NS,
    is_probe=True,
)
async def account_updater(bench: Bench) -> list[Finding]:
    """The account updater is limited to 10 per 10 s for a key at one address."""
    return await _throttle_row(bench, "LIM-ACCOUNT-UPDATER")


@check(
    "limits.LIM-PRIVATE",
    "LIM-PRIVATE",
    accepts=_ACCEPTS,
    roles=("private_prod",),
    sources=2,
    requests=3_200,
    takes_ns=16 * SECOND_NS,
    is_probe=True,
)
async def private(bench: Bench) -> list[Finding]:
    """A private application's key is limited to 2000 per 10 s, from all addresses together."""
    return await _throttle_row(bench, "LIM-PRIVATE")


@check(
    "limits.LIM-PUBLIC",
    "LIM-PUBLIC",
    accepts=_ACCEPTS + "; every request of the block's time is refused, and room after it is given",
    roles=("public", "public", "public"),
    sources=1,
    requests=180,
    takes_ns=61 * SECOND_NS,
    is_probe=True,
)
async def public(bench: Bench) -> list[Finding]:
    """A public application's key is limited to 50 per minute at one address, then blocked 10 s."""
    return await _block_row(bench, "LIM-PUBLIC")


@check(
    "limits.LIM-MANAGEMENT",
    "LIM-MANAGEMENT",
    accepts=_ACCEPTS + "; every request of the block's time is refused, and room after it is given",
    roles=("management", "management"),
    sources=1,
    requests=260,
    takes_ns=61 * SECOND_NS,
    is_probe=True,
)
async def management(bench: Bench) -> list[Finding]:
    """A management application's key is limited to 200 per minute, then blocked for a minute."""
    return await _block_row(bench, "LIM-MANAGEMENT")


@check(
    "limits.LIM-PROXY-KEY",
    "LIM-PROXY-KEY",
    accepts=_ACCEPTS,
    roles=("proxy_key", "proxy_key"),
    sources=1,
    requests=200,
    takes_ns=16 * SECOND_NS,
    is_probe=True,
)
async def proxy_key(bench: Bench) -> list[Finding]:
    """A proxy named by its key is limited to 50 per 10 s at one address."""
    return await _throttle_row(bench, "LIM-PROXY-KEY")


@check(
    "limits.LIM-PROXY-HOST",
    "LIM-PROXY-HOST",
    accepts=_ACCEPTS,
    roles=("custom_hostname", "custom_hostname"),
    sources=1,
    requests=200,
    takes_ns=16 * SECOND_NS,
    is_probe=True,
)
async def proxy_host(bench: Bench) -> list[Finding]:
    """A proxy named by a custom hostname is limited to 50 per 10 s at one address."""
    return await _throttle_row(bench, "LIM-PROXY-HOST")


@check(
    "limits.LIM-IP",
    "LIM-IP",
    accepts=_ACCEPTS + "; every request of the block's time is refused, and room after it is given",
    sources=1,
    requests=3_100,
    takes_ns=57 * SECOND_NS,
    is_probe=True,
)
async def ip(bench: Bench) -> list[Finding]:
    """An address is limited to 2000 per 10 s, whatever it asks, then blocked for 30 s."""
    return await _block_row(bench, "LIM-IP")


@check(
    "limits.LIM-LEGACY",
    "LIM-LEGACY",
    accepts=_ACCEPTS,
    roles=("legacy", "legacy"),
    sources=1,
    requests=360,
    takes_ns=61 * SECOND_NS,
    is_probe=True,
)
async def legacy(bench: Bench) -> list[Finding]:
    """A legacy key is limited to 100 per minute at one address."""
    return await _throttle_row(bench, "LIM-LEGACY")
