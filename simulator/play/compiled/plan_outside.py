"""What a mix needs of the outside, as rows: proxies and reactors, their pools, jobs' uploads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.limits import Subject
from engine.profile import OutsideProfile, Profile
from simulator.play.compiled import layout as at
from simulator.play.coroutines import REQUEST, RESPONSE
from simulator.scenario import Scenario
from simulator.scenario.clients import Ask
from simulator.scenario.draws import Draw
from simulator.scenario.model import Proxy, Reactor

__all__ = ["Outside", "clock_of", "is_job", "proxy_of", "upload_subject"]

_JOBS: Final = "POST /account-updater/jobs"
_UPLOAD: Final = "/batch-files/{id}"


def is_job(ask: Ask) -> bool:
    """Whether what is asked for is followed by an upload."""
    return ask.request.partition("?")[0] == _JOBS


def upload_subject(ip: str) -> Subject:
    """Return the subject of the upload of a job's file: no key, an address."""
    return Subject("PUT", _UPLOAD, ip)


def proxy_of(scenario: Scenario, ask: Ask) -> Proxy | None:
    """Return the proxy that is asked for."""
    return next((proxy for proxy in scenario.proxies if proxy.name == ask.proxy), None)


def clock_of(profile: Profile, clock: list[int]) -> None:
    """Write what the profile says of the outside into the run's numbers."""
    outside = profile.outside
    clock[at.CALL_TIMEOUT] = outside.destination_timeout_ns
    clock[at.CODE_TIMEOUT] = outside.reactor_timeout_ns
    clock[at.TIMEOUT_STATUS] = outside.reactor_timeout_status
    clock[at.COLD_START] = outside.cold_start_ns
    clock[at.KEEP_HOT] = outside.keep_hot_ns
    clock[at.INSTANCES] = at.NONE if outside.instances_cap is None else outside.instances_cap


class Outside:
    """The rows of what is behind a scenario's proxies and reactors, and of mixes' entries.

    draw, table: put a distribution, or floats, where the loop finds them, and say where. behind,
    pools, entries: the rows. An entry's streams are numbered from 0 within its group; `purposes`
    names them, None where nothing is drawn.
    """

    def __init__(
        self,
        scenario: Scenario,
        profile: Profile,
        draw: Callable[[Draw], int],
        table: Callable[[list[float]], int],
    ) -> None:
        self.behind: list[list[int]] = []
        self.pools: list[list[int]] = []
        self.entries: list[list[int]] = []
        self._outside = profile.outside
        self._file_limit_bytes = profile.account_updater.file_limit_bytes
        self._draw = draw
        self._table = table
        self._proxies = {proxy.name: place for place, proxy in enumerate(scenario.proxies)}
        self._purposes: list[tuple[str | None, ...]] = []
        for proxy in scenario.proxies:
            self._of_proxy(proxy)
        self._reactors = {
            reactor.name: len(scenario.proxies) + place
            for place, reactor in enumerate(scenario.reactors)
        }
        for reactor in scenario.reactors:
            self._of_reactor(reactor)

    def _of_proxy(self, proxy: Proxy) -> None:
        row = [at.NONE] * at.BEHIND_WIDTH
        row[at.B_DESTINATION] = self._draw(proxy.destination)
        if proxy.unreachable_share:
            row[at.B_SHARE] = self._table([proxy.unreachable_share])
        if proxy.request_transform is not None:
            row[at.B_REQUEST] = self._draw(proxy.request_transform)
            row[at.B_REQUEST_POOL] = self._pool()
        if proxy.response_transform is not None:
            row[at.B_RESPONSE] = self._draw(proxy.response_transform)
            row[at.B_RESPONSE_POOL] = self._pool()
        self.behind.append(row)
        name = proxy.name
        self._purposes.append(
            (
                f"destination {name}",
                f"reach {name}" if proxy.unreachable_share else None,
                f"{REQUEST} {name}" if proxy.request_transform is not None else None,
                f"{RESPONSE} {name}" if proxy.response_transform is not None else None,
            )
        )

    def _of_reactor(self, reactor: Reactor) -> None:
        row = [at.NONE] * at.BEHIND_WIDTH
        row[at.B_RESPONSE] = self._draw(reactor.service)
        row[at.B_RESPONSE_POOL] = self._pool()
        self.behind.append(row)
        self._purposes.append((None, None, None, f"react {reactor.name}"))

    def _pool(self) -> int:
        row = [at.NONE] * at.POOL_WIDTH
        row[at.P_LASTING], row[at.P_BUSY] = _hot(self._outside), 0
        self.pools.append(row)
        return len(self.pools) - 1

    def mix(
        self, mix: tuple[Ask, ...], kind: Callable[[Subject], int]
    ) -> tuple[int, tuple[str | None, ...]]:
        """Make a mix's rows; return where they begin, and the purposes of a client's streams."""
        first = len(self.entries)
        met: list[int] = []
        for ask in mix:
            row = [at.NONE] * at.ENTRY_WIDTH
            row[at.M_PARTS] = row[at.M_STREAMS] = 0
            if ask.proxy is not None:
                row[at.M_BEHIND] = self._proxies[ask.proxy]
            elif ask.reactor is not None:
                row[at.M_BEHIND] = self._reactors[ask.reactor]
            if row[at.M_BEHIND] >= 0:
                if row[at.M_BEHIND] not in met:
                    met.append(row[at.M_BEHIND])
                row[at.M_STREAMS] = at.BEHIND_STREAMS * met.index(row[at.M_BEHIND])
            if is_job(ask):
                row[at.M_PARTS] = self._parts(ask)
                row[at.M_UPLOAD] = kind(upload_subject("0"))
            self.entries.append(row)
        return first, tuple(purpose for place in met for purpose in self._purposes[place])

    def _parts(self, ask: Ask) -> int:
        """Return how many files a job has (ACC-SPLIT)."""
        if not ask.split or ask.size_bytes <= self._file_limit_bytes:
            return 1
        return -(-ask.size_bytes // self._file_limit_bytes)


def _hot(outside: OutsideProfile) -> int:
    """Return how many instances of a pool are hot for good (D-HOT)."""
    cap = outside.instances_cap
    return outside.hot_concurrency if cap is None else min(outside.hot_concurrency, cap)
