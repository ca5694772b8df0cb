"""The requests of one client: an entry of its mix, a key and an address for each.

Equal requests of a client are one `RequestSpec`, so that a subject is looked up once per client and
not once per request.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.limits import KeyIdentity, Subject, TenantIdentity
from simulator.play.backends import RequestSpec
from simulator.play.outside import plan_maker
from simulator.rows.counters import CounterIndex
from simulator.rows.record import RequestIdentity, SubjectTable
from simulator.scenario.clients import Ask
from simulator.scenario.model import Scenario
from simulator.traffic.draws import categorical, cumulative_weights
from simulator.traffic.population import Client, KeyHolder


class RequestGenerator:
    """Draws one client's requests. only: the one that it asks for, None where they differ."""

    def __init__(
        self,
        scenario: Scenario,
        client: Client,
        numbering: SubjectRegistry,
        file_limit_bytes: int,
        entry: Callable[[], int] | None = None,
    ) -> None:
        """entry: returns the mix entry of the next request; None samples one by weight."""
        self._client = client
        self._known: dict[tuple[int, int, int], RequestSpec] = {}
        mix = client.group.mix
        self._pick = entry
        if entry is None and len(mix) > 1:
            table = cumulative_weights([ask.weight for ask in mix])
            uniform = client.stream("mix").uniform
            self._pick = lambda: categorical(uniform(), table)
        self._numbering = numbering
        self._file_limit_bytes = file_limit_bytes
        self._plan_of = [plan_maker(scenario, client, ask) for ask in mix]
        # Dealt once per client, or per request: in the first case the dealer is called once.
        deals = any(dealing.per == "request" for dealing in scenario.dealings_of(client.group))
        self._dealt = None if deals else (client.deal_key(), client.deal_address())
        self.only = None if deals or self._pick is not None else self.next()

    def next(self) -> RequestSpec:
        """Draw the next request."""
        client = self._client
        entry = self._pick() if self._pick is not None else 0
        key, address = self._dealt or (client.deal_key(), client.deal_address())
        place = (entry, key, address)
        spec = self._known.get(place)
        if spec is None:
            spec = self._known[place] = self._numbering.asked(client, entry, key, address)
            spec.plan = self._plan_of[entry]
            if spec.follow is not None:
                spec.parts = spec.ask.files(self._file_limit_bytes)
                spec.follow.size_bytes = -(-spec.ask.size_bytes // spec.parts)
        return spec


class SubjectRegistry:
    """Numbers the subjects of a scenario's requests in the rows."""

    def __init__(self, scenario: Scenario, subjects: SubjectTable, view: CounterIndex) -> None:
        self._scenario = scenario
        self._subjects = subjects
        self._view = view

    def asked(self, client: Client, entry: int, key: int, address: int) -> RequestSpec:
        """Return what a client asks for by an entry of its mix, with its upload where it is a job.

        key, address: places in the client's pools.
        """
        ask = client.group.mix[entry]
        holder = client.keys[key] if client.keys else None
        ip = client.addresses[address]
        spec = self._numbered(client, asked_by(self._scenario, ask, holder, ip))
        if ask.is_job:
            spec.follow = self._numbered(client, RequestSpec(upload_subject(ip), ask=ask))
        return spec

    def _numbered(self, client: Client, asked: RequestSpec) -> RequestSpec:
        key, proxy = asked.key, asked.proxy
        asked.row = self._subjects.number(
            RequestIdentity(
                client.number,
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


def upload_subject(ip: str) -> Subject:
    """Return the subject of the upload of a job's file: no key, an address."""
    return Subject.of(
        "PUT", "/batch-files/{id}", ip, key=None, tenant=None, proxy_key_id=None, host_id=None
    )


def asked_by(scenario: Scenario, ask: Ask, key: KeyHolder | None, ip: str) -> RequestSpec:
    """Return what an entry of a mix asks, with this key, from this address."""
    method, _, path = ask.request.partition(" ")
    proxy = scenario.proxy_of(ask)
    by_key = proxy is not None and ask.via == "key" and not proxy.require_auth
    by_host = proxy is not None and ask.via == "host"
    identity = tenant = None
    if key is not None:
        identity = KeyIdentity(key.label, key.legacy, key.application, key.application_kind)
        tenant = TenantIdentity(key.tenant, key.tenant_kind, key.table)
    elif proxy is not None:
        owner = next(candidate for candidate in scenario.tenants if candidate.name == proxy.tenant)
        table = owner.quotas.rate_limit or "Default"
        tenant = TenantIdentity(owner.name, owner.kind, table)
    subject = Subject.of(
        method,
        path,
        ip,
        key=identity,
        tenant=tenant,
        proxy_key_id=proxy.name if proxy and by_key else None,
        host_id=proxy.name if proxy and by_host else None,
    )
    return RequestSpec(subject, ask=ask, key=key, proxy=proxy)
