"""The requests of one client: an entry of its mix, a key and an address for each.

An `Asked` is everything about a request that its attempts share. Equal ones are one object, so
that a subject is looked up once per client and not once per request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.limits import Subject
from simulator.play.gates import Asking
from simulator.play.outside import Plan, plan_maker
from simulator.rows.counters import LimitsView
from simulator.rows.record import Recorder
from simulator.rows.record import Subject as RowSubject
from simulator.scenario.clients import Ask
from simulator.scenario.model import Proxy, Scenario
from simulator.traffic.draws import categorical, cumulative_weights
from simulator.traffic.population import Client, KeyHolder

__all__ = ["Asked", "Asker", "asked_by"]

_JOBS: Final = "POST /account-updater/jobs"
_UPLOAD: Final = "/batch-files/{id}"


class Asked(Asking):
    """Who of a scenario asks for what.

    parts: how many such requests begin together (ACC-SPLIT). size_bytes: of an upload's file.
    """

    __slots__ = ("ask", "follow", "key", "parts", "plan", "proxy", "size_bytes")

    def __init__(
        self, ask: Ask, key: KeyHolder | None, subject: Subject, proxy: Proxy | None = None
    ) -> None:
        super().__init__(-1, subject)
        self.ask = ask
        self.key = key
        self.proxy = proxy
        self.plan: Callable[[], Plan] | None = None
        self.follow: Asked | None = None
        self.parts = 1
        self.size_bytes = ask.size_bytes


class Asker:
    """Draws one client's requests. only: the one that it asks for, None where they differ."""

    __slots__ = (
        "_client",
        "_dealt",
        "_file_limit_bytes",
        "_known",
        "_pick",
        "_plan_of",
        "_recorder",
        "_scenario",
        "_view",
        "only",
    )

    def __init__(
        self,
        scenario: Scenario,
        client: Client,
        recorder: Recorder,
        view: LimitsView,
        file_limit_bytes: int,
    ) -> None:
        self._client = client
        self._known: dict[tuple[int, int, int], Asked] = {}
        mix = client.group.mix
        self._pick: Callable[[], int] | None = None
        if len(mix) > 1:
            table = cumulative_weights([ask.weight for ask in mix])
            uniform = client.stream("mix").uniform
            self._pick = lambda: categorical(uniform(), table)
        self._scenario = scenario
        self._recorder = recorder
        self._view = view
        self._file_limit_bytes = file_limit_bytes
        self._plan_of = [plan_maker(scenario, client, ask) for ask in mix]
        group = client.group
        pool = next((pool for pool in scenario.addresses if pool.name == group.addresses), None)
        # Dealt once per client, or per request: in the first case the dealer is called once.
        deals = group.keys.per == "request" or (pool is not None and pool.deal.per == "request")
        self._dealt = None if deals else (client.deal_key(), client.deal_address())
        self.only = None if deals or self._pick is not None else self.next()

    def next(self) -> Asked:
        """Draw the next request."""
        client = self._client
        entry = self._pick() if self._pick is not None else 0
        key, address = self._dealt or (client.deal_key(), client.deal_address())
        place = (entry, key, address)
        found = self._known.get(place)
        if found is None:
            holder = client.keys[key] if client.keys else None
            found = self._make(entry, holder, client.addresses[address])
            self._known[place] = found
        return found

    def _make(self, entry: int, key: KeyHolder | None, ip: str) -> Asked:
        ask = self._client.group.mix[entry]
        proxy = next((each for each in self._scenario.proxies if each.name == ask.proxy), None)
        asked = self._numbered(asked_by(ask, key, ip, proxy), proxy)
        asked.plan = self._plan_of[entry]
        if ask.request.partition("?")[0] == _JOBS:
            whole = ask.size_bytes
            if ask.split and whole > self._file_limit_bytes:
                asked.parts = -(-whole // self._file_limit_bytes)
            upload = Asked(ask, None, Subject("PUT", _UPLOAD, ip))
            upload.size_bytes = -(-whole // asked.parts)
            asked.follow = self._numbered(upload, None)
        return asked

    def _numbered(self, asked: Asked, proxy: Proxy | None) -> Asked:
        key = asked.key
        asked.row = self._recorder.subjects.number(
            RowSubject(
                self._client.number,
                key.tenant if key else proxy.tenant if proxy else None,
                key.application if key else None,
                key.label if key else None,
                asked.subject.ip,
                asked.subject.method,
                asked.subject.path,
            ),
            self._view.counted(asked.subject),
        )
        return asked


def asked_by(ask: Ask, key: KeyHolder | None, ip: str, proxy: Proxy | None) -> Asked:
    """Return what an entry of a mix asks, with this key, from this address, through this proxy."""
    method, _, path = ask.request.partition(" ")
    by_key = proxy is not None and ask.via == "key" and not proxy.require_auth
    by_host = proxy is not None and ask.via == "host"
    subject = Subject(
        method,
        path,
        ip,
        key_id=key.label if key else None,
        tenant_kind=key.tenant_kind if key else None,
        application_kind=key.application_kind if key else None,
        legacy=key.legacy if key else False,
        table=key.table if key else "Default",
        proxy_key_id=proxy.name if proxy and by_key else None,
        host_id=proxy.name if proxy and by_host else None,
    )
    return Asked(ask, key, subject, proxy)
